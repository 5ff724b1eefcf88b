//! Claimants against each other, against runners and against the rescue; and their processes.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::claiming::claim::{ClaimOutcome, ClaimRequest, Offer, claim};
use taskqueue_engine::claiming::claimants::{Held, ProgressReport, Resolution, renew, resolve};
use taskqueue_engine::claiming::take_back::take_back;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::{Context, EngineError};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::signals::stop_signals::StopSignals;

use super::lost_commit::with_every_commit_lost;
use super::stage::{end_lease, statuses};
use super::tools::both_at_once;
use crate::conformance::fixture::{create, make_due, queue, queue_with_run};
use crate::each_engine;
use crate::support::{Cli, TestDb, wait_until};

/// Enough rounds to see both orders.
const ROUNDS: usize = 8;

fn idle(db: &TestDb) -> Context {
    db.context(HandlerRegistry::new())
}

fn claim_as(ctx: &mut Context, name: &str, process: Option<ProcessIdentity>) -> Option<Offer> {
    let claimant: ClaimantId = name.parse().unwrap();
    let request = ClaimRequest {
        claimant,
        classes: Vec::new(),
        choice: TaskChoice::default(),
        count: 1,
        wait: std::time::Duration::ZERO,
        process,
    };
    match claim(ctx, &request, &StopSignals::install().unwrap()).unwrap() {
        ClaimOutcome::Runs(mut offers) => offers.pop(),
        ClaimOutcome::Nothing | ClaimOutcome::Stopped => None,
    }
}

fn held(offer: &Offer) -> Held {
    Held { run_id: offer.run.run_id, token: offer.run.token.clone() }
}

