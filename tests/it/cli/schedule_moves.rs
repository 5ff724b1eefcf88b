//! A task of a schedule that gets another time: what moves with it, and which times are free.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use taskqueue_domain::task::ids::TaskId;

use super::{ECHO, task};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::TestDb;

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap_or_else(|| panic!("{value}")).parse().unwrap()
}

fn planned_on(db: &TestDb, id: &str) -> DateTime<Utc> {
    time(&task(db, id)["schedule"]["planned_on"])
}

/// Starts a schedule whose first task is cancelled, so that the second one is its head.
fn skip_first(db: &TestDb, options: &[&str]) {
    db.configure(ECHO);
    db.cli().run(&[&["queue", "echo", "--tz", "UTC"], options].concat()).ok();
    for args in [&["create-runs"][..], &["cancel", "1"], &["create-runs"]] {
        db.cli().run(args).ok();
    }
}

/// Moves the planned time of a task this many seconds into the past.
fn plan_ago(db: &TestDb, id: &str, secs: i64) {
    let on = sql_now(db.engine, -secs);
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = {on}, \"ScheduledOn\" = {on} WHERE \"Id\" = {id}"));
}

each_engine! {
    fn a_missed_time_is_skipped_by_a_worker_and_by_a_claim_as_well(db) {
        db.configure(ECHO);
        let claim = ["worker", "claim", "--claimant", "bot"];
        let work = ["work", "--idle-exit", "0s"];
        for (catch_up, args, secs_late, starts) in [
            ("none", &work[..], 7_200, 0),
            ("none", &claim[..], 7_200, 0),
            // Within the grace.
            ("none", &work[..], 300, 1),
            ("latest", &work[..], 200_000, 1),
            ("latest", &claim[..], 200_000, 1),
            ("all", &work[..], 100, 1),
        ] {
            let head = db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--catch-up", catch_up]).ok().trim().to_owned();
            db.cli().run(&["create-runs"]).ok();
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"Recurrence\" = '@daily' WHERE \"Id\" = {head}"));
            plan_ago(db, &head, secs_late);
            let planned = planned_on(db, &head);
            let _ = db.cli().run(args);
            let seen = format!("{catch_up} {args:?} {secs_late}: {}", task(db, &head));
            let count = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {head}"));
            assert_eq!(count, starts, "{seen}");
            assert_eq!(planned_on(db, &head) > planned, secs_late > 1_000, "{seen}");
            db.execute("DELETE FROM \"TaskQueueRuns\"");
            db.execute("DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_late_task_of_a_schedule_with_a_limit_key_gets_its_slot_at_once(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--catch-up", "all", "--limit-key", "k"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"Recurrence\" = '@daily'");
        plan_ago(db, "1", 400_000);
        let mut store = db.store();
        assert!(store.open_run_of(TaskId(1)).unwrap().is_some());
        assert_eq!(store.use_of_key("k").unwrap().held, 1);
        // The next one is due as well when this one was ended by SQL.
        db.execute("DELETE FROM \"TaskQueueRuns\"");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"CurrentRunId\" = NULL");
        assert_eq!(store.advance_schedules().unwrap().planned, 1);
        assert_eq!(store.use_of_key("k").unwrap().held, 1);
    }

    fn a_claim_ends_an_expired_task_of_a_schedule_and_the_next_one_follows(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--expires", "10m"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"Recurrence\" = '@hourly'");
        plan_ago(db, "1", 4_000);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"StartBefore\" = {}", sql_now(db.engine, -3_400)));
        let _ = db.cli().run(&["worker", "claim", "--claimant", "bot"]);
        assert_eq!(task(db, "1")["status"], "expired");
        assert!(planned_on(db, "2") > planned_on(db, "1"));
    }

    fn a_time_that_a_cancelled_task_of_the_schedule_has_is_passed_over(db) {
        skip_first(db, &["--every", "0 3 * * *"]);
        let (cancelled, next) = (planned_on(db, "1"), planned_on(db, "2"));
        assert!(next > cancelled, "{cancelled} {next}");
        // Written otherwise, but the same times.
        db.cli().run(&["schedule", "edit", "1", "--every", "0 3 * * 0-6"]).ok();
        assert_eq!(planned_on(db, "2"), next);
        db.cli().run(&["schedule", "pause", "1", "--for", "1h"]).ok();
        assert_eq!(planned_on(db, "2"), next);
    }

    fn a_task_that_is_moved_expires_as_long_after_its_time_as_before(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC", "--expires", "1h"]).ok();
        db.cli().run(&["create-runs"]).ok();
        // As after a release with a delay.
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = '2020-01-01 00:00:00'");
        let distance = |row: &Value| time(&row["start_before"]) - time(&row["schedule"]["planned_on"]);
        let before = planned_on(db, "1");
        db.cli().run(&["schedule", "pause", "1", "--for", "7d"]).ok();
        let row = task(db, "1");
        assert_eq!((distance(&row), &row["next_attempt_on"]), (TimeDelta::hours(1), &Value::Null), "{row}");
        assert!(planned_on(db, "1") > before);
        db.cli().run(&["schedule", "edit", "1", "--every", "0 4 * * *"]).ok();
        assert_eq!(distance(&task(db, "1")), TimeDelta::hours(1));
        db.cli().run(&["queue", "echo", "--expires", "1h"]).ok();
        db.cli().run(&["edit", "2", "--in", "2h"]).ok();
        let row = task(db, "2");
        let after = time(&row["start_before"]) - time(&row["scheduled_on"]);
        assert!((after - TimeDelta::hours(1)).num_seconds().abs() <= 1, "{row}");
    }

    fn a_cancelled_time_that_an_overdue_task_would_move_to_is_passed_over(db) {
        skip_first(db, &["--every", "0 3 * * *"]);
        let last = (Utc::now() - TimeDelta::hours(3)).format("%Y-%m-%d 03:00:00");
        db.execute(&format!(
            "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{last}.000000' WHERE \"Id\" = 1;
             UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2026-01-01 10:00:00.000000', \"ScheduledOn\" = '2026-01-01 10:00:00.000000' WHERE \"Id\" = 2"
        ));
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(db.cli().run(&["create-runs", "--json"]).json()["created"], 1);
        assert!(planned_on(db, "2") > Utc::now(), "{}", planned_on(db, "2"));
    }

    fn a_task_can_be_moved_up_to_the_time_of_a_cancelled_one(db) {
        skip_first(db, &["--every", "0 3 * * *"]);
        let time = planned_on(db, "1");
        db.cli().run(&["edit", "2", "--at", &time.to_rfc3339()]).ok();
        assert_eq!(planned_on(db, "2") - time, TimeDelta::microseconds(1));
    }

    fn a_task_that_is_moved_up_keeps_the_expiry_of_those_that_follow(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--tz", "UTC", "--expires", "1h"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["edit", "1", "--in", "0s"]).ok();
        db.cli().run(&["tick"]).ok();
        let row = task(db, "2");
        assert_eq!(time(&row["start_before"]) - planned_on(db, "2"), TimeDelta::hours(1), "{row}");
    }

    fn times_that_a_schedule_skips_stay_skipped_when_its_task_runs_early(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["schedule", "pause", "1", "--for", "7d"]).ok();
        let (before, planned) = (task(db, "1"), planned_on(db, "1"));
        let message = db.cli().run(&["edit", "1", "--in", "0s"]).fails(1);
        assert!(message.contains("its schedule skips ") && message.contains("`taskqueue schedule run 1`"), "{message}");
        assert_eq!(task(db, "1"), before);
        // The same for a time that is changed in the table.
        db.execute("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2020-01-01 00:00:00'");
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "1")["status"], planned_on(db, "2")), (&"success".into(), planned));
    }

    fn a_task_before_the_time_of_a_cancelled_one_is_the_newest(db) {
        skip_first(db, &["1", "--every", "0 3 1 * *"]);
        let said = db.cli().run(&["schedule", "edit", "1", "--every", "0 0 * * *"]).stderr;
        let planned = planned_on(db, "2");
        assert!(planned < planned_on(db, "1") && said.contains(&planned.format("%Y-%m-%dT%H:%M").to_string()), "{said}");
        assert!(db.cli().run(&["schedule", "show", "1"]).ok().starts_with("schedule 1   echo   active\n"));
        db.cli().run(&["edit", "2", "--data", "2"]).ok();
        db.cli().run(&["schedule", "run", "1"]).ok();
        assert_eq!(task(db, "3")["data"], 2);
        db.cli().run(&["schedule", "edit", "1", "--catch-up", "all"]).ok();
        assert_eq!((&task(db, "2")["schedule"]["every"], planned_on(db, "2")), (&"0 0 * * *".into(), planned));
    }

    fn a_schedule_that_skips_times_still_skips_them_with_other_times(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["schedule", "pause", "1", "--for", "7d"]).ok();
        let planned = planned_on(db, "1");
        db.cli().run(&["schedule", "edit", "1", "--every", "0 4 * * *"]).ok();
        assert_eq!(planned_on(db, "1") - planned, TimeDelta::hours(1));
        db.cli().run(&["schedule", "resume", "1"]).ok();
        assert!(planned_on(db, "1") - Utc::now() <= TimeDelta::hours(24));
    }

    fn a_schedule_goes_on_after_a_change_by_sql_that_writes_whole_seconds(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"UpdatedOn\" = '2026-01-02 03:04:05'");
        db.cli().run(&["create-runs"]).ok();
        assert!(planned_on(db, "2") > planned_on(db, "1"));
    }

    fn a_schedule_that_the_database_refuses_stops_neither_another_nor_a_task(db) {
        let schedule = |name: &str| format!("[schedule.{name}]\nclass = \"echo\"\nevery = \"@daily\"\n");
        db.configure(&format!("{ECHO}{}{}", schedule("bad"), schedule("good")));
        db.cli().run(&["queue", "echo", "--name", "bad"]).ok();
        db.execute("CREATE UNIQUE INDEX \"Mine\" ON \"TaskQueue\" (\"Name\")");
        let created: Value = serde_json::from_str(&db.cli().run(&["create-runs", "--json"]).ok()).unwrap();
        assert_eq!(created["created"], 1, "{created}");
        let listed = db.cli().run(&["schedule", "list"]).ok();
        assert!(listed.contains("good") && !listed.contains("bad"), "{listed}");
    }
}
