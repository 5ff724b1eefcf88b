//! `taskqueue queue`

use std::io::{BufRead as _, BufReader};

use rustix::process::Signal;

use super::{ECHO, count_tasks, detail, error_and_hint, is_alive, shell_class, signal, task, wait_for_file, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Queues a batch at one task a second, and returns the ids.
fn spread_ids(db: &TestDb, lines: &str) -> Vec<String> {
    let options = ["queue", "--batch", "-", "--rate", "1/s", "--at", "2030-01-01T10:00:00Z"];
    db.cli().stdin(lines).run(&options).ok().lines().map(str::to_owned).collect()
}

each_engine! {
    fn data_as_text_from_standard_input_or_from_a_file_is_stored_to_the_byte(db) {
        db.configure(ECHO);
        let data = " {\"b\": 1.0, \"ü\":\"漢\\n😀\",\n\"a\":12345678901234567890, \"a\":[]} ";
        let file = write(db, "data.json", data);
        let stored = |id: &str| db.text(&format!("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
        for id in [
            db.cli().run(&["queue", "echo", data]).ok(),
            db.cli().stdin(data).run(&["queue", "echo", "-"]).ok(),
            db.cli().run(&["queue", "echo", &format!("@{}", file.display())]).ok(),
        ] {
            assert_eq!(stored(&id).as_deref(), Some(data));
        }
        let id = db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(stored(&id).as_deref(), Some("{}"));
    }

    fn the_id_stands_alone_on_standard_output_and_words_on_standard_error(db) {
        db.configure(ECHO);
        let ended = db.cli().run(&["queue", "echo"]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("1\n", ""));
        let ended = db.cli().run(&["queue", "echo", "--at", "2030-01-01T10:00:00+02:00"]);
        assert_eq!(ended.stdout, "2\n");
        assert!(ended.stderr.contains("2030-01-01T08:00:00Z"), "{ended:?}");
        let queued = db.cli().run(&["queue", "echo", "--json"]).json();
        assert_eq!((&queued["id"], &queued["class"]), (&3.into(), &"echo".into()));
    }

    fn at_and_in_are_resolved_in_the_zone_of_the_person_and_echoed(db) {
        db.configure(ECHO);
        let berlin = db.cli().env("TZ", "Europe/Berlin");
        let ended = berlin.run(&["queue", "echo", "--at", "2030-07-01 10:00"]);
        assert!(ended.stderr.contains("2030-07-01T08:00:00Z (2030-07-01 10:00:00 +02:00"), "{ended:?}");
        assert_eq!(task(db, &ended.ok())["scheduled_on"], "2030-07-01T08:00:00Z");
        let ended = berlin.run(&["queue", "echo", "--in", "90m"]);
        assert!(ended.stderr.contains("in 1h"), "{ended:?}");
        let queued = task(db, &ended.ok());
        let at = |key: &str| chrono::DateTime::parse_from_rfc3339(queued[key].as_str().unwrap()).unwrap();
        let wait = (at("scheduled_on") - at("queued_on")).num_seconds();
        assert!((5_380..=5_400).contains(&wait), "{wait}");
        let tomorrow = berlin.run(&["queue", "echo", "--at", "tomorrow 03:00"]);
        assert!(tomorrow.stderr.contains(" 03:00:00 +0"), "{tomorrow:?}");
    }

    fn a_line_of_a_batch_means_the_same_times_as_the_options(db) {
        db.configure(ECHO);
        let line = "{\"class\":\"echo\",\"at\":\"2030-07-01 10:00\"}";
        let id = db.cli().env("TZ", "Europe/Berlin").stdin(line).run(&["queue", "--batch", "-"]).ok();
        assert_eq!(task(db, &id)["scheduled_on"], "2030-07-01T08:00:00Z");
    }

    fn retries_timeout_priority_and_name_are_kept_on_the_task(db) {
        db.configure(ECHO);
        let by_default = task(db, &db.cli().run(&["queue", "echo"]).ok());
        assert_eq!((&by_default["max_retries"], &by_default["timeout_secs"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert_eq!((&by_default["priority"], &by_default["status"]), (&0.into(), &"scheduled".into()));
        assert_ne!(by_default["queued_by"], "");
        let options = ["queue", "echo", "--max-retries", "2", "--timeout", "2m", "--priority", "-7", "--by", "the cron of ann"];
        let given = task(db, &db.cli().run(&options).ok());
        assert_eq!((&given["max_retries"], &given["timeout_secs"]), (&2.into(), &120.into()));
        assert_eq!((&given["priority"], &given["queued_by"]), (&(-7).into(), &"the cron of ann".into()));
    }

    fn a_batch_prints_its_ids_in_the_order_of_its_lines(db) {
        db.configure(ECHO);
        let batch = "{\"class\":\"echo\",\"data\":{\"n\": 1}}\n\n{\"class\":\"echo\",\"priority\":5,\"max_retries\":3,\"timeout\":\"9s\",\"by\":\"me\"}\r\n\
                     {\"class\":\"echo\",\"in\":\"1h\",\"data\":[2]}";
        let file = write(db, "batch.jsonl", batch);
        let ended = db.cli().run(&["queue", "--batch", &file.display().to_string()]);
        assert!(ended.stderr.contains("queued 3 tasks"), "{ended:?}");
        let ids: Vec<String> = ended.ok().lines().map(str::to_owned).collect();
        assert_eq!(ids.len(), 3);
        assert_eq!(task(db, &ids[0])["data"], serde_json::json!({"n": 1}));
        let second = task(db, &ids[1]);
        assert_eq!((&second["priority"], &second["max_retries"]), (&5.into(), &3.into()));
        assert_eq!((&second["timeout_secs"], &second["queued_by"]), (&9.into(), &"me".into()));
        assert_eq!(task(db, &ids[2])["data"], serde_json::json!([2]));
        let from_input = db.cli().stdin(batch).run(&["queue", "--batch", "-", "--json"]).ok();
        let queued = |id: i32| format!("{{\"id\":{id},\"arrival\":\"queued\"}}");
        assert_eq!(from_input, [4, 5, 6].map(queued).join("\n"));
    }

    fn a_batch_with_one_bad_line_queues_nothing_and_names_the_line(db) {
        db.configure(ECHO);
        let good = "{\"class\":\"echo\"}";
        for (bad, why) in [
            ("{\"class\":\"echo\"", "it ends in the middle of an object at column 15"),
            ("[]", "invalid"),
            ("{\"data\":{}}", "class"),
            ("{\"class\":\"ecko\"}", "did you mean \"echo\"?"),
            ("{\"class\":\"echo\",\"max_retry\":1}", "max_retry"),
            ("{\"class\":\"echo\",\"priority\":1001}", "-1000 to 1000"),
            ("{\"class\":\"echo\",\"max_retries\":-1}", "1 to 1000000"),
            ("{\"class\":\"echo\",\"max_retries\":1e99}", "expected a whole number at column "),
            ("{\"class\":\"echo\",\"timeout\":\"5\"}", "5"),
            ("{\"class\":\"echo\",\"at\":\"04/05/2026\"}", "day/month"),
            ("{\"class\":\"echo\",\"at\":\"+1h\",\"in\":\"1h\"}", "exclude"),
            ("{\"class\":\"echo\",\"data\":\"\\u0000\"}", "U+0000"),
            ("{\"class\":\"echo\",\"data\":{}} x", "trailing"),
        ] {
            let ended = db.cli().stdin(format!("{good}\n\n{bad}\n{good}\n")).run(&["queue", "--batch", "-"]);
            let stderr = ended.fails(2);
            assert!(stderr.starts_with("error: line 3: ") && stderr.contains(why), "{bad}: {stderr}");
        }
        let mut binary = format!("{good}\n").into_bytes();
        binary.extend(b"{\"class\":\"echo\",\"data\":\"\xff\"}\n");
        assert!(db.cli().stdin(binary).run(&["queue", "--batch", "-"]).fails(2).contains("line 2: not UTF-8"));
        assert_eq!(count_tasks(db), 0);
    }

    fn a_batch_of_several_parts_is_one_batch(db) {
        db.configure(ECHO);
        let plain = "{\"class\":\"echo\"}\n".repeat(10_500);
        let keyed = |rest: &str| format!("{{\"class\":\"echo\",\"unique\":\"k\"{rest}}}\n");
        let batch = |last: &str| format!("{}\n{plain}{}{}", keyed(",\"data\":1"), keyed(""), last);
        let bad = db.cli().stdin(batch("{\"class\":\"ecko\"}\n")).run(&["queue", "--batch", "-"]).fails(2);
        assert!(bad.starts_with("error: line 10504: the task class \"ecko\""), "{bad}");
        let bad = db.cli().stdin(batch(&keyed(",\"on_conflict\":\"fail\""))).run(&["queue", "--batch", "-"]).fails(2);
        assert_eq!(bad, "error: line 10504: an earlier line has the key \"k\" already\n");
        assert_eq!(count_tasks(db), 0, "tasks of earlier parts are left");
        // A name in a late line may be a prerequisite of an early line.
        let named = "{\"class\":\"echo\",\"after\":[\"n\"]}\n{\"class\":\"echo\",\"name\":\"n\"}\n";
        let last = keyed(",\"on_conflict\":\"replace\",\"data\":2") + named;
        let ended = db.cli().stdin(batch(&last)).run(&["queue", "--batch", "-"]);
        assert_eq!(ended.stderr, "queued 10503 tasks; 1 existed already, 1 replaced\n");
        let printed = ended.ok();
        let ids: Vec<&str> = printed.lines().collect();
        assert_eq!((ids.len(), ids[10_501], ids[10_502], count_tasks(db)), (10_505, ids[0], ids[0], 10_503));
        assert_eq!((&task(db, ids[0])["data"], &task(db, ids[10_503])["waiting_for"]), (&2.into(), &1.into()));
    }

    fn a_rate_spreads_the_tasks_of_a_batch_over_time(db) {
        db.configure(ECHO);
        let lines = "{\"class\":\"echo\"}\n\n".repeat(3);
        let spread = |options: &[&str], lines: &str| {
            let ended = db.cli().stdin(lines).run(&[&["queue", "--batch", "-", "--rate", "4/m"][..], options].concat());
            ended.ok().lines().map(|id| task(db, id)).collect::<Vec<_>>()
        };
        let at = ["--at", "2030-01-01T10:00:00Z"];
        let times = spread(&at, &lines).iter().map(|task| task["scheduled_on"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(times, ["2030-01-01T10:00:00Z", "2030-01-01T10:00:15Z", "2030-01-01T10:00:30Z"]);
        let instant = |task: &serde_json::Value, key: &str| {
            chrono::DateTime::parse_from_rfc3339(task[key].as_str().unwrap()).unwrap()
        };
        for (options, from) in [(&[][..], -5..=0), (&["--in", "1h"][..], 3_595..=3_600)] {
            let tasks = spread(options, &lines);
            let waits = [0, 2].map(|place: usize| (instant(&tasks[place], "scheduled_on") - instant(&tasks[0], "queued_on")).num_seconds());
            assert!(from.contains(&waits[0]) && from.contains(&(waits[1] - 30)), "{waits:?}");
        }
        // A batch of several parts is read again from the disk.
        let ids = spread_ids(db, &"{\"class\":\"echo\"}\n".repeat(10_002));
        assert_eq!(ids.len(), 10_002);
        assert_eq!(task(db, &ids[10_001])["scheduled_on"], "2030-01-01T12:46:41Z");
        let count = count_tasks(db);
        for bad in ["\"in\":\"1h\"", "\"at\":\"+1h\"", "\"every\":\"1h\""] {
            let refused = db.cli().stdin(format!("{{\"class\":\"echo\"}}\n{{\"class\":\"echo\",{bad}}}")).run(&["queue", "--batch", "-", "--rate", "4/m"]);
            assert!(refused.fails(2).starts_with("error: line 2: --rate sets the times of all tasks"), "{bad}");
        }
        let (error, hint) = error_and_hint(&db.cli().run(&["queue", "echo", "--rate", "4/m"]).fails(2));
        assert!(error.contains("this is one task") && hint.contains("--batch FILE --rate"), "{error} {hint}");
        for options in [&["--at", "+1h"][..], &["--rate", "4/m", "--priority", "1"], &["--rate", "4"]] {
            assert_eq!(db.cli().stdin("").run(&[&["queue", "--batch", "-"][..], options].concat()).code, Some(2), "{options:?}");
        }
        assert_eq!(count_tasks(db), count);
    }

    fn a_bad_line_is_reported_before_the_input_ends(db) {
        db.configure(ECHO);
        let program = env!("CARGO_BIN_EXE_taskqueue");
        for (endless, why) in [("yes x", "error: line 1: "), ("cat /dev/zero", "error: line 1: longer than 16777216 bytes")] {
            let script = format!("{endless} | {program} queue --batch -");
            let ended = db.cli().program(std::path::Path::new("/bin/sh")).run(&["-c", &script]).fails(2);
            assert!(ended.starts_with(why), "{ended}");
        }
        assert_eq!(count_tasks(db), 0);
    }

    fn an_empty_batch_queues_nothing_and_is_no_error(db) {
        let ended = db.cli().stdin("\n\n").run(&["queue", "--batch", "-"]);
        assert!(ended.stderr.contains("queued 0 tasks"), "{ended:?}");
        assert_eq!(ended.ok(), "");
        assert_eq!(count_tasks(db), 0);
    }

    fn run_passes_the_output_through_and_ends_as_the_handler_did(db) {
        db.configure(&shell_class(db, "work", "cat; echo to-stderr >&2; exit 7"));
        let ended = db.cli().run(&["queue", "work", "{\"a\": 1}", "--run"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "{\"a\": 1}"));
        assert!(ended.stderr.starts_with("to-stderr\n"), "{ended:?}");
        assert!(ended.stderr.contains("task 1: exit:7: to-stderr"), "{ended:?}");
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&"failed".into(), &1.into()));
        assert_eq!((&after["runs"][0]["status"], &after["runs"][0]["error_code"]), (&"error".into(), &"exit:7".into()));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NOT NULL"), 1);
    }

    fn run_of_a_success_prints_what_the_handler_prints_and_nothing_else(db) {
        db.configure(&shell_class(db, "work", "printf 'one\\ntwo'"));
        let ended = db.cli().run(&["queue", "work", "--run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "one\ntwo", ""));
        assert_eq!(task(db, "1")["status"], "success");
    }

    fn run_fails_when_the_handler_reports_an_error_whatever_its_exit_code(db) {
        db.configure(&shell_class(db, "work", "echo '{\"error\":{\"code\":\"smtp\",\"message\":\"greylisted\"}}' >&3"));
        let ended = db.cli().run(&["queue", "work", "--run"]);
        assert!(ended.stderr.contains("smtp: greylisted"), "{ended:?}");
        assert_eq!(ended.fails(1).lines().count(), 1);
        assert_eq!(task(db, "1")["status"], "failed");
    }

    fn run_of_a_task_whose_time_has_not_come_is_refused_before_it_is_queued(db) {
        db.configure(ECHO);
        let at = ["queue", "echo", "--run", "--at", "2030-01-01T00:00:00Z"];
        assert!(db.cli().run(&at).fails(2).contains("--at"));
        assert!(db.cli().run(&["queue", "echo", "--run", "--in", "1h"]).fails(2).contains("--in"));
        assert_eq!(count_tasks(db), 0);
    }

    fn run_waits_for_a_free_slot_and_says_so(db) {
        let block = shell_class(db, "block", &format!("cd {}; echo on > started; until test -e go; do sleep 0.02; done", db.home().display()));
        db.configure(&format!("{ECHO}{block}"));
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        db.cli().run(&["queue", "block"]).ok();
        let first = db.cli().spawn(&["tick"]);
        wait_for_file(db, "started");
        let mut second = db.cli().spawn(&["queue", "echo", "[1]", "--run"]);
        let mut line = String::new();
        BufReader::new(second.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "waiting for a free runner slot (1 of 1 in use)\n");
        write(db, "go", "");
        assert_eq!(finish(second).ok(), "[1]");
        finish(first).ok();
    }

    fn wait_ends_as_the_handler_that_another_process_runs(db) {
        db.configure(&shell_class(db, "work", "cat; echo to-stderr >&2; exit 3"));
        let waiting = db.cli().spawn(&["queue", "work", "[5]", "--wait", "--max-retries", "1"]);
        wait_until("the task is queued", || count_tasks(db) == 1);
        db.cli().run(&["tick"]).ok();
        let ended = finish(waiting);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "[5]"), "{ended:?}");
        assert!(ended.stderr.contains("to-stderr"), "{ended:?}");
    }

    fn wait_goes_on_through_retries_until_the_task_succeeds(db) {
        let class = shell_class(db, "work", "test \"$TASKQUEUE_ATTEMPT\" = 2 && echo done");
        db.configure(&format!("{class}backoff = \"fixed:0s\"\n"));
        let waiting = db.cli().spawn(&["queue", "work", "--wait"]);
        wait_until("two attempts are made", || {
            db.cli().run(&["tick"]).ok();
            db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"FinishedOn\" IS NOT NULL") == 2
        });
        assert_eq!(finish(waiting).ok(), "done");
    }

    fn wait_says_that_no_runner_is_alive_and_ends_with_130_when_interrupted(db) {
        db.configure(ECHO);
        let mut waiting = db.cli().spawn(&["queue", "echo", "--wait"]);
        let mut line = String::new();
        BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("no runner is alive; `taskqueue tick`"), "{line}");
        signal(&waiting, Signal::INT);
        let _ = finish(waiting).fails(130);
        assert_eq!(task(db, "1")["status"], "scheduled");
    }

    fn run_that_is_interrupted_gives_the_run_back_and_ends_with_130(db) {
        db.configure(&shell_class(db, "work", &format!("echo $$ > {}/pid; exec sleep 100", db.home().display())));
        let running = db.cli().spawn(&["queue", "work", "--run"]);
        let handler = wait_for_file(db, "pid");
        signal(&running, Signal::INT);
        let _ = finish(running).fails(130);
        assert!(!is_alive(&handler));
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&"scheduled".into(), &0.into()));
        assert_eq!(after["runs"][0]["status"], "released");
    }
}
