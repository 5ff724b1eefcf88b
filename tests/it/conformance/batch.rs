//! Many runs claimed and ended at once: the results are the same as one by one, on every engine.

use chrono::DateTime;
use taskqueue_domain::limits::limit::ClassLimit;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::run::usage::Usage;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{ClaimedRun, Run, RunOutput, Task};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_engine::change::limits;
use taskqueue_store::{EndResult, ManyClaimed, RunEnd, RunRef, Store};

use super::fixture::{claim_by_nobody, create, last_run, queue, queue_with_run, reference, task, willing};
use crate::each_engine;

fn claim_many(store: &mut Store, round: &str, count: usize, is_runnable: &dyn Fn(&TaskClass) -> bool) -> ManyClaimed {
    store.claim_runs(&claim_by_nobody(is_runnable), &tokens(round, count)).unwrap()
}

fn tokens(round: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{:07}{round}{n:05}token", std::process::id())).collect()
}

/// Ends runs and claims; returns the answers to the ends, and the claimed runs.
fn end_and_claim(
    store: &mut Store,
    ends: &[(RunRef, &RunEnd)],
    round: &str,
    count: usize,
) -> (Vec<Option<EndResult>>, ManyClaimed) {
    let mut answers = vec![None; ends.len()];
    let mut ended = |place: usize, answer| answers[place] = Some(answer);
    let claim = claim_by_nobody(&|_| true);
    let claimed = store.end_runs_and_claim(ends, &mut ended, &claim, &tokens(round, count)).unwrap();
    (answers, claimed)
}

fn ids(claimed: &[ClaimedRun]) -> Vec<RunId> {
    claimed.iter().map(|run| run.run_id).collect()
}

fn success(decision: &str) -> RunEnd {
    RunEnd::of(RunEvent::Succeed, "", "", decision)
}

/// Removes what may differ between two runs with the same history.
fn without_ids(mut run: Run) -> Run {
    let at = DateTime::UNIX_EPOCH;
    (run.id, run.task_id, run.created_on, run.updated_on) = (RunId(0), TaskId(0), at, at);
    run.token = run.token.map(|_| String::new());
    for on in [&mut run.started_on, &mut run.finished_on, &mut run.lease_expires_on] {
        *on = on.map(|_| at);
    }
    run
}

fn task_facts(task: &Task) -> (String, i32, i32, i32, bool) {
    (task.status.to_string(), task.failed_retries, task.attempts, task.crashes, task.current_run_id.is_some())
}

