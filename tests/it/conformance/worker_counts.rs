//! The counters of a worker agree with the store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use taskqueue::HandlerError;
use taskqueue_domain::task::ids::{RunnerId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::change::cancel::cancel_tasks;
use taskqueue_engine::work::{WorkListener, WorkOptions, work};
use taskqueue_engine::{Context, EngineError};
use taskqueue_process::signals::stop_signals::StopSignals;

use super::fixture::{Deaf, context, last_run, process_one, queue_with_run, willing};
use crate::each_engine;
use crate::support::TestDb;

impl WorkListener for Deaf {
    fn waits_for_slots(&mut self, _in_use: i64, _limit: i64) {}
    fn lost_database(&mut self, _problem: &EngineError) {}
    fn not_recorded(&mut self, _run: &ClaimedRun, _problem: &EngineError) {}
    fn registered(&mut self, _runner_id: RunnerId) {}
}

/// Returns a context whose class `work` fails on its own, just after its task was cancelled.
fn cancelled_while_it_fails(db: &TestDb) -> Context {
    let operator = Mutex::new(willing(db));
    context(db, "work", move |run| {
        let id = TaskId(run.task_id());
        cancel_tasks(&mut operator.lock().unwrap(), &[id], None, &mut |_| {}).unwrap();
        Err(HandlerError::new("E1", "no luck"))
    })
}

each_engine! {
    fn a_run_that_was_cancelled_while_it_failed_counts_as_cancelled(db) {
        let mut ctx = cancelled_while_it_fails(db);
        let (id, _) = queue_with_run(&mut ctx, "work");
        let options = WorkOptions { slots: 1, idle_exit: Some(Duration::ZERO), ..WorkOptions::default() };
        let (stop, _handle) = StopSignals::by_hand().unwrap();
        let report = work(&mut ctx, &options, &stop, &mut Deaf).unwrap();
        assert_eq!(last_run(db, id).status.to_string(), "cancelled");
        let counted = options.tally.facts().classes["work"].ended.clone();
        assert_eq!(counted, BTreeMap::from([("cancelled", 1), ("error", 0), ("success", 0), ("timeout", 0)]));
        assert_eq!((report.processed, report.cancelled, report.failed), (1, 1, 0));
    }

    fn so_does_the_run_of_a_process_run(db) {
        let mut ctx = cancelled_while_it_fails(db);
        queue_with_run(&mut ctx, "work");
        let report = process_one(&mut ctx);
        assert_eq!((report.processed, report.cancelled, report.failed), (1, 1, 0));
    }
}
