//! How a handler ended, as the rest of the program sees it: plain values without a process behind them.
//!
//! Pure: what an ending means for the run (retry, hold, release) is decided elsewhere. Anyone may use it.

use serde::{Deserialize, Serialize};

/// How the main process of a handler ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited by itself with this code, 0 to 255.
    Exited(i32),
    /// A signal that did not come from us ended it. 0 when the kernel could not say how it ended, because somebody else
    /// in this process waited for it.
    Signalled(i32),
    /// Such a signal whose cause is known or likely: a limit, or want of memory. The text says it.
    Killed {
        /// The signal.
        signal: i32,
        /// Why, in words.
        why: String,
    },
    /// It neither ended nor reported in time, and was ended by us; whatever it exited with afterwards is not kept.
    TimedOut,
    /// The program could not be started; the text names the program and the reason.
    CouldNotStart(String),
    /// The runner could not start it: it had no process, memory or descriptor to spare. Neither the task nor its class is at
    /// fault. The text is that of `CouldNotStart`.
    NoRoom(String),
    /// It could not be started because of what the configuration of this host says, whatever program the task names: whose
    /// rights it is to have. The text is that of `CouldNotStart`.
    Misconfigured(String),
    /// Our runner was told to stop and ended it.
    Stopped,
    /// Somebody cancelled its task, for this reason, and our runner ended it.
    Cancelled(String),
    /// Our runner killed the process that it shared with another run, which would not end; the text says which.
    KilledWithAnother(String),
}

impl Ending {
    /// Whether the handler ended by itself with exit code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }
}

/// What a handler said about its own failure, in an `{"error":…}` event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedError {
    /// The handler's own code; a number is kept as its text. Empty when the handler gave none.
    pub code: String,
    /// For people; may be empty.
    pub message: String,
    /// Whether another attempt makes sense; `None` leaves it to the exit code.
    pub retry: Option<bool>,
    /// Seconds to wait before the next attempt, 0 to a year; `None` leaves it to the backoff.
    pub delay_secs: Option<i64>,
}
