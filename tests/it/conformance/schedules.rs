//! Schedules: a chain of tasks, one for each planned time. Planned times are 29ths of February, so that none is reached while a
//! test runs.

use chrono::{DateTime, Utc};
use taskqueue_domain::run::status::ScheduleStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::time::recurrence::Recurrence;
use taskqueue_engine::Context;
use taskqueue_engine::change::schedules::{self, ScheduleEdit};
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::running::process_run::ProcessOptions;

use super::fixture::*;
use crate::each_engine;
use crate::support::TestDb;

const LEAP_DAYS: &str = "0 0 29 2 *";

fn queue_schedule(ctx: &mut Context, catch_up: &str) -> TaskId {
    let every = TaskRequest { every: Some(LEAP_DAYS.into()), catch_up: Some(catch_up.into()), ..request("work") };
    queue_task(ctx, every, ClassCheck::AnyName).unwrap()
}

fn queue_schedule_with_key(ctx: &mut Context, catch_up: &str) -> TaskId {
    let every = TaskRequest {
        every: Some(LEAP_DAYS.into()),
        catch_up: Some(catch_up.into()),
        unique: Some("k".into()),
        ..request("work")
    };
    queue_task(ctx, every, ClassCheck::AnyName).unwrap()
}

/// Queues a task without a schedule.
fn queue_with_key(ctx: &mut Context) -> TaskId {
    queue_task(ctx, TaskRequest { unique: Some("k".into()), ..request("work") }, ClassCheck::AnyName).unwrap()
}

fn next_leap_day(now: DateTime<Utc>) -> DateTime<Utc> {
    Recurrence::parse(LEAP_DAYS, "UTC", "all").unwrap().next_after(now).unwrap()
}

fn past_leap_day(year: u32) -> DateTime<Utc> {
    format!("{year}-02-29T00:00:00Z").parse().unwrap()
}

/// Returns id, planned time and status in the chain, for all tasks.
fn chain(db: &TestDb) -> Vec<(i64, DateTime<Utc>, String)> {
    let ids = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"");
    ids.into_iter()
        .flatten()
        .map(|id| {
            let schedule = task(db, TaskId(id)).schedule.unwrap();
            assert_eq!(schedule.id, TaskId(1));
            (id, schedule.planned_on.unwrap(), schedule.status.to_string())
        })
        .collect()
}

fn events(db: &TestDb, kind: &str) -> Vec<serde_json::Value> {
    let sql = format!("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}' ORDER BY \"Id\"");
    db.raw().texts(&sql).into_iter().flatten().map(|text| serde_json::from_str(&text).unwrap()).collect()
}

