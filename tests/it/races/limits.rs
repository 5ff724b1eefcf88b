//! Limits of classes with many claims at the same time: the limit is never exceeded, and no claim is lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use taskqueue_domain::limits::limit::{ClassLimit, Rate};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::change::limits;
use taskqueue_store::EndResult;

use super::tools::{intervals, many_at_once, most_at_once, wait_blocked};
use crate::conformance::fixture::{claim, create, ending, queue, reference, sql_now, willing};
use crate::each_engine;
use crate::support::{TestDb, wait_until};
use crate::test_on;

const AT_ONCE: usize = 8;

fn set(db: &TestDb, class: &str, max_running: Option<i32>, rate: Option<Rate>) {
    limits::set(&mut willing(db), &ClassLimit { class: class.to_owned(), max_running, rate }).unwrap();
}

fn queue_many(db: &TestDb, class: &str, count: usize) {
    let mut ctx = willing(db);
    for _ in 0..count {
        queue(&mut ctx, class);
    }
    create(&mut ctx);
}

fn claimed_runs(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"StartedOn\" IS NOT NULL")
}

each_engine! {
    fn of_many_claims_at_once_no_more_than_the_limit_are_let_in(db) {
        queue_many(db, "work", 20);
        set(db, "work", Some(3), None);
        many_at_once(db, AT_ONCE, |store, _| while claim(store).is_some() {});
        assert_eq!(claimed_runs(db), 3);
        set(db, "work", Some(5), None);
        many_at_once(db, AT_ONCE, |store, _| while claim(store).is_some() {});
        assert_eq!(claimed_runs(db), 5);
        // A limit below the number of runs in progress ends no run and prevents new ones.
        set(db, "work", Some(2), None);
        many_at_once(db, AT_ONCE, |store, _| assert!(claim(store).is_none()));
    }

    fn while_runs_begin_and_end_at_once_there_are_never_more_than_the_limit(db) {
        const TASKS: usize = 60;
        queue_many(db, "work", TASKS);
        set(db, "work", Some(2), None);
        let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        many_at_once(db, AT_ONCE, |store, _| {
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
                    // On MySQL, repeated claims without an end in between would block the ends, because table locks have
                    // priority.
                    None => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        wait_until("a run ends", || done.load(Ordering::SeqCst) != before);
                    }
                }
            }
        });
        assert!(refused.load(Ordering::SeqCst) > 0, "the class was never full");
        assert!(most_at_once(&intervals(db, "TaskQueueRuns")) <= 2);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'"), 60);
    }

    fn many_claims_at_once_keep_the_rate_and_its_window_slides(db) {
        queue_many(db, "work", 20);
        set(db, "work", None, Some(Rate { count: 4, secs: 3_600 }));
        many_at_once(db, AT_ONCE, |store, _| while claim(store).is_some() {});
        assert_eq!(claimed_runs(db), 4);
        // Starts before the window no longer count, whatever the state of their runs.
        for moved in [1, 2] {
            db.execute(
                "UPDATE \"TaskQueueStarts\" SET \"StartedOn\" = '2020-01-01 00:00:00.000000' WHERE \"RunId\" IN
                     (SELECT first FROM (SELECT MIN(\"RunId\") AS first FROM \"TaskQueueStarts\" WHERE \"StartedOn\" > '2021-01-01 00:00:00') AS s)",
            );
            many_at_once(db, AT_ONCE, |store, _| while claim(store).is_some() {});
            assert_eq!(claimed_runs(db), 4 + moved);
        }
    }

    fn a_start_from_a_clock_that_was_ahead_does_not_count_for_a_rate(db) {
        queue_many(db, "work", 8);
        let rate = Some(Rate { count: 2, secs: 3_600 });
        set(db, "work", None, rate);
        let mut store = db.store();
        let starts = || db.number("SELECT COUNT(*) AS value FROM \"TaskQueueStarts\"");
        for table in ["TaskQueueStarts", "TaskQueueRuns"] {
            let claimed: Vec<_> = std::iter::from_fn(|| claim(&mut store)).collect();
            assert_eq!((claimed.len(), starts()), (2, 2), "{table}");
            let ahead = sql_now(db.engine, 200_000);
            db.execute(&format!("UPDATE \"{table}\" SET \"StartedOn\" = {ahead} WHERE \"StartedOn\" IS NOT NULL"));
            if table == "TaskQueueRuns" {
                // A new rate recalls the starts of runs.
                set(db, "work", Some(1_000), None);
                set(db, "work", None, rate);
                assert_eq!(starts(), 0);
            }
        }
        assert_eq!(std::iter::from_fn(|| claim(&mut store)).count(), 2);
    }

    fn a_run_that_is_given_back_has_started_all_the_same(db) {
        queue_many(db, "work", 3);
        set(db, "work", Some(1), Some(Rate { count: 2, secs: 3_600 }));
        let mut store = db.store();
        for _ in 0..2 {
            let run = claim(&mut store).unwrap();
            store.end_run(&reference(&run), &ending(RunEvent::Release)).unwrap();
        }
        assert!(claim(&mut store).is_none());
    }

    fn a_short_rate_lets_the_next_in_by_itself(db) {
        queue_many(db, "work", 3);
        set(db, "work", None, Some(Rate { count: 1, secs: 1 }));
        let mut store = db.store();
        for _ in 0..3 {
            wait_until("the rate allows the next run", || claim(&mut store).is_some());
        }
        let starts: Vec<_> = (1..=3).map(|id| store.get_run(RunId(id)).unwrap().started_on.unwrap()).collect();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= chrono::TimeDelta::seconds(1)), "{starts:?}");
    }

    fn limits_of_one_class_let_the_first_of_another_in(db) {
        queue_many(db, "a.full", 5);
        queue_many(db, "b.free", 2);
        set(db, "a.full", Some(1), None);
        let mut store = db.store();
        let classes: Vec<String> = std::iter::from_fn(|| claim(&mut store)).map(|run| run.class.to_string()).collect();
        assert_eq!(classes, ["a.full", "b.free", "b.free"]);
    }
}

