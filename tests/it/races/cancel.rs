//! Cancels at the same time as claims, ends or creations of runs: both sides are correct afterwards.

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_store::{CancelAnswer, EndResult, NewEvent, Store};

use super::lose::{ROUNDS, at_once, claim_with, end, queue};
use super::tools::{begin_write, wait_blocked};
use crate::conformance::fixture::reference;
use crate::each_engine;
use crate::support::{EngineUnderTest, wait_until};

fn cancel(store: &mut Store, ids: &[TaskId]) -> Vec<CancelAnswer> {
    let event = NewEvent {
        kind: "cancelled",
        task_id: None,
        run_id: None,
        actor: "test".to_owned(),
        host: "here".to_owned(),
        details: serde_json::json!({}),
    };
    store.cancel_tasks(ids, "a test", &event).unwrap()
}

each_engine! {
    fn a_run_is_not_started_if_its_task_is_cancelled_in_the_tables_meanwhile(db) {
        let mut store = db.store();
        queue(db, 1);
        store.create_missing_runs(&mut |_| {}).unwrap();
        let mut application = db.raw();
        begin_write(&mut application);
        application.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        std::thread::scope(|scope| {
            let claim = scope.spawn(|| claim_with(&mut db.store(), "late", &|_| true));
            wait_blocked(db);
            application.execute("COMMIT");
            assert!(claim.join().unwrap().is_none());
        });
        let task = store.get_task(TaskId(1)).unwrap();
        assert_eq!((task.status.to_string().as_str(), task.attempts), ("cancelled", 1));
        assert_eq!(db.text("SELECT \"Status\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some("cancelled"));
    }

    fn a_cancel_and_a_claim_at_once_agree_who_was_first(db) {
        let mut store = db.store();
        for round in 1..=ROUNDS {
            queue(db, 1);
            let id = TaskId(i64::try_from(round).unwrap());
            store.create_missing_runs(&mut |_| {}).unwrap();
            let token = format!("token{round}");
            let (claimed, answers) =
                at_once(db, |store| claim_with(store, &token, &|_| true), |store| cancel(store, &[id]));
            match (claimed, &answers[0]) {
                (None, CancelAnswer::Cancelled) => {}
                (Some(run), CancelAnswer::Requested { run_id, .. }) => {
                    assert_eq!(run.run_id, *run_id);
                    assert_eq!(store.end_run(&reference(&run), &end(RunEvent::Fail, "1")).unwrap(), EndResult::Cancelled);
                }
                other => panic!("{other:?}"),
            }
            let task = store.get_task(id).unwrap();
            assert_eq!((task.status.to_string().as_str(), task.current_run_id, task.attempts), ("cancelled", None, 1));
        }
    }

    fn a_cancel_and_the_end_of_a_run_at_once_leave_no_task_to_try_again(db) {
        let mut store = db.store();
        for round in 1..=ROUNDS {
            queue(db, 1);
            let id = TaskId(i64::try_from(round).unwrap());
            store.create_missing_runs(&mut |_| {}).unwrap();
            let run = claim_with(&mut store, &format!("token{round}"), &|_| true).unwrap();
            let (ended, answers) = at_once(
                db,
                |store| store.end_run(&reference(&run), &end(RunEvent::Fail, "1")).unwrap(),
                |store| cancel(store, &[id]),
            );
            match (ended, &answers[0]) {
                (EndResult::Recorded, CancelAnswer::Cancelled) | (EndResult::Cancelled, CancelAnswer::Requested { .. }) => {}
                other => panic!("{other:?}"),
            }
            let task = store.get_task(id).unwrap();
            assert_eq!((task.status.to_string().as_str(), task.current_run_id), ("cancelled", None));
        }
    }

    fn what_has_become_of_an_end_is_found_whoever_has_sent_it(db) {
        queue(db, 4);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let runs = ["1", "2", "3", "4"].map(|token| claim_with(&mut store, token, &|_| true).unwrap());
        cancel(&mut store, &[runs[1].task_id]);
        let fail = end(RunEvent::Fail, "1");
        assert_eq!(store.end_run(&reference(&runs[0]), &fail).unwrap(), EndResult::Recorded);
        assert_eq!(store.end_run(&reference(&runs[1]), &fail).unwrap(), EndResult::Cancelled);
        assert_eq!(store.end_run(&reference(&runs[2]), &end(RunEvent::TimeOut, "2")).unwrap(), EndResult::Recorded);
        let lost = |found: &str| EndResult::Lost { found: found.to_owned() };
        let found = runs.map(|run| store.find_end(&reference(&run), &fail).unwrap());
        assert_eq!(found, [EndResult::Recorded, EndResult::Cancelled, lost("timeout"), lost("processing")]);
    }

    fn a_cancel_of_many_and_the_creation_of_runs_at_once_leave_nothing_open(db) {
        const TASKS: i64 = 20;
        for round in 0..ROUNDS as i64 {
            queue(db, TASKS as usize);
            // The order of their times differs from that of their ids.
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" % 2 = 1 AND \"Id\" > {}", round * TASKS));
            let ids: Vec<TaskId> = (round * TASKS + 1..=(round + 1) * TASKS).map(TaskId).collect();
            let (_, answers) =
                at_once(db, |store| store.create_missing_runs(&mut |_| {}).unwrap(), |store| cancel(store, &ids));
            assert!(answers.iter().all(|answer| *answer == CancelAnswer::Cancelled), "{answers:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"OpenTaskId\" IS NOT NULL"), 0);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" <> 'cancelled'"), 0);
    }

    fn a_listener_on_postgresql_hears_a_cancel_even_after_a_lost_connection(db) {
        let is_told = |listening: &mut Store| listening.was_notified_of_cancel().unwrap();
        let mut listening = Store::connect_listening(&db.url()).unwrap();
        let mut store = db.store();
        for id in [1, 2] {
            queue(db, 1);
            store.create_missing_runs(&mut |_| {}).unwrap();
            claim_with(&mut store, &format!("token{id}"), &|_| true).unwrap();
            assert!(!is_told(&mut listening));
            assert!(matches!(cancel(&mut store, &[TaskId(id)])[0], CancelAnswer::Requested { .. }));
            if db.engine == EngineUnderTest::Postgres {
                wait_until("it is notified", || is_told(&mut listening));
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
            }
            assert!(listening.now().is_ok() && !is_told(&mut listening));
            // On every engine, a query returns the requests.
            let requests = listening.list_run_requests(&[RunId(1), RunId(2), RunId(3)]).unwrap();
            assert_eq!(requests.len(), usize::try_from(id).unwrap(), "{requests:?}");
        }
    }
}
