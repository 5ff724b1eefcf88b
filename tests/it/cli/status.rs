//! `taskqueue status` into a pipe.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ECHO, detail, error_and_hint, shell_class, signal, wait_for_file, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Returns the line of a task in a list.
fn line_of(list: &str, id: &str) -> String {
    let mut lines = list.lines().filter(|line| line.split_whitespace().next() == Some(id));
    lines.next().unwrap_or_else(|| panic!("no task {id} in {list}")).to_owned()
}

/// A character of every kind that must never reach a terminal, between letters.
const NASTY: &str = "a\u{1b}[31mb\u{9b}c\u{202e}d\u{2066}e\u{7}f\u{7f}g";

fn assert_clean(text: &str) {
    let bad = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(*c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    assert_eq!(text.chars().find(bad), None, "{text:?}");
}

fn list(db: &TestDb) -> String {
    db.cli().run(&["status"]).ok()
}

each_engine! {
    fn a_status_lists_what_is_over_and_what_is_retried_newest_first(db) {
        let (old, new) = ("'2020-01-01 00:00:00.000000'", "'2024-01-01 00:00:00.000000'");
        let between = ["'2021-01-01 00:00:00.000000'", "'2022-01-01 00:00:00.000000'", "'2023-01-01 00:00:00.000000'"];
        let rows = [
            format!("1, {old}, {}, NULL", between[0]),
            format!("5, {new}, {old}, NULL"),
            format!("5, {old}, {}, NULL", between[1]),
            format!("5, {old}, {}, 86400", between[2]),
            format!("1, {new}, {old}, NULL"),
        ];
        let values: Vec<String> = rows.iter().map(|row| format!("('work', 'failed', 5, {row})")).collect();
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"MaxRetries\", \"FailedRetries\", \"ScheduledOn\", \"UpdatedOn\", \"Keep\")
             VALUES {}",
            values.join(", ")
        ));
        let page: Value = serde_json::from_str(&db.cli().run(&["status", "--status", "failed", "-n", "4", "--json"]).ok()).unwrap();
        let ids: Vec<i64> = page["tasks"].as_array().unwrap().iter().map(|task| task["task"]["id"].as_i64().unwrap()).collect();
        // Finished tasks are sorted by their end, because their planned time no longer matters.
        assert_eq!(ids, [5, 4, 3, 2], "{page}");
        assert_eq!((&page["counts"]["failed"]["count"], &page["has_more"]), (&json!(5), &json!(true)));
    }

    fn an_empty_store_says_what_to_do_next(db) {
        let text = list(db);
        assert!(text.starts_with("running 0   slots 0/8   waiting runs 0   due 0 "), "{text}");
        assert!(text.contains("No tasks. Queue one: taskqueue queue CLASS"), "{text}");
        db.configure(ECHO);
        for (class, meant) in [("nope", ""), ("ecko", "; did you mean \"echo\"?")] {
            for (verb, words) in [("status", "No task has this class and status."), ("failures", "No failed tasks: ")] {
                let ended = db.cli().run(&[verb, "--class", class]);
                let warning = format!("warning: no class \"{class}\" is known here, and no task has it{meant}\n");
                assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), warning.as_str()), "{verb}: {ended:?}");
                assert!(ended.stdout.contains(words), "{verb}: {ended:?}");
            }
        }
        assert_eq!(db.cli().run(&["status", "--class", "echo"]).stderr, "");
        assert!(db.cli().run(&["status", "--runs"]).ok().contains("No runs yet"));
        assert!(db.cli().run(&["status", "--runners"]).ok().contains("No runners. "));
    }

    fn the_counters_come_first_and_then_a_bounded_page(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 1")));
        for class in ["bad", "echo", "echo"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let text = list(db);
        let counters = "running 0   slots 0/8   waiting runs 0   due 1   scheduled 2   failed 1   timeout 0   cancelled 0   success 2   oldest due ";
        assert!(text.starts_with(counters), "{text}");
        assert!(text.contains("\nNothing runs: task 4 (echo) is due and has no run yet: "), "{text}");
        assert_eq!(text.lines().count(), 4 + 5, "{text}");
        let page = db.cli().run(&["status", "-n", "2"]).ok();
        assert_eq!(page.lines().filter(|line| line.contains(" echo ") || line.contains(" bad ")).count(), 2);
        assert!(page.ends_with("There are more: -n N shows more lines; a selection, --status or --class filters them."), "{page}");
        // Problems first, finished tasks last.
        assert_eq!(page.lines().nth(4).unwrap().split_whitespace().next(), Some("1"), "{page}");
    }

    fn the_note_says_why_each_task_is_where_it_is(db) {
        let held = "[class.held]\nargv = [\"/no/such/program\"]\n";
        let work = shell_class(db, "work", &format!(
            "cd {}; echo '{{\"progress\":40,\"message\":\"pass 2\"}}' >&3; echo on > started; until test -e go; do sleep 0.02; done", db.home().display()));
        let bad = shell_class(db, "bad", "echo bad header >&2; exit 65");
        let again = shell_class(db, "again", "echo greylisted >&2; exit 75");
        db.configure(&format!("{ECHO}{held}{work}{bad}{again}"));
        for class in ["held", "bad", "again", "echo"] {
            // No retry may become due before the list is read.
            db.cli().run(&["queue", class, "--backoff", "fixed:1h"]).ok();
        }
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["queue", "elsewhere", "--any-class"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "started");
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["queue", "echo", "--in", "90m"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        wait_until("the progress is saved", || list(db).contains("40%"));
        assert_eq!(db.cli().run(&["status", "--running", "--output", "id"]).ok(), "5");
        let text = list(db);
        for (id, words) in [
            ("1", "class held here, next try in "),
            ("2", "not retried: exit:65: bad header [exit 65: no_retry (default rule)]"),
            ("3", "will be retried: exit:75: greylisted"),
            ("4", "success"),
            ("5", ": pass 2"),
            ("6", "waits; its class has no handler on this host"),
            ("7", "waits for a runner"),
            ("8", "in 1h"),
            ("9", "due; waits for create-runs or tick"),
        ] {
            let line = line_of(&text, id);
            assert!(line.contains(words), "{id} {words}: {line}");
        }
        assert!(!line_of(&text, "1").contains("ended "), "the end of the released run, not the next retry: {text}");
        assert!(line_of(&text, "5").contains("processing 40%") && line_of(&text, "5").contains("process "), "{text}");
        write(db, "go", "");
        finish(runner).ok();
    }

    fn filters_choose_by_class_and_status(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 1")));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        let ids = |args: &[&str]| -> Vec<i64> {
            let overview = db.cli().run(&[&["status", "--json"], args].concat()).json();
            overview["tasks"].as_array().unwrap().iter().map(|line| line["task"]["id"].as_i64().unwrap()).collect()
        };
        assert_eq!(ids(&["--class", "echo"]), [3, 2]);
        assert_eq!(ids(&["--status", "failed"]), [1]);
        assert_eq!(ids(&["--status", "failed", "--status", "success"]), [1, 2]);
        assert_eq!(ids(&["--status", "success", "--class", "bad"]), [0_i64; 0]);
        let stderr = db.cli().run(&["status", "--status", "done"]).fails(2);
        assert!(stderr.contains("the statuses are processing, failed, timeout, scheduled, cancelled, expired, success"), "{stderr}");
    }

    fn a_task_is_shown_with_all_its_runs_and_what_they_printed(db) {
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "work",
            "echo attempt $TASKQUEUE_ATTEMPT; echo '{\"result\":{\"size\":7}}' >&3; echo oops >&2; test $TASKQUEUE_ATTEMPT = 2")));
        let id = db.cli().run(&["queue", "work", "{\"file\":\"x.png\"}", "--by", "ann", "--timeout", "9s"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["tick"]).ok();
        let text = db.cli().run(&["status", &id]).ok();
        for words in [
            "task 1   work   success", "by ann", "failed       0 of 5 retries, 2 attempts in all", "timeout      9s",
            "data         {\"file\":\"x.png\"}", "run 1   attempt 1   error", "run 2   attempt 2   success   100%",
            "error        exit:1: oops", "decision     exit 1: retry (default rule)", "decision     exit 0: success (default rule)",
            "results      {\"size\":7}", "stdout (10 bytes)\n    attempt 2", "stderr (5 bytes)\n    oops",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // A task that is named twice counts once, as in every verb.
        let twice = db.cli().run(&["status", &id, &id]).ok();
        assert_eq!(twice.matches("task 1   work").count(), 1);
    }

    fn an_id_that_does_not_exist_is_named_with_status_3(db) {
        let (error, _) = error_and_hint(&db.cli().run(&["status", "99"]).fails(3));
        assert_eq!(error, "error: there is no task 99");
        for bad in ["x", "1.5", "99999999999999999999"] {
            let _ = db.cli().run(&["status", bad]).fails(2);
        }
    }

    fn runs_and_runners_are_listed(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "echo no luck >&2; exit 1")));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        let runs = db.cli().run(&["status", "--runs"]).ok();
        assert!(line_of(&runs, "1").contains("exit:1: no luck") && line_of(&runs, "2").contains("success"), "{runs}");
        let runners = db.cli().run(&["status", "--runners"]).ok();
        assert!(line_of(&runners, "1").contains("ended "), "{runners}");
        let json = db.cli().run(&["status", "--runs", "--json"]).ok();
        let rows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((rows.len(), &rows[0]["class"]), (2, &json!("echo")));
        let runner = db.cli().run(&["status", "--runners", "--json"]).json();
        assert_eq!(runner["slots"], 1);
    }

    fn json_has_a_schema_and_the_data_as_json(db) {
        db.configure(ECHO);
        let overview = db.cli().run(&["status", "--json"]).json();
        assert_eq!((&overview["schema"], &overview["tasks"]), (&json!("taskqueue.status/1"), &json!([])));
        let id = db.cli().run(&["queue", "echo", "{\"a\":[1,null]}"]).ok();
        let overview = db.cli().run(&["status", "--json"]).json();
        assert_eq!(overview["counts"]["due"], json!({"count": 1, "or_more": false}));
        assert_eq!(overview["runner_slots"], json!({"in_use": 0, "limit": 8}));
        assert_eq!(overview["tasks"][0]["task"]["data"], json!({"a": [1, null]}));
        assert_eq!(overview["tasks"][0]["why"]["reason"], "waits_for_create_runs");
        let detail = detail(db, &id);
        assert_eq!((&detail["schema"], &detail["runs"]), (&json!("taskqueue.task/1"), &json!([])));
    }

    fn watch_shows_it_again_and_again_until_int_ends_it_with_130(db) {
        db.configure(ECHO);
        let mut watching = db.cli().spawn(&["status", "--watch=100ms", "--json"]);
        let stdout = std::io::BufReader::new(watching.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(stdout).map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        assert_eq!(lines.next().unwrap()["counts"]["due"]["count"], 0);
        db.cli().run(&["queue", "echo"]).ok();
        assert!(lines.any(|overview| overview["counts"]["due"]["count"] == 1));
        signal(&watching, Signal::INT);
        assert_eq!(lines.filter(|overview| overview["schema"] != "taskqueue.status/1").count(), 0);
        assert_eq!(finish(watching).fails(130), "");
    }

    fn a_pattern_is_no_class_to_show_or_delete_the_tasks_of(db) {
        for (verb, accepting) in [("status", "status"), ("failures", "status"), ("prune", "prune")] {
            let (error, hint) = error_and_hint(&db.cli().run(&[verb, "--class", "ec*"]).fails(2));
            assert!(error.contains("not a pattern"), "{error}");
            let expected = format!("hint: `taskqueue {accepting} 'class=ec*'` accepts a pattern");
            assert!(hint.starts_with(&expected), "{verb}: {hint}");
        }
    }

    fn an_interval_that_leaves_the_database_no_rest_is_refused(db) {
        for args in [&["status", "--watch=0s"][..], &["status", "--watch=99ms"]] {
            assert!(db.cli().run(args).fails(2).contains("100ms is the shortest interval"));
        }
    }

    fn watch_ends_when_nobody_reads_it_any_more(db) {
        let mut watching = db.cli().spawn(&["status", "--watch=100ms"]);
        drop(watching.stdout.take());
        assert_eq!(watching.wait().unwrap().code(), Some(0));
    }

    fn nothing_is_cut_into_a_pipe(db) {
        let class = "x".repeat(190);
        let message = "m".repeat(900);
        db.configure(&shell_class(db, "work", &format!("echo {message} >&2; exit 65")));
        db.cli().run(&["queue", &class, "--any-class"]).ok();
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        let cli = db.cli().env("COLUMNS", "40");
        let text = cli.run(&["status"]).ok();
        assert!(line_of(&text, "1").contains(&class) && line_of(&text, "2").contains(&message), "{text}");
        assert!(cli.run(&["status", "--runs"]).ok().contains(&message));
        assert!(!text.contains('\u{1b}'));
    }

    fn control_and_bidi_characters_never_reach_the_output(db) {
        let script = format!("printf '%s' '{NASTY}'; printf '%s' '{NASTY}' >&2; echo '{{\"progress\":7,\"message\":\"p\\u202ep\\u009b\"}}' >&3; exit 65");
        db.configure(&shell_class(db, "work", &script));
        db.cli().run(&["queue", "work", &format!("[\"{}\"]", NASTY.replace(['\u{1b}', '\u{7}'], "")), "--by", NASTY]).ok();
        db.cli().run(&["tick"]).ok();
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"QueuedById\", \"ScheduledOn\") VALUES ('work', '{NASTY}', '2020-01-01 00:00:00')"));
        db.cli().run(&["create-runs"]).ok();
        for args in [
            &["status"][..], &["status", "1"], &["status", "2"], &["status", "--runs"], &["status", "--runners"], &["class"],
            &["status", "--json"], &["status", "--json", "1"], &["status", "--runs", "--json"], &["class", "--json"],
        ] {
            let ended = db.cli().run(args);
            assert_clean(&ended.stdout);
            assert_clean(&ended.stderr);
        }
        assert_eq!(detail(db, "2")["task"]["queued_by"], NASTY);
    }
}
