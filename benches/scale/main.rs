//! Figures at scale, each beside the engine's own limit in the same run: queueing, creating and claiming with a million
//! tasks. `tests/servers start` gives the servers; an engine without one is left out and named.
//!
//! `cargo bench --bench scale [-- --tasks 1000000] [--engine postgres] [--behind]`; with `--behind` only claims behind tasks that
//! may not be claimed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark starts the program and reads the addresses of its servers")]

mod behind;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/support/database.rs"]
mod database;
mod limits;
mod measure;
mod store;

use std::time::{Duration, Instant};

use self::measure::{Figures, claims_by_turns, median, process, seconds};
use self::store::{BenchStore, ENGINES};

/// Claims of which the median is taken.
const CLAIMS: usize = 300;
/// The small backlog that the large one is compared with.
const SMALL: usize = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let tasks: usize = option("--tasks").map_or(1_000_000, |text| text.parse().expect("--tasks takes a number"));
    let only = option("--engine");
    let behind_alone = arguments.iter().any(|a| a == "--behind");
    let (mut all, mut all_behind) = (Vec::new(), Vec::new());
    for engine in ENGINES {
        if only.as_deref().is_some_and(|name| name != engine.name()) {
            continue;
        }
        let (Some(large), Some(small)) = (BenchStore::new(engine, "large"), BenchStore::new(engine, "small")) else {
            eprintln!("{}: no server; eval \"$(tests/servers start)\"", engine.name());
            continue;
        };
        if behind_alone {
            behind::fill(&small, &large, SMALL, tasks);
        } else {
            all.push(figures_of(&large, &small, tasks));
        }
        all_behind.push((engine, behind::measure(small, large, SMALL, tasks)));
    }
    if !all.is_empty() {
        measure::print_table(tasks, &all);
    }
    behind::print_table(tasks, &all_behind);
}

fn figures_of(store: &BenchStore, small: &BenchStore, tasks: usize) -> Figures {
    let started = Instant::now();
    let engine = store.engine.name();
    let note = |what: &str| eprintln!("{engine}: {} s: {what}", seconds(started.elapsed()));
    note("commits of one row");
    let single_commit = limits::single_commits(store, CLAIMS);
    note("bulk inserts by the engine itself");
    let bulk_limit = median(&(0..3).map(|_| limits::bulk_insert(store, tasks)).collect::<Vec<Duration>>());
    store.empty();
    note("queue --batch");
    let batch = store.write_batch(tasks);
    let queue = process(store, &["queue", "--batch", batch.to_str().unwrap()]);
    note("runs by the engine itself");
    let select_limit = median(&(0..3).map(|_| limits::insert_select(store)).collect::<Vec<Duration>>());
    note("create-runs");
    let create = process(store, &["create-runs"]);
    note("create-runs again, with nothing to do");
    let create_idle = median(&(0..9).map(|_| process(store, &["create-runs"])).collect::<Vec<Duration>>());
    note("as many finished tasks and runs");
    store.add_finished(tasks);
    store.analyze();
    note("claims");
    limits::insert_tasks(small, SMALL);
    process(small, &["create-runs"]);
    small.analyze();
    let (claim_small, claim_large) = claims_by_turns(small, store, CLAIMS);
    note("status");
    let status = median(&(0..5).map(|_| process(store, &["status"])).collect::<Vec<Duration>>());
    note("done");
    Figures {
        engine,
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
