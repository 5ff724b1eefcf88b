//! `taskqueue class`

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::{ECHO, detail, process, write};
use crate::each_engine;

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
        assert!(error.contains("`taskqueue class` lists all and shows the file"), "{error}");
        let ended = db.cli().run(&["class"]);
        let path = db.home().join(".config/taskqueue/config.toml");
        let expected = format!("no class is configured; `taskqueue init CLASS -- PROGRAM` writes {}\n", path.display());
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
