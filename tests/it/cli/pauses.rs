//! `pause`, `drain`, `stop` and `resume`: which claims they prevent, which runners exit, and what is shown.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{ECHO, detail, error_and_hint, is_alive, shell_class, task, wait_for_file, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

/// Classes `echo`, and `work` whose handler writes its PID and works until the file `go` exists; TERM ends it.
fn configure(db: &TestDb, stop_wait_secs: i64) {
    let script = format!(
        "cd {}; trap 'echo term > got; exit 1' TERM; echo $$ > pid.new; mv pid.new pid; until test -e go; do sleep 0.02; done",
        db.home().display()
    );
    let class = shell_class(db, "work", &script);
    db.configure(&format!("stop_wait_secs = {stop_wait_secs}\n{class}{ECHO}"));
}

fn queue(db: &TestDb, classes: &[&str]) {
    for class in classes {
        db.cli().run(&["queue", class]).ok();
    }
    db.cli().run(&["create-runs"]).ok();
}

fn statuses(db: &TestDb, ids: &[&str]) -> Vec<Value> {
    ids.iter().map(|id| task(db, id)["status"].clone()).collect()
}

fn kinds(db: &TestDb) -> Vec<String> {
    db.raw().texts("SELECT \"Kind\" AS value FROM \"TaskQueueEvents\" ORDER BY \"Id\"").into_iter().flatten().collect()
}

