//! Part 1: tables, units and the aggregation.

use taskqueue::{ActiveRun, HandlerError, TaskHandler};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::Context;
use taskqueue_engine::change::settings;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_store::Store;

use crate::conformance::fixture::*;
use crate::each_engine;

/// The scheme's class that implements ITaskQueueRunner.
struct Greeter;

impl TaskHandler for Greeter {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let name: String = run.data()?;
        run.set_results(&format!("Hello, {name}"))
    }
}

fn columns_are_selectable(db: &crate::support::TestDb, table: &str, columns: &[&str]) {
    for column in columns {
        db.execute(&format!("SELECT \"{column}\" FROM \"{table}\""));
    }
}

each_engine! {
    fn scheme_1_1_a_task_class_is_a_type_with_process_task_queue_run(db) {
        let mut registry = HandlerRegistry::new();
        registry.register("greet", Greeter);
        let mut ctx = db.context(registry);
        let mut request = request("greet");
        request.data = Some("\"Ann\"".to_owned());
        let id = queue_task(&mut ctx, request, ClassCheck::KnownHere).unwrap();
        create(&mut ctx);
        process_one(&mut ctx);
        assert_eq!(last_run(db, id).results.as_deref(), Some("\"Hello, Ann\""));
    }

    fn scheme_1_2_task_queue_has_the_columns_of_the_scheme(db) {
        columns_are_selectable(
            db,
            "TaskQueue",
            &[
                "Id",
                "QueuedOn",
                "QueuedById",
                "ScheduledOn",
                "TaskClass",
                "TaskData",
                "LastStatus",
                "MaxRetries",
                "FailedRetries",
            ],
        );
    }

    fn scheme_1_2_a_task_records_who_queued_it_when_and_for_what_time(db) {
        let mut ctx = willing(db);
        let before = ctx.now().unwrap();
        let mut request = request("work");
        request.scheduled_on = Some("2031-02-03T04:05:06.789012Z".parse().unwrap());
        let id = queue_task(&mut ctx, request, ClassCheck::KnownHere).unwrap();
        let after = ctx.now().unwrap();
        let task = task(db, id);
        assert!(before <= task.queued_on && task.queued_on <= after, "{before} {} {after}", task.queued_on);
        assert_eq!(task.queued_by, "tester");
        assert_eq!(task.scheduled_on.to_rfc3339(), "2031-02-03T04:05:06.789012+00:00");
    }

    fn scheme_1_2_a_new_task_is_scheduled_with_five_retries_and_none_failed(db) {
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('work', '{}')");
        let task = task(db, TaskId(1));
        assert!(task.status.is(TaskStatus::Scheduled));
        assert_eq!((task.max_retries, task.failed_retries), (None, 0));
    }

    fn scheme_1_2_last_status_becomes_processing_success_failed_and_timeout(db) {
        let mut store = db.store();
        for (event, status) in [
            (RunEvent::Succeed, TaskStatus::Success),
            (RunEvent::Fail, TaskStatus::Failed),
            (RunEvent::TimeOut, TaskStatus::Timeout),
        ] {
            let id = queue(&mut willing(db), "work");
            store.open_run_of(id).unwrap();
            let run = claim(&mut store).unwrap();
            assert!(task(db, id).status.is(TaskStatus::Processing));
            store.end_run(&reference(&run), &ending(event)).unwrap();
            assert!(task(db, id).status.is(status), "{status}");
        }
    }

    fn scheme_1_2_a_task_that_failed_max_retries_times_is_not_retried(db) {
        let mut ctx = failing(db);
        let id = queue(&mut ctx, "work");
        for failed in 1..=5 {
            assert_eq!(create(&mut ctx).created, 1, "before failure {failed}");
            process_one(&mut ctx);
            assert_eq!(task(db, id).failed_retries, failed);
            make_due(db, id);
        }
        assert_eq!(create(&mut ctx).created, 0);
        assert!(task(db, id).is_exhausted());
    }

    fn scheme_1_2_failed_retries_is_reset_by_a_success(db) {
        let id = queue(&mut failing(db), "work");
        create(&mut failing(db));
        process_one(&mut failing(db));
        assert_eq!(task(db, id).failed_retries, 1);
        make_due(db, id);
        create(&mut willing(db));
        process_one(&mut willing(db));
        assert_eq!(task(db, id).failed_retries, 0);
    }

    fn scheme_1_3_task_queue_runs_has_the_columns_of_the_scheme(db) {
        columns_are_selectable(
            db,
            "TaskQueueRuns",
            &[
                "Id",
                "TaskQueueId",
                "StartedOn",
                "PercentsCompleted",
                "FinishedOn",
                "Results",
                "Status",
                "ErrorCode",
                "ErrorMessage",
                "ProcessId",
            ],
        );
    }

    fn scheme_1_3_a_new_run_is_scheduled_at_0_percent_and_nobodys(db) {
        let (task_id, run_id) = queue_with_run(&mut willing(db), "work");
        let run = db.store().get_run(run_id).unwrap();
        assert_eq!((run.task_id, run.percents_completed, run.process_id), (task_id, 0, None));
        assert!(run.status.is(RunStatus::Scheduled));
        assert_eq!((run.started_on, run.finished_on, run.results), (None, None, None));
        assert_eq!((run.error_code.as_str(), run.error_message.as_str()), ("", ""));
    }

    fn scheme_1_3_a_run_is_processing_while_somebody_processes_it(db) {
        let look = connector(db);
        let mut ctx = context(db, "work", move |_| {
            let status = look().texts("SELECT \"Status\" AS value FROM \"TaskQueueRuns\"").remove(0);
            assert_eq!(status.as_deref(), Some("processing"));
            Ok(())
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
    }

    fn scheme_1_3_a_run_without_errors_is_success_with_empty_error(db) {
        let (_, run) = work_once(db, &mut willing(db));
        assert!(run.status.is(RunStatus::Success));
        assert_eq!((run.error_code.as_str(), run.error_message.as_str()), ("", ""));
    }

    fn scheme_1_3_a_run_with_a_known_error_is_error_with_code_and_message(db) {
        let (_, run) = work_once(db, &mut failing(db));
        assert!(run.status.is(RunStatus::Error));
        assert_eq!((run.error_code.as_str(), run.error_message.as_str()), ("E1", "no luck"));
    }

    fn scheme_1_3_a_run_without_report_for_its_time_is_timeout(db) {
        db.configure("[class.slow]\nargv = [\"/bin/sleep\", \"600\"]\nkill_grace_secs = 1\n");
        let id = db.cli().run(&["queue", "slow", "--timeout", "1s"]).ok().parse().unwrap();
        let _ = db.cli().run(&["tick"]).ok();
        let run = last_run(db, id);
        assert!(run.status.is(RunStatus::Timeout), "{run:?}");
        assert_eq!(run.error_code, "timeout");
        assert!(task(db, id).status.is(TaskStatus::Timeout));
    }

    fn scheme_1_3_the_timeout_is_a_day_unless_setting_or_task_change_it(db) {
        let mut ctx = context(db, "work", |run| {
            let secs = run.context().timeout_secs;
            run.set_results(&secs)
        });
        let timeout = |ctx: &mut Context| work_once(db, ctx).1.results;
        assert_eq!(timeout(&mut ctx).as_deref(), Some("86400"));
        settings::set(&mut ctx, Setting::RunTimeout, "7200").unwrap();
        assert_eq!(timeout(&mut ctx).as_deref(), Some("7200"));
        let mut of_its_own = request("work");
        of_its_own.timeout_secs = Some(90);
        let id = queue_task(&mut ctx, of_its_own, ClassCheck::KnownHere).unwrap();
        create(&mut ctx);
        process_one(&mut ctx);
        assert_eq!(last_run(db, id).results.as_deref(), Some("90"));
    }

    fn scheme_1_3_the_system_wide_timeout_cannot_be_empty(db) {
        let mut ctx = willing(db);
        settings::set(&mut ctx, Setting::RunTimeout, "").unwrap_err();
        let emptied = "UPDATE \"TaskQueueSettings\" SET \"Value\" = '' WHERE \"Name\" = 'TaskQueueRunTimeout'";
        db.raw().try_execute(emptied).unwrap_err();
        db.execute("DELETE FROM \"TaskQueueSettings\"");
        assert_eq!(ctx.store.settings().unwrap().run_timeout_secs, 86_400);
    }

    fn scheme_1_3_process_id_is_that_of_the_process_that_runs_the_run(db) {
        let look = connector(db);
        let mut ctx = context(db, "work", move |_| {
            let pid = look().numbers("SELECT \"ProcessId\" AS value FROM \"TaskQueueRuns\"").remove(0);
            assert_eq!(pid, Some(i64::from(std::process::id())));
            Ok(())
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
    }

    fn scheme_1_4_task_queue_runners_has_the_columns_of_the_scheme(db) {
        columns_are_selectable(db, "TaskQueueRunners", &["Id", "ProcessId", "StartedOn", "FinishedOn"]);
    }

    fn scheme_1_4_a_runner_has_no_finished_on_while_it_lives(db) {
        let own = i64::from(std::process::id());
        let look = db.url();
        let mut ctx = context(db, "work", move |_| {
            let mut runners = Store::open(&look).unwrap().list_runners(10).unwrap();
            let runner = runners.remove(0);
            assert_eq!((runner.process_id, runner.finished_on), (own, None));
            Ok(())
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
        let runner = db.store().list_runners(10).unwrap().remove(0);
        assert!(runner.finished_on.unwrap() >= runner.started_on);
    }

    fn scheme_1_5_the_three_tables_are_read_as_units_that_know_each_other(db) {
        let (task, run) = work_once(db, &mut willing(db));
        let runner = db.store().list_runners(10).unwrap().remove(0);
        assert_eq!((run.task_id, run.runner_id), (task.id, Some(runner.id)));
        assert_eq!(run.class, task.class);
        assert_eq!(runner.process_identity, ProcessIdentity::own().unwrap().to_string());
    }

    fn scheme_1_6_the_end_of_a_run_is_aggregated_into_its_task(db) {
        let (task, run) = work_once(db, &mut failing(db));
        assert!(run.status.is(RunStatus::Error) && task.status.is(TaskStatus::Failed));
        assert_eq!((task.failed_retries, task.attempts, task.current_run_id), (1, 1, None));
        assert!(task.updated_on >= run.finished_on.unwrap());
    }
}
