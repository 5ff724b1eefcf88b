//! The losers of races: each losing side, forced to lose (rules R2, R3, R5, R6).

use std::cell::Cell;
use std::io::Write as _;
use std::path::Path;

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::identities::identity::Liveness;
use taskqueue_store::{Claim, EndResult, NewRunner, Registration, RunEnd, RunRef, SpecificClaim, Store};

use super::stage::{Stage, column, end_lease, is_root, start_runner, statuses, task};
use super::tools::{begin_write, both_at_once, many_at_once, open_fifo, wait_blocked};
use crate::conformance::fixture::reference;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// How often a race without a fixed order is run: enough to see both orders.
pub(super) const ROUNDS: usize = 10;

pub(super) fn queue(db: &TestDb, count: usize) {
    for _ in 0..count {
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('stage', '{}')");
    }
}

pub(super) fn claim_with(
    store: &mut Store,
    token: &str,
    is_runnable: &dyn Fn(&TaskClass) -> bool,
) -> Option<ClaimedRun> {
    store.claim_next_run(&claim_of(is_runnable), token).unwrap()
}

pub(super) fn claim_of<'a>(is_runnable: &'a dyn Fn(&TaskClass) -> bool) -> Claim<'a> {
    Claim {
        runner_id: RunnerId(1),
        runner_name: "one",
        process_id: 4_194_304,
        host: "elsewhere",
        process_identity: "unknown",
        classes: ClassSet::any(is_runnable),
        lease_secs: 3_600,
    }
}

pub(super) fn end(event: RunEvent, results: &str) -> RunEnd {
    let is_failure = event != RunEvent::Succeed;
    let (code, message) = if is_failure { ("lease-expired", "a test said so") } else { ("", "") };
    RunEnd { delay_secs: Some(3_600), results: Some(results.to_owned()), ..RunEnd::of(event, code, message, "test") }
}

/// Returns everything that is stored about a run and its task.
fn picture(store: &mut Store, run: RunId, task: TaskId) -> String {
    format!("{:?}\n{:?}", store.get_run(run).unwrap(), store.get_task(task).unwrap())
}

/// Runs both closures at the same time, each with its own connection.
pub(super) fn at_once<A: Send, B: Send>(
    db: &TestDb,
    first: impl FnOnce(&mut Store) -> A + Send,
    second: impl FnOnce(&mut Store) -> B + Send,
) -> (A, B) {
    let mut stores = db.lend(2);
    let answers = both_at_once((&mut stores[..]).try_into().unwrap(), first, second);
    db.take_back(stores);
    answers
}

