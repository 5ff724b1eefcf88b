//! Whether a pooler is between this program and PostgreSQL.

use diesel::connection::CacheSize;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text};

use crate::address::url::DatabaseUrl;
use crate::backend::postgres::sqlstate;
use crate::backend::unreachable;
use crate::error::StoreResult;
use taskqueue_host::net::direct::{SeenByServer, is_connected_to_parent_of, is_own_connection};

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
