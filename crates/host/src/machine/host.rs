//! The names of this host and of the effective user, from the kernel and the user database; never from environment variables,
//! which the caller could set.

use std::fs::File;
use std::io::{BufRead, BufReader};

use rustix::process::geteuid;
use rustix::system::uname;

/// The effective user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name; the number as text if /etc/passwd has no name (a container, a directory service).
    pub name: String,
    /// The home directory in /etc/passwd.
    pub home: Option<String>,
}

/// Returns the name of this machine according to the kernel.
#[must_use]
pub fn host_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// Returns the login name of the effective user; its number as text if it has none.
#[must_use]
pub fn user_name() -> String {
    account().name
}

/// Returns the effective user.
#[must_use]
pub fn account() -> Account {
    let uid = geteuid().as_raw();
    let lines = File::open("/etc/passwd").ok().map(|file| BufReader::new(file).split(b'\n').map_while(Result::ok));
    lines
        .and_then(|mut lines| lines.find_map(|line| parse(&String::from_utf8_lossy(&line), uid)))
        .unwrap_or_else(|| Account { name: uid.to_string(), home: None })
}

/// Parses `name:password:uid:gid:gecos:home:shell`.
fn parse(line: &str, uid: u32) -> Option<Account> {
    let fields = line.split(':').collect::<Vec<_>>();
    let (name, number, home) = (*fields.first()?, *fields.get(2)?, *fields.get(5)?);
    (!name.is_empty() && number.parse() == Ok(uid))
        .then(|| Account { name: name.to_owned(), home: Some(home.to_owned()).filter(|home| home.starts_with('/')) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_user_database_is_read() {
        let line = "bot:x:1007:100:A bot,,,:/srv/bot:/bin/sh";
        assert_eq!(parse(line, 1007), Some(Account { name: "bot".to_owned(), home: Some("/srv/bot".to_owned()) }));
        assert_eq!(parse(line, 100), None);
        assert_eq!(parse("+::::::", 0), None);
        assert_eq!(parse("bot:x:7:7::relative:", 7).unwrap().home, None);
        assert_eq!(parse("short:x:7", 7), None);
    }

    #[test]
    fn the_names_agree_with_the_tools() {
        let says = |program: &str, args: &[&str]| {
            let output = std::process::Command::new(program).args(args).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        assert_eq!(host_name(), says("uname", &["-n"]));
        assert_eq!(user_name(), says("id", &["-un"]));
    }
}
