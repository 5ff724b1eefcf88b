//! fang, its asynchronous workers. They delete a job that is done; there is no way to queue many at once.

use std::time::Duration;

use fang::asynk::async_queue::{AsyncQueue, AsyncQueueable};
use fang::asynk::async_worker_pool::AsyncWorkerPool;
use fang::serde::{Deserialize, Serialize};
use fang::{AsyncRunnable, FangError, SleepParams, async_trait, typetag};
use taskqueue_bench_peers::{Request, by_clients, say_seconds, say_when, work, worked_off};

#[derive(Deserialize, Serialize)]
#[serde(crate = "fang::serde")]
struct Noop {
    spawns: bool,
}

#[typetag::serde]
#[async_trait]
impl AsyncRunnable for Noop {
    async fn run(&self, _: &dyn AsyncQueueable) -> Result<(), FangError> {
        work(self.spawns).await;
        Ok(())
    }
}

async fn drain(queue: AsyncQueue, request: &Request) {
    let nap = Duration::from_millis(10);
    let naps =
        SleepParams { sleep_period: nap, max_sleep_period: nap, min_sleep_period: nap, sleep_step: Duration::ZERO };
    let mut pool: AsyncWorkerPool<AsyncQueue> = AsyncWorkerPool::builder()
        .number_of_workers(request.setting("jobs", 1) as u32)
        .queue(queue)
        .sleep_params(naps)
        .build();
    pool.start().await;
    worked_off(request.number).await;
    // It has no question for what is left; by then each worker has at most the deletion of one job before it.
    say_when(async || true).await;
}

#[tokio::main]
async fn main() {
    let request = Request::read();
    let clients = request.setting("connections", 16) as u32;
    let mut queue = AsyncQueue::builder().uri(request.url.clone()).max_pool_size(clients).build();
    queue.connect().await.expect("a connection");
    let add = |clients| {
        let (queue, spawns) = (queue.clone(), request.verb == "fill" && request.spawns());
        by_clients(request.number, clients, move || {
            let queue = queue.clone();
            async move {
                queue.insert_task(&Noop { spawns }).await.expect("a job is added");
            }
        })
    };
    match request.verb.as_str() {
        "setup" => {}
        "fill" => say_seconds(add(8)).await,
        "add" => say_seconds(add(request.clients())).await,
        "drain" => drain(queue, &request).await,
        verb => panic!("no verb {verb}"),
    }
    std::process::exit(0);
}
