//! `taskqueue create-runs`

use rustix::process::Signal;

use super::{ECHO, detail, is_alive, shell_class, signal, task, wait_for_file};
use crate::each_engine;
use crate::support::cli::finish;

each_engine! {
    fn create_runs_says_what_it_did_and_nothing_when_there_was_nothing(db) {
        db.configure(ECHO);
        let ended = db.cli().run(&["create-runs"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        db.cli().stdin("{\"class\":\"echo\"}\n{\"class\":\"echo\"}\n").run(&["queue", "--batch", "-"]).ok();
        let ended = db.cli().run(&["create-runs"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", "2 runs created\n"));
        let again = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!((&again["created"], &again["rescued"]), (&0.into(), &serde_json::json!([])));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 2);
    }

    fn v_says_why_a_due_task_got_no_run(db) {
        db.configure(ECHO);
        for (columns, values) in [
            ("\"LastStatus\", \"MaxRetries\", \"FailedRetries\"", "'failed', 5, 5"),
            ("\"WaitingFor\"", "2"),
            ("\"ScheduledOn\"", "'2099-01-01 00:00:00'"),
        ] {
            db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", {columns}) VALUES ('echo', {values})"));
        }
        db.cli().run(&["queue", "echo"]).ok();
        let quiet = db.cli().run(&["create-runs"]).stderr;
        assert_eq!(quiet, "1 run created\n");
        let ended = db.cli().run(&["create-runs", "-v"]);
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{ended:?}");
        for expected in [
            "task 1 (echo) gets no run: no retry is left",
            "task 2 (echo) gets no run: it waits for 2 other tasks",
            "task 4 (echo) gets no run: its run waits for a runner",
        ] {
            assert!(lines.contains(&expected), "{expected}: {lines:?}");
        }
    }

    fn a_killed_runner_is_named_and_its_run_times_out(db) {
        db.configure(&shell_class(db, "work", &format!("echo $$ > {}/pid; exec sleep 100", db.home().display())));
        let id = db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        let handler = wait_for_file(db, "pid");
        signal(&runner, Signal::KILL);
        runner.wait().unwrap();
        let ended = db.cli().run(&["create-runs"]);
        let pid = runner.id();
        assert!(ended.stderr.contains(&format!("run 1 (task 1) timed out: the runner (process {pid} on ")), "{ended:?}");
        assert!(ended.stderr.contains("1 dead runner marked finished\n1 run created\n"), "{ended:?}");
        assert!(!is_alive(&handler));
        let after = detail(db, &id);
        assert_eq!((&after["runs"][1]["status"], &after["runs"][1]["error_code"]), (&"timeout".into(), &"runner-died".into()));
        assert_eq!(after["task"]["failed_retries"], 1);
    }

    fn two_create_runs_at_once_create_one_run_for_each_task(db) {
        db.configure(ECHO);
        let batch = "{\"class\":\"echo\"}\n".repeat(50);
        db.cli().stdin(batch).run(&["queue", "--batch", "-"]).ok();
        let both = [db.cli().spawn(&["create-runs", "--json"]), db.cli().spawn(&["create-runs", "--json"])];
        let created: i64 = both.into_iter().map(|child| finish(child).json()["created"].as_i64().unwrap()).sum();
        assert_eq!(created, 50);
        assert_eq!(db.number("SELECT COUNT(DISTINCT \"TaskQueueId\") AS value FROM \"TaskQueueRuns\""), 50);
        assert_eq!(task(db, "50")["status"], "scheduled");
    }
}
