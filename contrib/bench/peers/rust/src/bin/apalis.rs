//! apalis with apalis-postgres. It keeps finished jobs and their results.

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use taskqueue_bench_peers::{Request, by_clients, say_seconds, say_when, work, worked_off};

const QUEUE: &str = "bench";

fn storage(pool: &PgPool, request: &Request) -> PostgresStorage<usize> {
    let config = Config::default()
        .queue(QUEUE)
        .batch_size(request.setting("batch", 10))
        .lock_tasks(request.setting("lock", 1) == 1)
        .persist_results(request.setting("persist", 1) == 1);
    PostgresStorage::new(pool).with_config(config)
}

async fn fill(pool: &PgPool, number: usize) {
    let mut conn = pool.acquire().await.expect("a connection");
    let all: Vec<usize> = (0..number).collect();
    for part in all.chunks(5_000) {
        let task = |n: &usize| TaskBuilder::new(serde_json::to_vec(n).expect("JSON")).build();
        let tasks = part.iter().map(task).collect();
        apalis_postgres::queries::push_tasks(&mut *conn, QUEUE, tasks).await.expect("jobs are added");
    }
}

async fn drain(pool: &PgPool, request: &Request) {
    let spawns = request.spawns();
    let handler = move |_: usize| async move {
        work(spawns).await;
        Ok::<(), BoxDynError>(())
    };
    let worker = WorkerBuilder::new("bench")
        .backend(storage(pool, request))
        .concurrency(request.setting("jobs", 1))
        .parallelize(tokio::spawn)
        .build(handler);
    tokio::spawn(worker.run());
    worked_off(request.number).await;
    let done = "SELECT NOT EXISTS (SELECT 1 FROM apalis.jobs WHERE status <> 'Done')";
    say_when(async || sqlx::query_scalar(done).fetch_one(pool).await.expect("an answer")).await;
}

#[tokio::main]
async fn main() {
    let request = Request::read();
    let pool = PgPoolOptions::new().max_connections(request.setting("connections", 16) as u32);
    let pool = pool.connect(&request.url).await.expect("a connection");
    match request.verb.as_str() {
        "setup" => PostgresStorage::setup(&pool).await.expect("tables"),
        "fill" => say_seconds(fill(&pool, request.number)).await,
        "add" => {
            say_seconds(by_clients(request.number, request.clients(), || {
                let pool = pool.clone();
                async move { fill(&pool, 1).await }
            }))
            .await;
        }
        "drain" => drain(&pool, &request).await,
        verb => panic!("no verb {verb}"),
    }
    std::process::exit(0);
}
