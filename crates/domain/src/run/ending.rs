//! How a handler ended: plain values without a process.
//!
//! Pure: `decision` decides what an ending means for the run (retry, hold, release).

use serde::{Deserialize, Serialize};

/// How the main process of a handler ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this code, 0 to 255.
    Exited(i32),
    /// It was killed by a signal that the runner did not send. The signal is 0 if other code in this process has already waited
    /// for it: the kernel then cannot report how it ended.
    Signalled(i32),
    /// As `Signalled`, and the cause is known or likely: a limit, or lack of memory.
    Killed {
        /// The signal.
        signal: i32,
        /// The cause, in words.
        why: String,
    },
    /// It neither ended nor reported in time, and the runner killed it. Its exit code is ignored.
    TimedOut,
    /// The program could not be started; the text names the program and the reason.
    CouldNotStart(String),
    /// The runner could not start it for lack of processes, memory or descriptors. Neither the task nor its class is at fault.
    /// The text is as for `CouldNotStart`.
    NoRoom(String),
    /// The configuration of this host prevents its start, whatever program the task names: it cannot run as the configured user.
    /// The text is as for `CouldNotStart`.
    Misconfigured(String),
    /// The runner was asked to stop and ended it.
    Stopped,
    /// Its task was cancelled, for this reason, and the runner ended it.
    Cancelled(String),
    /// The runner killed the process it shared with another run that did not end; the text names that run.
    KilledWithAnother(String),
}

impl Ending {
    /// Returns true if the handler exited with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }
}

/// What a handler reported about its own failure, in an `{"error":…}` event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedError {
    /// The handler's own code; a number is stored as text. Empty if the handler gave none.
    pub code: String,
    /// A message for people; may be empty.
    pub message: String,
    /// Whether a retry makes sense; `None` leaves it to the exit code.
    pub retry: Option<bool>,
    /// Seconds to wait before the next attempt, 0 to a year; `None` uses the backoff.
    pub delay_secs: Option<i64>,
}
