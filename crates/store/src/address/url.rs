//! The address of a database. Displays itself without its password.

mod options;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use crate::address::hosts::{Hosts, first_remote};
use crate::address::pooler::{KnownPooler, Pooler};
use crate::error::StoreError;
use taskqueue_host::net::patience::Patience;

/// How long to try one host, unless the address sets another limit.
const CONNECT_TIMEOUT_SECS: u64 = 10;
/// The same if there are several hosts.
const CONNECT_TIMEOUT_OF_SEVERAL_SECS: u64 = 3;
/// Options for libpq, unless the address sets them: they detect within a minute a server that disappeared without closing its
/// connections.
const POSTGRES_OPTIONS: [(&str, &str); 4] = [
    ("keepalives_idle", "30"),
    ("keepalives_interval", "10"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "60000"),
];

/// The most common problem of an address that cannot be parsed.
const UNREADABLE: &str = "cannot be read; a password with special characters must be percent-encoded";

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// SQLite
    Sqlite,
    /// PostgreSQL
    Postgres,
    /// MySQL or MariaDB
    Mysql,
}

impl Engine {
    /// Returns its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        }
    }
}

/// The address of a database: `sqlite:///path`, a bare path, `postgres://…` or `mysql://…`; a server's address has one or more
/// hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    engine: Engine,
    /// The address for the client library; for SQLite, the path.
    address: String,
    shown: String,
    /// For SQLite, the same for each way to write the path of a file, from any directory.
    identity: Option<String>,
    secrets: Vec<String>,
    hosts: Vec<Host>,
    options: Vec<(String, String)>,
    /// How long to wait for answers of the database; shared by all clones.
    patience: Patience,
    pooler: KnownPooler,
}

/// One of the hosts of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its name and port.
    pub(crate) name: String,
    /// The address with only this host, password included: never to be printed.
    pub(crate) address: String,
}

