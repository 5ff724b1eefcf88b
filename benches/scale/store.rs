//! A database of the benchmark's own on each engine.

use std::fmt::Write as _;
use std::path::PathBuf;

use diesel::connection::{Connection, SimpleConnection};
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::sqlite::SqliteConnection;
use taskqueue::engine::DatabaseUrl;
use taskqueue::store::Store;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
    Mariadb,
    Mysql,
}

impl Engine {
    pub const ALL: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Mariadb, Self::Mysql];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
        }
    }
}

pub enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Mysql(MysqlConnection),
}

impl Raw {
    /// Statements with names in double quotes; for MySQL they become backticks.
    pub fn execute(&mut self, sql: &str) {
        match self {
            Self::Sqlite(conn) => conn.batch_execute(sql),
            Self::Postgres(conn) => conn.batch_execute(sql),
            Self::Mysql(conn) => conn.batch_execute(&sql.replace('"', "`")),
        }
        .unwrap_or_else(|error| panic!("{error}: {}", sql.chars().take(300).collect::<String>()));
    }
}

pub struct BenchStore {
    pub engine: Engine,
    pub url: String,
    server: Option<String>,
    pub home: tempfile::TempDir,
}

const DATABASE: &str = "tq_scale";

impl BenchStore {
    pub fn new(engine: Engine) -> Option<Self> {
        // Not /tmp: it may be memory, and a commit has to reach the disk.
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let variable = format!("TASKQUEUE_TEST_{}_URL", engine.name().to_uppercase());
        let (url, server) = if engine == Engine::Sqlite {
            (format!("sqlite://{}/tasks.db", home.path().display()), None)
        } else {
            let server = std::env::var(variable).ok()?;
            let (base, _) = server.rsplit_once('/').unwrap();
            (format!("{base}/{DATABASE}"), Some(server))
        };
        let store = Self { engine, url, server, home };
        store.drop_database();
        if let Some(server) = &store.server {
            store.connect(server).execute(&format!("CREATE DATABASE \"{DATABASE}\""));
        }
        Store::connect(&store.parsed_url()).unwrap().migrate().unwrap();
        std::fs::write(store.home.path().join("config.toml"), "[class.\"bench.*\"]\nargv = [\"/bin/true\"]\n").unwrap();
        Some(store)
    }

    pub fn parsed_url(&self) -> DatabaseUrl {
        DatabaseUrl::parse(&self.url).unwrap()
    }

    fn connect(&self, url: &str) -> Raw {
        match self.engine {
            Engine::Sqlite => {
                let mut conn = SqliteConnection::establish(url.trim_start_matches("sqlite://")).unwrap();
                conn.batch_execute("PRAGMA busy_timeout = 10000; PRAGMA synchronous = FULL;").unwrap();
                Raw::Sqlite(conn)
            }
            Engine::Postgres => Raw::Postgres(PgConnection::establish(url).unwrap()),
            Engine::Mariadb | Engine::Mysql => Raw::Mysql(MysqlConnection::establish(url).unwrap()),
        }
    }

    pub fn raw(&self) -> Raw {
        self.connect(&self.url)
    }

    pub fn empty(&self) {
        let truncate = if self.engine == Engine::Sqlite { "DELETE FROM" } else { "TRUNCATE TABLE" };
        self.raw().execute(&format!("{truncate} \"TaskQueue\"; {truncate} \"TaskQueueRuns\";"));
    }

    /// The tasks as a file for `queue --batch`.
    pub fn write_batch(&self, tasks: usize) -> PathBuf {
        let mut text = String::with_capacity(tasks * 80);
        for number in 0..tasks {
            let _ = writeln!(text, "{{\"class\":\"bench.a\",\"data\":{}}}", data(number));
        }
        let path = self.home.path().join("batch.ndjson");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn queue(&self, tasks: usize) {
        super::limits::insert_tasks(self, tasks);
    }

    /// As many tasks that succeeded, each with its run.
    pub fn add_finished(&self, tasks: usize) {
        let numbers = match self.engine {
            Engine::Postgres => format!("SELECT n FROM generate_series(1, {tasks}) AS g (n)"),
            _ => format!(
                "WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {tasks}) SELECT n FROM g"
            ),
        };
        let mut raw = self.raw();
        if let Raw::Mysql(_) = raw {
            let limit =
                if self.engine == Engine::Mysql { "cte_max_recursion_depth" } else { "max_recursive_iterations" };
            raw.execute(&format!("SET SESSION {limit} = 100000000"));
        }
        raw.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"LastStatus\", \"Attempts\")
             SELECT 'bench.a', '{{}}', 'success', 1 FROM ({numbers}) AS s"
        ));
        raw.execute(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\")
             SELECT \"Id\", \"TaskClass\", 'success', \"QueuedOn\", \"QueuedOn\", 'x' FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'",
        );
    }

    /// What the servers do by themselves after a while.
    pub fn analyze(&self) {
        let sql = match self.engine {
            Engine::Sqlite => "SELECT 1",
            Engine::Postgres => "VACUUM ANALYZE \"TaskQueue\"",
            Engine::Mariadb | Engine::Mysql => "ANALYZE TABLE \"TaskQueue\", \"TaskQueueRuns\"",
        };
        self.raw().execute(sql);
        if self.engine == Engine::Postgres {
            self.raw().execute("VACUUM ANALYZE \"TaskQueueRuns\"");
        }
    }

    fn drop_database(&self) {
        if let Some(server) = &self.server {
            self.connect(server).execute(&format!("DROP DATABASE IF EXISTS \"{DATABASE}\""));
        }
    }
}

impl Drop for BenchStore {
    fn drop(&mut self) {
        self.drop_database();
    }
}

/// About fifty bytes, like an address and an id.
pub fn data(number: usize) -> String {
    format!("{{\"to\":\"user{number}@example.org\",\"template\":{}}}", number % 17)
}
