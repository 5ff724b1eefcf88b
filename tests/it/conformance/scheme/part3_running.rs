//! Part 3: running runs.

use taskqueue::{ActiveRun, HandlerError};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::change::settings;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::running::process_run::{ProcessOptions, process_runs};
use taskqueue_engine::running::runner::register::{finish_dead_runners, register};
use taskqueue_engine::{EngineError, StoreError};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{Registration, Store};

use crate::conformance::fixture::*;
use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb, wait_until};

fn texts(raw: &mut Raw, column: &str) -> Option<String> {
    raw.texts(&format!("SELECT \"{column}\" AS value FROM \"TaskQueueRuns\"")).remove(0)
}

fn fill_the_limit(db: &TestDb) {
    insert_runner(db, &ProcessIdentity::own().unwrap(), 8);
}

each_engine! {
    fn scheme_3_1_the_runner_limit_is_eight(db) {
        assert_eq!(db.store().settings().unwrap().runner_limit, 8);
        assert_eq!(db.cli().run(&["setting", "get", "TaskQueueRunnerLimit"]).ok(), "8");
    }

    fn scheme_3_2_1_the_given_run_is_processed_and_a_missing_one_is_an_error(db) {
        let mut ctx = willing(db);
        let (_, first) = queue_with_run(&mut ctx, "work");
        let (_, second) = queue_with_run(&mut ctx, "work");
        let only = |run_id| ProcessOptions { run_id: Some(run_id), ..ProcessOptions::default() };
        assert_eq!(process(&mut ctx, &only(second)).succeeded, 1);
        assert!(ctx.store.get_run(first).unwrap().status.is(RunStatus::Scheduled));
        assert!(ctx.store.get_run(second).unwrap().status.is(RunStatus::Success));
        let stop = StopSignals::install().unwrap();
        let missing = process_runs(&mut ctx, &only(RunId(9_999)), &stop, &mut Deaf).unwrap_err();
        assert!(matches!(missing, EngineError::Store(StoreError::NotFound(_))), "{missing}");
        let ended = process_runs(&mut ctx, &only(second), &stop, &mut Deaf).unwrap_err();
        assert!(matches!(ended, EngineError::NotWaiting { .. }), "{ended}");
    }

    fn scheme_3_2_2_1_process_id_is_saved_before_the_handler_starts(db) {
        let look = connector(db);
        let mut ctx = context(db, "work", move |_| {
            let pids = look().numbers("SELECT \"ProcessId\" AS value FROM \"TaskQueueRuns\"");
            assert_eq!(pids, [Some(i64::from(std::process::id()))]);
            Ok(())
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
    }

    fn scheme_3_2_2_2_status_processing_is_saved_before_the_handler_starts(db) {
        let look = connector(db);
        let mut ctx = context(db, "work", move |_| {
            assert_eq!(texts(&mut look(), "Status").as_deref(), Some("processing"));
            let of_task = look().texts("SELECT \"LastStatus\" AS value FROM \"TaskQueue\"");
            assert_eq!(of_task, [Some("processing".to_owned())]);
            Ok(())
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
    }

    fn scheme_3_2_3_the_class_of_the_task_decides_who_handles_it(db) {
        let mut registry = HandlerRegistry::new();
        for name in ["one", "two"] {
            add(&mut registry, name, move |run| {
                assert_eq!(run.class(), name);
                run.set_results(name)
            });
        }
        let mut ctx = db.context(registry);
        let (two, one) = (queue(&mut ctx, "two"), queue(&mut ctx, "one"));
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 2);
        assert_eq!(last_run(db, one).results.as_deref(), Some("\"one\""));
        assert_eq!(last_run(db, two).results.as_deref(), Some("\"two\""));
    }

    fn scheme_3_2_4_the_handler_gets_the_run_and_its_panic_is_caught(db) {
        let mut ctx = context(db, "work", |run| panic!("run {} of task {}", run.run_id(), run.task_id()));
        let (task, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Error));
        assert!(run.error_message.ends_with(&format!("run {} of task {}", run.id, task.id)), "{}", run.error_message);
        let (_, next) = work_once(db, &mut willing(db));
        assert!(next.status.is(RunStatus::Success));
    }

    fn scheme_3_2_5_progress_and_results_are_saved_while_the_handler_works(db) {
        let look = connector(db);
        let mut ctx = context(db, "work", move |run: &mut ActiveRun<'_>| {
            run.set_percents_completed(40);
            let mut raw = look();
            let at_40 = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"PercentsCompleted\" = 40";
            wait_until("the progress is saved", || raw.numbers(at_40) == [Some(1)]);
            run.set_results("half")?;
            // Saved at most twice a second; each report triggers it.
            wait_until("the results are saved", || {
                run.heartbeat();
                texts(&mut raw, "Results").is_some_and(|json| json == "\"half\"")
            });
            assert_eq!(texts(&mut raw, "Status").as_deref(), Some("processing"));
            run.set_results("whole")
        });
        let (_, run) = work_once(db, &mut ctx);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
        assert_eq!((run.results.as_deref(), run.percents_completed), (Some("\"whole\""), 100));
    }

    fn scheme_3_2_6_1_a_caught_error_sets_status_error(db) {
        let (task, run) = work_once(db, &mut failing(db));
        assert!(run.status.is(RunStatus::Error) && task.status.is(TaskStatus::Failed));
    }

    fn scheme_3_2_6_2_error_code_is_the_code_of_the_error(db) {
        let (_, run) = work_once(db, &mut failing(db));
        assert_eq!(run.error_code, "E1");
    }

    fn scheme_3_2_6_3_error_message_is_that_of_the_error_whatever_it_holds(db) {
        let message = "caf\u{e9} \u{1f41f} 'quoted' \"twice\" \\ line\nline";
        let mut ctx = context(db, "work", move |_| Err(HandlerError::new("E1", message)));
        let (_, run) = work_once(db, &mut ctx);
        assert_eq!(run.error_message, message);
    }

    fn scheme_3_2_7_1_without_an_error_status_is_success(db) {
        let (task, run) = work_once(db, &mut willing(db));
        assert!(run.status.is(RunStatus::Success) && task.status.is(TaskStatus::Success));
    }

    fn scheme_3_2_7_2_without_an_error_code_and_message_are_empty(db) {
        let (_, run) = work_once(db, &mut willing(db));
        assert_eq!((run.error_code.as_str(), run.error_message.as_str()), ("", ""));
    }

    fn scheme_3_2_8_finished_on_is_set_with_error_or_without(db) {
        for mut ctx in [willing(db), failing(db)] {
            let before = ctx.now().unwrap();
            let (_, run) = work_once(db, &mut ctx);
            let finished = run.finished_on.unwrap();
            assert!(before <= finished && finished <= ctx.now().unwrap());
            assert!(run.started_on.unwrap() <= finished);
        }
    }

    fn scheme_3_2_9_the_end_is_saved_for_others_to_see(db) {
        let (task, _) = work_once(db, &mut willing(db));
        let shown = db.cli().run(&["status", "--json", &task.id.to_string()]).json();
        assert_eq!((&shown["task"]["status"], &shown["runs"][0]["status"]), (&"success".into(), &"success".into()));
    }

    fn scheme_3_3_1_runners_without_finished_on_are_those_that_are_running(db) {
        let own = ProcessIdentity::own().unwrap();
        insert_runner(db, &own, 1);
        insert_runner(db, &own, 2);
        db.execute(&format!(
            "UPDATE \"TaskQueueRunners\" SET \"FinishedOn\" = {} WHERE \"Slots\" = 1",
            sql_now(db.engine, 0)
        ));
        let live = db.store().list_live_runners().unwrap();
        assert_eq!(live.iter().map(|runner| runner.slots).collect::<Vec<_>>(), [2]);
    }

    fn scheme_3_3_2_runners_whose_process_lives_or_cannot_be_seen_stay(db) {
        insert_runner(db, &ProcessIdentity::own().unwrap(), 1);
        let elsewhere =
            ProcessIdentity { boot_id: "00000000-0000-4000-8000-000000000000".to_owned(), ..dead_process() };
        insert_runner(db, &elsewhere, 1);
        assert_eq!(finish_dead_runners(&mut willing(db), LEASE).unwrap(), 0);
        assert_eq!(db.store().list_live_runners().unwrap().len(), 2);
    }

    fn scheme_3_3_3_runners_whose_process_is_dead_get_finished_on(db) {
        insert_runner(db, &dead_process(), 1);
        let mut ctx = willing(db);
        let before = ctx.now().unwrap();
        assert_eq!(finish_dead_runners(&mut ctx, LEASE).unwrap(), 1);
        let runner = db.store().list_runners(1).unwrap().remove(0);
        assert!(runner.finished_on.unwrap() >= before);
    }

    fn scheme_3_3_4_dead_runners_are_not_counted(db) {
        insert_runner(db, &dead_process(), 8);
        assert!(matches!(register(&mut willing(db), 1, &[], LEASE).unwrap(), Registration::Registered(_)));
    }

    fn scheme_3_4_1_the_limit_is_read_from_the_setting(db) {
        let mut ctx = willing(db);
        settings::set(&mut ctx, Setting::RunnerLimit, "2").unwrap();
        for _ in 0..2 {
            assert!(matches!(register(&mut ctx, 1, &[], LEASE).unwrap(), Registration::Registered(_)));
        }
        assert_eq!(register(&mut ctx, 1, &[], LEASE).unwrap(), Registration::LimitReached { in_use: 2, limit: 2 });
    }

    fn scheme_3_4_2_living_runners_are_counted(db) {
        let mut ctx = willing(db);
        settings::set(&mut ctx, Setting::RunnerLimit, "3").unwrap();
        insert_runner(db, &ProcessIdentity::own().unwrap(), 2);
        insert_runner(db, &dead_process(), 3);
        assert!(matches!(register(&mut ctx, 1, &[], LEASE).unwrap(), Registration::Registered(_)));
        assert_eq!(register(&mut ctx, 1, &[], LEASE).unwrap(), Registration::LimitReached { in_use: 3, limit: 3 });
    }

    fn scheme_3_4_3_at_the_limit_registration_is_refused_and_leaves_no_row(db) {
        fill_the_limit(db);
        assert_eq!(register(&mut willing(db), 1, &[], LEASE).unwrap(), Registration::LimitReached { in_use: 8, limit: 8 });
        assert_eq!(db.store().list_runners(10).unwrap().len(), 1);
    }

    fn scheme_3_4_4_registration_adds_a_row_with_the_current_pid(db) {
        register(&mut willing(db), 1, &[], LEASE).unwrap();
        let runner = db.store().list_live_runners().unwrap().remove(0);
        assert_eq!(runner.process_id, i64::from(std::process::id()));
        assert_eq!(runner.process_identity, ProcessIdentity::own().unwrap().to_string());
    }

    fn scheme_3_4_5_registration_answers_with_the_new_runner(db) {
        let Registration::Registered(id) = register(&mut willing(db), 1, &[], LEASE).unwrap() else { panic!("refused") };
        assert_eq!(db.store().list_live_runners().unwrap().remove(0).id, id);
    }

    fn scheme_3_5_1_process_run_registers_itself_as_a_runner(db) {
        let (_, run) = work_once(db, &mut willing(db));
        let runner = db.store().list_runners(1).unwrap().remove(0);
        assert_eq!(run.runner_id, Some(runner.id));
    }

    fn scheme_3_5_3_process_run_exits_quietly_when_the_limit_is_reached(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let (_, run_id) = queue_with_run(&mut willing(db), "work");
        fill_the_limit(db);
        let ended = db.cli().run(&["process-run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert!(db.store().get_run(run_id).unwrap().status.is(RunStatus::Scheduled));
    }

    fn scheme_3_5_4_the_pickup_waits_for_the_write_lock_on_task_queue_runs(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let (_, run_id) = queue_with_run(&mut willing(db), "work");
        let mut lock_holder = db.raw();
        lock_holder.execute(match db.engine {
            EngineUnderTest::Sqlite => "BEGIN IMMEDIATE",
            EngineUnderTest::Postgres => "BEGIN; LOCK TABLE \"TaskQueueRuns\" IN SHARE ROW EXCLUSIVE MODE",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "LOCK TABLES \"TaskQueueRuns\" WRITE",
        });
        let mut runner = db.cli().spawn(&["process-run"]);
        match db.engine {
            // SQLite has no such view; the checks below apply anyway.
            EngineUnderTest::Sqlite => {}
            EngineUnderTest::Postgres => wait_until("the runner waits for the lock", || {
                db.number(
                    "SELECT COUNT(*) AS value FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                ) == 1
            }),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => wait_until("the runner waits for the lock", || {
                db.number(
                    "SELECT COUNT(*) AS value FROM information_schema.PROCESSLIST
                     WHERE DB = DATABASE() AND STATE LIKE 'Waiting for table%'",
                ) == 1
            }),
        }
        assert!(runner.try_wait().unwrap().is_none());
        lock_holder.execute(if db.is_mysql_like() { "UNLOCK TABLES" } else { "ROLLBACK" });
        assert!(runner.wait().unwrap().success());
        assert!(db.store().get_run(run_id).unwrap().status.is(RunStatus::Success));
    }

    fn scheme_3_5_5_the_first_available_run_is_picked(db) {
        let mut ctx = willing(db);
        let runs: Vec<RunId> = (0..3).map(|_| queue_with_run(&mut ctx, "work").1).collect();
        for run_id in runs {
            assert_eq!(claim(&mut ctx.store).unwrap().run_id, run_id);
        }
        assert_eq!(claim(&mut ctx.store), None);
    }

    fn scheme_3_5_6_the_lock_is_released_before_the_handler_starts(db) {
        let (engine, url) = (db.engine, db.url());
        let mut ctx = context(db, "work", move |_| {
            let mut other = Store::open(&url).unwrap();
            assert!(claim(&mut other).is_some(), "{engine:?}");
            Ok(())
        });
        let (first, _) = queue_with_run(&mut ctx, "work");
        queue_with_run(&mut ctx, "work");
        process_one(&mut ctx);
        let run = last_run(db, first);
        assert!(run.status.is(RunStatus::Success), "{}", run.error_message);
    }

    fn scheme_3_5_7_process_run_exits_when_there_is_no_run(db) {
        let ended = db.cli().run(&["process-run"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert_eq!(process_one(&mut willing(db)).processed, 0);
        assert_eq!(db.store().list_live_runners().unwrap(), []);
    }

    fn scheme_3_5_8_the_run_that_was_found_is_processed_and_no_other(db) {
        let mut ctx = willing(db);
        let (first, _) = queue_with_run(&mut ctx, "work");
        let (second, _) = queue_with_run(&mut ctx, "work");
        assert_eq!(process_one(&mut ctx).succeeded, 1);
        assert!(task(db, first).status.is(TaskStatus::Success));
        assert!(task(db, second).status.is(TaskStatus::Scheduled));
    }
}
