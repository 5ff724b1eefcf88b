//! Tasks that expire: they must not start at or after a time.

use serde_json::{Value, json};

use super::{ECHO, detail, error_and_hint, shell_class, task};
use crate::each_engine;
use crate::support::{Ended, TestDb};

fn queue(db: &TestDb, more: &[&str]) -> Ended {
    db.cli().run(&[&["queue", "echo"], more].concat())
}

/// Returns how many seconds after its time the task expires.
fn secs_to_start(db: &TestDb, id: &str) -> i64 {
    let task = task(db, id);
    let time = |name: &str| chrono::DateTime::parse_from_rfc3339(task[name].as_str().unwrap()).unwrap();
    (time("start_before") - time("scheduled_on")).num_seconds()
}

/// Lets the time to start of all tasks pass.
fn expire(db: &TestDb) {
    db.execute("UPDATE \"TaskQueue\" SET \"StartBefore\" = '2020-01-01 00:00:00' WHERE \"StartBefore\" IS NOT NULL");
}

fn status(db: &TestDb, id: &str) -> String {
    task(db, id)["status"].as_str().unwrap().to_owned()
}

each_engine! {
    fn a_task_that_expires_does_not_start_and_says_so_everywhere(db) {
        db.configure(ECHO);
        assert_eq!(queue(db, &["--expires", "2h"]).ok(), "1");
        // The clock is read before the row is inserted.
        assert!((7_190..=7_200).contains(&secs_to_start(db, "1")));
        assert_eq!(queue(db, &["--after", "1"]).ok(), "2");
        expire(db);
        let created = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!((&created["expired"], &created["created"]), (&json!(1), &json!(0)), "{created}");
        let shown = detail(db, "1");
        assert_eq!((&shown["task"]["status"], &shown["task"]["attempts"]), (&json!("expired"), &json!(0)));
        assert_eq!(shown["why"], json!({ "reason": "expired", "on": "2020-01-01T00:00:00Z" }));
        assert!(db.cli().run(&["status", "1"]).ok().contains("start before 2020-01-01"));
        let explained = db.cli().run(&["explain", "1"]).ok();
        assert!(explained.contains("had to start before 2020-01-01"), "{explained}");
        assert!(explained.contains("taskqueue retry 1"), "{explained}");
        assert_eq!(db.cli().run(&["wait", "1"]).code, Some(1));
        assert_eq!(db.cli().run(&["status", "--json"]).json()["counts"]["expired"], json!({ "count": 1, "or_more": false }));
        let listed = db.cli().run(&["status", "status=expired"]).ok();
        assert!(listed.contains("success 0   expired 1\n") && listed.contains("had to start before 2020-01-01"), "{listed}");
        let events = db.cli().run(&["events", "--task", "1", "--json"]).ok();
        let event: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
        assert_eq!((&event["kind"], &event["details"]["start_before"]), (&json!("expired"), &json!("2020-01-01T00:00:00Z")));
        assert!(db.cli().run(&["doctor"]).stdout.contains("were cancelled or have expired: 2"));
        assert!(db.cli().run(&["metrics"]).ok().contains("status=\"expired\""));
        assert!(db.cli().run(&["cancel", "1"]).fails(1).contains("task 1 has the status expired; there is nothing to cancel"));
        let _ = db.cli().run(&["retry", "1"]).ok();
        assert_eq!(task(db, "1")["start_before"], Value::Null);
        let _ = queue(db, &["--expires", "2020-01-01"]).ok();
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "1 task expired\n1 run created\n");
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!(["1", "2"].map(|id| status(db, id)), ["success", "success"]);
    }

    fn no_verb_starts_a_task_that_has_expired_since_it_got_its_run(db) {
        db.configure(ECHO);
        for more in [&["--expires", "1h"][..], &["--expires", "1h", "--limit-key", "k"], &["--expires", "1h", "--priority", "9"], &[]] {
            let _ = queue(db, more).ok();
        }
        let _ = db.cli().run(&["create-runs"]).ok();
        expire(db);
        // The run of task 1 by name, then that of each claim, without a create-runs in between.
        let refused = db.cli().run(&["process-run", "1"]);
        assert!(refused.code == Some(1) && refused.stderr.contains("cancelled"), "{refused:?}");
        assert_eq!(status(db, "1"), "expired");
        let claimed = db.cli().run(&["worker", "claim", "--claimant", "bot-1"]).json();
        assert_eq!((&claimed["task_id"], status(db, "3").as_str()), (&json!(4), "expired"));
        let run = &detail(db, "3")["runs"][0];
        assert_eq!((&run["status"], &run["error_code"], &run["started_on"]), (&json!("cancelled"), &json!("expired"), &Value::Null));
        assert_eq!(task(db, "3")["attempts"], 0);
        let _ = db.cli().run(&["process-run"]).ok();
        assert_eq!(status(db, "2"), "expired");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'expired'"), 3);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"StartedOn\" IS NOT NULL"), 1);
    }

    fn a_worker_ends_expired_tasks_and_starts_the_others(db) {
        db.configure(ECHO);
        let lines: Vec<String> = (0..40).map(|place| {
            if place % 3 == 0 { json!({ "class": "echo", "expires": "1h" }) } else { json!({ "class": "echo" }) }.to_string()
        }).collect();
        let _ = db.cli().stdin(lines.join("\n")).run(&["queue", "--batch", "-"]).ok();
        expire(db);
        let _ = db.cli().run(&["work", "--slots", "4", "--idle-exit", "0s"]).ok();
        let count = |status: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = '{status}'"));
        assert_eq!((count("success"), count("expired")), (26, 14));
    }

    fn a_failed_task_is_not_retried_after_it_has_expired(db) {
        db.configure(&shell_class(db, "echo", "exit 1"));
        let _ = queue(db, &["--expires", "1h", "--backoff", "fixed:0s", "--max-retries", "9"]).ok();
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!((status(db, "1").as_str(), task(db, "1")["failed_retries"].clone()), ("failed", json!(1)));
        expire(db);
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!((status(db, "1").as_str(), task(db, "1")["attempts"].clone()), ("expired", json!(1)));
        // An exhausted task stays failed, and a retry removes the time that has passed.
        let _ = queue(db, &["--expires", "1h", "--max-retries", "1"]).ok();
        let _ = db.cli().run(&["tick"]).ok();
        let before = task(db, "2")["start_before"].clone();
        let _ = db.cli().run(&["retry", "2"]).ok();
        assert_eq!(task(db, "2")["start_before"], before, "it has not passed");
        let _ = db.cli().run(&["tick"]).ok();
        expire(db);
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(status(db, "2"), "failed");
        let _ = db.cli().run(&["retry", "2"]).ok();
        assert_eq!(task(db, "2")["start_before"], Value::Null);
    }

    fn the_time_to_start_is_given_and_changed_at_every_door(db) {
        db.configure(ECHO);
        let _ = queue(db, &["--expires", "30m", "--in", "1h"]).ok();
        assert_eq!(secs_to_start(db, "1"), 1_800);
        let _ = queue(db, &["--expires", "2090-01-01T00:00:00Z"]).ok();
        assert_eq!(task(db, "2")["start_before"], "2090-01-01T00:00:00Z");
        let line = json!({ "class": "echo", "at": "2080-01-01T00:00:00Z", "expires": "1d" }).to_string();
        let _ = db.cli().stdin(line).run(&["queue", "--batch", "-"]).ok();
        assert_eq!(task(db, "3")["start_before"], "2080-01-02T00:00:00Z");
        let _ = db.cli().run(&["edit", "3", "--expires", "2h"]).ok();
        assert_eq!(secs_to_start(db, "3"), 7_200, "counted from its time");
        let _ = db.cli().run(&["edit", "3", "--in", "0s", "--expires", "2081-01-01T00:00:00Z"]).ok();
        let _ = db.cli().run(&["edit", "3", "--expires", "none"]).ok();
        assert_eq!(task(db, "3")["start_before"], Value::Null);
        let edited: Value = serde_json::from_str(db.cli().run(&["events", "--task", "3", "--json"]).ok().lines().last().unwrap()).unwrap();
        assert_eq!(edited["details"]["before"]["StartBefore"], "2081-01-01T00:00:00Z", "{edited}");
        let _ = queue(db, &["--unique", "k", "--expires", "1h", "--in", "1h"]).ok();
        let _ = queue(db, &["--unique", "k", "--on-conflict", "replace", "--in", "1h"]).ok();
        assert_eq!(task(db, "4")["start_before"], Value::Null, "replaced by a task without one");
        let _ = queue(db, &["--unique", "k", "--on-conflict", "replace", "--expires", "1h"]).ok();
        assert!((3_590..=3_600).contains(&secs_to_start(db, "4")));
        // Export and import keep it.
        let exported = db.cli().run(&["export"]).ok();
        db.execute("DELETE FROM \"TaskQueue\"");
        let _ = db.cli().stdin(exported).run(&["import", "-"]).ok();
        assert_eq!((secs_to_start(db, "1"), &task(db, "2")["start_before"]), (1_800, &json!("2090-01-01T00:00:00Z")));
        for (bad, words) in [
            (&["--expires", "soon"][..], "--expires: \"soon\" is not a time"),
            (&["--expires", "2036-12-31T23:59:60Z"], "is not a time"),
            (&["--expires", "0s"], "expires is 0; it must be 1 to 316224000"),
            (&["--expires", "1.5s"], "fraction of a second"),
            (&["--expires", "2079-01-01", "--at", "2080-01-01"], "the task would expire at 2079"),
        ] {
            let (error, _) = error_and_hint(&queue(db, bad).stderr);
            assert!(error.contains(words), "{bad:?}: {error}");
        }
        let line = json!({ "class": "echo", "expires": "soon" }).to_string();
        assert!(db.cli().stdin(line).run(&["queue", "--batch", "-"]).fails(2).contains("line 1: \"expires\": \"soon\""));
    }

    fn the_next_task_of_a_schedule_expires_in_the_year_9999_at_the_latest(db) {
        db.configure(ECHO);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"StartBefore\", \"Recurrence\") VALUES ('echo', '9999-12-31 23:59:59', '0 0 1 1 *')");
        let last = serde_json::json!("9999-12-31T23:59:59.999999Z");
        let _ = db.cli().run(&["tick"]).ok();
        // Its first time is next New Year's Day; so much later it expires.
        assert_eq!((status(db, "1"), &task(db, "1")["start_before"]), ("scheduled".to_owned(), &last));
        // A copy that is due now has the longest time to start that can be asked for.
        assert_eq!(db.cli().run(&["schedule", "run", "1"]).ok(), "2");
        assert!((316_223_990..=316_224_000).contains(&secs_to_start(db, "2")));
        db.execute("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2026-01-01 00:00:00', \"PlannedOn\" = '2026-01-01 00:00:00' WHERE \"Id\" = 1");
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!((status(db, "1"), &task(db, "3")["start_before"]), ("success".to_owned(), &last));
    }
}
