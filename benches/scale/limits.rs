//! What the engine itself can do with the same rows in the same table: the limits that the figures stand beside.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use diesel::sql_types::Text;
use diesel::{ExpressionMethods as _, RunQueryDsl as _};

use super::database::{EngineUnderTest, Raw};
use super::measure::median;
use super::store::{BenchStore, data};

/// The median of a commit of one row.
pub fn single_commits(store: &BenchStore, number: usize) -> Duration {
    let mut raw = store.raw();
    let times: Vec<Duration> = (0..number)
        .map(|n| {
            let started = Instant::now();
            raw.execute(&format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('bench.a', '[{n},1234567890123456789012345678901234567890]')"
            ));
            started.elapsed()
        })
        .collect();
    store.empty();
    median(&times)
}

/// The tasks by the fastest plain statements of the engine, in one transaction: COPY, multi-row VALUES, one prepared
/// statement. Empties the table before.
pub fn bulk_insert(store: &BenchStore, tasks: usize) -> Duration {
    store.empty();
    let started = Instant::now();
    insert_tasks(store, tasks);
    started.elapsed()
}

pub fn insert_tasks(store: &BenchStore, tasks: usize) {
    match store.raw() {
        Raw::Sqlite(mut conn) => {
            use diesel::connection::SimpleConnection as _;
            conn.batch_execute("BEGIN IMMEDIATE").unwrap();
            for number in 0..tasks {
                // Diesel keeps the prepared statement of this one; it does not of raw SQL.
                diesel::insert_into(tasks::table)
                    .values((tasks::task_class.eq("bench.a"), tasks::task_data.eq(data(number))))
                    .execute(&mut conn)
                    .unwrap();
            }
            conn.batch_execute("COMMIT").unwrap();
        }
        Raw::Postgres(mut conn) => copy(&mut conn, tasks),
        mut raw @ Raw::Mysql(_) => {
            raw.execute("START TRANSACTION");
            for chunk in (0..tasks).collect::<Vec<_>>().chunks(500) {
                let mut sql = "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ".replace('"', "`");
                for (place, number) in chunk.iter().enumerate() {
                    let _ = write!(sql, "{}('bench.a', '{}')", if place == 0 { "" } else { "," }, data(*number));
                }
                let Raw::Mysql(conn) = &mut raw else { unreachable!() };
                use diesel::connection::SimpleConnection as _;
                conn.batch_execute(&sql).unwrap();
            }
            raw.execute("COMMIT");
        }
    }
}

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

fn copy(conn: &mut diesel::pg::PgConnection, number: usize) {
    use diesel::ExecuteCopyFromDsl as _;
    diesel::copy_from(tasks::table)
        .from_raw_data((tasks::task_class, tasks::task_data), |out| {
            for n in 0..number {
                writeln!(out, "bench.a\t{}", data(n))
                    .map_err(|error| diesel::result::Error::SerializationError(error.into()))?;
            }
            diesel::QueryResult::Ok(())
        })
        .execute(conn)
        .unwrap();
}

/// One INSERT … SELECT of a run for every task, into a table of the same shape and indexes that is dropped again.
pub fn insert_select(store: &BenchStore) -> Duration {
    let mut raw = store.raw();
    let create = match store.engine {
        EngineUnderTest::Postgres => "CREATE TABLE \"RunsCopy\" (LIKE \"TaskQueueRuns\" INCLUDING ALL)".to_owned(),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            "CREATE TABLE \"RunsCopy\" LIKE \"TaskQueueRuns\"".to_owned()
        }
        EngineUnderTest::Sqlite => sqlite_copy(&mut raw),
    };
    raw.execute(&create);
    let started = Instant::now();
    raw.execute(
        "INSERT INTO \"RunsCopy\" (\"TaskQueueId\", \"TaskClass\", \"Priority\", \"Attempt\")
         SELECT \"Id\", \"TaskClass\", \"Priority\", \"Attempts\" + 1 FROM \"TaskQueue\"",
    );
    let took = started.elapsed();
    raw.execute("DROP TABLE \"RunsCopy\"");
    took
}

#[derive(diesel::QueryableByName)]
struct Statement {
    #[diesel(sql_type = Text)]
    sql: String,
}

/// SQLite keeps the statements that made a table and its indexes.
fn sqlite_copy(raw: &mut Raw) -> String {
    let Raw::Sqlite(conn) = raw else { return String::new() };
    let statements: Vec<Statement> = diesel::sql_query(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'TaskQueueRuns' AND sql IS NOT NULL ORDER BY type DESC",
    )
    .load(conn)
    .unwrap();
    let all: Vec<String> = statements.into_iter().map(|statement| statement.sql).collect();
    all.join(";").replace("\"TaskQueueRuns", "\"RunsCopy")
}
