//! Keys take turns: many runs of one limit key block neither runs of other keys nor tasks without a key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use taskqueue::{ActiveRun, Claim, HandlerError, StopHandle, TaskHandler};

use super::fixture::{connector, context, create, drain};
use super::worker::{connect, worker};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::db::Raw;

/// Tasks of the key that is queued first: more than the turns in which all others must have been started.
const OF_BATCH: usize = 60;
/// Tasks of each of the others.
const OF_OTHER: usize = 15;
/// Runs that a worker may have claimed before it sees a change.
const CLAIMED_AHEAD: usize = 4;

/// What was started, in this order. Tasks have a number as data: of their key, or another one.
type Order = Arc<Mutex<Vec<u8>>>;

const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;
const HIGH: u8 = 4;
const LATE: u8 = 5;
const NO_KEY: u8 = 6;

fn insert(raw: &mut Raw, name: u8, key: Option<u8>, priority: i32, count: usize) {
    let key = key.map_or("NULL".to_owned(), |key| format!("'key {key}'"));
    let rows = vec![format!("('work', '{name}', {key}, {priority})"); count].join(", ");
    raw.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"LimitKey\", \"Priority\") VALUES {rows}"
    ));
}

/// Queues a batch of key a, and then a few tasks of the keys b and c.
fn insert_batch_and_others(db: &TestDb) {
    for (key, count) in [(A, OF_BATCH), (B, OF_OTHER), (C, OF_OTHER)] {
        insert(&mut db.raw(), key, Some(key), 0, count);
    }
}

/// Checks that the others are through after as many turns of the three keys as they have tasks.
fn expect_turns(order: &[u8]) {
    let last = order.iter().rposition(|name| *name != A).unwrap();
    let others = order.iter().filter(|name| **name != A).count();
    assert_eq!(others, 2 * OF_OTHER);
    assert!(last < 3 * OF_OTHER + CLAIMED_AHEAD, "{order:?}");
}

fn data_of(run: &ActiveRun<'_>) -> u8 {
    run.data().unwrap()
}

/// A task of another key, queued when so many tasks were started.
struct Late {
    after: usize,
    connect: Box<dyn Fn() -> Raw + Send + Sync>,
    /// Stops the worker when the task is started.
    stop: StopHandle,
}

/// Notes what is started.
struct Notes {
    order: Order,
    late: Option<Late>,
}

impl TaskHandler for Notes {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let (name, mut order) = (data_of(run), self.order.lock().unwrap());
        order.push(name);
        if let Some(Late { after, connect, stop }) = &self.late {
            if order.len() == *after {
                insert(&mut connect(), LATE, Some(LATE), 0, 1);
            }
            if name == LATE {
                stop.stop();
            }
        }
        Ok(())
    }
}

each_engine! {
    fn keys_take_turns_in_process_run_and_priority_goes_first(db) {
        let order = Order::default();
        let kept = Arc::clone(&order);
        let mut ctx = context(db, "work", move |run| {
            kept.lock().unwrap().push(data_of(run));
            Ok(())
        });
        insert_batch_and_others(db);
        insert(&mut db.raw(), HIGH, Some(A), 1, 5);
        create(&mut ctx);
        drain(&mut ctx);
        let order = order.lock().unwrap();
        let (high, rest) = order.split_at(5);
        assert!(high.iter().all(|name| *name == HIGH), "{high:?}");
        assert_eq!(rest.len(), OF_BATCH + 2 * OF_OTHER);
        expect_turns(rest);
    }

    fn keys_take_turns_in_a_worker_also_if_they_come_late(db) {
        let queue = connect(db);
        let order = Order::default();
        insert_batch_and_others(db);
        let notes = Notes { order: Arc::clone(&order), late: None };
        worker(db, &queue).class("work", notes).slots(1).idle_exit(Duration::ZERO).run().unwrap();
        assert_eq!(order.lock().unwrap().len(), OF_BATCH + 2 * OF_OTHER);
        expect_turns(&order.lock().unwrap());
        // Two keys take all claims.
        let (order, of_each) = (Order::default(), 120);
        [A, B].into_iter().for_each(|key| insert(&mut db.raw(), key, Some(key), 0, of_each));
        let worker = worker(db, &queue);
        let late = Some(Late { after: 20, connect: Box::new(connector(db)), stop: worker.stop_handle() });
        let notes = Notes { order: Arc::clone(&order), late };
        worker.class("work", notes).slots(1).idle_exit(Duration::ZERO).run().unwrap();
        let order = order.lock().unwrap();
        assert!(order.contains(&LATE) && order.len() < 2 * of_each, "{}", order.len());
    }

    fn keys_and_tasks_without_a_key_take_turns_in_worker_claim(db) {
        let queue = connect(db).spool(db.home().join("spool"));
        insert_batch_and_others(db);
        insert(&mut db.raw(), NO_KEY, None, 0, 5);
        let mut order = Vec::new();
        for _ in 0..3 * OF_OTHER + 5 + CLAIMED_AHEAD {
            let run = queue.claim(&Claim::new("bot")).unwrap().pop().unwrap();
            order.push(run.data_as::<u8>().unwrap());
            run.resolve(&()).unwrap();
        }
        // Each key had a free slot when its first run was created; its next run goes behind those of the other keys.
        assert_eq!(order[..9], [A, B, C, NO_KEY, NO_KEY, NO_KEY, NO_KEY, NO_KEY, A]);
        order.retain(|name| *name != NO_KEY);
        expect_turns(&order);
    }

    fn a_key_keeps_its_place_before_younger_tasks_while_no_other_key_waits(db) {
        let order = Order::default();
        let kept = Arc::clone(&order);
        let mut ctx = context(db, "work", move |run| {
            kept.lock().unwrap().push(data_of(run));
            Ok(())
        });
        for (name, key) in [(A, Some(A)), (NO_KEY, None)] {
            insert(&mut db.raw(), name, key, 0, 3);
            create(&mut ctx);
        }
        drain(&mut ctx);
        assert_eq!(*order.lock().unwrap(), [A, A, A, NO_KEY, NO_KEY, NO_KEY]);
    }

    fn beside_very_many_keys_the_next_run_of_a_key_goes_to_the_end(db) {
        let order = Order::default();
        let kept = Arc::clone(&order);
        let mut ctx = context(db, "work", move |run| {
            kept.lock().unwrap().push(data_of(run));
            Ok(())
        });
        insert(&mut db.raw(), A, Some(A), 0, 2);
        let keys = (0..205).map(|key| format!("('work', '{B}', 'other {key}')")).collect::<Vec<_>>().join(", ");
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"LimitKey\") VALUES {keys}"));
        create(&mut ctx);
        insert(&mut db.raw(), NO_KEY, None, 0, 1);
        create(&mut ctx);
        drain(&mut ctx);
        let order = order.lock().unwrap();
        assert_eq!((order[0], order.len(), &order[206..]), (A, 208, &[NO_KEY, A][..]));
    }
}
