//! Schedules whose tasks replace each other: a task that has not finished at the next planned time is cancelled, and the next one
//! starts when its run has ended. Planned times are 29ths of February, which the tests move into the past.

use rustix::process::Signal;
use serde_json::Value;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::TaskId;

use super::{ECHO, detail, error_and_hint, is_alive, shell_class, signal, task, wait_for_file};
use crate::conformance::fixture::{claim, claim_as, create, dead_process, ending, last_run, plan, reference, willing};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

const REPLACING: &str = "[schedule.poll]\nclass = \"work\"\nevery = \"0 0 29 2 *\"\noverlap = \"replace\"\n";
const REASON: &str = "replaced: the next time of schedule 1 (poll) has come";

/// Returns the kind and the reason of each event of a task.
fn events(db: &TestDb, id: &str) -> Vec<(String, Value)> {
    let events = detail(db, id)["events"].as_array().unwrap().clone();
    events
        .iter()
        .map(|event| (event["kind"].as_str().unwrap().to_owned(), event["details"]["reason"].clone()))
        .collect()
}

fn statuses(db: &TestDb) -> Vec<String> {
    db.raw().texts("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"").into_iter().flatten().collect()
}

fn create_runs(db: &TestDb) -> Value {
    db.cli().run(&["create-runs", "--json"]).json()
}

each_engine! {
    fn a_task_that_has_not_started_is_cancelled_at_the_next_time(db) {
        db.configure(&format!("{}{REPLACING}", shell_class(db, "work", "exit 1")));
        create_runs(db);
        plan(db, TaskId(1), 2024);
        // The next time is in 2028.
        assert_eq!((&create_runs(db)["replaced"], statuses(db).len()), (&0.into(), 1));
        assert!(task(db, "1")["current_run_id"].is_i64());
        plan(db, TaskId(1), 2020);
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "1 task cancelled, because the next time of the schedule has come\n");
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["runs"][0]["error_message"]), (&"cancelled".into(), &REASON.into()));
        assert_eq!(events(db, "1"), [("cancelled".to_owned(), REASON.into())]);
        assert!(db.cli().run(&["status", "1"]).ok().contains(REASON));
        let explained = db.cli().run(&["explain", "--json", "1"]).json();
        assert_eq!(explained["cause"]["why"]["reason"], "cancelled", "{explained}");
        let next = task(db, "2");
        assert_eq!((&next["schedule"]["planned_on"], &next["schedule"]["overlap"]), (&"2024-02-29T00:00:00Z".into(), &"replace".into()));
        // A task that waits for its retry, and then one that has no run.
        db.cli().run(&["process-run"]).ok();
        assert_eq!(task(db, "2")["status"], "failed");
        plan(db, TaskId(2), 2016);
        assert_eq!(create_runs(db)["replaced"], 1);
        db.cli().run(&["schedule", "pause", "poll"]).ok();
        assert_eq!((&create_runs(db)["replaced"], &task(db, "3")["current_run_id"]), (&0.into(), &Value::Null));
        db.cli().run(&["schedule", "resume", "poll"]).ok();
        plan(db, TaskId(3), 2012);
        assert_eq!((&create_runs(db)["replaced"], statuses(db)), (&1.into(), ["cancelled", "cancelled", "cancelled", "scheduled"].map(str::to_owned).to_vec()));
        assert_eq!(task(db, "4")["schedule"]["planned_on"], "2024-02-29T00:00:00Z");
        assert!(events(db, "3").contains(&("cancelled".to_owned(), REASON.into())));
        assert_eq!(create_runs(db)["replaced"], 0);
    }

    fn r9_a_task_that_names_a_run_that_is_not_open_stops_no_create_runs(db) {
        db.configure(&format!("{}{REPLACING}", shell_class(db, "work", "exit 1")));
        create_runs(db);
        plan(db, TaskId(1), 2024);
        db.cli().run(&["queue", "work", "--every", "0 0 29 2 *", "--overlap", "replace"]).ok();
        create_runs(db);
        db.cli().run(&["process-run"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"CurrentRunId\" = 4711 WHERE \"Id\" = 1");
        plan(db, TaskId(1), 2020);
        plan(db, TaskId(2), 2020);
        db.cli().run(&["queue", "work"]).ok();
        let report = create_runs(db);
        assert_eq!((&report["replaced"], task(db, "3")["current_run_id"].is_i64()), (&1.into(), true), "{report}");
        assert_eq!(statuses(db), ["failed", "cancelled", "scheduled", "scheduled"]);
        assert_eq!(task(db, "1")["current_run_id"], 4711);
    }

    fn a_run_in_progress_is_asked_to_end_once_and_the_next_begins_after_it(db) {
        db.configure(&format!("{}{REPLACING}", shell_class(db, "work", "true")));
        create_runs(db);
        let mut ctx = willing(db);
        plan(db, TaskId(1), 2024);
        create(&mut ctx);
        let run = claim(&mut ctx.store).unwrap();
        plan(db, TaskId(1), 2020);
        assert_eq!(create(&mut ctx).replaced, 1);
        // No second request, and no task beside it.
        assert_eq!((create(&mut ctx).replaced, statuses(db)), (0, vec!["processing".to_owned()]));
        let requests = ctx.store.list_run_requests(&[run.run_id]).unwrap();
        assert_eq!(requests[0].cancel_reason.as_deref(), Some(REASON));
        assert_eq!(events(db, "1"), [("cancel-requested".to_owned(), REASON.into())]);
        assert!(db.cli().run(&["status", "1"]).ok().contains(REASON));
        let explained = db.cli().run(&["explain", "1"]).ok();
        assert!(explained.contains(REASON), "{explained}");
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Fail)).unwrap();
        assert_eq!(statuses(db), ["cancelled", "scheduled"]);
        // The transaction that ended the run has created the next one. Its runner dies after it was asked to end.
        let next = claim_as(&mut ctx.store, &dead_process()).unwrap();
        assert_eq!((next.task_id, next.planned_on.to_rfc3339()), (TaskId(2), "2024-02-29T00:00:00+00:00".to_owned()));
        plan(db, TaskId(2), 2016);
        ctx.store.replace_overdue_tasks().unwrap();
        assert!(create(&mut ctx).rescue.rescued[0].is_cancelled);
        assert_eq!((last_run(db, TaskId(2)).status.to_string().as_str(), statuses(db)), ("cancelled", ["cancelled", "cancelled", "scheduled"].map(str::to_owned).to_vec()));
        // A run that succeeded nevertheless has succeeded.
        let run = claim(&mut ctx.store).unwrap();
        plan(db, TaskId(3), 2012);
        create(&mut ctx);
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Succeed)).unwrap();
        assert_eq!(statuses(db), ["cancelled", "cancelled", "success", "scheduled"]);
    }

    fn a_worker_replaces_the_task_in_progress_and_never_runs_two(db) {
        let script = format!(
            "cd {}; mkdir alone || touch beside; trap 'sleep 0.2; rmdir alone; exit 0' TERM
             echo $$ > pid.new; mv pid.new pid-$TASKQUEUE_TASK_ID; while :; do sleep 0.02; done",
            db.home().display()
        );
        db.configure(&format!("[exec]\nenabled = true\n{}", shell_class(db, "work", &script)));
        let argv = ["/bin/sh", db.home().join("work.sh").to_str().unwrap()].map(str::to_owned);
        let add = ["schedule", "add", "poll", "0 0 29 2 *", "--tz", "UTC", "--overlap", "replace", "--", &argv[0], &argv[1]];
        db.cli().run(&add).ok();
        plan(db, TaskId(1), 2024);
        let worker = db.cli().spawn(&["work", "--slots", "2"]);
        let first = wait_for_file(db, "pid-1");
        plan(db, TaskId(1), 2020);
        let second = wait_for_file(db, "pid-2");
        assert!(!is_alive(&first) && is_alive(&second));
        assert_eq!(events(db, "1"), [("cancel-requested".to_owned(), REASON.into())]);
        wait_until("the first task is cancelled", || statuses(db) == ["cancelled", "processing"]);
        db.cli().run(&["schedule", "remove", "poll"]).ok();
        db.cli().run(&["cancel", "2"]).ok();
        wait_until("the second task is cancelled", || statuses(db) == ["cancelled", "cancelled"]);
        signal(&worker, Signal::TERM);
        let ended = finish(worker);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!db.home().join("beside").exists());
    }

    fn how_tasks_overlap_is_set_by_each_door_and_kept(db) {
        db.configure(ECHO);
        let line = "{\"class\":\"echo\",\"every\":\"@daily\",\"overlap\":\"replace\",\"catch_up\":\"none\"}\n";
        db.cli().stdin(line).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["queue", "echo", "--every", "@daily", "--overlap", "replace"]).ok();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"Overlap\") VALUES ('echo', '0 3 * * *', 'replace')");
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"Overlap\") VALUES ('echo', '0 3 * * *', 'replace')");
        create_runs(db);
        for id in ["1", "2", "3"] {
            assert_eq!(task(db, id)["schedule"]["overlap"], "replace", "{id}");
        }
        let both = db.cli().run(&["schedule", "edit", "4", "--catch-up", "all"]).fails(2);
        assert!(both.contains("exclude each other"), "{both}");
        assert!(db.cli().run(&["schedule", "show", "4"]).ok().contains("overlap      replace"));
        db.cli().run(&["schedule", "edit", "4", "--overlap", "wait"]).ok();
        assert!(!db.cli().run(&["schedule", "show", "4"]).ok().contains("overlap"));
        assert!(db.cli().run(&["status", "1"]).ok().contains("catch-up none, overlap replace"));
        for (args, why) in [
            (&["--every", "@daily", "--overlap", "skip"][..], "\"skip\" is not a choice for overlap: write wait or replace"),
            (&["--every", "@daily", "--overlap", "replace", "--catch-up", "all"], "overlap replace and catch-up all exclude each other"),
        ] {
            let (error, _) = error_and_hint(&db.cli().run(&[&["queue", "echo"][..], args].concat()).fails(2));
            assert!(error.contains(why), "{error}");
        }
        assert!(db.cli().run(&["queue", "echo", "--overlap", "wait"]).fails(2).contains("--every"));
        let exported = db.cli().run(&["export"]).ok();
        assert_eq!(exported.matches("\"overlap\":\"replace\"").count(), 3);
        let both = exported.replace("\"catch_up\":\"latest\"", "\"catch_up\":\"all\"");
        assert_ne!(db.cli().stdin(both).run(&["import"]).code, Some(0));
        // An export of an earlier version.
        let earlier = exported.replace("\"overlap\":\"replace\",", "").replace("\"overlap\":\"wait\",", "");
        db.cli().stdin(earlier).run(&["import"]).ok();
        db.cli().stdin(exported).run(&["import"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Overlap\" = 'replace'"), 6);
    }
}
