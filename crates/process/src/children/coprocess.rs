//! A handler that keeps running, with bytes written to its standard input and read from its outputs. Does not interpret them.
//!
//! The thread that starts it must live as long as it does, because the kernel kills it when that thread ends; the same thread
//! reads its outputs. Any thread may write to it. Its descriptor 3 is open, as for every handler; what it writes there is read
//! and discarded, so that it never blocks.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, ioctl_fionread, read, retry_on_intr, write};

use super::capture::Stream;
use super::cause::{OomKills, explained};
use super::exit::Exit;
use super::leftovers::end_leftovers;
use super::observer::{Control, Observer};
use super::pump::Pump;
use crate::identities::adoption::Adopting;
use crate::identities::identity::ProcessIdentity;
use crate::identities::signalling::Signal;
use crate::identities::survivors::end_survivors;
use crate::spawning::pre_exec::EVENTS_FD;
use crate::spawning::spawn::{self, ChildSpec, HandlerProcess, Pipes};
use taskqueue_domain::limits::confinement::Limits;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::{Moment, poll_wait};
use taskqueue_host::net::waker::Waker;

/// How many bytes are read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The maximum number of reads of one stream per turn: more than a pipe holds, so that one stream does not starve the others.
const MOST_READS: usize = 32;
/// How often its orphans are checked; ended ones are then reaped.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long the search for processes that it left elsewhere waits between TERM and KILL.
const LONGEST_SEARCH_GRACE: Duration = Duration::from_secs(2);

/// Receives its output and decides whether it may keep running. Every call must return quickly.
pub trait CoprocessListener {
    /// Receives bytes of standard output.
    fn stdout(&mut self, bytes: &[u8]);
    /// Receives bytes of standard error; all that was available before the standard output of the same turn.
    fn stderr(&mut self, bytes: &[u8]);
    /// Called every half second while it is being ended: returns true if it gets no more time.
    fn must_be_killed(&mut self) -> bool;
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoprocessTurn {
    /// Its main process has ended, and all its output was passed on.
    pub has_ended: bool,
    /// It has closed its standard output and cannot answer any more.
    pub is_mute: bool,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoprocessEnd {
    /// How its main process ended.
    pub ending: Ending,
    /// Why some of its processes could not be ended and may still be alive.
    pub unended: Option<String>,
    /// How many bytes written to it were not read.
    pub unread_bytes: u64,
}

/// How it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// Whether its input is closed, so that it reads end of file: no more runs will come.
    pub closes_input: bool,
    /// The time until TERM.
    pub term_after: Duration,
    /// The time until KILL.
    pub kill_after: Duration,
    /// The time between TERM and KILL for processes that it leaves behind.
    pub kill_grace: Duration,
    /// The reason it can read on descriptor 4 after TERM.
    pub reason: Option<StopReason>,
}

/// The writing end of its input; it never blocks.
#[derive(Debug)]
pub struct Inlet {
    writer: OwnedFd,
}

impl Inlet {
    /// Writes as many bytes as fit; returns 0 if none fit.
    ///
    /// # Errors
    /// Never because of the process, even if it ends: this side keeps the reading end open.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match retry_on_intr(|| write(&self.writer, bytes)) {
            Err(Errno::AGAIN) => Ok(0),
            written => Ok(written?),
        }
    }

    fn unread_bytes(&self) -> u64 {
        ioctl_fionread(&self.writer).unwrap_or(0)
    }
}

/// A running coprocess.
pub struct Coprocess {
    handler: HandlerProcess,
    pipes: Pipes,
    is_mute: bool,
    stderr_is_open: bool,
    events_are_open: bool,
    limits: Limits,
    kills_before: OomKills,
    look_again: Moment,
    buffers: [Vec<u8>; 2],
    _adopting: Adopting,
}

