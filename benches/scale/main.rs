//! Figures at scale, each beside the engine's own limit in the same run: queueing, creating and claiming with a million
//! tasks. `tests/servers start` gives the servers; an engine without one is left out and named.
//!
//! `cargo bench --bench scale [-- --tasks 1000000] [--engine postgres]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark starts the program and reads the addresses of its servers")]

mod limits;
mod measure;
mod store;

use std::time::Duration;

use self::measure::{Figures, claims, median, process, seconds};
use self::store::{BenchStore, Engine};

/// Claims of which the median is taken.
const CLAIMS: usize = 300;
/// The small backlog that the large one is compared with.
const SMALL: usize = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let tasks: usize = option("--tasks").map_or(1_000_000, |text| text.parse().expect("--tasks takes a number"));
    let only = option("--engine");
    let mut all = Vec::new();
    for engine in Engine::ALL {
        if only.as_deref().is_some_and(|name| name != engine.name()) {
            continue;
        }
        match BenchStore::new(engine) {
            Some(store) => all.push(figures_of(&store, tasks)),
            None => eprintln!("{}: no server; eval \"$(tests/servers start)\"", engine.name()),
        }
    }
    measure::print_table(tasks, &all);
}

fn figures_of(store: &BenchStore, tasks: usize) -> Figures {
    eprintln!("{}: {tasks} tasks", store.engine.name());
    let single_commit = limits::single_commits(store, CLAIMS);
    let batch = store.write_batch(tasks);

    store.queue(SMALL);
    process(store, &["create-runs"]);
    let claim_small = median(&claims(store, CLAIMS));
    store.empty();

    let bulk_limit = median(&(0..3).map(|_| limits::bulk_insert(store, tasks)).collect::<Vec<Duration>>());
    store.empty();
    let queue = process(store, &["queue", "--batch", batch.to_str().unwrap()]);
    let select_limit = median(&(0..3).map(|_| limits::insert_select(store)).collect::<Vec<Duration>>());
    let create = process(store, &["create-runs"]);
    let create_idle = median(&(0..9).map(|_| process(store, &["create-runs"])).collect::<Vec<Duration>>());
    store.add_finished(tasks);
    store.analyze();
    let claim_large = median(&claims(store, CLAIMS));
    let status = median(&(0..5).map(|_| process(store, &["status"])).collect::<Vec<Duration>>());
    eprintln!("{}: {} s of queueing", store.engine.name(), seconds(queue));
    Figures {
        engine: store.engine.name(),
        single_commit,
        bulk_limit,
        queue,
        select_limit,
        create,
        create_idle,
        claim_small,
        claim_large,
        status,
    }
}
