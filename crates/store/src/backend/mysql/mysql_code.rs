//! Reads the error code of a MySQL or MariaDB server that greets with an error. Diesel passes on only the message, in the
//! language of the server. A server without free connections reports that before authentication.

use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use url::Url;

use crate::address::url::DatabaseUrl;
use crate::backend::mysql::DEFAULT_PORT;
use crate::error::ConnectFailure;

/// The first byte of an error message.
const ERROR: u8 = 0xff;
const CON_COUNT_ERROR: u16 = 1040;
const SERVER_SHUTDOWN: u16 = 1053;

/// Connects to each host once more, and returns the meaning of the first code.
pub(crate) fn ask(url: &DatabaseUrl) -> ConnectFailure {
    let limit = url.connect_timeout();
    let codes = url.hosts().iter().filter_map(|host| greeting_code(&host.address, limit).ok().flatten());
    codes.map(failure_of).find(|failure| *failure != ConnectFailure::Other).unwrap_or(ConnectFailure::Other)
}

const fn failure_of(code: u16) -> ConnectFailure {
    match code {
        CON_COUNT_ERROR => ConnectFailure::TooMany,
        SERVER_SHUTDOWN => ConnectFailure::NotReady,
        _ => ConnectFailure::Other,
    }
}

fn greeting_code(address: &str, limit: Duration) -> io::Result<Option<u16>> {
    let url = Url::parse(address).map_err(io::Error::other)?;
    if let Some((_, path)) = url.query_pairs().find(|(name, _)| name == "unix_socket") {
        let stream = UnixStream::connect(&*path)?;
        stream.set_read_timeout(Some(limit))?;
        return code_in(stream);
    }
    let host = url.host_str().unwrap_or("localhost").trim_matches(['[', ']']);
    let mut found = (host, url.port().unwrap_or(DEFAULT_PORT)).to_socket_addrs()?;
    let first = found.next().ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&first, limit)?;
    stream.set_read_timeout(Some(limit))?;
    code_in(stream)
}

/// Reads the length and number of the message, its first byte, and the code, low byte first.
fn code_in(mut stream: impl Read) -> io::Result<Option<u16>> {
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let [_, _, _, _, kind, low, high] = head;
    Ok((kind == ERROR).then(|| u16::from_le_bytes([low, high])))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_greeting_is_read_whatever_its_language() {
        let refused = b"\x18\0\0\0\xff\x10\x04Zu viele Verbindungen";
        assert_eq!(code_in(&refused[..]).unwrap().map(failure_of), Some(ConnectFailure::TooMany));
        let greeting = b"\x4a\0\0\0\x0a8.4.6\0";
        assert_eq!(code_in(&greeting[..]).unwrap(), None);
        assert!(code_in(&b"\x01"[..]).is_err());
    }
}