each_engine! {
    fn many_runs_are_claimed_in_the_order_in_which_one_by_one_would_be_r6(db) {
        let mut ctx = willing(db);
        let plain: Vec<RunId> = (0..3).map(|_| queue_with_run(&mut ctx, "work").1).collect();
        let (other_task, other) = queue_with_run(&mut ctx, "other");
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Priority\" = 5 WHERE \"Id\" = {other}"));
        let claimed = claim_many(&mut ctx.store, "a", 3, &|_| true).runs;
        assert_eq!(ids(&claimed), [other, plain[0], plain[1]]);
        assert_eq!(claimed[0].task_id, other_task);
        let rest = claim_many(&mut ctx.store, "b", 3, &|_| true).runs;
        assert_eq!(ids(&rest), [plain[2]]);
        assert!(claim_many(&mut ctx.store, "c", 3, &|_| true).runs.is_empty());
    }

    fn a_run_claimed_among_many_has_all_that_one_claimed_alone_has(db) {
        let mut ctx = willing(db);
        let (alone, among) = (queue_with_run(&mut ctx, "work"), queue_with_run(&mut ctx, "other"));
        let first = claim_many(&mut ctx.store, "a", 1, &|class| class == "work").runs.remove(0);
        let single = {
            ctx.store.claim_next_run(&claim_by_nobody(&|_| true), "a-single-token").unwrap().unwrap()
        };
        assert_eq!((first.run_id, single.run_id), (alone.1, among.1));
        let mut other = without_ids(last_run(db, among.0));
        other.class = "work".to_owned().into();
        assert_eq!(without_ids(last_run(db, alone.0)), other);
        assert_eq!(task_facts(&task(db, alone.0)), task_facts(&task(db, among.0)));
        assert_eq!((first.attempt, first.max_retries, &first.data), (single.attempt, single.max_retries, &single.data));
    }

    fn where_no_run_waits_due_tasks_are_started_without_one_that_waits(db) {
        let mut ctx = willing(db);
        let waiting = queue_with_run(&mut ctx, "work");
        let due: Vec<TaskId> = (0..3).map(|_| queue(&mut ctx, "work")).collect();
        let claimed = claim_many(&mut ctx.store, "a", 3, &|_| true);
        assert!(!claimed.needs_runs);
        let tasks: Vec<TaskId> = claimed.runs.iter().map(|run| run.task_id).collect();
        assert_eq!(tasks, [waiting.0, due[0], due[1]], "waiting runs come before due tasks");
        for id in [waiting.0, due[0], due[1]] {
            let (task, run) = (task(db, id), last_run(db, id));
            assert_eq!((task.status.to_string(), run.status.to_string()), ("processing".into(), "processing".into()));
            assert_eq!((task.current_run_id, run.attempt), (Some(run.id), 1));
        }
        assert_eq!(ctx.store.list_runs_of_task(due[2], 1).unwrap(), []);
        assert_eq!(create(&mut ctx).created, 1);
    }

    fn a_task_that_becomes_due_behind_the_place_of_a_worker_is_not_missed(db) {
        let mut ctx = willing(db);
        let due: Vec<TaskId> = (0..4).map(|_| queue(&mut ctx, "work")).collect();
        let tasks = |claimed: ManyClaimed| claimed.runs.iter().map(|run| run.task_id).collect::<Vec<_>>();
        assert_eq!(tasks(claim_many(&mut ctx.store, "a", 2, &|_| true)), due[..2]);
        let earlier = queue(&mut ctx, "work");
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2020-02-02 02:02:02' WHERE \"Id\" = {earlier}"));
        // A worker with enough work may skip it for a moment; an idle worker may not.
        let next = tasks(claim_many(&mut ctx.store, "b", 1, &|_| true));
        assert!(next == due[2..3] || next == [earlier], "{next:?}");
        let mut rest = tasks(claim_many(&mut ctx.store, "c", 5, &|_| true));
        rest.extend(next);
        rest.sort_unstable();
        assert_eq!(rest, [due[2], due[3], earlier]);
    }

    fn due_tasks_that_must_have_their_turn_among_runs_are_not_started(db) {
        let mut ctx = willing(db);
        for special in ["\"Priority\" = 1", "\"LimitKey\" = 'k'", "\"TaskClass\" = 'unknown'"] {
            let (first, second) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"));
            db.execute(&format!("UPDATE \"TaskQueue\" SET {special} WHERE \"Id\" = {second}"));
            let claimed = claim_many(&mut ctx.store, "a", 1, &|class| class == "work");
            if special.starts_with("\"Priority") {
                assert!(claimed.needs_runs && claimed.runs.is_empty(), "{special}: it comes first");
            } else {
                assert_eq!(claimed.runs[0].task_id, first, "{special}");
                let claimed = claim_many(&mut ctx.store, "b", 1, &|class| class == "work");
                assert!(claimed.needs_runs && claimed.runs.is_empty(), "{special}");
            }
            db.execute("DELETE FROM \"TaskQueueRuns\"");
            db.execute("DELETE FROM \"TaskQueue\"");
        }
    }

    fn a_limit_of_a_class_holds_for_many_at_once(db) {
        let mut ctx = willing(db);
        for _ in 0..4 {
            queue_with_run(&mut ctx, "work");
        }
        limits::set(&mut ctx, &ClassLimit { class: "work".to_owned(), max_running: Some(3), rate: None }).unwrap();
        let claimed = claim_many(&mut ctx.store, "a", 10, &|_| true).runs;
        assert_eq!(claimed.len(), 3);
        assert!(claim_many(&mut ctx.store, "b", 10, &|_| true).runs.is_empty());
        let ends = [(reference(&claimed[0]), &success("test"))];
        ctx.store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
        assert_eq!(claim_many(&mut ctx.store, "c", 10, &|_| true).runs.len(), 1);
    }

    fn a_run_of_a_cancelled_task_ends_instead_of_being_claimed_among_many(db) {
        let mut ctx = willing(db);
        let (cancelled, kept) = (queue_with_run(&mut ctx, "work"), queue_with_run(&mut ctx, "work"));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {}", cancelled.0));
        assert_eq!(ids(&claim_many(&mut ctx.store, "a", 5, &|_| true).runs), [kept.1]);
        assert_eq!(last_run(db, cancelled.0).status.to_string(), "cancelled");
    }

    fn many_successes_end_as_one_would_and_late_ones_are_told_apart_r3(db) {
        let mut ctx = willing(db);
        let tasks: Vec<TaskId> = (0..3).map(|_| queue_with_run(&mut ctx, "work").0).collect();
        let claimed = claim_many(&mut ctx.store, "a", 3, &|_| true).runs;
        let output = RunOutput { stream: "stdout".to_owned(), content: "said".to_owned(), total_bytes: 4, is_lossy: false };
        let full = RunEnd {
            handler: Some((7, "somebody".to_owned())),
            usage: Some(Usage { cpu_msecs: 412, peak_memory_bytes: Some(5_000_000_000) }),
            message: Some("done".to_owned()),
            results: Some("{\"a\":1}".to_owned()),
            outputs: vec![output],
            ..success("test")
        };
        assert_eq!(ctx.store.end_run(&reference(&claimed[0]), &full).unwrap(), EndResult::Recorded);
        let late = RunRef { id: claimed[0].run_id, token: claimed[0].token.clone() };
        let foreign = RunRef { id: claimed[2].run_id, token: "another".to_owned() };
        let other = success("another");
        let ends = [(late, &other), (reference(&claimed[1]), &full), (foreign, &full)];
        let mut answers = vec![None; 3];
        ctx.store.end_runs(&ends, &mut |place, ended| answers[place] = Some(ended)).unwrap();
        assert_eq!(answers[0], Some(EndResult::Lost { found: "success".to_owned() }));
        assert_eq!(answers[1], Some(EndResult::Recorded));
        assert_eq!(answers[2], Some(EndResult::Lost { found: "processing".to_owned() }));
        assert_eq!(without_ids(last_run(db, tasks[0])), without_ids(last_run(db, tasks[1])));
        assert_eq!(task_facts(&task(db, tasks[0])), task_facts(&task(db, tasks[1])));
        assert_eq!(ctx.store.list_run_outputs(claimed[1].run_id).unwrap(), full.outputs);
        assert_eq!(task(db, tasks[2]).status.to_string(), "processing");
    }

    fn an_end_that_was_written_before_is_no_late_one(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let claimed = claim_many(&mut ctx.store, "a", 1, &|_| true).runs;
        for _ in 0..2 {
            let ends = [(reference(&claimed[0]), &success("test"))];
            ctx.store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
        }
        assert_eq!(task(db, claimed[0].task_id).attempts, 1);
    }

    fn successes_and_failures_end_together_each_in_its_own_way(db) {
        let mut ctx = willing(db);
        let tasks: Vec<TaskId> = (0..3).map(|_| queue_with_run(&mut ctx, "work").0).collect();
        let claimed = claim_many(&mut ctx.store, "a", 3, &|_| true).runs;
        let (won, failed) = (success("test"), RunEnd::of(RunEvent::Fail, "E1", "no luck", "test"));
        let released = RunEnd::of(RunEvent::Release, "back", "given back", "test");
        let ends: Vec<_> = claimed.iter().map(reference).zip([&failed, &won, &released]).collect();
        let mut count = 0;
        ctx.store.end_runs(&ends, &mut |_, ended| {
            assert_eq!(ended, EndResult::Recorded);
            count += 1;
        }).unwrap();
        assert_eq!(count, 3);
        let facts: Vec<_> = tasks.iter().map(|id| task_facts(&task(db, *id))).collect();
        assert_eq!(facts[0], ("failed".to_owned(), 1, 1, 0, false));
        assert_eq!(facts[1], ("success".to_owned(), 0, 1, 0, false));
        assert_eq!(facts[2], ("scheduled".to_owned(), 0, 0, 0, false));
    }

    fn a_success_among_many_satisfies_what_waits_for_it_and_frees_its_key(db) {
        let mut ctx = willing(db);
        let (first, waiting) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"));
        let keyed = queue(&mut ctx, "work");
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1 WHERE \"Id\" = {waiting}"));
        db.execute(&format!("INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES ({waiting}, {first})"));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"LimitKey\" = 'k' WHERE \"Id\" IN ({first}, {keyed})"));
        assert_eq!(create(&mut ctx).created, 2);
        let claimed = claim_many(&mut ctx.store, "a", 5, &|_| true).runs;
        assert_eq!(claimed.iter().map(|run| run.task_id).collect::<Vec<_>>(), [first], "the key has one slot");
        let ends = [(reference(&claimed[0]), &success("test"))];
        ctx.store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
        let claimed = claim_many(&mut ctx.store, "b", 5, &|_| true).runs;
        let tasks: Vec<TaskId> = claimed.iter().map(|run| run.task_id).collect();
        assert_eq!(tasks, [keyed, waiting]);
    }

    fn what_has_ended_is_written_with_the_claim_of_what_comes_next(db) {
        let mut ctx = willing(db);
        let tasks: Vec<TaskId> = (0..4).map(|_| queue(&mut ctx, "work")).collect();
        let claimed = claim_many(&mut ctx.store, "a", 2, &|_| true).runs;
        let (won, foreign) = (success("test"), RunRef { id: claimed[1].run_id, token: "another".to_owned() });
        let (answers, next) = end_and_claim(&mut ctx.store, &[(reference(&claimed[0]), &won), (foreign, &won)], "b", 5);
        assert_eq!(answers[0], Some(EndResult::Recorded));
        assert_eq!(answers[1], Some(EndResult::Lost { found: "processing".to_owned() }), "the others are not claimed");
        assert_eq!(next.runs.iter().map(|run| run.task_id).collect::<Vec<_>>(), tasks[2..]);
        assert_eq!(task_facts(&task(db, tasks[0])), ("success".to_owned(), 0, 1, 0, false));
        let (answers, none) = end_and_claim(&mut ctx.store, &[(reference(&claimed[1]), &won)], "c", 5);
        assert_eq!((answers, none.runs.len()), (vec![Some(EndResult::Recorded)], 0));
    }

    fn a_claim_with_the_ends_of_earlier_runs_takes_waiting_runs_in_order(db) {
        let mut ctx = willing(db);
        let runs: Vec<RunId> = (0..4).map(|_| queue_with_run(&mut ctx, "work").1).collect();
        let due = queue(&mut ctx, "work");
        let claimed = claim_many(&mut ctx.store, "a", 1, &|_| true).runs;
        let won = success("test");
        let failed = RunEnd { may_retry: false, ..RunEnd::of(RunEvent::Fail, "E1", "no luck", "test") };
        let (answers, next) = end_and_claim(&mut ctx.store, &[(reference(&claimed[0]), &won)], "b", 2);
        assert_eq!((answers, ids(&next.runs)), (vec![Some(EndResult::Recorded)], runs[1..3].to_vec()));
        // An outcome that is no success has a separate transaction, and the claim another one.
        let ends = [(reference(&next.runs[0]), &won), (reference(&next.runs[1]), &failed)];
        let (answers, last) = end_and_claim(&mut ctx.store, &ends, "c", 2);
        assert_eq!(answers, [Some(EndResult::Recorded), Some(EndResult::GivenUp)]);
        assert_eq!((last.runs[0].run_id, last.runs[1].task_id), (runs[3], due));
    }

    fn what_waits_for_a_success_is_claimed_with_it(db) {
        let mut ctx = willing(db);
        let (first, waiting) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1 WHERE \"Id\" = {waiting}"));
        db.execute(&format!("INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES ({waiting}, {first})"));
        let claimed = claim_many(&mut ctx.store, "a", 5, &|_| true).runs;
        assert_eq!(claimed.iter().map(|run| run.task_id).collect::<Vec<_>>(), [first]);
        let (_, next) = end_and_claim(&mut ctx.store, &[(reference(&claimed[0]), &success("test"))], "b", 5);
        assert_eq!(next.runs.iter().map(|run| run.task_id).collect::<Vec<_>>(), [waiting]);
    }

    fn transitions_are_kept_of_many_as_of_one(db) {
        db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).ok();
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let due = queue(&mut ctx, "work");
        let claimed = claim_many(&mut ctx.store, "a", 5, &|_| true);
        assert!(claimed.needs_runs, "the due task gets no run with a stored creation");
        let ends = [(reference(&claimed.runs[0]), &success("test"))];
        ctx.store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
        let kept = |kind: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}'"));
        assert_eq!((kept("run-started"), kept("run-ended")), (1, 1));
        assert_eq!(ctx.store.list_runs_of_task(due, 1).unwrap(), []);
    }
}
