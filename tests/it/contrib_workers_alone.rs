//! Workers in plain SQL without any other process: no `create-runs`, no runner, no claim of the program.

use serde_json::Value;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_store::EndResult;

use crate::conformance::fixture::{claim_by_nobody, ending, reference, sql_now};
use crate::contrib_roles::{Person, make_roles};
use crate::contrib_workers::{SqlWorker, count};
use crate::races::stage::end_lease;
use crate::races::tools::wait_blocked;
use crate::support::TestDb;
use crate::{each_engine, each_server, test_on};

const INSERT: &str = "INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('work')";
const RUNS: &str = "\"TaskQueueRuns\"";

/// Returns the task and its first run, without values that differ between tasks, and the notices of the task.
fn left_of(db: &TestDb, task: &str) -> (Value, Value, Vec<Option<String>>) {
    let mut detail = db.cli().run(&["status", "--json", task]).json();
    let is_of_all = |name: &str| !name.ends_with("_on") && !name.ends_with("id");
    let of_all = |row: &mut Value| {
        row.as_object_mut().unwrap().retain(|name, _| is_of_all(name));
        row.take()
    };
    let is_due = count(
        db,
        &format!(
            "\"TaskQueue\" WHERE \"Id\" = {task} AND COALESCE(\"NextAttemptOn\", \"ScheduledOn\") <= \"UpdatedOn\""
        ),
    ) == 1;
    let mut left = of_all(&mut detail["task"]);
    left["is_due"] = is_due.into();
    let run = detail["runs"].as_array_mut().unwrap().iter_mut().min_by_key(|run| run["id"].as_i64()).map(of_all);
    let of_task = format!("FROM \"TaskQueueNotices\" WHERE \"TaskQueueId\" = {task} AND \"RunId\" IS NOT NULL");
    let columns = ["Kind", "TaskClass", "Host", "ErrorCode", "ErrorMessage"];
    let texts = |column: &str| db.raw().texts(&format!("SELECT \"{column}\" AS value {of_task}"));
    let of_rejections = format!("FROM \"TaskQueueRejections\" WHERE \"TaskId\" = {task} ORDER BY \"Claimant\"");
    let rejections = [
        "\"Claimant\"",
        "CAST(\"Timeouts\" AS char(9))",
        "CASE WHEN \"HeldUntil\" IS NULL THEN 'rejected' ELSE 'held' END",
    ];
    let of_rejections = |column: &str| db.raw().texts(&format!("SELECT {column} AS value {of_rejections}"));
    let notices = columns.into_iter().flat_map(texts);
    (left, run.unwrap(), notices.chain(rejections.into_iter().flat_map(of_rejections)).collect())
}

/// Returns the claim with the condition for this option in the page about workers, with this value.
fn with_condition(claim: &str, option: &str, value: &str) -> String {
    let page = include_str!("../../docs/workers.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{option} "))).unwrap();
    let example = row.split('`').nth(1).unwrap().strip_prefix(&format!("{option} ")).unwrap();
    let condition = row.split('`').rev().nth(1).unwrap().replace(example, value);
    let quoted = |text: &str| if claim.contains('`') { text.replace('"', "`") } else { text.to_owned() };
    let after = if condition.contains(" t.") {
        "t.\"LastStatus\" NOT IN ('cancelled', 'expired')"
    } else {
        "r.\"ClaimClass\" = 'work'"
    };
    let (after, condition) = (quoted(after), quoted(&condition));
    assert_eq!(claim.matches(&after).count(), 1, "{after}");
    claim.replace(&after, &format!("{after} {condition}"))
}

