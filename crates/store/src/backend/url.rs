//! Where the database is. Shows itself without its password, whatever it is asked.

mod options;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::hosts::{Hosts, is_remote};
use super::pooler::{Known, Pooler};
use crate::error::StoreError;
use taskqueue_host::net::patience::Patience;

/// How long one host is tried, unless the address says otherwise.
const CONNECT_TIMEOUT_SECS: u64 = 10;
/// The same where there are others to try.
const CONNECT_TIMEOUT_OF_SEVERAL_SECS: u64 = 3;
/// What libpq is told unless the address says otherwise: to notice within a minute that a server is gone which could not
/// say so.
const POSTGRES_OPTIONS: [(&str, &str); 4] = [
    ("keepalives_idle", "30"),
    ("keepalives_interval", "10"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "60000"),
];

/// What is mostly wrong with an address that cannot be read.
const UNREADABLE: &str = "cannot be read; a password with special characters must be percent-encoded";

/// Which engine.
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
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        }
    }
}

/// The address of a database: `sqlite:///path`, a bare path, `postgres://…` or `mysql://…`, a server's with one host or
/// several.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    engine: Engine,
    /// What the client library gets: for SQLite the path.
    address: String,
    shown: String,
    secrets: Vec<String>,
    hosts: Vec<Host>,
    options: Vec<(String, String)>,
    /// How long its answers are waited for; the same for all clones.
    patience: Patience,
    pooler: Known,
}

/// One of the hosts of a server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Its name and port.
    pub(super) name: String,
    /// The address with no other host in it, password included: never to be shown.
    pub(super) address: String,
}

impl DatabaseUrl {
    /// Reads an address. An unknown scheme is refused: it must not become a SQLite file that is named after a typo.
    ///
    /// # Errors
    /// [`StoreError::BadAddress`] with what would be understood. The message never repeats the address.
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
            return bad("a store in memory would be gone with this command");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            const SCHEMES: [&str; 7] = ["sqlite:", "file:", "postgres:", "postgresql:", "pgsql:", "mysql:", "mariadb:"];
            if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
                return bad("the database address has a scheme without //");
            }
            if text.contains('=') && !text.starts_with(['/', '.']) {
                return bad("the database address is a list of options; a file whose name has a = is written with ./");
            }
            if may_hold_password(text) {
                return bad(
                    "the database address has a user and a password, but no scheme; a file whose name has a : and a @ is written with ./",
                );
            }
            return Ok(Self::sqlite(Path::new(text)));
        };
        if scheme == "sqlite" && may_hold_password(rest) {
            return bad(
                "the database address is of SQLite and has a user and a password; a file whose name has a : and a @ is written with ./",
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

    /// The SQLite store in this file.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        let address = path.to_string_lossy().into_owned();
        let shown = format!("sqlite://{address}");
        Self {
            engine: Engine::Sqlite,
            address,
            shown,
            secrets: Vec::new(),
            hosts: Vec::new(),
            options: Vec::new(),
            patience: Patience::default(),
            pooler: Known::declared(None),
        }
    }

    fn server(engine: Engine, text: &str) -> Result<Self, StoreError> {
        let bad = |what: &str| StoreError::BadAddress(format!("the {} address {what}", engine.name()));
        let parts = Hosts::of(text);
        // Cut in the middle of a password, it would be shown as the name of a host or of a database.
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
        let mut secrets: Vec<String> =
            options.iter().filter(|(name, _)| is_secret(name)).map(|(_, it)| it.clone()).collect();
        if let Some(password) = url.password().map(str::to_owned) {
            // As it was written, and as it must be.
            secrets.extend(parts.password().map(str::to_owned));
            secrets.push(password);
            // Cannot fail for an address that has a password already.
            let _ = url.set_password(Some("***"));
        }
        if options.iter().any(|(name, _)| is_secret(name)) {
            mask_query_secrets(&mut url);
        }
        let shown = Hosts::of(url.as_str()).with(&parts.names().join(","));
        secrets.retain(|secret| !secret.is_empty());
        let patience = Patience::default();
        let pooler =
            Known::declared(options.iter().find(|(name, _)| name == "pooler").map(|(_, value)| value.as_str()));
        let address = without_pooler(text);
        let mut parsed = Self { engine, address, shown, secrets, hosts, options, patience, pooler };
        if engine == Engine::Postgres {
            parsed.add_postgres_options();
        }
        Ok(parsed)
    }

    /// A server that does not answer must not hold a command for ever, and one more of them with each minute of cron.
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

    /// What is known of a pooler there, by the address or by a connection that was made.
    #[must_use]
    pub fn pooler_mode(&self) -> Pooler {
        self.pooler.pooler()
    }

    /// The same, to be changed by what connects.
    pub(in super::super) const fn pooler(&self) -> &Known {
        &self.pooler
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// How long one host is tried.
    pub(super) fn connect_timeout(&self) -> Duration {
        let usual = if self.hosts.len() > 1 { CONNECT_TIMEOUT_OF_SEVERAL_SECS } else { CONNECT_TIMEOUT_SECS };
        let asked = self.option("connect_timeout").and_then(|secs| secs.parse().ok()).filter(|secs| *secs > 0);
        Duration::from_secs(asked.unwrap_or(usual))
    }

    /// Whether a server that cannot be written will do, as it does for `status`: the address says so, with libpq's word for
    /// it, or there is no other.
    pub(super) fn takes_standby(&self) -> bool {
        match self.option("target_session_attrs") {
            Some(attrs) => attrs != "read-write" && attrs != "primary",
            None => self.hosts.len() == 1 && !self.libpq_hosts().is_some_and(|hosts| hosts.contains(',')),
        }
    }

    /// Where libpq finds hosts that do not stand in their place.
    fn libpq_hosts(&self) -> Option<&str> {
        self.option("hostaddr").or_else(|| self.option("host"))
    }

    /// The hosts of a server, in the order in which they are tried.
    pub(super) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host on another machine to which tasks and password may go in the clear, or to somebody who only pretends to be
    /// it: the address does not demand TLS. `default_mode` is what libpq uses where the address names no mode.
    #[must_use]
    pub fn host_without_tls(&self, default_mode: Option<&str>) -> Option<&str> {
        let (mode, strict, elsewhere): (_, &[&str], _) = match self.engine {
            Engine::Sqlite => return None,
            Engine::Postgres => {
                let mode = self.option("sslmode").or(default_mode);
                (mode, &["require", "verify-ca", "verify-full"], self.libpq_hosts())
            }
            Engine::Mysql => (self.option("ssl_mode"), &["required", "verify_ca", "verify_identity"], None),
        };
        if mode.is_some_and(|mode| strict.contains(&mode.to_lowercase().as_str()))
            || self.option("unix_socket").is_some()
        {
            return None;
        }
        match elsewhere {
            Some(hosts) => hosts.split(',').find(|host| is_remote(host)),
            None => self.hosts.iter().map(|host| without_port(&host.name)).find(|host| is_remote(host)),
        }
    }

    /// How long the answers of this database are waited for, on every connection that was made with this address or a clone.
    #[must_use]
    pub const fn patience(&self) -> &Patience {
        &self.patience
    }

    /// The same address for a user who waits for answers independently of others.
    #[must_use]
    pub fn with_own_patience(&self) -> Self {
        self.with_patience(Patience::default())
    }

    pub(super) fn with_patience(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }

    /// Which engine it is.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        self.engine
    }

    /// The file of a SQLite store.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        (self.engine == Engine::Sqlite).then(|| PathBuf::from(&self.address))
    }

    /// Whether it holds a password, which then stood where others can read it if it came from a command line.
    #[must_use]
    pub const fn has_password(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// What the client library gets, password included: never to be shown.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// `message` with the address and the password masked: client libraries like to repeat what they were given.
    pub fn without_secrets(&self, message: &str) -> String {
        let mut clean = message.replace(&self.address, &self.shown);
        for secret in &self.secrets {
            clean = clean.replace(secret.as_str(), "***");
        }
        clean
    }
}

