//! `taskqueue class`

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::{ECHO, detail, process, write};
use crate::each_engine;
use crate::support::Cli;

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

each_engine! {
    fn every_class_is_listed_that_is_configured_or_has_tasks(db) {
        db.configure(&format!("{ECHO}[class.\"App\\\\Tasks\\\\*\"]\nargv = [\"/bin/cat\", \"{{class}}\"]\ntimeout_secs = 60\n[exec]\nenabled = true\n"));
        db.cli().run(&["queue", "elsewhere", "--any-class"]).ok();
        db.cli().run(&["queue", "App\\Tasks\\Import"]).ok();
        let text = db.cli().run(&["class"]).ok();
        assert_eq!(text, db.cli().run(&["class", "list"]).ok());
        for words in ["echo", "App\\Tasks\\*", "60s", "/bin/cat {class}", "exec", "built-in", "it has tasks, but no handler is configured on this host"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let rows = rows(&db.cli().run(&["class", "--json"]).ok());
        let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["App\\Tasks\\*", "echo", "exec", "elsewhere"]);
    }

    fn somebody_without_a_configuration_is_told_which_file_to_write(db) {
        let error = db.cli().run(&["queue", "mail.send"]).fails(2);
        assert!(error.contains("`taskqueue class add mail.send -- PROGRAM` adds it; `taskqueue class` lists all classes and the file"), "{error}");
        let ended = db.cli().run(&["class"]);
        let path = db.home().join(".config/taskqueue/config.toml");
        let expected = format!("no class is configured; `taskqueue class add CLASS -- PROGRAM` writes {}\n", path.display());
        assert_eq!(ended.stderr, expected);
        db.configure(ECHO);
        assert_eq!(db.cli().run(&["class"]).stderr, "");
    }

    fn check_is_0_when_every_program_is_fit(db) {
        db.configure(ECHO);
        assert!(db.cli().run(&["class", "check"]).ok().contains("ok"));
    }

    fn a_held_class_is_released_on_demand(db) {
        db.configure("[class.work]\nargv = [\"/no/such/program\"]\n");
        let after = process(db, "work", "{}");
        assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&"scheduled".into(), &0.into()));
        assert_eq!((&after["task"]["attempts"], &after["runs"][0]["status"]), (&0.into(), &"released".into()));
        db.cli().run(&["tick"]).ok();
        let held = detail(db, "1");
        assert_eq!((held["runs"].as_array().unwrap().len(), &held["why"]["reason"]), (2, &"class_held".into()));
        db.configure("[class.work]\nargv = [\"/bin/cat\"]\n");
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "1")["task"]["status"], "scheduled", "the class is not held");
        assert!(db.cli().run(&["class"]).ok().contains("held on "));
        let ended = db.cli().run(&["class", "release", "work"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "class \"work\" is released\n"));
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "1")["task"]["status"], "success");
        let again = db.cli().run(&["class", "release", "work"]).fails(3);
        assert_eq!(again, "class \"work\" was not held\n");
    }

    fn a_task_of_a_held_class_that_is_to_run_here_stays_queued_and_says_so(db) {
        db.configure("[class.work]\nargv = [\"/no/such/program\"]\n");
        process(db, "work", "{}");
        let said = db.cli().run(&["queue", "work", "--run"]).fails(1);
        assert!(said.starts_with("task 2 stays queued\n") && said.contains("cannot be processed: its class \"work\""), "{said}");
        assert_eq!(detail(db, "2")["task"]["status"], "scheduled");
    }

    fn a_held_class_keeps_its_place_and_stops_no_other_class(db) {
        db.configure(&format!("{ECHO}[class.work]\nargv = [\"/no/such/program\"]\n"));
        for _ in 0..3 {
            db.cli().run(&["queue", "work", "--priority", "1000"]).ok();
        }
        db.cli().run(&["queue", "echo", "--priority", "-1000"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "4")["task"]["status"], "success", "not processed by the tick that began the hold");
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "5")["task"]["status"], "success");
        let released = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'released'";
        assert_eq!(db.number(released), 1, "one run is enough to detect a broken program");
        db.configure(&format!("{ECHO}[class.work]\nargv = [\"/bin/cat\"]\n"));
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["class", "release", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        let order = db.raw().texts("SELECT \"TaskClass\" AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success' ORDER BY \"FinishedOn\", \"Id\"");
        assert_eq!(order.into_iter().flatten().collect::<Vec<_>>(), ["echo", "echo", "work", "work", "work", "echo"]);
    }

    fn a_hold_ends_by_itself(db) {
        db.configure("[class.work]\nargv = [\"/no/such/program\"]\n");
        process(db, "work", "{}");
        db.configure("[class.work]\nargv = [\"/bin/cat\"]\n");
        db.execute("UPDATE \"TaskQueueClassHolds\" SET \"HeldUntil\" = '2020-01-01 00:00:00'");
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, "1")["task"]["status"], "success");
    }

    fn check_names_what_is_wrong_with_each_program_and_ends_with_78(db) {
        let mode = |name: &str, mode: u32| {
            let path = write(db, name, "#!/bin/sh\n");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (plain, open) = (mode("plain", 0o644), mode("open", 0o757));
        for (program, problem) in [("/no/such/program", "exist"), (plain.as_str(), "execut"), (open.as_str(), "written by everybody")] {
            db.configure(&format!("{ECHO}[class.work]\nargv = [\"{program}\"]\n"));
            let ended = db.cli().run(&["class", "check"]);
            assert_eq!(ended.code, Some(78), "{ended:?}");
            let line = ended.stdout.lines().find(|line| line.trim_start().starts_with("work")).unwrap();
            assert!(line.contains(problem) && line.contains(program), "{line}");
            let ended = db.cli().run(&["class", "check", "--json"]);
            let problems: Vec<bool> = rows(&ended.stdout).iter().map(|row| row["problem"].is_string()).collect();
            assert_eq!((ended.code, problems.iter().filter(|is| **is).count()), (Some(78), 1));
            db.cli().run(&["class", "list"]).ok();
        }
    }
}

