//! awa on queue storage, its default engine for a new installation. It keeps completed jobs in tables that it empties in turn.

use std::time::Duration;

use awa::insert::params_with;
use awa::{Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, QueueStorage, QueueStorageConfig};
use serde::{Deserialize, Serialize};
use sqlx08::postgres::PgPoolOptions;
use sqlx08::{PgPool, query, query_scalar};
use taskqueue_bench_peers::{Request, by_clients, say_seconds, say_when, work, worked_off};

const QUEUE: &str = "bench";
/// A table of completed jobs is emptied once it is rotated out: by default after a second, here never within a round.
const HISTORY_ROTATES: Duration = Duration::from_hours(1);
/// The default, for the tables of claims, which hold no history.
const ROTATES: Duration = Duration::from_secs(1);

#[derive(Deserialize, JobArgs, Serialize)]
struct Noop {
    number: usize,
}

#[derive(Deserialize, JobArgs, Serialize)]
struct Spawn {
    number: usize,
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

/// Creates the tables, and chooses the engine as the first worker of a new installation does.
async fn set_up(pool: &PgPool) {
    awa::migrations::run(pool).await.expect("tables");
    query("SELECT awa.storage_auto_finalize_if_fresh('awa')").execute(pool).await.expect("queue storage");
}

async fn fill(pool: &PgPool, request: &Request) {
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("a store");
    let all: Vec<usize> = (0..request.number).collect();
    for part in all.chunks(5_000) {
        let job = |&number: &usize| match request.spawns() {
            true => params_with(&Spawn { number }, options()).expect("a job"),
            false => params_with(&Noop { number }, options()).expect("a job"),
        };
        let jobs: Vec<_> = part.iter().map(job).collect();
        store.enqueue_params_copy(pool, &jobs).await.expect("jobs are added");
    }
}

async fn perform(spawns: bool) -> Result<JobResult, JobError> {
    work(spawns).await;
    Ok(JobResult::Completed)
}

async fn drain(pool: &PgPool, request: &Request) {
    let queue = QueueConfig {
        max_workers: request.setting("jobs", 50) as u32,
        claim_batch_size: request.setting("batch", 512),
        poll_interval: Duration::from_millis(request.setting("poll_ms", 200) as u64),
        deadline_duration: Duration::from_secs(request.setting("deadline", 300) as u64),
        ..QueueConfig::default()
    };
    let client = Client::builder(pool.clone())
        .queue(QUEUE, queue)
        .queue_storage(QueueStorageConfig::default(), HISTORY_ROTATES, ROTATES)
        .claim_rotate_interval(ROTATES)
        .register::<Noop, _, _>(|_, _| perform(false))
        .register::<Spawn, _, _>(|_, _| perform(true))
        .build()
        .expect("a worker");
    client.start().await.expect("a worker that runs");
    worked_off(request.number).await;
    let completed = "SELECT (SELECT COALESCE(SUM(completed_count), 0) FROM awa.receipt_completion_batches)::bigint + \
                     (SELECT COUNT(*) FROM awa.done_entries)";
    let number = request.number as i64;
    say_when(async || query_scalar::<_, i64>(completed).fetch_one(pool).await.expect("an answer") >= number).await;
}

#[tokio::main]
async fn main() {
    let request = Request::read();
    let pool = PgPoolOptions::new().max_connections(request.setting("connections", 16) as u32);
    let pool = pool.connect(&request.url).await.expect("a connection");
    match request.verb.as_str() {
        "setup" => set_up(&pool).await,
        "fill" => say_seconds(fill(&pool, &request)).await,
        "add" => {
            say_seconds(by_clients(request.number, request.clients(), || {
                let pool = pool.clone();
                async move {
                    awa::insert_with(&pool, &Noop { number: 1 }, options()).await.expect("a job is added");
                }
            }))
            .await;
        }
        "drain" => drain(&pool, &request).await,
        verb => panic!("no verb {verb}"),
    }
    std::process::exit(0);
}