impl DatabaseUrl {
    /// Parses an address. An unknown scheme is rejected: it must not create a SQLite file named after a typing error.
    ///
    /// # Errors
    /// [`StoreError::BadAddress`] with the accepted forms. The message never repeats the address.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let bad = |message: &str| {
            Err(StoreError::BadAddress(format!(
                "{message}; write sqlite:///path/to/file, a path, postgres://user@host/database or mysql://user@host/database"
            )))
        };
        if text.is_empty() {
            return bad("the database address is empty");
        }
        if text.contains('\0') {
            return bad("the database address contains a NUL");
        }
        if text == ":memory:" {
            return bad("a store in memory would be lost when the command ends");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            const SCHEMES: [&str; 7] = ["sqlite:", "file:", "postgres:", "postgresql:", "pgsql:", "mysql:", "mariadb:"];
            if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
                return bad("the database address has a scheme without //");
            }
            if text.contains('=') && !text.starts_with(['/', '.']) {
                return bad("the database address is a list of options; if it is a file name, put ./ before it");
            }
            if may_hold_password(text) {
                return bad(
                    "the database address has a user and a password, but no scheme; if it is a file name, put ./ before it",
                );
            }
            return Ok(Self::sqlite(Path::new(text)));
        };
        if scheme == "sqlite" && may_hold_password(rest) {
            return bad(
                "the database address has the scheme sqlite, but a user and a password; if it is a file name, put ./ before it",
            );
        }
        if scheme != "sqlite" && rest.contains('#') {
            return bad("the database address contains a #, which must be written %23");
        }
        if scheme.starts_with("postgres") && has_two_ends_of_user(rest) {
            return bad("the database address contains a second @; in a password it must be written %40");
        }
        match scheme {
            "sqlite" if rest.is_empty() => bad("the database address names no file"),
            "sqlite" => Ok(Self::sqlite(Path::new(rest))),
            "postgres" | "postgresql" => Self::server(Engine::Postgres, text),
            "mysql" | "mariadb" => Self::server(Engine::Mysql, &format!("mysql://{rest}")),
            // Not repeated: it may be a password.
            _ => bad("the database address has an unknown scheme"),
        }
    }

    /// Returns the address of the SQLite store in this file.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        let address = path.to_string_lossy().into_owned();
        let shown = format!("sqlite://{address}");
        Self {
            engine: Engine::Sqlite,
            identity: Some(format!("sqlite://{}", resolved(path).display())),
            address,
            shown,
            secrets: Vec::new(),
            hosts: Vec::new(),
            options: Vec::new(),
            patience: Patience::default(),
            pooler: KnownPooler::declared(None),
        }
    }

    fn server(engine: Engine, text: &str) -> Result<Self, StoreError> {
        let bad = |what: &str| StoreError::BadAddress(format!("the {} address {what}", engine.name()));
        let parts = Hosts::of(text);
        // If it were cut inside a password, the rest would be printed as the name of a host or a database.
        if parts.after().contains('@') {
            return Err(bad(UNREADABLE));
        }
        let hosts = each_host(&parts).map_err(|what| bad(&what))?;
        let first = hosts.first().map(|host| host.address.as_str()).unwrap_or_default();
        let mut url = Url::parse(first).map_err(|_| bad("cannot be read"))?;
        if engine == Engine::Mysql && url.path().trim_matches('/').is_empty() {
            return Err(bad("names no database: mysql://user@host/DATABASE"));
        }
        let options: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        options::check(engine, &options).map_err(|what| bad(&what))?;
        let mut secrets = options::secrets(parts.after());
        if let Some(password) = url.password().map(str::to_owned) {
            // Both as it was written and as decoded.
            secrets.extend(parts.password().map(str::to_owned));
            secrets.push(password);
            // Cannot fail for an address that already has a password.
            let _ = url.set_password(Some("***"));
        }
        if options.iter().any(|(name, _)| options::is_secret(name)) {
            mask_query_secrets(&mut url);
        }
        let shown = Hosts::of(url.as_str()).with(&parts.names().join(","));
        secrets.retain(|secret| !secret.is_empty());
        let patience = Patience::default();
        let pooler =
            KnownPooler::declared(options.iter().find(|(name, _)| name == "pooler").map(|(_, value)| value.as_str()));
        let address = without_pooler(text);
        let mut parsed = Self { engine, address, shown, identity: None, secrets, hosts, options, patience, pooler };
        if engine == Engine::Postgres {
            parsed.add_postgres_options();
        }
        Ok(parsed)
    }

    /// Adds default options for libpq: a server that does not answer must not block commands without limit, with one more each
    /// minute of cron.
    fn add_postgres_options(&mut self) {
        let timeout = self.connect_timeout().as_secs().to_string();
        let attrs = if self.takes_standby() { "any" } else { "read-write" };
        let chosen = [("connect_timeout", timeout.as_str()), ("target_session_attrs", attrs)];
        for (name, value) in chosen.into_iter().chain(POSTGRES_OPTIONS) {
            if self.option(name).is_none() {
                let between = if self.address.contains('?') { '&' } else { '?' };
                self.address.push_str(&format!("{between}{name}={value}"));
            }
        }
    }

    /// Returns what is known about a pooler, from the address or from an earlier connection.
    #[must_use]
    pub fn pooler_mode(&self) -> Pooler {
        self.pooler.pooler()
    }

    /// Returns the shared state of this knowledge, which connections update.
    pub(crate) const fn pooler(&self) -> &KnownPooler {
        &self.pooler
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns how long to try one host.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let usual = if self.hosts.len() > 1 { CONNECT_TIMEOUT_OF_SEVERAL_SECS } else { CONNECT_TIMEOUT_SECS };
        let asked = self.option("connect_timeout").and_then(|secs| secs.parse().ok()).filter(|secs| *secs > 0);
        Duration::from_secs(asked.unwrap_or(usual))
    }

    /// Returns true if a read-only server is acceptable, as for `status`: the address requests it with libpq's option, or there
    /// is only one host.
    pub(crate) fn takes_standby(&self) -> bool {
        match self.option("target_session_attrs") {
            Some(attrs) => attrs != "read-write" && attrs != "primary",
            None => self.hosts.len() == 1 && !self.libpq_hosts().is_some_and(|hosts| hosts.contains(',')),
        }
    }

    /// Returns the hosts that libpq reads from options instead of the usual position.
    fn libpq_hosts(&self) -> Option<&str> {
        self.option("hostaddr").or_else(|| self.option("host"))
    }

    /// Returns the hosts of a server, in the order in which they are tried.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns a host on another machine that the client of MySQL may use without TLS. It reads its hosts from the address only.
    pub(crate) fn mysql_host_without_tls(&self) -> Option<&str> {
        const STRICT_MODES: [&str; 3] = ["required", "verify_ca", "verify_identity"];
        let is_strict =
            self.option("ssl_mode").is_some_and(|mode| STRICT_MODES.contains(&mode.to_lowercase().as_str()));
        if is_strict || self.option("unix_socket").is_some() {
            return None;
        }
        first_remote(self.hosts.iter().map(|host| without_port(&host.name)))
    }

    /// Returns how long to wait for answers, on every connection made with this address or a clone.
    #[must_use]
    pub const fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Returns the same address with a separate limit for answers, not shared with other clones.
    #[must_use]
    pub fn with_own_patience(&self) -> Self {
        self.with_patience(Patience::default())
    }

    pub(crate) fn with_patience(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }

    /// Returns the engine.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the file of a SQLite store.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        (self.engine == Engine::Sqlite).then(|| PathBuf::from(&self.address))
    }

    /// Returns the text by which records on this host name the store; without the password.
    #[must_use]
    pub fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(&self.shown)
    }

    /// Returns true if it contains a password or a key that is as good as one. Other users can read it on a command line.
    #[must_use]
    pub const fn has_password(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Returns the address for the client library, password included: never to be printed.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns `message` with the address and the password masked: client libraries often repeat their input.
    pub fn without_secrets(&self, message: &str) -> String {
        let mut clean = message.replace(&self.address, &self.shown);
        for secret in &self.secrets {
            clean = clean.replace(secret.as_str(), "***");
        }
        clean
    }
}