each_engine! {
    fn sql_workers_alone_take_back_what_one_that_died_had(db) {
        let worker = SqlWorker::new(db);
        db.execute(INSERT);
        let first = worker.claim("a");
        worker.step("claim", "b", 0);
        assert_eq!(worker.held("b"), 0, "the lease of the first has not expired");
        end_lease(db);
        let second = worker.claim("b");
        let task = worker.task("1");
        assert_eq!((&task["status"], &task["failed_retries"], &task["attempts"]), (&"processing".into(), &1.into(), &1.into()));
        assert_eq!(task["current_run_id"], second);
        // The first claimant was only late. Its statements change nothing, and the program refuses it.
        for step in ["heartbeat", "success", "error", "rejection"] {
            worker.step(step, "a", first);
        }
        let late = db.cli().run(&["worker", "resolve", &first.to_string(), "--token", &format!("{first}-secret-of-a")]);
        assert!(late.fails(1).contains("timeout"));
        assert_eq!(worker.task("1"), task);
        worker.step("success", "b", second);
        assert_eq!(worker.task("1")["status"], "success");
        assert_eq!(count(db, RUNS), 2);
    }

    fn what_sql_takes_back_ends_as_the_program_ends_it(db) {
        let worker = SqlWorker::new(db);
        // Otherwise `create-runs` would report the failures, and remove the notices.
        db.configure("[notify]\nstderr = false\n");
        // Without its own number, the setting applies.
        db.cli().run(&["setting", "set", "TaskQueueMaxRetries", "1"]).ok();
        let stated = |retries: &'static str| vec!["--max-retries", retries];
        for (retries, is_cancelled) in [(stated("3"), false), (stated("1"), false), (vec![], false), (stated("3"), true)] {
            let mut left = Vec::new();
            for takes_back_by_sql in [true, false] {
                let (task, _) = worker.queue_and_claim(&retries, "a");
                if is_cancelled {
                    db.cli().run(&["cancel", &task, "--reason", "withdrawn"]).ok();
                }
                db.execute(&format!("INSERT INTO \"TaskQueueRejections\" (\"TaskId\", \"Claimant\") VALUES ({task}, 'b')"));
                end_lease(db);
                if takes_back_by_sql { worker.step("claim", "b", 0) } else { db.cli().run(&["create-runs"]).ok(); }
                left.push(left_of(db, &task));
                let _ = db.cli().run(&["cancel", &task]);
            }
            assert_eq!(left[0], left[1], "{retries:?} {is_cancelled}");
            assert_eq!(left[0].1["status"], if is_cancelled { "cancelled" } else { "timeout" });
        }
        assert_eq!(count(db, "\"TaskQueueNotices\" WHERE \"Kind\" = 'exhausted'"), 4);
    }

    fn the_runs_of_runners_are_left_to_the_program_by_sql_workers(db) {
        let worker = SqlWorker::new(db);
        db.execute(INSERT);
        let run = worker.claim("a");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Claimant\" = NULL, \"RunnerId\" = 1");
        end_lease(db);
        worker.step("claim", "b", 0);
        assert_eq!(count(db, &format!("{RUNS} WHERE \"Id\" = {run} AND \"Status\" = 'processing'")), 1);
        assert_eq!(count(db, RUNS), 1);
    }

    fn a_plain_insert_is_claimed_by_sql_at_once_unless_it_may_not_run(db) {
        let worker = SqlWorker::new(db);
        let insert = |columns: &str, values: &str| {
            db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", {columns}) VALUES ('work', {values})"));
        };
        insert("\"WaitingFor\"", "1");
        insert("\"LastStatus\", \"FailedRetries\", \"MaxRetries\"", "'failed', 2, 2");
        insert("\"LastStatus\"", "'cancelled'");
        insert("\"ScheduledOn\"", "'2999-01-01 00:00:00.000000'");
        insert("\"QuarantinedOn\"", "'2020-01-01 00:00:00.000000'");
        insert("\"Priority\", \"Attempts\"", "0, 2");
        insert("\"Priority\"", "9");
        for (claimant, task) in [("a", "7"), ("b", "6")] {
            let run = worker.claim(claimant);
            let found = worker.task(task);
            assert_eq!((&found["status"], &found["current_run_id"]), (&"processing".into(), &run.into()), "{task}");
        }
        worker.step("claim", "c", 0);
        assert_eq!((worker.held("c"), count(db, RUNS)), (0, 2));
        assert_eq!(count(db, &format!("{RUNS} WHERE \"TaskQueueId\" = 6 AND \"Attempt\" = 3")), 1);
        worker.step("success", "a", worker.held("a"));
        worker.step("claim", "c", 0);
        assert_eq!(worker.held("c"), 0, "a successful task became due again");
    }

    fn a_task_that_a_worker_has_started_is_left_alone_by_sql_workers(db) {
        let (worker, mut store) = (SqlWorker::new(db), db.store());
        db.execute(INSERT);
        // Like `work`, which writes no row of the task.
        let started = store.claim_runs(&claim_by_nobody(&|_| true), &["the-token-of-a-worker".to_owned()]).unwrap().runs;
        worker.step("claim", "b", 0);
        assert_eq!((worker.held("b"), count(db, RUNS)), (0, 1));
        let end = ending(RunEvent::Succeed);
        let ends = [(reference(&started[0]), &end)];
        store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
        assert_eq!(worker.task("1")["status"], "success");
        worker.step("claim", "b", 0);
        assert_eq!(count(db, RUNS), 1, "it became due again");
    }

    fn a_task_behind_a_thousand_others_is_ended_by_the_sql_worker_that_has_it(db) {
        let worker = SqlWorker::new(db);
        // A worker has just started the first one, whose row does not show it yet.
        let others = vec!["('other', '2020-01-01 00:00:00')"; 1_000].join(", ");
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") VALUES {others}"));
        db.execute(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\")
             VALUES (1, 'other', 'processing', '2020-01-01 00:00:00', 'a-token-of-sixteen', '2100-01-01 00:00:00')",
        );
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") VALUES ('work', '2020-01-02 00:00:00')");
        // A claim of MySQL counts the started one among the thousand.
        worker.step("claim", "bot", 0);
        let run = if worker.held("bot") == 0 { worker.claim("bot") } else { worker.held("bot") };
        worker.step("success", "bot", run);
        assert_eq!(db.text("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'work'").as_deref(), Some("success"));
    }

    fn a_sql_worker_takes_only_the_tasks_that_it_chooses(db) {
        let worker = SqlWorker::new(db);
        let queue = |options: &[&str]| db.cli().run(&[&["queue", "--any-class", "work"], options].concat()).ok().trim().to_owned();
        let first = queue(&["--priority", "9", "--unique", "2026-10", "--limit-key", "account-16"]);
        let by_key = queue(&["--limit-key", "account-17"]);
        let by_unique = queue(&["--unique", "2026-11"]);
        let by_tag = queue(&["--tag", "account-18"]);
        let _ = queue(&["--tag", "account-19", "--priority", "9"]);
        let by_id = queue(&[]);
        db.cli().run(&["create-runs"]).ok();
        for (claimant, option, value, chosen) in [
            ("a", "--task", by_id.as_str(), &by_id),
            ("b", "--limit-key", "account-17", &by_key),
            ("c", "--unique", "2026-11", &by_unique),
            ("d", "--tag", "account-18", &by_tag),
        ] {
            for _ in 0..2 {
                db.raw().execute(&with_condition(&worker.sql("claim", claimant, 0), option, value));
            }
            assert_eq!(worker.task(chosen)["status"], "processing", "{option}");
            assert_eq!(count(db, &format!("{RUNS} WHERE \"Claimant\" = '{claimant}'")), 1, "{option}");
        }
        assert_eq!(worker.task(&first)["status"], "scheduled");
    }

    fn what_a_sql_worker_starts_counts_for_the_rate_of_its_class(db) {
        let worker = SqlWorker::new(db);
        for _ in 0..3 {
            db.execute(INSERT);
        }
        worker.claim("a");
        assert_eq!(count(db, "\"TaskQueueStarts\""), 0);
        db.cli().run(&["limit", "set", "work", "--rate", "3/1h"]).ok();
        worker.claim("b");
        let other = db.cli().run(&["worker", "claim", "--claimant", "c", "--class", "work", "--json"]).ok();
        assert!(other.contains("\"task_id\":3"), "{other}");
        db.execute(INSERT);
        let _ = db.cli().run(&["worker", "claim", "--claimant", "c", "--class", "work"]).fails(3);
        assert_eq!(count(db, "\"TaskQueueStarts\" WHERE \"TaskClass\" = 'work'"), 3);
        // The clock was ahead.
        db.execute(&format!("UPDATE \"TaskQueueStarts\" SET \"StartedOn\" = {}", sql_now(db.engine, 200_000)));
        worker.claim("d");
        assert_eq!(count(db, "\"TaskQueueStarts\""), 1);
    }

    fn missed_times_of_schedules_are_left_to_create_runs_by_sql_workers(db) {
        let worker = SqlWorker::new(db);
        for catch_up in ["none", "latest", "all"] {
            let options = ["queue", "--any-class", "work", "--every", "0 0 29 2 *", "--catch-up", catch_up];
            let head = db.cli().run(&options).ok().trim().to_owned();
            db.cli().run(&["create-runs"]).ok();
            let missed = "'2020-02-29 00:00:00.000000'";
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"PlannedOn\" = {missed}, \"ScheduledOn\" = {missed} WHERE \"Id\" = {head}"
            ));
            worker.step("claim", "a", 0);
            assert_eq!(count(db, &format!("{RUNS} WHERE \"TaskQueueId\" = {head}")), 0, "{catch_up}");
            db.cli().run(&["create-runs"]).ok();
            worker.step("claim", "a", 0);
            assert_eq!(worker.held("a") != 0, catch_up != "none", "{catch_up}");
            if catch_up != "none" {
                let planned = worker.task(&head)["schedule"]["planned_on"].to_string();
                assert_eq!(planned.contains("2020"), catch_up == "all", "{planned}");
                worker.step("error", "a", worker.held("a"));
                // Its retry is at no planned time.
                db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = {missed} WHERE \"Id\" = {head}"));
                worker.step("success", "a", worker.claim("a"));
            }
            db.cli().run(&["schedule", "remove", &head]).ok();
        }
    }

    fn the_run_of_a_token_of_a_sql_worker_is_found_even_after_its_end(db) {
        let worker = SqlWorker::new(db);
        db.execute(INSERT);
        let run = worker.claim("a");
        let step = worker.sql("what was claimed", "a", run);
        let claimed = step[step.find("SELECT").unwrap()..].trim().trim_end_matches(';');
        let token = db.raw().texts(&format!("SELECT \"Token\" AS value FROM ({claimed}) AS claimed")).remove(0).unwrap();
        assert!(token.starts_with(&format!("{run}-")), "{token}");
        for status in ["processing", "success"] {
            let found: Value = db.cli().run(&["status", "--json", "--token", &token]).json();
            assert_eq!(found["status"], status, "{found}");
            worker.step("success", "a", run);
        }
    }

    fn sql_workers_at_once_never_have_two_runs_of_one_task(db) {
        let worker = SqlWorker::new(db);
        for number in 0..12 {
            db.execute(INSERT);
            if number % 2 == 0 {
                let _ = worker.claim(&format!("dead-{number}"));
            }
        }
        end_lease(db);
        std::thread::scope(|threads| {
            for thread in 0..3 {
                let worker = &worker;
                threads.spawn(move || {
                    let mut raw = db.raw();
                    for number in 0..4 {
                        raw.execute(&worker.sql("claim", &format!("bot-{thread}-{number}"), 0));
                    }
                });
            }
        });
        let held = format!("{RUNS} WHERE \"Status\" = 'processing' AND \"Claimant\" LIKE 'bot-%'");
        assert_eq!((count(db, &held), count(db, RUNS)), (12, 18));
        assert_eq!(db.number(&format!("SELECT COUNT(DISTINCT \"TaskQueueId\") AS value FROM {held}")), 12);
        assert_eq!(db.number("SELECT SUM(\"FailedRetries\") AS value FROM \"TaskQueue\""), 6);
    }
}

