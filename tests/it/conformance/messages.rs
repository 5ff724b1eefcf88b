//! Messages to Rust handlers, and listeners of a program.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde_json::json;
use taskqueue::{
    ActiveRun, Claim, Error, EventsOf, HandlerError, NewTask, RunId, SentMessage, TaskId, TaskQueue, Worker, typed,
};

use super::fixture::{Handled, context, create, last_run, make_due, process_one, queue_with_run};
use crate::races::tools::begin_write;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

/// Longer than any operation in this file.
const LONG: Duration = Duration::from_secs(60);

fn connect(db: &TestDb) -> TaskQueue {
    TaskQueue::connect(db.url_text()).unwrap()
}

/// Takes messages until `finish`; the results are the names and data of the others.
fn take_until_finish(run: &mut ActiveRun<'_>) -> Handled {
    let inbox = run.messages();
    let mut taken = Vec::new();
    loop {
        let message = inbox.wait(LONG).ok_or_else(|| HandlerError::no_retry("silence", format!("{taken:?}")))?;
        if message.name == "finish" {
            return run.set_results(&taken);
        }
        taken.push(format!("{} {}", message.name, message.data));
    }
}

fn results(db: &TestDb, id: TaskId) -> Vec<String> {
    let run = last_run(db, id);
    assert_eq!(run.error_code, "", "{}", run.error_message);
    run.results_as().unwrap().unwrap()
}

/// Sends a message as soon as an attempt is in progress.
fn send_once_in_progress(queue: &TaskQueue, id: TaskId, name: &str) -> SentMessage {
    let mut sent = None;
    wait_until("a run is in progress", || {
        sent = queue.message(id, name, &json!({ "of": id.0 })).ok();
        sent.is_some()
    });
    sent.unwrap()
}

/// Returns SQL for a message, without quotation marks, which MySQL reads differently.
fn insert(db: &TestDb, task: TaskId, run: RunId, name: &str) -> String {
    let object = if db.engine == EngineUnderTest::Postgres { "json_build_object" } else { "json_object" };
    format!(
        "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"RunId\", \"Details\")
         VALUES ('message-to-task', {task}, {run}, {object}('name', '{name}', 'data', 1))"
    )
}

