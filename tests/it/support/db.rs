//! A database of its own for each test, made fresh and dropped at the end.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::{Connection, SimpleConnection};
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::SqliteConnection;
use diesel::{QueryableByName, RunQueryDsl};
use taskqueue::config::Classes;
use taskqueue::engine::{Context, DatabaseUrl, Handlers};
use taskqueue::handler::registry::HandlerRegistry;
use taskqueue::store::Store;
use tempfile::TempDir;

use super::cli::Cli;

/// The engines, MariaDB and MySQL apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineUnderTest {
    Sqlite,
    Postgres,
    Mariadb,
    Mysql,
}

impl EngineUnderTest {
    fn server_url(self) -> Option<String> {
        let variable = match self {
            Self::Sqlite => return None,
            Self::Postgres => "TASKQUEUE_TEST_POSTGRES_URL",
            Self::Mariadb => "TASKQUEUE_TEST_MARIADB_URL",
            Self::Mysql => "TASKQUEUE_TEST_MYSQL_URL",
        };
        std::env::var(variable).ok()
    }
}

/// A connection of the test's own, beside the program's.
pub enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Mysql(MysqlConnection),
}

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    value: Option<i64>,
}

impl Raw {
    pub fn connect(engine: EngineUnderTest, url: &str) -> Self {
        match engine {
            EngineUnderTest::Sqlite => {
                let mut conn = SqliteConnection::establish(url.trim_start_matches("sqlite://")).unwrap();
                conn.batch_execute("PRAGMA busy_timeout = 30000").unwrap();
                Self::Sqlite(conn)
            }
            EngineUnderTest::Postgres => Self::Postgres(PgConnection::establish(url).unwrap()),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => Self::Mysql(MysqlConnection::establish(url).unwrap()),
        }
    }

    /// Statements with names in double quotes; for MySQL they become backticks.
    pub fn try_execute(&mut self, sql: &str) -> Result<(), diesel::result::Error> {
        match self {
            Self::Sqlite(conn) => conn.batch_execute(sql),
            Self::Postgres(conn) => conn.batch_execute(sql),
            Self::Mysql(conn) => conn.batch_execute(&sql.replace('"', "`")),
        }
    }

    pub fn execute(&mut self, sql: &str) {
        self.try_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The column called `value` of every row, as text.
    pub fn texts(&mut self, sql: &str) -> Vec<Option<String>> {
        let rows: Result<Vec<TextRow>, _> = match self {
            Self::Sqlite(conn) => diesel::sql_query(sql).load(conn),
            Self::Postgres(conn) => diesel::sql_query(sql).load(conn),
            Self::Mysql(conn) => diesel::sql_query(sql.replace('"', "`")).load(conn),
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}")).into_iter().map(|row| row.value).collect()
    }

    /// The column called `value` of every row, as a number.
    pub fn numbers(&mut self, sql: &str) -> Vec<Option<i64>> {
        let rows: Result<Vec<NumberRow>, _> = match self {
            Self::Sqlite(conn) => diesel::sql_query(sql).load(conn),
            Self::Postgres(conn) => diesel::sql_query(sql).load(conn),
            Self::Mysql(conn) => diesel::sql_query(sql.replace('"', "`")).load(conn),
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}")).into_iter().map(|row| row.value).collect()
    }
}

/// A migrated database and a home directory of its own.
pub struct TestDb {
    pub engine: EngineUnderTest,
    url: String,
    database: String,
    home: TempDir,
}

impl TestDb {
    fn new(engine: EngineUnderTest) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let home = tempfile::tempdir().unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = format!("tq_{}_{number}", std::process::id());
        let url = match engine {
            EngineUnderTest::Sqlite => format!("sqlite://{}/tasks.db", home.path().display()),
            _ => {
                let server = engine.server_url()?;
                Raw::connect(engine, &server).execute(&format!("CREATE DATABASE \"{database}\""));
                let (base, _) = server.rsplit_once('/').unwrap();
                format!("{base}/{database}")
            }
        };
        let db = Self { engine, url, database, home };
        Store::connect(&db.url()).unwrap().migrate().unwrap();
        Some(db)
    }

    pub fn url(&self) -> DatabaseUrl {
        DatabaseUrl::parse(&self.url).unwrap()
    }

    pub fn url_text(&self) -> &str {
        &self.url
    }

    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    pub fn store(&self) -> Store {
        Store::open(&self.url()).unwrap()
    }

    /// A context whose classes are these Rust handlers, with `exec` on.
    pub fn context(&self, registry: HandlerRegistry) -> Context {
        Context::open(&self.url(), Handlers::new(registry, Classes::default(), true)).unwrap()
    }

    pub fn raw(&self) -> Raw {
        Raw::connect(self.engine, &self.url)
    }

    pub fn execute(&self, sql: &str) {
        self.raw().execute(sql);
    }

    /// The first value of a query whose column is called `value`.
    pub fn number(&self, sql: &str) -> i64 {
        self.raw().numbers(sql).into_iter().next().flatten().unwrap_or_else(|| panic!("{sql}: no number"))
    }

    pub fn text(&self, sql: &str) -> Option<String> {
        self.raw().texts(sql).into_iter().next().flatten()
    }

    /// Whether it is one of the two that share a client.
    pub fn is_mysql_like(&self) -> bool {
        matches!(self.engine, EngineUnderTest::Mariadb | EngineUnderTest::Mysql)
    }

    /// The program with this database, this configuration and a clean environment.
    pub fn cli(&self) -> Cli {
        Cli::new(self.home.path()).env("TASKQUEUE_DATABASE_URL", &self.url)
    }

    /// Writes the configuration that `cli` uses.
    pub fn configure(&self, toml: &str) {
        super::cli::configure(self.home.path(), toml);
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if let Some(server) = self.engine.server_url() {
            let force = if self.engine == EngineUnderTest::Postgres { " WITH (FORCE)" } else { "" };
            let _ =
                Raw::connect(self.engine, &server).try_execute(&format!("DROP DATABASE \"{}\"{force}", self.database));
        }
    }
}

/// Runs a test on one engine; says so when its server is not there, and fails then if all are required.
pub fn on(engine: EngineUnderTest, check: impl FnOnce(&TestDb)) {
    match TestDb::new(engine) {
        Some(db) => check(&db),
        None => {
            assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no server of {engine:?} to test on");
            eprintln!("skipped: no server of {engine:?}; tests/run starts them all");
        }
    }
}
