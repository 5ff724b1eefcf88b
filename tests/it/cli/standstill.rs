//! Due tasks that nothing processes: what `tick`, `status`, `doctor` and `check` print about them, and about a locked store.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use taskqueue_host::files::lock::FileLock;

use super::{ECHO, shell_class, task, wait_for_file, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb};

fn standstills(db: &TestDb) -> Vec<Value> {
    db.cli().run(&["status", "--json"]).json()["standstills"].as_array().unwrap().clone()
}

/// Checks that every verb for operators reports this cause and this remedy.
#[track_caller]
fn expect(db: &TestDb, what: &str, words: &str, remedy: &str) {
    let found = standstills(db);
    assert_eq!((found.len(), &found[0]["cause"]["what"]), (1, &json!(what)), "{found:?}");
    let text = db.cli().run(&["status"]).ok();
    assert!(text.contains(words) && text.contains(remedy), "{words}: {text}");
    let doctor = db.cli().run(&["doctor"]).stdout;
    assert!(doctor.contains(words) && doctor.contains(remedy), "{words}: {doctor}");
    let check = db.cli().run(&["check"]);
    assert!(check.stdout.contains("stalled 1") && check.code != Some(0), "{check:?}");
}

each_engine! {
    fn a_pause_of_everything_with_due_tasks_is_named_until_it_is_over(db) {
        db.configure(ECHO);
        db.cli().run(&["pause", "--all"]).ok();
        assert_eq!(standstills(db), Vec::<Value>::new());
        assert_eq!(db.cli().run(&["tick"]).stderr, "");
        db.cli().run(&["queue", "echo"]).ok();
        let tick = db.cli().run(&["tick"]);
        assert!(tick.stderr.starts_with("warning: 1 waiting run is not processed: everything paused "), "{tick:?}");
        assert!(tick.code == Some(0) && tick.stderr.ends_with("; try taskqueue resume --all\n"), "{tick:?}");
        expect(db, "paused", "1 waiting run is not processed: everything paused ", "taskqueue resume --all");
        let check = db.cli().run(&["check"]);
        assert!(check.code == Some(1) && check.stdout.starts_with("TASKQUEUE WARNING - stalled 1 | "), "{check:?}");
        assert_eq!(db.cli().run(&["check", "--stalled", "0"]).code, Some(2));
        db.cli().run(&["resume", "--all"]).ok();
        assert_eq!(db.cli().run(&["tick"]).stderr, "");
        assert_eq!((standstills(db), &task(db, "1")["status"]), (Vec::new(), &json!("success")));
    }

    fn a_pause_of_a_class_is_named_where_tasks_of_it_are_due(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "other", "true")));
        db.cli().run(&["drain", "--class", "ech*"]).ok();
        db.cli().run(&["queue", "other", "--in", "1h"]).ok();
        assert_eq!(standstills(db), Vec::<Value>::new());
        db.cli().run(&["queue", "echo"]).ok();
        expect(db, "paused", "1 due task is not processed: class ech* drained ", "taskqueue resume --class");
    }

    fn a_stopped_name_of_a_runner_is_named_by_the_runner_and_the_others(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick", "--name", "w1"]).ok();
        db.cli().run(&["stop", "--runner", "w1"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        let tick = db.cli().run(&["tick", "--name", "w1"]);
        assert!(tick.stderr.contains("1 waiting run is not processed: runner w1 stopped "), "{tick:?}");
        expect(db, "paused", "1 waiting run is not processed: runner w1 stopped ", "taskqueue resume --runner w1");
        assert_eq!(db.cli().run(&["tick"]).stderr, "");
        assert_eq!((standstills(db), &task(db, "2")["status"]), (Vec::new(), &json!("success")));
    }

    fn a_runner_that_has_not_come_for_longer_than_usual_is_missed(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(standstills(db), Vec::<Value>::new());
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
        let found = standstills(db);
        assert_eq!((&found[0]["cause"]["what"], &found[0]["cause"]["usual_secs"]), (&json!("no_runner"), &Value::Null));
        let text = db.cli().run(&["status"]).ok();
        assert!(text.contains("1 due task is not processed: no runner has run for "), "{text}");
        db.cli().run(&["tick"]).ok();
        assert_eq!(standstills(db), Vec::<Value>::new());
    }

    fn slots_that_have_had_the_same_runs_for_long_are_named(db) {
        let slow = format!("cd {}; echo on > began; until test -e go; do sleep 0.02; done", db.home().display());
        db.configure(&format!("{ECHO}{}", shell_class(db, "slow", &slow)));
        db.cli().run(&["queue", "slow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(standstills(db), Vec::<Value>::new());
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 2");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"StartedOn\" = '2020-01-01 00:00:00'");
        expect(db, "slots_taken", "1 due task is not processed: 1 runner slot ", "taskqueue runner");
        write(db, "go", "");
        finish(runner).ok();
    }
}

#[test]
fn a_locked_store_is_named_with_the_process_that_holds_it() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let mut raw = db.raw();
        raw.execute("BEGIN IMMEDIATE");
        let mut child = db.cli().spawn(&["queue", "echo"]);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let (path, pid) = (db.url().path().unwrap(), std::process::id());
        let expected = format!("warning: waiting for the store {}: process {pid} (", path.display());
        assert!(line.starts_with(&expected) && line.ends_with(") has locked it\n"), "{line}");
        raw.execute("COMMIT");
        assert_eq!(finish(child).ok(), "2");
    });
}

