//! `cancel`: a waiting task never runs, a run in progress is ended by its runner, and a finished task is unchanged.

use std::sync::Mutex;
use std::time::Duration;

use taskqueue::{HandlerError, StopReason};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::cancel::cancel_tasks;

use super::{ECHO, detail, error_and_hint, is_alive, printed, shell_class, task, wait_for_file};
use crate::conformance::fixture::{
    claim, claim_as, context, create, dead_process, ending, last_run, process_one, queue, reference, willing,
};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

/// A class whose handler writes its PID and continues to work; `on_term` runs on TERM.
fn configure(db: &TestDb, grace_secs: u32, on_term: &str) {
    let script = format!(
        "cd {}; trap '{on_term}' TERM; echo begun; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.02; done",
        db.home().display()
    );
    db.configure(&format!("{}kill_grace_secs = {grace_secs}\n", shell_class(db, "work", &script)));
}

fn events(db: &TestDb, id: &str) -> Vec<String> {
    let events = detail(db, id)["events"].as_array().unwrap().clone();
    events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

each_engine! {
    fn what_waits_is_cancelled_at_once_with_its_run_and_never_runs(db) {
        db.configure(ECHO);
        for options in [["--in", "1h"].as_slice(), &[], &[]] {
            db.cli().run(&[&["queue", "echo"], options].concat()).ok();
        }
        db.store().open_run_of(TaskId(2)).unwrap().unwrap();
        let ended = db.cli().run(&["cancel", "--reason", "not needed", "1", "2", "3"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "task 1 is cancelled\ntask 2 is cancelled\ntask 3 is cancelled\n"));
        for id in ["1", "2", "3"] {
            let after = detail(db, id);
            assert_eq!((&after["task"]["status"], &after["why"]["reason"]), (&"cancelled".into(), &"cancelled".into()));
            assert_eq!(after["task"]["current_run_id"], serde_json::Value::Null);
            assert_eq!(events(db, id), ["cancelled"]);
            assert_eq!(after["events"][0]["details"], serde_json::json!({"reason": "not needed"}));
        }
        let run = &detail(db, "2")["runs"][0];
        assert_eq!((&run["status"], &run["error_code"], &run["error_message"]), (&"cancelled".into(), &"cancelled".into(), &"not needed".into()));
        assert_eq!(task(db, "2")["attempts"], 1);
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" <> 'cancelled'"), 0);
    }

    fn what_is_over_is_refused(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        for class in ["echo", "bad", "echo"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["cancel", "3"]).ok();
        db.cli().run(&["tick"]).ok();
        let ended = db.cli().run(&["cancel", "1", "2", "3", "4"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let said: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(said, [
            "warning: task 1 has the status success; there is nothing to cancel",
            // A task that failed without a retry can be cancelled.
            "task 2 is cancelled",
            "warning: task 3 has the status cancelled; there is nothing to cancel",
            "warning: there is no task 4",
        ]);
        assert_eq!(db.cli().run(&["cancel", "4"]).code, Some(3));
        let long = "x".repeat(1_001);
        assert_eq!(db.cli().run(&["cancel", "1", "--reason", &long]).code, Some(2));
    }

    fn a_task_that_was_cancelled_by_sql_while_its_run_waits_is_not_executed(db) {
        let script = format!("touch {}/ran-$TASKQUEUE_TASK_ID", db.home().display());
        db.configure(&shell_class(db, "work", &script));
        db.cli().stdin("{\"class\":\"work\"}\n".repeat(3)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" <> 2");
        let refused = db.cli().run(&["process-run", "3"]).fails(1);
        assert!(refused.contains("run 3 cannot be processed: its status is cancelled"), "{refused}");
        db.cli().run(&["process-run", "--drain"]).ok();
        let statuses = db.raw().texts("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"");
        assert_eq!(statuses.into_iter().flatten().collect::<Vec<_>>(), ["cancelled", "success", "cancelled"]);
        for id in ["1", "3"] {
            let after = detail(db, id);
            assert_eq!((&after["task"]["status"], &after["task"]["current_run_id"]), (&"cancelled".into(), &serde_json::Value::Null));
            assert_eq!((&after["task"]["attempts"], &after["runs"][0]["error_code"]), (&1.into(), &"cancelled".into()));
        }
        assert!(db.home().join("ran-2").exists() && !db.home().join("ran-1").exists() && !db.home().join("ran-3").exists());
    }

    fn a_claim_ends_hundreds_cancelled_by_sql_and_takes_the_first_that_is_not(db) {
        for claim in [&["process-run"] as &[&str], &["worker", "claim", "--claimant", "bot"]] {
            db.configure(&shell_class(db, "work", "true"));
            db.cli().stdin("{\"class\":\"work\"}\n".repeat(251)).run(&["queue", "--batch", "-"]).ok();
            db.cli().run(&["create-runs"]).ok();
            let last = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\"");
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"LastStatus\" = 'scheduled' AND \"Id\" <> {last}"
            ));
            db.cli().run(claim).ok();
            let is_last = format!("\"TaskQueueRuns\" WHERE \"TaskQueueId\" = {last} AND \"StartedOn\" IS NOT NULL");
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM {is_last}")), 1, "{claim:?}");
            let open = "\"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'";
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM {open}")), 0, "{claim:?}");
        }
    }

    fn what_is_cancelled_and_what_is_to_be_ended_by_others_is_counted_apart(db) {
        for _ in 0..4 {
            db.cli().run(&["queue", "--any-class", "work"]).ok();
        }
        let cancel = |args: &[&str]| db.cli().run(&[&["cancel"], args].concat()).stderr;
        db.cli().run(&["worker", "claim", "--claimant", "bot-1", "--count", "2"]).ok();
        // As a claimant that uses SQL and does not give its host.
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Host\" = '' WHERE \"TaskQueueId\" = 2");
        assert_eq!(cancel(&["1-4", "--dry-run"]).lines().last(), Some("2 tasks would be cancelled, 2 would be ended by their runners or claimants"));
        assert_eq!(cancel(&["1-2", "--dry-run"]).lines().last(), Some("2 tasks would be ended by their runners or claimants"));
        assert_eq!(cancel(&["2-3", "--dry-run"]).lines().last(), Some("1 task would be cancelled, 1 would be ended by its runner or claimant"));
        assert_eq!(cancel(&["2-3", "--yes"]), "1 task cancelled, 1 to be ended by its runner or claimant\n");
        assert_eq!(cancel(&["1-2", "--yes"]), "2 tasks to be ended by their runners or claimants\n");
        assert_eq!(cancel(&["4-4", "--yes"]), "1 task cancelled\n");
        let said = cancel(&["1", "2"]);
        let said: Vec<&str> = said.lines().collect();
        let (start, end) = ("task 1 will be ended by claimant bot-1 on ", ", which is notified at its next heartbeat");
        assert!(said[0].starts_with(start) && said[0].ends_with(end) && said[0].len() > start.len() + end.len(), "{said:?}");
        assert_eq!(said[1], "hint: if claimant bot-1 is gone, take its run back: `taskqueue worker release 1 --force`");
        assert_eq!(said[2], "task 2 will be ended by claimant bot-1, which is notified at its next heartbeat");
        let lines = db.cli().run(&["cancel", "--json", "1", "2"]).ok();
        assert_eq!(lines.matches("\"result\":\"cancel-requested\"").count(), 2, "{lines}");
        assert_eq!(task(db, "1")["status"], "processing");
    }

    fn a_handler_that_runs_is_asked_to_end_and_can_clean_up(db) {
        configure(db, 60, "echo cleaned; echo term > got; exit 0");
        db.cli().run(&["queue", "work"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        let handler = wait_for_file(db, "pid");
        assert_eq!(db.cli().run(&["cancel", "--dry-run", "1"]).stderr, "task 1 would be ended by its runner or claimant\n");
        let asked = db.cli().run(&["cancel", "--json", "1"]).json();
        assert_eq!((&asked["id"], &asked["result"]), (&1.into(), &"cancel-requested".into()));
        let ended = finish(runner);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(wait_for_file(db, "got"), "term");
        assert!(!is_alive(&handler));
        let after = detail(db, "1");
        assert_eq!((&after["task"]["status"], &after["task"]["failed_retries"], &after["task"]["attempts"]), (&"cancelled".into(), &0.into(), &1.into()));
        let run = &after["runs"][0];
        assert_eq!((&run["status"], &run["error_code"], &run["decision"]), (&"cancelled".into(), &"cancelled".into(), &"cancelled".into()));
        assert!(run["error_message"].as_str().unwrap().starts_with("cancelled by "), "{run}");
        assert_eq!(printed(&after, "stdout"), "begun\ncleaned\n");
        assert_eq!(events(db, "1"), ["cancel-requested"]);
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 1);
    }

    fn a_handler_that_does_not_listen_is_killed_after_its_grace(db) {
        configure(db, 1, "echo term > got");
        let waiting = db.cli().spawn(&["queue", "work", "--run"]);
        let handler = wait_for_file(db, "pid");
        db.cli().run(&["cancel", "last"]).ok();
        // A second cancel changes nothing, and the first reason stays.
        db.cli().run(&["cancel", "last", "--reason", "again"]).ok();
        assert_eq!(finish(waiting).code, Some(130));
        assert_eq!(wait_for_file(db, "got"), "term");
        assert!(!is_alive(&handler));
        let run = &detail(db, "1")["runs"][0];
        assert_eq!(run["status"], "cancelled");
        assert!(run["error_message"].as_str().unwrap().starts_with("cancelled by "), "{run}");
    }

    fn a_handler_in_rust_can_ask(db) {
        let operator = Mutex::new(willing(db));
        let mut ctx = context(db, "work", move |run| {
            assert!(!run.is_cancelled() && run.stop_reason().is_none());
            let id = TaskId(run.task_id());
            cancel_tasks(&mut operator.lock().unwrap(), &[id], Some("enough"), &mut |_| {}).unwrap();
            assert!(run.cancel_token().wait(Duration::from_secs(60)) && run.is_cancelled());
            assert_eq!(run.stop_reason(), Some(StopReason::Cancel));
            if run.attempt() == 1 && id.0 == 1 { Err(HandlerError::new("E1", "cleaned up")) } else { Ok(()) }
        });
        let (first, second) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"));
        create(&mut ctx);
        process_one(&mut ctx);
        process_one(&mut ctx);
        // Its error is kept and not retried; a success still counts.
        let (task, run) = (ctx.store.get_task(first).unwrap(), last_run(db, first));
        assert_eq!((task.status.to_string(), task.failed_retries, run.status.to_string()), ("cancelled".to_owned(), 0, "cancelled".to_owned()));
        assert_eq!((run.error_code.as_str(), run.decision.as_str()), ("E1", "cancelled; the handler reported an error: retry"));
        assert_eq!(last_run(db, second).status.to_string(), "success");
        assert_eq!(ctx.store.get_task(second).unwrap().status.to_string(), "success");
    }

    fn a_rescue_cancels_a_run_with_a_cancel_request_and_a_dead_runner(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        create(&mut ctx);
        claim_as(&mut ctx.store, &dead_process()).unwrap();
        cancel_tasks(&mut ctx, &[id], None, &mut |_| {}).unwrap();
        let report = create(&mut ctx);
        assert!(report.rescue.rescued[0].is_cancelled && report.created == 0);
        let (task, run) = (ctx.store.get_task(id).unwrap(), last_run(db, id));
        assert_eq!((task.status.to_string(), task.crashes, task.failed_retries), ("cancelled".to_owned(), 0, 0));
        assert_eq!((run.status.to_string(), run.error_code.as_str()), ("cancelled".to_owned(), "runner-died"));
    }

    fn however_a_run_that_is_to_end_ends_it_is_cancelled_unless_it_succeeded(db) {
        let mut ctx = willing(db);
        for (event, status) in [
            (RunEvent::Succeed, "success"),
            (RunEvent::Fail, "cancelled"),
            (RunEvent::TimeOut, "cancelled"),
            (RunEvent::Release, "cancelled"),
            (RunEvent::Cancel, "cancelled"),
        ] {
            let id = queue(&mut ctx, "work");
            create(&mut ctx);
            let run = claim(&mut ctx.store).unwrap();
            cancel_tasks(&mut ctx, &[id], None, &mut |_| {}).unwrap();
            ctx.store.end_run(&reference(&run), &ending(event)).unwrap();
            let task = ctx.store.get_task(id).unwrap();
            assert_eq!((task.status.to_string().as_str(), task.attempts, task.failed_retries), (status, 1, 0), "{event:?}");
            assert_eq!(last_run(db, id).status.to_string(), status, "{event:?}");
        }
        assert_eq!(create(&mut ctx).created, 0);
    }

    fn what_waits_for_a_task_is_cancelled_with_it_if_somebody_wants_that(db) {
        for after in [[].as_slice(), &["--after", "1"], &["--after", "1,2"], &[], &["--after", "3,4"], &["--after", "4"]] {
            db.cli().run(&[&["queue", "--any-class", "x"], after].concat()).ok();
        }
        let statuses = || db.raw().texts("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"").into_iter().flatten().collect::<Vec<_>>();
        let (error, _) = error_and_hint(&db.cli().run(&["cancel", "1", "--dependants"]).fails(2));
        assert_eq!(error, "error: the selection matches 4 tasks; pass --yes to confirm");
        // With or without dependents, no task matches.
        assert_eq!(db.cli().run(&["cancel", "6", "--dependants"]).stderr, "task 6 is cancelled\n");
        assert_eq!(db.cli().run(&["cancel", "1", "--dependants", "--yes"]).stderr, "4 tasks cancelled\n");
        assert_eq!(statuses(), ["cancelled", "cancelled", "cancelled", "scheduled", "cancelled", "cancelled"]);
    }
}