crate::each_server! {
    fn a_claim_takes_nothing_when_all_is_paused_while_it_waits_for_its_lock(db) {
        queue_many(db, "work", 2);
        let mut blocker = db.raw();
        blocker.execute(if db.is_mysql_like() {
            // The first table that a claim locks: it holds no other lock while it waits.
            "LOCK TABLES \"TaskQueue\" WRITE"
        } else {
            "BEGIN; LOCK TABLE \"TaskQueueRuns\" IN SHARE ROW EXCLUSIVE MODE"
        });
        std::thread::scope(|scope| {
            let mut store = db.store();
            let waiting = scope.spawn(move || claim(&mut store));
            wait_blocked(db);
            // By SQL, because on MySQL the verb itself waits for earlier claims.
            db.execute("INSERT INTO \"TaskQueuePauses\" (\"Scope\") VALUES ('all')");
            blocker.execute(if db.is_mysql_like() { "UNLOCK TABLES" } else { "COMMIT" });
            assert!(waiting.join().unwrap().is_none());
        });
        db.cli().run(&["resume", "--all"]).ok();
        assert!(claim(&mut db.store()).is_some());
    }
}

test_on! { [postgres Postgres] a_rate_that_is_set_counts_the_claim_that_is_under_way db {
    queue_many(db, "work", 2);
    let mut under_way = db.raw();
    under_way.execute(
        "BEGIN; UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"Token\" = 'under way', \"StartedOn\" = clock_timestamp(),
             \"LeaseExpiresOn\" = clock_timestamp() + interval '1 hour' WHERE \"Id\" = 1",
    );
    std::thread::scope(|scope| {
        let setting = scope.spawn(|| set(db, "work", None, Some(Rate { count: 1, secs: 3_600 })));
        wait_blocked(db);
        assert!(!setting.is_finished());
        under_way.execute("COMMIT");
    });
    assert!(claim(&mut db.store()).is_none());
} }
