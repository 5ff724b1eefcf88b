//! The empty program: connects, commits one row (or, with a second argument, looks for one), and ends.

use diesel::prelude::*;
use taskqueue_bench::{Bare, argument, bench_rows};

fn main() {
    let mut conn = Bare::connect(&argument(1, "bench_empty URL [look]"));
    if std::env::args().nth(2).is_none() {
        conn.commit_one(r#"{"to":"user@example.org"}"#);
        return;
    }
    let first = bench_rows::table.select(bench_rows::id).filter(bench_rows::id.lt(0)).limit(1);
    let found: Vec<i64> = match &mut conn {
        Bare::Sqlite(conn) => first.load(conn),
        Bare::Postgres(conn) => first.load(conn),
        Bare::Mysql(conn) => first.load(conn),
    }
    .expect("an answer");
    assert!(found.is_empty());
}