each_engine! {
    fn a_paused_class_waits_others_go_on_and_status_shows_who_and_why(db) {
        configure(db, 0);
        queue(db, &["echo", "work", "echo"]);
        write(db, "go", "");
        let said = db.cli().run(&["pause", "--class", "ec*", "--reason", "the disk is full"]);
        assert_eq!(said.stderr, "class ec* is paused until `taskqueue resume --class 'ec*'`; runs in progress continue\n");
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(statuses(db, &["1", "2", "3"]), ["scheduled", "success", "scheduled"]);
        let why = detail(db, "1")["why"].clone();
        assert_eq!(why["reason"], "paused");
        assert_eq!((&why["pause"]["scope"], &why["pause"]["name"], &why["pause"]["mode"]), (&json!("class"), &json!("ec*"), &json!("pause")));
        assert_eq!((&why["pause"]["reason"], &why["pause"]["until"]), (&json!("the disk is full"), &Value::Null));
        let author = why["pause"]["author"].as_str().unwrap();
        let text = db.cli().run(&["status", "1"]).ok();
        assert!(text.contains("class ec* paused") && text.contains(&format!("by {author} on ")) && text.contains(": the disk is full"), "{text}");
        assert!(db.cli().run(&["status"]).ok().contains("class ec* paused"));
        assert_eq!(db.cli().run(&["status", "--json"]).json()["pauses"][0]["name"], "ec*");
        db.cli().run(&["resume", "--class", "ec*"]).ok();
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(statuses(db, &["1", "3"]), ["success", "success"]);
        assert_eq!(kinds(db), ["paused", "resumed"]);
    }

    fn a_pause_of_everything_stops_claims_and_not_the_creation_of_runs(db) {
        configure(db, 0);
        db.cli().run(&["pause", "--all"]).ok();
        queue(db, &["echo"]);
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        assert_eq!(statuses(db, &["1"]), ["scheduled"]);
        assert_eq!(detail(db, "1")["runs"][0]["status"], "scheduled");
        let (error, _) = error_and_hint(&db.cli().run(&["process-run", "1"]).fails(1));
        assert!(error.contains("everything is paused by "), "{error}");
        db.cli().run(&["resume", "--all"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(statuses(db, &["1"]), ["success"]);
    }

    fn an_order_says_what_ends_it_and_warns_of_a_class_that_nobody_knows(db) {
        configure(db, 0);
        let said = |args: &[&str]| db.cli().run(args).stderr;
        assert_eq!(said(&["pause", "--all"]), "everything is paused until `taskqueue resume --all`; runs in progress continue\n");
        assert_eq!(said(&["pause", "--class", "echo"]), "class echo is paused until `taskqueue resume --class echo`; runs in progress continue\n");
        assert!(said(&["drain", "--runner", "r 1"]).contains("until `taskqueue resume --runner 'r 1'`"));
        let typo = db.cli().run(&["pause", "--class", "ecoh"]);
        assert!(typo.stderr.contains("warning: no class \"ecoh\" is known here") && typo.stderr.contains("did you mean \"echo\"?"), "{typo:?}");
        assert!(said(&["stop", "--class", "a.b"]).contains("warning: no class \"a.b\" is known here"));
        assert!(said(&["pause", "--class", "ecoh", "--json"]).contains("warning: no class \"ecoh\" is known here"));
        db.cli().run(&["queue", "--any-class", "ecoh"]).ok();
        assert!(!said(&["pause", "--class", "ecoh"]).contains("warning"));
        let typo = db.cli().run(&["limit", "set", "ehco", "--running", "1"]);
        assert!(typo.stderr.contains("warning: no class \"ehco\"") && typo.stderr.contains("\"echo\""), "{typo:?}");
        assert!(!said(&["limit", "set", "zzz", "--running", "1"]).contains("warning"));
    }

    fn a_pause_ends_by_itself_and_create_runs_keeps_the_event(db) {
        configure(db, 0);
        queue(db, &["echo"]);
        db.cli().run(&["pause", "--class", "echo", "--for", "1h"]).ok();
        assert!(detail(db, "1")["why"]["pause"]["until"].is_string());
        assert!(db.cli().run(&["pause"]).ok().contains("in 59m"));
        db.execute("UPDATE \"TaskQueuePauses\" SET \"Until\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(db.cli().run(&["pause"]).ok(), "Nothing is paused. Pause everything: taskqueue pause --all");
        db.cli().run(&["process-run"]).ok();
        assert_eq!(statuses(db, &["1"]), ["success"]);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(kinds(db), ["paused", "pause-over"]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueuePauses\""), 0);
        assert!(db.cli().run(&["resume", "--class", "echo"]).fails(3).contains("was not paused"));
    }

    fn a_later_order_takes_the_place_of_an_earlier_one_for_the_same(db) {
        db.cli().run(&["pause", "--all", "--reason", "one", "--for", "1h"]).ok();
        db.cli().run(&["drain", "--all", "--reason", "two"]).ok();
        let only: Value = db.cli().run(&["pause", "--json"]).json();
        assert_eq!((&only["mode"], &only["reason"], &only["until"]), (&json!("drain"), &json!("two"), &Value::Null));
        db.cli().run(&["pause", "--runner", "a"]).ok();
        let said = db.cli().run(&["resume", "--all"]);
        assert_eq!(said.stderr, "the pause of everything has ended\nstill paused: runner a; `taskqueue resume --runner a` ends it\n");
    }

    fn what_makes_no_sense_is_refused_and_nothing_is_paused(db) {
        for args in [
            &["drain"][..],
            &["stop"],
            &["resume"],
            &["pause", "--reason", "x"],
            &["pause", "--all", "--class", "x"],
            &["pause", "--class", ""],
            &["pause", "--runner", ""],
            &["pause", "--all", "--for", "soon"],
            &["pause", "--all", "--for", "10ms"],
            &["pause", "--all", "--reason", &"x".repeat(1_001)],
        ] {
            assert!(db.cli().run(args).fails(2).contains("error: "), "{args:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueuePauses\""), 0);
    }

    fn a_paused_runner_claims_nothing_and_others_do(db) {
        configure(db, 0);
        queue(db, &["echo"]);
        let said = db.cli().run(&["pause", "--runner", "one"]);
        assert!(said.stderr.contains("no runner with this name is alive"), "{said:?}");
        db.cli().run(&["process-run", "--name", "one"]).ok();
        assert_eq!(statuses(db, &["1"]), ["scheduled"]);
        assert_eq!(detail(db, "1")["why"]["reason"], "waits_for_runner");
        db.cli().run(&["process-run", "--name", "two"]).ok();
        assert_eq!(statuses(db, &["1"]), ["success"]);
    }

    fn an_order_for_runners_that_names_a_claimant_is_warned_of(db) {
        db.cli().run(&["queue", "--any-class", "work"]).ok();
        db.cli().run(&["worker", "claim", "--claimant", "bot"]).ok();
        let said = db.cli().run(&["pause", "--runner", "bot"]);
        assert!(said.stderr.contains("warning: bot is a claimant") && said.stderr.contains("\nhint: `--all` and"), "{said:?}");
        assert_eq!(said.code, Some(0), "the name of a later runner was refused");
        let other = db.cli().run(&["stop", "--runner", "nobody"]);
        assert!(!other.stderr.contains("warning"), "{other:?}");
    }

    fn a_drained_runner_ends_when_its_run_has_ended(db) {
        configure(db, 86_400);
        queue(db, &["work", "echo"]);
        let runner = db.cli().spawn(&["process-run", "--drain", "--name", "one"]);
        wait_for_file(db, "pid");
        let told: Value = db.cli().run(&["drain", "--runner", "one", "--json"]).json();
        assert_eq!(told["runners"], json!(["one"]));
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        assert_eq!(statuses(db, &["1", "2"]), ["success", "scheduled"]);
        assert!(!db.home().join("got").exists(), "the handler was asked to end");
    }

    fn a_stopped_runner_gives_its_run_back_after_its_wait(db) {
        for target in [&["--all"][..], &["--runner", "one"], &["--class", "work"]] {
            configure(db, 0);
            queue(db, &["work", "echo"]);
            let runner = db.cli().spawn(&["process-run", "--drain", "--name", "one"]);
            let handler = wait_for_file(db, "pid");
            db.cli().run(&[&["stop"], target].concat()).ok();
            assert_eq!(finish(runner).code, Some(0));
            assert_eq!(wait_for_file(db, "got"), "term");
            assert!(!is_alive(&handler));
            let id = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'work'").to_string();
            let after = detail(db, &id);
            assert_eq!((&after["task"]["status"], &after["task"]["attempts"]), (&json!("scheduled"), &json!(0)));
            assert_eq!((&after["runs"][0]["status"], &after["runs"][0]["error_code"]), (&json!("released"), &json!("runner-stopped")));
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
            db.cli().run(&[&["resume"], target].concat()).ok();
            write(db, "go", "");
            db.cli().run(&["tick"]).ok();
            assert_eq!(task(db, &id)["status"], "success");
            for file in ["go", "pid", "got"] {
                std::fs::remove_file(db.home().join(file)).unwrap();
            }
        }
    }

    fn a_run_may_finish_within_the_wait_of_a_stop(db) {
        configure(db, 86_400);
        queue(db, &["work", "echo"]);
        let mut runner = db.cli().spawn(&["process-run", "--drain", "--name", "one"]);
        wait_for_file(db, "pid");
        db.cli().run(&["stop", "--all"]).ok();
        // Its message shows that it has read the order.
        let mut said = vec![0; 1_000];
        let count = runner.stderr.as_mut().unwrap().read(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said[..count]).starts_with("stopping: run "));
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        assert_eq!(statuses(db, &["1", "2"]), ["success", "scheduled"]);
        assert!(!db.home().join("got").exists(), "the handler was asked to end");
    }

    fn a_pattern_that_no_class_matches_is_refused_wherever_it_comes_in(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        for (pattern, why) in [("-*", "a class name cannot start with a hyphen"), ("a..*", "a class name cannot contain two dots in a row")] {
            let class = format!("--class={pattern}");
            for verb in [&["pause"][..], &["stop"], &["work"], &["worker", "claim", "--claimant", "bot"]] {
                let said = db.cli().run(&[verb, &[&class]].concat()).fails(2);
                assert!(said.contains(why), "{verb:?} {pattern}: {said}");
            }
            let config = db.home().join("wrong.toml");
            for text in [
                format!("[class.\"{pattern}\"]\nargv = [\"/bin/cat\"]\n"),
                format!("[class.a]\nargv = [\"/bin/cat\"]\nmay_queue = [\"{pattern}\"]\n"),
                format!("[web]\nhide_data = [\"{pattern}\"]\n"),
            ] {
                std::fs::write(&config, &text).unwrap();
                let said = db.cli().run(&["--config", config.to_str().unwrap(), "class"]).fails(78);
                assert!(said.contains(why), "{text}: {said}");
            }
            // It stops nothing if it was written into the table.
            db.execute(&format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\", \"Mode\") VALUES ('class', '{pattern}', 'pause')"));
        }
        db.cli().run(&["tick"]).ok();
        assert_eq!(statuses(db, &["1"]), ["success"]);
        assert_eq!(db.cli().run(&["resume", "--class=a..*"]).code, Some(0));
    }
}
