//! The hosts in the address of a server: one, or several separated by commas, each with its own port. Generic URL parsers support
//! only one.

use std::net::IpAddr;

/// An address, split at its hosts.
pub(crate) struct Hosts<'a> {
    before: &'a str,
    hosts: Vec<&'a str>,
    after: &'a str,
}

impl<'a> Hosts<'a> {
    pub(crate) fn of(address: &'a str) -> Self {
        let start = address.find("://").map_or(0, |at| at + 3);
        let end = address[start..].find(['/', '?', '#']).map_or(address.len(), |at| start + at);
        // A password may contain an @, and even a comma.
        let first = address[start..end].rfind('@').map_or(start, |at| start + at + 1);
        Self { before: &address[..first], hosts: address[first..end].split(',').collect(), after: &address[end..] }
    }

    /// Returns the hosts, with their ports, in the order in which they are tried.
    pub(crate) fn names(&self) -> &[&'a str] {
        &self.hosts
    }

    /// Returns the password as it was written.
    pub(crate) fn password(&self) -> Option<&'a str> {
        let login = self.before.strip_suffix('@')?;
        login[login.find("://").map_or(0, |at| at + 3)..].split_once(':').map(|(_, password)| password)
    }

    /// Returns the part after the hosts.
    pub(crate) fn after(&self) -> &'a str {
        self.after
    }

    /// Returns the address with `hosts` in place of its hosts.
    pub(crate) fn with(&self, hosts: &str) -> String {
        format!("{}{hosts}{}", self.before, self.after)
    }
}

/// Returns the first of these hosts (without ports) that is on another machine.
pub(crate) fn first_remote<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    hosts.into_iter().find(|host| is_remote(host))
}

/// Returns true if data sent to this host (without its port) leaves the machine: it is neither a socket nor this machine.
fn is_remote(host: &str) -> bool {
    let name = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let is_socket = name.is_empty() || name.starts_with(['/', '@']) || name.starts_with("%2f");
    let is_itself = name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    !is_socket && !is_itself
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_between_the_password_and_the_database() {
        for (address, expected) in [
            ("mysql://u:p@h/d", &["h"][..]),
            ("mysql://u:p@h1:3306,h2:3307/d?a=b,c", &["h1:3306", "h2:3307"]),
            ("postgres://u:p,q@r@[::1]:5432,h2", &["[::1]:5432", "h2"]),
            ("postgres:///d", &[""]),
            ("postgres://h1,,h2?a", &["h1", "", "h2"]),
        ] {
            let hosts = Hosts::of(address);
            assert_eq!(hosts.names(), expected, "{address}");
            assert_eq!(hosts.with(&hosts.names().join(",")), address);
        }
    }

    #[test]
    fn this_machine_and_its_sockets_are_not_remote() {
        for host in [
            "",
            "localhost",
            "LOCALHOST",
            "db.localhost",
            "127.0.0.1",
            "127.3.2.1",
            "[::1]",
            "/run/postgresql",
            "%2Frun",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(!is_remote(host), "{host}");
        }
        for host in ["db", "10.0.0.1", "[fe80::1]", "localhost.example.org"] {
            assert!(is_remote(host), "{host}");
        }
    }
}
