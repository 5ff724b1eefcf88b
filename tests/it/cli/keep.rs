//! Retention of a task and its results, if the task or its class sets it: it takes precedence over the settings.

use std::time::Duration;

use serde_json::{Value, json};
use taskqueue::{Edit, NewTask, TaskQueue};

use super::{ECHO, count_tasks, detail, shell_class, task};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::TestDb;

const DAY: i64 = 86_400;

fn run(db: &TestDb, args: &[&str]) -> String {
    db.cli().run(args).ok()
}

/// Makes the tasks as old as if they had finished this many days ago.
fn make_old(db: &TestDb, days: i64) {
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = {}", sql_now(db.engine, -days * DAY)));
}

fn ids(db: &TestDb) -> Vec<i64> {
    db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"").into_iter().flatten().collect()
}

fn ids_after_create_runs(db: &TestDb) -> Vec<i64> {
    run(db, &["create-runs"]);
    ids(db)
}

fn with_results(db: &TestDb, class: &str, more: &str) -> String {
    format!("{}{more}", shell_class(db, class, "echo '{\"result\":7}' >&3"))
}

/// Makes the runs as old as if they had ended this many seconds ago.
fn make_runs_old(db: &TestDb, secs: i64) {
    db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = {}", sql_now(db.engine, -secs)));
}

fn results(db: &TestDb) -> Vec<Value> {
    ids(db).into_iter().map(|id| detail(db, &id.to_string())["runs"][0]["results"].clone()).collect()
}

