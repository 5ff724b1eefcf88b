//! `export` and `import`.

use super::{count_tasks, error_and_hint, shell_class, task};
use crate::each_engine;
use crate::support::{Cli, TestDb};

const TABLES: [&str; 4] = ["TaskQueueRunOutputs", "TaskQueueEvents", "TaskQueueRuns", "TaskQueue"];

/// Tasks of every kind: succeeded with output and result, failed and retried, planned, cancelled, waiting until 2098.
fn fill(db: &TestDb) {
    db.configure(&format!(
        "{}{}",
        shell_class(db, "work", "echo 'out \"é\"'; echo '{\"result\":{\"b\":1,\"a\":[2]}}' >&3"),
        shell_class(db, "fail", "exit 1")
    ));
    for args in [
        &["work", " {\"b\": 1.0, \"a\": \"ü\"}", "--priority", "7", "--timeout", "9s"][..],
        &["fail", "--max-retries", "1"],
        &["fail", "--backoff", "fixed:2h"],
    ] {
        db.cli().run(&[&["queue"][..], args].concat()).ok();
    }
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["retry", "3"]).ok();
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["queue", "work", "--every", "0 0 29 2 *", "--tz", "Europe/Berlin"]).ok();
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["queue", "work", "--at", "2098-01-01T00:00:00.000001Z"]).ok();
    db.cli().run(&["queue", "work", "--in", "1h"]).ok();
    db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 6");
}

/// The program with a store of its own, of the embedded engine.
fn elsewhere(db: &TestDb) -> Cli {
    db.cli().env("TASKQUEUE_DATABASE_URL", db.home().join("elsewhere.db").to_str().unwrap())
}

fn clear(db: &TestDb) {
    for table in TABLES {
        db.execute(&format!("DELETE FROM \"{table}\""));
    }
}

