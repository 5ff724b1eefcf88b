//! Tasks that wait for others: queued one by one, in a batch by name, and what is shown while they wait.

use serde_json::{Value, json};

use super::{ECHO, count_tasks, detail, error_and_hint, queue_lines, shell_class, task, tick, write};
use crate::each_engine;
use crate::support::TestDb;

/// A class that records its data in the order of execution, and fails while a file of that name exists.
fn configure(db: &TestDb) {
    let home = db.home().display();
    let script = format!("read data; echo $data >> {home}/order; test ! -e {home}/$data");
    db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "note", &script)));
}

fn order(db: &TestDb) -> Vec<String> {
    let text = std::fs::read_to_string(db.home().join("order")).unwrap_or_default();
    text.lines().map(|line| line.trim_matches('"').to_owned()).collect()
}

fn note(db: &TestDb, data: &str, more: &[&str]) -> String {
    db.cli().run(&[&["queue", "note", &format!("{data}\n")], more].concat()).ok()
}

each_engine! {
    fn a_task_waits_until_all_for_which_it_waits_have_succeeded(db) {
        configure(db);
        note(db, "1", &["--in", "1h"]);
        note(db, "2", &[]);
        assert_eq!(note(db, "3", &["--after", "1,2", "--after", "2"]), "3");
        tick(db);
        assert_eq!(order(db), ["2"]);
        let waiting = detail(db, "3");
        assert_eq!((&waiting["task"]["waiting_for"], &waiting["task"]["status"]), (&1.into(), &"scheduled".into()));
        assert_eq!(waiting["why"], json!({ "reason": "waits_for_dependencies", "count": 1, "on": [
            { "id": 1, "class": "note", "status": "scheduled", "is_settled": false, "is_satisfied": false,
              "needs_success": true }] }));
        let prerequisites = waiting["prerequisites"].as_array().unwrap();
        assert_eq!(prerequisites.iter().map(|task| &task["id"]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(detail(db, "2")["dependants"][0]["id"], 3);
        let shown = db.cli().run(&["status", "3"]).ok();
        assert!(shown.contains("why          waits for 1 (scheduled)\n"), "{shown}");
        assert!(shown.contains("after        1 (scheduled), 2 (success)\n"), "{shown}");
        assert!(db.cli().run(&["status", "1"]).ok().contains("before       3 (scheduled)\n"));
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 1");
        // In one tick: a task that became due by a success gets its run at once.
        tick(db);
        assert_eq!(order(db), ["2", "1", "3"]);
        assert_eq!(task(db, "3")["waiting_for"], 0);
    }

    fn after_any_waits_for_an_end_of_any_kind(db) {
        configure(db);
        write(db, "1", "");
        write(db, "5", "");
        note(db, "1", &["--max-retries", "1"]);
        for data in ["2", "3", "4"] {
            note(db, data, &["--in", "1h"]);
        }
        note(db, "5", &["--max-retries", "2", "--backoff", "fixed:1h"]);
        note(db, "6", &["--in", "1h"]);
        note(db, "7", &[]);
        note(db, "8", &["--after-any", "1,2,3", "--after-any", "4,5,6", "--after", "7"]);
        // 1 is in both lists: its success is needed.
        note(db, "9", &["--after-any", "1", "--after", "1"]);
        let waiting = |id: &str| task(db, id)["waiting_for"].as_i64().unwrap();
        assert_eq!((waiting("8"), waiting("9")), (7, 1));
        let shown = db.cli().run(&["status", "8"]).ok();
        assert!(shown.contains("waits for 1 (scheduled; any end is enough), 2 "), "{shown}");
        assert!(shown.contains(", 7 (scheduled)"), "{shown}");
        // A failure that is not retried, and a success; the first failure of 5 ends nothing.
        tick(db);
        assert_eq!((order(db), waiting("8"), waiting("9")), (["1", "5", "7"].map(str::to_owned).to_vec(), 5, 1));
        let _ = db.cli().run(&["cancel", "2"]).ok();
        assert_eq!(waiting("8"), 4);
        let _ = db.cli().run(&["edit", "5", "--max-retries", "1"]).ok();
        assert_eq!(waiting("8"), 3);
        // An expired task, and tasks that a plain UPDATE has ended.
        db.execute("UPDATE \"TaskQueue\" SET \"StartBefore\" = '2020-01-01 00:00:00' WHERE \"Id\" = 3");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 4");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"QuarantinedOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 6");
        tick(db);
        assert_eq!((order(db).last().map(String::as_str), waiting("8"), waiting("9")), (Some("8"), 0, 1));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\" WHERE \"AwaitedEnd\" IS NOT NULL"), 0);
        let links = detail(db, "8")["prerequisites"].clone();
        assert_eq!([0, 6].map(|place: usize| links[place]["needs_success"].as_bool()), [Some(false), Some(true)]);
        // What is finished already blocks no new task.
        note(db, "10", &["--after-any", "1,2,3,4,5,6,7"]);
        assert_eq!(waiting("10"), 0);
        assert!(db.cli().run(&["queue", "note", "--run", "--after-any", "1"]).fails(2).contains("--after-any"));
    }

    fn a_task_waits_for_the_open_run_of_a_task_whose_retries_are_lowered(db) {
        configure(db);
        write(db, "1", "");
        note(db, "1", &["--max-retries", "3", "--backoff", "fixed:0s"]);
        note(db, "2", &["--after-any", "1"]);
        let waiting = |id: &str| task(db, id)["waiting_for"].as_i64().unwrap();
        db.cli().run(&["create-runs"]).ok();
        let _ = db.cli().run(&["process-run"]);
        // Its retry waits to be claimed. It will be executed, although no other one would follow.
        db.cli().run(&["create-runs"]).ok();
        let _ = db.cli().run(&["edit", "1", "--max-retries", "1"]).ok();
        db.cli().run(&["create-runs"]).ok();
        note(db, "3", &["--after-any", "1"]);
        assert_eq!((waiting("2"), waiting("3")), (1, 1));
        let _ = db.cli().run(&["process-run"]);
        assert_eq!((waiting("2"), waiting("3")), (0, 0));
    }

    fn lines_wait_for_any_end_of_others_also_after_an_import(db) {
        configure(db);
        write(db, "fetch", "");
        queue_lines(db, &[
            json!({ "class": "note", "data": "report", "after": ["index"], "after_any": ["fetch", 3] }),
            json!({ "class": "note", "data": "index", "name": "index" }),
        ]).fails(2);
        let lines = [
            json!({ "class": "note", "data": "report", "after": ["index"], "after_any": ["fetch", "index"] }),
            json!({ "class": "note", "data": "index", "name": "index" }),
            json!({ "class": "note", "data": "fetch", "name": "fetch", "max_retries": 1 }),
        ];
        queue_lines(db, &lines).ok();
        let exported = db.cli().run(&["export"]).ok();
        tick(db);
        assert_eq!(order(db), ["index", "fetch", "report"]);
        db.cli().stdin(exported.clone()).run(&["import"]).ok();
        assert_eq!(task(db, "4")["waiting_for"], 2);
        tick(db);
        assert_eq!(order(db)[3..], ["index", "fetch", "report"]);
        // Exported after the failure, on a later page than the task that waits.
        let mut late: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        late[3]["task"]["last_status"] = "failed".into();
        late[3]["task"]["failed_retries"] = 1.into();
        db.cli().stdin(late.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).run(&["import"]).ok();
        assert_eq!(task(db, "7")["waiting_for"], 1);
        let round = [("a", "after", "b"), ("b", "after_any", "a")].map(|(name, key, other)| json!({ "class": "note", "name": name, key: [other] }));
        assert!(queue_lines(db, &round).stderr.contains("would wait for each other forever"));
    }

    fn a_circle_that_was_written_by_sql_is_named_and_not_imported(db) {
        configure(db);
        for data in ["1", "2", "3", "4"] {
            note(db, data, &[]);
        }
        // 1 after 3 after 2 after 1; 4 waits for one of them and is not part of the circle.
        for (dependant, prerequisite) in [(1, 3), (3, 2), (2, 1), (4, 1)] {
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1 WHERE \"Id\" = {dependant}"));
            db.execute(&format!(
                "INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\", \"IsSatisfied\") VALUES ({dependant}, {prerequisite}, (1 = 0))"
            ));
        }
        tick(db);
        assert_eq!(order(db), Vec::<String>::new());
        assert_eq!(detail(db, "2")["circle"], json!([2, 1, 3, 2]));
        assert_eq!(detail(db, "4")["circle"], Value::Null);
        let shown = db.cli().run(&["status", "1"]).ok();
        assert!(shown.contains("circle       1 after 3 after 2 after 1: they wait for each other forever\n"), "{shown}");
        let exported = db.cli().run(&["export"]).ok();
        let refused = db.cli().stdin(exported).run(&["import"]);
        let error = "error: these tasks would wait for each other forever: 1 after 3 after 2 after 1";
        assert_eq!((refused.code, error_and_hint(&refused.stderr).0.as_str()), (Some(2), error));
        assert_eq!(count_tasks(db), 4);
        // As documented in docs/tasks.md.
        db.execute("DELETE FROM \"TaskQueueDependencies\" WHERE \"TaskId\" = 2");
        db.execute("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 0 WHERE \"Id\" = 2");
        assert_eq!(detail(db, "1")["circle"], Value::Null);
        tick(db);
        assert_eq!(order(db), ["2", "3", "1", "4"]);
    }

    fn a_task_that_waits_for_what_has_succeeded_does_not_wait(db) {
        configure(db);
        note(db, "1", &[]);
        tick(db);
        note(db, "2", &["--after", "1"]);
        assert_eq!(task(db, "2")["waiting_for"], 0);
        assert_eq!(detail(db, "2")["prerequisites"][0]["is_satisfied"], true);
        tick(db);
        assert_eq!(order(db), ["1", "2"]);
    }

    fn a_task_that_failed_keeps_its_dependants_waiting_until_it_is_retried(db) {
        configure(db);
        write(db, "1", "");
        note(db, "1", &["--max-retries", "1"]);
        note(db, "2", &["--after", "1"]);
        note(db, "3", &["--after", "2"]);
        tick(db);
        let list = db.cli().run(&["status"]).ok();
        assert!(list.contains("waits for 1 (failed, not retried)"), "{list}");
        assert!(list.contains("waits for 2 (scheduled)"), "{list}");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 1");
        assert!(db.cli().run(&["status", "2"]).ok().contains("waits for 1 (cancelled)"));
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed' WHERE \"Id\" = 1");
        std::fs::remove_file(db.home().join("1")).unwrap();
        let _ = db.cli().run(&["retry", "1"]).ok();
        tick(db);
        assert_eq!(order(db), ["1", "1", "2", "3"]);
    }

    fn a_task_that_succeeds_twice_satisfies_its_dependants_once(db) {
        configure(db);
        note(db, "1", &[]);
        note(db, "2", &["--in", "1h"]);
        note(db, "3", &["--after", "1,2"]);
        tick(db);
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'scheduled' WHERE \"Id\" = 1");
        tick(db);
        assert_eq!(order(db), ["1", "1"]);
        assert_eq!(task(db, "3")["waiting_for"], 1);
    }

    fn lines_of_a_batch_wait_for_lines_before_and_after_and_for_other_tasks(db) {
        configure(db);
        note(db, "0", &[]);
        let printed = queue_lines(db, &[
            json!({ "class": "note", "data": "send", "after": ["left", "right", "left"] }),
            json!({ "class": "note", "data": "left", "name": "left", "after": ["fetch"] }),
            json!({ "class": "note", "data": "right", "name": "right", "after": ["fetch"] }),
            json!({ "class": "note", "data": "fetch", "name": "fetch", "after": [1] }),
        ]).ok();
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "id": 2, "arrival": "queued" }));
        assert_eq!(lines[1..].iter().map(|line| (&line["id"], &line["name"])).collect::<Vec<_>>(),
            [(&json!(3), &json!("left")), (&json!(4), &json!("right")), (&json!(5), &json!("fetch"))]);
        assert_eq!(["2", "3", "4", "5"].map(|id| task(db, id)["waiting_for"].as_i64().unwrap()), [2, 1, 1, 1]);
        tick(db);
        assert_eq!(order(db), ["0", "fetch", "left", "right", "send"]);
    }

    fn what_can_never_run_is_refused_with_its_line_and_nothing_is_queued(db) {
        db.configure(ECHO);
        let good = json!({ "class": "echo", "name": "good" });
        for (bad, why) in [
            (json!({ "class": "echo", "name": "bad", "after": ["bad"] }), "forever: \"bad\" after \"bad\""),
            (json!({ "class": "echo", "after": ["no"] }), "no line has the name \"no\""),
            (json!({ "class": "echo", "name": "good", "after": ["good"] }), "several lines have the name \"good\""),
            (json!({ "class": "echo", "after": [4711] }), "there is no task 4711"),
            (json!({ "class": "echo", "after": [0] }), "0 is not an id"),
            (json!({ "class": "echo", "after": "good" }), "expected a list"),
            (json!({ "class": "echo", "after": [1.5] }), "\"after\" and \"after_any\" must be lists of ids"),
            (json!({ "class": "echo", "name": "" }), "1 to 190 characters"),
        ] {
            let (error, _) = error_and_hint(&db.cli().stdin(format!("{good}\n\n{bad}")).run(&["queue", "--batch", "-"]).fails(2));
            assert!(error.starts_with("error: line 3: ") && error.contains(why), "{bad}: {error}");
        }
        let round = [("a", "b"), ("b", "c"), ("c", "a")]
            .map(|(name, after)| json!({ "class": "echo", "name": name, "after": [after] }));
        let ended = queue_lines(db, &round);
        assert!(ended.stderr.contains("\\\"a\\\" after \\\"b\\\" after \\\"c\\\" after \\\"a\\\""), "{ended:?}");
        assert_eq!(ended.code, Some(2));
        let (error, _) = error_and_hint(&db.cli().run(&["queue", "echo", "--after", "7"]).fails(2));
        assert_eq!(error, "error: there is no task 7 to wait for");
        for bad in ["0", "x", ""] {
            assert_eq!(db.cli().run(&["queue", "echo", "--after", bad]).code, Some(2), "{bad}");
        }
        assert!(db.cli().run(&["queue", "echo", "--run", "--after", "1"]).fails(2).contains("--after"));
        assert_eq!(count_tasks(db), 0);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\""), 0);
    }

    fn a_task_whose_prerequisite_is_gone_says_so(db) {
        configure(db);
        note(db, "1", &[]);
        note(db, "2", &["--after", "1"]);
        db.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" = 1");
        tick(db);
        assert!(db.cli().run(&["status", "2"]).ok().contains("waits for 1 (deleted)"));
    }
}