impl Coprocess {
    /// Starts it. The calling thread must stay alive as long as it runs.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn start(spec: &ChildSpec) -> Result<(Self, Inlet), Ending> {
        let adopting = Adopting::begin();
        let kills_before = OomKills::now();
        let (handler, pipes) = spawn::start(spec)?;
        let writer = fcntl_dupfd_cloexec(&pipes.stdin.writer, EVENTS_FD + 1);
        let coprocess = Self {
            handler,
            pipes,
            is_mute: false,
            stderr_is_open: true,
            events_are_open: true,
            limits: spec.rights.limits,
            kills_before,
            look_again: Moment::after(LOOK_EVERY),
            buffers: [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]],
            _adopting: adopting,
        };
        match writer {
            Ok(writer) => Ok((coprocess, Inlet { writer })),
            Err(errno) => {
                let now = Duration::ZERO;
                let plan =
                    EndPlan { closes_input: true, term_after: now, kill_after: now, kill_grace: now, reason: None };
                coprocess.end(None, &plan, &mut Nobody);
                Err(Ending::NoRoom(format!("could not start {}: {errno}", spec.program.display())))
            }
        }
    }

    /// Returns the identity of its main process.
    #[must_use]
    pub fn identity(&self) -> &ProcessIdentity {
        self.handler.identity()
    }

    /// Returns the resident memory of its main process, in bytes. Cheap enough to call after every run.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let mut text = [0_u8; 128];
        // It was not reaped, so its PID was not reused.
        let count = File::open(format!("/proc/{}/statm", self.identity().pid)).ok()?.read(&mut text).ok()?;
        let pages: u64 = std::str::from_utf8(text.get(..count)?).ok()?.split(' ').nth(1)?.parse().ok()?;
        pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
    }

    /// Waits until it has written something, has ended, can be written to (if wanted) or `waker` wakes it, at most until
    /// `until`, and passes on its output. `reads_output` is whether its standard output is read.
    pub fn turn(
        &mut self,
        waker: &Waker,
        (reads_output, wants_to_write): (bool, bool),
        until: Moment,
        listener: &mut dyn CoprocessListener,
    ) -> CoprocessTurn {
        let reads_output = reads_output && !self.is_mute;
        let mut fds = [
            PollFd::new(&self.handler, PollFlags::IN),
            PollFd::new(waker, PollFlags::IN),
            PollFd::new(&self.pipes.stdout, if reads_output { PollFlags::IN } else { PollFlags::empty() }),
            PollFd::new(&self.pipes.stderr, PollFlags::IN),
            PollFd::new(&self.pipes.events, PollFlags::IN),
            PollFd::new(&self.pipes.stdin.writer, if wants_to_write { PollFlags::OUT } else { PollFlags::empty() }),
        ];
        // A pipe at end of file would always be ready; a slot without a pipe watches the waker again.
        for (at, is_open) in
            [(2, reads_output), (3, self.stderr_is_open), (4, self.events_are_open), (5, wants_to_write)]
        {
            if !is_open {
                fds[at] = PollFd::new(waker, PollFlags::empty());
            }
        }
        if poll(&mut fds, Some(&poll_wait(until.remaining()))).is_err_and(|errno| errno != Errno::INTR) {
            // Only lack of kernel memory can cause this; it is temporary.
            std::thread::sleep(Duration::from_millis(20));
            return CoprocessTurn { is_mute: self.is_mute, ..CoprocessTurn::default() };
        }
        let [ended, woken, stdout, stderr, events, _] = fds.map(|fd| !fd.revents().is_empty());
        if woken {
            let _ = read(waker, &mut [0; 8]);
        }
        if events {
            self.drop_events();
        }
        if ended {
            // All its output is in the pipes by now. A descendant may write on without an end.
            for _ in 0..MOST_READS {
                if !self.hear(true, listener) {
                    break;
                }
            }
        } else if stdout || stderr {
            self.hear(stdout, listener);
        }
        if self.look_again.has_passed() {
            // This reaps ended orphans.
            let _ = self.handler.origin.left_behind();
            self.look_again = Moment::after(LOOK_EVERY);
        }
        CoprocessTurn { has_ended: ended, is_mute: self.is_mute }
    }

    /// Reads standard output once, then all of standard error. Passes on standard error first: what was written there before an
    /// answer belongs before it. Returns true if there was standard output.
    fn hear(&mut self, stdout: bool, listener: &mut dyn CoprocessListener) -> bool {
        let [answers, words] = &mut self.buffers;
        let mut count = 0;
        if stdout && !self.is_mute {
            match read_some(&self.pipes.stdout, answers) {
                Some(0) => self.is_mute = true,
                Some(bytes) => count = bytes,
                None => {}
            }
        }
        for _ in 0..MOST_READS {
            match self.stderr_is_open.then(|| read_some(&self.pipes.stderr, words)).flatten() {
                Some(0) => self.stderr_is_open = false,
                Some(bytes) => listener.stderr(words.get(..bytes).unwrap_or_default()),
                None => break,
            }
        }
        if count > 0 {
            listener.stdout(answers.get(..count).unwrap_or_default());
        }
        count > 0
    }

    fn drop_events(&mut self) {
        if read_some(&self.pipes.events, &mut self.buffers[1]) == Some(0) {
            self.events_are_open = false;
        }
    }

    /// Ends it, or waits for its end, together with all its descendants, as `child::supervise` does for a handler of one run. The
    /// inlet is kept open unless its input is to be closed.
    pub fn end(self, inlet: Option<Inlet>, plan: &EndPlan, listener: &mut dyn CoprocessListener) -> CoprocessEnd {
        let Self { handler, pipes, limits, kills_before, .. } = self;
        let inlet = inlet.filter(|_| !plan.closes_input);
        let mut tail = Tail { listener };
        // Without input to write, the pump closes its end of the input at once.
        let mut pump = Pump::new(pipes, b"", 0, &[], None);
        let kill_at = bring_to_end(&handler, plan, &mut pump, &mut tail);
        let ending = explained(Exit::of(handler.as_fd()).ending, handler.identity().pid, &limits, kills_before);
        let marker = String::from_utf8_lossy(&handler.origin.marker).into_owned();
        end_leftovers(handler, plan.kill_grace, kill_at, &mut pump, &mut tail);
        // Processes that another process adopted are found by their marker.
        let grace = plan.kill_grace.min(LONGEST_SEARCH_GRACE);
        let is_well = plan.closes_input && ending.is_success();
        let unended = if is_well { None } else { end_survivors(&marker, None, grace).err() };
        let unread_bytes = inlet.map_or(0, |inlet| inlet.unread_bytes());
        CoprocessEnd { ending, unended: unended.map(|error| error.to_string()), unread_bytes }
    }
}

