//! What spares the creation of our tables for each test. A database of MySQL is emptied after its test has passed, if the test has
//! not changed the tables: creating and dropping them takes it half a second of processor time. PostgreSQL copies a database that
//! has the tables.
//!
//! Only on servers that are discarded after the tests, when `TASKQUEUE_TEST_REUSE` is set. These databases are never dropped.

use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::database::{Database, EngineUnderTest, Raw, sessions};

/// All tables of the program.
const TABLES: [&str; 18] = [
    "TaskQueue",
    "TaskQueueDependencies",
    "TaskQueueRuns",
    "TaskQueueRunners",
    "TaskQueueRunOutputs",
    "TaskQueueRejections",
    "TaskQueueEvents",
    "TaskQueueClassHolds",
    "TaskQueuePauses",
    "TaskQueueClassLimits",
    "TaskQueueStarts",
    "TaskQueueKeyLimits",
    "TaskQueueSettings",
    "TaskQueueSchedules",
    "TaskQueueReceipts",
    "TaskQueueNotices",
    "TaskQueueTimers",
    "TaskQueueLocks",
];
/// Contains the initial rows of some tables.
const MIGRATION: &str = include_str!("../../../migrations/mysql/2026-11-29-040000_create_task_queue/up.sql");

/// Queries the structure of the tables.
const SHAPE: &str =
    "SELECT CONCAT_WS('|', t.\"table_name\", column_name, column_type, is_nullable, column_default, generation_expression,
         collation_name, engine, create_options) AS value
     FROM information_schema.columns AS c
         JOIN information_schema.tables AS t ON t.table_schema = c.table_schema AND t.\"table_name\" = c.\"table_name\"
     WHERE c.table_schema = DATABASE()
     UNION ALL SELECT CONCAT_WS('|', \"table_name\", index_name, seq_in_index, column_name, non_unique)
         FROM information_schema.statistics WHERE table_schema = DATABASE()
     UNION ALL SELECT CONCAT_WS('|', constraint_name, check_clause)
         FROM information_schema.check_constraints WHERE constraint_schema = DATABASE()
     UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()
     UNION ALL SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()
     UNION ALL SELECT CONCAT_WS('|', default_character_set_name, default_collation_name)
         FROM information_schema.schemata WHERE schema_name = DATABASE()
     UNION ALL SELECT version FROM \"__diesel_schema_migrations\"
     ORDER BY 1";

/// Queries the tables whose next automatic id is not the first one: changing it takes MySQL as long as creating a table.
const NUMBERED: &str = "SELECT \"table_name\" AS value FROM information_schema.tables
    WHERE table_schema = DATABASE() AND \"auto_increment\" > 1";

static SPARE: Mutex<Vec<Database>> = Mutex::new(Vec::new());
/// The structure of a new database.
static MADE: OnceLock<Vec<Option<String>>> = OnceLock::new();

fn may_keep() -> bool {
    std::env::var_os("TASKQUEUE_TEST_REUSE").is_some()
}

fn is_reused(engine: EngineUnderTest) -> bool {
    engine == EngineUnderTest::Mysql && may_keep()
}

/// Returns the name of a migrated database to copy; `None` if this engine copies none.
pub fn template(engine: EngineUnderTest, migrate: fn(&Database)) -> Option<&'static str> {
    static TEMPLATE: OnceLock<Option<String>> = OnceLock::new();
    if engine != EngineUnderTest::Postgres || !may_keep() {
        return None;
    }
    let made = TEMPLATE.get_or_init(|| {
        let name = format!("tq_{}_template", std::process::id());
        let database = Database::create(engine, Path::new(""), &name)?;
        migrate(&database);
        // It stays until its server is discarded.
        std::mem::forget(database);
        Some(name)
    });
    made.as_deref()
}

/// Returns a migrated and empty database that another test has left.
pub fn take(engine: EngineUnderTest) -> Option<Database> {
    if is_reused(engine) { SPARE.lock().unwrap().pop() } else { None }
}

/// Stores the structure after the tables of a database were created.
pub fn remember(engine: EngineUnderTest, database: &Database) {
    if is_reused(engine) {
        MADE.get_or_init(|| database.raw().texts(SHAPE));
    }
}

/// Takes back the database of a test that has passed. A database that cannot be reused is dropped.
pub fn give(engine: EngineUnderTest, database: Database) {
    if !is_reused(engine) {
        return;
    }
    let mut raw = database.raw();
    if is_alone(&mut raw) && MADE.get() == Some(&raw.texts(SHAPE)) {
        empty(&mut raw);
        drop(raw);
        SPARE.lock().unwrap().push(database);
    }
}

/// Returns true if no other client is connected: a process that a test has left must not write into the database of another
/// test.
fn is_alone(raw: &mut Raw) -> bool {
    let sessions = sessions(EngineUnderTest::Mysql);
    let all = format!("SELECT COUNT(*) AS value FROM {sessions} WHERE db = DATABASE()");
    // The server takes a moment to notice that a client has disconnected.
    (0..100).any(|_| {
        let is_alone = raw.numbers(&all)[0] == Some(1);
        if !is_alone {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        is_alone
    })
}

/// In one request: each costs a round trip, and there would be thirty.
fn empty(raw: &mut Raw) {
    let mut statements: String = TABLES.iter().map(|table| format!("DELETE FROM \"{table}\";\n")).collect();
    let inserts = MIGRATION.split_inclusive(";\n").filter(|statement| statement.trim_start().starts_with("INSERT"));
    statements.extend(inserts);
    raw.execute("SET SESSION information_schema_stats_expiry = 0");
    for table in raw.texts(NUMBERED).into_iter().flatten() {
        statements.push_str(&format!("ALTER TABLE \"{table}\" AUTO_INCREMENT = 1;\n"));
    }
    raw.execute(&statements);
}