// They wait for a minute, as long as the store waits for a lock.
#[test]
fn a_store_that_stays_locked_ends_verbs_with_75_and_names_its_holder() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let mut raw = db.raw();
        raw.execute("BEGIN IMMEDIATE");
        let verbs = [&["queue", "echo"][..], &["cancel", "1"], &["create-runs"], &["tick"]];
        let waiting = verbs.map(|verb| db.cli().spawn(verb));
        for (child, verb) in waiting.into_iter().zip(verbs) {
            let ended = finish(child);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""), "{verb:?}: {ended:?}");
            let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
            assert!(error.contains(&format!("process {} (", std::process::id())), "{verb:?}: {error}");
        }
        raw.execute("COMMIT");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'scheduled'"), 1);
        assert_eq!(finish(db.cli().spawn(&["queue", "echo"])).ok(), "2");
    });
}

/// Starts the command, and returns it with the first line of its standard error.
fn first_words(db: &TestDb, args: &[&str]) -> (Child, String) {
    let mut child = db.cli().spawn(args);
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim_end().to_owned())
}

#[test]
fn a_wait_for_the_lock_file_of_a_new_store_names_its_holder() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let path = db.home().join("new.db");
        let (address, file) = (format!("sqlite://{}", path.display()), format!("{}.lock", path.display()));
        let lock = FileLock::acquire(file.as_ref(), Duration::ZERO).unwrap();
        let program = std::fs::read_to_string("/proc/self/comm").unwrap();
        let holder = format!("process {} ({})", std::process::id(), program.trim_end());
        let expected = format!("waiting for the store {}: {holder} has locked {file}", path.display());
        let (queue, line) = first_words(db, &["--database", &address, "queue", "echo"]);
        assert_eq!(line, format!("warning: {expected}"));
        let (tick, line) = first_words(db, &["--database", &address, "tick", "--log-format", "json"]);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&json!("warning"), &json!(expected)));
        drop(lock);
        assert_eq!(finish(queue).ok(), "1");
        let _ = finish(tick).ok();
    });
}

#[test]
fn the_log_as_json_has_the_wait_for_a_locked_store() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let mut raw = db.raw();
        raw.execute("BEGIN IMMEDIATE");
        let (tick, line) = first_words(db, &["tick", "--log-format", "json"]);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!(line["message"].as_str().unwrap().ends_with(" has locked it"), "{line}");
        raw.execute("COMMIT");
        let _ = finish(tick).ok();
    });
}
