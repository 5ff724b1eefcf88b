//! A database of its own for each test, made fresh and dropped at the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use taskqueue_engine::config::Classes;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::{Context, DatabaseUrl, Handlers};
use taskqueue_store::Store;
use tempfile::TempDir;

use super::cli::Cli;
use super::database::Database;
pub use super::database::{EngineUnderTest, Raw};
use super::spare;

/// A migrated database and a home directory of its own.
pub struct TestDb {
    pub engine: EngineUnderTest,
    database: Database,
    home: TempDir,
    /// Connections that wait for the next who need many at once: to connect costs a server more than most of what is asked.
    idle: Mutex<Vec<Store>>,
}

impl TestDb {
    fn new(engine: EngineUnderTest) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let home = tempfile::tempdir().unwrap();
        if let Some(database) = spare::take(engine) {
            return Some(Self::of(engine, database, home));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = Database::create(engine, home.path(), &format!("tq_{}_{number}", std::process::id()))?;
        migrate(&database);
        spare::remember(engine, &database);
        Some(Self::of(engine, database, home))
    }

    fn of(engine: EngineUnderTest, database: Database, home: TempDir) -> Self {
        Self { engine, database, home, idle: Mutex::default() }
    }

    /// A migrated database on another server than the shared one; it is gone with that server.
    pub fn on_server(engine: EngineUnderTest, server: &str, name: &str) -> Self {
        let database = Database::create_on(engine, server, name);
        migrate(&database);
        Self::of(engine, database, tempfile::tempdir().unwrap())
    }

    /// Its name, and `host:port` of its server.
    pub fn name_and_host(&self) -> (&str, &str) {
        let (_, place) = self.url_text().rsplit_once('@').unwrap();
        let (host, name) = place.split_once('/').unwrap();
        (name, host)
    }

    pub fn url(&self) -> DatabaseUrl {
        DatabaseUrl::parse(self.url_text()).unwrap()
    }

    pub fn url_text(&self) -> &str {
        self.database.url()
    }

    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    pub fn store(&self) -> Store {
        Store::open(&self.url()).unwrap()
    }

    /// So many stores, each with a connection of its own, which may have been lent before.
    pub fn lend(&self, count: usize) -> Vec<Store> {
        let mut idle = self.idle.lock().unwrap();
        let rest = idle.len().saturating_sub(count);
        let mut lent = idle.split_off(rest);
        drop(idle);
        lent.resize_with(count, || self.store());
        lent
    }

    /// Takes back what was lent.
    pub fn take_back(&self, stores: impl IntoIterator<Item = Store>) {
        self.idle.lock().unwrap().extend(stores);
    }

    /// A context whose classes are these Rust handlers, with `exec` on.
    pub fn context(&self, registry: HandlerRegistry) -> Context {
        Context::open(&self.url(), Handlers::new(registry, Classes::default(), true)).unwrap()
    }

    pub fn raw(&self) -> Raw {
        self.database.raw()
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
        Cli::new(self.home.path()).env("TASKQUEUE_DATABASE_URL", self.url_text())
    }

    /// Writes the configuration that `cli` uses.
    pub fn configure(&self, toml: &str) {
        super::cli::configure(self.home.path(), toml);
    }

    /// The same, without a user that handlers run as.
    pub fn configure_exactly(&self, toml: &str) {
        super::cli::configure_exactly(self.home.path(), toml);
    }
}

/// Makes the tables.
fn migrate(database: &Database) {
    Store::connect(&DatabaseUrl::parse(database.url()).unwrap()).unwrap().migrate().unwrap();
}

/// Runs a test on one engine; says so when its server is not there, and fails then if all are required.
pub fn on(engine: EngineUnderTest, check: impl FnOnce(&TestDb)) {
    match TestDb::new(engine) {
        Some(db) => {
            check(&db);
            drop(db.idle);
            spare::give(engine, db.database);
        }
        None => {
            assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no server of {engine:?} to test on");
            eprintln!("skipped: no server of {engine:?}; tests/run starts them all");
        }
    }
}
