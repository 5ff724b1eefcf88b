//! A program that works on its own queue: a worker beside whatever else the program does, and its end in good order.
//!
//! ```sh
//! cargo run --example worker_in_program -- sqlite:///tmp/sums.db
//! ```

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskqueue::{NewTask, RunStatus, TaskQueue, Worker, WorkerEvent, typed};

#[derive(Serialize, Deserialize)]
struct Invoice {
    customer: String,
    cents: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Total {
    cents: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: worker_in_program sqlite:///PATH")?;
    let queue = TaskQueue::connect(&address)?;

    // What is not an `Invoice` ends its task for good; what is returned becomes the results.
    let total = typed(|invoice: Invoice, run| {
        run.set_percents_completed(50);
        Ok(Total { cents: invoice.cents.iter().sum() })
    });
    let (reports, failures) = mpsc::channel();
    let worker =
        Worker::new(&queue)?.class("invoice.total", total).slots(2).name("invoices").on_event(move |what| match what {
            WorkerEvent::RunEnded(run) if run.status != RunStatus::Success => {
                // The receiver may be gone.
                let _ = reports.send(format!("task {}: {} {}", run.task_id, run.error_code, run.error_message));
            }
            WorkerEvent::DatabaseLost(problem) => eprintln!("the database is unavailable: {problem}"),
            _ => {}
        });
    let stop = worker.stop_handle();
    let working = thread::spawn(|| worker.run());

    let invoice = Invoice { customer: "ann".to_owned(), cents: vec![4_200, 99] };
    let good = queue.queue(NewTask::new("invoice.total").data(&invoice)?)?;
    let bad = queue.queue(NewTask::new("invoice.total").data(&"no invoice")?)?;
    for id in [good.id, bad.id] {
        match queue.wait(id, Duration::from_secs(60))? {
            Some(ended) if ended.is_success() => {
                let total: Option<Total> = ended.run.map(|run| run.results_as()).transpose()?.flatten();
                println!("task {id}: {} cents", total.map_or(0, |total| total.cents));
            }
            Some(ended) => println!("task {id} ended as {}", ended.task.status),
            None => println!("task {id} takes long"),
        }
    }

    // Claims nothing more, and waits for what is in progress.
    stop.stop();
    let report = working.join().map_err(|_| "the worker panicked")??;
    for failure in failures {
        println!("{failure}");
    }
    println!("{} of {} runs succeeded", report.succeeded, report.processed);
    Ok(())
}
