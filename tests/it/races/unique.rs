//! Many requests for the same key at the same time: one gets it, and none reports a violated index.
//!
//! `TASKQUEUE_TEST_UNIQUE` sets how many programs run at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, TaskRequest};
use taskqueue_domain::task::unique::{Arrival, OnConflict};
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};
use taskqueue_store::Store;

use super::lose::{ROUNDS, at_once};
use super::tools::run_at_once;
use crate::conformance::fixture::{claim, create, drain, request, willing};
use crate::each_engine;
use crate::support::EngineUnderTest;

fn keyed(key: &str, on_conflict: OnConflict) -> NewTask {
    let settings = Settings::from_rows(&[]).0;
    let asked = TaskRequest { unique: Some(key.to_owned()), on_conflict: Some(on_conflict), ..request("work") };
    asked.validate(&settings).unwrap()
}

fn insert(store: &mut Store, task: &NewTask) -> (i64, Arrival) {
    let queued = store.insert_tasks(std::slice::from_ref(task), &mut |_| {}).unwrap()[0];
    (queued.id.0, queued.arrival)
}

/// At most one for each key.
const LIVE: &str = "SELECT COALESCE(MAX(c), 0) AS value FROM (SELECT COUNT(*) AS c FROM \"TaskQueue\"
    WHERE \"LastStatus\" IN ('scheduled', 'processing') GROUP BY \"UniqueKey\") AS counted";

each_engine! {
    fn many_programs_that_queue_one_key_at_once_leave_one_task(db) {
        let count = std::env::var("TASKQUEUE_TEST_UNIQUE").map_or(24, |text| text.parse().unwrap());
        // Connecting may take long with this many programs.
        let options = if db.engine == EngineUnderTest::Sqlite { "" } else { "?connect_timeout=300" };
        let url = format!("{}{options}", db.url_text());
        let queue: &[&str] = &["queue", "work", "--any-class", "--unique", "k", "--database", &url];
        let ids: Vec<String> = run_at_once(db, &vec![queue; count]).into_iter().map(|ended| ended.ok()).collect();
        assert_eq!(ids.len(), count);
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 1);
    }

    fn a_long_batch_of_unique_lines_is_queued_while_claims_go_on_and_on(db) {
        const LINES: usize = 2_000;
        let tasks: Vec<NewTask> = (0..LINES).map(|line| keyed(&line.to_string(), OnConflict::Return)).collect();
        let (mut store, mut claimer) = (db.store(), db.store());
        let is_over = AtomicBool::new(false);
        let queued = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert!(claim(&mut claimer).is_none(), "nothing has a run");
                }
            });
            let queued = store.insert_tasks(&tasks, &mut |_| {});
            is_over.store(true, Ordering::SeqCst);
            queued
        });
        let queued = queued.unwrap();
        assert!(queued.len() == LINES && queued.iter().all(|task| task.arrival == Arrival::Queued));
    }

    fn of_two_who_want_a_key_one_gets_it_and_the_other_the_same_task(db) {
        for round in 0..ROUNDS {
            let task = keyed(&round.to_string(), OnConflict::Return);
            let (one, other) = at_once(db, |store| insert(store, &task), |store| insert(store, &task));
            assert_eq!(one.0, other.0);
            assert!((one.1 == Arrival::Queued) != (other.1 == Arrival::Queued), "{one:?} {other:?}");
        }
    }

    fn a_retry_while_the_key_is_queued_anew_never_makes_two_live_tasks(db) {
        let (mut ctx, mut store) = (willing(db), db.store());
        for round in 0..ROUNDS {
            let task = keyed(&round.to_string(), OnConflict::Return);
            let (old, _) = insert(&mut store, &task);
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"MaxRetries\" = 5, \"FailedRetries\" = 5 WHERE \"Id\" = {old}"
            ));
            let (retried, queued) = at_once(
                db,
                |_| {
                    let mut is_retried = false;
                    retry_tasks(&mut ctx, &[TaskId(old)], &RetryOptions::default(), &mut |answer| is_retried = answer.result.is_some()).unwrap();
                    is_retried
                },
                |store| insert(store, &task),
            );
            // Either the old task is live again and was returned, or there is a new one and the retry was refused.
            assert_eq!(retried, queued == (old, Arrival::Existing), "{queued:?}");
        }
    }

    fn a_task_claimed_while_it_is_replaced_runs_with_the_old_or_the_new_data(db) {
        let mut ctx = willing(db);
        for round in 0..ROUNDS {
            let key = round.to_string();
            insert(&mut ctx.store, &keyed(&key, OnConflict::Return));
            create(&mut ctx);
            let new = NewTask { data: "2".to_owned(), ..keyed(&key, OnConflict::Replace) };
            let (claimed, replaced) = at_once(db, claim, |store| {
                store.insert_tasks(std::slice::from_ref(&new), &mut |_| {})
            });
            // One of them was first, and the other one noticed.
            match (claimed, replaced) {
                (Some(run), refused) => {
                    assert!(refused.unwrap_err().to_string().ends_with("its status is processing"));
                    assert_eq!(run.data, "{}");
                }
                (None, replaced) => assert_eq!(replaced.unwrap()[0].arrival, Arrival::Replaced),
            }
            assert_eq!(db.number(LIVE), 1);
            db.execute("DELETE FROM \"TaskQueueRuns\"; DELETE FROM \"TaskQueue\"");
        }
    }

    fn tasks_with_one_key_queued_repeatedly_during_processing_run_in_turn(db) {
        let mut ctx = willing(db);
        let task = keyed("k", OnConflict::Return);
        let mut done = 0;
        while done < 10 {
            let (_, succeeded) = at_once(
                db,
                |store| insert(store, &task),
                |_| {
                    create(&mut ctx);
                    drain(&mut ctx).succeeded
                },
            );
            done += succeeded;
            assert!(db.number(LIVE) <= 1);
        }
    }
}