fn sleeper(claimant: Option<&str>) -> (Child, ProcessIdentity) {
    let mut command = Command::new("/bin/sleep");
    command.arg("600").stdin(Stdio::null()).env_remove("TASKQUEUE_CLAIMANT");
    let child = command.envs(claimant.map(|name| ("TASKQUEUE_CLAIMANT", name))).spawn().unwrap();
    let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
    (child, identity)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn count(db: &TestDb, what: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM {what}"))
}

each_engine! {
    fn two_claimants_at_once_never_get_the_same_run(db) {
        let mut pair = [idle(db), idle(db)];
        for _ in 0..ROUNDS {
            queue_with_run(&mut pair[0], "work");
            let (one, other) = both_at_once(&mut pair, |ctx| claim_as(ctx, "one", None), |ctx| claim_as(ctx, "other", None));
            assert!(one.is_some() != other.is_some(), "{one:?} {other:?}");
        }
    }

    fn two_claimants_at_one_due_task_without_a_run_leave_it_one_run(db) {
        let mut pair = [idle(db), idle(db)];
        for round in 1..=ROUNDS {
            queue(&mut pair[0], "work");
            let (one, other) = both_at_once(&mut pair, |ctx| claim_as(ctx, "one", None), |ctx| claim_as(ctx, "other", None));
            assert!(one.is_some() != other.is_some(), "{one:?} {other:?}");
            assert_eq!(statuses(db).len(), round);
        }
    }

    fn a_result_and_a_rescue_at_once_end_the_run_once(db) {
        let mut pair = [idle(db), idle(db)];
        end_lease(db);
        let mut seen = [0, 0];
        for _ in 0..ROUNDS {
            let (task_id, _) = queue_with_run(&mut pair[0], "work");
            let offer = claim_as(&mut pair[0], "bot", None).unwrap();
            end_lease(db);
            let (resolved, report) =
                both_at_once(&mut pair, |ctx| resolve(ctx, &held(&offer), &Resolution::Success(None)), create);
            let run = pair[0].store.get_run(offer.run.run_id).unwrap();
            let late = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result' AND \"RunId\" = {}", run.id));
            let task = pair[0].store.get_task(task_id).unwrap();
            match resolved {
                Ok(_) => {
                    assert!(run.status.is(RunStatus::Success) && report.rescue.rescued.is_empty(), "{run:?} {report:?}");
                    assert_eq!((late, task.failed_retries), (0, 0));
                    seen[0] += 1;
                }
                Err(EngineError::NotHeld { .. }) => {
                    assert!(run.status.is(RunStatus::Timeout) && report.rescue.rescued.len() == 1, "{run:?} {report:?}");
                    assert_eq!((late, task.failed_retries), (1, 1));
                    seen[1] += 1;
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(task.attempts, 1);
            // Removes the runs, so that they do not disturb the next round.
            db.execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'cancelled', \"FinishedOn\" = \"CreatedOn\" WHERE \"Status\" = 'scheduled'");
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"CurrentRunId\" = NULL");
        }
        assert_eq!(seen[0] + seen[1], ROUNDS);
    }

    fn a_result_and_an_operator_at_once_end_the_run_once(db) {
        let mut pair = [idle(db), idle(db)];
        let mut ended = 0;
        for _ in 0..ROUNDS {
            let (task_id, _) = queue_with_run(&mut pair[0], "work");
            let offer = claim_as(&mut pair[0], "bot", None).unwrap();
            let run_id = offer.run.run_id;
            let (resolved, taken) =
                both_at_once(&mut pair, |ctx| resolve(ctx, &held(&offer), &Resolution::Success(None)), |ctx| take_back(ctx, run_id));
            let run = pair[0].store.get_run(run_id).unwrap();
            let count = |kind: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}' AND \"RunId\" = {run_id}"));
            let kept = (count("resolved"), count("taken-back"), count("late-result"));
            let task = pair[0].store.get_task(task_id).unwrap();
            match (resolved, taken) {
                (Ok(_), Err(EngineError::NotTakenBack { .. })) => {
                    assert!(run.status.is(RunStatus::Success) && task.status.is(TaskStatus::Success), "{run:?} {task:?}");
                    assert_eq!((kept, task.attempts), ((1, 0, 0), 1));
                }
                (Err(EngineError::NotHeld { .. }), Ok(_)) => {
                    assert!(run.status.is(RunStatus::Released) && task.status.is(TaskStatus::Scheduled), "{run:?} {task:?}");
                    assert_eq!((kept, task.attempts), ((0, 1, 1), 0));
                }
                other => panic!("{other:?}"),
            }
            ended += 1;
            // Removes the tasks, so that they do not disturb the next round.
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
        assert_eq!(ended, ROUNDS);
    }

    fn two_operators_at_once_take_a_run_once(db) {
        let mut pair = [idle(db), idle(db)];
        for _ in 0..ROUNDS {
            queue_with_run(&mut pair[0], "work");
            let run_id = claim_as(&mut pair[0], "bot", None).unwrap().run.run_id;
            let (one, other) = both_at_once(&mut pair, |ctx| take_back(ctx, run_id).unwrap(), |ctx| take_back(ctx, run_id).unwrap());
            assert!(one.was_recorded_before != other.was_recorded_before, "{one:?} {other:?}");
            assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'taken-back' AND \"RunId\" = {run_id}")), 1);
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
    }

    fn a_claimant_of_this_host_whose_run_is_taken_is_asked_to_end(db) {
        use std::os::unix::process::ExitStatusExt as _;
        queue_with_run(&mut idle(db), "work");
        let (mut child, identity) = sleeper(Some("bot"));
        let run_id = claim_as(&mut idle(db), "bot", Some(identity)).unwrap().run.run_id;
        let taken = take_back(&mut idle(db), run_id).unwrap();
        assert_eq!((taken.ended_processes, taken.not_ended), (1, None));
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        // A process without the name in its environment is not ended, and is reported.
        let (child, identity) = sleeper(Some("other"));
        let run_id = claim_as(&mut idle(db), "bot", Some(identity.clone())).unwrap().run.run_id;
        let taken = take_back(&mut idle(db), run_id).unwrap();
        assert!(taken.not_ended.unwrap().contains("does not show TASKQUEUE_CLAIMANT"));
        assert_eq!((taken.ended_processes, identity.liveness()), (0, Liveness::Alive));
        end(child);
        // The process that it started for the run is ended with it.
        let offer = claim_as(&mut idle(db), "bot", None).unwrap();
        let mut work = Command::new("/bin/sleep").arg("600").env("TASKQUEUE_RUN_TOKEN", &offer.run.token).spawn().unwrap();
        let taken = take_back(&mut idle(db), offer.run.run_id).unwrap();
        assert_eq!(taken.ended_processes, 1);
        assert!(taken.not_ended.unwrap().contains("recorded no process"));
        assert!(work.wait().unwrap().signal().is_some());
    }

    fn a_heartbeat_and_a_rescue_at_once_agree_on_who_has_the_run(db) {
        let mut pair = [idle(db), idle(db)];
        for _ in 0..ROUNDS {
            queue_with_run(&mut pair[0], "work");
            let offer = claim_as(&mut pair[0], "bot", None).unwrap();
            end_lease(db);
            let (renewed, report) = both_at_once(&mut pair, |ctx| renew(ctx, &held(&offer), &ProgressReport::default()), create);
            let run = pair[0].store.get_run(offer.run.run_id).unwrap();
            let is_kept = report.rescue.rescued.is_empty();
            assert_eq!(run.status.is(RunStatus::Processing), is_kept, "{run:?}");
            match renewed {
                // The lease was renewed, so no other claimant could get the run.
                Ok(renewed) => assert!(is_kept && Some(renewed.deadline) == run.lease_expires_on, "{run:?} {report:?}"),
                Err(EngineError::NotHeld { .. }) => assert!(!is_kept, "{run:?}"),
                Err(error) => panic!("{error}"),
            }
            db.execute("DELETE FROM \"TaskQueueRuns\"");
            db.execute("DELETE FROM \"TaskQueue\"");
        }
    }

    fn the_run_of_a_claimant_that_died_is_rescued_at_once(db) {
        let (task_id, _) = queue_with_run(&mut idle(db), "work");
        let (child, identity) = sleeper(Some("bot"));
        let offer = claim_as(&mut idle(db), "bot", Some(identity)).unwrap();
        assert!(create(&mut idle(db)).rescue.rescued.is_empty());
        end(child);
        let rescued = create(&mut idle(db)).rescue.rescued;
        assert_eq!((rescued.len(), rescued[0].reason.as_str()), (1, "claimant-died"));
        assert!(rescued[0].message.starts_with("the claimant bot (process "), "{rescued:?}");
        let run = db.store().get_run(offer.run.run_id).unwrap();
        assert_eq!((run.error_code.as_str(), run.status.is(RunStatus::Timeout)), ("claimant-died", true));
        // The task may be what kills the claimants.
        assert_eq!(db.store().get_task(task_id).unwrap().crashes, 1);
    }

    fn a_claimant_of_this_host_whose_time_is_over_is_asked_to_end(db) {
        queue_with_run(&mut idle(db), "work");
        let (mut child, identity) = sleeper(Some("bot"));
        let offer = claim_as(&mut idle(db), "bot", Some(identity)).unwrap();
        end_lease(db);
        // The kernel shows its end when its parent has waited for it, or as a zombie.
        let rescued = create(&mut idle(db)).rescue.rescued;
        assert_eq!((rescued.len(), rescued[0].reason.as_str(), rescued[0].ended_processes), (1, "lease-expired", 1));
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(db.store().get_run(offer.run.run_id).unwrap().status.is(RunStatus::Timeout));
    }

    fn a_claim_of_a_class_waits_for_a_task_of_it_and_leaves_others_to_others(db) {
        let mut ctx = idle(db);
        let other = queue(&mut ctx, "other");
        let request = ClaimRequest {
            claimant: "bot".parse().unwrap(),
            classes: vec!["wanted".to_owned()],
            choice: TaskChoice::default(),
            count: 1,
            wait: std::time::Duration::from_secs(60),
            process: None,
        };
        let claimed = std::thread::scope(|scope| {
            let claiming = scope.spawn(|| claim(&mut idle(db), &request, &StopSignals::install().unwrap()).unwrap());
            // The run of the due task shows that it has polled.
            wait_until("the claim has created the run of the other class", || statuses(db) == ["scheduled"]);
            let wanted = queue(&mut ctx, "wanted");
            (claiming.join().unwrap(), wanted)
        });
        let (ClaimOutcome::Runs(offers), wanted) = claimed else { panic!("{claimed:?}") };
        let offered: Vec<_> = offers.iter().map(|offer| (offer.run.task_id, offer.run.class.as_str())).collect();
        assert_eq!(offered, [(wanted, "wanted")]);
        assert!(ctx.store.get_task(other).unwrap().status.is(TaskStatus::Scheduled));
        assert_eq!(statuses(db), ["scheduled", "processing"]);
    }

    fn a_row_alone_ends_no_process(db) {
        // One has another name; the other one has none.
        for shown in [None, Some("other")] {
            queue_with_run(&mut idle(db), "work");
            let (child, identity) = sleeper(shown);
            let offer = claim_as(&mut idle(db), "bot", Some(identity.clone())).unwrap();
            end_lease(db);
            let rescued = create(&mut idle(db)).rescue.rescued;
            assert_eq!((rescued.len(), rescued[0].ended_processes), (1, 0));
            assert!(rescued[0].message.contains("does not show TASKQUEUE_CLAIMANT"), "{rescued:?}");
            assert_eq!(identity.liveness(), Liveness::Alive);
            end(child);
            let run = db.store().get_run(offer.run.run_id).unwrap();
            assert!(run.status.is(RunStatus::Timeout));
            make_due(db, run.task_id);
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
            db.execute("DELETE FROM \"TaskQueueRuns\"");
        }
    }

    fn what_a_claimant_does_while_any_commit_is_lost_is_done_once(db) {
        let work = |cli: &Cli| {
            let say = |words: &[&str]| cli.run(words).ok();
            say(&["queue", "--any-class", "work"]);
            let claimed = |name: &str| -> (String, String) {
                let line: Value = serde_json::from_str(&say(&["worker", "claim", "--claimant", name])).unwrap();
                (line["run_id"].to_string(), line["token"].as_str().unwrap().to_owned())
            };
            let (run, token) = claimed("one");
            say(&["worker", "heartbeat", &run, "--token", &token]);
            say(&["worker", "release", &run, "--token", &token]);
            let (run, token) = claimed("two");
            say(&["report", "progress", &run, "50", "--token", &token]);
            say(&["worker", "resolve", &run, "--token", &token, "--results", "1"]);
        };
        with_every_commit_lost(db, work, |rounds| {
            let count = |what: &str| db.number(&format!("SELECT COUNT(*) AS value FROM {what}"));
            assert_eq!(count("\"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Attempts\" = 2"), rounds);
            assert_eq!(count("\"TaskQueueRuns\""), 2 * rounds);
            assert_eq!(count("\"TaskQueueRejections\""), rounds);
            for (kind, expected) in [("claimed", 2), ("rejected", 1), ("resolved", 1), ("late-result", 0)] {
                assert_eq!(count(&format!("\"TaskQueueEvents\" WHERE \"Kind\" = '{kind}'")), expected * rounds, "{kind}");
            }
        });
    }

    fn what_is_released_at_no_cost_while_any_commit_is_lost_is_released_once(db) {
        let work = |cli: &Cli| {
            // Only the release can lose a COMMIT: the rest is done without the proxy.
            let mut ctx = idle(db);
            queue_with_run(&mut ctx, "work");
            let Held { run_id, token } = held(&claim_as(&mut ctx, "bot", None).unwrap());
            cli.run(&["worker", "release", &run_id.to_string(), "--token", &token, "--no-reject"]).ok();
        };
        // A claim would otherwise get the task that an earlier round released.
        with_every_commit_lost(db, work, |rounds| {
            assert_eq!(count(db, "\"TaskQueue\" WHERE \"LastStatus\" = 'scheduled' AND \"Attempts\" = 0"), rounds);
            assert_eq!(count(db, "\"TaskQueueRuns\" WHERE \"Status\" = 'released'"), rounds);
            assert_eq!(count(db, "\"TaskQueueEvents\" WHERE \"Kind\" = 'released'"), rounds);
        });
    }

    fn what_an_operator_takes_while_any_commit_is_lost_is_taken_once(db) {
        let work = |cli: &Cli| {
            // Only what the operator does can lose a COMMIT.
            let mut ctx = idle(db);
            let task = queue_with_run(&mut ctx, "work").0.to_string();
            let run = claim_as(&mut ctx, "bot", None).unwrap().run.run_id.to_string();
            cli.run(&["worker", "release", &run, "--force"]).ok();
            claim_as(&mut ctx, "bot", None).unwrap();
            cli.run(&["retry", &task, "--force"]).ok();
            cli.run(&["cancel", &task]).ok();
        };
        with_every_commit_lost(db, work, |rounds| {
            assert_eq!(count(db, "\"TaskQueue\" WHERE \"LastStatus\" = 'cancelled' AND \"Attempts\" = 0"), rounds);
            assert_eq!(count(db, "\"TaskQueueRuns\" WHERE \"Status\" = 'released'"), 2 * rounds);
            for (kind, expected) in [("claimed", 2), ("taken-back", 2), ("retried", 1), ("cancelled", 1), ("late-result", 0)] {
                let of_kind = format!("\"TaskQueueEvents\" WHERE \"Kind\" = '{kind}'");
                assert_eq!(count(db, &of_kind), expected * rounds, "{kind}");
            }
        });
    }

    fn a_runner_and_a_claimant_at_once_share_what_waits(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        for _ in 0..ROUNDS {
            queue_with_run(&mut idle(db), "work");
        }
        let runner = db.cli().spawn(&["process-run", "--drain"]);
        let mut resolved = Vec::<RunId>::new();
        let mut ctx = idle(db);
        while let Some(offer) = claim_as(&mut ctx, "bot", None) {
            resolve(&mut ctx, &held(&offer), &Resolution::Success(None)).unwrap();
            resolved.push(offer.run.run_id);
        }
        assert_eq!(crate::support::cli::finish(runner).code, Some(0));
        wait_until("all are done", || statuses(db).iter().all(|status| status == "success"));
        assert_eq!(db.number("SELECT SUM(\"Attempts\") AS value FROM \"TaskQueue\""), ROUNDS as i64);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Claimant\" = 'bot'"), resolved.len() as i64);
    }
}
