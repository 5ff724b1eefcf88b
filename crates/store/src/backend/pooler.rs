//! PostgreSQL behind a pooler, like PgBouncer in transaction mode. Two transactions of one of our connections may run in different
//! sessions of the server, and other programs use these sessions too: nothing is prepared by name, nothing is set in a session,
//! and nothing is listened for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use diesel::connection::{CacheSize, SimpleConnection as _};
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text};

use super::url::DatabaseUrl;
use super::{AnyConnection, sqlstate, unreachable, write_transaction};
use crate::error::StoreResult;
use taskqueue_host::net::direct::{SeenByServer, is_connected_to_parent_of, is_own_connection};

/// The settings of each of our sessions, without `SET`. `postgres::connect` gives the reasons.
pub(super) const SETTINGS: [&str; 8] = [
    "TIME ZONE 'UTC'",
    "lock_timeout = '30s'",
    "statement_timeout = '600s'",
    "idle_in_transaction_session_timeout = '60s'",
    "client_min_messages = warning",
    "plan_cache_mode = force_generic_plan",
    "jit = off",
    "enable_bitmapscan = off",
];

/// The same for a worker, beside these.
pub(super) const LOOKUPS: &str =
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;";

/// Whether the sessions of the server are shared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// The address names none, and none was found.
    NotFound,
    /// A connection was found to end elsewhere than at the server.
    Found,
    /// The address says that there is none: `pooler=none`.
    None,
    /// The address names one that keeps a session for each client: `pooler=session`.
    Session,
    /// The address names one that shares sessions between transactions: `pooler=transaction`.
    Transaction,
}

impl Pooler {
    const ALL: [Self; 5] = [Self::NotFound, Self::Found, Self::None, Self::Session, Self::Transaction];

    /// Whether two transactions of a connection may run in different sessions.
    #[must_use]
    pub const fn shares_sessions(self) -> bool {
        matches!(self, Self::Found | Self::Transaction)
    }

    /// The word for it in JSON and in an address.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Found => "found",
            Self::None => "none",
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }
}

/// What is known of a pooler at one address, for all that connect to it.
#[derive(Clone, Debug)]
pub(in super::super) struct Known(Arc<State>);

#[derive(Debug)]
struct State {
    pooler: AtomicU8,
    /// Whether a second connection has shown that there is none: a translation of addresses stays what it is.
    is_direct: AtomicBool,
}

impl Known {
    /// What the address says of it.
    pub(super) fn declared(option: Option<&str>) -> Self {
        let pooler = match option {
            Some("none") => Pooler::None,
            Some("session") => Pooler::Session,
            Some("transaction") => Pooler::Transaction,
            _ => Pooler::NotFound,
        };
        Self(Arc::new(State { pooler: AtomicU8::new(pooler as u8), is_direct: AtomicBool::new(false) }))
    }

    pub(in super::super) fn pooler(&self) -> Pooler {
        Pooler::ALL.get(usize::from(self.0.pooler.load(Ordering::Relaxed))).copied().unwrap_or(Pooler::NotFound)
    }

    fn is_to_be_found(&self) -> bool {
        self.pooler() == Pooler::NotFound && !self.0.is_direct.load(Ordering::Relaxed)
    }

    fn note(&self, is_pooled: bool) {
        if is_pooled {
            self.0.pooler.store(Pooler::Found as u8, Ordering::Relaxed);
        } else {
            self.0.is_direct.store(true, Ordering::Relaxed);
        }
    }
}

/// Two addresses do not differ by what was found behind them.
impl PartialEq for Known {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Known {}

/// Whether this new connection shares sessions. It prepares nothing by name before [`keep_statements`].
pub(super) fn shares_sessions(url: &DatabaseUrl, conn: &mut PgConnection) -> StoreResult<bool> {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    let known = url.pooler();
    if known.is_to_be_found() {
        let seen: Seen =
            diesel::sql_query(SEEN).get_result(conn).map_err(|error| unreachable(url, &error.to_string()))?;
        if !seen.is_ours() {
            known.note(sqlstate::is_pooled(url).map_err(|message| unreachable(url, &message))?);
        }
    }
    Ok(known.pooler().shares_sessions())
}

/// Prepares each statement once from now on, unless the session is shared: the next transaction may have another one.
pub(in super::super) fn keep_statements(conn: &mut AnyConnection, known: &Known) {
    // Differs by necessity: MySQL prepares each statement in any case, and SQLite has no round trips to save.
    if let AnyConnection::Postgres(conn) = conn
        && !known.pooler().shares_sessions()
    {
        conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
    }
}

const SEEN: &str =
    "SELECT pg_backend_pid() AS pid, host(inet_client_addr()) AS client, inet_client_port() AS client_port,
    inet_server_port() AS server_port";

#[derive(QueryableByName)]
struct Seen {
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Nullable<Text>)]
    client: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    client_port: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    server_port: Option<i32>,
}

impl Seen {
    /// Whether the server sees a socket of this process. A translation of addresses hides it as a pooler does.
    fn is_ours(&self) -> bool {
        let Some(client) = &self.client else { return is_connected_to_parent_of(self.pid) };
        let port = |port: Option<i32>| port.and_then(|port| u16::try_from(port).ok());
        match (client.parse(), port(self.client_port), port(self.server_port)) {
            (Ok(client), Some(client_port), Some(server_port)) => {
                is_own_connection(SeenByServer { client, client_port, server_port })
            }
            _ => false,
        }
    }
}

/// What a connection sets in each transaction where it may set nothing in its session.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct LocalSettings {
    /// Whether statements read rows by their keys.
    pub(in super::super) prefers_lookups: bool,
    /// Whether nothing is written, and for how many milliseconds a statement may wait.
    pub(in super::super) look_millis: Option<u128>,
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

/// Runs `work`; where sessions are shared, in a transaction that has these settings.
pub(in super::super) fn with_local_settings<T>(
    conn: &mut AnyConnection,
    known: &Known,
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