/// Returns an absolute path without links, as far as the path exists: the file and its directory may be created later.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|part| {
        let whole = part.canonicalize().ok()?.join(absolute.strip_prefix(part).ok()?);
        // Without the slash that an empty rest adds.
        Some(whole.components().collect())
    });
    existing.unwrap_or(absolute)
}

/// Returns each host with its own address, or what is wrong with them.
fn each_host(parts: &Hosts<'_>) -> Result<Vec<Host>, String> {
    let is_one_of_several = parts.names().len() > 1;
    let mut hosts = Vec::new();
    for (number, name) in (1..).zip(parts.names()) {
        let address = parts.with(name);
        if Url::parse(&address).is_err() || (is_one_of_several && name.is_empty()) {
            let list = format!("; write several hosts as host:port,host:port (check number {number})");
            return Err(format!("{UNREADABLE}{}", if is_one_of_several { list.as_str() } else { "" }));
        }
        hosts.push(Host { name: (*name).to_owned(), address });
    }
    Ok(hosts)
}

/// Returns the address for the client library, without the parameter `pooler`.
fn without_pooler(address: &str) -> String {
    let Some((before, query)) = address.split_once('?') else { return address.to_owned() };
    let others: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("pooler=")).collect();
    if others.is_empty() { before.to_owned() } else { format!("{before}?{}", others.join("&")) }
}

fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    host[end..].rfind(':').map_or(host, |at| &host[..end + at])
}

/// Returns true if a path looks like the address of a server, such as `user:password@host/database`. It is then never printed.
fn may_hold_password(path: &str) -> bool {
    let is_written_as_path = path.starts_with(['/', '.']) && !path.starts_with("//");
    !is_written_as_path && path.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

/// libpq treats the first `@` as the end of the password, and prints the rest as the name of the host. It does not interpret `#`,
/// so text after a `#` can be part of a password too.
fn has_two_ends_of_user(rest: &str) -> bool {
    rest.split(['/', '?']).next().unwrap_or(rest).matches('@').count() > 1
}

fn mask_query_secrets(url: &mut Url) {
    let pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| {
            let value = if options::is_secret(&name) { "***".to_owned() } else { value.into_owned() };
            (name.into_owned(), value)
        })
        .collect();
    url.query_pairs_mut().clear().extend_pairs(pairs);
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({})", self.shown)
    }
}

#[cfg(test)]
mod tests;
