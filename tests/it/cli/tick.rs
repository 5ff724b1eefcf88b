//! `taskqueue tick`

use super::{ECHO, detail, shell_class, task};
use crate::each_engine;

each_engine! {
    fn tick_creates_the_due_runs_and_processes_them_in_silence(db) {
        db.configure(ECHO);
        for priority in ["0", "5", "0"] {
            db.cli().run(&["queue", "echo", "--priority", priority]).ok();
        }
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let ended = db.cli().run(&["tick"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        let order = db.raw().numbers("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueRuns\" ORDER BY \"StartedOn\", \"Id\"");
        assert_eq!(order, [Some(2), Some(1), Some(3)]);
        assert_eq!(task(db, "4")["status"], "scheduled");
        let ended = db.cli().run(&["tick"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    }

    fn tick_says_with_v_or_as_json_what_it_did(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let ended = db.cli().run(&["tick", "-v"]);
        assert!(ended.stderr.contains("\n1 run created\n") && ended.stderr.ends_with("1 run processed: 1 succeeded\n"), "{ended:?}");
        let report = db.cli().run(&["tick", "--json"]).json();
        assert_eq!((&report["created"]["created"], &report["processed"]["processed"]), (&0.into(), &0.into()));
    }

    fn tick_warns_of_a_schedule_that_cannot_go_on_however_little_it_says(db) {
        db.configure(ECHO);
        let warning = "warning: 1 schedule cannot be read; `taskqueue schedule list` shows the problem\n";
        for options in [&["tick"][..], &["tick", "--json"]] {
            db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('echo', 'every day')");
            let ended = db.cli().run(options);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), warning));
            // Only once.
            assert_eq!(db.cli().run(options).stderr, "");
        }
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('echo', 'every day')");
        let told = db.cli().run(&["tick", "-v"]).stderr;
        assert_eq!(told.matches(warning).count(), 1, "{told}");
    }

    fn tick_stops_after_max_runs(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\"}\n".repeat(3)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick", "--max-runs", "2"]).ok();
        assert_eq!((&task(db, "2")["status"], &task(db, "3")["status"]), (&"success".into(), &"scheduled".into()));
    }

    fn a_failed_task_is_tried_again_by_later_ticks_until_no_retry_is_left(db) {
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "work", "exit 1")));
        let id = db.cli().run(&["queue", "work", "--max-retries", "2"]).ok();
        for (failed, is_exhausted) in [(1, false), (2, true), (2, true)] {
            db.cli().run(&["tick"]).ok();
            let after = task(db, &id);
            assert_eq!((&after["failed_retries"], &after["is_exhausted"]), (&failed.into(), &is_exhausted.into()));
        }
        assert_eq!(detail(db, &id)["runs"].as_array().unwrap().len(), 2);
    }

    fn a_failed_task_waits_for_its_backoff(db) {
        db.configure(&format!("{}backoff = \"fixed:1000s\"\n", shell_class(db, "work", "exit 1")));
        let id = db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["tick"]).ok();
        let after = detail(db, &id);
        assert_eq!((&after["task"]["failed_retries"], &after["why"]["reason"]), (&1.into(), &"not_yet".into()));
    }
}
