//! Schedules: however many processes advance one at the same time, one task follows, and no change is lost. Prune: tasks that
//! are needed again are kept.

use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, TaskRequest};
use taskqueue_domain::task::records::Task;
use taskqueue_domain::time::recurrence::Recurrence;
use taskqueue_engine::Context;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_store::{
    EndResult, NewEvent, NewStart, PruneRule, PruneVerdict, RestartAnswer, ScheduleAnswer, ScheduleChange, Store,
};

use super::tools::{begin_write, many_at_once, wait_blocked};
use crate::conformance::fixture::{
    claim, create, ending, last_run, make_due, old_tasks, queue, queue_with_run, reference, request, willing, work_once,
};
use crate::support::TestDb;
use crate::{each_engine, each_server, test_on};

const AT_ONCE: usize = 6;

/// Creates a schedule whose first task is overdue and has its run.
fn overdue(db: &TestDb, ctx: &mut Context, unique: Option<String>) -> TaskId {
    let every =
        TaskRequest { every: Some("0 0 29 2 *".into()), catch_up: Some("all".into()), unique, ..request("work") };
    let id = queue_task(ctx, every, ClassCheck::AnyName).unwrap();
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2024-02-29 00:00:00.000000', \"ScheduledOn\" = '2024-02-29 00:00:00.000000'
         WHERE \"Id\" = {id}"
    ));
    create(ctx);
    id
}

/// Finishes the task by SQL.
fn settle(db: &TestDb, id: TaskId) {
    db.execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = \"CreatedOn\" WHERE \"Status\" = 'scheduled'");
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL WHERE \"Id\" = {id}"
    ));
}

/// Returns a task without a schedule.
fn keyed(key: &str) -> NewTask {
    let asked = TaskRequest { unique: Some(key.to_owned()), ..request("work") };
    asked.validate(&Settings::from_rows(&[]).0).unwrap()
}

fn insert(store: &mut Store, task: &NewTask) -> TaskId {
    store.insert_tasks(std::slice::from_ref(task), &mut |_| {}).unwrap()[0].id
}

/// Creates a task that failed without a retry, long ago.
pub(super) fn exhausted(db: &TestDb, ctx: &mut Context) -> TaskId {
    let (id, run) = queue_with_run(ctx, "work");
    db.execute(&format!(
        "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'error', \"FinishedOn\" = \"CreatedOn\" WHERE \"Id\" = {run};
         UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"MaxRetries\" = 5, \"FailedRetries\" = 5, \"CurrentRunId\" = NULL,
             \"ScheduledOn\" = '2020-01-01 00:00:00.000000', \"UpdatedOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = {id}"
    ));
    id
}

fn tasks_of(db: &TestDb, id: TaskId) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}"))
}

fn heads_of(db: &TestDb, id: TaskId) -> i64 {
    db.number(&format!(
        "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id} AND \"ScheduleHead\" IS NOT NULL"
    ))
}

fn newest_of(db: &TestDb, id: TaskId) -> Task {
    db.store().list_tasks_of_schedule(id, 1).unwrap().remove(0)
}

/// Returns a pause, another time, which is years ahead too, and a removal.
fn changes() -> [ScheduleChange; 3] {
    let edited = Recurrence::parse("0 12 29 2 *", "UTC", "none").unwrap();
    [ScheduleChange::Pause, ScheduleChange::Edit(Box::new(edited)), ScheduleChange::Remove]
}

fn event(kind: &'static str) -> NewEvent {
    let (actor, host) = (String::new(), String::new());
    NewEvent { kind, task_id: None, run_id: None, actor, host, details: serde_json::json!({}) }
}

/// Changes an existing schedule.
fn change(store: &mut Store, id: TaskId, change: &ScheduleChange) -> Task {
    let event = event("schedule-edited");
    match store.change_schedule(id, change, &event).unwrap() {
        ScheduleAnswer::Changed(head) => *head,
        other => panic!("{other:?}"),
    }
}

/// Checks that the newest task of a schedule has the change, and that no other task is its newest.
#[track_caller]
fn has_changed(db: &TestDb, id: TaskId, change: &ScheduleChange) {
    let schedule = newest_of(db, id).schedule.unwrap();
    let (status, heads) = match change {
        ScheduleChange::Pause => ("paused", 1),
        ScheduleChange::Edit(_) | ScheduleChange::Resume | ScheduleChange::SkipUntil(_) => ("active", 1),
        ScheduleChange::Remove => ("ended", 0),
    };
    assert_eq!((schedule.status.to_string().as_str(), heads_of(db, id)), (status, heads), "{change:?}");
    if let ScheduleChange::Edit(edited) = change {
        assert_eq!(schedule.every, edited.every());
    }
}

