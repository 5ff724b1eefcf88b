//! The commands that `explain`, `status`, `doctor` and `failures` print work when pasted into a shell.

use std::path::Path;

use serde_json::Value;

use super::{ECHO, shell_class};
use crate::each_engine;
use crate::support::{Ended, TestDb};

/// Runs a printed command as a user does, with the program in the search path.
fn paste(db: &TestDb, command: &str) -> Ended {
    let directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display());
    let shell = db.cli().program(Path::new("/bin/sh")).env("PATH", &path).env("EDITOR", "true");
    shell.run(&["-c", command])
}

/// Makes a task of every kind that does not run.
fn make_trouble(db: &TestDb) {
    let (bad, again) = (shell_class(db, "bad", "echo no box >&2; exit 65"), shell_class(db, "again", "exit 75"));
    let crash = format!("{}crash_limit = 1\n", shell_class(db, "crash", "kill -SEGV $$"));
    db.configure(&format!("{ECHO}{bad}{again}{crash}[class.gone]\nargv = [\"/no/such/program\"]\n"));
    let queue = |args: &[&str]| db.cli().run(&[&["queue"], args].concat()).ok();
    for class in ["bad", "again", "crash", "gone", "echo"] {
        queue(&[class]);
    }
    db.cli().run(&["tick"]).ok();
    let later = queue(&["echo", "--in", "1h"]);
    queue(&["echo", "--after", &later]);
    queue(&["echo", "--after", "1"]);
    queue(&["ghost", "--any-class"]);
    let daily = queue(&["echo", "--every", "@daily"]);
    db.cli().run(&["schedule", "pause", &daily]).ok();
    db.execute(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"Recurrence\") VALUES ('echo', '{}', 'nonsense')",
    );
    let cancelled = queue(&["echo", "--in", "1h"]);
    db.cli().run(&["cancel", &cancelled]).ok();
    db.cli().run(&["limit", "set", "again", "--rate", "1/1h"]).ok();
    queue(&["again"]);
    queue(&["echo"]);
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["pause", "--all", "--reason", "a test"]).ok();
}

/// Returns the text between these words and the end of their line.
fn after<'a>(text: &'a str, words: &str) -> &'a str {
    text.lines().find_map(|line| Some(line.split_once(words)?.1)).unwrap_or_else(|| panic!("{words}: {text}"))
}

fn remedies(lines: &str) -> Vec<String> {
    let values = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    values.filter_map(|value| value["remedy"].as_str().map(str::to_owned)).collect()
}

each_engine! {
    fn every_printed_hint_works_when_pasted(db) {
        make_trouble(db);
        let doctor: Value = serde_json::from_str(&db.cli().run(&["doctor", "--json"]).stdout).unwrap();
        let findings = doctor["findings"].as_array().unwrap();
        let place = |trouble: &str| {
            findings.iter().position(|finding| finding["trouble"] == trouble).unwrap_or_else(|| panic!("{trouble}: {doctor}"))
        };
        // What stops all work comes before what stops a class, and this before single tasks.
        let order = ["standstill", "class_problem", "quarantined"].map(place);
        assert!(order.is_sorted(), "{order:?}: {doctor}");
        let mut hints: Vec<String> = findings.iter().map(|finding| finding["remedy"].as_str().unwrap().to_owned()).collect();
        let failures = db.cli().run(&["failures"]).ok();
        hints.push(after(&failures, "Retry a few of the largest group: ").to_owned());
        hints.push(after(&db.cli().run(&["status"]).ok(), "; try ").to_owned());
        let while_paused = remedies(&db.cli().run(&["explain", "--json"]).ok());
        assert_eq!(while_paused, ["taskqueue resume --all"]);
        for command in while_paused {
            paste(db, &command).ok();
        }
        hints.push(after(&db.cli().run(&["status"]).ok(), " Try ").to_owned());
        hints.extend(remedies(&db.cli().run(&["explain", "--json"]).ok()));
        hints.extend(remedies(&db.cli().run(&["explain", "1-100", "-n", "100", "--json"]).ok()));
        hints.sort();
        hints.dedup();
        // Those about the settings of the test servers are for their administrators.
        hints.retain(|hint| !hint.starts_with(['#', 'P', 'V']));
        assert!(hints.len() > 12, "{hints:?}");
        for hint in hints {
            let ended = paste(db, &hint);
            // An earlier hint may have changed the task: then a verb refuses, but it does not complain about its arguments.
            assert!(matches!(ended.code, Some(0 | 1 | 3)), "{hint}: {ended:?}");
            assert!(!ended.stderr.contains("not found"), "{hint}: {ended:?}");
        }
    }
}
