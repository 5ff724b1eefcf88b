//! `taskqueue create-runs`

use rustix::process::Signal;

use super::{ECHO, detail, is_alive, shell_class, signal, wait_for_file};
use crate::each_engine;
use crate::support::db::on;
use crate::support::{EngineUnderTest, wait_until};

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
}

#[test]
fn commands_that_find_nothing_read_no_table_from_end_to_end() {
    const ROWS: i64 = 20_000;
    on(EngineUnderTest::Postgres, |db| {
        db.configure(ECHO);
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"Attempts\")
             SELECT 'echo', 'success', 1 FROM generate_series(1, {ROWS})"
        ));
        db.execute(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Attempt\", \"Status\", \"StartedOn\", \"FinishedOn\", \"ProcessId\")
             SELECT \"Id\", 'echo', 1, 'success', now(), now(), 1 FROM \"TaskQueue\"",
        );
        // As PostgreSQL sees them while many wait: then it expects to find one soon.
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") SELECT 'echo' FROM generate_series(1, 5000)");
        db.cli().run(&["create-runs"]).ok();
        db.execute("ANALYZE");
        db.execute("DELETE FROM \"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'");
        db.execute("DELETE FROM \"TaskQueue\" WHERE \"LastStatus\" = 'scheduled'");
        // A session reports what it has read when it ends, before it leaves the list of sessions.
        let read = || {
            db.disconnect();
            wait_until("no other session is left", || {
                db.number(
                    "SELECT COUNT(*) AS value FROM pg_stat_activity
                     WHERE datname = current_database() AND backend_type = 'client backend'",
                ) == 1
            });
            db.number(
                "SELECT SUM(seq_tup_read)::bigint AS value FROM pg_stat_user_tables
                 WHERE schemaname = current_schema() AND relname IN ('TaskQueue', 'TaskQueueRuns')",
            )
        };
        let before = read();
        for verb in ["create-runs", "process-run", "tick"] {
            assert_eq!(db.cli().run(&[verb]).ok(), "");
            let after = read();
            assert!(after - before < ROWS / 2, "{verb} read {} rows of whole tables", after - before);
        }
    });
}
