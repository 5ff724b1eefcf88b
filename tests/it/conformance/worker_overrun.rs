//! A Rust handler that does not end is left behind: the program, the worker and the other runs continue.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use taskqueue::{
    ActiveRun, HandlerError, NewTask, OverrunAction, RunStatus, StopReason, TaskHandler, TaskId, TaskQueue, Worker,
    WorkerEvent, typed,
};
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_engine::EngineError;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::work::{WorkOptions, work};
use taskqueue_process::signals::stop_signals::StopSignals;

use super::fixture::{Deaf, add, create, drain, last_run, queue, request};
use super::worker::{LONG, connect, end_of, worker};
use crate::each_engine;
use crate::support::TestDb;

/// Ignores stop requests until its test releases it; then it reports, and succeeds.
struct Stuck {
    may_end: Arc<AtomicBool>,
    has_ended: mpsc::Sender<()>,
}

impl TaskHandler for Stuck {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        run.set_percents_completed(10);
        while !self.may_end.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        run.set_percents_completed(90);
        run.set_results(&"too late")?;
        run.emit("late", &1)?;
        self.has_ended.send(())?;
        Ok(())
    }
}

/// Returns a worker with the class `stuck`, the flag that releases its handlers, and a channel for their ends.
fn stuck_worker(db: &TestDb, queue: &TaskQueue) -> (Worker, Arc<AtomicBool>, mpsc::Receiver<()>) {
    let (may_end, (has_ended, ends)) = (Arc::<AtomicBool>::default(), mpsc::channel());
    let stuck = Stuck { may_end: Arc::clone(&may_end), has_ended };
    (worker(db, queue).class("stuck", stuck).overrun_grace(Duration::from_millis(10)), may_end, ends)
}

fn queue_stuck(queue: &TaskQueue) -> TaskId {
    let task = NewTask::new("stuck").timeout(Duration::from_secs(1)).backoff("fixed:1h").priority(9);
    queue.queue(task).unwrap().id
}

fn quick_handler() -> impl TaskHandler {
    typed(|number: u32, _run| Ok(number))
}

fn queue_quick(queue: &TaskQueue, count: u32) -> Vec<TaskId> {
    let tasks = (0..count).map(|number| NewTask::new("quick").data(&number).unwrap());
    queue.queue_many(tasks).unwrap().into_iter().map(|queued| queued.id).collect()
}

fn count(db: &TestDb, query: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM {query}"))
}

/// The variables that pass the store and its spool to another process of the test.
const STORE: &str = "TASKQUEUE_TEST_ABORT_STORE";
const SPOOL: &str = "TASKQUEUE_TEST_ABORT_SPOOL";

#[test]
#[ignore = "a program that another test starts, and that is killed"]
fn program_that_aborts() {
    let Ok(store) = std::env::var(STORE) else { return };
    let queue = TaskQueue::connect(&store).unwrap();
    let (has_ended, _ends) = mpsc::channel();
    let worker = Worker::new(&queue).unwrap().spool(std::env::var(SPOOL).unwrap()).slots(1);
    let worker = worker.class("stuck", Stuck { may_end: Arc::default(), has_ended });
    let _ = worker.overrun_grace(Duration::from_millis(10)).on_overrun(OverrunAction::Abort).run();
}

/// Returns when asked to end, with success or an error as its data requests.
struct Obeys(Mutex<mpsc::Sender<Option<StopReason>>>);

impl TaskHandler for Obeys {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let is_well: bool = run.data()?;
        let _ = run.cancel_token().wait(LONG);
        self.0.lock().map_err(|_| HandlerError::new("poisoned", ""))?.send(run.stop_reason())?;
        if is_well { Ok(()) } else { Err(HandlerError::no_retry("half-done", "it was asked to end")) }
    }
}

