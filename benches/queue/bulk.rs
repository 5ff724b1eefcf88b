//! `queue --batch` as a whole process, beside the engine's own bulk load of the same rows: COPY by psql, statements of many rows
//! by the client of MariaDB, a prepared INSERT in one transaction by the C interface of SQLite.

use std::ffi::CString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libsqlite3_sys as sqlite;

use super::database::EngineUnderTest;
use super::store::{BenchStore, data};
use super::{Figure, ROUNDS};

/// Rows of one statement of the client of MariaDB.
const ROWS_PER_STATEMENT: usize = 1_000;

pub fn measure(store: &BenchStore, rows: usize) -> Figure {
    let batch = store.write_batch(rows);
    let mut figure = Figure::new("queue --batch", rows);
    let input = limit_input(store, rows);
    for _ in 0..ROUNDS {
        figure.round(
            || {
                store.empty();
                timed(|| limit(store, rows, &input))
            },
            || {
                store.empty();
                timed(|| queue(store, &batch))
            },
        );
    }
    store.empty();
    figure
}

pub fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn queue(store: &BenchStore, batch: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskqueue"));
    command.args(["queue", "--batch"]).arg(batch).stdout(Stdio::null());
    let command = command.env("TASKQUEUE_DATABASE_URL", store.url());
    assert!(command.env("TASKQUEUE_CONFIG", store.home.path().join("config.toml")).status().unwrap().success());
}

/// What the client reads: made before the clock runs, as the batch is.
fn limit_input(store: &BenchStore, rows: usize) -> PathBuf {
    let mut text = String::new();
    match store.engine {
        EngineUnderTest::Sqlite => {}
        EngineUnderTest::Postgres => (0..rows).for_each(|n| writeln!(text, "bench.a\t{}", data(n)).unwrap()),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            text.push_str("START TRANSACTION;\n");
            for first in (0..rows).step_by(ROWS_PER_STATEMENT) {
                text.push_str("INSERT INTO `TaskQueue` (`TaskClass`, `TaskData`) VALUES ");
                for n in first..rows.min(first + ROWS_PER_STATEMENT) {
                    write!(text, "{}('bench.a', '{}')", if n == first { "" } else { ", " }, data(n)).unwrap();
                }
                text.push_str(";\n");
            }
            text.push_str("COMMIT;\n");
        }
    }
    let path = store.home.path().join("limit.txt");
    std::fs::write(&path, text).unwrap();
    path
}

fn limit(store: &BenchStore, rows: usize, input: &Path) {
    match store.engine {
        EngineUnderTest::Sqlite => prepared_inserts(store.url().trim_start_matches("sqlite://"), rows),
        EngineUnderTest::Postgres => {
            let copy = format!("\\copy \"TaskQueue\" (\"TaskClass\", \"TaskData\") from '{}'", input.display());
            assert!(Command::new("psql").args(["-qX", store.url(), "-c", &copy]).status().unwrap().success());
        }
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            let url = url::Url::parse(store.url()).unwrap();
            let client = if store.engine == EngineUnderTest::Mysql { "mysql" } else { "mariadb" };
            let mut command = Command::new(client);
            command.arg(format!("--host={}", url.host_str().unwrap())).arg(format!("--port={}", url.port().unwrap()));
            command.arg(format!("--user={}", url.username())).env("MYSQL_PWD", url.password().unwrap());
            command.arg(url.path().trim_start_matches('/')).stdin(std::fs::File::open(input).unwrap());
            assert!(command.status().unwrap().success());
        }
    }
}

#[allow(unsafe_code, reason = "the limit is what the C interface reaches")]
fn prepared_inserts(path: &str, rows: usize) {
    let text = |text: &str| CString::new(text).unwrap();
    // SAFETY: one thread, a connection and a statement that live until they are closed here, texts that live while they are
    // bound.
    unsafe {
        let (mut db, mut statement) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(sqlite::sqlite3_open(text(path).as_ptr(), &raw mut db), sqlite::SQLITE_OK);
        let execute = |sql: &str| {
            let nothing = std::ptr::null_mut();
            assert_eq!(
                sqlite::sqlite3_exec(db, text(sql).as_ptr(), None, nothing, std::ptr::null_mut()),
                sqlite::SQLITE_OK
            );
        };
        execute("PRAGMA synchronous = FULL; BEGIN IMMEDIATE");
        let sql = text("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES (?, ?)");
        let prepared = sqlite::sqlite3_prepare_v2(db, sql.as_ptr(), -1, &raw mut statement, std::ptr::null_mut());
        assert_eq!(prepared, sqlite::SQLITE_OK);
        let class = text("bench.a");
        for n in 0..rows {
            let data = text(&data(n));
            sqlite::sqlite3_bind_text(statement, 1, class.as_ptr(), -1, sqlite::SQLITE_STATIC());
            sqlite::sqlite3_bind_text(statement, 2, data.as_ptr(), -1, sqlite::SQLITE_STATIC());
            assert_eq!(sqlite::sqlite3_step(statement), sqlite::SQLITE_DONE);
            sqlite::sqlite3_reset(statement);
        }
        sqlite::sqlite3_finalize(statement);
        execute("COMMIT");
        sqlite::sqlite3_close(db);
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

/// A prepared INSERT that is a transaction by itself, on any connection.
#[macro_export]
macro_rules! bare_insert {
    ($conn:expr) => {{
        use $crate::bulk::tasks;
        let values =
            (tasks::task_class.eq("bench.a"), tasks::task_data.eq("{\"to\":\"user1@example.org\",\"template\":7}"));
        assert_eq!(diesel::insert_into(tasks::table).values(values).execute($conn).unwrap(), 1);
    }};
}
