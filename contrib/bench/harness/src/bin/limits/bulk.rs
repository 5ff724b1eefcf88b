//! The same rows as `queue --batch` and `create-runs` write, by the fastest plain statements of the engine.

use std::fmt::Write as _;
use std::time::Instant;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use taskqueue_bench::{Bare, data, print_seconds};

diesel::table! {
    #[sql_name = "TaskQueue"]
    tasks (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "TaskData"]
        task_data -> Text,
    }
}

/// Rows of one statement.
const ROWS: usize = 500;

/// Tasks into the table itself, in one transaction: COPY, rows of 500, one prepared statement.
pub(crate) fn insert(url: &str, number: usize) {
    let mut conn = Bare::connect(url);
    let started = Instant::now();
    match &mut conn {
        Bare::Sqlite(conn) => prepared(conn, number),
        Bare::Postgres(conn) => copy(conn, number),
        Bare::Mysql(conn) => rows(conn, number),
    }
    .expect("rows are inserted");
    print_seconds(started.elapsed());
}

fn prepared(conn: &mut SqliteConnection, number: usize) -> QueryResult<()> {
    conn.immediate_transaction(|conn| {
        for n in 0..number {
            // Diesel keeps the prepared statement of this one; it does not of raw SQL.
            let row = (tasks::task_class.eq("noop"), tasks::task_data.eq(data(n)));
            diesel::insert_into(tasks::table).values(row).execute(conn)?;
        }
        Ok(())
    })
}

fn copy(conn: &mut PgConnection, number: usize) -> QueryResult<()> {
    use diesel::ExecuteCopyFromDsl as _;
    diesel::copy_from(tasks::table)
        .from_raw_data((tasks::task_class, tasks::task_data), |out| {
            for n in 0..number {
                writeln!(out, "noop\t{}", data(n))
                    .map_err(|error| diesel::result::Error::SerializationError(error.into()))?;
            }
            QueryResult::Ok(())
        })
        .execute(conn)
        .map(drop)
}

fn rows(conn: &mut MysqlConnection, number: usize) -> QueryResult<()> {
    conn.transaction(|conn| {
        for start in (0..number).step_by(ROWS) {
            let mut sql = "INSERT INTO TaskQueue (TaskClass, TaskData) VALUES ".to_owned();
            for n in start..number.min(start + ROWS) {
                let _ = write!(sql, "{}('noop', '{}')", if n == start { "" } else { "," }, data(n));
            }
            conn.batch_execute(&sql)?;
        }
        Ok(())
    })
}

/// One INSERT … SELECT of a run for every task, into a table of the same shape and indexes that is dropped again.
pub(crate) fn insert_select(url: &str) {
    let mut conn = Bare::connect(url);
    let create = match &mut conn {
        Bare::Sqlite(conn) => sqlite_copy(conn),
        Bare::Postgres(_) => r#"CREATE TABLE "RunsCopy" (LIKE "TaskQueueRuns" INCLUDING ALL)"#.to_owned(),
        Bare::Mysql(_) => r#"CREATE TABLE "RunsCopy" LIKE "TaskQueueRuns""#.to_owned(),
    };
    conn.execute(&create);
    let started = Instant::now();
    conn.execute(
        r#"INSERT INTO "RunsCopy" ("TaskQueueId", "TaskClass", "Priority", "Attempt")
           SELECT "Id", "TaskClass", "Priority", "Attempts" + 1 FROM "TaskQueue""#,
    );
    print_seconds(started.elapsed());
    conn.execute(r#"DROP TABLE "RunsCopy""#);
}

#[derive(QueryableByName)]
struct Statement {
    #[diesel(sql_type = Text)]
    sql: String,
}

/// SQLite keeps the statements that made a table and its indexes.
fn sqlite_copy(conn: &mut SqliteConnection) -> String {
    let statements: Vec<Statement> = diesel::sql_query(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'TaskQueueRuns' AND sql IS NOT NULL ORDER BY type DESC",
    )
    .load(conn)
    .expect("the statements");
    let all: Vec<String> = statements.into_iter().map(|statement| statement.sql).collect();
    all.join(";").replace("\"TaskQueueRuns", "\"RunsCopy")
}
