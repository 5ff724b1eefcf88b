//! Part 2: adding tasks and runs.

use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::EngineError;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_process::identities::identity::ProcessIdentity;

use crate::conformance::fixture::*;
use crate::each_engine;
use crate::support::TestDb;

fn open_runs(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" IN ('scheduled', 'processing')")
}

each_engine! {
    fn scheme_2_1_the_engine_is_the_helper_that_queues_creates_and_processes(db) {
        let (task, run) = work_once(db, &mut willing(db));
        assert!(task.status.is(TaskStatus::Success) && run.status.is(RunStatus::Success));
    }

    fn scheme_2_2_1_queue_creates_a_task_with_the_given_settings(db) {
        let mut ctx = willing(db);
        let mut request = request("work");
        request.data = Some(" {\"to\": [1, 2.0]} ".to_owned());
        request.scheduled_on = Some("2030-01-01T00:00:00Z".parse().unwrap());
        request.max_retries = Some(2);
        let id = queue_task(&mut ctx, request, ClassCheck::KnownHere).unwrap();
        let task = task(db, id);
        assert_eq!((task.class.as_str(), task.data.as_str(), task.max_retries), ("work", " {\"to\": [1, 2.0]} ", Some(2)));
        assert_eq!(task.scheduled_on.to_rfc3339(), "2030-01-01T00:00:00+00:00");
        assert!(task.status.is(TaskStatus::Scheduled));
    }

    fn scheme_2_2_2_max_retries_is_five_when_not_given(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        assert_eq!(ctx.store.settings().unwrap().retries_of(&task(db, id)), 5);
    }

    fn scheme_2_2_3_queue_refuses_a_class_that_does_not_exist(db) {
        let mut ctx = willing(db);
        let error = queue_task(&mut ctx, request("wrok"), ClassCheck::KnownHere).unwrap_err();
        assert!(matches!(&error, EngineError::UnknownClass { nearest, .. } if nearest[..] == ["work"]), "{error:?}");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
    }

    fn scheme_2_3_1_only_runs_that_are_processing_are_synchronised(db) {
        let mut ctx = willing(db);
        let (_, ended) = work_once(db, &mut ctx);
        queue_with_run(&mut ctx, "work");
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"ProcessIdentity\" = '{}'", dead_process()));
        let waiting = open_runs(db);
        assert_eq!(create(&mut ctx).rescue.rescued, []);
        assert!(db.store().get_run(ended.id).unwrap().status.is(RunStatus::Success));
        assert_eq!(open_runs(db), waiting);
    }

    fn scheme_2_3_2_a_run_whose_process_lives_is_left_alone(db) {
        let mut ctx = willing(db);
        let (_, run_id) = queue_with_run(&mut ctx, "work");
        claim_as(&mut ctx.store, &ProcessIdentity::own().unwrap()).unwrap();
        assert_eq!(create(&mut ctx).rescue.rescued, []);
        assert!(ctx.store.get_run(run_id).unwrap().status.is(RunStatus::Processing));
    }

    fn scheme_2_3_3_a_run_whose_process_is_dead_becomes_timeout(db) {
        let mut ctx = willing(db);
        let (task_id, run_id) = queue_with_run(&mut ctx, "work");
        claim_as(&mut ctx.store, &dead_process()).unwrap();
        let report = create(&mut ctx);
        assert_eq!(report.rescue.rescued.len(), 1);
        let run = ctx.store.get_run(run_id).unwrap();
        assert!(run.status.is(RunStatus::Timeout) && run.finished_on.is_some());
        assert_eq!(run.error_code, "runner-died");
        assert_eq!(task(db, task_id).failed_retries, 1);
    }

    fn scheme_2_4_1_a_run_is_created_for_a_task_and_its_id_returned(db) {
        let (task_id, run_id) = queue_with_run(&mut willing(db), "work");
        let run = db.store().get_run(run_id).unwrap();
        assert_eq!((run.task_id, run.attempt), (task_id, 1));
        assert_eq!(task(db, task_id).current_run_id, Some(run_id));
    }

    fn scheme_2_4_1_1_only_one_active_run_exists_for_a_task(db) {
        let mut ctx = willing(db);
        let (task_id, run_id) = queue_with_run(&mut ctx, "work");
        assert_eq!(ctx.store.open_run_of(task_id).unwrap(), Some(run_id));
        claim(&mut ctx.store).unwrap();
        assert_eq!(ctx.store.open_run_of(task_id).unwrap(), Some(run_id));
        assert_eq!(create(&mut ctx).created, 0);
        assert_eq!(open_runs(db), 1);
    }

    fn scheme_2_4_1_2_errors_and_timeouts_in_a_row_count_towards_one_limit(db) {
        let mut ctx = failing(db);
        let mut twice = request("work");
        twice.max_retries = Some(2);
        let id = queue_task(&mut ctx, twice, ClassCheck::KnownHere).unwrap();
        create(&mut ctx);
        process_one(&mut ctx);
        make_due(db, id);
        ctx.store.open_run_of(id).unwrap().unwrap();
        claim_as(&mut ctx.store, &dead_process()).unwrap();
        assert_eq!(create(&mut ctx).rescue.rescued.len(), 1);
        make_due(db, id);
        assert_eq!(task(db, id).failed_retries, 2);
        assert_eq!(ctx.store.open_run_of(id).unwrap(), None);
        assert_eq!(create(&mut ctx).created, 0);
    }

    fn scheme_2_4_2_no_run_is_created_otherwise(db) {
        let mut ctx = willing(db);
        let (done, _) = work_once(db, &mut ctx);
        assert_eq!(ctx.store.open_run_of(done.id).unwrap(), None);
        let mut later = request("work");
        later.scheduled_on = Some("2099-01-01T00:00:00Z".parse().unwrap());
        let later = queue_task(&mut ctx, later, ClassCheck::KnownHere).unwrap();
        assert_eq!(ctx.store.open_run_of(later).unwrap(), None);
    }

    fn scheme_2_5_1_1_a_task_gets_its_run_when_scheduled_on_is_reached(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        let in_a_minute = sql_now(db.engine, 60);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = {in_a_minute}"));
        assert_eq!(create(&mut ctx).created, 0);
        let a_moment_ago = sql_now(db.engine, -1);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = {a_moment_ago}"));
        assert_eq!(create(&mut ctx).created, 1);
        assert!(task(db, id).current_run_id.is_some());
    }

    fn scheme_2_5_1_2_a_task_that_is_processing_gets_no_run(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'processing'");
        assert_eq!(create(&mut ctx).created, 0);
        assert_eq!(ctx.store.open_run_of(id).unwrap(), None);
    }

    fn scheme_2_5_1_3_a_task_without_retries_left_gets_no_run(db) {
        let mut ctx = willing(db);
        queue(&mut ctx, "work");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = 5, \"MaxRetries\" = 5");
        assert_eq!(create(&mut ctx).created, 0);
        db.execute("UPDATE \"TaskQueue\" SET \"FailedRetries\" = 4");
        assert_eq!(create(&mut ctx).created, 1);
    }

    fn scheme_2_5_2_every_task_that_may_have_a_run_gets_one(db) {
        let mut ctx = willing(db);
        let ids: Vec<TaskId> = (0..25).map(|_| queue(&mut ctx, "work")).collect();
        ctx.store.open_run_of(ids[3]).unwrap().unwrap();
        assert_eq!(create(&mut ctx).created, 24);
        assert_eq!(open_runs(db), 25);
        assert_eq!(db.number("SELECT COUNT(DISTINCT \"TaskQueueId\") AS value FROM \"TaskQueueRuns\""), 25);
    }

    fn scheme_2_6_1_create_runs_synchronises_first_and_replaces_a_dead_run(db) {
        let mut ctx = willing(db);
        let (task_id, dead_run) = queue_with_run(&mut ctx, "work");
        claim_as(&mut ctx.store, &dead_process()).unwrap();
        let report = create(&mut ctx);
        assert_eq!((report.rescue.rescued.len(), report.created), (1, 1));
        let run = last_run(db, task_id);
        assert!(run.id > dead_run && run.status.is(RunStatus::Scheduled));
    }

    fn scheme_2_6_2_create_runs_creates_the_missing_runs(db) {
        let mut ctx = willing(db);
        queue(&mut ctx, "work");
        assert_eq!(create(&mut ctx).created, 1);
        assert_eq!(open_runs(db), 1);
    }

    fn scheme_2_7_create_runs_is_a_command_that_cron_may_repeat(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let _ = db.cli().run(&["queue", "work"]).ok();
        for _ in 0..3 {
            let ended = db.cli().run(&["create-runs"]);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
        }
        assert_eq!(open_runs(db), 1);
    }
}
