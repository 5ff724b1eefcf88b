//! A worker inside a program.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskqueue::{
    ActiveRun, Error, HandlerError, NewTask, RunStatus, StopReason, TaskHandler, TaskId, TaskQueue, Worker,
    WorkerEvent, typed,
};

use crate::cli::unreadable::insert_unreadable;
use crate::each_engine;
use crate::support::TestDb;

/// Longer than any operation in this file.
pub const LONG: Duration = Duration::from_secs(60);

pub fn connect(db: &TestDb) -> TaskQueue {
    TaskQueue::connect(db.url_text()).unwrap()
}

/// Returns a worker that writes nothing outside the directory of the test.
pub fn worker(db: &TestDb, queue: &TaskQueue) -> Worker {
    Worker::new(queue).unwrap().spool(db.home().join("spool")).slots(2)
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    cents: Vec<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Total {
    cents: u64,
}

fn total() -> impl TaskHandler {
    typed(|order: Order, _run| Ok(Total { cents: order.cents.iter().sum() }))
}

fn queue_order(queue: &TaskQueue, class: &str) -> TaskId {
    queue.queue(NewTask::new(class).data(&Order { cents: vec![1, 2] }).unwrap()).unwrap().id
}

/// Returns the status, ErrorCode and results of the last run.
pub fn end_of(queue: &TaskQueue, id: TaskId) -> (String, String, Option<String>) {
    let run = queue.runs(id, 1).unwrap().remove(0);
    (run.status.to_string(), run.error_code, run.results)
}

fn live_runners(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL")
}

each_engine! {
    fn typed_handlers_take_data_and_return_results_as_types_of_the_program(db) {
        let queue = connect(db);
        let good = queue_order(&queue, "total");
        let bad = queue.queue(NewTask::new("total").data(&7).unwrap()).unwrap().id;
        let silent = queue_order(&queue, "silent");
        let failing = queue_order(&queue, "failing");
        let other = queue_order(&queue, "somebody-elses");
        let worker = worker(db, &queue)
            .class("total", total())
            .class("silent", typed(|_: Order, run| run.set_results(&"set by itself")))
            .class("failing", typed(|_: Order, _run| Err::<(), _>(HandlerError::no_retry("E1", "no luck"))));
        let report = worker.idle_exit(Duration::ZERO).run().unwrap();
        assert_eq!((report.processed, report.succeeded, report.failed), (4, 2, 2));
        assert_eq!(report.spool_problem, None);
        let run = queue.runs(good, 1).unwrap().remove(0);
        assert_eq!(run.results_as::<Total>().unwrap(), Some(Total { cents: 3 }));
        assert_eq!((run.cpu_msecs, run.peak_memory_bytes), (None, None));
        assert_eq!(end_of(&queue, silent), ("success".into(), String::new(), Some("\"set by itself\"".into())));
        assert_eq!(end_of(&queue, bad).1, "invalid-data");
        assert_eq!(end_of(&queue, failing), ("error".into(), "E1".into(), None));
        assert!(queue.runs(other, 1).unwrap().iter().all(|run| run.status.is(RunStatus::Scheduled)));
        assert_eq!(live_runners(db), 0);
    }

    fn a_rust_handler_gets_no_row_that_cannot_be_read(db) {
        let queue = connect(db);
        insert_unreadable(db);
        let good = queue.queue(NewTask::new("echo").data(&7).unwrap()).unwrap().id;
        let worker = worker(db, &queue).class("echo", typed(|number: u32, _run| Ok(number)));
        let report = worker.idle_exit(Duration::ZERO).run().unwrap();
        assert_eq!(end_of(&queue, TaskId(1)).1, "unreadable");
        assert_eq!((report.succeeded, report.failed), (1, 0), "{report:?}");
        assert_eq!(end_of(&queue, good).2.as_deref(), Some("7"));
    }

    fn a_stopped_worker_finishes_what_it_has_begun_and_leaves_the_rest(db) {
        struct Waits(Mutex<mpsc::Receiver<()>>, mpsc::Sender<()>);
        impl TaskHandler for Waits {
            fn process_task_queue_run(&self, _run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
                self.1.send(())?;
                self.0.lock().map_err(|_| HandlerError::new("poisoned", ""))?.recv()?;
                Ok(())
            }
        }
        let queue = connect(db);
        let ids: Vec<TaskId> = (0..2).map(|_| queue_order(&queue, "wait")).collect();
        let ((go, wait), (began, has_begun)) = (mpsc::channel(), mpsc::channel());
        let worker = worker(db, &queue).class("wait", Waits(Mutex::new(wait), began)).slots(1);
        let (stop, first) = (worker.stop_handle(), worker.stop_handle());
        thread::scope(|scope| {
            let working = scope.spawn(|| worker.run().unwrap());
            has_begun.recv_timeout(LONG).unwrap();
            first.stop();
            stop.stop();
            go.send(()).unwrap();
            let report = working.join().unwrap();
            assert_eq!((report.processed, report.succeeded), (1, 1));
        });
        assert_eq!(end_of(&queue, ids[0]).0, "success");
        assert_eq!(queue.task(ids[1]).unwrap().attempts, 0);
        assert_eq!(live_runners(db), 0);
    }

    fn a_rust_handler_learns_that_its_worker_is_to_stop(db) {
        struct Asks(mpsc::Sender<Option<StopReason>>);
        impl TaskHandler for Asks {
            fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
                self.0.send(run.stop_reason())?;
                let until = std::time::Instant::now() + LONG;
                while run.stop_reason().is_none() && std::time::Instant::now() < until {
                    thread::yield_now();
                }
                self.0.send(run.stop_reason())?;
                Ok(())
            }
        }
        let queue = connect(db);
        let id = queue_order(&queue, "ask");
        let (sender, reasons) = mpsc::channel();
        let worker = worker(db, &queue).class("ask", Asks(sender)).slots(1);
        let stop = worker.stop_handle();
        thread::scope(|scope| {
            let working = scope.spawn(|| worker.run().unwrap());
            assert_eq!(reasons.recv_timeout(LONG).unwrap(), None);
            stop.stop();
            assert_eq!(reasons.recv_timeout(LONG).unwrap(), Some(StopReason::Shutdown));
            assert_eq!(working.join().unwrap().succeeded, 1);
        });
        assert_eq!(end_of(&queue, id).0, "success");
    }

    fn several_workers_of_a_program_share_a_store(db) {
        let queue = connect(db);
        let tasks = (0..40).map(|n| NewTask::new("total").data(&Order { cents: vec![n] }).unwrap());
        let ids: Vec<TaskId> = queue.queue_many(tasks).unwrap().into_iter().map(|queued| queued.id).collect();
        let handles: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|_| worker(db, &queue).class("total", total())).collect();
            let stops = workers.iter().map(Worker::stop_handle).collect();
            let working: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.run().unwrap())).collect();
            for (n, id) in ids.iter().enumerate() {
                let ended = queue.wait(*id, LONG).unwrap().unwrap();
                let total: Total = ended.run.unwrap().results_as().unwrap().unwrap();
                assert_eq!(total.cents, u64::try_from(n).unwrap());
            }
            let stops: Vec<taskqueue::StopHandle> = stops;
            stops.iter().for_each(taskqueue::StopHandle::stop);
            assert_eq!(working.into_iter().map(|working| working.join().unwrap().succeeded).sum::<u64>(), 40);
            stops
        });
        assert_eq!((handles.len(), live_runners(db)), (3, 0));
        let left = std::fs::read_dir(db.home().join("spool")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        assert!(left.iter().all(|name| !name.starts_with("slots-")), "{left:?}");
    }

    fn a_program_hears_what_happens_to_its_worker(db) {
        let queue = connect(db);
        let good = queue_order(&queue, "total");
        let bad = queue.queue(NewTask::new("total")).unwrap().id;
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heard);
        let worker = worker(db, &queue).class("total", total()).slots(1).on_event(move |news| {
            let words = match news {
                WorkerEvent::Registered(_) => "registered".to_owned(),
                WorkerEvent::RunClaimed { task_id, class, .. } => format!("{task_id} {class} claimed"),
                WorkerEvent::RunEnded(run) => {
                    format!("{} {} {} {}: {}", run.task_id, run.class, run.attempt, run.status.as_str(), run.error_code)
                }
                other => format!("{other:?}"),
            };
            kept.lock().unwrap().push(words);
        });
        assert_eq!(worker.idle_exit(Duration::ZERO).run().unwrap().processed, 2);
        let heard = heard.lock().unwrap().clone();
        assert_eq!(heard[0], "registered");
        for words in [
            format!("{good} total claimed"),
            format!("{good} total 1 success: "),
            format!("{bad} total claimed"),
            format!("{bad} total 1 error: invalid-data"),
        ] {
            assert!(heard.contains(&words), "{words}: {heard:?}");
        }
        assert_eq!(heard.len(), 5, "{heard:?}");
    }

    fn a_program_hears_whether_a_task_is_retried(db) {
        let queue = connect(db);
        for (class, retries) in [("good", 1), ("bad", 1), ("bad", 2), ("hopeless", 9)] {
            queue.queue(NewTask::new(class).max_retries(retries)).unwrap();
        }
        let (sender, heard) = mpsc::channel();
        let worker = worker(db, &queue)
            .slots(1)
            .class("good", typed(|_: serde_json::Value, _run| Ok(())))
            .class("bad", typed(|_: serde_json::Value, _run| Err::<(), _>(HandlerError::new("E1", "no luck"))))
            .class("hopeless", typed(|_: serde_json::Value, _run| Err::<(), _>(HandlerError::no_retry("E2", "never"))))
            .on_event(move |news| {
                if let WorkerEvent::RunEnded(run) = news {
                    sender.send((run.task_id.0, run.outcome.as_str())).unwrap();
                }
            });
        assert_eq!(worker.max_runs(4).run().unwrap().processed, 4);
        let mut heard: Vec<_> = heard.iter().collect();
        heard.sort_unstable();
        assert_eq!(heard, [(1, "success"), (2, "failed"), (3, "retry"), (4, "failed")]);
    }

    fn a_worker_ends_after_its_number_of_runs(db) {
        let queue = connect(db);
        let ids: Vec<TaskId> = (0..3).map(|_| queue_order(&queue, "total")).collect();
        let report = worker(db, &queue).class("total", total()).max_runs(2).run().unwrap();
        assert_eq!(report.processed, 2);
        let attempts: i32 = ids.iter().map(|id| queue.task(*id).unwrap().attempts).sum();
        assert_eq!(attempts, 2);
    }

    fn what_cannot_be_a_worker_is_refused_before_it_is_registered(db) {
        let queue = connect(db);
        for (worker, what) in [
            (worker(db, &queue), "needs a class"),
            (worker(db, &queue).class("no class", total()), "class"),
            (worker(db, &queue).class("total", total()).slots(0), "needs a slot"),
            (worker(db, &queue).class("total", total()).name(""), "name"),
        ] {
            let error = worker.run().unwrap_err();
            assert!(matches!(&error, Error::Input(words) if words.contains(what)), "{what}: {error}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\""), 0);
    }
}
