//! Unique tasks: at most one live task per class has a key, whatever queues another one, and for how long.

use serde_json::{Value, json};

use super::{ECHO, count_tasks, detail, error_and_hint, queue_lines, shell_class, task, tick};
use crate::each_engine;
use crate::support::{Ended, TestDb};

fn unique(db: &TestDb, key: &str, more: &[&str]) -> Ended {
    db.cli().run(&[&["queue", "echo", "--unique", key], more].concat())
}

each_engine! {
    fn a_second_task_with_the_key_of_a_live_one_is_that_one(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "other", "true")));
        assert_eq!(unique(db, "daily", &[]).ok(), "1");
        let again = unique(db, "daily", &["--on-conflict", "return"]);
        assert_eq!(again.stderr, "task 1 has the key \"daily\" already; nothing was queued\n");
        assert_eq!(again.ok(), "1");
        assert_eq!(unique(db, "daily", &["--json"]).json()["arrival"], "existing");
        // Another key, and the same key of another class.
        assert_eq!(unique(db, "Daily", &["--json"]).json()["arrival"], "queued");
        assert_eq!(db.cli().run(&["queue", "other", "--unique", "daily"]).ok(), "3");
        assert_eq!(count_tasks(db), 3);
        assert!(db.cli().run(&["status", "1"]).ok().contains("unique       daily\n"));
        // After the end of the task its key is free.
        tick(db);
        assert_eq!(unique(db, "daily", &[]).ok(), "4");
    }

    fn run_and_wait_end_as_the_task_did_that_has_the_key_and_is_over(db) {
        db.configure(&shell_class(db, "work", "code=$(cat); echo said; exit $code"));
        for (id, key, code, why) in [(1, "well", 0, "it succeeded"), (2, "badly", 3, "no retry is left")] {
            let data = code.to_string();
            let queue = |follow: &str| {
                db.cli().run(&["queue", "work", &data, "--unique", key, "--unique-for", "1h", "--max-retries", "1", follow])
            };
            let first = queue("--run");
            assert_eq!((first.code, first.stdout.as_str()), (Some(code), "said\n"), "{first:?}");
            for follow in ["--run", "--wait"] {
                let again = queue(follow);
                let words = format!("task {id} has the key \"{key}\" already; nothing was queued\ntask {id} has finished: {why}\n");
                assert_eq!((again.code, again.stdout.as_str(), again.stderr.as_str()), (Some(code), "said\n", words.as_str()));
            }
        }
        assert_eq!(count_tasks(db), 2);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 2);
    }

    fn run_says_of_a_task_that_was_there_what_becomes_of_it(db) {
        db.configure(ECHO);
        unique(db, "k", &["--in", "1h"]).ok();
        let stays = unique(db, "k", &["--run"]);
        assert!(stays.stderr.contains("task 1 has the key \"k\" already; nothing was queued"), "{stays:?}");
        assert!(stays.fails(1).contains("task 1 is queued, but cannot run now: it is not due yet"));
        let replaced = db.cli().run(&["queue", "echo", "7", "--unique", "k", "--on-conflict", "replace", "--run"]);
        assert_eq!((replaced.code, replaced.stdout.as_str()), (Some(0), "7"), "{replaced:?}");
        assert!(replaced.stderr.contains("task 1 had the key \"k\" and was replaced"), "{replaced:?}");
        assert_eq!((count_tasks(db), task(db, "1")["status"].clone()), (1, json!("success")));
    }

    fn the_key_of_a_task_cancelled_by_sql_is_free_while_its_run_still_waits(db) {
        db.configure(ECHO);
        unique(db, "k", &[]).ok();
        unique(db, "window", &["--unique-for", "1h"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"LastStatus\" IN ('scheduled', 'failed', 'timeout')");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'"), 2);
        assert_eq!(unique(db, "k", &[]).ok(), "3");
        assert_eq!(unique(db, "window", &[]).ok(), "2", "its time has not passed");
        tick(db);
        assert_eq!(["1", "2", "3"].map(|id| task(db, id)["status"].clone()), ["cancelled", "cancelled", "success"].map(Value::from));
    }

    fn the_key_of_a_retried_task_is_taken_and_that_of_an_exhausted_one_free(db) {
        db.configure(&shell_class(db, "echo", "exit 1"));
        unique(db, "k", &["--max-retries", "2", "--backoff", "fixed:0s"]).ok();
        tick(db);
        assert_eq!(task(db, "1")["failed_retries"], 1);
        assert_eq!(unique(db, "k", &[]).ok(), "1");
        tick(db);
        assert_eq!(detail(db, "1")["why"]["reason"], "exhausted");
        assert_eq!(unique(db, "k", &[]).ok(), "2");
        // A retry of an old task is refused if a newer task has its key.
        let refused = db.cli().run(&["retry", "1"]);
        assert_eq!(refused.code, Some(1));
        assert_eq!(refused.stderr, "warning: task 1 is not retried: task 2, queued since, has its key \"k\"\n");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 2");
        assert_eq!(db.cli().run(&["retry", "1"]).ok(), "");
        assert_eq!(unique(db, "k", &[]).ok(), "1");
    }

    fn an_exhausted_task_with_a_taken_key_is_not_retried_nor_given_retries(db) {
        db.configure(&shell_class(db, "echo", "exit 1"));
        unique(db, "k", &["--max-retries", "1"]).ok();
        tick(db);
        assert_eq!(unique(db, "k", &[]).ok(), "2");
        for verb in [["retry", "1"].as_slice(), &["edit", "1", "--max-retries", "5"]] {
            let ended = db.cli().run(verb);
            assert!(ended.stderr.contains("task 2, queued since, has its key \"k\""), "{ended:?}");
            assert_eq!(ended.code, Some(1), "{ended:?}");
        }
        assert_eq!(task(db, "1")["max_retries"], 1);
        let _ = db.cli().run(&["edit", "1", "--priority", "5"]).ok();
    }

    fn export_and_import_keep_keys_and_windows(db) {
        db.configure(ECHO);
        unique(db, "k", &["--unique-for", "1h", "--in", "1h"]).ok();
        let exported = db.cli().run(&["export"]).ok();
        db.execute("DELETE FROM \"TaskQueue\"");
        let _ = db.cli().stdin(exported).run(&["import", "-"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" = 'k' AND \"UniqueUntil\" IS NOT NULL"), 1);
    }

    fn fail_names_the_task_that_is_there_and_queues_nothing(db) {
        db.configure(ECHO);
        unique(db, "k", &[]).ok();
        let (error, _) = error_and_hint(&unique(db, "k", &["--on-conflict", "fail"]).fails(1));
        assert_eq!(error, "error: task 1 has the key \"k\" already; its status is scheduled");
        let bad = queue_lines(db, &[json!({ "class": "echo" }), json!({ "class": "echo", "unique": "k", "on_conflict": "fail" })]);
        assert!(bad.stderr.contains("line 2: task 1 has the key"), "{bad:?}");
        assert_eq!((bad.code, count_tasks(db)), (Some(1), 1));
    }

    fn replace_gives_a_waiting_task_the_new_data_times_and_numbers(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "1", "--unique", "k"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let replaced = db.cli().run(&["queue", "echo", "2", "--unique", "k", "--on-conflict", "replace", "--priority", "7",
            "--max-retries", "9", "--timeout", "1m", "--by", "shop", "--at", "2099-01-02T03:04:05.678901Z"]);
        assert!(replaced.stderr.contains("task 1 had the key \"k\" and was replaced"), "{replaced:?}");
        assert_eq!(replaced.ok(), "1");
        let after = detail(db, "1");
        let of_task = |name: &str| after["task"][name].clone();
        assert_eq!(["data", "priority", "max_retries", "timeout_secs"].map(of_task), [json!(2), json!(7), json!(9), json!(60)]);
        assert_eq!((of_task("queued_by"), of_task("scheduled_on")), (json!("shop"), json!("2099-01-02T03:04:05.678901Z")));
        // The run that waited for the old time is released.
        assert_eq!((&after["runs"][0]["status"], &after["why"]["reason"]), (&json!("released"), &json!("not_yet")));
        assert_eq!((&after["events"][0]["kind"], &after["events"][0]["actor"]), (&json!("replaced"), &json!("shop")));
        db.cli().run(&["queue", "echo", "3", "--unique", "k", "--on-conflict", "replace"]).ok();
        tick(db);
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["runs"][0]["outputs"][0]["content"]), (&json!("success"), &json!("3")));
        assert_eq!(count_tasks(db), 1);
    }

    fn a_task_that_is_being_processed_is_not_replaced(db) {
        db.configure(ECHO);
        unique(db, "k", &[]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'processing'");
        let (error, _) = error_and_hint(&unique(db, "k", &["--on-conflict", "replace", "--priority", "5"]).fails(1));
        assert_eq!(error, "error: task 1 has the key \"k\" already; its status is processing");
        assert_eq!(task(db, "1")["priority"], 0);
    }

    fn within_its_window_a_key_is_taken_although_its_task_has_ended(db) {
        db.configure(ECHO);
        unique(db, "k", &["--unique-for", "1h"]).ok();
        tick(db);
        assert_eq!(task(db, "1")["status"], "success");
        assert_eq!(unique(db, "k", &[]).ok(), "1");
        assert!(unique(db, "k", &["--on-conflict", "replace"]).fails(1).contains("its status is success"));
        assert!(db.cli().run(&["status", "1"]).ok().contains("unique       k (at least until "));
        db.execute("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(unique(db, "k", &[]).ok(), "2");
        assert_eq!(task(db, "1")["unique_until"], Value::Null);
        // An expired window does not free the key of a live task.
        db.execute("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = 2");
        assert_eq!(unique(db, "k", &[]).ok(), "2");
    }

    fn lines_of_a_batch_with_one_key_are_one_task(db) {
        db.configure(ECHO);
        unique(db, "old", &[]).ok();
        let line = |key: &str, data: i32, what: &str| json!({ "class": "echo", "data": data, "unique": key, "on_conflict": what });
        let printed = queue_lines(db, &[
            line("new", 1, "return"),
            line("old", 2, "return"),
            json!({ "class": "echo" }),
            line("new", 3, "return"),
            line("new", 4, "replace"),
            line("old", 5, "replace"),
        ]).ok();
        let said: Vec<(i64, String)> = printed.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["id"].as_i64().unwrap(), line["arrival"].as_str().unwrap().to_owned())
        }).collect();
        let expected = [(2, "queued"), (1, "existing"), (3, "queued"), (2, "existing"), (2, "replaced"), (1, "replaced")];
        assert_eq!(said, expected.map(|(id, arrival)| (id, arrival.to_owned())));
        assert_eq!((task(db, "1")["data"].clone(), task(db, "2")["data"].clone()), (json!(5), json!(4)));
        let bad = queue_lines(db, &[line("x", 1, "return"), line("x", 2, "fail")]);
        assert!(bad.stderr.contains("line 2: an earlier line has the key"), "{bad:?}");
        assert_eq!(count_tasks(db), 3);
    }

    fn lines_may_wait_for_one_that_has_a_key_and_never_for_themselves(db) {
        db.configure(ECHO);
        unique(db, "there", &["--unique-for", "1h"]).ok();
        tick(db);
        let line = |name: &str, key: &str, after: &[&str]| json!({ "class": "echo", "name": name, "unique": key, "after": after });
        let ended = queue_lines(db, &[line("a", "1", &["b"]), line("b", "2", &["c"]), line("c", "1", &[])]);
        assert!(ended.stderr.contains("would wait for itself forever"), "{ended:?}");
        assert_eq!((ended.code, count_tasks(db)), (Some(2), 1));
        // Of two lines with one key, the first one sets the dependencies.
        let _ = queue_lines(db, &[line("a", "there", &[]), line("b", "2", &["a"]), line("c", "3", &["b"]), line("d", "2", &["c"])]).ok();
        assert_eq!(["2", "3"].map(|id| task(db, id)["waiting_for"].as_i64().unwrap()), [0, 1]);
        tick(db);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'"), 3);
    }

    fn a_schedule_with_a_key_is_begun_once(db) {
        db.configure(ECHO);
        let begin = ["--every", "0 0 29 2 *"];
        assert_eq!(unique(db, "k", &begin).ok(), "1");
        let again = unique(db, "k", &begin);
        assert_eq!(again.stderr, "task 1 has the key \"k\" already; nothing was queued\n");
        assert_eq!(again.ok(), "1");
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["cancel", "1"]).ok();
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(unique(db, "k", &begin).ok(), "2");
        // A single task is not part of the schedule, and does not change it.
        assert_eq!(unique(db, "k", &[]).ok(), "2");
        let (error, _) = error_and_hint(&unique(db, "k", &["--on-conflict", "replace"]).fails(1));
        assert_eq!(error, "error: task 2 has the key \"k\" already; its status is scheduled");
        assert_eq!(unique(db, "once", &[]).ok(), "3");
        let (error, _) = error_and_hint(&unique(db, "once", &begin).fails(1));
        assert_eq!(error, "error: task 3 has the key \"once\" already; its status is scheduled");
        let once = json!({ "class": "echo", "unique": "b" });
        let every = json!({ "class": "echo", "unique": "b", "every": "@daily" });
        let replacing = json!({ "class": "echo", "unique": "b", "on_conflict": "replace" });
        for lines in [[once, every.clone()], [every, replacing]] {
            assert!(queue_lines(db, &lines).fails(2).contains("line 2: an earlier line has the key"));
        }
        // The schedule has its key until it ends; nothing follows its last task.
        db.cli().run(&["schedule", "remove", "1"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'processing' WHERE \"Id\" = 2");
        assert!(unique(db, "k", &begin).fails(1).contains("task 2 has the key \"k\" already; its status is processing"));
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" = 2");
        assert_eq!(unique(db, "k", &begin).ok(), "4");
    }

    fn keys_and_windows_that_make_no_sense_are_refused(db) {
        db.configure(ECHO);
        for key in ["", " a", "a ", "a\tb", &"x".repeat(191)] {
            assert!(unique(db, key, &[]).fails(2).contains("unique key"), "{key:?}");
        }
        for (more, why) in [
            (["--on-conflict", "ignore"], "not one of return, replace, fail"),
            (["--unique-for", "0s"], "1 to 31536000"),
            (["--unique-for", "1500ms"], "whole seconds"),
        ] {
            assert!(unique(db, "k", &more).fails(2).contains(why), "{more:?}");
        }
        assert!(unique(db, "k", &["--on-conflict", "replace", "--after", "1"]).fails(2).contains("cannot wait for others"));
        for (more, why) in [(["--unique-for", "1h"], "keeps its key until it ends"), (["--on-conflict", "replace"], "cannot replace a task")] {
            assert!(unique(db, "k", &[&["--every", "@daily"][..], &more].concat()).fails(2).contains(why), "{more:?}");
        }
        for option in ["--on-conflict=fail", "--unique-for=1h"] {
            assert!(db.cli().run(&["queue", "echo", option]).fails(2).contains("--unique"), "{option}");
        }
        for line in [
            json!({ "class": "echo", "on_conflict": "fail" }),
            json!({ "class": "echo", "unique": "k", "on_conflict": "no" }),
            json!({ "class": "echo", "unique": "k", "on_conflict": "replace", "after": ["a"] }),
        ] {
            assert_eq!(queue_lines(db, &[json!({ "class": "echo", "name": "a" }), line]).code, Some(2));
        }
        assert_eq!(count_tasks(db), 0);
    }
}
