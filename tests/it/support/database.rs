//! An empty database on each engine, dropped at the end, and a separate connection to it. Used by the tests and by the
//! benchmark.

use std::path::Path;

use diesel::connection::{Connection, SimpleConnection};
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::SqliteConnection;
use diesel::{QueryableByName, RunQueryDsl};

/// The engines, with MariaDB and MySQL separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineUnderTest {
    Sqlite,
    Postgres,
    Mariadb,
    Mysql,
}

impl EngineUnderTest {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
        }
    }

    fn server_url(self) -> Option<String> {
        std::env::var(format!("TASKQUEUE_TEST_{}_URL", self.name().to_uppercase())).ok()
    }
}

/// A separate connection of the test.
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

    /// Executes statements with names in double quotes; for MySQL these become backticks.
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

    /// Returns the column `value` of every row, as text.
    pub fn texts(&mut self, sql: &str) -> Vec<Option<String>> {
        let rows: Result<Vec<TextRow>, _> = match self {
            Self::Sqlite(conn) => diesel::sql_query(sql).load(conn),
            Self::Postgres(conn) => diesel::sql_query(sql).load(conn),
            Self::Mysql(conn) => diesel::sql_query(sql.replace('"', "`")).load(conn),
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}")).into_iter().map(|row| row.value).collect()
    }

    /// Returns the column `value` of every row, as a number.
    pub fn numbers(&mut self, sql: &str) -> Vec<Option<i64>> {
        let rows: Result<Vec<NumberRow>, _> = match self {
            Self::Sqlite(conn) => diesel::sql_query(sql).load(conn),
            Self::Postgres(conn) => diesel::sql_query(sql).load(conn),
            Self::Mysql(conn) => diesel::sql_query(sql.replace('"', "`")).load(conn),
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}")).into_iter().map(|row| row.value).collect()
    }
}

/// Returns the table of sessions of a MySQL or MariaDB server. MySQL's own list also shows their statements, and fails if one
/// of them, in any test, has a character of four bytes.
pub fn sessions(engine: EngineUnderTest) -> &'static str {
    match engine {
        EngineUnderTest::Mysql => {
            "(SELECT processlist_id AS id, processlist_user AS user, processlist_db AS db, processlist_command AS command,
                     processlist_state AS state
              FROM performance_schema.threads WHERE processlist_id IS NOT NULL) AS sessions"
        }
        _ => "information_schema.processlist",
    }
}

/// A new database; a server's is dropped at the end, a file is deleted with its directory.
pub struct Database {
    engine: EngineUnderTest,
    url: String,
    /// The database of the server from which this one is created and dropped.
    server: Option<(String, String)>,
}

impl Database {
    /// Creates a database; `None` if the server of the engine is not available.
    pub fn create(engine: EngineUnderTest, directory: &Path, name: &str) -> Option<Self> {
        if engine == EngineUnderTest::Sqlite {
            return Some(Self { engine, url: format!("sqlite://{}/tasks.db", directory.display()), server: None });
        }
        Self::create_with(engine, name, "")
    }

    /// Creates a database on a server of PostgreSQL that is a copy of another one, to which no client may be connected.
    #[allow(dead_code, reason = "the benchmark copies none")]
    pub fn copy(name: &str, template: &str) -> Option<Self> {
        Self::create_with(EngineUnderTest::Postgres, name, &format!(" TEMPLATE \"{template}\""))
    }

    fn create_with(engine: EngineUnderTest, name: &str, options: &str) -> Option<Self> {
        let server = engine.server_url()?;
        Raw::connect(engine, &server).execute(&format!("CREATE DATABASE \"{name}\"{options}"));
        let (base, _) = server.rsplit_once('/').unwrap();
        Some(Self { engine, url: format!("{base}/{name}"), server: Some((server, name.to_owned())) })
    }

    /// Creates a database on this server, whose data is deleted with it. Options of its address are kept.
    #[allow(dead_code, reason = "the benchmark has but the shared servers")]
    pub fn create_on(engine: EngineUnderTest, server: &str, name: &str) -> Self {
        Raw::connect(engine, server).execute(&format!("CREATE DATABASE \"{name}\""));
        let (base, place) = server.rsplit_once('/').unwrap();
        let options = place.find('?').map_or("", |at| &place[at..]);
        Self { engine, url: format!("{base}/{name}{options}"), server: None }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns true if its server outlives it, and so a connection to it.
    #[allow(dead_code, reason = "the benchmark keeps no connection")]
    pub fn is_on_shared_server(&self) -> bool {
        self.server.is_some()
    }

    pub fn raw(&self) -> Raw {
        Raw::connect(self.engine, &self.url)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some((server, name)) = &self.server {
            let force = if self.engine == EngineUnderTest::Postgres { " WITH (FORCE)" } else { "" };
            let _ = Raw::connect(self.engine, server).try_execute(&format!("DROP DATABASE \"{name}\"{force}"));
        }
    }
}
