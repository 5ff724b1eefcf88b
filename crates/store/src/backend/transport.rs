//! Whether data can leave this machine unencrypted.

#[cfg(feature = "postgres")]
use super::postgres;
use crate::address::url::{DatabaseUrl, Engine};
use crate::base::connection::by_engine;

/// Returns a host on another machine to which tasks and password may be sent unencrypted, or to an impostor, because TLS is not
/// required: neither by the address nor by what else the client library reads. Connects to nothing.
#[must_use]
pub fn host_without_tls(url: &DatabaseUrl) -> Option<String> {
    by_engine!(match url.engine() {
        Engine::Postgres => postgres::parameters::host_without_tls(url),
        Engine::Mysql => url.mysql_host_without_tls().map(str::to_owned),
        // Differs: SQLite has no server.
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_host_without_tls_is_found() {
        for (text, host) in [
            ("sqlite:///db", None),
            ("postgres://db/d", Some("db")),
            ("postgres://localhost,db:5433/d?sslmode=prefer", Some("db")),
            ("postgres://localhost/d?hostaddr=192.0.2.1", Some("192.0.2.1")),
            ("postgres://db/d?sslmode=verify-full", None),
            ("postgres:///d?host=/run/postgresql", None),
            ("postgres:///d?host=/run,db", Some("db")),
            ("postgres://[::1]:5432/d", None),
            ("mysql://[fe80::1]:3306/d", Some("[fe80::1]")),
            ("mysql://127.0.0.1:3306/d", None),
            ("mysql://db/d?ssl_mode=VERIFY_IDENTITY", None),
            ("mysql://db/d?ssl_mode=preferred", Some("db")),
            ("mysql://db/d?unix_socket=/run/mysqld.sock", None),
        ] {
            assert_eq!(host_without_tls(&DatabaseUrl::parse(text).unwrap()).as_deref(), host, "{text}");
        }
    }
}
