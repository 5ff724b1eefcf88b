//! Checks the options after the `?` of an address. Clients ignore unknown ones, or report that the server cannot be reached. A
//! typing error must not produce a connection without TLS.

use url::form_urlencoded;

use crate::address::url::Engine;

/// The options of libpq and of this program whose values may be printed.
const POSTGRES: [&str; 49] = [
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "max_protocol_version",
    "min_protocol_version",
    "oauth_client_id",
    "oauth_issuer",
    "oauth_scope",
    "options",
    "passfile",
    "pooler",
    "port",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "service",
    "servicefile",
    "ssl",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslkeylogfile",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];
/// The options of libpq that give access to the server, its key or its tokens.
const POSTGRES_SECRETS: [&str; 5] =
    ["oauth_client_secret", "password", "scram_client_key", "scram_server_key", "sslpassword"];
/// The options of Diesel's client and of this program, whose values may all be printed.
const MYSQL: [&str; 7] =
    ["connect_timeout", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode", "target_session_attrs", "unix_socket"];

const POSTGRES_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
const MYSQL_MODES: [&str; 5] = ["disabled", "preferred", "required", "verify_ca", "verify_identity"];
const POOLERS: [&str; 3] = ["none", "session", "transaction"];
const SESSION_ATTRS: [&str; 6] = ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"];

/// Checks the names, and the values that this program interprets or whose errors would go unnoticed.
///
/// # Errors
/// What is wrong, and what is accepted. A value is never repeated: it may be a password.
pub(crate) fn check(engine: Engine, options: &[(String, String)]) -> Result<(), String> {
    for (name, value) in options {
        check_name(engine, name)?;
        check_value(name, value)?;
    }
    Ok(())
}

fn check_name(engine: Engine, name: &str) -> Result<(), String> {
    let (printed, secret): (&[&str], &[&str]) = match engine {
        Engine::Postgres => (&POSTGRES, &POSTGRES_SECRETS),
        Engine::Mysql | Engine::Sqlite => (&MYSQL, &[]),
    };
    if printed.contains(&name) || secret.contains(&name) {
        return Ok(());
    }
    let mut known = [printed, secret].concat();
    known.sort_unstable();
    Err(format!("has an unknown parameter{}; it knows {}", shown(name), known.join(", ")))
}

/// Returns true for every option that is not known to be harmless, so that an option is hidden until it is listed.
pub(super) fn is_secret(name: &str) -> bool {
    !POSTGRES.contains(&name) && !MYSQL.contains(&name)
}

/// Returns the values of secret options in the part of an address after its hosts: as they were written, and as libpq decodes
/// them, which keeps a `+`.
pub(super) fn secrets(after_hosts: &str) -> Vec<String> {
    let mut found = Vec::new();
    for pair in after_hosts.split_once('?').map_or("", |(_, query)| query).split('&') {
        let kept = pair.replace('+', "%2B");
        let decoded = form_urlencoded::parse(kept.as_bytes()).next();
        let Some((_, value)) = decoded.filter(|(name, _)| is_secret(name)) else { continue };
        found.push(value.into_owned());
        found.extend(pair.split_once('=').map(|(_, written)| written.to_owned()));
    }
    found
}

/// Returns the name, unless it does not look like one: after a `?` in a password, this would be the rest of the password.
fn shown(name: &str) -> String {
    let is_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_name && !name.is_empty() { format!(" \"{name}\"") } else { String::new() }
}

fn check_value(name: &str, value: &str) -> Result<(), String> {
    let known: &[&str] = match name {
        "pooler" => &POOLERS,
        "sslmode" => &POSTGRES_MODES,
        "ssl_mode" => &MYSQL_MODES,
        "target_session_attrs" => &SESSION_ATTRS,
        "connect_timeout" if value.parse::<u32>().is_err() => {
            return Err("has a connect_timeout that is not a whole number of seconds".to_owned());
        }
        _ => return Ok(()),
    };
    // MySQL's `ssl_mode` is also accepted in capital letters, PostgreSQL's `sslmode` is not.
    let is_known = known.contains(&value) || (name == "ssl_mode" && known.contains(&value.to_lowercase().as_str()));
    if is_known { Ok(()) } else { Err(format!("has a {name} that is not one of {}", known.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_is_not_known_to_be_harmless_is_secret() {
        for name in POSTGRES_SECRETS.into_iter().chain(["", "next_password", "jwt", "oauth_token"]) {
            assert!(is_secret(name), "{name}");
        }
        for name in ["host", "sslmode", "ssl_mode", "passfile", "sslkey", "service", "options"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_secret_is_known_as_it_was_written_and_as_it_is_decoded() {
        assert_eq!(secrets("/d?host=h&scram_client_key=a%2Fb+c%3D"), ["a/b+c=", "a%2Fb+c%3D"]);
        assert_eq!(secrets("/d"), Vec::<String>::new());
    }
}