/// Writes a configuration and returns its path.
fn config(cli: &Cli, home: &std::path::Path, text: &str) -> std::path::PathBuf {
    let path = home.join("config.toml");
    std::fs::write(&path, text).unwrap();
    assert_eq!(cli.run(&["class", "--config", "config.toml"]).code, Some(0));
    path
}

#[test]
fn a_class_is_added_tested_and_removed_and_the_rest_of_the_file_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    let text = "# Mine.\nwork_slots = 2 # two\n\n[class.bad]\nargv = [\"/bin/sh\", \"-c\", \"echo no >&2; exit 65\"]\n";
    let path = config(&cli, home.path(), text);
    let run = |args: &[&str]| cli.run(&[&["class"], args, &["--config", "config.toml"]].concat());
    let add = |args: &[&str]| cli.run(&[&["class", "add", "--config", "config.toml", "echo"], args].concat());
    let lines = "[class.echo]\nargv = [\"/bin/cat\", \"-u\"]\ntimeout_secs = 90";
    let added = add(&["--timeout", "90s", "--", "/bin/cat", "-u"]);
    assert_eq!(added.ok(), lines);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{text}\n{lines}\n"));
    let refused = add(&["--", "/bin/true"]).fails(1);
    assert!(refused.contains("exists already, in ") && refused.contains("--force"), "{refused}");
    assert!(add(&["--force", "--", "/no/such/program"]).fails(78).contains("nothing was written"));
    assert!(add(&["--force", "--", "no-such-program"]).fails(2).contains("not in PATH"));
    assert!(add(&["--force", "--timeout", "90", "--", "/bin/cat"]).fails(2).contains("has no unit; write 90s"));
    let named = |name: &str| cli.run(&["class", "add", "--config", "config.toml", name, "--", "/bin/cat"]);
    let before = std::fs::read_to_string(&path).unwrap();
    for bad in ["b c", "b..c", &"b".repeat(191), &"*".repeat(191)] {
        assert!(named(bad).fails(2).contains(&format!("\"{bad}\" cannot be the name of a class: ")));
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let pattern = named("mail.*").stderr;
    assert!(pattern.contains("hint: `taskqueue class test NAME`, with a class that matches"), "{pattern}");
    run(&["remove", "mail.*"]).ok();
    // A test needs no store and creates none.
    let tested = run(&["test", "echo", "{\"to\":\"ann\"}"]);
    assert_eq!((tested.code, tested.stdout.as_str()), (Some(0), "{\"to\":\"ann\"}"), "{tested:?}");
    assert!(tested.stderr.contains("class echo: success (exit 0: success"), "{tested:?}");
    let failed = run(&["test", "bad"]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.starts_with("no\n") && failed.stderr.contains("the task would not be retried"), "{failed:?}");
    assert!(run(&["test", "ecko"]).fails(2).contains("did you mean \"echo\"?"));
    let unknown = run(&["test", "quite-another"]).fails(2);
    assert!(unknown.contains("taskqueue class    # lists all") && !unknown.contains("--any-class"), "{unknown}");
    assert!(run(&["test", "exec"]).stderr.contains("hint: taskqueue exec --run PROGRAM"));
    assert!(!home.path().join(".local/state/taskqueue/taskqueue.db").exists());
    assert_eq!(run(&["remove", "echo"]).ok(), lines);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(run(&["remove", "echo"]).code, Some(3));
}
