//! The input of `queue --batch` and `import`: a file or standard input, which a signal interrupts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::CliError;
use crate::output::Out;
use crate::views::outcome::tell_at_once;
use taskqueue_engine::{EngineError, StopSignals};

const BUFFER_BYTES: usize = 64 << 10;
/// After this time without input, a terminal shows what the command waits for.
pub(crate) const NOTICE_AFTER: Duration = Duration::from_secs(1);
pub(crate) const NEXT_POLL: Duration = Duration::from_mins(1);

/// An opened input.
pub(crate) struct BatchInput {
    file: File,
    is_stdin: bool,
}

/// The signals that interrupt a batch.
pub(crate) struct BatchStop {
    signals: Arc<StopSignals>,
    /// What is done to the tasks: `queued`.
    done: &'static str,
    /// Whether the input was read to its end, so that the tasks are being inserted.
    is_read: Arc<AtomicBool>,
}

impl BatchInput {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let is_stdin = path.as_os_str() == "-";
        let opened = if is_stdin {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path).and_then(|file| {
                if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
            })
        };
        let file = opened.map_err(|error| {
            CliError::usage(format!("cannot read {}: {error}", path.display()))
                .with_hint("check the path and its permissions; `-` is standard input")
        })?;
        Ok(Self { file, is_stdin })
    }

    /// Returns the input, which ends with an error at the first signal.
    pub(crate) fn until(self, stop: &BatchStop, out: &Out) -> impl BufRead + use<> {
        let (signals, is_read) = (Arc::clone(&stop.signals), Arc::clone(&stop.is_read));
        let is_shown = !self.is_stdin || !out.has_messages_on_terminal();
        BufReader::with_capacity(BUFFER_BYTES, Interruptible { file: self.file, signals, is_read, is_shown })
    }
}

struct Interruptible {
    file: File,
    signals: Arc<StopSignals>,
    is_read: Arc<AtomicBool>,
    /// Whether the notice was shown, or is not to be shown.
    is_shown: bool,
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let limit = if self.is_shown { NEXT_POLL } else { NOTICE_AFTER };
            let (is_stopping, is_readable) = self.signals.wait_or_read(Some(self.file.as_fd()), limit);
            if is_stopping {
                return Err(io::Error::other("stopped by a signal"));
            }
            if is_readable {
                let count = self.file.read(buffer)?;
                self.is_read.store(count == 0, Ordering::Relaxed);
                return Ok(count);
            }
            if !self.is_shown {
                tell_at_once("waiting for standard input; Ctrl-D on an empty line ends it");
                self.is_shown = true;
            }
        }
    }
}

impl BatchStop {
    /// Handles signals from now on. The first one interrupts the input. All tasks are inserted in one transaction, so while that
    /// runs, the first signal only prints what a second one does.
    pub(crate) fn install(done: &'static str) -> anyhow::Result<Self> {
        let (signals, is_read) = (Arc::new(StopSignals::install_for_one()?), Arc::new(AtomicBool::new(false)));
        let (watched, is_inserting) = (Arc::clone(&signals), Arc::clone(&is_read));
        // Without a thread, only its message is missing.
        let _ = std::thread::Builder::new().spawn(move || {
            while !watched.wait(NEXT_POLL) {}
            if is_inserting.load(Ordering::Relaxed) {
                tell_at_once(&format!(
                    "stopping: the tasks are being {done} in one transaction; a second signal ends it, and then nothing is {done}"
                ));
            }
        });
        Ok(Self { signals, done, is_read })
    }

    /// Returns the error of an interrupted input in the words of the command.
    pub(crate) fn explain(&self, error: EngineError) -> anyhow::Error {
        let is_input = matches!(error, EngineError::Input(_) | EngineError::Refused(_));
        if is_input && self.signals.is_stopping() && !self.is_read.load(Ordering::Relaxed) {
            return CliError::interrupted(format!("stopped by a signal: nothing was {}", self.done)).into();
        }
        error.into()
    }
}