each_engine! {
    fn each_passed_planned_time_gets_a_task_when_all_are_caught_up(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "all");
        let next = next_leap_day(ctx.now().unwrap());
        assert_eq!(task(db, id).scheduled_on, next);
        assert_eq!(create(&mut ctx).created, 0);
        plan(db, id, 2016);
        assert_eq!(create(&mut ctx).created, 1);
        // The next tasks are due as soon as they are created, without a create-runs in between.
        assert!(drain(&mut ctx).succeeded >= 3);
        let chain = chain(db);
        assert_eq!(chain[0], (1, past_leap_day(2016), "followed".to_owned()));
        assert_eq!(chain[1].1, past_leap_day(2020));
        assert_eq!((chain.last().unwrap().1, chain.last().unwrap().2.as_str()), (next, "active"));
        assert_eq!(events(db, "skipped"), Vec::<serde_json::Value>::new());
        let copied = task(db, TaskId(2));
        assert_eq!((copied.class.as_str(), copied.queued_by.as_str(), copied.attempts), ("work", "tester", 1));
    }

    fn only_the_latest_passed_planned_time_happens_unless_all_are_caught_up(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "latest");
        create(&mut ctx);
        plan(db, id, 2012);
        let report = create(&mut ctx);
        assert_eq!((report.created, report.schedules.planned), (1, 1));
        let moved = task(db, id).schedule.unwrap().planned_on.unwrap();
        assert!(moved >= past_leap_day(2024) && moved <= ctx.now().unwrap());
        assert_eq!(events(db, "skipped").len(), 1);
        assert!(events(db, "skipped")[0]["skipped"].as_i64().unwrap() >= 3);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        assert_eq!(chain(db).len(), 2);
    }

    fn a_planned_time_that_passed_is_skipped_where_none_is_caught_up(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "none");
        create(&mut ctx);
        plan(db, id, 2020);
        assert_eq!(create(&mut ctx).created, 0);
        let planned = chain(db);
        assert_eq!(planned, [(1, next_leap_day(ctx.now().unwrap()), "active".to_owned())]);
        assert!(events(db, "skipped")[0]["skipped"].as_i64().unwrap() >= 2);
        // A time that is late by no more than the grace is used.
        db.execute("UPDATE \"TaskQueue\" SET \"Recurrence\" = '* * * * *'");
        let just_now = sql_now(db.engine, -60);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = {just_now}, \"ScheduledOn\" = {just_now}"));
        assert_eq!(create(&mut ctx).created, 1);
    }

    fn a_time_within_the_grace_happens_after_a_long_task_without_catch_up(db) {
        let mut ctx = willing(db);
        let mut head = queue_schedule(&mut ctx, "none");
        db.execute("UPDATE \"TaskQueue\" SET \"Recurrence\" = '@daily'");
        for (days_ago, grace_secs, happens) in [(2, 604_800, true), (3, 0, false)] {
            db.execute(&format!("UPDATE \"TaskQueueSettings\" SET \"Value\" = '{grace_secs}' WHERE \"Name\" = 'TaskQueueScheduleGrace'"));
            let long_ago = sql_now(db.engine, -86_400 * days_ago);
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = {long_ago}, \"ScheduledOn\" = {long_ago} WHERE \"Id\" = {head}"));
            let run_id = ctx.store.open_run_of(head).unwrap().unwrap();
            let run = claim(&mut ctx.store).unwrap();
            assert_eq!(run.run_id, run_id);
            ctx.store.end_run(&reference(&run), &ending(taskqueue_domain::run::transition::RunEvent::Succeed)).unwrap();
            head = TaskId(head.0 + 1);
            assert_eq!(task(db, head).current_run_id.is_some(), happens);
        }
    }

    fn a_late_task_of_a_schedule_is_named_beside_the_claimed_runs(db) {
        let mut ctx = willing(db);
        let head = queue_schedule(&mut ctx, "none");
        queue(&mut ctx, "work");
        create(&mut ctx);
        plan(db, head, 2020);
        let tokens = ["of-the-first-run", "of-the-second-run"].map(str::to_owned);
        let claimed = ctx.store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap();
        let tasks: Vec<TaskId> = claimed.runs.iter().map(|run| run.task_id).collect();
        assert_eq!((tasks, claimed.late), (vec![TaskId(2)], vec![head]));
        assert_eq!(task(db, head).attempts, 0);
    }

    fn a_time_that_is_missed_while_another_task_runs_is_skipped(db) {
        let connect = connector(db);
        let mut ctx = context(db, "work", move |_| {
            let missed = "'2020-02-29 00:00:00.000000'";
            connect().execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = {missed}, \"ScheduledOn\" = {missed} WHERE \"Id\" = 1"));
            Ok(())
        });
        let head = queue_schedule(&mut ctx, "none");
        queue(&mut ctx, "work");
        create(&mut ctx);
        let options = ProcessOptions { drain: true, creates_runs: true, ..ProcessOptions::default() };
        assert_eq!(process(&mut ctx, &options).processed, 1);
        assert_eq!(task(db, head).scheduled_on, next_leap_day(ctx.now().unwrap()));
    }

    fn a_schedule_goes_on_however_its_head_settled(db) {
        let mut ctx = failing(db);
        queue_schedule(&mut ctx, "none");
        create(&mut ctx);
        let ends = [
            "\"LastStatus\" = 'cancelled'",
            "\"LastStatus\" = 'failed', \"Attempts\" = 5, \"MaxRetries\" = 5, \"FailedRetries\" = 5",
            "\"LastStatus\" = 'timeout', \"Attempts\" = 1, \"FailedRetries\" = 1, \"QuarantinedOn\" = \"QueuedOn\"",
            "\"LastStatus\" = 'success', \"Attempts\" = 1",
        ];
        let mut year = 2004;
        for (number, end) in ends.iter().enumerate() {
            let head = i64::try_from(number).unwrap() + 1;
            db.execute(&format!("UPDATE \"TaskQueue\" SET {end} WHERE \"Id\" = {head}"));
            plan(db, TaskId(head), year);
            assert_eq!(create(&mut ctx).schedules.planned, 1, "{end}");
            assert_eq!(chain(db).len(), number + 2, "{end}");
            year += 4;
        }
        // Also after its last attempt: first with a retry left, then without.
        let head = TaskId(5);
        db.execute("UPDATE \"TaskQueue\" SET \"MaxRetries\" = 2, \"CatchUp\" = 'all' WHERE \"Id\" = 5");
        plan(db, head, 2024);
        assert_eq!(create(&mut ctx).created, 1);
        assert_eq!(process_one(&mut ctx).processed, 1);
        assert_eq!(chain(db).len(), 5);
        make_due(db, head);
        assert_eq!(create(&mut ctx).created, 1);
        assert_eq!(process_one(&mut ctx).processed, 1);
        assert_eq!(chain(db).len(), 6);
        assert_eq!(task(db, TaskId(6)).max_retries, Some(2));
    }

    fn a_row_that_was_inserted_with_an_expression_is_a_schedule(db) {
        let mut ctx = willing(db);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"TimeZone\") VALUES ('work', '0 0 29 2 *', 'Europe/Berlin')");
        assert_eq!(ctx.store.open_run_of(TaskId(1)).unwrap(), None);
        let report = create(&mut ctx);
        assert_eq!((report.schedules.planned, report.created), (1, 0));
        let planned = task(db, TaskId(1));
        assert_eq!(planned.scheduled_on.format("%m-%d %T").to_string(), "02-28 23:00:00");
        assert_eq!(planned.schedule.unwrap().planned_on, Some(planned.scheduled_on));
        assert_eq!(create(&mut ctx).schedules.planned, 0);
    }

    fn an_expression_that_nobody_can_read_is_named_once_and_can_be_mended(db) {
        let mut ctx = willing(db);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('work', 'every day')");
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('work', '0 0 30 2 *')");
        assert_eq!(create(&mut ctx).schedules.broken, 2);
        let report = create(&mut ctx);
        assert_eq!((report.schedules.broken, report.created), (0, 0));
        let broken = events(db, "schedule-broken");
        assert_eq!(broken.len(), 2);
        assert!(broken[0]["why"].as_str().unwrap().contains("not a cron expression"), "{broken:?}");
        assert!(broken[1]["why"].as_str().unwrap().contains("matches no more times"), "{broken:?}");
        let shown = db.cli().run(&["status", "1"]).ok();
        assert!(shown.contains("not planned: \"every day\" is not a cron expression"), "{shown}");
        let edit = ScheduleEdit { every: Some(LEAP_DAYS.to_owned()), ..ScheduleEdit::default() };
        let mended = schedules::edit(&mut ctx, TaskId(1), &edit).unwrap();
        assert!(mended.status.is(ScheduleStatus::Active) && mended.planned_on.is_some());
    }

    fn a_planned_time_taken_by_sql_keeps_no_run_from_ending(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2016);
        create(&mut ctx);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduleId\", \"PlannedOn\") VALUES ('work', 'success', 1, '2020-02-29 00:00:00.000000')");
        assert_eq!(process_one(&mut ctx).succeeded, 1);
        let next = task(db, TaskId(3)).schedule.unwrap();
        assert_eq!((next.id, next.planned_on), (id, Some(past_leap_day(2024))));
    }

    fn the_handler_learns_the_planned_time_also_of_a_later_attempt(db) {
        let mut ctx = failing(db);
        let id = queue_schedule(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2024);
        create(&mut ctx);
        assert_eq!(process_one(&mut ctx).processed, 1);
        make_due(db, id);
        create(&mut ctx);
        assert_eq!(claim(&mut ctx.store).unwrap().planned_on, past_leap_day(2024));
    }

    fn a_paused_schedule_gives_back_its_run_and_goes_on_when_it_is_resumed(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2024);
        assert_eq!(create(&mut ctx).created, 1);
        assert!(schedules::pause(&mut ctx, id).unwrap().status.is(ScheduleStatus::Paused));
        assert_eq!(last_run(db, id).status.to_string(), "released");
        assert_eq!(create(&mut ctx).created, 0);
        assert!(schedules::pause(&mut ctx, id).unwrap_err().to_string().contains("is paused"));
        schedules::resume(&mut ctx, id).unwrap();
        assert_eq!(create(&mut ctx).created, 1);
        // A run in progress continues, and nothing follows it.
        let run = claim(&mut ctx.store).unwrap();
        schedules::pause(&mut ctx, id).unwrap();
        ctx.store.end_run(&reference(&run), &ending(taskqueue_domain::run::transition::RunEvent::Succeed)).unwrap();
        assert_eq!(create(&mut ctx).schedules.planned, 0);
        assert_eq!(chain(db).len(), 1);
        // The answer to a resume contains the next time.
        let resumed = schedules::resume(&mut ctx, id).unwrap();
        assert_eq!((resumed.task_id, resumed.planned_on), (TaskId(2), Some(next_leap_day(ctx.now().unwrap()))));
        let kinds = db.raw().texts("SELECT \"Kind\" AS value FROM \"TaskQueueEvents\" ORDER BY \"Id\"");
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        assert_eq!(kinds, ["schedule-paused", "schedule-resumed", "schedule-paused", "schedule-resumed"]);
    }

    fn a_removed_schedule_cancels_what_waits_and_lets_a_begun_run_end(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2024);
        create(&mut ctx);
        schedules::remove(&mut ctx, id).unwrap();
        assert_eq!((task(db, id).status.to_string(), last_run(db, id).status.to_string()), ("cancelled".to_owned(), "cancelled".to_owned()));
        assert_eq!(create(&mut ctx).schedules.planned, 0);
        assert!(schedules::resume(&mut ctx, id).unwrap_err().to_string().contains("removed"));
        assert_eq!(schedules::list(&mut ctx).unwrap().len(), 0);
        let other = queue_schedule(&mut ctx, "all");
        create(&mut ctx);
        plan(db, other, 2024);
        create(&mut ctx);
        let run = claim(&mut ctx.store).unwrap();
        schedules::remove(&mut ctx, other).unwrap();
        ctx.store.end_run(&reference(&run), &ending(taskqueue_domain::run::transition::RunEvent::Succeed)).unwrap();
        assert_eq!(task(db, other).status.to_string(), "success");
        assert_eq!(create(&mut ctx).schedules.planned, 0);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
    }

    fn each_task_of_a_schedule_takes_over_the_key_of_the_one_before(db) {
        let mut ctx = willing(db);
        let id = queue_schedule_with_key(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2016);
        // A window, which only SQL can set, does not block the key for tasks of the schedule.
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = {}", sql_now(db.engine, 3_600)));
        create(&mut ctx);
        assert!(drain(&mut ctx).succeeded >= 3);
        let tasks = chain(db);
        let last = tasks.last().unwrap().0;
        let live = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" = 'k'");
        assert_eq!(live, [Some(last)]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"UniqueKey\" = 'k'"), last);
        // Creating it again returns the existing schedule.
        assert_eq!(queue_schedule_with_key(&mut ctx, "all"), TaskId(last));
        assert_eq!(chain(db), tasks);
        assert_eq!(events(db, "key-taken"), Vec::<serde_json::Value>::new());
    }

    fn the_next_task_comes_once_whoever_took_its_key_meanwhile_has_ended(db) {
        let mut ctx = willing(db);
        let id = queue_schedule_with_key(&mut ctx, "latest");
        create(&mut ctx);
        plan(db, id, 2020);
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success'");
        let other = queue_with_key(&mut ctx);
        assert_eq!(other, TaskId(2));
        for _ in 0..2 {
            assert_eq!(create(&mut ctx).schedules.planned, 0);
        }
        assert_eq!(events(db, "key-taken"), [serde_json::json!({ "key": "k", "holder": 2 })]);
        assert_eq!(schedules::list(&mut ctx).unwrap()[0].key_holder, Some(other));
        let shown = db.cli().run(&["schedule", "show", "1"]).ok();
        assert!(shown.contains("  problem      waits for task 2, which has its key, to finish"), "{shown}");
        assert_eq!(drain(&mut ctx).succeeded, 1);
        assert_eq!(create(&mut ctx).schedules.planned, 1);
        let next = task(db, TaskId(3));
        let planned_on = next.schedule.unwrap().planned_on.unwrap();
        assert!(planned_on >= past_leap_day(2024) && planned_on <= ctx.now().unwrap(), "{planned_on}");
        assert_eq!(next.unique_key.as_deref(), Some("k"));
        assert_eq!(schedules::list(&mut ctx).unwrap()[0].key_holder, None);
    }

    fn a_schedule_that_is_resumed_waits_for_the_key_that_it_had(db) {
        let mut ctx = willing(db);
        let id = queue_schedule_with_key(&mut ctx, "all");
        create(&mut ctx);
        plan(db, id, 2024);
        create(&mut ctx);
        let run = claim(&mut ctx.store).unwrap();
        schedules::pause(&mut ctx, id).unwrap();
        assert_eq!(queue_with_key(&mut ctx), id);
        ctx.store.end_run(&reference(&run), &ending(taskqueue_domain::run::transition::RunEvent::Succeed)).unwrap();
        let other = queue_with_key(&mut ctx);
        assert_eq!(other, TaskId(2));
        assert_eq!(schedules::resume(&mut ctx, id).unwrap().key_holder, Some(other));
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        assert_eq!(create(&mut ctx).schedules.planned, 1);
        assert_eq!(queue_with_key(&mut ctx), TaskId(3));
    }

    fn the_next_task_waits_for_what_a_cancelled_one_still_waited_for(db) {
        let mut ctx = willing(db);
        let [done, open] = ["work", "work"].map(|class| queue(&mut ctx, class));
        let every = TaskRequest { every: Some(LEAP_DAYS.into()), after: vec![done, open], ..request("work") };
        let id = queue_task(&mut ctx, every, ClassCheck::AnyName).unwrap();
        let succeed = |ctx: &mut Context, id: TaskId| {
            ctx.store.open_run_of(id).unwrap().unwrap();
            let run = claim(&mut ctx.store).unwrap();
            assert_eq!(run.task_id, id);
            ctx.store.end_run(&reference(&run), &ending(taskqueue_domain::run::transition::RunEvent::Succeed)).unwrap();
        };
        succeed(&mut ctx, done);
        assert_eq!(task(db, id).waiting_for, 1);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {id}"));
        assert_eq!(ctx.store.advance_schedules().unwrap().planned, 1);
        let next = TaskId(id.0 + 1);
        assert_eq!(task(db, next).waiting_for, 1);
        let awaited = ctx.store.list_prerequisites(next, false, 10).unwrap();
        assert_eq!(awaited.iter().map(|link| (link.id, link.is_satisfied)).collect::<Vec<_>>(), [(open, false)]);
        plan(db, next, 2024);
        assert_eq!(ctx.store.open_run_of(next).unwrap(), None);
        succeed(&mut ctx, open);
        assert_eq!(task(db, next).waiting_for, 0);
        assert!(ctx.store.open_run_of(next).unwrap().is_some());
    }

    fn another_time_holds_for_the_task_that_waits_and_for_all_that_follow(db) {
        let mut ctx = willing(db);
        let id = queue_schedule(&mut ctx, "latest");
        create(&mut ctx);
        plan(db, id, 2024);
        create(&mut ctx);
        let edit = ScheduleEdit { every: Some("0 12 29 2 *".to_owned()), time_zone: Some("Asia/Tokyo".to_owned()), catch_up: None, overlap: None };
        let edited = schedules::edit(&mut ctx, id, &edit).unwrap();
        assert_eq!(edited.planned_on.unwrap().format("%m-%d %H:%M").to_string(), "02-29 03:00");
        assert_eq!(task(db, id).current_run_id, None);
        let bad = ScheduleEdit { every: Some("nonsense".to_owned()), ..ScheduleEdit::default() };
        assert!(schedules::edit(&mut ctx, id, &bad).unwrap_err().to_string().contains("not a cron expression"));
        let bad = ScheduleEdit { every: Some("0 0 31 2 *".to_owned()), ..ScheduleEdit::default() };
        assert!(schedules::edit(&mut ctx, id, &bad).unwrap_err().to_string().contains("matches no time"));
        assert_eq!(task(db, id).schedule.unwrap().every, "0 12 29 2 *");
    }
}
