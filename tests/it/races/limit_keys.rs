//! Limits of keys with many claims, ends and creations at the same time: the limit is never exceeded, and no slot is lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use taskqueue_domain::limits::limit::KeyLimit;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::unique::OnConflict;
use taskqueue_engine::Context;
use taskqueue_engine::change::{cancel, limits};
use taskqueue_engine::queueing::queue::{ClassCheck, queue_one};
use taskqueue_store::EndResult;

use super::tools::{intervals, many_at_once, most_at_once};
use crate::cli::{ECHO, signal};
use crate::conformance::fixture::{claim, create, ending, reference, willing};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

const AT_ONCE: usize = 6;

fn queue_keyed(ctx: &mut Context, class: &str, key: &str, count: usize) {
    for _ in 0..count {
        let request = TaskRequest {
            class: class.to_owned(),
            limit_key: Some(key.to_owned()),
            queued_by: "test".to_owned(),
            ..TaskRequest::default()
        };
        queue_one(ctx, request, ClassCheck::AnyName).unwrap();
    }
}

fn limit(db: &TestDb, key: &str, max_running: i32) {
    limits::set_key(&mut willing(db), &KeyLimit { key: key.to_owned(), max_running }).unwrap();
}

fn count(db: &TestDb, condition: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE {condition}"))
}

/// Ends a run like a process that dies before it passes the slot on.
fn lose_slot_of(db: &TestDb, run: RunId) {
    db.execute(&format!(
        "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = '2026-01-01 00:00:00', \"LeaseExpiresOn\" = NULL \
         WHERE \"Id\" = {run}"
    ));
}

