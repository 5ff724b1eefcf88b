//! Query plans of each engine, and the number of rows that a statement read.

use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb};

#[derive(diesel::QueryableByName)]
struct PostgresLine {
    #[diesel(sql_type = diesel::sql_types::Text, column_name = "QUERY PLAN")]
    line: String,
}

#[derive(diesel::QueryableByName)]
struct SqliteLine {
    #[diesel(sql_type = diesel::sql_types::Text)]
    detail: String,
}

#[derive(diesel::QueryableByName)]
struct MysqlLine {
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::Text>)]
    key: Option<String>,
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::Text>, column_name = "Extra")]
    extra: Option<String>,
}

/// A session with the settings of the store (connect in store::backend) that affect the planner.
fn session(db: &TestDb) -> Raw {
    let mut raw = db.raw();
    if db.is_mysql_like() {
        raw.execute("SET NAMES utf8mb4 COLLATE utf8mb4_bin");
    }
    if db.engine == EngineUnderTest::Postgres {
        raw.execute("SET enable_bitmapscan = off");
    }
    raw
}

/// Returns the plan of a statement as text. PostgreSQL executes it: it must begin with SELECT and change nothing.
fn plan(db: &TestDb, sql: &str) -> String {
    plan_in(&mut session(db), db, "ANALYZE, TIMING OFF, SUMMARY OFF, COSTS OFF", sql)
}

/// A session like that of a worker (prefer_lookups in store::backend).
fn worker_session(db: &TestDb) -> Raw {
    let mut raw = session(db);
    if db.engine == EngineUnderTest::Postgres {
        raw.execute("SET enable_seqscan = off");
        raw.execute("SET enable_hashjoin = off");
        raw.execute("SET enable_mergejoin = off");
    }
    raw
}

fn plan_in(session: &mut Raw, db: &TestDb, options: &str, sql: &str) -> String {
    use diesel::RunQueryDsl as _;
    let lines: Vec<String> = match session {
        Raw::Sqlite(conn) => {
            let lines: Vec<SqliteLine> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {sql}")).load(conn).unwrap();
            lines.into_iter().map(|line| line.detail).collect()
        }
        Raw::Postgres(conn) => {
            let explain = format!("EXPLAIN ({options}) {sql}");
            let lines: Vec<PostgresLine> = diesel::sql_query(explain).load(conn).unwrap();
            lines.into_iter().map(|line| line.line).collect()
        }
        // MySQL returns no columns for a prepared EXPLAIN, which Diesel would use; MariaDB has no INTO.
        raw @ Raw::Mysql(_) if db.engine == EngineUnderTest::Mysql => {
            raw.execute("SET explain_json_format_version = 1");
            raw.execute(&format!("EXPLAIN FORMAT=JSON INTO @plan {sql}"));
            raw.texts("SELECT @plan AS value").into_iter().flatten().collect()
        }
        Raw::Mysql(conn) => {
            let sql = sql.replace('"', "`");
            let lines: Vec<MysqlLine> = diesel::sql_query(format!("EXPLAIN {sql}")).load(conn).unwrap();
            let words =
                |line: MysqlLine| format!("key {} {}", line.key.unwrap_or_default(), line.extra.unwrap_or_default());
            lines.into_iter().map(words).collect()
        }
    };
    lines.join("\n")
}

/// Returns how many rows a statement read, as counted by the server; `None` if the engine does not count.
fn rows_read(db: &TestDb, sql: &str) -> Option<i64> {
    use diesel::RunQueryDsl as _;
    let Raw::Mysql(conn) = &mut session(db) else { return None };
    #[derive(diesel::QueryableByName)]
    struct Counter {
        #[diesel(sql_type = diesel::sql_types::Text, column_name = "Value")]
        value: String,
    }
    let counted = |conn: &mut diesel::MysqlConnection| -> i64 {
        let counters: Vec<Counter> = diesel::sql_query("SHOW SESSION STATUS LIKE 'Handler_read%'").load(conn).unwrap();
        counters.iter().map(|counter| counter.value.parse::<i64>().unwrap()).sum()
    };
    // Counting itself reads rows.
    let (first, second) = (counted(conn), counted(conn));
    let before = second + (second - first);
    diesel::sql_query(sql.replace('"', "`")).execute(conn).unwrap();
    Some(counted(conn) - before)
}

/// Checks that a statement of a worker finds its rows with this index, or with one of several separated by `|`. The statement
/// is not executed.
#[track_caller]
pub fn is_looked_up_by(db: &TestDb, index: &str, sql: &str) {
    let plan = plan_in(&mut worker_session(db), db, "COSTS OFF", sql);
    assert!(index.split('|').any(|index| plan.contains(index)), "{index} is not used:\n{sql}\n{plan}");
    let scans =
        ["Seq Scan", "SCAN TaskQueue", "SCAN t", "SCAN r", "\"access_type\": \"ALL\"", "\"access_type\": \"index\""];
    for bad in scans {
        assert!(!plan.contains(bad), "{bad}:\n{sql}\n{plan}");
    }
}

/// Checks that the statement uses this index and reads about as many rows as it returns, whatever it does with them afterwards.
#[track_caller]
pub fn is_buffered_from(db: &TestDb, index: &str, most_rows: i64, sql: &str) {
    let plan = plan(db, sql);
    assert!(plan.contains(index), "{index} is not used:\n{sql}\n{plan}");
    let rows = rows_read(db, sql).unwrap();
    assert!(rows <= most_rows + 3, "{rows} rows read:\n{sql}\n{plan}");
}

/// Checks that the statement uses this index, sorts nothing, and reads about as many rows as it returns.
#[track_caller]
pub fn is_read_from(db: &TestDb, index: &str, most_rows: i64, sql: &str) {
    let sorts = ["Sort ", "Using filesort", "filesort\": true", "TEMP B-TREE"];
    let plan = is_found_by(db, index, most_rows, sql);
    for bad in sorts {
        assert!(!plan.contains(bad), "{bad}:\n{sql}\n{plan}");
    }
}

/// Like `is_read_from`, but the statement may sort the rows. Returns its plan. Of several indexes separated by `|`, any one is
/// accepted.
#[track_caller]
pub fn is_found_by(db: &TestDb, index: &str, most_rows: i64, sql: &str) -> String {
    let plan = plan(db, sql);
    assert!(index.split('|').any(|index| plan.contains(index)), "{index} is not used:\n{sql}\n{plan}");
    for bad in ["Using temporary", "_table\": true", "Seq Scan"] {
        assert!(!plan.contains(bad), "{bad}:\n{sql}\n{plan}");
    }
    let reads =
        |line: &&str| line.contains(" Scan ") && !line.contains("never executed") || line.contains("Removed by Filter");
    for line in plan.lines().filter(reads) {
        let rows: f64 = line.rsplit_once("rows=").map_or_else(
            || line.rsplit_once(' ').unwrap().1.parse().unwrap(),
            |(_, rest)| rest.split(' ').next().unwrap().parse().unwrap(),
        );
        assert!(rows <= most_rows as f64, "{rows} rows:\n{sql}\n{plan}");
    }
    if let Some(rows) = rows_read(db, sql) {
        assert!(rows <= most_rows + 3, "{rows} rows read:\n{sql}\n{plan}");
    }
    plan
}
