//! What a handler may rely on: its input, its environment, its events, and the meaning of its end.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta};
use serde_json::{Value, json};

use super::{ECHO, detail, due_from, error_and_hint, is_alive, printed, process, shell_class, wait_for_file, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

fn instant(value: &Value) -> DateTime<chrono::FixedOffset> {
    DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap()
}

/// Returns the effect of an exit code: status of the run, status of the task, whether it is exhausted, whether its class is
/// held.
fn outcome(detail: &Value) -> (&str, &str, bool, bool) {
    let text = |value: &'_ Value| -> &'static str {
        match value.as_str().unwrap() {
            "success" => "success",
            "error" => "error",
            "released" => "released",
            "failed" => "failed",
            "scheduled" => "scheduled",
            other => panic!("{other}"),
        }
    };
    let is_held = detail["runs"][0]["decision"].as_str().unwrap().contains("hold");
    (
        text(&detail["runs"][0]["status"]),
        text(&detail["task"]["status"]),
        detail["task"]["is_exhausted"].as_bool().unwrap(),
        is_held,
    )
}

fn expected(code: u8) -> (&'static str, &'static str, bool, bool) {
    match code {
        0 => ("success", "success", false, false),
        64 | 65 | 66 | 77 | 100 => ("error", "failed", true, false),
        78 | 126 | 127 => ("released", "scheduled", false, true),
        99 => ("released", "scheduled", false, false),
        _ => ("error", "failed", false, false),
    }
}

/// Uses one class for each code, because some codes hold their class.
fn check_exit_codes(db: &TestDb, codes: &[u8]) {
    db.configure("[class.\"code.*\"]\nargv = [\"/bin/sh\", \"-c\", \"exit ${1#code.}\", \"sh\", \"{class}\"]\n");
    let batch: String = codes.iter().map(|code| format!("{{\"class\":\"code.{code}\"}}\n")).collect();
    let ids = db.cli().stdin(batch).run(&["queue", "--batch", "-"]).ok();
    // Not a tick, which would create the next run of a released task.
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["process-run", "--drain"]).ok();
    let ids: Vec<&str> = ids.lines().collect();
    let details = db.cli().run(&[&["status", "--json"], ids.as_slice()].concat()).ok();
    assert_eq!(details.lines().count(), codes.len());
    for (code, line) in codes.iter().zip(details.lines()) {
        let detail: Value = serde_json::from_str(line).unwrap();
        assert_eq!(outcome(&detail), expected(*code), "exit {code}");
        let error_code = if *code == 0 { String::new() } else { format!("exit:{code}") };
        assert_eq!(detail["runs"][0]["error_code"], error_code);
        assert!(detail["runs"][0]["decision"].as_str().unwrap().starts_with(&format!("exit {code}: ")));
        let is_counted = !matches!(code, 0 | 78 | 99 | 126 | 127);
        let failed = detail["task"]["failed_retries"].as_i64().unwrap();
        assert_eq!(failed > 0, is_counted, "exit {code}");
    }
}

#[test]
fn every_exit_code_from_0_to_255_does_what_the_rules_say() {
    on(EngineUnderTest::Sqlite, |db| check_exit_codes(db, &(0..=255).collect::<Vec<u8>>()));
}