each_engine! {
    fn a_task_that_states_how_long_it_is_kept_goes_by_that_alone(db) {
        db.configure(ECHO);
        run(db, &["queue", "echo", "--keep", "1d"]);
        run(db, &["queue", "echo"]);
        run(db, &["queue", "echo", "--keep", "forever"]);
        run(db, &["queue", "echo", "--keep", "100d"]);
        assert_eq!((&task(db, "1")["keep_secs"], &task(db, "1")["expires_on"]), (&json!(DAY), &Value::Null));
        run(db, &["tick"]);
        assert_eq!(ids_after_create_runs(db), [1, 2, 3, 4]);
        make_old(db, 2);
        assert_eq!(db.cli().run(&["prune", "--dry-run"]).stderr, "1 task would be deleted\n");
        assert_eq!(ids_after_create_runs(db), [2, 3, 4]);
        make_old(db, 40);
        assert_eq!(ids_after_create_runs(db), [3, 4]);
        make_old(db, 101);
        assert_eq!(ids_after_create_runs(db), [3]);
        // It is not pruned by number or by a given age, but by a selection.
        run(db, &["setting", "set", "TaskQueueMaxSuccess", "1"]);
        run(db, &["queue", "echo"]);
        run(db, &["tick"]);
        run(db, &["prune", "--older-than", "1d", "--yes"]);
        assert_eq!(ids(db), [3, 5]);
        assert_eq!(db.cli().run(&["prune", "3"]).stderr, "task 3 is deleted\n");
    }

    fn whatever_its_end_a_task_goes_when_it_states_so(db) {
        db.configure(&shell_class(db, "bad", "exit 65"));
        run(db, &["queue", "bad", "--keep", "1d"]);
        run(db, &["queue", "bad", "--keep", "1d", "--in", "1h"]);
        run(db, &["queue", "bad", "--keep", "1d", "--in", "1h"]);
        run(db, &["cancel", "2"]);
        run(db, &["tick"]);
        assert_eq!(task(db, "1")["status"], "failed");
        // A failed task may be retried; only its row is old.
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = 1 WHERE \"Id\" = 3");
        make_old(db, 2);
        assert_eq!(ids_after_create_runs(db), [3]);
    }

    fn a_class_states_it_for_tasks_that_do_not(db) {
        db.configure(&format!("{ECHO}keep = \"1d\"\n{}keep = \"forever\"\n", shell_class(db, "long.*", "true")));
        for args in [&["queue", "echo"][..], &["queue", "echo", "--keep", "9d"], &["queue", "long.term"], &["queue", "echo", "--in", "1h"]] {
            run(db, args);
        }
        run(db, &["work", "--idle-exit", "0s", "--slots", "4"]);
        run(db, &["cancel", "4"]);
        let first = task(db, "1");
        assert_eq!((&first["keep_secs"], first["expires_on"].is_string()), (&Value::Null, true), "{first}");
        // The settings of its class changed later.
        db.configure(&format!("{ECHO}{}", shell_class(db, "long.*", "true")));
        make_old(db, 2);
        assert_eq!(ids_after_create_runs(db), [2, 3]);
        make_old(db, 50);
        assert_eq!(ids_after_create_runs(db), [3]);
    }

    fn what_a_class_stated_counts_no_more_once_another_attempt_has_ended(db) {
        db.configure(&format!("{}keep = \"1d\"\nbackoff = \"fixed:0s\"\n", shell_class(db, "work", "test -e ok")));
        for _ in 0..3 {
            run(db, &["queue", "work"]);
        }
        db.cli().run(&["work", "--idle-exit", "0s", "--slots", "4"]).ok();
        assert_eq!(task(db, "1")["class_keep_secs"], DAY);
        db.configure(&shell_class(db, "work", "true"));
        run(db, &["retry", "1", "2", "3"]);
        run(db, &["cancel", "3"]);
        db.cli().run(&["process-run"]).ok();
        run(db, &["work", "--idle-exit", "0s", "--slots", "4"]);
        for id in ["1", "2", "3"] {
            assert_eq!((&task(db, id)["class_keep_secs"], &task(db, id)["expires_on"]), (&Value::Null, &Value::Null), "{id}");
        }
    }

    fn a_task_that_is_cancelled_with_its_schedule_is_kept_as_its_class_states(db) {
        let class = format!("{ECHO}keep = \"1d\"\n");
        db.configure(&format!("{class}[schedule.a]\nclass = \"echo\"\nevery = \"@yearly\"\n"));
        run(db, &["schedule", "apply"]);
        run(db, &["queue", "echo", "--every", "@yearly"]);
        run(db, &["queue", "echo", "--in", "1h"]);
        run(db, &["create-runs"]);
        db.configure(&class);
        run(db, &["schedule", "apply"]);
        run(db, &["schedule", "remove", "2"]);
        run(db, &["cancel", "3"]);
        for id in ["1", "2", "3"] {
            let (row, events) = (task(db, id), detail(db, id)["events"].clone());
            assert_eq!((&row["status"], &row["class_keep_secs"]), (&json!("cancelled"), &json!(DAY)), "{id} {row}");
            let kinds = events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap());
            assert_eq!(kinds.filter(|kind| *kind == "cancelled").count(), 1, "{id} {events}");
        }
    }

    fn a_handler_states_it_for_the_tasks_that_it_queues(db) {
        let script = format!("{} queue echo --keep 1d --keep-results 1h --meta a=b", env!("CARGO_BIN_EXE_taskqueue"));
        db.configure(&format!("{}may_queue = [\"echo\"]\n{ECHO}", shell_class(db, "parent", &script)));
        run(db, &["queue", "parent"]);
        run(db, &["tick"]);
        let child = task(db, "2");
        assert_eq!((&child["keep_secs"], &child["keep_results_secs"], &child["meta"]), (&json!(DAY), &json!(3_600), &json!({"a": "b"})));
    }

    fn what_sql_alone_has_ended_is_not_deleted_before_its_class_states(db) {
        db.configure(&format!("{ECHO}keep = \"60d\"\n"));
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES ('echo', 'success'), ('other', 'success')");
        make_old(db, 40);
        assert_eq!(ids_after_create_runs(db), [1]);
        make_old(db, 61);
        assert_eq!(ids_after_create_runs(db), Vec::<i64>::new());
    }

    fn a_dry_run_of_prune_counts_what_prune_deletes_of_tasks_that_sql_ended(db) {
        db.configure(&format!("{ECHO}keep = \"60d\"\n{}keep = \"1d\"\n", shell_class(db, "brief", "true")));
        let end_by_sql = || {
            db.execute("DELETE FROM \"TaskQueue\"");
            db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES ('echo', 'success'), ('other', 'success'), ('brief', 'success')");
            make_old(db, 40);
        };
        let of_class = |class| vec!["--class", class, "--yes"];
        for (options, deleted) in [(vec![], 2), (vec!["--older-than", "1h", "--yes"], 1), (of_class("echo"), 0), (of_class("brief"), 1)] {
            end_by_sql();
            let dry = db.cli().run(&[&["prune", "--dry-run", "--json"], &options[..]].concat()).json();
            assert_eq!(dry["tasks"], deleted, "{options:?}");
            let ran = db.cli().run(&[&["prune", "--json"], &options[..]].concat()).json();
            assert_eq!((&ran["tasks"], count_tasks(db)), (&deleted.into(), 3 - deleted), "{options:?}");
        }
    }

    fn results_go_when_their_task_or_their_class_states_so(db) {
        db.configure(&format!("{}{}", with_results(db, "a", ""), with_results(db, "b", "keep_results = \"2h\"\n")));
        for args in [
            &["queue", "a", "--keep-results", "1h"][..], &["queue", "a"], &["queue", "a", "--keep-results", "forever"], &["queue", "b"],
            &["queue", "b", "--keep-results", "40d"],
        ] {
            run(db, args);
        }
        run(db, &["tick"]);
        let (seven, gone) = (json!(7), Value::Null);
        assert_eq!(results(db), [&seven, &seven, &seven, &seven, &seven].map(Clone::clone));
        make_runs_old(db, 3_700);
        run(db, &["create-runs"]);
        assert_eq!(results(db), [&gone, &seven, &seven, &seven, &seven].map(Clone::clone));
        make_runs_old(db, 7_300);
        run(db, &["create-runs"]);
        assert_eq!(results(db), [&gone, &seven, &seven, &gone, &seven].map(Clone::clone));
        make_runs_old(db, 35 * DAY);
        run(db, &["create-runs"]);
        assert_eq!(results(db), [&gone, &gone, &seven, &gone, &seven].map(Clone::clone));
        make_runs_old(db, 41 * DAY);
        run(db, &["prune"]);
        assert_eq!(results(db), [&gone, &gone, &seven, &gone, &gone].map(Clone::clone));
    }

    fn a_worker_with_many_slots_keeps_results_as_stated(db) {
        db.configure(&format!("{}{}", with_results(db, "a", ""), with_results(db, "b", "keep_results = \"1h\"\n")));
        for args in [&["queue", "a", "--keep-results", "1h"][..], &["queue", "a"], &["queue", "b"]] {
            run(db, args);
        }
        run(db, &["work", "--idle-exit", "0s", "--slots", "4"]);
        make_runs_old(db, 3_700);
        run(db, &["create-runs"]);
        assert_eq!(results(db), [Value::Null, json!(7), Value::Null]);
    }

    fn an_edit_changes_how_long_a_task_and_its_results_are_kept(db) {
        db.configure(&with_results(db, "a", ""));
        for _ in 0..3 {
            run(db, &["queue", "a", "--keep", "9d", "--keep-results", "9d"]);
        }
        run(db, &["tick"]);
        run(db, &["edit", "1", "--keep", "1d", "--keep-results", "1h"]);
        run(db, &["edit", "2", "--keep", "none", "--keep-results", "none"]);
        assert_eq!((&task(db, "1")["keep_secs"], &task(db, "2")["keep_secs"]), (&json!(DAY), &Value::Null));
        make_runs_old(db, 3_700);
        run(db, &["create-runs"]);
        assert_eq!(results(db), [Value::Null, json!(7), json!(7)]);
        make_old(db, 20);
        assert_eq!(ids_after_create_runs(db), [2]);
    }

    fn status_says_until_when_a_task_is_kept(db) {
        db.configure(ECHO);
        run(db, &["queue", "echo", "--keep", "2d", "--keep-results", "1h"]);
        let before = run(db, &["status", "1"]);
        assert!(before.contains("  kept         172800s after it finishes\n"), "{before}");
        assert!(before.contains("  results      kept 3600s after the end of each run\n"), "{before}");
        run(db, &["tick"]);
        let after = run(db, &["status", "1"]);
        assert!(after.contains("  kept         until ") && (after.contains("Z, in 1d23h\n") || after.contains("Z, in 2d\n")), "{after}");
        assert!(task(db, "1")["expires_on"].is_string());
    }

    fn batches_sql_and_schedules_state_it_too(db) {
        db.configure(ECHO);
        let line = json!({"class": "echo", "keep": "1d", "keep_results": "forever", "meta": {"order": 17}});
        db.cli().stdin(line.to_string()).run(&["queue", "--batch", "-"]).ok();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Keep\", \"KeepResults\", \"Meta\") VALUES ('echo', 86400, 0, ' {}')");
        run(db, &["queue", "echo", "--every", "@daily", "--at", "2020-01-01T00:00:00Z", "--keep", "1d", "--keep-results", "forever", "--meta", "order=17"]);
        run(db, &["tick"]);
        for id in ["1", "2", "3", "4"] {
            let task = task(db, id);
            let meta = [json!({"order": 17}), json!({}), json!({"order": "17"}), json!({"order": "17"})][task["id"].as_u64().unwrap() as usize - 1].clone();
            assert_eq!((&task["keep_secs"], &task["keep_results_secs"], &task["meta"]), (&json!(DAY), &json!(0), &meta), "{id}");
        }
        for (line, why) in [
            (json!({"class": "echo", "keep": "0s"}), "line 1: \"keep\": \"0s\" keeps nothing"),
            (json!({"class": "echo", "keep_results": 7}), "line 1: "),
            (json!({"class": "echo", "meta": [1]}), "line 1: \"meta\" is not a JSON object"),
        ] {
            let refused = db.cli().stdin(line.to_string()).run(&["queue", "--batch", "-"]);
            let said = refused.fails(2);
            assert!(said.contains(why), "{said}");
        }
    }

    fn what_was_stated_goes_from_one_store_to_another(db) {
        db.configure(&format!("{ECHO}keep = \"1d\"\n"));
        run(db, &["queue", "echo", "--keep-results", "1h", "--meta", "a=b"]);
        run(db, &["tick"]);
        let exported = db.cli().run(&["export"]).stdout;
        let before = task(db, "1");
        run(db, &["prune", "1"]);
        db.configure(ECHO);
        db.cli().stdin(exported).run(&["import"]).ok();
        let id = ids(db)[0].to_string();
        let after = task(db, &id);
        for field in ["keep_secs", "keep_results_secs", "expires_on", "meta"] {
            assert_eq!(before[field], after[field], "{field}");
        }
        assert!(after["expires_on"].is_string());
    }

    fn a_program_states_how_long_its_task_is_kept(db) {
        let queue = TaskQueue::connect(db.url_text()).unwrap().spool(db.home().join("spool"));
        let task = NewTask::new("mail").keep(Duration::from_millis(1_500)).keep_results_forever().meta("order", &17).unwrap();
        let id = queue.queue(task).unwrap().id;
        let found = queue.task(id).unwrap();
        assert_eq!((found.keep_secs, found.keep_results_secs, found.expires_on), (Some(2), Some(0), None));
        assert_eq!(found.meta_as::<Value>().unwrap(), json!({"order": 17}));
        let edit = Edit::new().keep_forever().default_keep_results().meta("order", &()).unwrap();
        queue.edit(id, &edit).unwrap().all().unwrap();
        let found = queue.task(id).unwrap();
        assert_eq!((found.keep_secs, found.keep_results_secs, found.meta.as_deref()), (Some(0), None, None));
        assert_eq!(count_tasks(db), 1);
    }

    fn what_keeps_nothing_is_refused(db) {
        db.configure(ECHO);
        for (value, why) in [("0s", "--keep: \"0s\" keeps nothing; write 1s or more, or forever"), ("7", "--keep: \"7\" has no unit")] {
            let refused = db.cli().run(&["queue", "echo", "--keep", value]);
            let said = refused.fails(2);
            assert!(said.contains(why), "{said}");
        }
        assert!(db.cli().run(&["queue", "echo", "--keep-results", "99999d"]).fails(2).contains("--keep-results: \"99999d\" is longer than ten years"));
        db.configure(&format!("{ECHO}keep = \"0s\"\n"));
        assert!(db.cli().run(&["queue", "echo"]).fails(78).contains("class \"echo\": keep: \"0s\" keeps nothing"));
        assert_eq!(count_tasks(db), 0);
    }
}
