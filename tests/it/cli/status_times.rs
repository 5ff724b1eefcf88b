//! `status --class`: how long the newest runs of a class waited and took.

use serde_json::{Value, json};

use super::shell_class;
use crate::each_engine;
use crate::support::TestDb;

/// Inserts a task that was to be processed at this second of a minute in 2026.
fn insert_task(db: &TestDb, class: &str, status: &str, second: u32) -> i64 {
    db.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"Attempts\")
         VALUES ('{class}', '{status}', '2026-01-01 00:00:{second:02}.000000', 1)"
    ));
    db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\"")
}

/// Inserts an ended run of that minute. Times begin with the minute.
fn insert_run(db: &TestDb, task: i64, attempt: u32, status: &str, from: &str, to: &str) {
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Attempt\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\")
         VALUES ({task}, 'mail', {attempt}, '{status}', '2026-01-01 00:{from}', '2026-01-01 00:{to}', 'x')"
    ));
}

fn times(db: &TestDb, args: &[&str]) -> Value {
    db.cli().run(&[&["status", "--json"], args].concat()).json()["times"].clone()
}

/// Returns the count of each bucket.
fn counts(spread: &Value) -> Vec<u64> {
    spread["buckets"].as_array().unwrap().iter().map(|bucket| bucket["count"].as_u64().unwrap()).collect()
}

each_engine! {
    fn two_histograms_show_how_long_runs_of_a_class_waited_and_took(db) {
        db.configure(&shell_class(db, "mail", "true"));
        assert_eq!(times(db, &["--class", "mail"])["runs"], 0);
        assert!(!db.cli().run(&["status", "--class", "mail"]).ok().contains("newest"));
        let done = insert_task(db, "mail", "success", 10);
        insert_run(db, done, 1, "success", "00:15.000000", "00:15.050000");
        let retried = insert_task(db, "mail", "failed", 20);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = '2026-01-01 00:03:00.000000' WHERE \"Id\" = {retried}"));
        insert_run(db, retried, 1, "error", "00:20.000000", "02:00.000000");
        insert_run(db, retried, 2, "released", "03:01.000000", "03:02.000000");
        insert_run(db, retried, 2, "timeout", "03:05.000000", "04:05.000000");
        let cancelled = insert_task(db, "mail", "cancelled", 30);
        insert_task(db, "other", "success", 40);
        assert!(cancelled > retried);
        let found = times(db, &["--class", "mail"]);
        assert_eq!((&found["class"], &found["runs"]), (&json!("mail"), &json!(3)), "{found}");
        // It waited 5, 0 and 3 seconds: the last time counts from the release.
        assert_eq!(counts(&found["due_to_start"]), [1, 0, 2, 0, 0, 0, 0, 0], "{found}");
        assert_eq!((&found["due_to_start"]["median_secs"], &found["due_to_start"]["p95_secs"]), (&json!(3.0), &json!(5.0)));
        // It took 0.05, 100 and 60 seconds.
        assert_eq!(counts(&found["run_time"]), [1, 0, 0, 1, 1, 0, 0, 0], "{found}");
        assert_eq!((&found["run_time"]["median_secs"], &found["run_time"]["p95_secs"]), (&json!(60.0), &json!(100.0)));
        assert_eq!(found["run_time"]["buckets"][0], json!({"le_secs": 0.1, "count": 1}));
        assert_eq!(found["run_time"]["buckets"][7], json!({"le_secs": null, "count": 0}));
        let text = db.cli().run(&["status", "--class", "mail"]).ok();
        let shown = text.split_once("The newest 3 runs of mail that ended\n").unwrap_or_else(|| panic!("{text}")).1;
        assert!(shown.contains("\nup to 1m      0                                1     ####"), "{text}");
        assert!(shown.contains("\nmedian        3.000s                           1m00s\n"), "{text}");
        assert!(shown.is_ascii() && shown.lines().all(|line| line.len() <= 80), "{text}");
        // Only for a class as a whole.
        for args in [&[][..], &["--class", "mail", "--status", "success"], &["class=mail"]] {
            assert_eq!(times(db, args), Value::Null, "{args:?}");
        }
        assert!(!db.cli().run(&["status", "--class", "mail", "--output", "csv"]).ok().contains("newest"));
    }
    fn the_runs_of_the_newest_tasks_count_if_tasks_have_several(db) {
        db.configure(&shell_class(db, "mail", "true"));
        let (mut tasks, mut runs) = (Vec::new(), Vec::new());
        for id in 1..=200 {
            let minute = format!("2026-01-01 {:02}:{:02}", id / 60, id % 60);
            tasks.push(format!("({id}, 'mail', 'success', '{minute}:00.000000', 6)"));
            // Those of the oldest tasks took longer.
            let end = if id <= 34 { "30" } else { "01" };
            for attempt in 1..=6 {
                runs.push(format!("({id}, 'mail', {attempt}, 'success', '{minute}:01.000000', '{minute}:{end}.000000', 'x')"));
            }
        }
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"Attempts\") VALUES {}",
            tasks.join(", ")
        ));
        db.execute(&format!(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Attempt\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\")
             VALUES {}",
            runs.join(", ")
        ));
        // The first 1000 runs end within a task, which is left out.
        let found = times(db, &["--class", "mail"]);
        assert_eq!((&found["runs"], counts(&found["run_time"])), (&json!(996), vec![996, 0, 0, 0, 0, 0, 0, 0]), "{found}");
    }
}
