//! Where the database is. Shows itself without its password, whatever it is asked.

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use super::super::error::StoreError;

/// How long libpq tries to connect to one address, unless the address says otherwise.
const CONNECT_TIMEOUT_SECS: u32 = 10;

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

/// The address of a database: `sqlite:///path`, a bare path, `postgres://…` or `mysql://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    engine: Engine,
    /// What the client library gets: for SQLite the path.
    address: String,
    shown: String,
    password: Option<String>,
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
            if text.starts_with("sqlite:") || text.starts_with("file:") {
                return bad("the database address has a scheme without //");
            }
            return Ok(Self::sqlite(Path::new(text)));
        };
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
            other => bad(&format!("\"{}\" is no scheme of a database", other.chars().take(20).collect::<String>())),
        }
    }

    /// The SQLite store in this file.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        let address = path.to_string_lossy().into_owned();
        Self { engine: Engine::Sqlite, shown: format!("sqlite://{address}"), address, password: None }
    }

    fn server(engine: Engine, text: &str) -> Result<Self, StoreError> {
        let Ok(mut url) = Url::parse(text) else {
            return Err(StoreError::BadAddress(format!(
                "the {} address cannot be read; a password with special characters must be percent-encoded",
                engine.name()
            )));
        };
        if engine == Engine::Mysql && url.path().trim_matches('/').is_empty() {
            return Err(StoreError::BadAddress(
                "the MySQL address names no database: mysql://user@host/DATABASE".to_owned(),
            ));
        }
        let password = url.password().map(str::to_owned);
        if password.is_some() {
            // Cannot fail for an address that has a password already.
            let _ = url.set_password(Some("***"));
        }
        let has_query = url.query().is_some();
        if has_query {
            mask_query_secrets(&mut url);
        }
        let address = if engine == Engine::Postgres { with_connect_timeout(text, has_query) } else { text.to_owned() };
        Ok(Self { engine, address, shown: url.to_string(), password })
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
        self.password.is_some()
    }

    /// What the client library gets, password included: never to be shown.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// `message` with the address and the password masked: client libraries like to repeat what they were given.
    pub(crate) fn without_secrets(&self, message: &str) -> String {
        let mut clean = message.replace(&self.address, &self.shown);
        if let Some(password) = self.password.as_deref().filter(|password| !password.is_empty()) {
            clean = clean.replace(password, "***");
        }
        clean
    }
}

/// A server that does not answer must not hold a command for ever, and one more of them with each minute of cron.
fn with_connect_timeout(address: &str, has_query: bool) -> String {
    if address.contains("connect_timeout=") {
        return address.to_owned();
    }
    let between = if has_query { '&' } else { '?' };
    format!("{address}{between}connect_timeout={CONNECT_TIMEOUT_SECS}")
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
            let is_secret = name.contains("password") || name.contains("passphrase");
            (name.into_owned(), if is_secret { "***".to_owned() } else { value.into_owned() })
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
mod tests {
    use super::*;

    #[test]
    fn a_bare_path_and_every_scheme_are_understood() {
        for (text, engine) in [
            ("tasks.db", Engine::Sqlite),
            ("/var/lib/tasks.db", Engine::Sqlite),
            ("sqlite:///var/lib/tasks.db", Engine::Sqlite),
            ("postgres://u@h/d", Engine::Postgres),
            ("postgresql://u@h/d", Engine::Postgres),
            ("mysql://u@h/d", Engine::Mysql),
            ("mariadb://u@h/d", Engine::Mysql),
        ] {
            assert_eq!(DatabaseUrl::parse(text).unwrap().engine(), engine, "{text}");
        }
        let url = DatabaseUrl::parse("sqlite:///var/lib/tasks.db").unwrap();
        assert_eq!(url.path(), Some(PathBuf::from("/var/lib/tasks.db")));
    }

    #[test]
    fn a_typo_does_not_become_a_file() {
        for text in
            ["postgress://u@h/d", "", "sqlite:x", "http://x", "sqlite://", ":memory:", "mysql://u@h", "mysql://u@h/"]
        {
            assert!(DatabaseUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_postgres_server_that_does_not_answer_is_given_up() {
        for (text, address) in [
            ("postgres://h/d", "postgres://h/d?connect_timeout=10"),
            ("postgres://h/d?sslmode=disable", "postgres://h/d?sslmode=disable&connect_timeout=10"),
            ("postgres://h/d?connect_timeout=3", "postgres://h/d?connect_timeout=3"),
        ] {
            let url = DatabaseUrl::parse(text).unwrap();
            assert_eq!((url.address(), url.to_string().as_str()), (address, text));
        }
    }

    #[test]
    fn a_password_that_the_client_would_read_elsewhere_is_refused_and_not_shown() {
        for text in [
            "postgres://h/d#x?password=s3cr3t",
            "postgres://h/d?a#password=s3cr3t",
            "mysql://h/d#x?password=s3cr3t",
            "postgres://u:p@s3cr3t@h/d",
            "postgresql://u:@s3cr3t@h",
        ] {
            let error = DatabaseUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
        }
        for text in ["/var/lib/#1@home@tasks.db", "postgres://u:p%40s%23@h/d", "mysql://u:p@s@h/d"] {
            assert!(DatabaseUrl::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "postgres://u:s3cr3t@h/d?sslpassword=s3cr3t",
            "mysql://u:s3cr3t@h/d",
            "postgres://u:s3cr3t@[bad/d",
            "posgres://u:s3cr3t@h/d",
            "mysql://u:s3cr3t@h",
        ] {
            let parsed = DatabaseUrl::parse(text);
            let shown = format!("{parsed:?} {}", parsed.as_ref().map_or_else(ToString::to_string, ToString::to_string));
            assert!(!shown.contains("s3cr3t"), "{shown}");
            if let Ok(url) = parsed {
                let message = url.without_secrets(&format!("could not connect to {text} with s3cr3t"));
                assert!(!message.contains("s3cr3t"), "{message}");
            }
        }
    }
}
