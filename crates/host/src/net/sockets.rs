//! Connections of client libraries: makes the kernel detect peers that disappeared without closing them.
//!
//! By default, the kernel probes a silent peer after two hours, and a program that waits for an answer waits that long.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
};
use rustix::net::{SocketAddrUnix, getpeername, getsockname};

/// A peer that has been silent for this long is probed.
const IDLE: Duration = Duration::from_secs(30);
/// The pause between two probes.
const INTERVAL: Duration = Duration::from_secs(10);
/// This many unanswered probes end the connection.
const COUNT: u32 = 3;
/// Unacknowledged data for this long also ends it.
const UNACKNOWLEDGED_MILLIS: u32 = 60_000;

/// Makes every TCP connection of this process to this port end within about a minute if its peer disappears. Best effort: without
/// /proc, the kernel's two hours remain.
pub fn notice_dead_peers(port: u16) {
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) {
            // Descriptors that are not such connections are ignored.
            let _ = notice_dead_peer(number, port);
        }
    }
}

fn notice_dead_peer(number: RawFd, port: u16) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the client library gives its descriptor to nobody")]
    // SAFETY: the borrow ends with this function, which changes only socket options. If another thread closes the descriptor
    // meanwhile, the calls fail.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let peer = getpeername(socket)?.and_then(|peer| SocketAddr::try_from(peer).ok());
    if peer.is_some_and(|peer| peer.port() == port) {
        set_socket_keepalive(socket, true)?;
        set_tcp_keepidle(socket, IDLE)?;
        set_tcp_keepintvl(socket, INTERVAL)?;
        set_tcp_keepcnt(socket, COUNT)?;
        set_tcp_user_timeout(socket, UNACKNOWLEDGED_MILLIS)?;
    }
    Ok(())
}

/// The socket of a client library's connection, only to be polled. The holder must keep the connection open: a closed descriptor
/// number may be reused.
#[derive(Clone, Debug)]
pub struct LibrarySocket {
    number: RawFd,
}

impl LibrarySocket {
    /// Returns the descriptor, only to be polled.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        #[expect(unsafe_code, reason = "the client library gives its descriptor to nobody")]
        // SAFETY: it is only polled, while the connection is kept. If it is closed all the same, poll reports that.
        unsafe {
            BorrowedFd::borrow_raw(self.number)
        }
    }

    /// Returns a duplicate descriptor of the socket. It refers to no other socket, even after the client library has closed its
    /// own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(fcntl_dupfd_cloexec(self.as_fd(), 0)?)
    }

    /// Returns the local port; `None` if it is not a TCP connection.
    #[must_use]
    pub fn own_port(&self) -> Option<u16> {
        let own = getsockname(self.as_fd()).ok()?;
        SocketAddr::try_from(own).ok().map(|own| own.port())
    }
}

/// The kind of peer of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host.
    Internet,
    /// A listener at this path in the file system; empty for a socket without a name.
    File(String),
}

/// Returns the inodes of the connected sockets of this process. The kernel never reuses the inode of an open socket.
#[must_use]
pub fn connected_sockets() -> BTreeSet<u64> {
    list().into_iter().map(|(inode, ..)| inode).collect()
}

/// Returns the connected sockets that are not known yet and whose peer is wanted. There may be several if another thread connects
/// at the same time.
#[must_use]
pub fn new_ones(known: &BTreeSet<u64>, is_wanted: impl Fn(&Peer) -> bool) -> Vec<LibrarySocket> {
    let new = list().into_iter().filter(|(inode, _, peer)| !known.contains(inode) && is_wanted(peer));
    new.map(|(_, number, _)| LibrarySocket { number }).collect()
}

/// Returns the connected sockets of this process, to query their ends.
#[must_use]
pub fn connected() -> Vec<LibrarySocket> {
    list().into_iter().map(|(_, number, _)| LibrarySocket { number }).collect()
}

/// Returns the inode, descriptor and peer of each.
fn list() -> Vec<(u64, RawFd, Peer)> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut sockets: Vec<_> = entries
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((inode, number, peer_of(number)?))
        })
        .collect();
    // A duplicate has the same inode and a higher number.
    sockets.sort_by_key(|&(inode, number, _)| (inode, number));
    sockets.dedup_by_key(|&mut (inode, ..)| inode);
    sockets
}

fn peer_of(number: RawFd) -> Option<Peer> {
    let socket = LibrarySocket { number };
    let peer = getpeername(socket.as_fd()).ok()??;
    if SocketAddr::try_from(peer.clone()).is_ok() {
        return Some(Peer::Internet);
    }
    let path = SocketAddrUnix::try_from(peer).ok()?;
    let path = path.path().map(|path| path.to_string_lossy().into_owned());
    Some(Peer::File(path.unwrap_or_default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle, tcp_user_timeout};

    use super::*;
    use crate::testing::run_again_inside;

    #[test]
    fn new_connections_are_found_and_differ_by_their_own_ports() {
        let name = "net::sockets::tests::new_connections_are_found_and_differ_by_their_own_ports";
        if !run_again_inside(&["env"], name) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _old = connect();
        let known = connected_sockets();
        let found = || {
            let new = new_ones(&known, |peer| *peer == Peer::Internet);
            new.into_iter().map(|socket| (socket.number, socket.own_port())).collect::<Vec<_>>()
        };
        let told = |stream: &TcpStream| (stream.as_raw_fd(), Some(stream.local_addr().unwrap().port()));
        let (unix, _other_end) = UnixStream::pair().unwrap();
        assert!(found().is_empty());
        assert_eq!(LibrarySocket { number: unix.as_raw_fd() }.own_port(), None);
        let new = connect();
        assert_eq!(found(), [told(&new)]);
        let _duplicate = new.try_clone().unwrap();
        assert_eq!(found(), [told(&new)]);
        let other = connect();
        assert!(found().len() == 2 && found().contains(&told(&new)) && found().contains(&told(&other)));
    }

    #[test]
    fn connections_to_this_port_are_watched_and_no_others() {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let [ours, other] =
            listeners.each_ref().map(|listener| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        notice_dead_peers(ours.peer_addr().unwrap().port());
        assert!(socket_keepalive(&ours).unwrap() && !socket_keepalive(&other).unwrap());
        assert_eq!((tcp_keepidle(&ours).unwrap(), tcp_user_timeout(&ours).unwrap()), (IDLE, UNACKNOWLEDGED_MILLIS));
    }
}
