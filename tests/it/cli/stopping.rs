//! A runner that is asked to stop: it drains, ends handlers early, releases runs, and returns an exit status.

use std::io::Read as _;
use std::path::Path;

use rustix::process::Signal;

use super::{ECHO, detail, is_alive, shell_class, signal, task, wait_for_file, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// A class whose handler writes its PID and works until the file `go` exists; `on_term` runs on TERM.
fn configure(db: &TestDb, stop_wait_secs: i64, on_term: &str) {
    let script = format!(
        "cd {}; trap '{on_term}' TERM; echo $$ > pid.new; mv pid.new pid; until test -e go; do sleep 0.02; done; echo done",
        db.home().display()
    );
    let class = shell_class(db, "work", &script);
    db.configure(&format!("stop_wait_secs = {stop_wait_secs}\n{class}kill_grace_secs = 60\n"));
}

fn queue_two_and_create(db: &TestDb) {
    db.cli().stdin("{\"class\":\"work\"}\n".repeat(2)).run(&["queue", "--batch", "-"]).ok();
    db.cli().run(&["create-runs"]).ok();
}

/// Checks that the run was released: the task is unchanged, no attempt is counted, and no runner is registered.
#[track_caller]
fn was_given_back(db: &TestDb) {
    let after = detail(db, "1");
    assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&"scheduled".into(), &0.into()));
    assert_eq!((&after["task"]["attempts"], &after["task"]["crashes"]), (&0.into(), &0.into()));
    assert_eq!(after["runs"][0]["status"], "released");
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
}

each_engine! {
    fn the_first_signal_lets_the_run_end_and_claims_no_other(db) {
        configure(db, 60, "echo term > got; exit 1");
        queue_two_and_create(db);
        for (number, id) in [(Signal::TERM, "1"), (Signal::INT, "2")] {
            let cli = db.cli().program(Path::new("/usr/bin/env"));
            let mut runner = cli.spawn(&["--default-signal", PROGRAM, "process-run", "--drain"]);
            wait_for_file(db, "pid");
            signal(&runner, number);
            // The message comes before the handler may end.
            let mut said = vec![0; 1_000];
            let count = runner.stderr.as_mut().unwrap().read(&mut said).unwrap();
            let said = String::from_utf8_lossy(&said[..count]).into_owned();
            assert!(said.starts_with("stopping: run ") && said.contains("60 seconds"), "{said}");
            write(db, "go", "");
            assert_eq!(finish(runner).code, Some(130));
            assert_eq!(task(db, id)["status"], "success");
            assert!(!db.home().join("got").exists(), "the handler was asked to end");
            for file in ["go", "pid"] {
                std::fs::remove_file(db.home().join(file)).unwrap();
            }
            let left = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'");
            assert_eq!(left, if id == "1" { 1 } else { 0 });
        }
    }

    fn after_its_limit_a_drain_ends_the_handler_and_gives_the_run_back(db) {
        configure(db, 1, "echo term > got; exit 1");
        queue_two_and_create(db);
        let runner = db.cli().spawn(&["process-run", "--drain"]);
        let handler = wait_for_file(db, "pid");
        signal(&runner, Signal::TERM);
        assert_eq!(finish(runner).code, Some(130));
        assert_eq!(wait_for_file(db, "got"), "term");
        assert!(!is_alive(&handler));
        was_given_back(db);
        // At once, not after a backoff, and as the same attempt.
        write(db, "go", "");
        db.cli().run(&["tick"]).ok();
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["runs"][0]["attempt"]), (&"success".into(), &1.into()));
    }

    fn the_second_signal_ends_the_handler_at_once_even_one_that_ignores_term(db) {
        configure(db, 86_400, "echo term > got");
        queue_two_and_create(db);
        let runner = db.cli().spawn(&["process-run", "--drain"]);
        let handler = wait_for_file(db, "pid");
        signal(&runner, Signal::INT);
        signal(&runner, Signal::TERM);
        assert_eq!(finish(runner).code, Some(130));
        assert_eq!(wait_for_file(db, "got"), "term");
        assert!(!is_alive(&handler), "the runner waited for the grace of 60 seconds");
        was_given_back(db);
    }

    fn without_a_wait_the_first_signal_ends_the_handler(db) {
        configure(db, 0, "exit 1");
        db.cli().run(&["queue", "work"]).ok();
        for number in [Signal::HUP, Signal::TERM] {
            let cli = db.cli().program(Path::new("/usr/bin/env"));
            let runner = cli.spawn(&["--default-signal", PROGRAM, "tick"]);
            let handler = wait_for_file(db, "pid");
            signal(&runner, number);
            assert_eq!(finish(runner).fails(130), "");
            assert!(!is_alive(&handler));
            was_given_back(db);
            std::fs::remove_file(db.home().join("pid")).unwrap();
        }
    }

    fn quit_does_not_wait(db) {
        configure(db, 86_400, "exit 1");
        queue_two_and_create(db);
        let cli = db.cli().program(Path::new("/usr/bin/env"));
        let runner = cli.spawn(&["--default-signal", PROGRAM, "tick"]);
        wait_for_file(db, "pid");
        signal(&runner, Signal::QUIT);
        assert_eq!(finish(runner).fails(130), "");
        was_given_back(db);
    }

    fn what_a_person_runs_here_ends_with_the_first_signal(db) {
        configure(db, 86_400, "exit 1");
        let runner = db.cli().spawn(&["queue", "work", "--run"]);
        wait_for_file(db, "pid");
        signal(&runner, Signal::INT);
        let ended = finish(runner);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(ended.stderr.starts_with("stopping: run 1 was asked to end; the next signal kills it within 2 seconds\n"), "{ended:?}");
        was_given_back(db);
    }

    fn an_idle_runner_is_not_kept_by_a_signal(db) {
        db.configure(ECHO);
        let mut runner = db.cli().spawn(&["queue", "echo", "--wait"]);
        let mut said = vec![0; 1_000];
        let count = runner.stderr.as_mut().unwrap().read(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said[..count]).starts_with("no runner is alive"));
        signal(&runner, Signal::TERM);
        assert_eq!(finish(runner).code, Some(130));
        assert_eq!(task(db, "1")["status"], "scheduled");
    }
}
