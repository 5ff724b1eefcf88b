//! Queueing beside the limit of the same rows in the same run, by turns: `queue --batch` beside the engine's own bulk load, the
//! library's single tasks beside bare commits of one row, whole processes beside one that only connects and commits.
//! `tests/servers start` gives the servers; an engine without one is left out and named.
//!
//! `cargo bench --bench queue [-- --rows 200000] [--commits 2000] [--processes 60] [--engine postgres] [--only batch|single|process]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark starts programs and reads the addresses of its servers")]

mod bulk;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/support/database.rs"]
mod database;
mod processes;
mod single;
#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "../scale/store.rs"]
mod store;

use std::time::Duration;

use self::store::{BenchStore, ENGINES};

/// How often each of the two is measured in turn.
const ROUNDS: usize = 5;

/// A figure of ours beside its limit: how much of the limit it reaches.
pub struct Figure {
    pub what: String,
    pub ours: Vec<Duration>,
    pub limit: Vec<Duration>,
    /// Rows of one measurement.
    pub rows: usize,
}

impl Figure {
    pub fn new(what: impl Into<String>, rows: usize) -> Self {
        Self { what: what.into(), ours: Vec::new(), limit: Vec::new(), rows }
    }

    /// Both, once each.
    pub fn round(&mut self, limit: impl FnOnce() -> Duration, ours: impl FnOnce() -> Duration) {
        self.limit.push(limit());
        self.ours.push(ours());
    }

    fn print(&self, engine: &str) {
        let (ours, limit) = (median(&self.ours), median(&self.limit));
        let each = |time: Duration| {
            let micros = time.as_secs_f64() * 1e6 / f64::from(u32::try_from(self.rows).unwrap());
            if micros < 1_000.0 { format!("{micros:.1} µs") } else { format!("{:.2} ms", micros / 1_000.0) }
        };
        let ratio = limit.as_secs_f64() / ours.as_secs_f64();
        println!("| {engine} | {} | {} | {} | {ratio:.2} |", self.what, each(limit), each(ours));
    }
}

pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    if let Some(url) = option("--bare-commit") {
        processes::bare_commit(&url);
        return;
    }
    let number = |name: &str, usual: usize| option(name).map_or(usual, |text| text.parse().expect(name));
    let (rows, commits, processes) = (number("--rows", 200_000), number("--commits", 2_000), number("--processes", 60));
    let only = option("--only");
    let wants = |part: &str| only.as_deref().is_none_or(|only| only == part);
    println!("| engine | what | limit, each | ours, each | limit / ours |\n| --- | --- | --: | --: | --: |");
    for engine in ENGINES {
        if option("--engine").is_some_and(|name| name != engine.name()) {
            continue;
        }
        let Some(store) = BenchStore::new(engine, "queue") else {
            eprintln!("{}: no server; eval \"$(tests/servers start)\"", engine.name());
            continue;
        };
        if wants("batch") {
            bulk::measure(&store, rows).print(engine.name());
        }
        if wants("single") {
            for clients in [1, 8] {
                single::measure(&store, commits, clients).print(engine.name());
            }
        }
        if wants("process") {
            for figure in processes::measure(&store, processes) {
                figure.print(engine.name());
            }
        }
    }
}
