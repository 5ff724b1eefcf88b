//! Connections that a client library keeps to itself: that the other end is gone, and could not say so, is noticed.
//!
//! The kernel asks a silent peer after two hours unless it is told otherwise, and a program that waits for an answer waits
//! that long.

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

/// A peer that is silent for so long is asked whether it is there.
const IDLE: Duration = Duration::from_secs(30);
/// Pause between two such questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// So many without an answer end the connection.
const COUNT: u32 = 3;
/// What was sent and is not acknowledged for so long ends it as well.
const UNACKNOWLEDGED_MILLIS: u32 = 60_000;

/// Sees to it that every TCP connection of this process to this port of whatever host ends within about a minute when its
/// peer is gone. Best effort: where /proc is missing, the kernel's own two hours remain.
pub fn notice_dead_peers(port: u16) {
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) {
            // Whatever is no such connection is none of ours.
            let _ = notice_dead_peer(number, port);
        }
    }
}

fn notice_dead_peer(number: RawFd, port: u16) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the client library gives its descriptor to nobody")]
    // SAFETY: the borrow ends with this function, which changes nothing but options of sockets. Who closes the descriptor
    // meanwhile makes the calls fail.
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

/// The socket of a connection that a client library made, to wait at and nothing else. Whoever has it keeps the connection:
/// a number that is closed may come back as something else.
#[derive(Clone, Debug)]
pub struct LibrarySocket {
    number: RawFd,
}

impl LibrarySocket {
    /// To be polled, and for nothing else.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        #[expect(unsafe_code, reason = "the client library gives its descriptor to nobody")]
        // SAFETY: it is polled only, for as long as the connection is kept. Should it be closed all the same, the poll says so.
        unsafe {
            BorrowedFd::borrow_raw(self.number)
        }
    }

    /// A descriptor of our own for the same socket: it names no other one, also once the client library has closed its own.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(fcntl_dupfd_cloexec(self.as_fd(), 0)?)
    }

    /// The port of this end; `None` where it is no TCP connection.
    #[must_use]
    pub fn own_port(&self) -> Option<u16> {
        let own = getsockname(self.as_fd()).ok()?;
        SocketAddr::try_from(own).ok().map(|own| own.port())
    }
}

/// What a socket is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host.
    Internet,
    /// Somebody who listens at this place in the file system; empty for one without a name.
    File(String),
}

/// The connected sockets of this process at this moment, by what the kernel never uses again for another one while this
/// one is open.
#[must_use]
pub fn connected_sockets() -> BTreeSet<u64> {
    list().into_iter().map(|(inode, ..)| inode).collect()
}

/// The connected sockets that are not among the known ones and whose peer is wanted. Several, if another thread has connected
/// at the same time.
#[must_use]
pub fn new_ones(known: &BTreeSet<u64>, is_wanted: impl Fn(&Peer) -> bool) -> Vec<LibrarySocket> {
    let new = list().into_iter().filter(|(inode, _, peer)| !known.contains(inode) && is_wanted(peer));
    new.map(|(_, number, _)| LibrarySocket { number }).collect()
}

/// The connected sockets of this process, to be asked for their ends.
#[must_use]
pub fn connected() -> Vec<LibrarySocket> {
    list().into_iter().map(|(_, number, _)| LibrarySocket { number }).collect()
}

/// Inode, number and peer of each.
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
    // A duplicate is no other socket, and has the larger number.
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
