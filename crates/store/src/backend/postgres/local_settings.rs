//! PostgreSQL behind a pooler, such as PgBouncer in transaction mode. Two transactions of one connection may run in different
//! sessions of the server, which other programs use too. Therefore nothing is prepared by name, nothing is set in a session, and
//! LISTEN is not used.

use diesel::connection::{CacheSize, SimpleConnection as _};
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text};

use crate::address::pooler::KnownPooler;
use crate::address::url::DatabaseUrl;
use crate::backend::postgres::sqlstate;
use crate::backend::{unreachable, write_transaction};
use crate::base::connection::AnyConnection;
use crate::error::StoreResult;
use taskqueue_host::net::direct::{SeenByServer, is_connected_to_parent_of, is_own_connection};

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

/// Returns true if this new connection shares sessions. Nothing is prepared by name before [`keep_statements`].
pub(crate) fn shares_sessions(url: &DatabaseUrl, conn: &mut PgConnection) -> StoreResult<bool> {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    let known = url.pooler();
    if known.is_to_be_found() {
        let seen: SeenConnection =
            diesel::sql_query(SEEN).get_result(conn).map_err(|error| unreachable(url, &error.to_string()))?;
        if !seen.is_ours() {
            known.note(sqlstate::is_pooled(url).map_err(|message| unreachable(url, &message))?);
        }
    }
    Ok(known.pooler().shares_sessions())
}

/// Makes the connection prepare each statement once, unless its session is shared: the next transaction may have another session.
pub(crate) fn keep_statements(conn: &mut AnyConnection, known: &KnownPooler) {
    // Differs by necessity: MySQL prepares each statement anyway, and SQLite has no round trips to save.
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
struct SeenConnection {
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Nullable<Text>)]
    client: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    client_port: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    server_port: Option<i32>,
}

impl SeenConnection {
    /// Returns true if the server sees a socket of this process. Address translation hides it as a pooler does.
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
