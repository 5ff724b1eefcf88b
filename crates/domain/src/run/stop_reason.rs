//! Why a handler must end.

use std::fmt;

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

impl StopReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Cancel, Self::Timeout, Self::Shutdown, Self::LeaseLost];

    /// Returns the word that handlers in other languages read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Timeout => "timeout",
            Self::Shutdown => "shutdown",
            Self::LeaseLost => "lease-lost",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
