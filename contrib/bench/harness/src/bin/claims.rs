//! Single claims of runs through the store, on one connection; prints the median in seconds.

use std::time::{Duration, Instant};

use taskqueue_bench::{argument, number, print_seconds};
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_engine::DatabaseUrl;
use taskqueue_store::{Claim, Store};

const USAGE: &str = "bench_claims URL N";

fn main() {
    let url = DatabaseUrl::parse(&argument(1, USAGE)).expect("an address");
    let mut store = Store::open(&url).expect("a store");
    let mut times: Vec<Duration> = (0..number(2, USAGE)).map(|n| claim(&mut store, n)).collect();
    times.sort();
    print_seconds(times[times.len() / 2]);
}

fn claim(store: &mut Store, n: usize) -> Duration {
    // A token is of one claim.
    let token = format!("bench-{}-{n}", std::process::id());
    let claim = Claim {
        runner_id: RunnerId(1),
        runner_name: "bench",
        process_id: 1,
        host: "bench",
        process_identity: "",
        classes: ClassSet::any(&|_| true),
        lease_secs: 3_600,
    };
    let started = Instant::now();
    let claimed = store.claim_next_run(&claim, &token).expect("a claim");
    let took = started.elapsed();
    assert!(claimed.is_some(), "something waits");
    took
}
