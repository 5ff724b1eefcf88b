//! Many equal writes at the same time: none fails because of another, and each is recorded once.

use taskqueue_domain::limits::limit::{ClassLimit, KeyLimit};
use taskqueue_domain::limits::pause::{PauseMode, PauseScope};
use taskqueue_domain::run::message::Message;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::{RunId, RunnerId};
use taskqueue_store::{Claim, EndResult, NewEvent, NewPause, RunRef, Store};

use super::stage::{Stage, column, start_runner};
use super::tools::{many_at_once, run_at_once, wait_blocked};
use crate::conformance::fixture::{claim, claim_as, context, dead_process, ending, queue_with_run, reference, willing};
use crate::support::EngineUnderTest;
use crate::support::cli::finish;
use crate::{each_engine, test_on};

const AT_ONCE: usize = 8;

fn event() -> NewEvent {
    let (actor, host) = (String::new(), String::new());
    NewEvent { kind: "test", task_id: None, run_id: None, actor, host, details: serde_json::json!({}) }
}

fn pause_of(class: &str, reason: &str) -> NewPause {
    NewPause {
        scope: PauseScope::Class(class.to_owned()),
        mode: PauseMode::Pause,
        reason: reason.to_owned(),
        for_secs: None,
        author: String::new(),
        host: String::new(),
    }
}

fn limit_of(class: &str, max_running: i32) -> ClassLimit {
    ClassLimit { class: class.to_owned(), max_running: Some(max_running), rate: None }
}