each_engine! {
    fn the_special_exit_codes_do_what_the_rules_say(db) {
        check_exit_codes(db, &[0, 1, 64, 65, 66, 69, 75, 77, 78, 99, 100, 111, 126, 127, 255]);
    }

    fn a_class_may_have_rules_of_its_own(db) {
        let rules = "exit = { success = [3], retry = [\"64-66\"], no_retry = [1], hold = [9], release = [8] }";
        db.configure(&format!("{}{rules}\n", shell_class(db, "work", "exit $(cat)")));
        for (code, wanted) in [
            ("3", ("success", "success", false, false)),
            ("65", ("error", "failed", false, false)),
            ("1", ("error", "failed", true, false)),
            ("8", ("released", "scheduled", false, false)),
            ("9", ("released", "scheduled", false, true)),
        ] {
            let after = process(db, "work", code);
            assert_eq!(outcome(&after), wanted, "{code}");
            assert!(after["runs"][0]["decision"].as_str().unwrap().ends_with("(rule of the class)"));
        }
    }

    fn the_data_is_on_standard_input_to_the_byte_and_nothing_else(db) {
        db.configure(ECHO);
        for data in [" {\"b\":1.0,  \"ü\":\"漢\\n😀\" ,\r\n\"a\":12345678901234567890 }\n", "\"x\"", "0", "{}"] {
            let after = process(db, "echo", data);
            assert_eq!(printed(&after, "stdout"), data);
            assert_eq!(after["runs"][0]["outputs"][0]["total_bytes"], data.len());
        }
        db.configure(&shell_class(db, "echo", "wc -c"));
        let id = db.cli().stdin(format!("\"{}\"", "x".repeat((1 << 20) - 2))).run(&["queue", "echo", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(printed(&detail(db, &id), "stdout"), "1048576\n");
    }

    fn the_environment_is_clean_and_says_everything_about_the_run(db) {
        db.configure("[class.\"show.env\"]\nargv = [\"/usr/bin/env\"]\npass_env = [\"PASSED\", \"ABSENT\"]\ntimeout_secs = 100\n\
                      env = { OWN = \"a b\", LANG = \"de_DE\" }\n");
        let id = db.cli().run(&["queue", "show.env", "--max-retries", "3", "--at", "2020-01-02T03:04:05Z"]).ok();
        db.cli().env("CANARY", "seen").env("PASSED", "yes").env("LD_PRELOAD", "").run(&["tick"]).ok();
        let after = detail(db, &id);
        let lines = printed(&after, "stdout").to_owned();
        let mut env: BTreeMap<&str, &str> = lines.lines().map(|line| line.split_once('=').unwrap()).collect();
        let run = &after["runs"][0];
        assert_eq!(instant(&json!(env.remove("TASKQUEUE_DEADLINE").unwrap())), instant(&run["started_on"]) + TimeDelta::seconds(100));
        assert_eq!(instant(&json!(env.remove("TASKQUEUE_PLANNED_ON").unwrap())), instant(&json!("2020-01-02T03:04:05Z")));
        let token = env.remove("TASKQUEUE_RUN_TOKEN").unwrap();
        assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
        assert!(env.remove("TASKQUEUE_EVENTS_SOCKET").unwrap().starts_with("taskqueue-"));
        for name in ["HOME", "USER", "LOGNAME"] {
            assert_ne!(env.remove(name), Some(""), "{name}");
        }
        let expected = [
            ("LANG", "de_DE"), ("OWN", "a b"), ("PASSED", "yes"), ("SHELL", "/bin/sh"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("TASKQUEUE_ATTEMPT", "1"), ("TASKQUEUE_CLASS", "show.env"), ("TASKQUEUE_EVENTS_FD", "3"),
            ("TASKQUEUE_STOP_REASON_FD", "4"),
            ("TASKQUEUE_MAX_RETRIES", "3"), ("TASKQUEUE_RUN_ID", "1"), ("TASKQUEUE_TASK_ID", "1"), ("TZ", "UTC"),
        ];
        assert_eq!(env, BTreeMap::from(expected));
    }

    fn a_handler_has_a_group_of_its_own_five_descriptors_and_its_directory(db) {
        let script = "pwd; cut -d' ' -f5 /proc/$$/stat; echo $$; ls /proc/self/fd | tr '\\n' ' '";
        let class = shell_class(db, "work", script);
        db.configure(&class);
        let after = process(db, "work", "{}");
        let lines: Vec<&str> = printed(&after, "stdout").lines().collect();
        assert_eq!((lines[0], lines[1]), ("/", lines[2]));
        // 5 is the directory that ls reads.
        assert_eq!(lines[3].trim(), "0 1 2 3 4 5");
        db.configure(&format!("{class}cwd = \"/usr\"\n"));
        assert!(printed(&process(db, "work", "{}"), "stdout").starts_with("/usr\n"));
    }

    fn a_pattern_hands_the_class_name_to_one_program_without_a_shell(db) {
        db.configure("[class.\"App\\\\Tasks\\\\*\"]\nargv = [\"/bin/echo\", \"-n\", \"name={class}\", \"$HOME\"]\n");
        let after = process(db, "App\\Tasks\\Import", "{}");
        assert_eq!(printed(&after, "stdout"), "name=App\\Tasks\\Import $HOME");
    }

    fn a_handler_that_dies_by_a_signal_is_retried(db) {
        db.configure(&shell_class(db, "work", "kill -$(tr -d '\"') $$; sleep 10"));
        for (name, number) in [("SEGV", 11), ("TERM", 15), ("KILL", 9), ("HUP", 1), ("PIPE", 13)] {
            let after = process(db, "work", &format!("\"{name}\""));
            assert_eq!(outcome(&after), ("error", "failed", false, false), "{name}");
            assert_eq!(after["runs"][0]["error_code"], format!("signal:{number}"));
            assert_eq!(after["task"]["failed_retries"], 1);
        }
    }

    fn progress_and_message_are_seen_while_the_handler_works(db) {
        let script = format!(
            "cd {}; echo '{{\"progress\":40.9,\"message\":\"pass 2\"}}' >&3; echo on > started; until test -e go; do sleep 0.02; done; exit 1",
            db.home().display());
        db.configure(&shell_class(db, "work", &script));
        let id = db.cli().run(&["queue", "work"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        wait_for_file(db, "started");
        wait_until("the progress is saved", || detail(db, &id)["runs"][0]["percents_completed"] == 40);
        assert_eq!(detail(db, &id)["runs"][0]["progress_message"], "pass 2");
        write(db, "go", "");
        finish(runner).ok();
        // An ended run keeps its progress.
        assert_eq!(detail(db, &id)["runs"][0]["percents_completed"], 40);
    }

    fn the_last_result_is_kept_whatever_else_is_on_descriptor_3(db) {
        let script = "printf 'no json\\n{\"progress\":400}\\n{\"result\":1}\\n[]\\n\\n{\"unknown\":1}\\n{\"result\":{\"b\":1.50,\"a\":[\"ü\"]}}' >&3";
        db.configure(&shell_class(db, "work", script));
        let after = process(db, "work", "{}");
        assert_eq!(after["task"]["status"], "success");
        let stored = db.text("SELECT \"Results\" AS value FROM \"TaskQueueRuns\"");
        assert_eq!(stored.as_deref(), Some("{\"b\":1.50,\"a\":[\"ü\"]}"));
        assert_eq!(after["runs"][0]["percents_completed"], 100);
        let said = "exit 0: success (default rule); 3 event lines could not be read; unknown key in an event: \"unknown\"";
        assert_eq!(after["runs"][0]["decision"], said);
        let shown = db.cli().run(&["status", "1"]).ok();
        assert!(shown.contains("3 event lines could not be read") && shown.contains("first \"no json\""), "{shown}");
    }

    fn the_first_line_that_cannot_be_read_is_shown_cut_and_printable(db) {
        let script = "printf 'bad \\033[31m\\000\\377 %0300d\\nother\\n' 7 >&3";
        db.configure(&shell_class(db, "work", script));
        let after = process(db, "work", "{}");
        let event = &after["events"][0];
        assert_eq!((&event["kind"], &event["run_id"], &event["details"]["count"]), (&"unreadable-line".into(), &1.into(), &2.into()));
        let first = event["details"]["first"].as_str().unwrap();
        assert!(first.starts_with("bad ") && first.ends_with("000…") && first.chars().count() == 201, "{first}");
        assert!(!first.contains(|c: char| c.is_control()), "{first:?}");
        assert_eq!(after["task"]["status"], "success");
    }

    fn a_handler_that_reports_no_retry_and_is_killed_is_shown_with_both(db) {
        db.configure(&shell_class(db, "work", "echo '{\"error\":{\"code\":\"bad\",\"retry\":false}}' >&3; kill -9 $$"));
        let after = process(db, "work", "{}");
        assert_eq!((&after["runs"][0]["error_code"], &after["task"]["is_exhausted"]), (&json!("bad"), &json!(true)));
        assert_eq!(after["runs"][0]["decision"], "signal 9, but the handler reported an error: no_retry");
    }

    fn a_reported_error_says_code_message_retry_and_delay(db) {
        let script = "printf '{\"error\":%s}\\n' \"$(cat)\" >&3; exit 1";
        db.configure(&shell_class(db, "work", script));
        let after = process(db, "work", "{\"code\":\"smtp\",\"message\":\"451 greylisted\",\"delay\":3000}");
        let run = &after["runs"][0];
        assert_eq!((&run["error_code"], &run["error_message"]), (&json!("smtp"), &json!("451 greylisted")));
        let wait = (due_from(&after["task"]) - instant(&run["finished_on"])).num_seconds();
        assert!((2_990..=3_010).contains(&wait), "{wait}");
        assert_eq!(after["task"]["is_exhausted"], false);
        let after = process(db, "work", "{\"code\":550,\"message\":\"no such user\",\"retry\":false}");
        assert_eq!((&after["runs"][0]["error_code"], &after["task"]["is_exhausted"]), (&json!("550"), &json!(true)));
    }

    fn an_impossible_delay_neither_keeps_the_run_open_nor_blocks_later_runs(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "work", "printf '{\"error\":{\"code\":\"late\",\"delay\":%s}}\n' \"$(cat)\" >&3; exit 1")));
        for (delay, expected) in [("1e12", 31_536_000), ("1e300", 31_536_000), ("-1", 0)] {
            let after = process(db, "work", delay);
            let run = &after["runs"][0];
            assert_eq!((&run["error_code"], &after["task"]["status"]), (&json!("late"), &json!("failed")), "{delay}");
            let wait = (due_from(&after["task"]) - instant(&run["finished_on"])).num_seconds();
            assert!(wait <= expected && (expected == 0 || wait >= expected - 5), "{delay}: {wait}");
        }
        assert_eq!(process(db, "echo", "{}")["task"]["status"], "success");
    }

    fn progress_and_result_can_be_sent_by_the_program_itself(db) {
        let script = format!("{PROGRAM} report progress 70 'nearly done' && {PROGRAM} report result '{{\"size\":7}}' && echo '[\"from\",\"input\"]' | {PROGRAM} report result - && exit 1");
        db.configure(&shell_class(db, "work", &script));
        let after = process(db, "work", "{}");
        let run = &after["runs"][0];
        assert_eq!((&run["error_code"], printed(&after, "stderr")), (&json!("exit:1"), ""));
        assert_eq!((&run["percents_completed"], &run["progress_message"]), (&json!(70), &json!("nearly done")));
        assert_eq!(run["results"], json!(["from", "input"]));
    }

    fn a_report_restarts_the_timeout(db) {
        let script = "for i in 1 2 3 4; do sleep 0.8; echo '{\"progress\":10}' >&3; done";
        db.configure(&format!("{}timeout_secs = 2\n", shell_class(db, "work", script)));
        assert_eq!(process(db, "work", "{}")["task"]["status"], "success");
    }

    fn a_handler_without_end_gets_term_and_the_run_times_out(db) {
        let script = format!("cd {}; trap 'echo term > got; exit 0' TERM; sleep 1000 & echo $! > child; wait", db.home().display());
        db.configure(&format!("{}timeout_secs = 1\nbackoff = \"fixed:0s\"\n", shell_class(db, "work", &script)));
        let after = process(db, "work", "{}");
        let run = &after["runs"][0];
        assert_eq!((&run["status"], &run["error_code"]), (&json!("timeout"), &json!("timeout")));
        assert_eq!(run["error_message"], "the handler neither ended nor reported within 1 seconds");
        assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&json!("timeout"), &json!(1)));
        assert_eq!(wait_for_file(db, "got"), "term");
        assert!(!is_alive(&wait_for_file(db, "child")));
    }

    fn a_handler_that_ignores_term_is_killed_with_its_whole_group(db) {
        let script = format!("cd {}; trap '' TERM; sleep 1000 & echo $! > child; echo $$ > self; while :; do sleep 0.05; done", db.home().display());
        db.configure(&format!("{}kill_grace_secs = 1\n", shell_class(db, "work", &script)));
        let id = db.cli().run(&["queue", "work", "--timeout", "1s"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, &id)["runs"][0]["status"], "timeout");
        assert!(!is_alive(&wait_for_file(db, "self")));
        assert!(!is_alive(&wait_for_file(db, "child")));
    }

    fn a_program_that_cannot_be_started_holds_its_class_and_costs_no_attempt(db) {
        let plain = write(db, "plain", "#!/bin/sh\n").display().to_string();
        let classes = [
            ("missing", "/no/such/program", "/"), ("plain", plain.as_str(), "/"), ("directory", "/usr", "/"),
            ("nowhere", "/bin/true", "/no/such/directory"), (r"App\Tasks\Resize", "/no/such/program", "/"),
        ];
        let table = |(name, program, cwd): &(&str, &str, &str)| format!("[class.'{name}']\nargv = [\"{program}\"]\ncwd = \"{cwd}\"\n");
        db.configure(&classes.iter().map(table).collect::<String>());
        for (name, program, cwd) in classes {
            let id = db.cli().run(&["queue", name]).ok();
            let ended = db.cli().run(&["tick"]);
            assert!(ended.stderr.starts_with("warning: the class is held on this host: "), "{ended:?}");
            let word = if name.contains('\\') { format!("'{name}'") } else { name.to_owned() };
            assert!(ended.stderr.contains(&format!("fix it, then run `taskqueue class release {word}`")), "{ended:?}");
            let after = detail(db, &id);
            assert_eq!(outcome(&after), ("released", "scheduled", false, true), "{name}");
            assert_eq!((&after["task"]["attempts"], &after["runs"][0]["error_code"]), (&json!(0), &json!("could-not-start")));
            let message = after["runs"][0]["error_message"].as_str().unwrap();
            assert!(message.contains(program) || message.contains(cwd), "{name}: {message}");
        }
        assert_eq!(db.cli().run(&["class", "--json"]).ok().matches("\"held_until\"").count(), 5);
    }
}