/// Each host with an address of its own, or what is wrong with them.
fn each_host(parts: &Hosts<'_>) -> Result<Vec<Host>, String> {
    let is_one_of_several = parts.names().len() > 1;
    let mut hosts = Vec::new();
    for (number, name) in (1..).zip(parts.names()) {
        let address = parts.with(name);
        if Url::parse(&address).is_err() || (is_one_of_several && name.is_empty()) {
            let list = format!(", and several hosts are written host:port,host:port (look at number {number})");
            return Err(format!("{UNREADABLE}{}", if is_one_of_several { list.as_str() } else { "" }));
        }
        hosts.push(Host { name: (*name).to_owned(), address });
    }
    Ok(hosts)
}

/// The address as the client library knows it, without our own parameter.
fn without_pooler(address: &str) -> String {
    let Some((before, query)) = address.split_once('?') else { return address.to_owned() };
    let others: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("pooler=")).collect();
    if others.is_empty() { before.to_owned() } else { format!("{before}?{}", others.join("&")) }
}

fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    host[end..].rfind(':').map_or(host, |at| &host[..end + at])
}

fn is_secret(option: &str) -> bool {
    option.contains("password") || option.contains("passphrase")
}

/// Whether a path looks like the address of a server, as `user:password@host/database` does. It is never printed then.
fn may_hold_password(path: &str) -> bool {
    let is_written_as_path = path.starts_with(['/', '.']) && !path.starts_with("//");
    !is_written_as_path && path.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

/// libpq takes the first `@` for the end of the password, and shows the rest of it as the name of the host. A `#` means
/// nothing to it, so that what stands after one can be a password too.
fn has_two_ends_of_user(rest: &str) -> bool {
    rest.split(['/', '?']).next().unwrap_or(rest).matches('@').count() > 1
}

fn mask_query_secrets(url: &mut Url) {
    let pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| {
            let value = if is_secret(&name) { "***".to_owned() } else { value.into_owned() };
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
