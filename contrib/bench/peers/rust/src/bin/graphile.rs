//! graphile_worker in Rust. It deletes a job that is done, keeps no history and no output.

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use taskqueue_bench_peers::{Request, by_clients, say_seconds, say_when, work, worked_off};

#[derive(Clone, Deserialize, Serialize)]
struct Noop {
    number: usize,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        work(false).await;
        Ok::<(), String>(())
    }
}

#[derive(Clone, Deserialize, Serialize)]
struct Spawn {
    number: usize,
}

impl TaskHandler for Spawn {
    const IDENTIFIER: &'static str = "true";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        work(true).await;
        Ok::<(), String>(())
    }
}

fn options(pool: &PgPool, request: &Request) -> WorkerOptions {
    let jobs = request.setting("jobs", 8);
    let mut options = WorkerOptions::default()
        .concurrency(jobs)
        .pg_pool(pool.clone())
        .listen_os_shutdown_signals(false)
        .define_job::<Noop>()
        .define_job::<Spawn>();
    let queue = request.setting("queue", 0);
    if queue > 0 {
        let config = LocalQueueConfig::default().with_size(queue).with_queue_count(request.setting("queues", 1));
        options = options.local_queue(config);
    }
    let delay_ms = request.setting("batch_ms", 0);
    if delay_ms > 0 {
        options = options.complete_job_batch_delay(Duration::from_millis(delay_ms as u64));
    }
    options
}

async fn fill(worker: &graphile_worker::Worker, request: &Request) {
    let identifier = request.rest.first().map_or("noop", String::as_str);
    let utils = worker.create_utils();
    let all: Vec<usize> = (0..request.number).collect();
    for part in all.chunks(5_000) {
        let spec = |number: &usize| RawJobSpec {
            identifier: identifier.to_owned(),
            payload: serde_json::json!({ "number": number }),
            spec: JobSpec::default(),
        };
        utils.add_raw_jobs(&part.iter().map(spec).collect::<Vec<_>>()).await.expect("jobs are added");
    }
}

async fn drain(worker: graphile_worker::Worker, pool: &PgPool, number: usize) {
    let worker = std::sync::Arc::new(worker);
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    worked_off(number).await;
    let left = "SELECT NOT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)";
    say_when(async || sqlx::query_scalar(left).fetch_one(pool).await.expect("an answer")).await;
    running.abort();
}

#[tokio::main]
async fn main() {
    let request = Request::read();
    let pool = PgPoolOptions::new().max_connections(request.setting("connections", 16) as u32);
    let pool = pool.connect(&request.url).await.expect("a connection");
    let worker = options(&pool, &request).init().await.expect("a worker");
    match request.verb.as_str() {
        "setup" => {}
        "fill" => say_seconds(fill(&worker, &request)).await,
        "add" => {
            let utils = worker.create_utils();
            say_seconds(by_clients(request.number, request.clients(), || {
                let utils = utils.clone();
                async move {
                    utils.add_job(Noop { number: 1 }, JobSpec::default()).await.expect("a job is added");
                }
            }))
            .await;
        }
        "drain" => drain(worker, &pool, request.number).await,
        verb => panic!("no verb {verb}"),
    }
    // What is left running has nothing to do any more.
    std::process::exit(0);
}
