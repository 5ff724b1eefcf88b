//! `edit` and `retry`: changes existing tasks, and runs finished ones again.

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_store::{EndResult, RunEnd};

use super::{ECHO, detail, error_and_hint, printed, shell_class, task, wait_for_file, write};
use crate::conformance::fixture::{claim_as, create, dead_process, ending, reference, request, willing};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

fn runs(db: &TestDb, id: &str) -> Vec<String> {
    let runs = detail(db, id)["runs"].as_array().unwrap().clone();
    runs.iter().map(|run| run["status"].as_str().unwrap().to_owned()).collect()
}

each_engine! {
    fn each_thing_can_be_changed_and_the_next_attempt_sees_it(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "1", "--timeout", "5m", "--backoff", "fixed:1m"]).ok();
        let args = ["edit", "1", "--data", "-", "--priority", "-7", "--max-retries", "9", "--timeout", "none", "--backoff", "list:1m,2m"];
        let ended = db.cli().stdin("{\"a\": 1.50}").run(&args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "task 1 is edited\n"));
        let after = task(db, "1");
        assert_eq!((&after["priority"], &after["max_retries"], &after["timeout_secs"]), (&(-7).into(), &9.into(), &serde_json::Value::Null));
        assert_eq!(after["backoff"], "list:60s,120s");
        assert_eq!(db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\"").as_deref(), Some("{\"a\": 1.50}"));
        db.cli().run(&["edit", "1", "--at", "2099-01-01T00:00:00Z", "--backoff", "none"]).ok();
        let after = task(db, "1");
        assert_eq!((after["scheduled_on"].as_str(), &after["backoff"]), (Some("2099-01-01T00:00:00Z"), &serde_json::Value::Null));
        db.cli().run(&["edit", "1", "--at", "2020-01-01T00:00:00Z"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(printed(&detail(db, "1"), "stdout"), "{\"a\": 1.50}");
        let events = detail(db, "1")["events"].as_array().unwrap().clone();
        assert_eq!(events.len(), 3);
        assert_eq!(events[2]["kind"], "edited");
        let details = &events[2]["details"];
        assert_eq!(details["columns"], serde_json::json!(["TaskData", "MaxRetries", "Timeout", "Priority", "Backoff"]));
        assert_eq!(details["before"]["TaskData"], "1");
        assert_eq!((&details["before"]["Timeout"], &details["before"]["Backoff"]), (&300.into(), &"fixed:60s".into()));
        assert_eq!(details["before"].as_object().unwrap().len(), 5);
    }

    fn an_edit_of_a_finished_task_says_that_it_will_not_run_again(db) {
        db.configure(&format!("{ECHO}{}", super::shell_class(db, "bad", "exit 65")));
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["tick"]).ok();
        let edit = |args: &[&str]| db.cli().run(&[&["edit"], args].concat()).stderr;
        assert_eq!(edit(&["1", "--priority", "3"]), "task 1 is edited; it will not run again unless you run `taskqueue retry 1`\n");
        assert_eq!(edit(&["2", "--data", "4"]), "task 2 is edited; it will not run again unless you run `taskqueue retry 2`\n");
        assert_eq!(edit(&["1", "--keep", "1h"]), "task 1 is edited\n");
    }

    fn a_run_that_waits_follows_its_task(db) {
        db.configure(ECHO);
        for _ in 0..3 {
            db.cli().run(&["queue", "echo"]).ok();
        }
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["edit", "3", "--priority", "1"]).ok();
        db.cli().run(&["edit", "1", "--in", "1h"]).ok();
        // It has the highest priority.
        db.cli().run(&["process-run"]).ok();
        assert_eq!([task(db, "2")["status"].as_str(), task(db, "3")["status"].as_str()], [Some("scheduled"), Some("success")]);
        assert_eq!(runs(db, "1"), ["released"]);
        let after = detail(db, "1");
        assert_eq!((&after["task"]["attempts"], &after["why"]["reason"]), (&0.into(), &"not_yet".into()));
        db.cli().run(&["edit", "1", "--at", "2020-01-01T00:00:00Z"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(runs(db, "1"), ["success", "released"]);
        assert_eq!(detail(db, "1")["runs"][0]["attempt"], 1);
    }

    fn a_time_that_is_set_during_an_attempt_holds_however_that_ends(db) {
        let mut ctx = willing(db);
        let mut check = |event: Option<RunEvent>, delay_secs: Option<i64>| {
            let requested = TaskRequest { backoff: Some("fixed:60s".to_owned()), ..request("work") };
            let id = queue_task(&mut ctx, requested, ClassCheck::AnyName).unwrap();
            ctx.store.open_run_of(id).unwrap();
            let run = claim_as(&mut ctx.store, &event.map_or_else(dead_process, |_| ProcessIdentity::own().unwrap())).unwrap();
            db.cli().run(&["edit", &id.to_string(), "--at", "2090-01-01T00:00:00Z"]).ok();
            match event {
                Some(event) => {
                    let end = RunEnd { delay_secs, ..ending(event) };
                    assert_eq!(ctx.store.end_run(&reference(&run), &end).unwrap(), EndResult::Recorded);
                }
                None => assert_eq!(create(&mut ctx).rescue.rescued.len(), 1),
            }
            let after = task(db, &id.to_string());
            let due = [&after["next_attempt_on"], &after["scheduled_on"]].into_iter().find(|on| !on.is_null());
            assert_eq!(due.unwrap(), "2090-01-01T00:00:00Z", "{event:?} {delay_secs:?} {after}");
        };
        check(Some(RunEvent::Fail), None);
        check(Some(RunEvent::Fail), Some(30));
        check(Some(RunEvent::TimeOut), None);
        check(Some(RunEvent::Release), Some(30));
        check(None, None);
    }

    fn a_time_beyond_2038_is_kept(db) {
        db.cli().run(&["queue", "--any-class", "x"]).ok();
        db.cli().run(&["edit", "1", "--at", "2345-06-07T08:09:10Z"]).ok();
        assert_eq!(task(db, "1")["scheduled_on"], "2345-06-07T08:09:10Z");
    }

    fn a_stale_edit_is_refused_and_shows_what_is_there(db) {
        db.cli().run(&["queue", "--any-class", "x", "1"]).ok();
        let version = task(db, "1")["updated_on"].as_str().unwrap().to_owned();
        db.cli().run(&["edit", "1", "--data", "2", "--if-updated-on", &version]).ok();
        let ended = db.cli().run(&["edit", "1", "--data", "3", "--if-updated-on", &version]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.stderr, "warning: task 1 has been changed since; it was not edited\n");
        let newer = task(db, "1")["updated_on"].as_str().unwrap().to_owned();
        assert!(ended.stdout.contains("data         2\n") && ended.stdout.contains("updated on"), "{ended:?}");
        let ended = db.cli().run(&["edit", "--json", "1", "--data", "3", "--if-updated-on", &version]);
        let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&answer["task"]["data"], answer["task"]["updated_on"].as_str()), (&2.into(), Some(newer.as_str())));
        assert_eq!(db.cli().run(&["edit", "1", "--dry-run", "--data", "3", "--if-updated-on", &version]).code, Some(1));
        db.cli().run(&["edit", "1", "--data", "3", "--if-updated-on", &newer]).ok();
        // Two edits shortly after each other make two versions.
        let mut versions = std::collections::BTreeSet::new();
        let mut ctx = crate::conformance::fixture::willing(db);
        for priority in 0..20 {
            let change = taskqueue_domain::task::task_change::ChangeRequest { priority: Some(priority), ..Default::default() };
            let edit = taskqueue_engine::change::edit::Edit { change, if_version: None };
            let id = taskqueue_domain::task::ids::TaskId(1);
            taskqueue_engine::change::edit::edit_tasks(&mut ctx, &[id], &edit, &mut |_| {}).unwrap();
            versions.insert(ctx.store.get_task(id).unwrap().updated_on);
        }
        assert_eq!(versions.len(), 20);
    }

    fn what_cannot_be_is_refused_and_changes_nothing(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('exec')");
        let before = task(db, "1");
        for (args, part) in [
            (["edit", "1"].as_slice(), "nothing to change: give --data, --at"),
            (&["edit", "1", "--data", "{"], "the data"),
            (&["edit", "1", "--priority", "1001"], "-1000 to 1000"),
            (&["edit", "1", "--timeout", "1.5s"], "fraction"),
            (&["edit", "1", "--backoff", "2h"], "not a backoff"),
            (&["edit", "1", "--at", "2036-12-31T23:59:60Z"], "not a time"),
            (&["edit", "1", "2", "--data", "{}"], "task 2"),
        ] {
            let (error, _) = error_and_hint(&db.cli().run(args).fails(2));
            assert!(error.contains(part), "{args:?}: {error}");
        }
        assert_eq!(task(db, "1"), before);
        assert_eq!(db.cli().run(&["edit", "9", "--priority", "1"]).code, Some(3));
    }

    fn the_attempt_that_runs_keeps_its_data(db) {
        let script = format!("cd {}; cat > data.new; mv data.new data; until test -e go; do sleep 0.02; done; exit $(($(cat data) % 2))", db.home().display());
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "work", &script)));
        db.cli().stdin("1\n").run(&["queue", "work", "-"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        wait_for_file(db, "data");
        let ended = db.cli().run(&["edit", "1", "--data", "2"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "task 1 is edited; the attempt in progress does not see it\n"));
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        db.cli().run(&["tick"]).ok();
        assert_eq!(runs(db, "1"), ["success", "error"]);
    }

    fn what_is_over_is_queued_again_as_the_same_task(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        for class in ["echo", "bad", "echo"] {
            db.cli().run(&["queue", class, "[1]"]).ok();
        }
        db.cli().run(&["cancel", "3"]).ok();
        db.cli().run(&["tick"]).ok();
        let ended = db.cli().run(&["retry", "1", "2", "3", "4"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let said: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(said, ["task 1 is retried", "task 2 is retried", "task 3 is retried", "warning: there is no task 4"]);
        for (id, status) in [("1", "scheduled"), ("2", "failed"), ("3", "scheduled")] {
            let after = detail(db, id);
            assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"]), (&status.into(), &0.into()));
            assert_eq!(after["why"]["reason"], "waits_for_create_runs");
        }
        let again = db.cli().run(&["retry", "1"]);
        assert_eq!((again.code, again.stderr.as_str()), (Some(1), "warning: task 1 has the status scheduled; it has not finished\n"));
        db.cli().run(&["tick"]).ok();
        assert_eq!(runs(db, "1"), ["success", "success"]);
        assert_eq!(runs(db, "3"), ["success"]);
        assert_eq!((&detail(db, "1")["runs"][0]["attempt"], &task(db, "1")["attempts"]), (&2.into(), &2.into()));
    }

    fn a_task_that_was_queued_again_is_not_lost_when_its_run_is_given_back(db) {
        let give_back_once = format!("cd {}; test -e back && exit 0; touch back; exit 99", db.home().display());
        db.configure(&shell_class(db, "work", "exit 0"));
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["cancel", "2"]).ok();
        db.cli().run(&["tick"]).ok();
        db.configure(&shell_class(db, "work", &give_back_once));
        for id in ["1", "2"] {
            let _ = std::fs::remove_file(db.home().join("back"));
            db.cli().run(&["retry", id]).ok();
            db.cli().run(&["create-runs"]).ok();
            db.cli().run(&["process-run"]).ok();
            assert_eq!(task(db, id)["status"], "scheduled");
            db.cli().run(&["tick"]).ok();
            assert_eq!((task(db, id)["status"].as_str(), runs(db, id)[0].as_str()), (Some("success"), "success"));
        }
    }

    fn a_dry_run_of_an_edit_refuses_what_the_edit_would_refuse(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["schedule", "pause", "1", "--for", "7d"]).ok();
        db.cli().run(&["queue", "bad", "--unique", "k", "--max-retries", "1"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "bad", "--unique", "k", "--in", "1h"]).ok();
        let long = |name: &str| format!("{name}={}", "x".repeat(40_000));
        db.cli().run(&["queue", "echo", "--meta", &long("a"), "--in", "1h"]).ok();
        let rows = ["1", "2", "3", "4"].map(|id| task(db, id));
        for (args, part) in [
            (["1", "--in", "0s"], "its schedule skips "),
            (["2", "--max-retries", "3"], "has its key"),
            (["4", "--meta", &long("b")], "its metadata would exceed"),
        ] {
            let edit = [&["edit"], args.as_slice()].concat();
            let dry = db.cli().run(&[&edit[..], &["--dry-run"]].concat()).fails(1);
            assert!(dry.contains(part), "{args:?}: {dry}");
            assert_eq!(dry, db.cli().run(&edit).fails(1));
        }
        assert_eq!(["1", "2", "3", "4"].map(|id| task(db, id)), rows);
        // The first of two that end with one key takes it.
        for id in ["5", "6"] {
            assert_eq!(db.cli().run(&["queue", "bad", "--unique", "two", "--max-retries", "1"]).ok().trim(), id);
            db.cli().run(&["tick"]).ok();
        }
        let both = ["edit", "5", "6", "--max-retries", "3"];
        let dry = db.cli().run(&[&both[..], &["--dry-run"]].concat());
        assert!(dry.stderr.starts_with("task 5 would be edited\n"), "{dry:?}");
        assert_eq!(db.cli().run(&["events", "--kind", "edited", "--json"]).ok(), "");
        let refusal = dry.stderr.lines().last().unwrap();
        assert!(refusal.contains("task 6 is not edited") && db.cli().run(&both).stderr.contains(refusal), "{dry:?}");
    }
}