each_engine! {
    fn an_export_is_the_same_after_its_way_through_a_store_of_another_engine_and_back(db) {
        fill(db);
        let exported = db.cli().run(&["export"]).ok();
        assert_eq!(exported.lines().count(), 6 + 2);
        let other = elsewhere(db);
        let ended = other.clone().stdin(exported.clone()).run(&["import"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "imported 6 tasks with the ids that they had\n"));
        assert_eq!(other.run(&["export"]).ok(), exported);
        clear(db);
        std::fs::write(db.home().join("tasks.ndjson"), other.run(&["export"]).ok()).unwrap();
        let imported = db.cli().run(&["import", "tasks.ndjson", "--json"]).json();
        assert_eq!((&imported["tasks"], &imported["keeps_ids"]), (&6.into(), &true.into()));
        assert_eq!(db.cli().run(&["export"]).ok(), exported);
        // Whoever queues next gets an id of which nobody has heard.
        assert_eq!(db.cli().run(&["queue", "work"]).ok(), "7");
        let shown = db.cli().run(&["status", "1"]).ok();
        assert!(shown.contains("out \"é\"") && shown.contains("{\"b\":1,\"a\":[2]}"), "{shown}");
        assert_eq!(task(db, "5")["scheduled_on"], "2098-01-01T00:00:00.000001Z");
    }

    fn tasks_get_new_ids_in_a_store_that_has_some_and_references_follow_them(db) {
        fill(db);
        let exported = db.cli().run(&["export"]).ok();
        let ended = db.cli().stdin(exported.clone()).run(&["import", "-"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "imported 6 tasks with new ids\n"));
        assert_eq!(count_tasks(db), 12);
        // Ids of the same order, and the same contents but for the ids.
        let new = db.cli().run(&["export", "7", "8", "9", "10", "11", "12"]).ok();
        assert_eq!(new.lines().count(), 8);
        let schedules = db.raw().numbers("SELECT \"ScheduleId\" AS value FROM \"TaskQueue\" WHERE \"Recurrence\" IS NOT NULL ORDER BY \"Id\"");
        assert_eq!(schedules, [Some(4), Some(10)]);
        let orphans = db.number(
            "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" AS r WHERE NOT EXISTS (SELECT 1 FROM \"TaskQueue\" AS t WHERE t.\"Id\" = r.\"TaskQueueId\")",
        );
        assert_eq!(orphans, 0);
        for table in ["\"TaskQueueRuns\"", "\"TaskQueueRunOutputs\"", "\"TaskQueueEvents\" WHERE \"Kind\" <> 'imported'"] {
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM {table}")) % 2, 0, "{table}");
        }
        assert_eq!(db.cli().run(&["export", "class=fail", "status=failed"]).ok().lines().count(), 4 + 2);
    }

    fn a_selection_is_exported_with_all_that_belongs_to_it_and_nothing_else(db) {
        fill(db);
        let all = db.cli().run(&["export"]).ok();
        let lines: Vec<&str> = all.lines().collect();
        // In the order of the ids, whatever the order of the words.
        let some = db.cli().run(&["export", "last", "2-3", "1"]);
        assert_eq!((some.code, some.stderr.as_str()), (Some(0), "exported 4 tasks\n"));
        let expected = [&lines[..4], &lines[6..7], &["{\"end_of_export\":4}"]].concat();
        assert_eq!(some.stdout.lines().collect::<Vec<_>>(), expected);
        clear(db);
        db.cli().stdin(some.stdout.clone()).run(&["import"]).ok();
        assert_eq!(db.cli().run(&["export"]).ok(), some.stdout.trim_end());

        let nothing = db.cli().run(&["export", "class=none"]);
        assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(3), ""));
        assert_eq!(nothing.stderr, "no task is selected by that\n");
        let one = db.cli().run(&["export", "1", "99"]);
        assert_eq!((one.code, one.stderr.as_str()), (Some(1), "warning: there is no task 99\nexported 1 task\n"));
        assert_eq!(one.stdout.lines().count(), 1 + 2);
        assert_eq!(db.cli().run(&["export", "99"]).code, Some(3));
        error_and_hint(&db.cli().run(&["export", "newest"]).fails(2));
    }

    fn a_task_whose_key_is_taken_is_refused_with_its_line_its_id_and_the_key(db) {
        db.cli().run(&["queue", "--any-class", "work"]).ok();
        db.cli().run(&["queue", "--any-class", "work", "--unique", "order-17"]).ok();
        let exported = db.cli().run(&["export"]).ok();
        let (error, _) = error_and_hint(&db.cli().stdin(exported).run(&["import"]).fails(2));
        assert_eq!(error, "error: line 3: task 2: its key \"order-17\" is that of a live task");
        assert_eq!(count_tasks(db), 2);
    }

    fn an_import_is_kept_as_an_event_and_one_that_is_refused_is_not(db) {
        fill(db);
        let exported = db.cli().run(&["export", "1-2"]).ok();
        let bad = exported.replacen("\"last_status\":\"success\"", "\"last_status\":\"nonsense\"", 1);
        assert_ne!(bad, exported);
        assert_eq!(db.cli().stdin(bad).run(&["import"]).code, Some(2));
        db.cli().stdin(exported).run(&["import"]).ok();
        let kept = db.cli().run(&["events", "--kind", "imported", "--json"]).json();
        assert_eq!(kept["details"], serde_json::json!({ "tasks": 2, "runs": 2, "keeps_ids": false }));
        assert!(kept["task_id"].is_null() && kept["actor"].as_str().is_some_and(|actor| !actor.is_empty()), "{kept}");
        assert!(kept["host"].is_string(), "{kept}");
    }

    fn what_could_drive_a_terminal_is_exported_as_escapes_and_imported_as_it_was(db) {
        let nasty = "a\u{9b}31m\u{202e}b\u{2028}c";
        db.cli().stdin(format!("\"{nasty}\"")).run(&["queue", "--any-class", "work", "-"]).ok();
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"QueuedById\" = '{nasty}'"));
        let exported = db.cli().run(&["export"]).ok();
        assert!(exported.contains("a\\u009b31m\\u202eb\\u2028c"), "{exported}");
        assert!(!exported.contains(['\u{9b}', '\u{202e}', '\u{2028}']), "{exported}");
        db.cli().stdin(exported.clone()).run(&["import"]).ok();
        let data = "SELECT \"TaskData\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"";
        assert_eq!(db.raw().texts(data), vec![Some(format!("\"{nasty}\"")); 2]);
        let names = "SELECT \"QueuedById\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"";
        assert_eq!(db.raw().texts(names), vec![Some(nasty.to_owned()); 2]);
        assert_eq!(db.cli().run(&["export", "1"]).ok(), exported);
    }

    fn an_export_ends_when_nobody_reads_on(db) {
        use std::ops::ControlFlow;
        use taskqueue::engine::EngineResult;
        use taskqueue::engine::transfer::{Exported, export_all, export_selected};
        let mut ctx = crate::conformance::fixture::willing(db);
        let ids: Vec<_> = (0..3).map(|_| crate::conformance::fixture::queue(&mut ctx, "work")).collect();
        for wanted in 1..=2 {
            let mut lines = 0;
            let mut hear = |_line: String| {
                lines += 1;
                EngineResult::Ok(if lines == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            assert_eq!(export_all(&mut ctx, &mut hear).unwrap(), Exported::default());
            assert_eq!(lines, wanted);
            let mut lines = 0;
            let mut hear = |_line: String| {
                lines += 1;
                EngineResult::Ok(if lines == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            assert_eq!(export_selected(&mut ctx, &ids, &mut hear).unwrap(), Exported::default());
            assert_eq!(lines, wanted);
        }
        // More than any pipe holds, so that it cannot be done before its reader goes.
        let data = format!("\"{}\"", "x".repeat(300_000));
        db.cli().stdin(data).run(&["queue", "--any-class", "work", "-"]).ok();
        for args in [&["export"][..], &["export", "class=work"]] {
            let mut exporting = db.cli().spawn(args);
            let mut first = String::new();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(exporting.stdout.take().unwrap()), &mut first).unwrap();
            assert_eq!(first, "{\"taskqueue_export\":1}\n");
            let ended = crate::support::cli::finish(exporting);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
        }
    }

    fn dependencies_go_with_their_tasks_and_nobody_waits_in_vain(db) {
        db.configure(&shell_class(db, "work", "exit 0"));
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "work", "--in", "1h"]).ok();
        db.cli().run(&["queue", "work", "--after", "1", "--after", "2"]).ok();
        let exported = db.cli().run(&["export"]).ok();
        let alone = db.cli().run(&["export", "3"]);
        assert!(alone.stderr.contains("warning: task 3 waits for task 2, which is not exported: "), "{alone:?}");
        let (error, _) = error_and_hint(&db.cli().stdin(alone.stdout).run(&["import"]).fails(2));
        assert!(error.contains("task 3 waits for task 2, which is not in the export"), "{error}");
        db.cli().stdin(exported).run(&["import"]).ok();
        let edges = "SELECT \"DependsOnId\" AS value FROM \"TaskQueueDependencies\" WHERE \"TaskId\" = 6 ORDER BY \"DependsOnId\"";
        assert_eq!(db.raw().numbers(edges).into_iter().flatten().next_back(), Some(5));
        db.execute("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 5");
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "6")["status"], &task(db, "3")["status"]), (&"success".into(), &"scheduled".into()));
    }

    fn what_a_task_waits_for_is_exported_with_it_where_that_is_wanted(db) {
        for after in [&[][..], &["1"], &["2"], &[]] {
            let after: Vec<&str> = after.iter().flat_map(|id| ["--after", *id]).collect();
            db.cli().run(&[&["queue", "--any-class", "work"][..], after.as_slice()].concat()).ok();
        }
        let chain = db.cli().run(&["export", "3", "--prerequisites"]);
        assert_eq!((chain.code, chain.stderr.as_str()), (Some(0), "exported 3 tasks\n"));
        let other = elsewhere(db);
        other.clone().stdin(chain.stdout).run(&["import"]).ok();
        assert_eq!(other.run(&["status", "--json", "3"]).json()["task"]["waiting_for"], 1);
    }

    fn what_is_over_or_has_been_satisfied_since_waits_for_nobody_in_another_store(db) {
        for after in [&[][..], &["1"], &["1"], &["1"]] {
            let after: Vec<&str> = after.iter().flat_map(|id| ["--after", *id]).collect();
            db.cli().run(&[&["queue", "--any-class", "work"][..], after.as_slice()].concat()).ok();
        }
        db.cli().run(&["cancel", "2"]).ok();
        // The row of task 3 was read before task 1 succeeded, that of task 4 afterwards.
        let before = db.cli().run(&["export", "2", "3"]).ok();
        db.configure(&shell_class(db, "work", "exit 0"));
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run"]).ok();
        let after = db.cli().run(&["export", "1", "4"]).ok();
        let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());

        let alone = [before[0], before[1], "{\"end_of_export\":1}"].join("\n");
        let mixed = [&after[..2], &before[1..3], &after[2..3], &["{\"end_of_export\":4}"]].concat().join("\n");
        for text in [alone, mixed] {
            clear(db);
            db.execute("DELETE FROM \"TaskQueueDependencies\"");
            db.cli().stdin(text).run(&["import"]).ok();
            assert_eq!(db.number("SELECT SUM(\"WaitingFor\") AS value FROM \"TaskQueue\""), 0);
            assert_eq!(task(db, "2")["status"], "cancelled");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\""), 3);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"DueOn\" IS NOT NULL"), 2);
    }

    fn who_was_read_while_the_task_before_succeeded_does_not_wait_for_ever(db) {
        db.configure(&shell_class(db, "work", "exit 0"));
        for after in [&[][..], &["--after", "1"], &[], &["--after", "1,3"]] {
            db.cli().run(&[&["queue", "work"][..], after].concat()).ok();
        }
        let exported = db.cli().run(&["export"]).ok();
        let lines: Vec<serde_json::Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let text = |lines: &[serde_json::Value]| lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let waiting = || -> Vec<i64> {
            let numbers = "SELECT 0 * \"Id\" + \"WaitingFor\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"";
            db.raw().numbers(numbers).into_iter().flatten().collect()
        };
        // Between the rows and their dependencies, as the page of task 1 was read before it.
        let mut torn = lines.clone();
        for line in [2, 4] {
            torn[line]["after"][0]["is_satisfied"] = true.into();
        }
        // On a later page than those that wait for it.
        let mut late = lines;
        late[1]["task"]["last_status"] = "success".into();
        for (tasks, what) in [(torn, "torn"), (late, "late")] {
            clear(db);
            db.execute("DELETE FROM \"TaskQueueDependencies\"");
            db.cli().stdin(text(&tasks)).run(&["import"]).ok();
            assert_eq!(waiting(), [0, 0, 0, 1], "{what}");
            let open = "SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\" WHERE \"IsSatisfied\" = false";
            assert_eq!(db.number(open), 1, "{what}");
            db.cli().run(&["tick"]).ok();
            assert_eq!(task(db, "4")["status"], "success", "{what}");
        }
    }

    fn what_was_queued_again_and_is_processed_is_processed_where_it_comes_to(db) {
        use crate::conformance::fixture::{claim, create, drain, queue, willing};
        let mut ctx = willing(db);
        queue(&mut ctx, "work");
        create(&mut ctx);
        drain(&mut ctx);
        queue(&mut ctx, "work");
        create(&mut ctx);
        db.cli().run(&["cancel", "2"]).ok();
        db.cli().run(&["requeue", "1", "2"]).ok();
        create(&mut ctx);
        claim(&mut ctx.store).unwrap();
        claim(&mut ctx.store).unwrap();
        let exported = db.cli().run(&["export"]).ok();
        clear(db);
        db.cli().stdin(exported).run(&["import"]).ok();
        assert_eq!((&task(db, "1")["status"], &task(db, "2")["status"]), (&"scheduled".into(), &"scheduled".into()));
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 2);
    }

    fn what_waits_or_is_processed_is_tried_again_where_it_comes_to(db) {
        use crate::conformance::fixture::{claim, create, queue, willing};
        let mut ctx = willing(db);
        queue(&mut ctx, "work");
        queue(&mut ctx, "work");
        create(&mut ctx);
        claim(&mut ctx.store).unwrap();
        let exported = db.cli().run(&["export"]).ok();
        clear(db);
        db.cli().stdin(exported).run(&["import"]).ok();
        assert_eq!(task(db, "1")["status"], "scheduled");
        assert_eq!(create(&mut ctx).created, 2);
        assert_eq!(crate::conformance::fixture::drain(&mut ctx).succeeded, 2);
        let runs = db.raw().texts("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" ORDER BY \"TaskQueueId\", \"Id\"");
        assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), ["released", "success", "success"]);
    }

    fn what_is_no_whole_export_is_refused_and_nothing_of_it_stays(db) {
        fill(db);
        let exported = db.cli().run(&["export"]).ok();
        clear(db);
        let (cut, _) = exported.rsplit_once('\n').unwrap();
        let lines: Vec<&str> = exported.lines().collect();
        let missing = [&lines[..3], &lines[4..]].concat().join("\n");
        for (text, why) in [
            ("", "no export"),
            ("{\"class\":\"work\"}", "no export"),
            ("{\"taskqueue_export\":2}", "version 2"),
            (cut, "cut off"),
            (missing.as_str(), "6 tasks were exported, and here are 5"),
            (exported.replacen("\"attempts\"", "\"tries\"", 1).as_str(), "line 2: "),
            (exported.replacen("\"task_class\":\"work\"", "\"task_class\":\"wo/rk\"", 1).as_str(), "line 2: the task class has the character '/'"),
            (exported.replacen("\"max_retries\":1,", "\"max_retries\":\"x\",", 1).as_str(), "expected a whole number at column "),
        ] {
            let (error, _) = error_and_hint(&db.cli().stdin(text).run(&["import"]).fails(2));
            assert!(error.contains(why), "{error}");
        }
        // The database refuses the last of them.
        let bad = exported.replacen("\"last_status\":\"cancelled\"", "\"last_status\":\"nonsense\"", 1);
        assert_ne!(bad, exported);
        let (error, _) = error_and_hint(&db.cli().stdin(bad).run(&["import"]).fails(2));
        assert_eq!(error, "error: line 7: task 6 breaks a rule of the tables: LastStatus is known");
        for table in TABLES {
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"{table}\"")), 0, "{table}");
        }
    }
}
