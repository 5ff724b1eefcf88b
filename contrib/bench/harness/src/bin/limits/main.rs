//! The physical limits: what a bare loop of processes, commits or rows reaches with nothing around it.

mod bulk;
mod questions;
mod spawn;

use std::time::{SystemTime, UNIX_EPOCH};

use taskqueue_bench::{Bare, argument, by_threads, number};

const USAGE: &str = "bench_limits spawn N SLOTS PROGRAM | commits URL N CLIENTS | bulk URL N | select URL \
                     | sql URL STATEMENT | ask URL QUESTION | hold URL | stamp";

fn main() {
    let text = |place| argument(place, USAGE);
    match text(1).as_str() {
        "spawn" => spawn::run(number(2, USAGE), number(3, USAGE), &text(4)),
        "commits" => commits(&text(2), number(3, USAGE), number(4, USAGE)),
        "bulk" => bulk::insert(&text(2), number(3, USAGE)),
        "select" => bulk::insert_select(&text(2)),
        "sql" => Bare::connect(&text(2)).execute(&text(3)),
        "ask" => questions::ask(&text(2), &text(3)),
        "hold" => questions::hold(&text(2)),
        "stamp" => stamp(),
        verb => panic!("no verb {verb}; usage: {USAGE}"),
    }
}

/// Commits of one row each, by so many clients at once.
fn commits(url: &str, rows: usize, clients: usize) {
    Bare::connect(url).make_bench_rows();
    let data = format!("{{\"text\":\"{}\"}}", "x".repeat(189));
    by_threads(rows, clients, || Bare::connect(url), |conn| conn.commit_one(&data));
}

/// A handler of one's own process: writes the moment of its start to the file that its data names.
fn stamp() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let data = std::io::read_to_string(std::io::stdin()).expect("the data of the task");
    let file = std::fs::OpenOptions::new().append(true).create(true).open(data.trim().trim_matches('"'));
    std::io::Write::write_all(&mut file.expect("the file opens"), format!("{:.6}\n", now.as_secs_f64()).as_bytes())
        .expect("the file takes a line");
}
