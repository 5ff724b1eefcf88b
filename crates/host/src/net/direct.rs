//! Detects whether a connection of this process ends at the server or at something in between.

use std::net::{IpAddr, SocketAddr};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{getpeername, getsockname};

use super::sockets::{LibrarySocket, connected};
use crate::machine::proc_files::read_stat;

/// The two ends of a TCP connection, as seen by the server.
#[derive(Clone, Copy, Debug)]
pub struct SeenByServer {
    /// Address of the client.
    pub client: IpAddr,
    /// Port of the client.
    pub client_port: u16,
    /// Port of the server.
    pub server_port: u16,
}

/// Returns true if this process has a TCP socket with these ends. A pooler, a proxy or address translation changes one of them.
#[must_use]
pub fn is_own_connection(seen: SeenByServer) -> bool {
    connected().iter().any(|socket| {
        ends(socket).is_some_and(|(own, peer)| {
            own.ip().to_canonical() == seen.client.to_canonical()
                && own.port() == seen.client_port
                && peer.port() == seen.server_port
        })
    })
}

fn ends(socket: &LibrarySocket) -> Option<(SocketAddr, SocketAddr)> {
    let own = SocketAddr::try_from(getsockname(socket.as_fd()).ok()?).ok()?;
    let peer = SocketAddr::try_from(getpeername(socket.as_fd()).ok()??).ok()?;
    Some((own, peer))
}

/// Returns true if this process is connected through a Unix socket to the parent of process `pid`, which listens for its
/// children.
#[must_use]
pub fn is_connected_to_parent_of(pid: i32) -> bool {
    let Ok(stat) = read_stat(pid) else { return false };
    let listens = |socket: &LibrarySocket| socket_peercred(socket.as_fd()).map(|peer| peer.pid.as_raw_nonzero().get());
    stat.parent > 1 && connected().iter().any(|socket| listens(socket).is_ok_and(|pid| pid == stat.parent))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_known_by_both_its_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let seen = SeenByServer { client: own.ip(), client_port: own.port(), server_port: peer.port() };
        assert!(is_own_connection(seen));
        assert!(!is_own_connection(SeenByServer { server_port: 1, ..seen }));
        assert!(!is_own_connection(SeenByServer { client: IpAddr::from([192, 0, 2, 1]), ..seen }));
        drop(stream);
        assert!(!is_own_connection(seen));
    }
}
