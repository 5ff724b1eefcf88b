//! Listen addresses: an IP address with a port, or a Unix socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path of a Unix socket that the kernel accepts, in bytes.
const LONGEST_PATH_BYTES: usize = 107;

/// A listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `127.0.0.1:9790`, `[::1]:9790`
    Internet(SocketAddr),
    /// `unix:/run/taskqueue/metrics.sock`
    File(PathBuf),
}

impl ListenAddress {
    /// Returns true if clients on other hosts may reach it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Internet(address) => !address.ip().is_loopback(),
            Self::File(_) => false,
        }
    }

    /// Returns true if both cannot be bound at the same time: same port, and the same address or all addresses of this host.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        let (Self::Internet(one), Self::Internet(other)) = (self, other) else { return false };
        let (ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
        // The unspecified address of IPv6 includes all addresses of IPv4, but not the other way round.
        let covers = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
        one.port() == other.port() && (ip == other_ip || covers(ip, other_ip) || covers(other_ip, ip))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => write!(f, "{address}"),
            Self::File(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            let known = text.replacen("localhost:", "127.0.0.1:", 1);
            return known.parse().map(Self::Internet).map_err(|_| {
                format!("{text:?} is not an address to listen at; write 127.0.0.1:9790, [::1]:9790 or unix:/run/taskqueue.sock")
            });
        };
        if path.len() > LONGEST_PATH_BYTES {
            return Err(format!("the path of a socket can have at most {LONGEST_PATH_BYTES} bytes"));
        }
        let path_of_file = PathBuf::from(path);
        if !path_of_file.is_absolute()
            || path_of_file.file_name().is_none()
            || path.ends_with('/')
            || path.contains('\0')
        {
            return Err(format!("{text:?} needs the absolute path of a file after unix:"));
        }
        Ok(Self::File(path_of_file))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["127.0.0.1:9790", "[::1]:9790", "0.0.0.0:0", "unix:/run/taskqueue.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:1".parse::<ListenAddress>().unwrap().to_string(), "127.0.0.1:1");
        let long = format!("unix:/{}", "x".repeat(107));
        for bad in ["", "9790", ":9790", "127.0.0.1", "127.0.0.1:70000", "example.org:80", "unix:", "unix:here", &long]
        {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
        for bad in ["unix:/", "unix:/run/", "unix:/run/.."] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_of_this_host_alone_is_open() {
        let is_open = |text: &str| text.parse::<ListenAddress>().unwrap().is_open();
        assert_eq!(["127.0.0.2:1", "[::1]:1", "unix:/a"].map(is_open), [false; 3]);
        assert_eq!(["0.0.0.0:1", "[::]:1", "10.0.0.1:1"].map(is_open), [true; 3]);
    }
    #[test]
    fn listen_addresses_exclude_each_other_when_port_and_host_overlap() {
        let exclude = |one: &str, other: &str| {
            let (one, other): (ListenAddress, ListenAddress) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(one.excludes(&other), other.excludes(&one));
            one.excludes(&other)
        };
        for (one, other) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("127.0.0.1:1", "0.0.0.0:1"),
            ("[::1]:1", "[::]:1"),
            ("127.0.0.1:1", "[::]:1"),
            ("0.0.0.0:1", "[::]:1"),
            ("127.0.0.1:1", "[::ffff:127.0.0.1]:1"),
        ] {
            assert!(exclude(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("127.0.0.1:1", "127.0.0.2:1"),
            ("127.0.0.1:1", "[::1]:1"),
            ("0.0.0.0:1", "0.0.0.0:2"),
            ("0.0.0.0:1", "[::1]:1"),
            ("0.0.0.0:1", "unix:/a"),
            ("unix:/a", "unix:/a"),
        ] {
            assert!(!exclude(one, other), "{one} {other}");
        }
    }
}
