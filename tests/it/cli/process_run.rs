//! `taskqueue process-run`

use std::path::Path;

use rustix::process::Signal;

use super::{ECHO, detail, error_and_hint, shell_class, signal, task, wait_for_file, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// Queues tasks of the class `echo` and creates their runs.
fn waiting_runs(db: &TestDb, count: usize) {
    db.cli().stdin("{\"class\":\"echo\"}\n".repeat(count)).run(&["queue", "--batch", "-"]).ok();
    db.cli().run(&["create-runs"]).ok();
}

fn count_successes(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'")
}

each_engine! {
    fn process_run_is_quiet_and_0_when_nothing_is_there(db) {
        let ended = db.cli().run(&["process-run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        let ended = db.cli().run(&["process-run", "-v"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", "no run is waiting\n"));
    }

    fn process_run_and_tick_leave_no_row_behind_where_nothing_can_be_done(db) {
        db.configure(ECHO);
        let runners = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\"";
        db.cli().run(&["process-run"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "elsewhere", "--any-class"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["pause", "--class", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.cli().run(&["process-run", "--drain", "-v"]).stderr, "no run is waiting\n");
        assert_eq!(db.number(runners), 0);
        db.cli().run(&["resume", "--class", "echo"]).ok();
        db.cli().run(&["process-run"]).ok();
        assert_eq!((db.number(runners), count_successes(db)), (1, 1));
    }

    fn process_run_at_the_limit_is_silent_unless_a_run_was_named(db) {
        let block = shell_class(db, "block", &format!("cd {}; echo on > started; until test -e go; do sleep 0.02; done", db.home().display()));
        db.configure(&format!("{ECHO}{block}"));
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        db.cli().run(&["queue", "block"]).ok();
        let first = db.cli().spawn(&["tick"]);
        wait_for_file(db, "started");
        waiting_runs(db, 1);
        let ended = db.cli().run(&["process-run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        let ended = db.cli().run(&["process-run", "-v"]);
        assert_eq!(ended.stderr, "runner limit reached (1 of 1 slots in use); nothing processed\n");
        assert_eq!(db.cli().run(&["process-run", "--json"]).json()["limit_reached"], serde_json::json!([1, 1]));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\""), 1);
        assert_eq!(task(db, "2")["status"], "scheduled");
        let (error, hint) = error_and_hint(&db.cli().run(&["process-run", "2"]).fails(75));
        assert_eq!(error, "error: run 2 is not processed: 1 runner slot is in use, the limit is 1");
        assert!(hint.contains("`taskqueue runner`"), "{hint}");
        let error: serde_json::Value =
            serde_json::from_str(&db.cli().run(&["process-run", "2", "--json"]).fails(75)).unwrap();
        assert_eq!(error["error"]["code"], "runner_limit_reached");
        write(db, "go", "");
        finish(first).ok();
    }

    fn one_process_run_processes_the_first_run_and_drain_all_the_others(db) {
        db.configure(ECHO);
        waiting_runs(db, 5);
        let ended = db.cli().run(&["process-run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert_eq!((count_successes(db), &task(db, "1")["status"]), (1, &"success".into()));
        db.cli().run(&["process-run", "--max-runs", "2"]).ok();
        assert_eq!(count_successes(db), 3);
        let ended = db.cli().run(&["process-run", "--drain", "-v"]);
        assert!(ended.stderr.contains("run 4 (task 4, class echo, attempt 1) started\nrun 4 ended: success"), "{ended:?}");
        assert!(ended.stderr.ends_with("2 runs processed: 2 succeeded\n"), "{ended:?}");
        assert_eq!(count_successes(db), 5);
    }

    fn with_a_run_id_that_run_alone_is_processed(db) {
        db.configure(ECHO);
        waiting_runs(db, 3);
        db.cli().run(&["process-run", "2"]).ok();
        assert_eq!((count_successes(db), &task(db, "2")["status"]), (1, &"success".into()));
        let (error, _) = error_and_hint(&db.cli().run(&["process-run", "2"]).fails(1));
        assert_eq!(error, "error: run 2 cannot be processed: its status is success");
        let (error, _) = error_and_hint(&db.cli().run(&["process-run", "99"]).fails(3));
        assert_eq!(error, "error: there is no run 99");
        assert_eq!(count_successes(db), 1);
    }

    fn after_max_time_no_run_is_started(db) {
        db.configure(&shell_class(db, "echo", "sleep 2.1"));
        waiting_runs(db, 3);
        db.cli().run(&["process-run", "--max-time", "2s"]).ok();
        assert_eq!(count_successes(db), 1);
        db.cli().run(&["process-run", "--drain", "--max-time", "0s"]).ok();
        assert_eq!(count_successes(db), 1);
    }

    fn a_failing_handler_is_no_failure_of_process_run(db) {
        db.configure(&shell_class(db, "echo", "echo no luck >&2; exit 1"));
        waiting_runs(db, 2);
        let ended = db.cli().run(&["process-run", "--drain", "--json"]);
        assert_eq!(ended.stderr, "");
        let report = ended.json();
        assert_eq!((&report["processed"], &report["failed"], &report["last_exit_code"]), (&2.into(), &2.into(), &1.into()));
        let run = &detail(db, "1")["runs"][0];
        assert_eq!((&run["error_code"], &run["error_message"]), (&"exit:1".into(), &"no luck".into()));
        assert_eq!(run["decision"], "exit 1: retry (default rule)");
    }

    fn under_nohup_the_end_of_the_terminal_changes_nothing(db) {
        let script = format!("cd {}; echo on > started; until test -e go; do sleep 0.02; done", db.home().display());
        db.configure(&shell_class(db, "echo", &script));
        waiting_runs(db, 1);
        let cli = db.cli().program(Path::new("/usr/bin/env"));
        let runner = cli.spawn(&["--ignore-signal=HUP", PROGRAM, "process-run"]);
        wait_for_file(db, "started");
        signal(&runner, Signal::HUP);
        write(db, "go", "");
        finish(runner).ok();
        assert_eq!(task(db, "1")["status"], "success");
    }

    fn an_unconfigured_class_does_not_stand_in_the_way(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "elsewhere", "--any-class", "--priority", "100"]).ok();
        waiting_runs(db, 1);
        db.cli().run(&["process-run"]).ok();
        assert_eq!(task(db, "2")["status"], "success");
        let (error, _) = error_and_hint(&db.cli().run(&["process-run", "1"]).fails(1));
        assert!(error.contains("\"elsewhere\" has no handler here"), "{error}");
        assert_eq!(task(db, "1")["status"], "scheduled");
    }
}

#[test]
fn a_run_id_and_repetition_exclude_each_other() {
    let home = tempfile::tempdir().unwrap();
    let cli = crate::support::Cli::new(home.path());
    for args in [
        &["process-run", "1", "--drain"][..],
        &["process-run", "1", "--max-runs", "2"],
        &["process-run", "--max-runs", "0"],
    ] {
        let _ = cli.run(args).fails(2);
    }
    assert!(cli.run(&["process-run", "--max-time", "5"]).fails(2).contains("error: --max-time: "));
}
