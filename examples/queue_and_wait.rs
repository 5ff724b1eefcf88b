//! A program that queues by the library, in a transaction of its own and by itself, and waits for the end.
//!
//! ```sh
//! cargo run --example queue_and_wait -- sqlite:///tmp/shop.db
//! ```
//!
//! Whoever handles the class `order.confirm` there answers; this waits ten seconds for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskqueue::diesel::connection::SimpleConnection as _;
use taskqueue::diesel::prelude::*;
use taskqueue::{Error, NewTask, QueuedTask, TaskQueue, diesel, queue_in};

#[derive(Serialize)]
struct Order<'a> {
    customer: &'a str,
    cents: u32,
}

#[derive(Debug, Deserialize)]
struct Confirmation {
    number: u32,
}

/// The order and the task that confirms it: both or none.
fn place_order(conn: &mut SqliteConnection, order: &Order<'_>) -> Result<QueuedTask, Error> {
    conn.transaction(|conn| {
        diesel::sql_query("INSERT INTO orders (customer, cents) VALUES (?, ?)")
            .bind::<diesel::sql_types::Text, _>(order.customer)
            .bind::<diesel::sql_types::BigInt, _>(i64::from(order.cents))
            .execute(conn)?;
        queue_in(conn, NewTask::new("order.confirm").data(order)?.max_retries(3))
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: queue_and_wait sqlite:///PATH")?;
    let queue = TaskQueue::connect(&address)?;
    let mut conn = SqliteConnection::establish(address.trim_start_matches("sqlite://"))?;
    // As the program's other connections do: whoever is second waits.
    conn.batch_execute("PRAGMA busy_timeout = 10000")?;
    conn.batch_execute("CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, customer text, cents integer)")?;

    let placed = place_order(&mut conn, &Order { customer: "ann", cents: 4_200 })?;
    // Many at once: all or none.
    let reminders = (1..=3).map(|day| NewTask::new("order.remind").delay(Duration::from_secs(day * 86_400)));
    println!("task {} and {} reminders are queued", placed.id, queue.queue_many(reminders)?.len());

    match queue.wait(placed.id, Duration::from_secs(10))? {
        Some(ended) if ended.is_success() => {
            let confirmation: Option<Confirmation> = ended.run.map(|run| run.results_as()).transpose()?.flatten();
            println!("confirmed: {:?}", confirmation.map(|it| it.number));
        }
        Some(ended) => println!("task {} ended as {}", ended.task.id, ended.task.status),
        None => println!("nobody has confirmed it yet"),
    }
    Ok(())
}
