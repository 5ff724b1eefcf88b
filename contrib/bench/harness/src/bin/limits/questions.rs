//! Questions to a database from outside, and a session that holds on to the past.

use std::io::Read as _;

use diesel::RunQueryDsl as _;
use diesel::sql_types::{Nullable, Text};
use taskqueue_bench::Bare;

#[derive(diesel::QueryableByName)]
struct Answer {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

/// Prints the text column `value` of each row on a line.
pub(crate) fn ask(url: &str, question: &str) {
    let answers: Vec<Answer> = match Bare::connect(url) {
        Bare::Sqlite(mut conn) => diesel::sql_query(question).load(&mut conn),
        Bare::Postgres(mut conn) => diesel::sql_query(question).load(&mut conn),
        Bare::Mysql(mut conn) => diesel::sql_query(question.replace('"', "`")).load(&mut conn),
    }
    .unwrap_or_else(|error| panic!("{question}: {error}"));
    for answer in answers {
        println!("{}", answer.value.unwrap_or_default());
    }
}

/// A transaction that has seen the tables and stays open until standard input ends.
pub(crate) fn hold(url: &str) {
    let mut conn = Bare::connect(url);
    let begin = match conn {
        Bare::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        Bare::Mysql(_) => "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        Bare::Sqlite(_) => "BEGIN",
    };
    conn.execute(begin);
    conn.execute("SELECT 1 FROM \"TaskQueueSettings\"");
    println!("held");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
