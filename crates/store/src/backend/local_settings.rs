//! PostgreSQL behind a pooler, such as PgBouncer in transaction mode. Two transactions of one connection may run in different
//! sessions of the server, which other programs use too. Therefore nothing is prepared by name, nothing is set in a session, and
//! LISTEN is not used.

use diesel::connection::{CacheSize, Connection as _, SimpleConnection as _};

use crate::address::pooler::KnownPooler;
use crate::backend::write_transaction;
use crate::base::connection::{AnyConnection, by_engine};
use crate::error::StoreResult;

/// The settings of each session, without `SET`. `postgres::connect` gives the reasons.
pub(crate) const SETTINGS: [&str; 8] = [
    "TIME ZONE 'UTC'",
    "lock_timeout = '30s'",
    "statement_timeout = '600s'",
    "idle_in_transaction_session_timeout = '60s'",
    "client_min_messages = warning",
    "plan_cache_mode = force_generic_plan",
    "jit = off",
    "enable_bitmapscan = off",
];

/// The additional settings of a worker.
pub(crate) const LOOKUPS: &str =
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;";

/// Makes the connection prepare each statement once, unless its session is shared: the next transaction may have another session.
pub(crate) fn keep_statements(conn: &mut AnyConnection, known: &KnownPooler) {
    if known.pooler().shares_sessions() {
        return;
    }
    by_engine!(match conn {
        // Differs by necessity: MySQL prepares each statement anyway, and SQLite has no round trips to save.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => (),
        AnyConnection::Postgres(conn) => conn.set_prepared_statement_cache_size(CacheSize::Unbounded),
    });
}

/// The settings of each transaction of a connection that must not set anything in its session.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalSettings {
    /// Whether statements read rows by their keys.
    pub(crate) prefers_lookups: bool,
    /// For read-only work: for how many milliseconds a statement may wait.
    pub(crate) look_millis: Option<u128>,
}

impl LocalSettings {
    fn statements(&self) -> String {
        let mut statements: String = SETTINGS.iter().map(|setting| format!("SET LOCAL {setting};")).collect();
        if self.prefers_lookups {
            statements.push_str(LOOKUPS);
        }
        if let Some(millis) = self.look_millis {
            statements.push_str(&format!(
                "SET LOCAL transaction_read_only = on; SET LOCAL statement_timeout = '{millis}ms';
                 SET LOCAL lock_timeout = '{millis}ms';"
            ));
        }
        statements
    }
}

/// Runs `work`; if sessions are shared, in a transaction with these settings.
pub(crate) fn with_local_settings<T>(
    conn: &mut AnyConnection,
    known: &KnownPooler,
    settings: &LocalSettings,
    work: &mut dyn FnMut(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    if !known.pooler().shares_sessions() {
        return work(conn);
    }
    write_transaction(conn, |conn| {
        conn.batch_execute(&settings.statements())?;
        work(conn)
    })
}
