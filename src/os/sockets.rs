//! Connections that a client library keeps to itself: that the other end is gone, and could not say so, is noticed.
//!
//! The kernel asks a silent peer after two hours unless it is told otherwise, and a program that waits for an answer waits
//! that long.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::net::getpeername;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
};

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle, tcp_user_timeout};

    use super::*;

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