/// Returns `None` if nothing can be read now; 0 at end of file.
fn read_some(pipe: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    match retry_on_intr(|| read(pipe, &mut *buffer)) {
        Err(Errno::AGAIN) => None,
        read => Some(read.unwrap_or(0)),
    }
}

/// Waits until the main process has ended. Returns when its grace period ended, if it was asked to end.
fn bring_to_end(handler: &HandlerProcess, plan: &EndPlan, pump: &mut Pump<'_>, tail: &mut Tail<'_>) -> Option<Moment> {
    let (mut term_at, mut kill_at) = (Some(Moment::after(plan.term_after)), Moment::after(plan.kill_after));
    let mut asked = None;
    loop {
        if kill_at.has_passed() {
            handler.signal_group(Signal::KILL);
            asked = asked.or(Some(kill_at));
            // Repeated in case it is stuck in the kernel or has forked meanwhile.
            kill_at = Moment::after(Duration::from_secs(1));
            term_at = None;
        } else if term_at.is_some_and(Moment::has_passed) {
            handler.ask_to_end(plan.reason);
            asked = Some(kill_at);
            term_at = None;
        }
        let until = term_at.unwrap_or(kill_at).min(kill_at);
        let turn = pump.turn(&[handler.as_fd()], until, tail);
        if turn.ended {
            // Its last output is in the pipes.
            for _ in 0..MOST_READS {
                pump.turn(&[], Moment::now(), tail);
            }
            return asked;
        }
        if turn.kill {
            kill_at = Moment::now();
        }
    }
}

/// Receives its last output.
struct Tail<'a> {
    listener: &'a mut dyn CoprocessListener,
}

impl Observer for Tail<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.listener.stdout(bytes),
            Stream::Stderr => self.listener.stderr(bytes),
        }
    }

    fn idle(&mut self) -> Control {
        if self.listener.must_be_killed() { Control::Kill } else { Control::Continue }
    }
}

struct Nobody;

impl CoprocessListener for Nobody {
    fn stdout(&mut self, _bytes: &[u8]) {}
    fn stderr(&mut self, _bytes: &[u8]) {}
    fn must_be_killed(&mut self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
