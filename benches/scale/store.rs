//! A migrated database of the benchmark's own on each engine, and what fills it.

use std::fmt::Write as _;
use std::path::PathBuf;

use taskqueue_engine::DatabaseUrl;
use taskqueue_store::Store;

use super::database::{Database, EngineUnderTest, Raw};

pub const ENGINES: [EngineUnderTest; 4] =
    [EngineUnderTest::Sqlite, EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql];

pub struct BenchStore {
    pub engine: EngineUnderTest,
    database: Database,
    pub home: tempfile::TempDir,
}

impl BenchStore {
    /// `None` if the engine's server is not there.
    pub fn new(engine: EngineUnderTest, name: &str) -> Option<Self> {
        // Not /tmp: it may be memory, and a commit has to reach the disk.
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let database = Database::create(engine, home.path(), &format!("tq_{name}_{}", std::process::id()))?;
        let store = Self { engine, database, home };
        Store::connect(&store.parsed_url()).unwrap().migrate().unwrap();
        std::fs::write(store.home.path().join("config.toml"), "[class.\"bench.*\"]\nargv = [\"/bin/true\"]\n").unwrap();
        Some(store)
    }

    pub fn url(&self) -> &str {
        self.database.url()
    }

    pub fn parsed_url(&self) -> DatabaseUrl {
        DatabaseUrl::parse(self.url()).unwrap()
    }

    /// With the durability that the program has; the servers' is their own matter.
    pub fn raw(&self) -> Raw {
        let mut raw = self.database.raw();
        if self.engine == EngineUnderTest::Sqlite {
            raw.execute("PRAGMA synchronous = FULL");
        }
        raw
    }

    pub fn empty(&self) {
        let truncate = if self.engine == EngineUnderTest::Sqlite { "DELETE FROM" } else { "TRUNCATE TABLE" };
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

    /// As many tasks that succeeded, each with its run.
    pub fn add_finished(&self, tasks: usize) {
        self.insert_numbered(
            tasks,
            "(\"TaskClass\", \"TaskData\", \"LastStatus\", \"Attempts\") SELECT 'bench.a', '{}', 'success', 1",
        );
        self.raw().execute(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\")
             SELECT \"Id\", \"TaskClass\", 'success', \"QueuedOn\", \"QueuedOn\", 'x' FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'",
        );
    }

    /// So many tasks of a class that are due.
    pub fn add_due(&self, class: &str, tasks: usize) {
        self.insert_numbered(tasks, &format!("(\"TaskClass\") SELECT '{class}'"));
    }

    /// So many tasks of a class whose time will not come during the test.
    pub fn add_delayed(&self, class: &str, tasks: usize) {
        self.insert_numbered(
            tasks,
            &format!("(\"TaskClass\", \"ScheduledOn\") SELECT '{class}', '2199-01-01 00:00:00.000000'"),
        );
    }

    /// So many tasks of a class that wait for others, none of which succeeds during the test.
    pub fn add_waiting(&self, class: &str, tasks: usize) {
        self.insert_numbered(tasks, &format!("(\"TaskClass\", \"WaitingFor\") SELECT '{class}', 1"));
    }

    /// So many tasks of a class with one limit key.
    pub fn add_keyed(&self, class: &str, tasks: usize) {
        self.insert_numbered(tasks, &format!("(\"TaskClass\", \"LimitKey\") SELECT '{class}', 'bench'"));
    }

    /// So many tasks, each of a class that nothing handles.
    pub fn add_of_own_classes(&self, _class: &str, tasks: usize) {
        self.insert_numbered(tasks, &format!("(\"TaskClass\") SELECT {}", self.numbered("other.")));
    }

    /// So many tasks, each of a class of its own that the handler of this class handles, too.
    pub fn add_of_own_handled_classes(&self, class: &str, tasks: usize) {
        self.insert_numbered(tasks, &format!("(\"TaskClass\") SELECT {}", self.numbered(class)));
    }

    /// The same, where one pause covers all these classes.
    pub fn add_of_classes_paused_together(&self, class: &str, tasks: usize) {
        self.add_of_own_handled_classes(class, tasks);
        self.raw()
            .execute(&format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\") VALUES ('class', '{class}*')"));
    }

    /// Names that begin so and end with the number of the row.
    fn numbered(&self, beginning: &str) -> String {
        match self.engine {
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("CONCAT('{beginning}', n)"),
            _ => format!("'{beginning}' || n"),
        }
    }

    fn insert_numbered(&self, tasks: usize, columns_and_values: &str) {
        let numbers = match self.engine {
            EngineUnderTest::Postgres => format!("SELECT n FROM generate_series(1, {tasks}) AS g (n)"),
            _ => format!(
                "WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {tasks}) SELECT n FROM g"
            ),
        };
        let mut raw = self.raw();
        if let Raw::Mysql(_) = raw {
            let limit = if self.engine == EngineUnderTest::Mysql {
                "cte_max_recursion_depth"
            } else {
                "max_recursive_iterations"
            };
            raw.execute(&format!("SET SESSION {limit} = 100000000"));
        }
        // PostgreSQL takes a text for a time only where it can see that it is one.
        let values = match self.engine {
            EngineUnderTest::Postgres => columns_and_values.replace("000000'", "000000+00'::timestamptz"),
            _ => columns_and_values.to_owned(),
        };
        raw.execute(&format!("INSERT INTO \"TaskQueue\" {values} FROM ({numbers}) AS s"));
    }

    /// What the servers do by themselves after a while.
    pub fn analyze(&self) {
        let sql = match self.engine {
            EngineUnderTest::Sqlite => "SELECT 1",
            EngineUnderTest::Postgres => "VACUUM ANALYZE \"TaskQueue\"",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "ANALYZE TABLE \"TaskQueue\", \"TaskQueueRuns\"",
        };
        self.raw().execute(sql);
        if self.engine == EngineUnderTest::Postgres {
            self.raw().execute("VACUUM ANALYZE \"TaskQueueRuns\"");
        }
    }
}

/// About fifty bytes, like an address and an id.
pub fn data(number: usize) -> String {
    format!("{{\"to\":\"user{number}@example.org\",\"template\":{}}}", number % 17)
}
