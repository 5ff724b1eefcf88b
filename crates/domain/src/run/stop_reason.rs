//! Why a handler must end.

use crate::text::words::words;

words! {
    /// Why a handler must end before it has finished.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum StopReason {
        /// An operator cancelled the task.
        Cancel = "cancel",
        /// The run reported nothing for the length of its timeout.
        Timeout = "timeout",
        /// Its runner stops: the run is released and will be attempted again.
        Shutdown = "shutdown",
        /// Its runner could not renew the lease of the run; another runner may take the run soon.
        LeaseLost = "lease-lost",
    }
}
