//! `taskqueue limit`, and their effect on claims.

use serde_json::json;

use super::{ECHO, detail, error_and_hint, shell_class, task, wait_for_file, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

/// Two classes; the handler of `slow` writes its PID and waits for the file `go`.
fn configure(db: &TestDb) {
    let script = format!("cd {}; echo $$ > pid; until test -e go; do sleep 0.02; done", db.home().display());
    let class = shell_class(db, "slow", &script);
    db.configure(&format!("{class}{ECHO}"));
}

each_engine! {
    fn limits_are_set_listed_and_removed_and_each_change_is_kept(db) {
        db.configure(ECHO);
        assert_eq!(db.cli().run(&["limit"]).ok(), "No limits are set for classes or keys.");
        let ended = db.cli().run(&["limit", "set", "echo", "--running", "2", "--rate", "100/1m"]);
        assert_eq!(ended.stderr, "class echo: at most 2 at once, at most 100 starts in 60 seconds\n");
        db.cli().run(&["limit", "set", "mail", "--rate", "5/s"]).ok();
        let text = db.cli().run(&["limit", "list"]).ok();
        assert!(text.contains("echo") && text.contains("100/60s") && text.contains("5/1s"), "{text}");
        let lines = db.cli().run(&["limit", "--json"]).ok();
        let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(first, json!({ "class": "echo", "max_running": 2, "rate": { "count": 100, "secs": 60 }, "running": 0 }));
        // A limit that is not given is removed.
        db.cli().run(&["limit", "set", "class=echo", "3"]).ok();
        let lines = db.cli().run(&["limit", "--json"]).ok();
        assert!(lines.lines().next().unwrap().contains("\"max_running\":3,\"rate\":null"), "{lines}");
        db.cli().run(&["limit", "remove", "echo"]).ok();
        assert!(db.cli().run(&["limit", "remove", "echo"]).fails(3).contains("had no limits"));
        let kinds = db.raw().texts("SELECT \"Kind\" AS value FROM \"TaskQueueEvents\" ORDER BY \"Id\"");
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        assert_eq!(kinds, ["limit-set", "limit-set", "limit-set", "limit-removed"]);
    }

    fn what_a_limit_can_be_is_named_where_none_is_given(db) {
        let refused = |args: &[&str]| error_and_hint(&db.cli().run(args).fails(2)).0;
        assert_eq!(refused(&["limit", "set", "import"]), "error: no limit given: pass --running N, --rate N/TIME or both");
        assert_eq!(refused(&["limit", "set", "--key", "k"]), "error: no limit given: pass --running N");
        db.cli().run(&["limit", "set", "import", "--rate", "1/1m"]).ok();
    }

    fn a_limit_that_makes_no_sense_is_refused_and_nothing_changes(db) {
        for args in [
            &["echo"][..],
            &["echo", "--running", "0"],
            &["echo", "--running", "many"],
            &["echo", "--rate", "5"],
            &["echo", "--rate", "0/1m"],
            &["echo", "--rate", "10001/1m"],
            &["echo", "--rate", "5/2d"],
            &["a b", "--running", "1"],
            &["--running", "1"],
            &["--key", "k"],
            &["--key", "k", "--running", "0"],
            &["--key", "k", "--rate", "1/1m"],
            &["--key", " k", "--running", "1"],
            &["echo", "--key", "k", "--running", "1"],
        ] {
            let stderr = db.cli().run(&[&["limit", "set"], args].concat()).fails(2);
            assert!(stderr.contains("error: "), "{args:?}: {stderr}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueClassLimits\""), 0);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueKeyLimits\""), 0);
        assert!(db.cli().run(&["queue", "--any-class", "echo", "--limit-key", "a\tb"]).fails(2).contains("the limit key has"));
    }

    fn a_full_class_waits_while_others_go_on_and_status_says_so(db) {
        configure(db);
        db.cli().run(&["limit", "set", "slow", "--running", "1"]).ok();
        for class in ["slow", "slow", "echo"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "pid");
        // The second task of `slow` comes before it, and is skipped.
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!((task(db, "2")["status"].clone(), task(db, "3")["status"].clone()), (json!("scheduled"), json!("success")));
        let waiting = detail(db, "2");
        assert_eq!(waiting["why"], json!({ "reason": "class_is_full", "max_running": 1 }));
        assert!(db.cli().run(&["status", "2"]).ok().contains("its class has reached its limit of 1 running"));
        let run_id = waiting["runs"][0]["id"].to_string();
        let (error, hint) = error_and_hint(&db.cli().run(&["process-run", &run_id]).fails(1));
        assert!(error.contains("reached its limit of 1 running"), "{error}");
        assert!(hint.contains("`taskqueue limit`"), "{hint}");
        assert!(db.cli().run(&["limit"]).ok().contains("slow"));
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(task(db, "2")["status"], "success");
    }

    fn a_rate_lets_so_many_start_and_status_says_when_the_next_may(db) {
        db.configure(ECHO);
        db.cli().run(&["limit", "set", "echo", "--rate", "2/1h"]).ok();
        db.cli().stdin("{\"class\":\"echo\"}\n".repeat(3)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'"), 2);
        let why = detail(db, "3")["why"].clone();
        assert_eq!((&why["reason"], &why["rate"]), (&json!("rate_reached"), &json!({ "count": 2, "secs": 3600 })));
        let next: chrono::DateTime<chrono::Utc> = why["next_on"].as_str().unwrap().parse().unwrap();
        let first: chrono::DateTime<chrono::Utc> =
            detail(db, "1")["runs"][0]["started_on"].as_str().unwrap().parse().unwrap();
        assert_eq!(next - first, chrono::TimeDelta::hours(1));
        assert!(db.cli().run(&["status", "3"]).ok().contains("its rate of 2/3600s, next start in 59m"));
        db.cli().run(&["limit", "remove", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, "3")["status"], "success");
    }

    fn limits_of_keys_are_set_listed_and_removed_and_each_change_is_kept(db) {
        db.configure(ECHO);
        let ended = db.cli().run(&["limit", "set", "--key", "server-7", "--running", "2"]);
        assert_eq!(ended.stderr, "key server-7: at most 2 at once\n");
        db.cli().run(&["limit", "set", "echo", "--running", "5"]).ok();
        let text = db.cli().run(&["limit"]).ok();
        assert!(text.contains("CLASS") && text.contains("KEY") && text.contains("server-7"), "{text}");
        let lines = db.cli().run(&["limit", "--json"]).ok();
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last, json!({ "key": "server-7", "max_running": 2, "running": 0 }));
        db.cli().run(&["limit", "remove", "--key", "server-7"]).ok();
        assert!(db.cli().run(&["limit", "remove", "--key", "server-7"]).fails(3).contains("had no limit"));
        let kinds = db.raw().texts("SELECT \"Kind\" AS value FROM \"TaskQueueEvents\" ORDER BY \"Id\"");
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        assert_eq!(kinds, ["limit-set", "limit-set", "limit-removed"]);
    }

    fn tasks_of_any_class_with_one_key_wait_for_each_other_as_status_shows(db) {
        configure(db);
        let batch = ["slow", "echo"].map(|class| format!("{{\"class\":\"{class}\",\"limit_key\":\"disk\"}}\n")).concat();
        db.cli().stdin(batch).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "pid");
        // Tasks without a key are not affected.
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!((task(db, "2")["status"].clone(), task(db, "3")["status"].clone()), (json!("scheduled"), json!("success")));
        let waiting = detail(db, "2");
        assert_eq!(waiting["why"], json!({ "reason": "key_is_full", "key": "disk", "max_running": 1, "running": 1, "holders": [1] }));
        assert_eq!(waiting["task"]["limit_key"], "disk");
        let run_id = waiting["runs"][0]["id"].to_string();
        let (error, hint) = error_and_hint(&db.cli().run(&["process-run", &run_id]).fails(1));
        assert!(error.contains("its limit key \"disk\""), "{error}");
        assert_eq!(hint, "hint: `taskqueue status 1` shows the task that has the slot");
        let holder = db.cli().run(&["status", "1"]).ok();
        assert!(holder.contains("limit key    disk") && holder.contains("processing"), "{holder}");
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        // The end of a run passes the slot on, without create-runs.
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(task(db, "2")["status"], "success");
    }

    fn process_run_of_a_full_key_names_the_tasks_that_have_its_slots(db) {
        db.configure(ECHO);
        db.cli().run(&["limit", "set", "--key", "disk", "--running", "2"]).ok();
        db.cli().stdin("{\"class\":\"echo\",\"limit_key\":\"disk\"}\n".repeat(3)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["create-runs"]).ok();
        // Waiting runs with a slot keep it, even if another run is named.
        let run_id = detail(db, "3")["runs"][0]["id"].to_string();
        let (_, hint) = error_and_hint(&db.cli().run(&["process-run", &run_id]).fails(1));
        assert_eq!(hint, "hint: `taskqueue status 1 2` shows tasks that have a slot");
        assert_eq!(db.cli().run(&["status", "1", "2"]).ok().matches("limit key    disk").count(), 2);
        db.cli().run(&["pause", "--class", "echo"]).ok();
        let (_, hint) = error_and_hint(&db.cli().run(&["process-run", &run_id]).fails(1));
        assert!(hint.contains("`taskqueue pause`"), "{hint}");
        assert!(db.cli().run(&["pause"]).ok().contains("echo"));
    }
}
