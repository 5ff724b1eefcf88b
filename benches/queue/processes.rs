//! Whole processes: `queue` once, `process-run` and `tick` with nothing to do, beside a program that connects with the same client
//! library, commits one row and ends.

use std::process::{Command, Stdio};
use std::time::Duration;

use diesel::connection::SimpleConnection as _;
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::Figure;
use super::bulk::timed;
use super::store::BenchStore;
use crate::bare_insert;

pub fn measure(store: &BenchStore, number: usize) -> Vec<Figure> {
    let verbs: [(&str, &[&str]); 3] = [
        ("queue, process", &["queue", "bench.a", "{\"to\":\"user1@example.org\",\"template\":7}"]),
        ("process-run, nothing to do", &["process-run"]),
        ("tick, nothing to do", &["tick"]),
    ];
    let measure = |(name, arguments): (&str, &[&str])| {
        let mut figure = Figure::new(name, 1);
        for _ in 0..number {
            let ours = || {
                if arguments[0] != "queue" {
                    store.empty();
                }
                process(store, arguments)
            };
            figure.round(|| bare(store), ours);
        }
        store.empty();
        figure
    };
    verbs.map(measure).into()
}

fn process(store: &BenchStore, arguments: &[&str]) -> Duration {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskqueue"));
    command.args(arguments).env("TASKQUEUE_DATABASE_URL", store.url()).stdout(Stdio::null());
    command.env("TASKQUEUE_CONFIG", store.home.path().join("config.toml"));
    timed(|| assert!(command.status().unwrap().success()))
}

fn bare(store: &BenchStore) -> Duration {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--bare-commit", store.url()]);
    timed(|| assert!(command.status().unwrap().success()))
}

/// What the program that does nothing else does.
pub fn bare_commit(url: &str) {
    if let Some(path) = url.strip_prefix("sqlite://") {
        let mut conn = SqliteConnection::establish(path).unwrap();
        conn.batch_execute("PRAGMA synchronous = FULL").unwrap();
        bare_insert!(&mut conn);
    } else if url.starts_with("postgres") {
        bare_insert!(&mut PgConnection::establish(url).unwrap());
    } else {
        bare_insert!(&mut MysqlConnection::establish(url).unwrap());
    }
}