each_engine! {
    fn two_create_runs_at_once_create_one_run_for_each_task(db) {
        for round in 1..=ROUNDS {
            queue(db, 5);
            let (one, other) =
                at_once(db, |store| store.create_missing_runs(&mut |_| {}).unwrap(), |store| store.create_missing_runs(&mut |_| {}).unwrap());
            assert_eq!(one + other, 5, "each run is counted by the process that created it");
            assert_eq!(statuses(db).len(), 5 * round);
        }
        assert_eq!(db.number("SELECT COUNT(DISTINCT \"TaskQueueId\") AS value FROM \"TaskQueueRuns\""), 5 * ROUNDS as i64);
    }

    fn two_claims_of_the_last_run_give_it_to_one_and_nothing_to_the_other(db) {
        for round in 0..ROUNDS {
            queue(db, 1);
            assert_eq!(db.store().create_missing_runs(&mut |_| {}).unwrap(), 1);
            let tokens = [format!("a{round}"), format!("b{round}")];
            let (one, other) = at_once(
                db,
                |store| claim_with(store, &tokens[0], &|_| true),
                |store| claim_with(store, &tokens[1], &|_| true),
            );
            assert!(one.is_some() != other.is_some(), "{one:?} {other:?}");
            let winner = one.or(other).unwrap();
            assert_eq!(column(db, "Token"), Some(winner.token));
        }
    }

    fn the_loser_of_two_claims_of_a_named_run_learns_that_it_is_processing(db) {
        for round in 0..ROUNDS {
            queue(db, 1);
            assert_eq!(db.store().create_missing_runs(&mut |_| {}).unwrap(), 1);
            let run = RunId(db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRuns\""));
            let tokens = [format!("a{round}"), format!("b{round}")];
            let (one, other) = at_once(
                db,
                |store| store.claim_specific_run(run, &claim_of(&|_| true), &tokens[0]).unwrap(),
                |store| store.claim_specific_run(run, &claim_of(&|_| true), &tokens[1]).unwrap(),
            );
            let refused = [&one, &other].into_iter().filter(|claim| matches!(claim, SpecificClaim::Refused { status, .. } if status == "processing"));
            assert_eq!(refused.count(), 1, "{one:?} {other:?}");
        }
    }

    fn registrations_at_once_never_get_more_slots_than_there_are(db) {
        const LIMIT: usize = 3;
        const ASKING: usize = 12;
        let _ = db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", &LIMIT.to_string()]).ok();
        for round in 0..5 {
            let answers = many_at_once(db, ASKING, |store, number| {
                let runner = NewRunner {
                    process_id: 1,
                    host: "elsewhere".to_owned(),
                    process_identity: format!("round {round} runner {number}"),
                    slots: 1,
                    version: String::new(),
                    name: String::new(),
                    classes: ServedClasses::default(),
                    boot_ms: || 0,
                };
                store.register_runner(&runner).unwrap()
            });
            let mut registered: Vec<RunnerId> = Vec::new();
            for answer in answers {
                match answer {
                    Registration::Registered(id) => registered.push(id),
                    Registration::LimitReached { in_use, limit } => assert_eq!((in_use, limit), (3, 3)),
                }
            }
            assert_eq!(registered.len(), LIMIT);
            registered.sort_unstable_by_key(|id| id.0);
            registered.dedup();
            assert_eq!(db.store().finish_runners(&registered).unwrap(), LIMIT, "each got a row of its own");
        }
    }

    fn a_result_after_the_rescue_is_kept_as_an_event_and_changes_no_row(db) {
        let stage = Stage::with_run(db);
        let (runner, handler) = start_runner(db, &stage);
        end_lease(db);
        // From another PID namespace, as from another host: from there this handler cannot be seen or ended.
        let elsewhere = db.cli().program(Path::new("/usr/bin/unshare"));
        let namespaces = if is_root() { "-pf" } else { "-Urpf" };
        let rescued = elsewhere.run(&[namespaces, "--mount-proc", env!("CARGO_BIN_EXE_taskqueue"), "create-runs", "--json"]).json();
        assert_eq!(rescued["rescued"][0]["reason"], "lease-expired");
        assert_eq!(handler.liveness(), Liveness::Alive);
        let (run, id) = (RunId(rescued["rescued"][0]["run_id"].as_i64().unwrap()), TaskId(rescued["rescued"][0]["task_id"].as_i64().unwrap()));
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        let before = picture(&mut db.store(), run, id);

        let _go = stage.go();
        let ended = finish(runner);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("timeout already"), "{ended:?}");
        assert_eq!(stage.done(), "handler\n");
        assert_eq!(picture(&mut db.store(), run, id), before);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        let events = db.raw().texts("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'");
        assert_eq!(events.len(), 1);
        let details: serde_json::Value = serde_json::from_str(events[0].as_deref().unwrap()).unwrap();
        assert_eq!(details["found"], "timeout");
    }

    fn a_rescue_after_the_end_changes_nothing(db) {
        queue(db, 1);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let run = claim_with(&mut store, "token", &|_| true).unwrap();
        // The rescue has read the run in this state, but the runner is faster.
        let seen = reference(&run);
        assert_eq!(store.end_run(&reference(&run), &end(RunEvent::Succeed, "1")).unwrap(), EndResult::Recorded);
        let before = picture(&mut store, run.run_id, run.task_id);
        let answer = db.store().end_run(&seen, &end(RunEvent::TimeOut, "2")).unwrap();
        assert_eq!(answer, EndResult::Lost { found: "success".to_owned() });
        assert_eq!(picture(&mut store, run.run_id, run.task_id), before);
        assert_eq!(task(db), ("success".to_owned(), 0, 1));
    }

    fn an_end_with_the_token_of_an_earlier_claim_changes_nothing(db) {
        queue(db, 1);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let run = claim_with(&mut store, "token", &|_| true).unwrap();
        let stale = RunRef { id: run.run_id, token: "stale".to_owned() };
        let before = picture(&mut store, run.run_id, run.task_id);
        assert_eq!(store.end_run(&stale, &end(RunEvent::Succeed, "1")).unwrap(), EndResult::Lost { found: "processing".to_owned() });
        assert!(!store.record_handler(&stale, 1, "nobody").unwrap());
        assert_eq!(picture(&mut store, run.run_id, run.task_id), before);
        assert_eq!(store.end_run(&reference(&run), &end(RunEvent::Succeed, "1")).unwrap(), EndResult::Recorded);
    }

    fn of_a_finisher_and_a_rescuer_at_once_exactly_one_is_recorded(db) {
        let mut store = db.store();
        for round in 0..ROUNDS {
            queue(db, 1);
            store.create_missing_runs(&mut |_| {}).unwrap();
            let run = claim_with(&mut store, &format!("token{round}"), &|_| true).unwrap();
            let (finished, rescued) = at_once(
                db,
                |store| store.end_run(&reference(&run), &end(RunEvent::Succeed, "1")).unwrap(),
                |store| store.end_run(&reference(&run), &end(RunEvent::TimeOut, "2")).unwrap(),
            );
            let row = store.get_run(run.run_id).unwrap();
            let task = store.get_task(run.task_id).unwrap();
            let counts = (task.failed_retries, task.attempts, task.current_run_id);
            if finished == EndResult::Recorded {
                assert_eq!(rescued, EndResult::Lost { found: "success".to_owned() });
                assert_eq!((row.results.as_deref(), row.error_code.as_str()), (Some("1"), ""));
                assert_eq!(counts, (0, 1, None));
            } else {
                assert_eq!((finished, rescued), (EndResult::Lost { found: "timeout".to_owned() }, EndResult::Recorded));
                assert_eq!((row.results.as_deref(), row.error_code.as_str()), (Some("2"), "lease-expired"));
                assert_eq!(counts, (1, 1, None));
            }
        }
    }

    fn a_report_after_the_loss_of_the_run_stops_the_handler(db) {
        let stage = Stage::new(db, false);
        // Each line that it reads becomes a report.
        let script = format!(
            "cd {}; exec 4<>go; echo $$ > handler.new; mv handler.new handler; while read x <&4; do echo '{{\"progress\":10}}' >&3; done",
            stage.directory.display()
        );
        std::fs::write(stage.directory.join("handler.sh"), script).unwrap();
        let _ = db.cli().run(&["queue", "stage"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let (runner, handler) = start_runner(db, &stage);
        let mut go = open_fifo(&stage.directory.join("go"));
        go.write_all(b"\n").unwrap();
        wait_until("the first report is saved", || column(db, "PercentsCompleted").as_deref() == Some("10"));
        // The cancel of an operator.
        let now = if db.is_mysql_like() { "UTC_TIMESTAMP(6)" } else { "\"StartedOn\"" };
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'cancelled', \"FinishedOn\" = {now}"));
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"CurrentRunId\" = NULL");
        wait_until("the handler is asked to stop", || {
            go.write_all(b"\n").unwrap();
            handler.liveness() == Liveness::Dead
        });
        let ended = finish(runner);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("cancelled already"), "{ended:?}");
        assert_eq!(statuses(db), ["cancelled"]);
        assert_eq!(task(db), ("cancelled".to_owned(), 0, 0));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'"), 1);
    }

    fn a_task_that_is_being_cancelled_by_sql_gets_no_run(db) {
        queue(db, 3);
        let middle = db.number("SELECT MIN(\"Id\") + 1 AS value FROM \"TaskQueue\"");
        let mut operator = db.raw();
        begin_write(&mut operator);
        operator.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {middle}"));
        let mut store = db.store();
        let created = std::thread::scope(|scope| {
            let creator = scope.spawn(|| store.create_missing_runs(&mut |_| {}).unwrap());
            wait_blocked(db);
            operator.execute("COMMIT");
            creator.join().unwrap()
        });
        assert_eq!(created, 2);
        assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {middle}")), 0);
        assert_eq!(db.text(&format!("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"Id\" = {middle}")).as_deref(), Some("cancelled"));
        assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {middle} AND \"CurrentRunId\" IS NULL")), 1);
        assert_eq!(store.create_missing_runs(&mut |_| {}).unwrap(), 0);
    }

    fn a_cancel_that_is_rolled_back_leaves_every_task_its_run(db) {
        queue(db, 3);
        let mut operator = db.raw();
        begin_write(&mut operator);
        operator.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        let mut store = db.store();
        let created = std::thread::scope(|scope| {
            let creator = scope.spawn(|| store.create_missing_runs(&mut |_| {}).unwrap());
            wait_blocked(db);
            operator.execute("ROLLBACK");
            creator.join().unwrap()
        });
        assert_eq!(created, 3);
        assert_eq!(statuses(db), vec!["scheduled"; 3]);
    }

    fn a_claim_waits_for_whoever_has_locked_the_tables_and_then_succeeds(db) {
        queue(db, 1);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let mut other = db.raw();
        let unlock = match db.engine {
            EngineUnderTest::Sqlite => {
                other.execute("BEGIN EXCLUSIVE");
                "COMMIT"
            }
            EngineUnderTest::Postgres => {
                other.execute("BEGIN; LOCK TABLE \"TaskQueueRuns\" IN ACCESS EXCLUSIVE MODE");
                "COMMIT"
            }
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
                other.execute("LOCK TABLES \"TaskQueueRuns\" WRITE");
                "UNLOCK TABLES"
            }
        };
        let run = std::thread::scope(|scope| {
            let claimant = scope.spawn(|| claim_with(&mut store, "token", &|_| true));
            wait_blocked(db);
            other.execute(unlock);
            claimant.join().unwrap()
        });
        assert_eq!(run.unwrap().token, "token");
        assert_eq!(statuses(db), ["processing"]);
    }

    fn whoever_asks_what_a_claim_has_taken_waits_for_its_commit(db) {
        queue(db, 1);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let mut claim = db.raw();
        begin_write(&mut claim);
        let now = if db.is_mysql_like() { "UTC_TIMESTAMP(6)" } else { "\"CreatedOn\"" };
        claim.execute(&format!(
            "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"Token\" = 'in doubt',
             \"StartedOn\" = {now}, \"LeaseExpiresOn\" = {now}"
        ));
        let found = std::thread::scope(|scope| {
            let asking = scope.spawn(|| store.find_claimed("in doubt").unwrap());
            wait_blocked(db);
            claim.execute("COMMIT");
            asking.join().unwrap()
        });
        assert_eq!(found, Some((RunId(1), TaskId(1))));
    }

    fn a_claim_waits_for_an_open_transaction_and_takes_the_run_in_order(db) {
        queue(db, 2);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let first = db.number("SELECT MIN(\"Id\") AS value FROM \"TaskQueueRuns\"");
        let mut operator = db.raw();
        begin_write(&mut operator);
        // Not committed: a claim that does not wait would take a run that is being cancelled.
        let now = if db.is_mysql_like() { "UTC_TIMESTAMP(6)" } else { "\"CreatedOn\"" };
        operator.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'cancelled', \"FinishedOn\" = {now} WHERE \"Id\" = {first}"));
        let run = std::thread::scope(|scope| {
            let claimant = scope.spawn(|| claim_with(&mut store, "token", &|_| true));
            wait_blocked(db);
            operator.execute("COMMIT");
            claimant.join().unwrap()
        });
        assert_eq!(run.unwrap().run_id, RunId(first + 1));
        assert_eq!(statuses(db), ["cancelled", "processing"]);
    }

    fn an_insert_during_a_claim_is_never_refused(db) {
        queue(db, 1);
        let mut store = db.store();
        store.create_missing_runs(&mut |_| {}).unwrap();
        let mut application = db.raw();
        std::thread::scope(|scope| {
            let inserting = Cell::new(None);
            let application = Cell::new(Some(&mut application));
            // Called under the lock of the claim.
            let run = claim_with(&mut store, "token", &|_| {
                if let Some(application) = application.take() {
                    let thread = scope.spawn(|| application.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('stage', '{}')"));
                    if db.engine == EngineUnderTest::Postgres {
                        // The lock is only on the runs, so the insert does not wait.
                        thread.join().unwrap();
                    } else {
                        wait_blocked(db);
                        inserting.set(Some(thread));
                    }
                }
                true
            });
            assert!(run.is_some());
            if let Some(thread) = inserting.take() {
                thread.join().unwrap();
            }
        });
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
    }
}
