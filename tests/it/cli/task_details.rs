//! The details of tasks that `status` shows: their time line, and all details of a selection.

use serde_json::{Value, json};

use super::{ECHO, detail, error_and_hint, shell_class};
use crate::each_engine;

each_engine! {
    fn the_time_line_of_a_task_has_each_attempt_and_what_lay_between(db) {
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "work", "sleep 0.1; test $TASKQUEUE_ATTEMPT = 2")));
        let id = db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["tick"]).ok();
        let shown = detail(db, &id);
        let line: Vec<Value> = shown["time_line"].as_array().unwrap().clone();
        let attempts: Vec<&Value> = line.iter().filter(|segment| segment["what"] == "attempt").collect();
        assert_eq!(attempts.iter().map(|segment| &segment["attempt"]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((&attempts[0]["from"], &attempts[0]["to"]), (&shown["runs"][1]["started_on"], &shown["runs"][1]["finished_on"]));
        // Without a gap, from the beginning.
        assert_eq!(line[0]["from"], shown["task"]["queued_on"]);
        assert!(line.windows(2).all(|pair| pair[0]["to"] == pair[1]["from"]), "{line:?}");
        let text = db.cli().run(&["status", &id]).ok();
        let (_, drawing) = text.split_once("time line\n").unwrap();
        assert!(drawing.contains("#") && drawing.contains("attempt 1: error, exit:1") && drawing.contains("attempt 2: success"), "{text}");
        assert!(text.starts_with("task 1   work   success") && text.contains("run 2   attempt 2   success"), "{text}");
    }

    fn the_time_line_of_a_task_that_waits_reaches_to_its_time(db) {
        db.configure(ECHO);
        let id = db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let shown = detail(db, &id);
        let line = shown["time_line"].as_array().unwrap();
        assert_eq!(line.len(), 1, "{line:?}");
        assert_eq!((&line[0]["what"], &line[0]["to"]), (&json!("without_run"), &shown["task"]["scheduled_on"]));
        assert!(db.cli().run(&["status", "last"]).ok().ends_with("not due yet"));
    }

    fn status_full_shows_all_details_of_the_newest_selected_tasks(db) {
        db.configure(ECHO);
        for _ in 0..3 {
            db.cli().run(&["queue", "echo"]).ok();
        }
        let ended = db.cli().run(&["status", "--full", "class=echo", "-n", "2"]);
        assert_eq!(ended.stderr, "1 task before these not shown; -n N shows more\n");
        let text = ended.ok();
        assert!(!text.contains("task 1   echo") && text.contains("task 2   echo") && text.contains("task 3   echo"), "{text}");
        assert_eq!(db.cli().run(&["status", "--full", "1-3", "--json"]).ok().lines().count(), 3);
        assert_eq!(db.cli().run(&["status", "--full", "class=nope"]).code, Some(3));
        assert!(error_and_hint(&db.cli().run(&["status", "9"]).fails(3)).0.contains("task 9"));
    }
}