/// Creates a schedule that waited for another task and whose first task was cancelled.
fn cancelled_behind(db: &TestDb, ctx: &mut Context, prerequisite: TaskId) -> TaskId {
    let after = vec![prerequisite];
    let every = TaskRequest { every: Some("0 0 29 2 *".into()), after, ..request("work") };
    let id = queue_task(ctx, every, ClassCheck::AnyName).unwrap();
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {id}"));
    id
}

each_engine! {
    fn processes_that_let_a_schedule_go_on_at_once_leave_one_next_task(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let id = overdue(db, &mut ctx, None);
            settle(db, id);
            // By create-runs, which others wait for, and alone, with no waiting.
            let planned = many_at_once(db, AT_ONCE, |store, number| match number % 2 {
                0 => store.advance_schedules().unwrap().planned,
                _ => store.advance_schedule(id).unwrap().planned,
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
            many_at_once(db, AT_ONCE, |store, number| {
                if number == 0 {
                    assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded);
                } else {
                    store.advance_schedules().unwrap();
                    store.create_missing_runs(&mut |_| {}).unwrap();
                }
            });
            assert_eq!(tasks_of(db, id), 2);
        }
    }

    fn a_task_that_is_claimed_while_others_replace_it_is_cancelled_once(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let every = TaskRequest { every: Some("0 0 29 2 *".into()), overlap: Some("replace".into()), ..request("work") };
            let id = queue_task(&mut ctx, every, ClassCheck::AnyName).unwrap();
            for year in [2024, 2020] {
                db.execute(&format!(
                    "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{year}-02-29 00:00:00.000000', \"ScheduledOn\" = '{year}-02-29 00:00:00.000000'
                     WHERE \"Id\" = {id}"
                ));
                ctx.store.advance_schedule(id).unwrap();
                ctx.store.create_missing_runs(&mut |_| {}).unwrap();
            }
            let claimed = many_at_once(db, AT_ONCE, |store, number| {
                if number == 0 {
                    return claim(store);
                }
                store.replace_overdue_tasks().unwrap();
                store.advance_schedules().unwrap();
                None
            });
            let cancels = format!(
                "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" IN ('cancelled', 'cancel-requested') AND \"TaskQueueId\" = {id}"
            );
            // The claim got the task itself, or the next one.
            for run in claimed.iter().flatten() {
                let end = if run.task_id == id { RunEvent::Cancel } else { RunEvent::Succeed };
                if run.task_id == id {
                    ctx.store.replace_overdue_tasks().unwrap();
                    assert_eq!(tasks_of(db, id), 1);
                }
                assert_eq!(ctx.store.end_run(&reference(run), &ending(end)).unwrap(), EndResult::Recorded);
            }
            assert_eq!((db.number(&cancels), ctx.store.get_task(id).unwrap().status.to_string().as_str()), (1, "cancelled"));
            assert!(tasks_of(db, id) >= 2);
            // Nothing of this round is left for the next.
            ctx.store.change_schedule(id, &ScheduleChange::Remove, &event("schedule-removed")).unwrap();
        }
    }

    fn a_task_that_fails_for_good_while_others_replace_it_stays_failed(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let every = TaskRequest {
                every: Some("0 0 29 2 *".into()), overlap: Some("replace".into()), max_retries: Some(1), ..request("work")
            };
            let id = queue_task(&mut ctx, every, ClassCheck::AnyName).unwrap();
            let plan = |year: u32| db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{year}-02-29 00:00:00.000000', \"ScheduledOn\" = '{year}-02-29 00:00:00.000000'
                 WHERE \"Id\" = {id}"
            ));
            plan(2024);
            ctx.store.create_missing_runs(&mut |_| {}).unwrap();
            let run = reference(&claim(&mut ctx.store).unwrap());
            plan(2020);
            many_at_once(db, AT_ONCE, |store, number| {
                if number == 0 {
                    store.end_run(&run, &ending(RunEvent::Fail)).unwrap();
                } else {
                    store.replace_overdue_tasks().unwrap();
                }
            });
            let count = |kind: &str| db.number(&format!(
                "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}' AND \"TaskQueueId\" = {id}"
            ));
            // Its run is asked to end before it fails, or not at all.
            let expected = if count("cancel-requested") == 1 { "cancelled" } else { "failed" };
            assert_eq!((count("cancelled"), ctx.store.get_task(id).unwrap().status.to_string().as_str()), (0, expected));
            ctx.store.change_schedule(id, &ScheduleChange::Remove, &event("schedule-removed")).unwrap();
        }
    }

    fn the_key_of_a_schedule_is_never_free_between_one_task_and_the_next(db) {
        let mut ctx = willing(db);
        for round in 0..5 {
            let key = format!("k{round}");
            let id = overdue(db, &mut ctx, Some(key.clone()));
            let run = reference(&claim(&mut ctx.store).unwrap());
            let task = keyed(&key);
            let found = many_at_once(db, AT_ONCE, |store, number| {
                if number > 0 {
                    return insert(store, &task);
                }
                assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded);
                id
            });
            assert_eq!(tasks_of(db, id), 2);
            let of_schedule = format!("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}");
            let of_schedule = db.raw().numbers(&of_schedule);
            assert!(found.iter().all(|id| of_schedule.contains(&Some(id.0))), "{found:?} {of_schedule:?}");
        }
    }

    fn a_schedule_goes_on_when_others_want_its_free_key_and_only_one_gets_it(db) {
        let mut ctx = willing(db);
        for round in 0..5 {
            let key = format!("k{round}");
            let live = format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" = '{key}'");
            let id = overdue(db, &mut ctx, Some(key.clone()));
            settle(db, id);
            let task = keyed(&key);
            many_at_once(db, AT_ONCE, |store, number| match number % 3 {
                0 => store.advance_schedules().unwrap().planned,
                1 => store.advance_schedule(id).unwrap().planned,
                _ => usize::from(insert(store, &task) == id),
            });
            assert_eq!(db.number(&live), 1);
            let told = format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'key-taken' AND \"TaskQueueId\" = {id}");
            assert!(db.number(&told) <= 1);
            // In either case, the schedule continues when no other task has its key.
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"UniqueKey\" = '{key}' AND \"ScheduleId\" IS NULL"));
            ctx.store.advance_schedule(id).unwrap();
            assert_eq!((tasks_of(db, id), db.number(&live)), (2, 1));
        }
    }

    fn a_pause_and_a_claim_at_once_leave_the_run_to_one_of_them(db) {
        let mut ctx = willing(db);
        let event = event("schedule-paused");
        for _ in 0..5 {
            let id = overdue(db, &mut ctx, None);
            let claimed: usize = many_at_once(db, AT_ONCE, |store, number| {
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

    fn a_change_that_waited_for_the_end_of_the_head_is_of_the_next_task(db) {
        let mut ctx = willing(db);
        for wanted in changes() {
            let id = overdue(db, &mut ctx, None);
            settle(db, id);
            // The writes at the end of its last run.
            let mut raw = db.raw();
            begin_write(&mut raw);
            raw.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduleStatus\" = 'followed', \"ScheduleId\" = {id} WHERE \"Id\" = {id}"));
            raw.execute(&format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"CatchUp\", \"ScheduleId\", \"PlannedOn\", \"ScheduledOn\")
                 VALUES ('work', '0 0 29 2 *', 'all', {id}, '2096-02-29 00:00:00.000000', '2096-02-29 00:00:00.000000')"
            ));
            std::thread::scope(|scope| {
                let changed = scope.spawn(|| change(&mut db.store(), id, &wanted));
                wait_blocked(db);
                raw.execute("COMMIT");
                assert!(changed.join().unwrap().id > id, "{wanted:?}");
            });
            has_changed(db, id, &wanted);
            let before = ctx.store.get_task(id).unwrap().schedule.unwrap();
            assert_eq!((before.status.to_string().as_str(), before.every.as_str()), ("followed", "0 0 29 2 *"));
            assert_eq!(ctx.store.advance_schedules().unwrap().planned, 0);
            assert_eq!(tasks_of(db, id), 2);
        }
    }

    fn the_end_of_a_head_that_waited_for_a_change_heeds_it(db) {
        let mut ctx = willing(db);
        for (written, tasks, heads) in [
            ("\"ScheduleStatus\" = 'paused'", 1, 1),
            ("\"Recurrence\" = '0 12 29 2 *', \"CatchUp\" = 'none'", 2, 1),
            ("\"ScheduleStatus\" = 'ended'", 1, 0),
        ] {
            let id = overdue(db, &mut ctx, None);
            let run = reference(&claim(&mut ctx.store).unwrap());
            let mut raw = db.raw();
            begin_write(&mut raw);
            raw.execute(&format!("UPDATE \"TaskQueue\" SET {written}, \"ScheduleId\" = {id} WHERE \"Id\" = {id}"));
            std::thread::scope(|scope| {
                let ended = scope.spawn(|| db.store().end_run(&run, &ending(RunEvent::Succeed)).unwrap());
                wait_blocked(db);
                raw.execute("COMMIT");
                assert_eq!(ended.join().unwrap(), EndResult::Recorded);
            });
            assert_eq!((tasks_of(db, id), heads_of(db, id)), (tasks, heads), "{written}");
            let planned_on = newest_of(db, id).schedule.unwrap().planned_on.unwrap();
            assert_eq!(planned_on > ctx.now().unwrap(), tasks == 2, "{planned_on}");
        }
    }

    fn an_end_and_a_change_at_once_leave_one_head_which_has_changed(db) {
        let mut ctx = willing(db);
        for wanted in changes() {
            // Two are enough: the tests above force both orders, so these add only those that advance schedules.
            for _ in 0..2 {
                let id = overdue(db, &mut ctx, None);
                let run = reference(&claim(&mut ctx.store).unwrap());
                many_at_once(db, AT_ONCE, |store, number| match number {
                    0 => assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded),
                    1 => drop(change(store, id, &wanted)),
                    _ => {
                        store.advance_schedules().unwrap();
                    }
                });
                has_changed(db, id, &wanted);
                assert_eq!(ctx.store.get_task(id).unwrap().status.to_string(), "success");
                let tasks = tasks_of(db, id);
                ctx.store.advance_schedules().unwrap();
                has_changed(db, id, &wanted);
                assert_eq!(tasks_of(db, id), tasks);
            }
        }
    }

    fn the_next_task_does_not_wait_for_a_success_that_is_being_written(db) {
        let mut ctx = willing(db);
        let (prerequisite, _) = queue_with_run(&mut ctx, "work");
        let id = cancelled_behind(db, &mut ctx, prerequisite);
        let mut raw = db.raw();
        begin_write(&mut raw);
        raw.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" = {prerequisite}"));
        std::thread::scope(|scope| {
            let advanced = scope.spawn(|| db.store().advance_schedule(id).unwrap());
            wait_blocked(db);
            raw.execute("COMMIT");
            assert_eq!(advanced.join().unwrap().planned, 1);
        });
        let next = newest_of(db, id);
        assert!(next.id > id);
        assert_eq!(next.waiting_for, 0);
    }

    fn a_prerequisite_that_succeeds_while_the_next_is_inserted_counts_for_it(db) {
        let mut ctx = willing(db);
        for _ in 0..5 {
            let (prerequisite, _) = queue_with_run(&mut ctx, "work");
            let run = reference(&claim(&mut ctx.store).unwrap());
            let id = cancelled_behind(db, &mut ctx, prerequisite);
            many_at_once(db, AT_ONCE, |store, number| match number {
                0 => assert_eq!(store.end_run(&run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded),
                _ => {
                    store.advance_schedule(id).unwrap();
                }
            });
            // A process that read the newest task before it was notified of the success leaves it to the next poll.
            ctx.store.advance_schedule(id).unwrap();
            assert_eq!((tasks_of(db, id), newest_of(db, id).waiting_for), (2, 0));
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\" WHERE \"IsSatisfied\" = false"), 0);
        }
    }

    fn a_prune_and_a_retry_at_once_leave_the_task_to_one_of_them(db) {
        let mut ctx = willing(db);
        let start = NewStart { event: event("retried"), data: None };
        let rule = PruneRule::older_than(TaskStatus::Failed, 60);
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            // All of them have read it before any of them changes anything.
            let window = old_tasks(&mut ctx, &rule);
            assert_eq!(window.count(true), 1);
            let done: usize = many_at_once(db, AT_ONCE, |store, number| match number % 2 {
                0 => store.prune_tasks(&rule, &window, None).unwrap(),
                _ => usize::from(store.restart_tasks(&[(id, 0)], &[], &start).unwrap() == [RestartAnswer::Done]),
            })
            .iter()
            .sum();
            let is_there = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
            // A retry may be repeated, and succeeds each time.
            assert!(if is_there == 1 { done >= 1 } else { done == 1 }, "{is_there} {done}");
            let runs = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {id}"));
            assert_eq!(runs, is_there);
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_prune_of_named_tasks_and_a_retry_at_once_leave_the_task_to_one(db) {
        let mut ctx = willing(db);
        let start = NewStart { event: event("retried"), data: None };
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            let done = many_at_once(db, AT_ONCE, |store, number| match number % 2 {
                0 => (usize::from(store.prune_named_tasks(&[id], None).unwrap() == [PruneVerdict::Goes]), 0),
                _ => (0, usize::from(store.restart_tasks(&[(id, 0)], &[], &start).unwrap() == [RestartAnswer::Done])),
            });
            let (pruned, retried) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let is_there = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
            // A retry may be repeated, and succeeds each time.
            assert_eq!((pruned == 1, retried > 0), (is_there == 0, is_there == 1), "{pruned} {retried}");
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_task_of_which_a_run_is_claimed_meanwhile_is_not_pruned(db) {
        let mut ctx = willing(db);
        let rule = PruneRule::older_than(TaskStatus::Failed, 60);
        for _ in 0..5 {
            let id = exhausted(db, &mut ctx);
            let window = old_tasks(&mut ctx, &rule);
            // By SQL.
            db.execute(&format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES ({id}, 'work')"));
            let done = many_at_once(db, AT_ONCE, |store, number| match number % 2 {
                0 => (store.prune_tasks(&rule, &window, None).unwrap(), 0),
                _ => (0, usize::from(claim(store).is_some())),
            });
            let (pruned, claimed) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert_eq!((pruned, claimed), (0, 1));
            assert_eq!(ctx.store.get_task(id).unwrap().status.to_string(), "processing");
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }
}

// SQLite allows only one writing transaction.
each_server! {
    fn create_runs_keeps_no_created_event_for_runs_of_others_or_of_an_import(db) {
        let mut ctx = willing(db);
        let (done, _) = work_once(db, &mut ctx);
        let exported = db.cli().run(&["export", &done.id.to_string()]).ok();
        db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).ok();
        let id = overdue(db, &mut ctx, None);
        // The next one is overdue, too.
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2012-02-29 00:00:00.000000' WHERE \"Id\" = {id}"));
        let run = reference(&claim(&mut ctx.store).unwrap());
        let waiting = queue(&mut ctx, "work");
        make_due(db, waiting);
        let mut blocker = db.raw();
        begin_write(&mut blocker);
        blocker.execute(&format!("UPDATE \"TaskQueue\" SET \"Priority\" = \"Priority\" WHERE \"Id\" = {waiting}"));
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| db.store().create_missing_runs(&mut |_| {}).unwrap());
            // It has already read which run is the newest.
            wait_blocked(db);
            assert_eq!(db.store().end_run(&run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded);
            db.cli().stdin(exported).run(&["import"]).ok();
            blocker.execute("ROLLBACK");
            creating.join().unwrap();
        });
        let imported = TaskId(db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\""));
        assert_ne!(imported, done.id);
        for (task, times) in [(waiting, 1), (newest_of(db, id).id, 1), (imported, 0)] {
            let run = last_run(db, task).id;
            let kept = db.number(&format!(
                "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'run-created' AND \"RunId\" = {run}"
            ));
            assert_eq!(kept, times, "task {task}");
        }
    }
}