each_engine! {
    fn a_handler_that_ignores_its_timeout_is_left_behind_alone(db) {
        let queue = connect(db);
        let stuck = queue_stuck(&queue);
        let others = queue_quick(&queue, 20);
        let (worker, may_end, ends) = stuck_worker(db, &queue);
        let report = worker.class("quick", quick_handler()).idle_exit(Duration::ZERO).run().unwrap();
        assert_eq!((report.succeeded, report.failed, report.left_behind), (20, 1, 1), "{report:?}");
        assert!(others.iter().all(|id| end_of(&queue, *id).0 == "success"));
        let run = queue.runs(stuck, 1).unwrap().remove(0);
        assert!(run.status.is(RunStatus::Timeout) && run.error_code == "timeout", "{run:?}");
        assert!(run.error_message.contains("did not end"), "{run:?}");
        assert_eq!(count(db, "\"TaskQueue\" WHERE \"QuarantinedOn\" IS NOT NULL OR \"Crashes\" > 0"), 0);
        // What it does from here on changes nothing.
        may_end.store(true, Ordering::SeqCst);
        ends.recv_timeout(LONG).unwrap();
        let late = queue.runs(stuck, 1).unwrap().remove(0);
        assert_eq!((late.percents_completed, late.results, late.updated_on), (10, None, run.updated_on));
        assert_eq!(count(db, "\"TaskQueueEvents\" WHERE \"Kind\" IN ('message', 'late-result')"), 0);
        assert_eq!(queue.task(stuck).unwrap().attempts, 1);
    }

    fn at_the_limit_of_threads_left_behind_a_worker_claims_nothing(db) {
        let queue = connect(db);
        let stuck = queue_stuck(&queue);
        let quick = queue_quick(&queue, 3);
        let (worker, may_end, _ends) = stuck_worker(db, &queue);
        let (heard, news) = mpsc::channel();
        let (let_go, is_free) = (Arc::clone(&may_end), Arc::clone(&may_end));
        let worker = worker
            .slots(1)
            .class("quick", typed(move |number: u32, _run| {
                is_free.load(Ordering::SeqCst).then_some(number).ok_or(HandlerError::no_retry("early", "it began early"))
            }))
            .on_event(move |news| {
                let words = match news {
                    WorkerEvent::LeftBehind { threads, most, .. } => format!("left {threads} of {most}"),
                    WorkerEvent::ClaimsNothing { threads } => {
                        let_go.store(true, Ordering::SeqCst);
                        format!("claims nothing: {threads}")
                    }
                    WorkerEvent::ClaimsAgain => "claims again".to_owned(),
                    _ => return,
                };
                heard.send(words).unwrap();
            });
        let stop = worker.stop_handle();
        let report = thread::scope(|scope| {
            let working = scope.spawn(|| worker.run().unwrap());
            for id in &quick {
                assert!(queue.wait(*id, LONG).unwrap().is_some());
            }
            stop.stop();
            working.join().unwrap()
        });
        assert_eq!((report.succeeded, report.failed, report.left_behind), (3, 1, 0), "{report:?}");
        // The worker may see that the limit is reached before it records the run of the thread, and that thread may have ended then.
        let (left, other): (Vec<String>, Vec<String>) = news.iter().partition(|words| words.starts_with("left "));
        assert!(left.len() == 1 && left[0].ends_with(" of 1"), "{left:?}");
        assert_eq!(other, ["claims nothing: 1", "claims again"]);
        assert_eq!(end_of(&queue, stuck).0, "timeout");
    }

    fn a_handler_is_asked_to_end_at_its_timeout(db) {
        let queue = connect(db);
        let task = |is_well: bool| NewTask::new("obeys").data(&is_well).unwrap().timeout(Duration::from_secs(1));
        let well = queue.queue(task(true)).unwrap().id;
        let not = queue.queue(task(false)).unwrap().id;
        let (sender, reasons) = mpsc::channel();
        let worker = worker(db, &queue).class("obeys", Obeys(Mutex::new(sender)));
        let report = worker.max_runs(2).run().unwrap();
        assert_eq!((report.succeeded, report.failed, report.left_behind), (1, 1, 0));
        assert_eq!(reasons.iter().collect::<Vec<_>>(), [Some(StopReason::Timeout); 2]);
        // A success counts; an error counts as the timeout.
        assert_eq!(end_of(&queue, well).0, "success");
        assert_eq!(end_of(&queue, not).1, "timeout");
        assert_eq!(queue.task(not).unwrap().failed_retries, 1);
    }

    fn a_worker_that_stops_leaves_a_handler_behind_after_its_time(db) {
        let queue = connect(db);
        let id = queue.queue(NewTask::new("stuck")).unwrap().id;
        let (worker, may_end, ends) = stuck_worker(db, &queue);
        let (began, has_begun) = mpsc::channel();
        let worker = worker.stop_wait(Duration::from_millis(10)).on_event(move |news| {
            if matches!(news, WorkerEvent::RunClaimed { .. }) {
                began.send(()).unwrap();
            }
        });
        let stop = worker.stop_handle();
        let report = thread::scope(|scope| {
            let working = scope.spawn(|| worker.run().unwrap());
            has_begun.recv_timeout(LONG).unwrap();
            // Its report shows that its slot has begun it.
            crate::support::wait_until("it has reported", || queue.runs(id, 1).unwrap()[0].percents_completed == 10);
            stop.stop();
            working.join().unwrap()
        });
        assert_eq!((report.released, report.left_behind), (1, 1), "{report:?}");
        assert_eq!((end_of(&queue, id).0.as_str(), queue.task(id).unwrap().attempts), ("released", 0));
        may_end.store(true, Ordering::SeqCst);
        ends.recv_timeout(LONG).unwrap();
        assert_eq!(end_of(&queue, id).2, None);
    }

    fn a_tick_ends_after_a_handler_that_it_left_behind(db) {
        let (may_end, (has_ended, ends)) = (Arc::<AtomicBool>::default(), mpsc::channel());
        let registry = || HandlerRegistry::new().with_overrun_grace(Duration::from_millis(10));
        let mut stuck = registry();
        stuck.register("stuck", Stuck { may_end: Arc::clone(&may_end), has_ended });
        add(&mut stuck, "work", |_| Ok(()));
        let mut ctx = db.context(stuck);
        let timeout = TaskRequest { timeout_secs: Some(1), ..request("stuck") };
        let id = queue_task(&mut ctx, timeout, ClassCheck::AnyName).unwrap();
        let next = queue(&mut ctx, "work");
        create(&mut ctx);
        let report = drain(&mut ctx);
        assert_eq!((report.processed, report.left_behind, report.last_exit_code), (1, 1, Some(124)), "{report:?}");
        assert!(last_run(db, id).status.is(RunStatus::Timeout) && last_run(db, next).status.is(RunStatus::Scheduled));
        let mut registry = registry();
        add(&mut registry, "work", |_| Ok(()));
        assert_eq!(drain(&mut db.context(registry)).succeeded, 1);
        may_end.store(true, Ordering::SeqCst);
        ends.recv_timeout(LONG).unwrap();
        assert!(last_run(db, id).status.is(RunStatus::Timeout));
    }

    fn a_worker_that_is_to_end_at_the_limit_of_threads_fails(db) {
        let (may_end, (has_ended, ends)) = (Arc::<AtomicBool>::default(), mpsc::channel());
        let mut registry = HandlerRegistry::new().with_overrun_grace(Duration::from_millis(10));
        registry.register("stuck", Stuck { may_end: Arc::clone(&may_end), has_ended });
        let mut ctx = db.context(registry);
        let timeout = TaskRequest { timeout_secs: Some(1), ..request("stuck") };
        let id = queue_task(&mut ctx, timeout, ClassCheck::AnyName).unwrap();
        let options = WorkOptions { slots: 1, ends_when_blocked: true, ..WorkOptions::default() };
        let ended = work(&mut ctx, &options, &StopSignals::install().unwrap(), &mut Deaf);
        assert!(matches!(ended, Err(EngineError::TooManyLeftBehind { threads: 1 })), "{ended:?}");
        assert!(last_run(db, id).status.is(RunStatus::Timeout));
        assert_eq!(count(db, "\"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
        may_end.store(true, Ordering::SeqCst);
        ends.recv_timeout(LONG).unwrap();
    }

    fn a_handler_whose_run_was_taken_from_it_is_asked_to_end(db) {
        let queue = connect(db);
        let id = queue.queue(NewTask::new("reports")).unwrap().id;
        let (began, has_begun) = mpsc::channel();
        let began = Mutex::new(began);
        let (sender, reasons) = mpsc::channel();
        let sender = Mutex::new(sender);
        let worker = worker(db, &queue).max_runs(1).class("reports", typed(move |_: serde_json::Value, run| {
            began.lock().unwrap().send(())?;
            while run.stop_reason().is_none() {
                // With another token, a report is refused.
                run.set_percents_completed(50);
                let _ = run.cancel_token().wait(Duration::from_millis(1));
            }
            sender.lock().unwrap().send(run.stop_reason())?;
            Err::<(), _>(HandlerError::new("taken", "it was asked to end"))
        }));
        let report = thread::scope(|scope| {
            let working = scope.spawn(|| worker.run().unwrap());
            has_begun.recv_timeout(LONG).unwrap();
            db.execute("UPDATE \"TaskQueueRuns\" SET \"Token\" = 'somebody-elses'");
            working.join().unwrap()
        });
        assert_eq!(reasons.recv_timeout(LONG).unwrap(), Some(StopReason::LeaseLost));
        assert_eq!((report.left_behind, end_of(&queue, id).0.as_str()), (0, "processing"));
    }

    fn a_program_may_choose_to_be_killed_for_a_handler_that_does_not_end(db) {
        let queue = connect(db);
        let stuck = queue.queue(NewTask::new("stuck").timeout(Duration::from_secs(1)).backoff("fixed:1h")).unwrap().id;
        let mut program = Command::new(std::env::current_exe().unwrap());
        let program = program.args(["--exact", "--ignored", "conformance::worker_overrun::program_that_aborts"]);
        let ended = program.env(STORE, db.url_text()).env(SPOOL, db.home().join("spool")).output().unwrap();
        assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
        assert_eq!(end_of(&queue, stuck).0, "processing");
        // The next process on the host finds the end of the run.
        let quick = queue_quick(&queue, 1);
        worker(db, &queue).class("quick", quick_handler()).max_runs(1).run().unwrap();
        assert_eq!(end_of(&queue, quick[0]).0, "success");
        assert_eq!((end_of(&queue, stuck).1.as_str(), queue.task(stuck).unwrap().crashes), ("timeout", 0));
    }

    fn a_report_restarts_the_timeout_of_a_handler(db) {
        let queue = connect(db);
        let id = queue.queue(NewTask::new("reports").timeout(Duration::from_secs(1))).unwrap().id;
        let worker = worker(db, &queue).class("reports", typed(|_: serde_json::Value, run| {
            let until = std::time::Instant::now() + Duration::from_millis(2_500);
            while std::time::Instant::now() < until {
                run.heartbeat();
                thread::yield_now();
            }
            Ok(run.stop_reason().map_or("none", StopReason::as_str))
        }));
        assert_eq!(worker.max_runs(1).run().unwrap().succeeded, 1);
        assert_eq!(end_of(&queue, id).2.as_deref(), Some("\"none\""));
    }
}
