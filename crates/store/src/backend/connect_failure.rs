//! Errors of connections, classified. Diesel passes on only the message of the client library, without a code, so messages are
//! compared. If a server writes another language, its code is queried.

use crate::address::url::{DatabaseUrl, Engine};
#[cfg(feature = "mysql")]
use crate::backend::mysql::mysql_code;
#[cfg(feature = "postgres")]
use crate::backend::postgres::sqlstate;
use crate::base::connection::by_engine;
use crate::error::{ConnectFailure, StoreError};

/// The server, or a pooler in front of it, has no connection left.
const TOO_MANY: [&str; 7] = [
    "too many clients already",
    "too many connections",
    "Too many connections",
    "remaining connection slots are reserved",
    "no more connections allowed",
    "query_wait_timeout",
    // In every language: errors 1203 and 1226.
    "max_user_connections",
];
/// The server is starting or stopping, or the node of its cluster is not ready.
const NOT_READY: [&str; 11] = [
    "the database system is ",
    "terminating connection due to administrator command",
    "terminating connection because of crash",
    "server login has been failing",
    "pgbouncer cannot connect to server",
    "server conn crashed",
    "max_connections_per_hour",
    "max_queries_per_hour",
    "WSREP has not yet prepared node",
    "Server shutdown in progress",
    "Connection was killed",
];
/// The connection was refused or broken. Client libraries write these messages only in English.
const REFUSED: [&str; 15] = [
    "Connection refused",
    "Connection reset by peer",
    "Broken pipe",
    "server closed the connection unexpectedly",
    "EOF detected",
    "unexpected eof",
    "could not receive data from server",
    "could not send",
    "Lost connection to",
    "gone away",
    "(111)",
    "(104)",
    "system error: 104",
    "socket '",
    "connection to server on socket",
];
/// Failures that belong to none of these groups.
const LASTING: [&str; 10] = [
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "timeout",
    "session is read-only",
    "could not translate host name",
    "Access denied",
    "Unknown database",
];

/// Classifies a message of a client library.
fn of(url: &DatabaseUrl, message: &str) -> ConnectFailure {
    if url.engine() == Engine::Sqlite {
        return ConnectFailure::Other;
    }
    by_text(message).unwrap_or_else(|| by_code(url))
}

fn by_text(message: &str) -> Option<ConnectFailure> {
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    if says(&TOO_MANY) {
        Some(ConnectFailure::TooMany)
    } else if says(&NOT_READY) {
        Some(ConnectFailure::NotReady)
    } else if says(&LASTING) {
        Some(ConnectFailure::Other)
    } else {
        says(&REFUSED).then_some(ConnectFailure::Refused)
    }
}

fn by_code(url: &DatabaseUrl) -> ConnectFailure {
    by_engine!(match url.engine() {
        Engine::Postgres => sqlstate::ask(url),
        Engine::Mysql => mysql_code::ask(url),
        _ => ConnectFailure::Other,
    })
}

/// Returns the error about an address of an engine for which this build has no client.
pub(super) fn no_client(engine: Engine) -> StoreError {
    let feature = match engine {
        Engine::Sqlite => "sqlite",
        Engine::Postgres => "postgres",
        Engine::Mysql => "mysql",
    };
    let name = engine.name();
    StoreError::BadAddress(format!(
        "this program has no client for {name}; build it with the feature {feature} of the crate taskqueue"
    ))
}

/// Returns a connection error without the address, which may contain a password.
pub(super) fn unreachable(url: &DatabaseUrl, message: &str) -> StoreError {
    let failure = of(url, message);
    let message = url.without_secrets(message);
    // libpq indents additional lines with a tab.
    let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let url = url.to_string();
    if message.contains("session is read-only") {
        return StoreError::ReadOnly { url, message };
    }
    StoreError::Unreachable { url, message, failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_passes_is_told_from_one_that_lasts() {
        let server = r#"connection to server at "127.0.0.1", port 5432 failed: "#;
        for (message, expected) in [
            ("FATAL:  sorry, too many clients already", Some(ConnectFailure::TooMany)),
            (r#"FATAL:  too many connections for role "tasks""#, Some(ConnectFailure::TooMany)),
            ("FATAL:  no more connections allowed (max_client_conn)", Some(ConnectFailure::TooMany)),
            ("FATAL:  the database system is starting up", Some(ConnectFailure::NotReady)),
            ("FATAL:  the database system is in recovery mode", Some(ConnectFailure::NotReady)),
            ("Connection refused\n\tIs the server running on that host?", Some(ConnectFailure::Refused)),
            ("server closed the connection unexpectedly", Some(ConnectFailure::Refused)),
            (r#"FATAL:  database "x" does not exist"#, Some(ConnectFailure::Other)),
            ("timeout expired", Some(ConnectFailure::Other)),
            ("FATAL:  Verbindungen sind alle belegt", None),
        ] {
            assert_eq!(by_text(&format!("{server}{message}")), expected, "{message}");
        }
        for (message, expected) in [
            ("Too many connections", Some(ConnectFailure::TooMany)),
            ("Benutzer 'a' hat mehr als 'max_user_connections' Verbindungen", Some(ConnectFailure::TooMany)),
            ("WSREP has not yet prepared node for application use", Some(ConnectFailure::NotReady)),
            ("Can't connect to MySQL server on '127.0.0.1:3306' (111)", Some(ConnectFailure::Refused)),
            ("Can't connect to local MySQL server through socket '/run/x' (2)", Some(ConnectFailure::Refused)),
            ("Can't connect to MySQL server on '127.0.0.1:3306' (110)", None),
            ("Access denied for user 'a'@'localhost' (using password: NO)", Some(ConnectFailure::Other)),
            ("Zu viele Verbindungen", None),
        ] {
            assert_eq!(by_text(message), expected, "{message}");
        }
    }
}