// Only on PostgreSQL does a claim lock one table and then request rows of another.
test_on! { [postgres Postgres] a_change_that_waits_for_a_claim_holds_no_row_that_the_claim_asks_for db {
    let mut ctx = willing(db);
    let id = overdue(db, &mut ctx, None);
    let mut raw = db.raw();
    begin_write(&mut raw);
    // The first step of a claim, and the next one.
    raw.execute("LOCK TABLE \"TaskQueueRuns\" IN SHARE ROW EXCLUSIVE MODE");
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| change(&mut db.store(), id, &ScheduleChange::Pause));
        wait_blocked(db);
        raw.execute(&format!("SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Id\" = {id} FOR UPDATE NOWAIT"));
        raw.execute("COMMIT");
        assert_eq!(changed.join().unwrap().id, id);
    });
    has_changed(db, id, &ScheduleChange::Pause);
} }

// The same for deleting tasks, by age or by a selection.
test_on! { [postgres Postgres] a_prune_that_waits_for_a_claim_holds_no_row_that_the_claim_asks_for db {
    let mut ctx = willing(db);
    let rule = PruneRule::older_than(TaskStatus::Failed, 60);
    for is_named in [false, true] {
        let id = exhausted(db, &mut ctx);
        let window = old_tasks(&mut ctx, &rule);
        let mut raw = db.raw();
        begin_write(&mut raw);
        raw.execute("LOCK TABLE \"TaskQueueRuns\" IN SHARE ROW EXCLUSIVE MODE");
        let prune = || {
            let mut store = db.store();
            if is_named {
                usize::from(store.prune_named_tasks(&[id], None).unwrap() == [PruneVerdict::Goes])
            } else {
                store.prune_tasks(&rule, &window, None).unwrap()
            }
        };
        std::thread::scope(|scope| {
            let pruned = scope.spawn(prune);
            wait_blocked(db);
            raw.execute(&format!("SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Id\" = {id} FOR UPDATE NOWAIT"));
            raw.execute("COMMIT");
            assert_eq!(pruned.join().unwrap(), 1);
        });
    }
} }
