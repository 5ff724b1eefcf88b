//! A waiter is notified when a task finishes, if the engine supports notifications.

use std::sync::Barrier;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taskqueue::{NewTask, TaskQueue, Worker, typed};
use taskqueue_engine::change::cancel::cancel_tasks;
use taskqueue_store::ChangeListener;

use super::fixture::{create, drain, queue, queue_with_run, willing};
use crate::support::{TestDb, wait_until};
use crate::{each_engine, test_on};

/// Longer than any operation in this file.
const LONG: Duration = Duration::from_secs(60);
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Returns the number of sessions that wait for a task to finish.
fn waiters(db: &TestDb) -> i64 {
    db.number(
        "SELECT COUNT(*) AS value FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
}

/// Checks that a waiter that starts now is notified of what `act` does.
#[track_caller]
fn is_heard(db: &TestDb, what: &str, act: impl FnOnce()) {
    let mut listener = ChangeListener::listen_for_ends(&db.url()).unwrap();
    assert!(!listener.has_changed().unwrap(), "{what}");
    act();
    wait_until(what, || listener.has_changed().unwrap());
}

each_engine! {
    fn whatever_ends_a_task_is_heard_of_where_the_engine_can_tell(db) {
        if db.is_mysql_like() {
            assert!(ChangeListener::listen_for_ends(&db.url()).is_none());
            return;
        }
        let mut ctx = willing(db);
        let (_, _) = queue_with_run(&mut ctx, "work");
        is_heard(db, "process-run", || assert_eq!(drain(&mut ctx).succeeded, 1));
        let id = queue(&mut ctx, "work");
        is_heard(db, "cancel", || cancel_tasks(&mut ctx, &[id], None, &mut |_| {}).unwrap());
        queue(&mut ctx, "elsewhere");
        let claimed = db.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
        let (run, token) = (claimed["run_id"].to_string(), claimed["token"].as_str().unwrap().to_owned());
        is_heard(db, "resolve", || {
            db.cli().run(&["worker", "resolve", &run, "--token", &token]).ok();
        });
        queue(&mut ctx, "work");
        is_heard(db, "work", || {
            let worker = Worker::new(&TaskQueue::connect(db.url_text()).unwrap()).unwrap();
            let worker = worker.class("work", typed(|(): (), _run| Ok(()))).spool(db.home().join("spool"));
            assert_eq!(worker.idle_exit(Duration::ZERO).run().unwrap().processed, 1);
        });
    }
}

test_on! {
    [postgres Postgres] each_of_many_that_listen_at_once_hears_on_a_connection_of_its_own db {
        let mut ctx = willing(db);
        let (begin, have_listened) = (Barrier::new(9), Barrier::new(9));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    begin.wait();
                    let listening = ChangeListener::listen_for_ends(&db.url());
                    have_listened.wait();
                    let mut listener = listening.unwrap();
                    let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
                    assert_eq!(poll(&mut fds, Some(&LIMIT)).unwrap(), 1, "its socket does not wake it");
                    assert!(listener.has_changed().unwrap());
                });
            }
            begin.wait();
            have_listened.wait();
            assert!(ctx.store.notify_finished().unwrap());
        });
    }
}

test_on! {
    [postgres Postgres] who_waits_is_told_and_nobody_is_told_while_nobody_waits db {
        let mut ctx = willing(db);
        let program = TaskQueue::connect(db.url_text()).unwrap();
        let listeners = "SELECT COUNT(*) AS value FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%taskqueue_end%'";
        assert!(!ctx.store.notify_finished().unwrap() && waiters(db) == 0);
        for times in 1..=2 {
            let id = program.queue(NewTask::new("work")).unwrap().id;
            let ended = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| program.wait(id, LONG).unwrap());
                wait_until("it waits for a notification", || waiters(db) == 1);
                assert!(ctx.store.notify_finished().unwrap());
                create(&mut ctx);
                assert_eq!(drain(&mut ctx).succeeded, 1);
                waiting.join().unwrap()
            });
            assert!(ended.is_some_and(|ended| ended.is_success()));
            assert!(!ctx.store.notify_finished().unwrap() && waiters(db) == 0, "it notifies without a waiter");
            assert_eq!(db.number(listeners), 1, "wait {times} does not use the first connection");
        }
    }
}