each_server! {
    fn the_role_of_runners_is_enough_for_a_sql_worker(db) {
        make_roles(db);
        let host = Person::with_role(db, "taskqueue_runner");
        let mut raw = host.raw();
        let worker = SqlWorker::new(db);
        db.execute(INSERT);
        raw.execute(&worker.sql("claim", "a", 0));
        end_lease(db);
        raw.execute(&worker.sql("claim", "b", 0));
        let run = worker.held("b");
        for step in ["what was claimed", "heartbeat", "what the heartbeat answers", "rejection", "success", "error"] {
            raw.execute(&worker.sql(step, "b", run));
        }
        assert_eq!(worker.task("1")["failed_retries"], 2);
    }
}

test_on! { [postgres Postgres] sql_waits_for_no_cancel_being_committed_and_starts_no_run_of_it db {
    let worker = SqlWorker::new(db);
    db.execute(&format!("{INSERT}, ('work')"));
    db.cli().run(&["create-runs"]).ok();
    let mut application = db.raw();
    application.execute("BEGIN; UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 1");
    db.raw().execute(&format!("SET lock_timeout = '10s'; {}", worker.sql("claim", "bot", 0)));
    assert_eq!(worker.task("2")["status"], "processing");
    application.execute("COMMIT");
    worker.step("claim", "other", 0);
    assert_eq!((worker.held("other"), worker.task("1")["status"].as_str()), (0, Some("cancelled")));
} }

test_on! { [postgres Postgres] sql_starts_no_run_of_a_task_that_is_cancelled_while_it_looks_for_one db {
    let worker = SqlWorker::new(db);
    db.execute(INSERT);
    db.cli().run(&["create-runs"]).ok();
    // The claim waits in the middle of its statement.
    let status = "t.\"LastStatus\" NOT IN ('cancelled', 'expired')";
    let claim = worker.sql("claim", "bot", 0);
    assert_eq!(claim.matches(status).count(), 1);
    let claim = claim.replace(status, &format!("{status} AND pg_advisory_xact_lock(7)::text IS NOT NULL"));
    let mut application = db.raw();
    application.execute("SELECT pg_advisory_lock(7)");
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| db.raw().execute(&claim));
        wait_blocked(db);
        application.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        application.execute("SELECT pg_advisory_unlock(7)");
        claim.join().unwrap();
    });
    assert_eq!((worker.held("bot"), worker.task("1")["status"].as_str()), (0, Some("cancelled")));
} }
