//! Tasks that expire, inserted by SQL and by the library, in schedules, and found by every kind of claim.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use taskqueue::{Claim, Edit, NewTask, TaskQueue};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::expiry::Expiry;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_engine::Context;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_store::SpecificClaim;

use super::fixture::*;
use crate::each_engine;
use crate::support::TestDb;

fn expires(ctx: &mut Context, request: TaskRequest) -> TaskId {
    let request = TaskRequest { expires: Some(Expiry::After(3_600)), ..request };
    queue_task(ctx, request, ClassCheck::AnyName).unwrap()
}

/// Lets the time to start of these tasks pass.
fn expire(db: &TestDb, condition: &str) {
    let past = sql_now(db.engine, -1);
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"StartBefore\" = {past} WHERE {condition}"));
}

fn status(db: &TestDb, id: TaskId) -> TaskStatus {
    *task(db, id).status.known().unwrap()
}

fn events(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'expired'")
}

each_engine! {
    fn a_task_inserted_by_sql_starts_before_its_time_or_not_at_all(db) {
        let mut ctx = willing(db);
        for secs in [3_600, -1] {
            db.execute(&format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"StartBefore\") VALUES ('work', {})",
                sql_now(db.engine, secs)
            ));
        }
        let report = create(&mut ctx);
        assert_eq!((report.expired, report.created), (1, 1));
        assert_eq!(drain(&mut ctx).processed, 1);
        assert_eq!([1, 2].map(|id| status(db, TaskId(id))), [TaskStatus::Success, TaskStatus::Expired]);
        assert_eq!(create(&mut ctx).expired, 0, "both are over");
        assert_eq!((events(db), task(db, TaskId(2)).attempts), (1, 0));
    }

    fn the_library_queues_and_edits_a_task_that_expires(db) {
        let queue = TaskQueue::connect(db.url_text()).unwrap().spool(db.home().join("spool"));
        let secs = |id| {
            let task = queue.task(id).unwrap();
            task.start_before.map(|on| (on - task.scheduled_on).num_seconds())
        };
        let hour = Duration::from_secs(3_600);
        let id = queue.queue(NewTask::new("mail").expires(hour).delay(hour)).unwrap().id;
        assert_eq!(secs(id), Some(3_600));
        queue.edit(id, &Edit::new().expires(hour * 2)).unwrap().all().unwrap();
        assert_eq!(secs(id), Some(7_200), "counted from its time");
        queue.edit(id, &Edit::new().never_expires()).unwrap().all().unwrap();
        assert_eq!(secs(id), None);
        // Far times too.
        let far: DateTime<Utc> = "2098-06-01T00:00:00.000001Z".parse().unwrap();
        queue.edit(id, &Edit::new().expires_at(far)).unwrap().all().unwrap();
        assert_eq!(queue.task(id).unwrap().start_before, Some(far));
        let past: DateTime<Utc> = "2020-01-01T00:00:00Z".parse().unwrap();
        let late = queue.queue(NewTask::new("mail").expires_at(past)).unwrap().id;
        assert_eq!(queue.claim(&Claim::new("bot-1").task(late)).unwrap().len(), 0);
        assert!(queue.task(late).unwrap().status.is(TaskStatus::Expired));
        assert!(queue.wait(late, hour).unwrap().unwrap().task.status.is(TaskStatus::Expired));
        assert!(queue.queue(NewTask::new("mail").expires(Duration::ZERO)).is_err());
    }

    fn no_claim_takes_a_task_that_expired_between_due_and_claim(db) {
        let mut ctx = willing(db);
        let ids: Vec<TaskId> = (0..4).map(|_| expires(&mut ctx, request("work"))).collect();
        let last = queue(&mut ctx, "work");
        // The first two have runs, the others are due.
        let run_id = ctx.store.open_run_of(ids[0]).unwrap().unwrap();
        ctx.store.open_run_of(ids[1]).unwrap().unwrap();
        expire(db, "\"StartBefore\" IS NOT NULL");
        let token = |number: i64| format!("{number:07}expirytoken");
        let claimed = ctx.store.claim_specific_run(run_id, &claim_by_nobody(&|_| true), &token(1)).unwrap();
        let refused = SpecificClaim::Refused { status: "cancelled".to_owned(), class: "work".to_owned() };
        assert_eq!((claimed, status(db, ids[0])), (refused, TaskStatus::Expired));
        assert_eq!(claim(&mut ctx.store), None);
        assert_eq!(status(db, ids[1]), TaskStatus::Expired);
        let run = last_run(db, ids[1]);
        assert!(run.status.is(RunStatus::Cancelled) && run.started_on.is_none() && run.error_code == "expired", "{run:?}");
        assert_eq!(status(db, ids[2]), TaskStatus::Scheduled, "it has no run");
        let tokens: Vec<String> = (2..5).map(token).collect();
        let claimed = ctx.store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap().runs;
        assert_eq!(claimed.iter().map(|run| run.task_id).collect::<Vec<_>>(), [last]);
        assert_eq!(ids.iter().map(|id| status(db, *id)).collect::<Vec<_>>(), [TaskStatus::Expired; 4]);
        assert_eq!((events(db), create(&mut ctx).expired), (4, 0));
    }

    fn a_run_in_progress_goes_on_and_a_released_one_does_not_start_again(db) {
        let mut ctx = willing(db);
        let ids = [expires(&mut ctx, request("work")), expires(&mut ctx, request("work"))];
        create(&mut ctx);
        let runs = [claim(&mut ctx.store).unwrap(), claim(&mut ctx.store).unwrap()];
        expire(db, "\"StartBefore\" IS NOT NULL");
        assert_eq!((create(&mut ctx).expired, status(db, ids[0])), (0, TaskStatus::Processing));
        use taskqueue_domain::run::transition::RunEvent;
        ctx.store.end_run(&reference(&runs[0]), &ending(RunEvent::Succeed)).unwrap();
        ctx.store.end_run(&reference(&runs[1]), &ending(RunEvent::Release)).unwrap();
        assert_eq!((create(&mut ctx).expired, create(&mut ctx).created), (1, 0));
        assert_eq!(ids.map(|id| status(db, id)), [TaskStatus::Success, TaskStatus::Expired]);
    }

    fn the_next_task_of_a_schedule_expires_as_long_after_its_planned_time(db) {
        let mut ctx = willing(db);
        let every = TaskRequest { every: Some("0 0 29 2 *".into()), ..request("work") };
        let first = expires(&mut ctx, every);
        let distance = |id: i64| {
            let task = task(db, TaskId(id));
            task.start_before.unwrap() - task.schedule.unwrap().planned_on.unwrap()
        };
        assert_eq!(distance(first.0), TimeDelta::hours(1));
        // Its time comes, and passes unused: it expires, and the next one is planned.
        db.execute(
            "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2024-02-29 00:00:00', \"ScheduledOn\" = '2024-02-29 00:00:00',
             \"StartBefore\" = '2024-02-29 01:00:00'",
        );
        let report = create(&mut ctx);
        assert_eq!((report.expired, report.schedules.planned), (1, 1));
        assert_eq!((status(db, first), distance(2)), (TaskStatus::Expired, TimeDelta::hours(1)));
        // By SQL, the distance from ScheduledOn counts from the first planned time.
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"ScheduledOn\", \"StartBefore\")
             VALUES ('work', '0 0 29 2 *', {}, {})",
            sql_now(db.engine, 60), sql_now(db.engine, 7_260)
        ));
        create(&mut ctx);
        assert!((distance(3) - TimeDelta::hours(2)).num_seconds().abs() <= 1, "{}", distance(3));
    }

    fn an_expired_task_frees_its_unique_key_and_its_slot(db) {
        let mut ctx = willing(db);
        let with_keys = || TaskRequest { unique: Some("k".into()), limit_key: Some("l".into()), ..request("work") };
        let first = expires(&mut ctx, with_keys());
        ctx.store.open_run_of(first).unwrap().unwrap();
        let other = queue_task(&mut ctx, TaskRequest { limit_key: Some("l".into()), ..request("work") }, ClassCheck::AnyName).unwrap();
        create(&mut ctx);
        expire(db, "\"StartBefore\" IS NOT NULL");
        assert_eq!(create(&mut ctx).expired, 1);
        assert_eq!(claim(&mut ctx.store).map(|run| run.task_id), Some(other), "the slot was passed on");
        assert_ne!(expires(&mut ctx, with_keys()), first);
    }
}
