//! Claims of the first runs that may, with many tasks before them that may not: each beside as many claims with few before
//! them, in the same state.

use std::time::Duration;

use super::CLAIMS;
use super::database::EngineUnderTest;
use super::measure::{claims_by_turns, millis, outside_claims_by_turns, process, ratio};
use super::store::BenchStore;

/// What stands before them, and the medians with few and with many of it.
type Behind = (&'static str, (Duration, Duration));

/// Adds so many tasks of a class.
type Fill = fn(&BenchStore, &str, usize);

/// The class of what may not be claimed, and the one behind it.
const BEFORE: &str = "bench.a";
const FREE: &str = "bench.b";

/// Runs of the first class that wait, where nothing else was measured before.
pub fn fill(small: &BenchStore, large: &BenchStore, few: usize, many: usize) {
    for (store, tasks) in [(small, few), (large, many)] {
        store.add_due(BEFORE, tasks);
        process(store, &["create-runs"]);
        store.analyze();
    }
    // Of a class that is full, or over its rate, some are processed.
    claims_by_turns(small, large, CLAIMS);
}

pub fn measure(small: BenchStore, large: BenchStore, few: usize, many: usize) -> Vec<Behind> {
    let engine = small.engine;
    let mut all = behind_runs(&small, &large);
    drop((small, large));
    all.extend(behind_tasks(engine, few, many));
    all
}

/// Behind runs that wait, of a class that may not be claimed.
fn behind_runs(small: &BenchStore, large: &BenchStore) -> Vec<Behind> {
    let both = |arguments: &[&str]| [small, large].map(|store| process(store, arguments));
    for store in [small, large] {
        store.add_due(FREE, 5 * CLAIMS);
    }
    both(&["create-runs"]);
    let mut all = Vec::new();
    both(&["pause", "--class", BEFORE]);
    all.push(("paused", claims_by_turns(small, large, CLAIMS)));
    all.push(("paused, claimed by an outside worker", outside_claims_by_turns(small, large, CLAIMS)));
    both(&["resume", "--class", BEFORE]);
    for (name, limit) in
        [("of a class that is full", ["--running", "1"]), ("of a class over its rate", ["--rate", "1/24h"])]
    {
        both(&["limit", "set", BEFORE, limit[0], limit[1]]);
        all.push((name, claims_by_turns(small, large, CLAIMS)));
        both(&["limit", "remove", BEFORE]);
    }
    all
}

/// Behind tasks that get no run, or one without a slot.
fn behind_tasks(engine: EngineUnderTest, few: usize, many: usize) -> Vec<Behind> {
    let cases: [(&str, Fill); 6] = [
        ("delayed", BenchStore::add_delayed),
        ("waiting for other tasks", BenchStore::add_waiting),
        ("waiting for a slot of their limit key", BenchStore::add_keyed),
        ("each of a class of its own, without a handler", BenchStore::add_of_own_classes),
        ("each of a class of its own, with one handler", BenchStore::add_of_own_handled_classes),
        ("each of a class of its own, paused together", BenchStore::add_of_classes_paused_together),
    ];
    let stores = || [(BenchStore::new(engine, "few"), few), (BenchStore::new(engine, "many"), many)];
    let measured = |(name, add): (&'static str, Fill)| {
        let [few, many] = stores().map(|(store, tasks)| {
            let store = store.unwrap();
            add(&store, BEFORE, tasks);
            store.add_due(FREE, 2 * CLAIMS);
            process(&store, &["create-runs"]);
            store.analyze();
            store
        });
        (name, claims_by_turns(&few, &many, CLAIMS))
    };
    cases.into_iter().map(measured).collect()
}

pub fn print_table(tasks: usize, all: &[(EngineUnderTest, Vec<Behind>)]) {
    println!("one claim behind {tasks} that are …, and times the same behind few");
    println!("| … | {} |", all.iter().map(|(engine, _)| engine.name()).collect::<Vec<_>>().join(" | "));
    println!("| --- |{}", " --: |".repeat(all.len()));
    let Some((_, first)) = all.first() else { return };
    for (row, (name, _)) in first.iter().enumerate() {
        let cell = |(_, behind): &(EngineUnderTest, Vec<Behind>)| {
            let (few, many) = behind[row].1;
            format!("{}, {}", millis(many), ratio(many, few))
        };
        println!("| {name} | {} |", all.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
}