#[test]
fn outside_a_handler_progress_and_result_say_where_they_belong() {
    let home = tempfile::tempdir().unwrap();
    let cli = crate::support::Cli::new(home.path());
    for (args, command) in [
        (&["report", "progress", "40"][..], "taskqueue report progress RUN 40 --token \"$token\""),
        (&["report", "result", "{}"], "taskqueue worker resolve RUN --token TOKEN --results JSON"),
        (&["report", "message", "page"], "taskqueue report message RUN NAME --token TOKEN"),
    ] {
        let (error, hint) = error_and_hint(&cli.run(args).fails(2));
        assert!(error.contains("only inside a handler"), "{error}");
        assert!(hint.starts_with(&format!("hint: for a run that you claimed: `{command}`")), "{hint}");
    }
    for args in [
        &["report", "progress", "101"][..],
        &["report", "progress", "-1"],
        &["report", "progress", "x"],
        &["report", "result", "{"],
        &["report", "result", "\"\\ud800\""],
        &["report", "result"],
    ] {
        let _ = cli.run(args).fails(2);
    }
    let gone = cli.env("TASKQUEUE_EVENTS_SOCKET", "taskqueue-gone").env("TASKQUEUE_RUN_TOKEN", "t");
    assert!(gone.run(&["report", "progress", "40"]).fails(1).contains("the runner cannot be reached"));
}
