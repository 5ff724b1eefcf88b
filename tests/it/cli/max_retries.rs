//! How often a task may fail: as the task sets it, else as the setting is when it fails, and never more often than the cap.

use super::{error_and_hint, printed, process, shell_class, task};
use crate::each_engine;
use crate::support::TestDb;

fn set(db: &TestDb, name: &str, value: &str) {
    db.cli().run(&["setting", "set", name, value]).ok();
}

/// Makes one more attempt of every task that is not exhausted.
fn attempt(db: &TestDb) {
    db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
    let _ = db.cli().run(&["tick"]);
    let _ = db.cli().run(&["tick"]);
}

/// Returns FailedRetries, whether it is exhausted, and RetryLimit.
fn state(db: &TestDb, id: &str) -> (i64, bool, Option<i64>) {
    let task = task(db, id);
    (task["failed_retries"].as_i64().unwrap(), task["is_exhausted"].as_bool().unwrap(), task["retry_limit"].as_i64())
}

each_engine! {
    fn a_task_that_states_nothing_follows_the_setting_when_it_fails(db) {
        db.configure(&shell_class(db, "work", "exit 1"));
        let id = db.cli().run(&["queue", "work"]).ok();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('work')");
        set(db, "TaskQueueMaxRetries", "2");
        attempt(db);
        assert_eq!(state(db, &id), (1, false, None));
        attempt(db);
        assert_eq!((state(db, &id), state(db, "2")), ((2, true, Some(2)), (2, true, Some(2))));
        assert!(db.cli().run(&["status", &id]).ok().contains("failed       2 of 2 retries"));
        // An exhausted task stays exhausted until it is retried by an operator.
        set(db, "TaskQueueMaxRetries", "9");
        attempt(db);
        assert_eq!(state(db, &id), (2, true, Some(2)));
        db.cli().run(&["retry", &id]).ok();
        assert_eq!(state(db, &id), (0, false, None));
        assert_eq!(task(db, &id)["max_retries"], serde_json::Value::Null);
    }

    fn no_task_fails_more_often_than_the_cap_whatever_it_states(db) {
        db.configure(&shell_class(db, "work", "exit 1"));
        set(db, "TaskQueueMaxRetriesCap", "1");
        let id = db.cli().run(&["queue", "work", "--max-retries", "9"]).ok();
        attempt(db);
        assert_eq!((state(db, &id), &task(db, &id)["max_retries"]), ((1, true, Some(1)), &9.into()));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"DueOn\" IS NOT NULL"), 0);
        db.cli().run(&["edit", &id, "--max-retries", "3"]).ok();
        assert_eq!(state(db, &id), (1, false, None));
        let bad = db.cli().run(&["setting", "set", "TaskQueueMaxRetriesCap", "0"]);
        assert!(error_and_hint(&bad.stderr).0.contains("1 to 1000000"), "{bad:?}");
    }

    fn a_handler_is_told_how_often_its_task_may_fail(db) {
        db.configure(&shell_class(db, "work", "echo $TASKQUEUE_MAX_RETRIES"));
        assert_eq!(printed(&process(db, "work", "{}"), "stdout"), "5\n");
        set(db, "TaskQueueMaxRetries", "7");
        assert_eq!(printed(&process(db, "work", "{}"), "stdout"), "7\n");
        set(db, "TaskQueueMaxRetriesCap", "3");
        assert_eq!(printed(&process(db, "work", "{}"), "stdout"), "3\n");
    }
}
