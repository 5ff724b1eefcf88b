//! What a worker reports about itself.

use super::options::Reconfiguration;
use crate::error::EngineError;
use crate::running::process_run::ProcessReport;
use crate::running::run_listener::RunListener;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::ClaimedRun;

/// Receives notifications about the worker itself, besides those about its runs.
pub trait WorkListener: RunListener {
    /// The runner limit leaves no slot; the worker waits.
    fn waits_for_slots(&mut self, in_use: i64, limit: i64);
    /// The worker runs with fewer slots than requested, for this reason.
    fn has_fewer_slots(&mut self, _wanted: usize, _slots: usize, _why: &str) {}
    /// The database is unreachable; the worker retries.
    fn lost_database(&mut self, problem: &EngineError);
    /// The database is reachable again.
    fn found_database(&mut self) {}
    /// The worker uses too much memory, and ends after its runs in progress.
    fn is_too_large(&mut self, _used_bytes: u64, _most_bytes: u64) {}
    /// Returns a new configuration, if there is one that the worker does not have yet. Called several times a second.
    fn reconfiguration(&mut self) -> Option<Reconfiguration> {
        None
    }
    /// The worker uses the new configuration.
    fn reconfigured(&mut self) {}
    /// Returns a function to call while a database operation waits: the database is unreachable, but the worker does not hang.
    fn pulse(&self) -> Box<dyn Fn() + Send> {
        Box::new(|| {})
    }
    /// So many threads were left behind that the worker claims nothing for now.
    fn is_blocked(&mut self, _threads: usize) {}
    /// Some of them have ended, so the worker claims again.
    fn claims_again(&mut self) {}
    /// The database refuses the outcome of this run, which stays in the spool.
    fn not_recorded(&mut self, run: &ClaimedRun, problem: &EngineError);
    /// The worker was registered as this runner.
    fn registered(&mut self, runner_id: RunnerId);
    /// Called several times a second.
    fn looked(&mut self, _report: &ProcessReport, _working: usize) {}
}
