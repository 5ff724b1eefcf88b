//! Databases of MySQL that are reused. Creating and dropping our tables takes it half a second of processor time, which was a
//! sixth of the whole suite. Therefore a database is emptied after its test has passed, if the test has not changed the tables.
//!
//! Only on servers that are discarded after the tests, when `TASKQUEUE_TEST_REUSE` is set. Spare databases are never dropped.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::database::{Database, EngineUnderTest, Raw, sessions};

/// All tables of the program, and whether their rows have automatic ids.
const TABLES: [(&str, bool); 18] = [
    ("TaskQueue", true),
    ("TaskQueueDependencies", false),
    ("TaskQueueRuns", true),
    ("TaskQueueRunners", true),
    ("TaskQueueRunOutputs", false),
    ("TaskQueueRejections", false),
    ("TaskQueueEvents", true),
    ("TaskQueueClassHolds", false),
    ("TaskQueuePauses", false),
    ("TaskQueueClassLimits", false),
    ("TaskQueueStarts", false),
    ("TaskQueueKeyLimits", false),
    ("TaskQueueSettings", false),
    ("TaskQueueSchedules", false),
    ("TaskQueueReceipts", false),
    ("TaskQueueNotices", true),
    ("TaskQueueTimers", false),
    ("TaskQueueLocks", false),
];
/// Contains the initial rows of some tables.
const MIGRATION: &str = include_str!("../../../migrations/mysql/2026-11-26-220000_create_task_queue/up.sql");

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

static SPARE: Mutex<Vec<Database>> = Mutex::new(Vec::new());
/// The structure of a new database.
static MADE: OnceLock<Vec<Option<String>>> = OnceLock::new();

fn is_reused(engine: EngineUnderTest) -> bool {
    engine == EngineUnderTest::Mysql && std::env::var_os("TASKQUEUE_TEST_REUSE").is_some()
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

fn empty(raw: &mut Raw) {
    for (table, is_numbered) in TABLES {
        raw.execute(&format!("DELETE FROM \"{table}\""));
        if is_numbered {
            raw.execute(&format!("ALTER TABLE \"{table}\" AUTO_INCREMENT = 1"));
        }
    }
    for statement in MIGRATION.split_inclusive(";\n").filter(|statement| statement.trim_start().starts_with("INSERT")) {
        raw.execute(statement);
    }
}
