//! Measuring and printing: medians, and ratios against the limit of the same run.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_store::{Claim, NewEvent, OutsideClaim, Store};

use super::store::BenchStore;

/// Tokens are of one claim.
static ROUND: AtomicU32 = AtomicU32::new(0);

pub struct Figures {
    pub engine: &'static str,
    pub single_commit: Duration,
    pub bulk_limit: Duration,
    pub queue: Duration,
    pub select_limit: Duration,
    pub create: Duration,
    pub create_idle: Duration,
    pub claim_small: Duration,
    pub claim_large: Duration,
    pub status: Duration,
}

pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

pub fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// The program from its start to its end.
pub fn process(store: &BenchStore, arguments: &[&str]) -> Duration {
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_taskqueue"))
        .args(arguments)
        .env("TASKQUEUE_DATABASE_URL", store.url())
        .env("TASKQUEUE_CONFIG", store.home.path().join("config.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    started.elapsed()
}

/// The medians of single claims under the WRITE lock in two stores, each on one connection. By turns, so that whatever
/// else the machine and the server do meanwhile slows both.
pub fn claims_by_turns(first: &BenchStore, second: &BenchStore, number: usize) -> (Duration, Duration) {
    by_turns(first, second, number, claim)
}

/// The same by a claimant from outside.
pub fn outside_claims_by_turns(first: &BenchStore, second: &BenchStore, number: usize) -> (Duration, Duration) {
    by_turns(first, second, number, claim_outside)
}

fn by_turns(
    first: &BenchStore,
    second: &BenchStore,
    number: usize,
    claim: fn(&mut Store, &str) -> Duration,
) -> (Duration, Duration) {
    let mut stores = [first, second].map(|bench| Store::open(&bench.parsed_url()).unwrap());
    let mut times = [Vec::new(), Vec::new()];
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    for n in 0..number {
        for (store, times) in stores.iter_mut().zip(&mut times) {
            times.push(claim(store, &format!("bench-{round}-{n}")));
        }
    }
    (median(&times[0]), median(&times[1]))
}

fn claim(store: &mut Store, token: &str) -> Duration {
    let claim = Claim {
        runner_id: RunnerId(1),
        runner_name: "one",
        process_id: 1,
        host: "bench",
        process_identity: "",
        classes: ClassSet::of(["bench.*"], &|class| class.starts_with("bench.")),
        lease_secs: 3_600,
    };
    let started = Instant::now();
    assert!(store.claim_next_run(&claim, token).unwrap().is_some());
    started.elapsed()
}

fn claim_outside(store: &mut Store, secret: &str) -> Duration {
    let claim = OutsideClaim {
        choice: &taskqueue_domain::task::choosing::task_choice::TaskChoice::default(),
        claimant: "bench",
        process: None,
        host: "bench",
        classes: ClassSet::any(&|_| true),
        secrets: &[secret.to_owned()],
        lease_secs: &|_, _| 3_600,
        event: &|run| NewEvent {
            kind: "claimed",
            task_id: Some(run.task_id),
            run_id: Some(run.run_id),
            actor: "bench".to_owned(),
            host: "bench".to_owned(),
            details: serde_json::Value::Null,
        },
    };
    let started = Instant::now();
    assert_eq!(store.claim_outside(&claim).unwrap().len(), 1);
    started.elapsed()
}

fn rate(rows: usize, time: Duration) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a rate to three digits")]
    let rate = rows as f64 / time.as_secs_f64();
    format!("{rate:.0}/s")
}

pub fn ratio(a: Duration, b: Duration) -> String {
    format!("{:.2}", a.as_secs_f64() / b.as_secs_f64())
}

pub fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

type Row = (&'static str, fn(usize, &Figures) -> String);

const ROWS: &[Row] = &[
    ("commit of one row, the engine itself", |_, f| millis(f.single_commit)),
    ("bulk insert, the engine itself", |n, f| rate(n, f.bulk_limit)),
    ("queue --batch, whole process", |n, f| rate(n, f.queue)),
    ("… as a part of the bulk insert", |_, f| ratio(f.bulk_limit, f.queue)),
    ("INSERT … SELECT of the runs, the engine itself", |n, f| rate(n, f.select_limit)),
    ("create-runs, whole process", |n, f| rate(n, f.create)),
    ("… as a part of INSERT … SELECT", |_, f| ratio(f.select_limit, f.create)),
    ("create-runs with nothing to do", |_, f| millis(f.create_idle)),
    ("one claim, 1,000 waiting", |_, f| millis(f.claim_small)),
    ("one claim, all waiting and as many finished", |_, f| millis(f.claim_large)),
    ("… times the claim with 1,000", |_, f| ratio(f.claim_large, f.claim_small)),
    ("status, whole process, all waiting and as many finished", |_, f| millis(f.status)),
];

pub fn print_table(tasks: usize, all: &[Figures]) {
    println!("{tasks} tasks");
    println!("| what | {} |", all.iter().map(|f| f.engine).collect::<Vec<_>>().join(" | "));
    println!("| --- |{}", " --: |".repeat(all.len()));
    for (name, cell) in ROWS {
        println!("| {name} | {} |", all.iter().map(|f| cell(tasks, f)).collect::<Vec<_>>().join(" | "));
    }
}
