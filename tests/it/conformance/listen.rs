//! Listeners of a program: for all events, for those of a task, for those of a run.

use std::ops::ControlFlow;
use std::sync::Mutex;

use serde_json::json;
use taskqueue_engine::StopSignals;
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};
use taskqueue_engine::inspect::events::{EventFilter, listen};

use super::fixture::{context, create, drain, last_run, queue_with_run, willing};
use crate::each_engine;
use crate::support::{TestDb, wait_until};

/// Kind, task and run.
type Heard = (String, Option<i64>, Option<i64>);

fn keep_event(db: &TestDb, kind: &str) {
    db.execute(&format!(
        "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"RunId\") VALUES ('{kind}', 1, 1)"
    ));
}

/// Sends the event that ends the listeners, even if the test fails.
struct Ending<'a>(&'a TestDb);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        keep_event(self.0, "end");
    }
}

/// Listens until the last event.
fn listen_to(db: &TestDb, filter: EventFilter, heard: &Mutex<Vec<Heard>>) {
    let stop = StopSignals::install().unwrap();
    listen(&mut willing(db), filter, &stop, &mut |event| {
        let about = (event.kind.clone(), event.task_id.map(|task| task.0), event.run_id.map(|run| run.0));
        heard.lock().unwrap().push(about);
        if event.kind == "end" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
}

each_engine! {
    fn listeners_hear_all_events_or_those_of_their_task_or_of_their_run(db) {
        let mut ctx = context(db, "work", |run| run.emit("page", &json!(1)));
        let (task_id, run_id) = queue_with_run(&mut ctx, "work");
        let _ = queue_with_run(&mut ctx, "work");
        let filters = [
            EventFilter::default(),
            EventFilter { task_id: Some(task_id), ..EventFilter::default() },
            EventFilter { run_id: Some(run_id), ..EventFilter::default() },
        ];
        let heard: [Mutex<Vec<Heard>>; 3] = Default::default();
        std::thread::scope(|scope| {
            let ending = Ending(db);
            for (filter, heard) in filters.into_iter().zip(&heard) {
                scope.spawn(move || listen_to(db, filter, heard));
            }
            wait_until("all listen", || {
                keep_event(db, "probe");
                heard.iter().all(|heard| !heard.lock().unwrap().is_empty())
            });
            assert_eq!(drain(&mut ctx).succeeded, 2);
            retry_tasks(&mut ctx, &[task_id], &RetryOptions::default(), &mut |_| {}).unwrap();
            create(&mut ctx);
            assert_eq!(drain(&mut ctx).succeeded, 1);
            drop(ending);
        });
        let event = |kind: &str, task: i64, run: Option<i64>| (kind.to_owned(), Some(task), run);
        let all = vec![
            event("message", 1, Some(1)),
            event("message", 2, Some(2)),
            event("retried", 1, None),
            event("message", 1, Some(last_run(db, task_id).id.0)),
            event("end", 1, Some(1)),
        ];
        let of_task: Vec<Heard> = all.iter().filter(|(_, task, _)| *task == Some(1)).cloned().collect();
        let of_run: Vec<Heard> = all.iter().filter(|(_, _, run)| *run == Some(1)).cloned().collect();
        let heard = heard.map(|heard| {
            let mut heard = heard.into_inner().unwrap();
            heard.retain(|(kind, _, _)| kind != "probe");
            heard
        });
        assert_eq!(heard, [all, of_task, of_run]);
    }
}
