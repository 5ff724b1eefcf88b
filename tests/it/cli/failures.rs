//! `taskqueue failures`, and the retry of a group.

use serde_json::{Value, json};

use super::{ECHO, shell_class, task};
use crate::each_engine;
use crate::support::TestDb;

/// Two classes whose tasks fail without a retry: one with two errors, one with one.
fn fail(db: &TestDb) {
    let mail = shell_class(
        db,
        "mail",
        "case $(cat) in *box*) echo no such box >&2; exit 65;; *) echo refused >&2; exit 77;; esac",
    );
    let again = shell_class(db, "again", "echo greylisted >&2; exit 75");
    db.configure(&format!("{ECHO}{mail}{again}"));
    for (class, data) in
        [("mail", "\"box 1\""), ("mail", "\"box 2\""), ("mail", "\"other\""), ("again", "1"), ("echo", "1")]
    {
        db.cli().run(&["queue", class, data]).ok();
    }
    db.cli().run(&["tick"]).ok();
}

each_engine! {
    fn failures_are_grouped_by_class_and_error_with_samples(db) {
        fail(db);
        let found = db.cli().run(&["failures", "--json"]).json();
        assert_eq!((&found["schema"], &found["looked_at"], &found["has_more"]), (&json!("taskqueue.failures/1"), &json!(4), &json!(false)));
        let group = |group: &Value| (group["class"].clone(), group["error_code"].clone(), group["tasks"].clone(), group["will_not_be_retried"].clone());
        let groups: Vec<_> = found["groups"].as_array().unwrap().iter().map(group).collect();
        assert_eq!(groups, [
            (json!("mail"), json!("exit:65"), json!(2), json!(2)),
            (json!("again"), json!("exit:75"), json!(1), json!(0)),
            (json!("mail"), json!("exit:77"), json!(1), json!(1)),
        ]);
        let samples = found["groups"][0]["samples"].as_array().unwrap();
        assert_eq!((samples.len(), &samples[0]["error_message"]), (2, &json!("no such box")));
        let text = db.cli().run(&["failures"]).ok();
        assert!(text.starts_with("4 failed tasks in 3 groups; 3 of them will not be retried\n"), "{text}");
        assert!(text.ends_with("Retry a few of the largest group: taskqueue retry class=mail error=exit:65 --sample 5 --yes"), "{text}");
        let text = db.cli().run(&["failures", "--class", "mail", "--samples", "-n", "1"]).ok();
        assert!(text.contains("no such box") && !text.contains("refused") && text.contains("1 group more"), "{text}");
    }

    fn a_task_that_is_not_retried_shows_the_attempts_that_it_had_and_why(db) {
        fail(db);
        let why = |id: &str| db.cli().run(&["status", "--json", id]).json()["why"].clone();
        let expected = json!({
            "reason": "exhausted", "error": "exit:65: no such box", "failed_attempts": 1,
            "no_retry_rule": "exit 65: no_retry (default rule)",
        });
        assert_eq!(why("1"), expected);
        assert_eq!(db.cli().run(&["explain", "--json", "1"]).json()["cause"]["why"], expected);
        let list = db.cli().run(&["status"]).ok();
        let line = list.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
        assert!(line.contains(" 1/5 ") && line.contains("not retried: exit:65: no such box [exit 65: no_retry"), "{list}");
        let text = db.cli().run(&["status", "1"]).ok();
        assert!(text.contains("1 of 5 retries, 1 attempt in all") && text.contains("not retried"), "{text}");
        // A retry counts from zero.
        db.cli().run(&["retry", "1"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "1")["attempts"], &why("1")["failed_attempts"]), (&json!(2), &json!(1)));
        let group = db.cli().run(&["failures", "--class", "mail", "--json"]).json()["groups"][0].clone();
        assert_eq!((&group["samples"][0]["attempts"], &group["samples"][0]["why_final"]), (&json!(2), &json!("not_retryable")));
        let text = db.cli().run(&["failures", "--class", "mail", "--samples"]).ok();
        assert!(text.contains(" 2 ") && text.contains("not retried"), "{text}");
    }

    fn a_task_that_failed_as_often_as_it_may_has_no_retry_left(db) {
        db.configure(&shell_class(db, "again", "echo greylisted >&2; exit 75"));
        db.cli().run(&["queue", "again", "--max-retries", "1"]).ok();
        db.cli().run(&["queue", "again", "--max-retries", "2"]).ok();
        db.cli().run(&["tick"]).ok();
        let why = db.cli().run(&["status", "--json", "1"]).json()["why"].clone();
        assert_eq!((&why["failed_attempts"], &why["no_retry_rule"]), (&json!(1), &Value::Null));
        let found = db.cli().run(&["failures", "--json"]).json();
        let of = |id: i64| {
            let samples = found["groups"][0]["samples"].as_array().unwrap();
            samples.iter().find(|sample| sample["task_id"] == id).unwrap()["why_final"].clone()
        };
        assert_eq!((of(1), of(2)), (json!("no_retry_left"), Value::Null));
    }

    fn nothing_that_failed_is_said_so(db) {
        db.configure(ECHO);
        assert_eq!(db.cli().run(&["failures"]).ok(), "No failed tasks: no task has failed, or all have succeeded since.");
    }

    fn a_sample_of_a_group_is_tried_again_and_then_the_rest_at_a_rate(db) {
        fail(db);
        let statuses = || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"FailedRetries\" = 0 AND \"TaskClass\" = 'mail'");
        let said = db.cli().run(&["retry", "class=mail", "--sample", "1", "--yes"]).stderr;
        assert_eq!((said.as_str(), statuses()), ("1 task retried\n", 1));
        let said = db.cli().run(&["retry", "class=mail", "status=exhausted", "--rate", "2/1h", "--yes"]).stderr;
        assert_eq!((said.as_str(), statuses()), ("2 tasks retried\n", 3));
        let first = chrono::DateTime::parse_from_rfc3339(task(db, "2")["next_attempt_on"].as_str().unwrap()).unwrap();
        let second = chrono::DateTime::parse_from_rfc3339(task(db, "3")["next_attempt_on"].as_str().unwrap()).unwrap();
        let between = (second - first).num_seconds();
        assert!((1_799..=1_801).contains(&between), "{between}");
        assert_eq!(db.cli().run(&["retry", "1", "--rate", "often"]).code, Some(2));
    }
}
