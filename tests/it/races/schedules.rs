//! Schedules: however many let one go on at once, one task follows.

use std::sync::Barrier;

use taskqueue::domain::ids::TaskId;
use taskqueue::domain::new_task::TaskRequest;
use taskqueue::domain::transition::RunEvent;
use taskqueue::engine::Context;
use taskqueue::engine::queue::{ClassCheck, queue_task};
use taskqueue::store::{Author, Ended, NewEvent, ScheduleChange, Store};

use crate::conformance::fixture::{claim, create, ending, reference, request, willing};
use crate::each_engine;
use crate::support::TestDb;

const AT_ONCE: usize = 6;
const NOBODY: Author<'static> = Author { name: "tester", host: "here" };

/// Each closure in a thread and with a connection of its own, all let go at once.
fn at_once<T: Send>(db: &TestDb, work: impl Fn(&mut Store, usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(AT_ONCE);
    let (barrier, work) = (&barrier, &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let mut store = db.store();
                scope.spawn(move || {
                    barrier.wait();
                    work(&mut store, number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A schedule whose first task is overdue and has its run.
fn overdue(db: &TestDb, ctx: &mut Context) -> TaskId {
    let every = TaskRequest { every: Some("0 0 29 2 *".into()), catch_up: Some("all".into()), ..request("work") };
    let id = queue_task(ctx, every, ClassCheck::AnyName).unwrap();
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2024-02-29 00:00:00.000000', \"ScheduledOn\" = '2024-02-29 00:00:00.000000'
         WHERE \"Id\" = {id}"
    ));
    create(ctx);
    id
}

fn tasks_of(db: &TestDb, id: TaskId) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}"))
}

each_engine! {
    fn processes_that_let_a_schedule_go_on_at_once_leave_one_next_task(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let id = overdue(db, &mut ctx);
            db.execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = \"CreatedOn\" WHERE \"Status\" = 'scheduled'");
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL WHERE \"Id\" = {id}"));
            // By create-runs, which others wait for, and alone, where nobody waits for anybody.
            let planned = at_once(db, |store, number| match number % 2 {
                0 => store.advance_schedules(NOBODY, 900).unwrap().planned,
                _ => store.advance_schedule(id, NOBODY, 900).unwrap().planned,
            });
            assert_eq!(planned.iter().sum::<usize>(), 1, "{planned:?}");
            assert_eq!(tasks_of(db, id), 2);
        }
    }

    fn an_end_and_a_create_runs_at_once_leave_one_next_task(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let id = overdue(db, &mut ctx);
            let run = reference(&claim(&mut ctx.store).unwrap());
            at_once(db, |store, number| {
                if number == 0 {
                    assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), Ended::Recorded);
                } else {
                    store.advance_schedules(NOBODY, 900).unwrap();
                    store.create_missing_runs(&mut |_| {}).unwrap();
                }
            });
            assert_eq!(tasks_of(db, id), 2);
        }
    }

    fn a_pause_and_a_claim_at_once_leave_the_run_to_one_of_them(db) {
        let mut ctx = willing(db);
        let event = NewEvent {
            kind: "schedule-paused",
            task_id: None,
            run_id: None,
            actor: String::new(),
            host: String::new(),
            details: serde_json::json!({}),
        };
        for _ in 0..5 {
            let id = overdue(db, &mut ctx);
            let claimed: usize = at_once(db, |store, number| {
                if number == 0 {
                    store.change_schedule(id, &ScheduleChange::Pause, &event).unwrap();
                    return 0;
                }
                usize::from(claim(store).is_some())
            })
            .iter()
            .sum();
            let task = ctx.store.get_task(id).unwrap();
            assert_eq!(task.schedule.as_ref().unwrap().status.to_string(), "paused");
            assert_eq!((task.current_run_id.is_some(), task.status.to_string() == "processing"), (claimed == 1, claimed == 1), "{task:?}");
        }
    }
}
