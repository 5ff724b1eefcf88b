//! Tasks queued one by one through the library, beside bare commits of one row by a prepared INSERT, with one client and with
//! several.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use taskqueue::{NewTask, TaskQueue};

use super::database::Raw;
use super::store::BenchStore;
use super::{Figure, ROUNDS};
use crate::bare_insert;

pub fn measure(store: &BenchStore, commits: usize, clients: usize) -> Figure {
    let each = commits / clients;
    let mut figure = Figure::new(format!("single, {clients} at once"), each * clients);
    let queue = TaskQueue::connect(store.url()).unwrap();
    let data = serde_json::json!({"to": "user1@example.org", "template": 7});
    for _ in 0..ROUNDS {
        store.empty();
        figure.round(
            || at_once(clients, || store.raw(), |raw| (0..each).for_each(|_| commit(raw))),
            || {
                let queue_one = |queue: &mut TaskQueue| {
                    for _ in 0..each {
                        queue.queue(NewTask::new("bench.a").data(&data).unwrap()).unwrap();
                    }
                };
                at_once(clients, || queue.clone(), queue_one)
            },
        );
    }
    store.empty();
    figure
}

fn commit(raw: &mut Raw) {
    match raw {
        Raw::Sqlite(conn) => bare_insert!(conn),
        Raw::Postgres(conn) => bare_insert!(conn),
        Raw::Mysql(conn) => bare_insert!(conn),
    }
}

/// From when all are connected until all have done their work.
fn at_once<Client>(clients: usize, connect: impl Fn() -> Client + Sync, work: impl Fn(&mut Client) + Sync) -> Duration {
    let ready = Barrier::new(clients + 1);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = connect();
                ready.wait();
                work(&mut client);
                ready.wait();
            });
        }
        ready.wait();
        let started = Instant::now();
        ready.wait();
        started.elapsed()
    })
}
