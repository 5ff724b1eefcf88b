//! Output that cannot be printed: standard output is closed, full, or has no reader.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{count_tasks, error_and_hint, shell_class};
use crate::each_engine;
use crate::support::cli::Cli;
use crate::support::{Ended, TestDb};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// Runs a command with this redirection in a shell.
pub(super) fn redirected(cli: &Cli, to: &str, args: &[&str]) -> Ended {
    let script = format!("exec \"$0\" \"$@\" {to}");
    cli.clone().program(Path::new("/bin/sh")).run(&[&["-c", &script, PROGRAM][..], args].concat())
}

fn class(db: &TestDb) {
    db.configure(&shell_class(db, "work", "echo done"));
}

each_engine! {
    fn what_has_something_to_print_fails_where_standard_output_is_closed(db) {
        class(db);
        let (error, hint) = error_and_hint(&redirected(&db.cli(), ">&-", &["queue", "work"]).fails(1));
        assert_eq!(error, "error: task 1 is queued, but its id cannot be printed: standard output is closed");
        assert!(hint.contains(">/dev/null"), "{hint}");
        for args in [&["export"][..], &["status"], &["--json", "setting"], &["class"]] {
            let ended = redirected(&db.cli(), ">&-", args);
            assert!(ended.code == Some(1) && ended.stderr.contains("standard output is closed"), "{args:?}: {ended:?}");
            assert!(ended.stderr.contains(">/dev/null") && !ended.stderr.contains("exported"), "{args:?}: {ended:?}");
        }
        assert_eq!(redirected(&db.cli(), ">&-", &["tick"]).fails(0), "", "it prints nothing there");
        assert_eq!(redirected(&db.cli(), ">/dev/null", &["export"]).fails(0), "exported 1 task\n");
        assert_eq!(count_tasks(db), 1);
    }

    fn what_a_handler_writes_and_nobody_can_have_is_told_of(db) {
        class(db);
        for (to, why) in [(">&-", "standard output is closed"), (">/dev/full", "cannot write to standard output: ")] {
            let ended = redirected(&db.cli(), to, &["queue", "work", "--run"]);
            assert!(ended.code == Some(1) && ended.stderr.contains(why), "{to}: {ended:?}");
            assert!(ended.stderr.contains("what the handler wrote there is lost"), "{to}: {ended:?}");
        }
    }
}

each_engine! {
    fn verbs_that_change_orders_limits_or_settings_report_it_with_json(db) {
        class(db);
        db.cli().run(&["pause", "--class", "work"]).ok();
        for (args, code, expected) in [
            (&["setting", "set", "TaskQueueRunnerLimit", "4"][..], 0, json!({ "name": "TaskQueueRunnerLimit" })),
            (&["limit", "set", "work", "--running", "2"], 0, json!({ "class": "work", "max_running": 2 })),
            (&["limit", "remove", "work"], 0, json!({ "class": "work", "removed": true })),
            (&["limit", "remove", "work"], 3, json!({ "class": "work", "removed": false })),
            (&["resume", "--class", "work"], 0, json!({ "scope": "class", "name": "work", "resumed": true })),
            (&["class", "release", "work"], 3, json!({ "class": "work", "released": false })),
        ] {
            let ended = db.cli().run(&[&["--json"][..], args].concat());
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{args:?}: {ended:?}");
            let said: Value = serde_json::from_str(&ended.stdout).unwrap();
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&said[name], value, "{args:?}: {said}");
            }
        }
    }
}

#[test]
fn a_verb_that_is_misspelt_has_its_hint_in_json_too() {
    let home = tempfile::tempdir().unwrap();
    let ended = Cli::new(home.path()).run(&["--json", "quue"]).fails(2);
    let error: Value = serde_json::from_str(&ended).unwrap();
    assert!(error["error"]["hint"].as_str().is_some_and(|hint| hint.contains("queue")), "{error}");
}

#[test]
fn a_foreign_verb_leads_to_ours_and_an_unknown_page_to_the_nearest() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    let said = cli.run(&["add", "mail"]).fails(2);
    assert!(said.contains("tip: type 'taskqueue queue'\n"), "{said}");
    let error: Value = serde_json::from_str(&cli.run(&["--json", "add", "mail"]).fails(2)).unwrap();
    assert_eq!(error["error"]["hint"], "type 'taskqueue queue'");
    for args in [["help", "selction"], ["man", "selction"]] {
        let (error, _) = error_and_hint(&cli.run(&args).fails(2));
        let expected = "error: there is no command or topic \"selction\"; did you mean \"selections\"";
        assert!(error.starts_with(expected), "{error}");
    }
    let (error, _) = error_and_hint(&cli.run(&["help", "scheduel"]).fails(2));
    assert!(error.ends_with("did you mean \"schedule\" or \"schedules\"?"), "{error}");
}

#[test]
fn help_that_cannot_be_printed_fails_and_a_reader_that_stops_is_no_error() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    for option in ["--help", "--version"] {
        for to in [">/dev/full", ">&-"] {
            let (error, _) = error_and_hint(&redirected(&cli, to, &[option]).fails(1));
            assert!(error.starts_with("error: cannot write to standard output: "), "{option} {to}: {error}");
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let read_no_more = Command::new(PROGRAM).arg(option).stdout(writer).output().unwrap();
        assert_eq!((read_no_more.status.code(), read_no_more.stderr.as_slice()), (Some(0), &b""[..]), "{option}");
    }
}
