//! Schedules: however many let one go on at once, one task follows. Prune: what somebody needs after all is left to them.

use std::sync::Barrier;

use taskqueue::domain::ids::TaskId;
use taskqueue::domain::new_task::{NewTask, TaskRequest};
use taskqueue::domain::settings::Settings;
use taskqueue::domain::status::TaskStatus;
use taskqueue::domain::transition::RunEvent;
use taskqueue::engine::Context;
use taskqueue::engine::queue::{ClassCheck, queue_task};
use taskqueue::store::{
    Author, Ended, NewEvent, PruneRule, PruneVerdict, Restart, RestartAnswer, ScheduleChange, Store,
};

use crate::conformance::fixture::{claim, create, ending, queue_with_run, reference, request, willing};
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
fn overdue(db: &TestDb, ctx: &mut Context, unique: Option<String>) -> TaskId {
    let every = TaskRequest { every: Some("0 0 29 2 *".into()), catch_up: Some("all".into()), unique, ..request("work") };
    let id = queue_task(ctx, every, ClassCheck::AnyName).unwrap();
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2024-02-29 00:00:00.000000', \"ScheduledOn\" = '2024-02-29 00:00:00.000000'
         WHERE \"Id\" = {id}"
    ));
    create(ctx);
    id
}

/// As if somebody had settled the task in the tables.
fn settle(db: &TestDb, id: TaskId) {
    db.execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = \"CreatedOn\" WHERE \"Status\" = 'scheduled'");
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL WHERE \"Id\" = {id}"));
}

/// A task of no schedule.
fn keyed(key: &str) -> NewTask {
    let asked = TaskRequest { unique: Some(key.to_owned()), ..request("work") };
    asked.validate(&Settings::from_rows(&[]).unwrap()).unwrap()
}

fn insert(store: &mut Store, task: &NewTask) -> TaskId {
    store.insert_tasks(std::slice::from_ref(task), &mut |_| {}).unwrap()[0].id
}

/// A task that failed for good, long ago.
fn exhausted(db: &TestDb, ctx: &mut Context) -> TaskId {
    let (id, run) = queue_with_run(ctx, "work");
    db.execute(&format!(
        "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'error', \"FinishedOn\" = \"CreatedOn\" WHERE \"Id\" = {run};
         UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = \"MaxRetries\", \"CurrentRunId\" = NULL,
             \"ScheduledOn\" = '2020-01-01 00:00:00.000000', \"UpdatedOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = {id}"
    ));
    id
}

fn tasks_of(db: &TestDb, id: TaskId) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}"))
}

each_engine! {
    fn processes_that_let_a_schedule_go_on_at_once_leave_one_next_task(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let id = overdue(db, &mut ctx, None);
            settle(db, id);
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
            let id = overdue(db, &mut ctx, None);
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

    fn the_key_of_a_schedule_is_never_free_between_one_task_and_the_next(db) {
        let mut ctx = willing(db);
        for round in 0..5 {
            let key = format!("k{round}");
            let id = overdue(db, &mut ctx, Some(key.clone()));
            let run = reference(&claim(&mut ctx.store).unwrap());
            let task = keyed(&key);
            let found = at_once(db, |store, number| {
                if number > 0 {
                    return insert(store, &task);
                }
                assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), Ended::Recorded);
                id
            });
            assert_eq!(tasks_of(db, id), 2);
            let of_schedule = format!("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}");
            let of_schedule = db.raw().numbers(&of_schedule);
            assert!(found.iter().all(|id| of_schedule.contains(&Some(id.0))), "{found:?} {of_schedule:?}");
        }
    }

    fn of_a_schedule_and_those_who_want_its_key_while_it_is_free_one_gets_it_and_the_schedule_goes_on(db) {
        let mut ctx = willing(db);
        for round in 0..5 {
            let key = format!("k{round}");
            let live = format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" = '{key}'");
            let id = overdue(db, &mut ctx, Some(key.clone()));
            settle(db, id);
            let task = keyed(&key);
            at_once(db, |store, number| match number % 3 {
                0 => store.advance_schedules(NOBODY, 900).unwrap().planned,
                1 => store.advance_schedule(id, NOBODY, 900).unwrap().planned,
                _ => usize::from(insert(store, &task) == id),
            });
            assert_eq!(db.number(&live), 1);
            let told = format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'key-taken' AND \"TaskQueueId\" = {id}");
            assert!(db.number(&told) <= 1);
            // However that was, it goes on once nobody else has its key.
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"UniqueKey\" = '{key}' AND \"ScheduleId\" IS NULL"));
            ctx.store.advance_schedule(id, NOBODY, 900).unwrap();
            assert_eq!((tasks_of(db, id), db.number(&live)), (2, 1));
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
            let id = overdue(db, &mut ctx, None);
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

    fn a_prune_and_a_retry_at_once_leave_the_task_to_one_of_them(db) {
        let mut ctx = willing(db);
        let event = NewEvent {
            kind: "retried",
            task_id: None,
            run_id: None,
            actor: String::new(),
            host: String::new(),
            details: serde_json::json!({}),
        };
        let rule = PruneRule { status: TaskStatus::Failed, class: None, older_than_secs: Some(60), at_most: None };
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            // All of them have seen it before anybody does anything.
            let window = ctx.store.find_old_tasks(&rule, None).unwrap();
            assert_eq!(window.count(), 1);
            let done: usize = at_once(db, |store, number| match number % 2 {
                0 => store.prune_tasks(&rule, &window).unwrap(),
                _ => usize::from(store.restart_tasks(&[id], Restart::Retry, &event).unwrap() == [RestartAnswer::Done]),
            })
            .iter()
            .sum();
            let is_there = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
            // A retry may be repeated: it says so each time.
            assert!(if is_there == 1 { done >= 1 } else { done == 1 }, "{is_there} {done}");
            let runs = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {id}"));
            assert_eq!(runs, is_there);
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_prune_of_a_selection_and_a_retry_at_once_leave_the_task_to_one_of_them(db) {
        let mut ctx = willing(db);
        let event = NewEvent {
            kind: "retried",
            task_id: None,
            run_id: None,
            actor: String::new(),
            host: String::new(),
            details: serde_json::json!({}),
        };
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            let done = at_once(db, |store, number| match number % 2 {
                0 => (usize::from(store.prune_named_tasks(&[id]).unwrap() == [PruneVerdict::Goes]), 0),
                _ => (0, usize::from(store.restart_tasks(&[id], Restart::Retry, &event).unwrap() == [RestartAnswer::Done])),
            });
            let (pruned, retried) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let is_there = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
            // A retry may be repeated: it says so each time.
            assert_eq!((pruned == 1, retried > 0), (is_there == 0, is_there == 1), "{pruned} {retried}");
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_task_of_which_a_run_is_claimed_meanwhile_is_not_pruned(db) {
        let mut ctx = willing(db);
        let rule = PruneRule { status: TaskStatus::Failed, class: None, older_than_secs: Some(60), at_most: None };
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            let window = ctx.store.find_old_tasks(&rule, None).unwrap();
            // By a hand in the tables.
            db.execute(&format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES ({id}, 'work')"));
            let done = at_once(db, |store, number| match number % 2 {
                0 => (store.prune_tasks(&rule, &window).unwrap(), 0),
                _ => (0, usize::from(claim(store).is_some())),
            });
            let (pruned, claimed) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert_eq!((pruned, claimed), (0, 1));
            assert_eq!(ctx.store.get_task(id).unwrap().status.to_string(), "processing");
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }
}
