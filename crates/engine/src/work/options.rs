//! How a worker works, and what of that may change while it does.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Announcements;
use crate::handler::handlers::ClassesInUse;
use crate::inspect::monitoring::tally::Tally;

/// The options of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkOptions {
    /// How many runs are executed at once, 1 or more.
    pub slots: usize,
    /// Names of classes, or patterns with `*` and `?`; empty accepts all classes known here.
    pub classes: Vec<String>,
    /// The largest number of runs.
    pub max_runs: Option<u64>,
    /// No new run is started after this time.
    pub max_time: Option<Duration>,
    /// Ends after being idle for this long.
    pub idle_exit: Option<Duration>,
    /// Ends when the worker itself, without its handlers, uses more memory than this, in bytes.
    pub max_rss_bytes: Option<u64>,
    /// How long the runs in progress may continue after the first signal to stop.
    pub stop_wait: Duration,
    /// Whether to end, after the runs in progress, when so many threads were left behind that nothing may be claimed; otherwise
    /// it waits until some of them end.
    pub ends_when_blocked: bool,
    /// Counts what the worker does.
    pub tally: Arc<Tally>,
}

/// The parts of a reloaded configuration that a running worker uses. A changed store or spool needs a restart.
pub struct Reconfiguration {
    /// The classes.
    pub classes: ClassesInUse,
    /// Notices and hooks.
    pub announcements: Announcements,
    /// How long the runs in progress may continue after the first signal to stop.
    pub stop_wait: Duration,
}
