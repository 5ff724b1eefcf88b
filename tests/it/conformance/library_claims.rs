//! The library claims runs like `claim`, and reports on them and ends them like the verbs of claimants.

use std::time::Duration;

use taskqueue::{
    Claim, ClaimedRun, Error, EventFilter, HandlerError, NewTask, Retry, RunStatus, TaskId, TaskQueue, TaskStatus,
};

use crate::each_engine;
use crate::races::stage::end_lease;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb};

/// Longer than any operation in this file.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn connect(db: &TestDb) -> TaskQueue {
    TaskQueue::connect(db.url_text()).unwrap().spool(db.home().join("spool"))
}

fn claim(queue: &TaskQueue, claimant: &str) -> Option<ClaimedRun> {
    queue.claim(&Claim::new(claimant)).unwrap().pop()
}

/// Queues a task and claims its run.
fn claimed(queue: &TaskQueue) -> (TaskId, ClaimedRun) {
    let id = queue.queue(NewTask::new("mail").data(&"ann").unwrap()).unwrap().id;
    (id, claim(queue, "bot-1").expect("there is a run"))
}

fn status(queue: &TaskQueue, id: TaskId) -> String {
    queue.task(id).unwrap().status.to_string()
}

#[test]
fn a_message_that_is_sent_again_after_an_error_is_stored_once() {
    on(EngineUnderTest::Sqlite, |db| {
        let queue = connect(db);
        let (_, run) = claimed(&queue);
        db.execute("CREATE TRIGGER no BEFORE UPDATE ON \"TaskQueueRuns\" BEGIN SELECT RAISE(ABORT, 'no'); END");
        run.emit("sent", &3).unwrap_err();
        db.execute("DROP TRIGGER no");
        run.emit("sent", &3).unwrap();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'message'"), 1);
    });
}

