//! What the program of a run used: processor time and memory.

use serde::{Deserialize, Serialize};

/// What the program of a run used, with the processes that it started and waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time in milliseconds, of user and system.
    pub cpu_msecs: i64,
    /// The most memory that one of the processes had resident; `None` if it is unknown because it is not more than the peak of
    /// the runner.
    pub peak_memory_bytes: Option<i64>,
}
