//! Tasks that fail and tasks that crash: how long they wait, when they are quarantined, and how they are released.

use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks, retryable};

use super::{ECHO, detail, due_from, error_and_hint, process, shell_class, task};
use crate::conformance::fixture::{make_due, willing};
use crate::each_engine;
use crate::support::TestDb;

/// Returns the seconds from the end of a task's last attempt to its next attempt.
fn wait_secs(db: &TestDb, id: &str) -> i64 {
    let after = detail(db, id);
    let instant = |value: &serde_json::Value| chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    let ended = instant(&after["runs"][0]["finished_on"]);
    // The two times were read one after the other from the database's clock.
    let wait = due_from(&after["task"]) - ended;
    (wait + chrono::TimeDelta::milliseconds(500)).num_seconds()
}

#[track_caller]
fn waited(db: &TestDb, id: &str, secs: i64) {
    let waited = wait_secs(db, id);
    assert!((secs..=secs + secs / 10 + 1).contains(&waited), "{waited} instead of {secs}");
}

fn crash(db: &TestDb, times: usize) {
    for _ in 0..times {
        make_due(db, TaskId(1));
        db.cli().run(&["tick"]).ok();
    }
}

const CRASH: &str = "kill -KILL $$";

each_engine! {
    fn the_planned_time_stays_and_the_next_attempt_has_its_own(db) {
        db.configure(&shell_class(db, "work", "exit 1"));
        let failed = process(db, "work", "{}")["task"].clone();
        let queued_for = failed["scheduled_on"].clone();
        assert!(failed["next_attempt_on"].as_str() > queued_for.as_str(), "{failed}");
        let shown = db.cli().run(&["status", "1"]).ok();
        assert!(shown.contains(", next attempt "), "{shown}");

        let _ = db.cli().run(&["retry", "1"]).ok();
        let retried = task(db, "1");
        assert_eq!(retried["scheduled_on"], queued_for);
        assert!(retried["next_attempt_on"].as_str() < failed["next_attempt_on"].as_str(), "{retried}");
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "1")["runs"].as_array().unwrap().len(), 2);

        let _ = db.cli().run(&["edit", "1", "--at", "2099-01-01T00:00:00Z"]).ok();
        let edited = task(db, "1");
        assert_eq!((&edited["scheduled_on"], &edited["next_attempt_on"]), (&"2099-01-01T00:00:00Z".into(), &serde_json::Value::Null));
        let _ = db.cli().run(&["cancel", "1"]).ok();
        let _ = db.cli().run(&["retry", "1"]).ok();
        let again = task(db, "1");
        assert!(again["next_attempt_on"].is_null() && again["scheduled_on"].as_str() > queued_for.as_str(), "{again}");
        assert!(again["scheduled_on"].as_str() < Some("2099"), "{again}");
    }

    fn a_class_says_how_long_its_tasks_wait_and_a_task_goes_before_it(db) {
        db.configure(&format!("{}backoff = \"list:1m,1h\"\n", shell_class(db, "work", "exit 1")));
        process(db, "work", "{}");
        waited(db, "1", 60);
        for _ in 0..2 {
            make_due(db, TaskId(1));
            db.cli().run(&["tick"]).ok();
            waited(db, "1", 3_600);
        }
        db.cli().run(&["queue", "work", "--backoff", "fixed:2h"]).ok();
        let line = "{\"class\":\"work\",\"backoff\":\"exponential:5m..1d\"}";
        db.cli().stdin(line).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        waited(db, "2", 7_200);
        waited(db, "3", 300);
        assert_eq!(task(db, "2")["backoff"], "fixed:7200s");
        assert!(db.cli().run(&["status", "3"]).ok().contains("backoff      exponential:300s..86400s"));
    }

    fn a_backoff_that_nobody_can_read_is_refused_or_left_alone_and_named(db) {
        db.configure(&format!("{}backoff = \"fixed:2h\"\n", shell_class(db, "work", "exit 1")));
        let (error, _) = error_and_hint(&db.cli().run(&["queue", "work", "--backoff", "2h"]).fails(2));
        assert!(error.contains("\"2h\" is not a backoff") && error.contains("fixed:30s"), "{error}");
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Backoff\") VALUES ('work', 'fibonacci:1s')");
        db.cli().run(&["tick"]).ok();
        waited(db, "1", 7_200);
        assert!(db.cli().run(&["status", "1"]).ok().contains("fibonacci:1s (cannot be read: that of the class applies)"));
    }

    fn a_task_that_crashes_repeatedly_is_quarantined_with_retries_left(db) {
        db.configure(&shell_class(db, "work", CRASH));
        process(db, "work", "{}");
        crash(db, 1);
        let after = detail(db, "1");
        assert_eq!((&after["task"]["crashes"], &after["task"]["quarantined_on"]), (&2.into(), &serde_json::Value::Null));
        assert_eq!(after["why"]["reason"], "not_yet");
        crash(db, 1);
        let after = detail(db, "1");
        assert_eq!((&after["task"]["crashes"], &after["task"]["failed_retries"]), (&3.into(), &3.into()));
        assert!(after["task"]["quarantined_on"].is_string());
        assert_eq!((&after["why"]["reason"], &after["why"]["crashes"]), (&"quarantined".into(), &3.into()));
        let kinds: Vec<&str> = after["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["failed", "quarantined", "retry", "retry"]);
        // It is not retried, however much time passes.
        crash(db, 2);
        assert_eq!(task(db, "1")["attempts"], 3);
        let shown = db.cli().run(&["status"]).ok();
        assert!(shown.contains("quarantined 1") && shown.contains("quarantined after 3 crashes: signal:9"), "{shown}");
        assert_eq!(db.cli().run(&["status", "--json"]).json()["counts"]["quarantined"]["count"], 1);
    }

    fn an_operator_lets_a_task_out_of_quarantine(db) {
        db.configure(&format!("{}crash_limit = 1\n", shell_class(db, "work", CRASH)));
        process(db, "work", "{}");
        assert!(task(db, "1")["quarantined_on"].is_string());
        let mended = shell_class(db, "work", "exit 0");
        db.configure(&mended);
        let ended = db.cli().run(&["retry", "1"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "task 1 is retried\n"));
        let after = task(db, "1");
        assert_eq!((&after["failed_retries"], &after["crashes"], &after["status"]), (&0.into(), &0.into(), &"failed".into()));
        assert!(after["quarantined_on"].is_null());
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, "1")["status"], "success");
        let events = detail(db, "1")["events"].as_array().unwrap().iter().map(|event| event["kind"].to_string()).collect::<Vec<_>>();
        assert_eq!(events, ["\"retried\"", "\"failed\"", "\"quarantined\""]);
    }

    fn retry_makes_finished_and_waiting_tasks_due_and_refuses_the_others(db) {
        db.configure(&format!("{}{}", shell_class(db, "work", "exit 1"), ECHO));
        db.cli().run(&["queue", "work", "--max-retries", "1"]).ok();
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "work"]).ok();
        assert_eq!(detail(db, "1")["why"]["reason"], "exhausted");
        let sample = db.cli().run(&["retry", "--dry-run", "--sample", "1", "2", "1"]);
        assert!(sample.stderr.contains("task 1 ") && !sample.stderr.contains("task 2 "), "{sample:?}");
        let ended = db.cli().run(&["retry", "1", "2", "3", "4", "5"]);
        assert_eq!(ended.code, Some(1));
        let said: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(said, [
            "task 1 is retried",
            "task 2 is retried",
            "task 3 is retried",
            "warning: task 4 has the status scheduled; it has not finished",
            "warning: there is no task 5",
        ]);
        for id in ["1", "2", "3"] {
            assert_eq!(detail(db, id)["why"]["reason"], "waits_for_create_runs");
        }
        db.cli().run(&["create-runs"]).ok();
        let again = db.cli().run(&["retry", "--json", "1"]);
        assert_eq!(again.code, Some(1));
        assert!(again.stdout.contains("has an open run"), "{again:?}");
        assert_eq!(db.cli().run(&["retry", "5"]).code, Some(3));
    }

    fn a_task_that_is_tried_again_with_other_data_keeps_what_it_had(db) {
        db.configure(&shell_class(db, "work", "[ \"$(cat)\" = '\"good\"' ] || exit 65"));
        process(db, "work", "\"bad\"");
        let data = || db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\"").unwrap();
        assert_eq!(db.cli().run(&["retry", "1", "--data", "{"]).code, Some(2));
        assert_eq!((data().as_str(), &task(db, "1")["status"]), ("\"bad\"", &"failed".into()));
        let ended = db.cli().stdin("\"good\"").run(&["retry", "1", "--data", "-"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "task 1 is retried\n"));
        db.cli().run(&["tick"]).ok();
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], after["runs"].as_array().unwrap().len()), (&"success".into(), 2));
        let kept = db.text("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'edited'").unwrap();
        let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["before"]["TaskData"], "\"bad\"");
        // Of a selection without statuses, a task that has succeeded since it was selected is not repeated.
        let (only, mut answers) = (retryable(false), Vec::new());
        let options = RetryOptions { only: &only, data: Some("3"), ..RetryOptions::default() };
        retry_tasks(&mut willing(db), &[TaskId(1)], &options, &mut |answer| answers.push(answer.message)).unwrap();
        assert_eq!(answers, ["task 1 has the status success; only tasks of other statuses are retried"]);
        // The data of tasks that are not retried is not changed.
        assert_eq!(db.cli().run(&["retry", "status=failed", "class=work", "--data", "3", "--yes"]).code, Some(3));
        assert_eq!(data(), "\"good\"");
    }

    fn what_another_task_keeps_from_being_tried_again_keeps_its_data(db) {
        db.configure(&shell_class(db, "work", "exit 65"));
        let data = || db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1").unwrap();
        db.cli().run(&["queue", "work", "1", "--unique", "k"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "work", "2", "--unique", "k", "--in", "1h"]).ok();
        assert_eq!(db.cli().run(&["retry", "status=failed", "class=work", "--data", "3", "--yes"]).code, Some(3));
        assert_eq!(data(), "1");
        assert_eq!(db.cli().run(&["retry", "1", "--data", "{", "--dry-run"]).code, Some(2));
        let events = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" IN ('edited', 'retried')";
        assert_eq!(db.number(events), 0);
    }

    fn an_error_is_no_crash_and_a_success_forgets_the_crashes(db) {
        let script = "case $(cat) in *$TASKQUEUE_ATTEMPT*) kill -SEGV $$;; *) exit 1;; esac";
        db.configure(&shell_class(db, "work", script));
        process(db, "work", "[1,4]");
        crash(db, 2);
        let after = task(db, "1");
        assert_eq!((&after["attempts"], &after["crashes"], &after["failed_retries"]), (&3.into(), &1.into(), &3.into()));
        crash(db, 1);
        assert_eq!(task(db, "1")["crashes"], 2);
        db.configure(&shell_class(db, "work", "exit 0"));
        crash(db, 1);
        let after = task(db, "1");
        assert_eq!((&after["status"], &after["crashes"]), (&"success".into(), &0.into()));
    }

    fn the_loss_of_its_runner_counts_as_a_crash_of_the_task(db) {
        use crate::conformance::fixture::{claim_as, create, dead_process, queue, willing};
        db.cli().run(&["setting", "set", "TaskQueueCrashLimit", "2"]).ok();
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        create(&mut ctx);
        for crashes in 1..=2 {
            claim_as(&mut ctx.store, &dead_process()).unwrap();
            create(&mut ctx);
            assert_eq!(ctx.store.get_task(id).unwrap().crashes, crashes);
        }
        assert!(ctx.store.get_task(id).unwrap().quarantined_on.is_some());
        assert_eq!(create(&mut ctx).created, 0);
    }
}
