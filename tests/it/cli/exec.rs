//! `taskqueue exec`

use super::{count_tasks, detail, error_and_hint, task};
use crate::each_engine;
use crate::support::EngineUnderTest;

const ON: &str = "[exec]\nenabled = true\n";

each_engine! {
    fn exec_passes_arguments_literally_and_runs_in_the_current_directory(db) {
        db.configure(ON);
        let run = |argv: &[&str]| db.cli().run(&[&["exec", "--run", "--"], argv].concat()).ok();
        assert_eq!(run(&["printf", "%s|", "a b", "$(id)", "{class}", "-x", "--", "*"]), "a b|$(id)|{class}|-x|--|*|");
        assert_eq!(run(&["pwd"]), db.home().canonicalize().unwrap().display().to_string());
        assert_eq!(run(&["cat"]), "");
        let environment = db.cli().env("CANARY", "1").run(&["exec", "--run", "--", "env"]).ok();
        assert!(environment.contains("TASKQUEUE_CLASS=exec") && !environment.contains("CANARY"), "{environment}");
    }

    fn exec_prints_the_id_alone_and_another_process_runs_it(db) {
        db.configure(ON);
        let ended = db.cli().run(&["exec", "--priority", "3", "--max-retries", "1", "--", "true"]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("1\n", ""));
        assert!(task(db, "1")["data"]["argv"][0].as_str().unwrap().ends_with("/true"));
        db.cli().run(&["tick"]).ok();
        let after = task(db, "1");
        assert_eq!((&after["status"], &after["priority"]), (&"success".into(), &3.into()));
    }

    fn exec_needs_no_dashes_and_finds_the_program_by_the_path_of_the_caller(db) {
        use std::os::unix::fs::PermissionsExt as _;
        db.configure(ON);
        let tool = db.home().join("bin/tool");
        std::fs::create_dir(db.home().join("bin")).unwrap();
        std::fs::write(&tool, "#!/bin/sh\necho \"$*\"\n").unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", db.home().join("bin").display());
        let id = db.cli().env("PATH", &path).run(&["exec", "--priority", "2", "tool", "-l", "--run", "--", "x"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "-l --run -- x");
        assert_eq!(db.cli().run(&["exec", "--run", "--shell", "printf 'b\na\n' | sort | tr -d '\n'"]).ok(), "ab");
        for wrong in [&["exec"][..], &["exec", "--rnu", "true"], &["exec", "--shell", "true", "true"]] {
            db.cli().run(wrong).fails(2);
        }
    }

    fn exec_passes_named_variables_and_status_shows_the_command(db) {
        db.configure(ON);
        let exec = |args: &[&str]| db.cli().env("MINE", "a b").run(&[&["exec"], args].concat());
        let script = "printf '%s|' \"$MINE\" \"$MODE\" \"$EMPTY\"";
        let options = ["--env", "MINE", "--env", "MODE=x=1", "--env", "EMPTY="];
        assert_eq!(exec(&[&options[..], &["--run", "--shell", script]].concat()).ok(), "a b|x=1||");
        assert_eq!(task(db, "1")["data"]["env"], serde_json::json!({ "MINE": "a b", "MODE": "x=1", "EMPTY": "" }));
        let shown = db.cli().run(&["status", "1"]).ok();
        let directory = db.home().canonicalize().unwrap();
        assert!(shown.contains("\n  command      /bin/sh -c ") && shown.contains(&format!("\n  directory    {}\n", directory.display())), "{shown}");
        for (option, why) in [
            ("TASKQUEUE_TASK_ID=7", "reserved"), ("LD_PRELOAD=/x.so", "reserved"), ("=1", "has no name"), ("UNSET", "UNSET is not set"),
        ] {
            let (error, hint) = error_and_hint(&exec(&["--env", option, "true"]).fails(2));
            assert!(error.starts_with("error: --env: ") && error.contains(why) && !hint.is_empty(), "{error}");
        }
        let data = "{\"argv\":[\"true\"],\"env\":{\"LD_PRELOAD\":\"/x.so\"}}";
        assert!(db.cli().run(&["queue", "exec", data]).fails(2).contains("env must not set LD_PRELOAD"));
        assert_eq!(count_tasks(db), 1);
    }

    fn exec_ends_as_the_program_did(db) {
        db.configure(ON);
        let code = |argv: &[&str]| db.cli().run(&[&["exec", "--run", "--"], argv].concat()).code;
        assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
        assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(137));
        assert_eq!(code(&["true"]), Some(0));
    }

    fn a_program_that_does_not_exist_fails_its_task_for_good_with_127(db) {
        db.configure(ON);
        let stderr = db.cli().run(&["exec", "--run", "--", "no-such-program"]).fails(127);
        let warning = "warning: no program \"no-such-program\" is in your PATH; the task fails unless its runner finds one\n";
        assert!(stderr.starts_with(warning) && !stderr.contains("held"), "{stderr}");
        let after = task(db, "1");
        assert_eq!((&after["status"], &after["is_exhausted"], &after["attempts"]), (&"failed".into(), &true.into(), &1.into()));
        let queued = db.cli().run(&["exec", "--", "/no/such/program"]);
        assert_eq!(queued.stderr, "");
        let id = queued.ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, &id)["runs"][0]["decision"], "could not start: no_retry (rule of exec)");
    }

    fn what_is_wrong_with_the_program_of_one_task_never_holds_up_the_others(db) {
        db.configure(ON);
        for program in [&["no-such-program"][..], &["/usr"], &["sh", "-c", "exit 78"], &["sh", "-c", "exit 126"], &["sh", "-c", "exit 127"]] {
            db.cli().run(&[&["exec", "--priority", "1000", "--"], program].concat()).ok();
        }
        db.cli().run(&["exec", "--", "true"]).ok();
        let printed = db.cli().run(&["tick"]).stderr;
        assert!(printed.lines().count() == 4 && !printed.contains("held"), "{printed}");
        let is_exhausted = |id: &str| task(db, id)["is_exhausted"].as_bool().unwrap();
        assert_eq!(["1", "2", "3", "4", "5"].map(is_exhausted), [true, true, false, true, true]);
        assert_eq!((&task(db, "3")["status"], &task(db, "6")["status"]), (&"failed".into(), &"success".into()));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueClassHolds\""), 0);
    }

    fn exec_is_on_for_a_file_of_ones_own_and_off_for_a_server_by_default(db) {
        let ended = db.cli().run(&["exec", "--", "true"]);
        if db.engine == EngineUnderTest::Sqlite {
            assert_eq!(ended.ok(), "1");
            db.configure("[exec]\nenabled = false\n");
        } else {
            let (error, hint) = error_and_hint(&ended.fails(2));
            assert!(error.contains("\"exec\" is off") && hint.contains("enabled = true"), "{error} {hint}");
            assert_eq!(count_tasks(db), 0);
        }
        // A row that was inserted by SQL is not executed either.
        let id = db.cli().run(&["queue", "exec", "{\"argv\":[\"true\"]}", "--any-class"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, &id)["status"], "scheduled");
    }

    fn data_without_a_program_is_refused_when_queued_not_retried_if_inserted(db) {
        db.configure(ON);
        let stderr = db.cli().run(&["queue", "exec", "{\"argv\":[]}"]).fails(2);
        assert!(stderr.contains("argv names no program"), "{stderr}");
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"ScheduledOn\") VALUES ('exec', '[1]', '2020-01-01 00:00:00')");
        db.cli().run(&["tick"]).ok();
        let after = task(db, "1");
        assert_eq!((&after["status"], &after["is_exhausted"]), (&"failed".into(), &true.into()));
    }
}

#[test]
fn exec_without_a_program_is_a_usage_error() {
    let home = tempfile::tempdir().unwrap();
    let cli = crate::support::Cli::new(home.path());
    for args in [&["exec"][..], &["exec", "--"]] {
        assert!(cli.run(args).fails(2).contains("PROGRAM"), "{args:?}");
    }
}
