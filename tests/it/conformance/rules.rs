//! The rules R1 to R10 of docs/architecture.md.

use std::thread;

use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::records::RunOutput;
use taskqueue_engine::Context;
use taskqueue_engine::change::settings;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::running::process_run::{ProcessOptions, process_runs};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{EndResult, NewEvent, NewRunner, Registration, RunRef, RunReport};

use super::fixture::*;
use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Returns all values of the row of a run and of its task, to check that nothing changed.
fn snapshot(db: &TestDb) -> String {
    let mut store = db.store();
    let runs = store.list_newest_runs(100).unwrap();
    let tasks: Vec<_> = runs.iter().map(|run| store.get_task(run.task_id).unwrap()).collect();
    format!("{runs:?}\n{tasks:?}")
}

/// Ends the only run in progress like a client without its token.
fn cancel_by_sql(raw: &mut Raw, engine: EngineUnderTest) {
    let now = sql_now(engine, 0);
    raw.execute(&format!(
        "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'cancelled', \"FinishedOn\" = {now}, \"LeaseExpiresOn\" = NULL
         WHERE \"Status\" = 'processing'"
    ));
    raw.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"CurrentRunId\" = NULL");
}

each_engine! {
    fn r1_a_task_whose_runner_is_killed_is_tried_again_and_ends(db) {
        db.configure("[class.once]\nkill_grace_secs = 1\nargv = [\"/bin/sh\", \"-c\", \"test $TASKQUEUE_ATTEMPT -gt 1 || sleep 600\"]\n");
        let id = db.cli().run(&["queue", "once"]).ok().parse().unwrap();
        let _ = db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_until("the handler runs", || last_run(db, id).handler_process_id.is_some());
        runner.kill().unwrap();
        runner.wait().unwrap();
        let handler: ProcessIdentity = last_run(db, id).handler_identity.parse().unwrap();
        let _ = db.cli().run(&["create-runs"]).ok();
        let runs = db.store().list_runs_of_task(id, 10).unwrap();
        assert!(runs[1].status.is(RunStatus::Timeout) && runs[0].status.is(RunStatus::Scheduled), "{runs:?}");
        assert_eq!(task(db, id).failed_retries, 1);
        // Rule R7: when another runner gets the run, no process works for the task any more.
        assert_eq!(handler.liveness(), Liveness::Dead);
        let _ = db.cli().run(&["tick"]).ok();
        assert!(task(db, id).status.is(TaskStatus::Success));
    }

    fn r1_a_task_that_nobody_here_can_run_stays_visibly_waiting(db) {
        let mut ctx = willing(db);
        let (id, run_id) = queue_with_run(&mut ctx, "elsewhere");
        assert_eq!(drain(&mut ctx).processed, 0);
        assert!(db.store().get_run(run_id).unwrap().status.is(RunStatus::Scheduled));
        let shown = db.cli().run(&["status", "--json", &id.to_string()]).json();
        assert_eq!(shown["why"]["reason"], "no_handler_here");
    }

    fn r2_the_database_refuses_a_second_open_run_of_a_task(db) {
        let mut ctx = willing(db);
        let (id, _) = queue_with_run(&mut ctx, "work");
        let second = format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES ({id}, 'work')");
        let refused = |raw: &mut Raw| {
            let error = raw.try_execute(&second).unwrap_err().to_string().to_lowercase();
            assert!(error.contains("unique") || error.contains("duplicate"), "{error}");
        };
        refused(&mut db.raw());
        let run = claim(&mut ctx.store).unwrap();
        refused(&mut db.raw());
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Succeed)).unwrap();
        db.execute(&second);
        refused(&mut db.raw());
    }

    fn r2_a_run_that_create_runs_does_not_know_of_is_taken_up_not_doubled(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        db.execute(&format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES ({id}, 'work')"));
        create(&mut ctx);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 1);
        assert_eq!(task(db, id).current_run_id, Some(last_run(db, id).id));
    }

    fn r3_a_write_with_another_token_changes_nothing(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let run = claim(&mut ctx.store).unwrap();
        let forged = RunRef { id: run.run_id, token: "forged".to_owned() };
        let before = snapshot(db);
        for event in [RunEvent::Succeed, RunEvent::Fail, RunEvent::TimeOut, RunEvent::Cancel, RunEvent::Release] {
            let ended = ctx.store.end_run(&forged, &ending(event)).unwrap();
            assert_eq!(ended, EndResult::Lost { found: "processing".to_owned() }, "{event:?}");
        }
        let report = RunReport { percents_completed: Some(50), message: Some("x"), results: Some("1") };
        assert!(!ctx.store.record_report(&forged, &report).unwrap());
        assert!(!ctx.store.record_handler(&forged, 4_711, "x").unwrap());
        assert_eq!(snapshot(db), before);
    }

    fn r3_a_write_after_the_end_changes_nothing(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let run = claim(&mut ctx.store).unwrap();
        assert_eq!(ctx.store.end_run(&reference(&run), &ending(RunEvent::Fail)).unwrap(), EndResult::Recorded);
        let before = snapshot(db);
        for event in [RunEvent::Succeed, RunEvent::TimeOut, RunEvent::Cancel, RunEvent::Release] {
            let ended = ctx.store.end_run(&reference(&run), &ending(event)).unwrap();
            assert_eq!(ended, EndResult::Lost { found: "error".to_owned() }, "{event:?}");
        }
        let report = RunReport { percents_completed: Some(50), message: Some("x"), results: Some("1") };
        assert!(!ctx.store.record_report(&reference(&run), &report).unwrap());
        assert!(!ctx.store.record_handler(&reference(&run), 4_711, "x").unwrap());
        assert_eq!(snapshot(db), before);
    }

    fn r3_the_same_end_by_another_with_the_token_counts_once_and_is_refused(db) {
        let mut ctx = willing(db);
        let (id, _) = queue_with_run(&mut ctx, "work");
        let run = claim(&mut ctx.store).unwrap();
        let mut end = ending(RunEvent::TimeOut);
        end.notes = vec![NewEvent {
            kind: "rescued",
            task_id: Some(id),
            run_id: Some(run.run_id),
            actor: String::new(),
            host: String::new(),
            details: serde_json::json!({}),
        }];
        assert_eq!(ctx.store.end_run(&reference(&run), &end).unwrap(), EndResult::Recorded);
        let refused = ctx.store.end_run(&reference(&run), &end).unwrap();
        assert_eq!(refused, EndResult::Lost { found: "timeout".to_owned() });
        assert_eq!((task(db, id).failed_retries, task(db, id).attempts), (1, 1));
        for kind in ["rescued", "retry"] {
            let kept = format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}'");
            assert_eq!(db.number(&kept), 1, "{kind}");
        }
    }

    fn r3_a_late_finisher_is_refused_and_that_is_kept_as_an_event(db) {
        let (engine, raw) = (db.engine, connector(db));
        let mut ctx = context(db, "work", move |run| {
            cancel_by_sql(&mut raw(), engine);
            run.set_results("too late")
        });
        let (id, run_id) = queue_with_run(&mut ctx, "work");
        process_one(&mut ctx);
        let run = ctx.store.get_run(run_id).unwrap();
        assert!(run.status.is(RunStatus::Cancelled));
        assert_eq!((run.results, run.decision.as_str()), (None, ""));
        assert!(task(db, id).status.is(TaskStatus::Cancelled));
        let events = ctx.store.list_events_of_task(id, 10).unwrap();
        assert_eq!((events.len(), events[0].kind.as_str(), events[0].run_id), (1, "late-result", Some(run_id)));
        let details: serde_json::Value = serde_json::from_str(&events[0].details).unwrap();
        assert_eq!((&details["found"], &details["results"]), (&"cancelled".into(), &"\"too late\"".into()));
    }

    fn r3_a_reporting_handler_whose_run_was_taken_away_is_stopped(db) {
        db.configure(
            "[class.long]\nargv = [\"/bin/sh\", \"-c\", \"while :; do echo '{\\\"progress\\\":1}' >&3; sleep 0.1; done\"]\nkill_grace_secs = 1\n",
        );
        let id = db.cli().run(&["queue", "long"]).ok().parse().unwrap();
        let _ = db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_until("the handler runs", || last_run(db, id).percents_completed == 1);
        let handler: ProcessIdentity = last_run(db, id).handler_identity.parse().unwrap();
        cancel_by_sql(&mut db.raw(), db.engine);
        assert!(runner.wait().unwrap().success());
        assert_eq!(handler.liveness(), Liveness::Dead);
        assert!(last_run(db, id).status.is(RunStatus::Cancelled));
        let events = db.store().list_events_of_task(id, 10).unwrap();
        assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["late-result"]);
    }

    fn r4_each_end_of_a_run_means_what_it_should_for_its_task(db) {
        // The event, LastStatus, FailedRetries and Attempts, for a task with two failures and two attempts before.
        for (event, status, failed, attempts) in [
            (RunEvent::Succeed, "success", 0, 3),
            (RunEvent::Fail, "failed", 3, 3),
            (RunEvent::TimeOut, "timeout", 3, 3),
            (RunEvent::Cancel, "cancelled", 2, 3),
        ] {
            let mut ctx = willing(db);
            let id = queue(&mut ctx, "work");
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = 2, \"Attempts\" = 2 WHERE \"Id\" = {id}"
            ));
            ctx.store.open_run_of(id).unwrap().unwrap();
            let run = claim(&mut ctx.store).unwrap();
            assert_eq!(run.attempt, 3);
            ctx.store.end_run(&reference(&run), &ending(event)).unwrap();
            let task = task(db, id);
            assert_eq!(
                (task.status.to_string().as_str(), task.failed_retries, task.attempts, task.current_run_id),
                (status, failed, attempts, None),
                "{event:?}"
            );
        }
    }

    fn r4_a_released_run_costs_no_attempt_and_the_task_is_what_it_was(db) {
        let mut ctx = failing(db);
        let (task_before, _) = work_once(db, &mut ctx);
        make_due(db, task_before.id);
        ctx.store.open_run_of(task_before.id).unwrap().unwrap();
        let run = claim(&mut ctx.store).unwrap();
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Release)).unwrap();
        let released = task(db, task_before.id);
        assert!(released.status.is(TaskStatus::Failed));
        assert_eq!((released.failed_retries, released.attempts), (1, 1));
        assert!(last_run(db, task_before.id).status.is(RunStatus::Released));
        let again = ctx.store.open_run_of(task_before.id).unwrap().unwrap();
        assert_eq!(ctx.store.get_run(again).unwrap().attempt, run.attempt);
    }

    fn r4_a_failed_task_is_due_again_after_its_backoff(db) {
        let mut ctx = willing(db);
        let (id, _) = queue_with_run(&mut ctx, "work");
        let run = claim(&mut ctx.store).unwrap();
        ctx.store.end_run(&reference(&run), &ending(RunEvent::Fail)).unwrap();
        let ended = ctx.store.get_run(run.run_id).unwrap().finished_on.unwrap();
        let wait = (task(db, id).due_from() - ended).num_seconds();
        assert!((59..=67).contains(&wait), "{wait}");
        assert_eq!(create(&mut ctx).created, 0);
    }

    fn r4_when_the_end_cannot_be_recorded_whole_neither_run_nor_task_changes(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let run = claim(&mut ctx.store).unwrap();
        let before = snapshot(db);
        let output =
            RunOutput { stream: "stdout".to_owned(), content: "x".to_owned(), total_bytes: 1, is_lossy: false };
        // The schema does not allow such a stream; it is written after run and task, and after the valid one.
        let mut end = ending(RunEvent::Succeed);
        end.outputs = vec![output.clone(), RunOutput { stream: "third".to_owned(), ..output }];
        ctx.store.end_run(&reference(&run), &end).unwrap_err();
        assert_eq!(snapshot(db), before);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunOutputs\""), 0);
        end.outputs.pop();
        assert_eq!(ctx.store.end_run(&reference(&run), &end).unwrap(), EndResult::Recorded);
    }

    fn r4_when_the_task_cannot_be_changed_its_run_is_not_claimed(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        db.execute(match db.engine {
            EngineUnderTest::Sqlite => "CREATE TRIGGER no BEFORE UPDATE ON \"TaskQueue\" BEGIN SELECT RAISE(ABORT, 'no'); END",
            EngineUnderTest::Postgres => "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE check_violation; END';
                CREATE TRIGGER no BEFORE UPDATE ON \"TaskQueue\" FOR EACH ROW EXECUTE FUNCTION no()",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql =>
                "CREATE TRIGGER no BEFORE UPDATE ON \"TaskQueue\" FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
        });
        let before = snapshot(db);
        let failed = process_error(&mut ctx);
        assert!(!failed.is_empty());
        assert_eq!(snapshot(db), before);
    }

    fn r5_the_slots_of_the_living_runners_never_exceed_the_limit(db) {
        settings::set(&mut willing(db), Setting::RunnerLimit, "5").unwrap();
        let own = ProcessIdentity::own().unwrap();
        let registered: i32 = thread::scope(|scope| {
            let ask = |slots: i32| {
                let runner = NewRunner {
                    process_id: i64::from(own.pid),
                    host: String::new(),
                    process_identity: own.to_string(),
                    slots,
                    version: String::new(),
                    name: String::new(),
                    classes: ServedClasses::default(),
                    boot_ms: || 0,
                };
                move || match db.store().register_runner(&runner).unwrap() {
                    Registration::Registered(_) => slots,
                    Registration::LimitReached { in_use, limit } => {
                        assert!(in_use + i64::from(slots) > limit);
                        0
                    }
                }
            };
            let threads: Vec<_> = (0..12).map(|number| scope.spawn(ask(1 + number % 2))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(registered, 5);
        let live = db.store().list_live_runners().unwrap();
        assert_eq!(live.iter().map(|runner| runner.slots).sum::<i32>(), 5);
    }

    fn r6_runs_are_claimed_by_priority_then_id_across_classes(db) {
        let mut ctx = willing(db);
        let mut put = |class: &str, priority: i64| {
            let mut request = request(class);
            request.priority = Some(priority);
            queue_task(&mut ctx, request, ClassCheck::AnyName).unwrap()
        };
        let (m1, a0, z5, a5, m_low) = (put("m", 1), put("a", 0), put("z", 5), put("a", 5), put("m", -3));
        put("b.unknown", 1_000);
        let (z0, a0_later) = (put("z", 0), put("a", 0));
        put("zz.unknown", 7);
        // Run ids follow the order of queueing, whatever the order of ScheduledOn.
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
        create(&mut ctx);
        let own = ProcessIdentity::own().unwrap();
        let mut order = Vec::new();
        while let Some(run) = claim_of(&mut ctx.store, &own, &|class| class.len() == 1) {
            order.push(run.task_id);
        }
        assert_eq!(order, [z5, a5, m1, a0, z0, a0_later, m_low]);
    }

    fn r6_many_runs_of_unknown_classes_do_not_hide_those_behind_them(db) {
        let mut ctx = willing(db);
        for number in 0..60 {
            queue(&mut ctx, &format!("unknown.{number}"));
        }
        let id = queue(&mut ctx, "work");
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        assert!(task(db, id).status.is(TaskStatus::Success));
    }

    fn r7_an_innocent_process_with_the_pid_of_a_dead_handler_survives(db) {
        let mut ctx = willing(db);
        let (_, run_id) = queue_with_run(&mut ctx, "work");
        let run = claim_as(&mut ctx.store, &dead_process()).unwrap();
        let mut innocent = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let now_there = ProcessIdentity::of_pid(i32::try_from(innocent.id()).unwrap()).unwrap().unwrap();
        let before_it = ProcessIdentity { start_ticks: now_there.start_ticks - 1, ..now_there.clone() };
        assert!(ctx.store.record_handler(&reference(&run), i64::from(before_it.pid), &before_it.to_string()).unwrap());
        create(&mut ctx);
        let liveness = now_there.liveness();
        innocent.kill().unwrap();
        innocent.wait().unwrap();
        assert_eq!(liveness, Liveness::Alive);
        assert!(ctx.store.get_run(run_id).unwrap().status.is(RunStatus::Timeout));
    }

    fn r8_the_times_of_a_run_lie_between_readings_of_the_databases_clock(db) {
        let mut ctx = failing(db);
        let before = ctx.now().unwrap();
        let (task, run) = work_once(db, &mut ctx);
        let after = ctx.now().unwrap();
        let times = [before, task.queued_on, run.created_on, run.started_on.unwrap(), run.finished_on.unwrap(), after];
        assert!(times.is_sorted(), "{times:?}");
        assert!(run.finished_on.unwrap() <= run.updated_on && run.updated_on <= after);
        let runner = db.store().list_runners(1).unwrap().remove(0);
        assert!([before, runner.started_on, runner.heartbeat_on, after].is_sorted(), "{runner:?}");
        assert!([before, runner.started_on, runner.finished_on.unwrap(), after].is_sorted(), "{runner:?}");
    }

    fn r8_the_time_zone_of_the_host_changes_nothing(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let far_east = db.cli().env("TZ", "Pacific/Kiritimati");
        let before = db.store().now().unwrap();
        let id = far_east.run(&["queue", "work", "--in", "1h"]).ok().parse().unwrap();
        let after = db.store().now().unwrap();
        let hour = chrono::TimeDelta::hours(1);
        let scheduled = task(db, id).scheduled_on;
        assert!(before + hour <= scheduled && scheduled <= after + hour, "{before} {scheduled} {after}");
        let _ = db.cli().env("TZ", "America/Los_Angeles").run(&["tick"]).ok();
        assert!(task(db, id).status.is(TaskStatus::Scheduled));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = {}", sql_now(db.engine, -1)));
        let _ = db.cli().env("TZ", "America/Los_Angeles").run(&["tick"]).ok();
        assert!(task(db, id).status.is(TaskStatus::Success));
    }

    fn r9_a_task_of_unknown_status_is_left_alone_and_named(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        allow_unknown_statuses(db).execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'hibernating'");
        let before = task(db, id);
        assert_eq!(create(&mut ctx).created, 0);
        assert_eq!(drain(&mut ctx).processed, 0);
        assert_eq!(task(db, id), before);
        for args in [&["status"][..], &["status", &id.to_string()], &["-v", "create-runs"]] {
            let ended = db.cli().run(args);
            assert_eq!(ended.code, Some(0));
            assert!(ended.stdout.contains("hibernating") || ended.stderr.contains("hibernating"), "{args:?} {ended:?}");
        }
    }

    fn r9_a_run_of_unknown_status_is_left_alone_and_named(db) {
        let mut ctx = willing(db);
        let (id, run_id) = queue_with_run(&mut ctx, "work");
        allow_unknown_statuses(db).execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'paused'");
        let before = snapshot(db);
        assert_eq!(create(&mut ctx).created, 0);
        assert_eq!(drain(&mut ctx).processed, 0);
        assert_eq!(claim(&mut ctx.store), None);
        assert_eq!(snapshot(db), before);
        let asked_for = db.cli().run(&["process-run", &run_id.to_string()]).fails(1);
        assert!(asked_for.contains("paused"), "{asked_for}");
        let shown = db.cli().run(&["status", &id.to_string()]).ok();
        assert!(shown.contains("paused"), "{shown}");
    }

    fn r9_a_class_without_handler_is_left_alone_and_named(db) {
        let mut ctx = willing(db);
        let (id, _) = queue_with_run(&mut ctx, "elsewhere");
        let before = snapshot(db);
        assert_eq!(drain(&mut ctx).processed, 0);
        assert_eq!(snapshot(db), before);
        let shown = db.cli().run(&["status"]).ok();
        assert!(shown.contains("elsewhere") && shown.contains("no handler"), "{shown}");
        assert!(db.cli().run(&["class"]).stdout.contains("elsewhere"));
        assert!(task(db, id).status.is(TaskStatus::Scheduled));
    }

    fn r10_a_started_task_may_start_again_but_only_one_outcome_is_recorded(db) {
        let mut ctx = context(db, "work", |run| run.set_results("second"));
        let (id, _) = queue_with_run(&mut ctx, "work");
        let first = claim_as(&mut ctx.store, &dead_process()).unwrap();
        create(&mut ctx);
        assert_eq!(process_one(&mut ctx).succeeded, 1);
        let late = ctx.store.end_run(&reference(&first), &ending(RunEvent::Succeed)).unwrap();
        assert_eq!(late, EndResult::Lost { found: "timeout".to_owned() });
        let successes = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'";
        assert_eq!((db.number(successes), task(db, id).attempts), (1, 2));
    }
}

/// Returns the error of `process-run`.
fn process_error(ctx: &mut Context) -> String {
    let stop = StopSignals::install().unwrap();
    let options = ProcessOptions::default();
    process_runs(ctx, &options, &stop, &mut Deaf).unwrap_err().to_string()
}
