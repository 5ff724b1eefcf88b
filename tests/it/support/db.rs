//! A new database for each test, dropped at the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::{ClassesInUse, Context, DatabaseUrl, Handlers};
use taskqueue_store::Store;
use tempfile::TempDir;

use super::cli::Cli;
use super::database::Database;
pub use super::database::{EngineUnderTest, Raw};
use super::spare;

/// A migrated database and a home directory.
pub struct TestDb {
    pub engine: EngineUnderTest,
    database: Database,
    home: TempDir,
    /// Idle connections for tests that need many: connecting costs a server more than most queries.
    idle: Mutex<Vec<Store>>,
    /// The connection of `execute`, `number` and `text` while none of them uses it.
    kept: Mutex<Option<Raw>>,
}

/// Connects again while the server does not answer in time, because the machine has more to do than the limit allows for.
fn answered<T, E: std::fmt::Display>(connect: impl Fn() -> Result<T, E>) -> T {
    let mut connected = connect();
    for _ in 0..5 {
        match connected {
            Err(error) if error.to_string().contains("no answer within") => connected = connect(),
            connected => return connected.unwrap_or_else(|error| panic!("{error}")),
        }
    }
    connected.unwrap_or_else(|error| panic!("{error}"))
}

impl TestDb {
    fn new(engine: EngineUnderTest) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let home = tempfile::tempdir().unwrap();
        if let Some(database) = spare::take(engine) {
            return Some(Self::of(engine, database, home));
        }
        let name = format!("tq_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if let Some(template) = spare::template(engine, migrate) {
            return Some(Self::of(engine, Database::copy(&name, template)?, home));
        }
        let database = Database::create(engine, home.path(), &name)?;
        migrate(&database);
        spare::remember(engine, &database);
        Some(Self::of(engine, database, home))
    }

    fn of(engine: EngineUnderTest, database: Database, home: TempDir) -> Self {
        Self { engine, database, home, idle: Mutex::default(), kept: Mutex::default() }
    }

    /// Creates a migrated database on another server than the shared one; it is deleted with that server.
    pub fn on_server(engine: EngineUnderTest, server: &str, name: &str) -> Self {
        let database = Database::create_on(engine, server, name);
        migrate(&database);
        Self::of(engine, database, tempfile::tempdir().unwrap())
    }

    /// Returns its name, and `host:port` of its server.
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
        answered(|| Store::open(&self.url()))
    }

    /// Returns this many stores, each with its own connection, which may have been used before.
    pub fn lend(&self, count: usize) -> Vec<Store> {
        let mut idle = self.idle.lock().unwrap();
        let rest = idle.len().saturating_sub(count);
        let mut lent = idle.split_off(rest);
        drop(idle);
        lent.resize_with(count, || self.store());
        lent
    }

    /// Takes back lent stores.
    pub fn take_back(&self, stores: impl IntoIterator<Item = Store>) {
        self.idle.lock().unwrap().extend(stores);
    }

    /// Returns a context with these Rust handlers as classes, and with `exec` on.
    pub fn context(&self, registry: HandlerRegistry) -> Context {
        let in_use = ClassesInUse { exec_enabled: true, ..ClassesInUse::default() };
        let handlers = Handlers::new(registry, in_use);
        answered(|| Context::open(&self.url(), handlers.clone()))
    }

    pub fn raw(&self) -> Raw {
        self.database.raw()
    }

    /// Statements that change their session belong to `raw`: the next caller gets the same session.
    pub fn execute(&self, sql: &str) {
        self.with_kept(|raw| raw.execute(sql));
    }

    /// Returns the first value of a query whose column is named `value`.
    pub fn number(&self, sql: &str) -> i64 {
        self.with_kept(|raw| raw.numbers(sql))
            .into_iter()
            .next()
            .flatten()
            .unwrap_or_else(|| panic!("{sql}: no number"))
    }

    pub fn text(&self, sql: &str) -> Option<String> {
        self.with_kept(|raw| raw.texts(sql)).into_iter().next().flatten()
    }

    /// Ends the kept connection, for a test that counts or ends the sessions of its database, or what they have reported.
    pub fn disconnect(&self) {
        drop(self.take_kept());
    }

    /// Connects anew while another thread uses the connection, whose statement may wait for a lock, and after a panic.
    fn with_kept<T>(&self, ask: impl FnOnce(&mut Raw) -> T) -> T {
        let kept = self.take_kept();
        let mut raw = kept.unwrap_or_else(|| self.raw());
        let answer = ask(&mut raw);
        if self.database.is_on_shared_server() {
            *self.kept.lock().unwrap() = Some(raw);
        }
        answer
    }

    fn take_kept(&self) -> Option<Raw> {
        self.kept.lock().unwrap().take()
    }

    /// Returns true if it is one of the two engines that share a client.
    pub fn is_mysql_like(&self) -> bool {
        matches!(self.engine, EngineUnderTest::Mariadb | EngineUnderTest::Mysql)
    }

    /// Returns the program with this database, this configuration and a clean environment.
    pub fn cli(&self) -> Cli {
        Cli::new(self.home.path()).env("TASKQUEUE_DATABASE_URL", self.url_text())
    }

    /// Writes the configuration that `cli` uses.
    pub fn configure(&self, toml: &str) {
        super::cli::configure(self.home.path(), toml);
    }

    /// Writes it without a user for handlers.
    pub fn configure_exactly(&self, toml: &str) {
        super::cli::configure_exactly(self.home.path(), toml);
    }
}

/// Creates the tables.
fn migrate(database: &Database) {
    Store::connect(&DatabaseUrl::parse(database.url()).unwrap()).unwrap().migrate().unwrap();
}

/// Runs a test on one engine; without its server, prints that, or fails if all engines are required.
pub fn on(engine: EngineUnderTest, check: impl FnOnce(&TestDb)) {
    match TestDb::new(engine) {
        Some(db) => {
            check(&db);
            drop((db.idle, db.kept));
            spare::give(engine, db.database);
        }
        None => {
            assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no server of {engine:?} to test on");
            eprintln!("skipped: no server of {engine:?}; tests/run starts them all");
        }
    }
}
