//! The example programs: the whole command line with Rust classes, and a program that queues with the library and waits.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::cli::signal;
use crate::each_engine;
use crate::support::cli::configure;
use crate::support::{Cli, TestDb, wait_until};

/// Returns an example, which `cargo test` builds beside the program.
fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_taskqueue")).with_file_name("examples").join(name);
    assert!(path.exists(), "{} is not built; run: cargo build --example {name}", path.display());
    path
}

fn example() -> PathBuf {
    built("own_classes")
}

fn cli(db: &TestDb) -> Cli {
    db.cli().program(&example())
}

each_engine! {
    fn a_class_of_ones_own_reports_progress_and_results(db) {
        let id = cli(db).run(&["queue", "text.count", r#"{"text":"one two\nthree"}"#]).ok();
        assert_eq!(cli(db).run(&["tick"]).ok(), "");
        let status = cli(db).run(&["status", "--json", &id]).json();
        assert_eq!(status["task"]["status"], "success");
        assert_eq!(status["runs"][0]["percents_completed"], 100);
        assert_eq!(status["runs"][0]["results"], serde_json::json!({"lines": 2, "words": 3}));
    }

    fn an_error_of_ones_own_has_its_code_and_its_delay(db) {
        let id = cli(db).run(&["queue", "web.check", r#"{"answer":503,"retry_after":7200}"#]).ok();
        let wrong = cli(db).run(&["queue", "web.check", r#"{"answer":404}"#]).ok();
        let malformed = cli(db).run(&["queue", "web.check", "[]"]).ok();
        assert_eq!(cli(db).run(&["tick"]).ok(), "");

        let later = cli(db).run(&["status", "--json", &id]).json();
        assert_eq!((&later["task"]["status"], &later["task"]["failed_retries"]), (&"failed".into(), &1.into()));
        assert_eq!(later["runs"][0]["error_code"], "http:503");
        let seconds = |value: &serde_json::Value| {
            chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap().timestamp()
        };
        let wait = seconds(&later["task"]["next_attempt_on"]) - seconds(&later["runs"][0]["finished_on"]);
        assert!((7199..=7201).contains(&wait), "{wait}");

        for (id, code) in [(wrong, "http:404"), (malformed, "invalid-data")] {
            let status = cli(db).run(&["status", "--json", &id]).json();
            assert_eq!(status["task"]["is_exhausted"], true, "{status}");
            assert_eq!(status["runs"][0]["error_code"], code);
        }
    }
}

each_engine! {
    fn a_class_of_ones_own_that_hangs_is_given_back_when_its_runner_stops(db) {
        let file = db.home().join("awaited");
        db.configure("stop_wait_secs = 0\n");
        cli(db).run(&["queue", "file.await", &format!("{:?}", file.display().to_string())]).ok();
        let mut runner = cli(db).spawn(&["tick"]);
        wait_until("the handler runs", || db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'") == 1);
        signal(&runner, Signal::TERM);
        // It is left behind, and ends with the process.
        assert_eq!(runner.wait().unwrap().code(), Some(130));
        assert_eq!(db.text("SELECT \"Status\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some("released"));
        cli(db).run(&["create-runs"]).ok();
        let after = cli(db).run(&["status", "--json", "1"]).json();
        assert_eq!((&after["task"]["attempts"], &after["task"]["crashes"]), (&0.into(), &0.into()));
        assert_eq!((&after["runs"][1]["status"], &after["runs"][0]["status"]), (&"released".into(), &"scheduled".into()));
        std::fs::write(&file, "").unwrap();
        cli(db).run(&["tick"]).ok();
        assert_eq!(cli(db).run(&["status", "--json", "1"]).json()["task"]["status"], "success");
    }
}

each_engine! {
    fn a_program_works_on_its_own_queue_and_ends_in_good_order(db) {
        let mut program = std::process::Command::new(built("worker_in_program"));
        let ended = program.arg(db.url_text()).env("XDG_STATE_HOME", db.home()).output().unwrap();
        let words = String::from_utf8_lossy(&ended.stdout);
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(lines.len(), 4, "{words} {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(lines[..2], ["task 1: 4299 cents", "task 2 ended as failed"]);
        assert!(lines[2].starts_with("task 2: invalid-data invalid type: string \"no invoice\""), "{words}");
        assert_eq!(lines[3], "1 of 2 runs succeeded");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
    }
}

#[test]
fn the_example_knows_its_classes_and_no_others() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path()).program(&example());
    let listed = cli.run(&["class"]).ok();
    assert!(listed.contains("text.count") && listed.contains("web.check"), "{listed}");
    let error = cli.run(&["queue", "text.cuont"]).fails(2);
    assert!(error.contains("did you mean \"text.count\"?"), "{error}");
    assert!(cli.run(&["--help"]).ok().contains("Usage: own_classes"));
}

#[test]
fn the_example_that_waits_hears_the_answer_of_another_process() {
    let home = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", home.path().join("shop.db").display());
    let cli = Cli::new(home.path()).env("TASKQUEUE_DATABASE_URL", &store);
    configure(
        home.path(),
        "[class.\"order.confirm\"]\nargv = [\"/bin/sh\", \"-c\", \"cat >/dev/null; echo '{\\\"result\\\":{\\\"number\\\":7}}' >&3\"]\n",
    );
    cli.run(&["db", "migrate"]).ok();
    let waiting = std::process::Command::new(built("queue_and_wait"))
        .arg(&store)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it has queued", || cli.run(&["status", "1"]).code == Some(0));
    cli.run(&["tick"]).ok();
    let output = waiting.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert_eq!(words, "task 1 and 3 reminders are queued\nconfirmed: Some(7)\n");
}
