//! A task that the process that queues it runs itself.

use chrono::TimeDelta;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_engine::inspect::wait::run_here;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_process::signals::stop_signals::StopSignals;

use super::fixture::{Deaf, request, willing};
use crate::each_engine;

each_engine! {
    fn whoever_wants_to_run_a_task_that_is_not_due_is_told_why_in_words(db) {
        let mut ctx = willing(db);
        let later = ctx.now().unwrap() + TimeDelta::hours(1);
        let asked = TaskRequest { scheduled_on: Some(later), ..request("work") };
        let id = queue_task(&mut ctx, asked, ClassCheck::AnyName).unwrap();
        let stop = StopSignals::install().unwrap();
        let error = run_here(&mut ctx, id, &stop, &mut Deaf, &mut |_| {}).unwrap_err().to_string();
        assert!(error.ends_with(&format!("task {id} is queued, but cannot run now: it is not due yet")), "{error}");
    }
}