each_engine! {
    fn of_tasks_with_one_key_one_is_claimed_whatever_their_class(db) {
        let mut ctx = willing(db);
        queue_keyed(&mut ctx, "a", "server-7", 3);
        queue_keyed(&mut ctx, "b", "server-7", 3);
        create(&mut ctx);
        many_at_once(db, AT_ONCE, |store, _| while claim(store).is_some() {});
        assert_eq!(count(db, "\"Status\" = 'processing'"), 1);
        assert_eq!(count(db, "\"WaitingKey\" = 'server-7'"), 5);
    }

    fn keyed_runs_that_begin_end_and_are_created_at_once_keep_the_limit(db) {
        const TASKS: usize = 32;
        let mut ctx = willing(db);
        queue_keyed(&mut ctx, "work", "two", TASKS / 2);
        limit(db, "two", 2);
        create(&mut ctx);
        let (done, created) = (AtomicUsize::new(0), AtomicUsize::new(0));
        many_at_once(db, AT_ONCE, |store, _| {
            // One of them queues the rest while the others end runs.
            if created.fetch_add(1, Ordering::SeqCst) == 0 {
                let mut ctx = willing(db);
                for _ in 0..TASKS / 2 {
                    queue_keyed(&mut ctx, "work", "two", 1);
                    store.create_missing_runs(&mut |_| ()).unwrap();
                }
            }
            // One connection for all queries: reconnecting each time would slow down the threads that end runs.
            let mut raw = db.raw();
            loop {
                let before = done.load(Ordering::SeqCst);
                if before == TASKS {
                    break;
                }
                match claim(store) {
                    Some(run) => {
                        let ended = store.end_run(&reference(&run), &ending(RunEvent::Succeed)).unwrap();
                        assert_eq!(ended, EndResult::Recorded);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    None => {
                        let waiting = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" IS NOT NULL";
                        wait_until("a run ends or can be claimed", || {
                            done.load(Ordering::SeqCst) != before || raw.numbers(waiting)[0] > Some(0)
                        });
                    }
                }
            }
        });
        assert!(most_at_once(&intervals(db, "TaskQueueRuns")) <= 2);
        assert_eq!(count(db, "\"Status\" = 'success'"), i64::try_from(TASKS).unwrap());
    }

    fn a_slot_goes_to_the_next_when_its_run_ends_in_whatever_way(db) {
        let mut ctx = willing(db);
        queue_keyed(&mut ctx, "work", "k", 5);
        create(&mut ctx);
        let mut store = db.store();
        for (ended, event) in [RunEvent::Succeed, RunEvent::Fail, RunEvent::TimeOut, RunEvent::Release].into_iter().enumerate() {
            let run = claim(&mut store).unwrap_or_else(|| panic!("no slot was passed on after {ended} ends"));
            assert!(claim(&mut store).is_none());
            let end = taskqueue_store::RunEnd { delay_secs: Some(3_600), ..ending(event) };
            store.end_run(&reference(&run), &end).unwrap();
        }
        // The last task is cancelled while it waits with a slot; a new task gets that slot.
        queue_keyed(&mut ctx, "work", "k", 1);
        create(&mut ctx);
        assert_eq!(count(db, "\"HeldKey\" = 'k'"), 1);
        let holder = db.number("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueRuns\" WHERE \"HeldKey\" = 'k'");
        let ids = [taskqueue_domain::task::ids::TaskId(holder)];
        cancel::cancel_tasks(&mut ctx, &ids, Some("a test"), &mut |_| ()).unwrap();
        let next = claim(&mut store).unwrap();
        assert_ne!(next.task_id.0, holder);
    }

    fn the_slot_of_a_task_that_is_replaced_goes_to_the_next(db) {
        let mut ctx = willing(db);
        let mut replace = |key: Option<&str>| {
            let request = TaskRequest {
                class: "work".to_owned(),
                limit_key: key.map(str::to_owned),
                unique: Some("the one".to_owned()),
                on_conflict: Some(OnConflict::Replace),
                queued_by: "test".to_owned(),
                ..TaskRequest::default()
            };
            queue_one(&mut ctx, request, ClassCheck::AnyName).unwrap().0.id
        };
        let first = replace(Some("k"));
        queue_keyed(&mut willing(db), "work", "k", 1);
        create(&mut willing(db));
        assert_eq!(count(db, "\"HeldKey\" = 'k' AND \"TaskQueueId\" = 1"), 1);
        // It no longer needs that key, and no process creates runs.
        assert_eq!(replace(None), first);
        assert_eq!(count(db, "\"HeldKey\" = 'k' AND \"TaskQueueId\" = 2"), 1);
        assert_eq!(claim(&mut db.store()).unwrap().task_id.0, 2);
    }

    fn a_lower_limit_takes_slots_back_from_those_that_wait_and_ends_nobody(db) {
        let mut ctx = willing(db);
        limit(db, "k", 4);
        queue_keyed(&mut ctx, "work", "k", 6);
        create(&mut ctx);
        let mut store = db.store();
        let first = claim(&mut store).unwrap();
        let second = claim(&mut store).unwrap();
        limit(db, "k", 1);
        assert!(claim(&mut store).is_none());
        assert_eq!(count(db, "\"HeldKey\" = 'k'"), 2);
        store.end_run(&reference(&first), &ending(RunEvent::Succeed)).unwrap();
        assert!(claim(&mut store).is_none());
        store.end_run(&reference(&second), &ending(RunEvent::Succeed)).unwrap();
        assert!(claim(&mut store).is_some());
        assert!(claim(&mut store).is_none());
        limit(db, "k", 3);
        assert!(claim(&mut store).is_some());
        assert!(claim(&mut store).is_some());
        assert!(claim(&mut store).is_none());
    }

    fn slots_go_by_priority_and_then_by_age(db) {
        let mut ctx = willing(db);
        for priority in [0, 5, -3, 5] {
            let request = TaskRequest {
                class: "work".to_owned(),
                limit_key: Some("k".to_owned()),
                priority: Some(priority),
                ..TaskRequest::default()
            };
            queue_one(&mut ctx, request, ClassCheck::AnyName).unwrap();
        }
        create(&mut ctx);
        let mut store = db.store();
        let order: Vec<i64> = std::iter::from_fn(|| {
            let run = claim(&mut store)?;
            store.end_run(&reference(&run), &ending(RunEvent::Succeed)).unwrap();
            Some(run.task_id.0)
        })
        .collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }

    fn create_runs_finds_keys_written_by_sql_and_slots_that_were_lost(db) {
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LimitKey\") VALUES ('work', 'k'), ('work', 'k'), ('work', 'k')");
        db.execute("INSERT INTO \"TaskQueueKeyLimits\" (\"LimitKey\", \"MaxRunning\") VALUES ('k', 2)");
        create(&mut willing(db));
        let mut store = db.store();
        lose_slot_of(db, claim(&mut store).unwrap().run_id);
        assert!(claim(&mut store).is_some());
        assert!(claim(&mut store).is_none());
        create(&mut willing(db));
        assert!(claim(&mut store).is_some());
    }

    fn a_worker_alone_assigns_a_slot_that_was_lost(db) {
        db.configure(ECHO);
        queue_keyed(&mut willing(db), "echo", "k", 2);
        create(&mut willing(db));
        lose_slot_of(db, claim(&mut db.store()).unwrap().run_id);
        let worker = db.cli().spawn(&["work"]);
        wait_until("the other run has ended", || count(db, "\"Status\" = 'success'") == 2);
        signal(&worker, Signal::TERM);
        finish(worker).ok();
    }

    fn a_claimant_alone_assigns_a_slot_that_was_lost(db) {
        queue_keyed(&mut willing(db), "work", "k", 2);
        create(&mut willing(db));
        lose_slot_of(db, claim(&mut db.store()).unwrap().run_id);
        let _ = db.cli().run(&["worker", "claim", "--claimant", "bot"]).ok();
        assert_eq!(count(db, "\"Claimant\" = 'bot'"), 1);
    }

    fn a_high_limit_gives_more_slots_than_one_transaction_does(db) {
        let mut ctx = willing(db);
        limit(db, "k", 250);
        queue_keyed(&mut ctx, "work", "k", 300);
        create(&mut ctx);
        assert_eq!(count(db, "\"HeldKey\" = 'k'"), 250);
        limit(db, "k", 20);
        assert_eq!(count(db, "\"HeldKey\" = 'k'"), 20);
        limits::remove_key(&mut ctx, "k").unwrap();
        assert_eq!(count(db, "\"HeldKey\" = 'k'"), 1);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueKeyLimits\""), 0);
    }

    fn a_run_of_a_paused_class_keeps_its_slot_and_others_with_its_key_wait(db) {
        let mut ctx = willing(db);
        queue_keyed(&mut ctx, "a", "k", 1);
        queue_keyed(&mut ctx, "b", "k", 1);
        create(&mut ctx);
        db.execute("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\") VALUES ('class', 'a')");
        let mut store = db.store();
        assert!(claim(&mut store).is_none());
        create(&mut ctx);
        assert_eq!(count(db, "\"HeldKey\" = 'k' AND \"TaskClass\" = 'a'"), 1);
        db.execute("DELETE FROM \"TaskQueuePauses\"");
        assert_eq!(claim(&mut store).unwrap().class.as_str(), "a");
    }
}