each_engine! {
    fn a_handler_in_rust_takes_messages_in_the_order_they_were_sent(db) {
        let queue = connect(db);
        let mut ctx = context(db, "work", take_until_finish);
        let (id, run_id) = queue_with_run(&mut ctx, "work");
        let (other, _) = queue_with_run(&mut ctx, "work");
        thread::scope(|scope| {
            scope.spawn(|| process_one(&mut ctx));
            let sent = send_once_in_progress(&queue, id, "first");
            assert_eq!((sent.run_id, sent.is_kept), (Some(run_id), false));
            // Rows that any client can write, and messages for another task or attempt.
            db.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\") VALUES ('message-to-task', {id})"));
            db.execute(&insert(db, id, RunId(9_999), "stray"));
            db.execute(&insert(db, other, run_id, "stray"));
            for number in 0..20 {
                queue.message(id, "page", &number).unwrap();
            }
            queue.message(id, "finish", &()).unwrap();
        });
        let pages = (0..20).map(|number| format!("page {number}"));
        let first = format!("first {}", json!({ "of": id.0 }));
        assert_eq!(results(db, id), std::iter::once(first).chain(pages).collect::<Vec<_>>());
    }

    fn a_message_that_is_kept_reaches_each_later_attempt_at_the_task(db) {
        let queue = connect(db);
        let mut ctx = context(db, "work", |run| {
            let message = run.messages().wait(LONG).ok_or_else(|| HandlerError::new("silence", ""))?;
            run.set_results(&[message.name])?;
            if run.attempt() == 1 { Err(HandlerError::new("E1", "no luck")) } else { Ok(()) }
        });
        let (id, _) = queue_with_run(&mut ctx, "work");
        let refused = queue.message(id, "early", &1).unwrap_err();
        assert!(matches!(&refused, Error::NotInProgress(why) if why.contains("the status scheduled")), "{refused}");
        let kept = queue.message_kept(id, "skip", &[17]).unwrap();
        assert_eq!((kept.task_id, kept.run_id, kept.is_kept), (id, None, true));
        process_one(&mut ctx);
        assert_eq!((last_run(db, id).error_code.as_str(), last_run(db, id).results.as_deref()), ("E1", Some("[\"skip\"]")));
        make_due(db, id);
        create(&mut ctx);
        process_one(&mut ctx);
        assert_eq!((last_run(db, id).attempt, results(db, id)), (2, vec!["skip".to_owned()]));
        let refused = queue.message_kept(id, "late", &1).unwrap_err();
        assert!(matches!(&refused, Error::NotInProgress(why) if why.contains("the status success")), "{refused}");
        assert!(matches!(queue.message(TaskId(999), "x", &1), Err(Error::NotFound(_))));
        assert!(matches!(queue.message(id, "", &1), Err(Error::Input(_))));
    }

    fn the_data_of_a_message_is_stored_as_it_was_written(db) {
        let queue = connect(db);
        let mut ctx = context(db, "work", |run| run.emit("n", &u128::MAX));
        let (id, _) = queue_with_run(&mut ctx, "work");
        queue.message_kept(id, "n", &u128::MAX).unwrap();
        process_one(&mut ctx);
        queue.queue(NewTask::new("mail")).unwrap();
        let claimed = queue.claim(&Claim::new("bot-1")).unwrap();
        claimed[0].emit("n", &u128::MAX).unwrap();
        queue.message(claimed[0].task_id, "n", &u128::MAX).unwrap();
        let stored = "SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" LIKE 'message%'";
        let expected = format!("{{\"name\":\"n\",\"data\":{}}}", u128::MAX);
        assert_eq!(db.raw().texts(stored), vec![Some(expected); 4]);
    }

    fn a_message_to_a_class_reaches_all_its_runs_in_progress(db) {
        let queue = connect(db);
        let handler = || typed(|_: (), run| take_until_finish(run));
        let ids = ["a.x", "a.y", "b"].map(|class| queue.queue(NewTask::new(class).data(&()).unwrap()).unwrap().id);
        let mut worker = Worker::new(&queue).unwrap().spool(db.home().join("spool")).slots(3);
        for class in ["a.x", "a.y", "b"] {
            worker = worker.class(class, handler());
        }
        assert_eq!(queue.message_class("a.*", "early", &1).unwrap(), []);
        thread::scope(|scope| {
            scope.spawn(move || worker.max_runs(3).run().unwrap());
            for id in ids {
                send_once_in_progress(&queue, id, "own");
            }
            let mut sent: Vec<TaskId> = queue.message_class("a.*", "all", &1).unwrap().iter().map(|sent| sent.task_id).collect();
            sent.sort_unstable_by_key(|id| id.0);
            assert_eq!(sent, ids[..2]);
            assert_eq!(queue.message_class("b", "finish", &1).unwrap().len(), 1);
            assert_eq!(queue.message_class("?.*", "finish", &1).unwrap().len(), 2);
        });
        let own = |id: TaskId| format!("own {}", json!({ "of": id.0 }));
        for id in &ids[..2] {
            assert_eq!(results(db, *id), [own(*id), "all 1".to_owned()]);
        }
        assert_eq!(results(db, ids[2]), [own(ids[2])]);
    }

    fn a_handler_that_waits_for_messages_is_woken_by_a_cancel(db) {
        let queue = connect(db);
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        let mut ctx = context(db, "work", move |run| {
            let inbox = run.messages();
            sender.lock().unwrap().send(()).unwrap();
            let message = inbox.wait(Duration::from_secs(3_600));
            run.set_results(&json!([message.is_none(), run.is_cancelled()]))
        });
        let (id, _) = queue_with_run(&mut ctx, "work");
        thread::scope(|scope| {
            scope.spawn(|| process_one(&mut ctx));
            receiver.recv_timeout(LONG).unwrap();
            db.cli().run(&["cancel", &id.to_string()]).ok();
        });
        assert_eq!(last_run(db, id).results.as_deref(), Some("[true,true]"));
        assert!(matches!(queue.message(id, "late", &1), Err(Error::NotInProgress(_))));
    }

    fn a_listener_gets_all_events_or_those_of_its_task_or_run_once(db) {
        let queue = connect(db);
        let mut ctx = context(db, "work", |run| run.emit("page", &json!({ "of": run.task_id() })));
        let (id, run_id) = queue_with_run(&mut ctx, "work");
        let (other, _) = queue_with_run(&mut ctx, "work");
        let of = [EventsOf::everything().kind("message"), EventsOf::task(id), EventsOf::run(run_id).kind("message").kind("x")];
        let mut listeners = of.map(|events| queue.listen(events).unwrap());
        queue.message_kept(id, "hint", &1).unwrap();
        process_one(&mut ctx);
        process_one(&mut ctx);
        let heard = listeners.each_mut().map(|listener| {
            let mut heard = Vec::new();
            while let Some(event) = listener.next_event(Duration::ZERO).unwrap() {
                heard.push((event.kind.clone(), event.task_id, event.message().unwrap().name));
            }
            heard
        });
        let page = |task: TaskId| ("message".to_owned(), Some(task), "page".to_owned());
        let hint = ("message-to-task".to_owned(), Some(id), "hint".to_owned());
        assert_eq!(heard, [vec![page(id), page(other)], vec![hint, page(id)], vec![page(id)]]);
        let stop = queue.stop_handle();
        stop.stop();
        assert!(listeners[0].next_event(LONG).unwrap().is_none());
    }
}

each_server! {
    fn a_message_that_is_committed_late_is_delivered_once(db) {
        let queue = connect(db);
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        let mut ctx = context(db, "work", move |run| {
            let inbox = run.messages();
            while let Some(message) = inbox.wait(LONG).filter(|message| message.name != "finish") {
                sender.lock().unwrap().send(message.name).unwrap();
            }
            Ok(())
        });
        let (id, run_id) = queue_with_run(&mut ctx, "work");
        let mut slow = db.raw();
        thread::scope(|scope| {
            scope.spawn(move || process_one(&mut ctx));
            send_once_in_progress(&queue, id, "begin");
            begin_write(&mut slow);
            slow.execute(&insert(db, id, run_id, "slow"));
            queue.message(id, "quick", &1).unwrap();
            assert_eq!([(); 2].map(|()| receiver.recv_timeout(LONG).unwrap()), ["begin", "quick"]);
            slow.execute("COMMIT");
            assert_eq!(receiver.recv_timeout(LONG).unwrap(), "slow");
            queue.message(id, "finish", &()).unwrap();
        });
        assert_eq!(receiver.try_iter().collect::<Vec<String>>(), Vec::<String>::new());
    }
}