each_engine! {
    fn a_claimed_run_lives_from_its_claim_to_its_results(db) {
        let queue = connect(db);
        assert!(claim(&queue, "bot-1").is_none());
        let id = queue.queue(NewTask::new("mail").data(&"ann").unwrap().timeout(LONG)).unwrap().id;
        let run = claim(&queue, "bot-1").unwrap();
        assert_eq!((run.task_id, run.class.as_str(), run.attempt, run.timeout), (id, "mail", 1, LONG));
        assert_eq!(run.data_as::<String>().unwrap(), "ann");
        assert!(claim(&queue, "bot-2").is_none());
        let renewed = run.progress(150, Some("nearly")).unwrap();
        assert!(renewed.deadline >= run.deadline && !renewed.cancel_requested, "{renewed:?}");
        assert_eq!(run.check().unwrap().deadline, renewed.deadline);
        assert!(run.emit("sent", &3).unwrap().deadline >= renewed.deadline);
        let row = queue.run(run.run_id()).unwrap();
        assert_eq!((row.percents_completed, row.progress_message.as_str(), row.claimant.as_deref()), (100, "nearly", Some("bot-1")));
        let resolved = run.resolve(&[1, 2]).unwrap();
        assert_eq!((resolved.task_id, resolved.status.as_str(), resolved.was_recorded_before), (id, "success", false));
        assert!(run.resolve(&[1, 2]).unwrap().was_recorded_before);
        let row = queue.run(run.run_id()).unwrap();
        assert_eq!(row.results_as::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        assert!(queue.task(id).unwrap().status.is(TaskStatus::Success));
        let messages = EventFilter { kinds: vec!["message".to_owned()], ..EventFilter::default() };
        assert_eq!(queue.events(&messages, 10).unwrap().len(), 1);
    }

    fn a_run_that_an_operator_took_is_refused_to_its_claimant(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        let taken = queue.because("bot-1 was removed").take_back(run.run_id()).unwrap();
        assert_eq!((taken.task_id, taken.claimant.as_str(), taken.status.as_str()), (id, "bot-1", "released"));
        let refused = [
            run.heartbeat().map(drop),
            run.progress(50, None).map(drop),
            run.check().map(drop),
            run.emit("sent", &3).map(drop),
            run.resolve(&7).map(drop),
            run.fail(&HandlerError::new("smtp:451", "")).map(drop),
            run.reject("").map(drop),
            run.release("").map(drop),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert!(matches!(&error, Error::NotHeld { run: found, .. } if found.status.is(RunStatus::Released)), "{error:?}");
        }
        assert_eq!(status(&queue, id), "scheduled");
        let taken = EventFilter { kinds: vec!["taken-back".to_owned()], ..EventFilter::default() };
        assert!(queue.events(&taken, 10).unwrap()[0].details.contains("bot-1 was removed"));
        // The late result is kept.
        let late = EventFilter { kinds: vec!["late-result".to_owned()], ..EventFilter::default() };
        assert!(queue.events(&late, 10).unwrap()[0].details.contains('7'));
        let row = queue.run(run.run_id()).unwrap();
        assert_eq!((row.results, row.percents_completed), (None, 0));
    }

    fn a_run_whose_deadline_is_over_goes_to_the_next_claim(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        end_lease(db);
        // The claim rescues it. Its claimant was silent, so the claim need not wait.
        let next = claim(&queue, "bot-2").unwrap();
        assert_eq!((next.task_id, next.attempt), (id, 2));
        assert!(matches!(run.resolve(&7), Err(Error::NotHeld { .. })));
        assert_eq!(next.resolve(&8).unwrap().status, "success");
        assert!(queue.run(run.run_id()).unwrap().status.is(RunStatus::Timeout));
    }

    fn only_the_token_of_its_claim_ends_a_run(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        let wrong = queue.held_run(run.run_id(), "wrong");
        assert!(matches!(wrong.resolve(&()), Err(Error::NotHeld { .. })));
        assert!(matches!(queue.held_run(taskqueue::RunId(4_711), "wrong").check(), Err(Error::NotFound(_))));
        let elsewhere = connect(db).held_run(run.run_id(), run.token());
        assert_eq!(elsewhere.resolve(&()).unwrap().status, "success");
        assert_eq!((status(&queue, id).as_str(), queue.run(run.run_id()).unwrap().results), ("success", None));
        assert!(!format!("{run:?}").contains(run.token()), "the token is in the debug output");
    }

    fn a_failed_run_is_retried_as_its_claimant_wants(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        assert!(matches!(run.fail(&HandlerError::new(" ", "")), Err(Error::Input(_))));
        assert_eq!(run.fail(&HandlerError::retry_after(3_600, "smtp:451", "greylisted")).unwrap().status, "error");
        let task = queue.task(id).unwrap();
        let row = queue.run(run.run_id()).unwrap();
        assert_eq!((row.error_code.as_str(), row.error_message.as_str()), ("smtp:451", "greylisted"));
        let wait = (task.due_from() - row.finished_on.unwrap()).num_seconds();
        assert!((3_590..=3_610).contains(&wait) && !task.is_exhausted(), "{wait}");
        let (id, run) = claimed(&queue);
        run.fail(&HandlerError::no_retry("smtp:550", "no such person")).unwrap();
        assert!(queue.task(id).unwrap().is_exhausted());
    }

    fn a_rejected_task_goes_to_others_and_a_released_one_costs_nothing(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        assert_eq!(run.reject("no such disk").unwrap().status, "error");
        assert!(claim(&queue, "bot-1").is_none());
        let run = claim(&queue, "bot-2").unwrap();
        assert_eq!((run.task_id, run.attempt), (id, 2));
        assert_eq!(run.release("").unwrap().status, "released");
        let run = claim(&queue, "bot-2").unwrap();
        assert_eq!((run.task_id, run.attempt, queue.task(id).unwrap().failed_retries), (id, 2, 1));
    }

    fn a_claim_by_a_program_chooses_by_class_task_key_and_tag(db) {
        let queue = connect(db);
        let task = |class: &str| NewTask::new(class);
        let ids = queue.queue_many([task("mail.send"), task("sms"), task("report").unique("k"), task("report").limit_key("l"), task("report"), task("report").tag("t")]);
        let ids: Vec<TaskId> = ids.unwrap().iter().map(|queued| queued.id).collect();
        let claimed = |claim: Claim| queue.claim(&claim).unwrap().iter().map(|run| run.task_id).collect::<Vec<_>>();
        let bot = || Claim::new("bot-1").count(10);
        assert_eq!(claimed(bot().classes(["s?s"])), ids[1..2]);
        assert_eq!(claimed(bot().task(ids[4])), ids[4..5]);
        assert_eq!(claimed(bot().unique("k")), ids[2..3]);
        assert_eq!(claimed(bot().limit_key("l")), ids[3..4]);
        assert_eq!(claimed(bot().tag("other")), []);
        assert_eq!(claimed(bot().tag("t")), ids[5..]);
        assert_eq!(claimed(bot()), ids[..1]);
        assert!(matches!(queue.claim(&bot().task(TaskId(4_711))), Err(Error::NotFound(_))));
        for (wrong, what) in [
            (Claim::new("bot 1"), "no spaces"),
            (bot().classes(["a b"]), "a class name cannot contain"),
            (bot().unique(""), "1 to 190"),
            (bot().tag(" t"), "the tag begins or ends with a space"),
            (bot().count(0), "1 to 1000"),
            (bot().process(1), "no process 1"),
        ] {
            let error = queue.claim(&wrong).unwrap_err();
            assert!(matches!(&error, Error::Input(words) if words.contains(what)), "{error}");
        }
    }

    fn a_stopped_queue_claims_no_more_and_still_records_the_end(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.claim(&Claim::new("bot-1").wait(Duration::MAX)).unwrap().len());
            queue.stop_handle().stop();
            assert_eq!(waiting.join().unwrap(), 0);
        });
        queue.queue(NewTask::new("mail")).unwrap();
        assert!(claim(&queue, "bot-1").is_none());
        run.resolve(&()).unwrap();
        assert_eq!(status(&queue, id), "success");
    }

    fn a_claim_by_a_program_waits_for_a_task(db) {
        let queue = connect(db);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.claim(&Claim::new("bot-1").wait(LONG)).unwrap().len());
            queue.queue(NewTask::new("mail")).unwrap();
            assert_eq!(waiting.join().unwrap(), 1);
        });
    }

    fn a_claim_by_a_program_does_not_wait_for_a_task_that_is_over(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        run.resolve(&()).unwrap();
        // Otherwise the wait would never end.
        assert_eq!(queue.claim(&Claim::new("bot-1").task(id).wait(Duration::MAX)).unwrap().len(), 0);
    }

    fn a_program_finds_silent_runs_and_the_run_of_a_token(db) {
        let queue = connect(db);
        let (_, run) = claimed(&queue);
        assert!(queue.silent_runs(LONG, 10).unwrap().is_empty());
        db.execute("UPDATE \"TaskQueueRuns\" SET \"UpdatedOn\" = '2020-01-01 00:00:00'");
        assert_eq!(queue.silent_runs(LONG, 10).unwrap()[0].id, run.run_id());
        assert_eq!(queue.run_of_token(run.token()).unwrap().unwrap().id, run.run_id());
        assert!(queue.run_of_token("wrong").unwrap().is_none());
    }

    fn a_program_retries_by_force_what_a_claimant_has(db) {
        let queue = connect(db);
        let (id, run) = claimed(&queue);
        assert!(matches!(queue.retry(id).unwrap().all(), Err(Error::Refused(_))));
        assert_eq!(queue.retry_with(id, &Retry::new().by_force()).unwrap().all().unwrap(), [id]);
        assert!(matches!(run.heartbeat(), Err(Error::NotHeld { .. })));
        let again = queue.take_back(run.run_id()).unwrap();
        assert!(again.was_recorded_before);
        let (_, ended) = (queue.cancel(id).unwrap().all().unwrap(), claimed(&queue).1);
        ended.resolve(&()).unwrap();
        assert!(matches!(queue.take_back(ended.run_id()), Err(Error::Refused(_))));
    }
}
