//! Why a handler must end.

use crate::text::words::words;

/// Why a handler must end before it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// An operator cancelled the task.
    Cancel,
    /// The run reported nothing for the length of its timeout.
    Timeout,
    /// Its runner stops: the run is released and will be attempted again.
    Shutdown,
    /// Its runner could not renew the lease of the run; another runner may take the run soon.
    LeaseLost,
}

words! {
    /// Returns the word that handlers in other languages read.
    StopReason { Cancel = "cancel", Timeout = "timeout", Shutdown = "shutdown", LeaseLost = "lease-lost" }
}
