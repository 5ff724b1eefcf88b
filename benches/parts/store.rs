//! The store's own part of a task's life, on SQLite, in this process. Servers are measured by the other benchmarks: their part
//! lies in other processes.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use taskqueue::{NewTask, TaskQueue};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_engine::DatabaseUrl;
use taskqueue_store::{Claim, NewRunner, Registration, RunEnd, RunRef, Store};

/// Runs that a worker has in hand at once.
const RUNS: usize = 100;

struct Bench {
    queue: TaskQueue,
    store: Store,
    runner_id: RunnerId,
}

impl Bench {
    fn new(address: &str) -> Self {
        let queue = TaskQueue::connect(address).unwrap();
        let mut store = Store::open(&DatabaseUrl::parse(address).unwrap()).unwrap();
        let runner = NewRunner {
            process_id: 1,
            host: "bench".to_owned(),
            process_identity: "bench".to_owned(),
            slots: 1,
            version: "0".to_owned(),
            name: "bench".to_owned(),
            classes: ServedClasses::default(),
            boot_ms: || 0,
        };
        let Registration::Registered(runner_id) = store.register_runner(&runner).unwrap() else {
            unreachable!("a fresh store has room for a runner")
        };
        Self { queue, store, runner_id }
    }

    fn tasks() -> Vec<NewTask> {
        (0..RUNS).map(|number| NewTask::new("bench").data(&number).unwrap()).collect()
    }

    /// Claims, and what was claimed.
    fn claim(&mut self) -> Vec<RunRef> {
        let tokens: Vec<String> = (0..RUNS).map(|_| taskqueue_host::random::token().unwrap()).collect();
        let claim = Claim {
            runner_id: self.runner_id,
            runner_name: "bench",
            process_id: 1,
            host: "bench",
            process_identity: "bench",
            classes: ClassSet::any(&|_| true),
            lease_secs: 90,
        };
        let claimed = self.store.claim_runs(&claim, &tokens).unwrap();
        assert_eq!(claimed.runs.len(), RUNS);
        claimed.runs.into_iter().map(|run| RunRef { id: run.run_id, token: run.token }).collect()
    }

    fn end(&mut self, runs: Vec<RunRef>) {
        let end = RunEnd::of(RunEvent::Succeed, "", "", "the handler returned");
        let ends: Vec<(RunRef, &RunEnd)> = runs.into_iter().map(|run| (run, &end)).collect();
        self.store.end_runs(&ends, &mut |_, _| {}).unwrap();
    }
}

pub(crate) fn measure(criterion: &mut Criterion) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut bench = Bench::new(&directory.path().join("tasks.db").display().to_string());
    let mut group = criterion.benchmark_group("store");
    group.measurement_time(Duration::from_secs(10));
    group.bench_function("one task is queued", |bencher| {
        bencher.iter(|| bench.queue.queue(NewTask::new("other").delay(Duration::from_secs(86_400))).unwrap());
    });
    group.throughput(Throughput::Elements(RUNS as u64));
    group.bench_function("a hundred tasks are queued, started and ended", |bencher| {
        bencher.iter_batched(
            Bench::tasks,
            |tasks| {
                bench.queue.queue_many(tasks).unwrap();
                let runs = bench.claim();
                bench.end(runs);
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