each_engine! {
    fn eight_that_pause_and_limit_the_same_at_once_all_succeed_with_one_row(db) {
        const ROUNDS: usize = 5;
        for round in 0..ROUNDS {
            let name = format!("work{round}");
            let answers = many_at_once(db, AT_ONCE, |store, number| {
                let max_running = 1 + i32::try_from(number).unwrap();
                store.set_pause(&pause_of(&name, &number.to_string()), &event())?;
                store.set_class_limit(&limit_of(&name, max_running), &event())?;
                store.set_key_limit(&KeyLimit { key: name.clone(), max_running }, &event())
            });
            for answer in answers {
                answer.unwrap();
            }
        }
        for table in ["TaskQueuePauses", "TaskQueueClassLimits", "TaskQueueKeyLimits"] {
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"{table}\"")), ROUNDS as i64, "{table}");
        }
        let events = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'test'");
        assert_eq!(events, (ROUNDS * AT_ONCE * 3) as i64);
    }

    fn eight_ends_that_hold_the_same_class_at_once_all_succeed(db) {
        let mut ctx = context(db, "work", |_| Ok(()));
        for round in 0..5 {
            let class = format!("work{round}");
            let runs: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    queue_with_run(&mut ctx, &class);
                    reference(&claim(&mut ctx.store).unwrap())
                })
                .collect();
            let mut end = ending(RunEvent::Release);
            end.hold = Some(("here".to_owned(), 300));
            end.error_message = "no such program".to_owned();
            let answers = many_at_once(db, AT_ONCE, |store, number| store.end_run(&runs[number], &end));
            for answer in answers {
                assert_eq!(answer.unwrap(), EndResult::Recorded);
            }
            let held = ctx.store.list_class_holds().unwrap();
            let of_class: Vec<_> = held.iter().filter(|hold| hold.class == class).collect();
            assert_eq!(of_class.len(), 1, "{held:?}");
            assert_eq!((of_class[0].host.as_str(), of_class[0].reason.as_str()), ("here", "no such program"));
        }
    }

    fn eight_rescues_of_one_run_at_once_are_reported_once_and_leave_one_event(db) {
        let mut ctx = willing(db);
        for round in 1..=5 {
            queue_with_run(&mut ctx, "work");
            let run = claim_as(&mut ctx.store, &dead_process()).unwrap();
            let rescuing: &[&str] = &["create-runs", "--json"];
            let reported: usize = run_at_once(db, &[rescuing; AT_ONCE])
                .into_iter()
                .map(|ended| ended.json()["rescued"].as_array().unwrap().len())
                .sum();
            assert_eq!(reported, 1);
            assert_eq!(ctx.store.get_run(run.run_id).unwrap().error_code, "runner-died");
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'rescued'"), round);
        }
    }

    fn a_timeout_reported_after_a_rescue_is_kept_as_a_late_result(db) {
        let stage = Stage::new(db, false);
        let _ = db.cli().run(&["queue", "stage", "--timeout", "3s"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let (runner, _) = start_runner(db, &stage);
        let run = RunRef {
            id: RunId(db.number("SELECT \"Id\" AS value FROM \"TaskQueueRuns\"")),
            token: column(db, "Token").unwrap(),
        };
        // Like create-runs on another host after the lease has expired.
        let mut rescue = ending(RunEvent::TimeOut);
        rescue.error_code = "lease-expired".to_owned();
        assert_eq!(db.store().end_run(&run, &rescue).unwrap(), EndResult::Recorded);
        let ended = finish(runner);
        assert!(ended.stderr.contains("timeout already"), "{ended:?}");
        assert_eq!(column(db, "ErrorCode").as_deref(), Some("lease-expired"));
        let events = db.raw().texts("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'");
        let details: serde_json::Value = serde_json::from_str(events[0].as_deref().unwrap()).unwrap();
        assert_eq!((events.len(), &details["found"], &details["error_code"]), (1, &"timeout".into(), &"timeout".into()));
    }

    fn a_claim_that_fails_leaves_nothing_locked(db) {
        let mut ctx = willing(db);
        let (id, _) = queue_with_run(&mut ctx, "work");
        db.execute("ALTER TABLE \"TaskQueueRuns\" RENAME TO \"Away\"");
        let as_nobody = Claim {
            runner_id: RunnerId(1),
            runner_name: "one",
            process_id: 1,
            host: "here",
            process_identity: "nobody",
            classes: ClassSet::any(&|_| true),
            lease_secs: 60,
        };
        let failed = ctx.store.claim_next_run(&as_nobody, "token");
        assert!(failed.is_err());
        db.execute("ALTER TABLE \"Away\" RENAME TO \"TaskQueueRuns\"");
        // A read outside a transaction, after which the connection is idle.
        ctx.store.get_task(id).unwrap();
        db.raw().execute(match db.engine {
            EngineUnderTest::Sqlite => "PRAGMA busy_timeout = 1000; BEGIN EXCLUSIVE; COMMIT",
            EngineUnderTest::Postgres => "BEGIN; LOCK TABLE \"TaskQueue\", \"TaskQueueRuns\" IN ACCESS EXCLUSIVE MODE NOWAIT; COMMIT",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql =>
                "SET lock_wait_timeout = 1; LOCK TABLES \"TaskQueue\" WRITE, \"TaskQueueRuns\" WRITE; UNLOCK TABLES",
        });
        assert!(claim(&mut ctx.store).is_some());
    }
}

// On these engines a claim locks tables one after the other: a transaction that locks two of them in another order would be a
// deadlock victim repeatedly.
test_on! { [mariadb Mariadb, mysql Mysql] a_change_of_claim_tables_waits_for_a_claim_before_it_takes_the_first db {
    type Change = fn(&mut Store);
    let changes: [(&str, Change); 5] = [
        ("pause", |store| store.set_pause(&pause_of("work", ""), &event()).unwrap()),
        ("resume", |store| assert!(store.end_pause(&PauseScope::Class("work".to_owned()), &event()).unwrap())),
        ("limit", |store| store.set_class_limit(&limit_of("work", 1), &event()).unwrap()),
        ("no limit", |store| assert!(store.remove_class_limit("work", &event()).unwrap())),
        ("message", |store| {
            let messages = Message { name: "page".to_owned(), data: "1".to_owned() }.into();
            assert!(!store.record_messages(&RunRef { id: RunId(1), token: "none".to_owned() }, &messages).unwrap());
        }),
    ];
    let (mut claim, mut store) = (db.raw(), db.store());
    for (what, change) in changes {
        // Like a claim that has not got any further.
        claim.execute("LOCK TABLES \"TaskQueue\" WRITE");
        std::thread::scope(|scope| {
            let store = &mut store;
            let changing = scope.spawn(move || change(store));
            wait_blocked(db);
            assert!(!changing.is_finished(), "{what}");
            claim.execute("UNLOCK TABLES");
        });
    }
} }
