//! The way for events that need no descriptor: an abstract Unix datagram socket to which `taskqueue progress` and
//! `taskqueue result` send from anywhere inside a handler.
//!
//! The address is no secret; the run's token in the message is what counts. One socket belongs to one supervising
//! thread, since messages with another token are dropped.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

/// The longest event line that can be sent, in bytes.
pub const LONGEST_MESSAGE_BYTES: usize = 200 * 1024;
/// Room for the token and its newline besides the line.
const BUFFER_BYTES: usize = LONGEST_MESSAGE_BYTES + 1024;
/// A runner that does not read for this long will not read at all.
const SEND_WAIT: Duration = Duration::from_secs(5);

/// The receiving end, in the runner.
#[derive(Debug)]
pub struct EventSocket {
    socket: OwnedFd,
    name: String,
    buffer: RefCell<Vec<u8>>,
}

impl EventSocket {
    /// Opens a socket under a new random name.
    ///
    /// # Errors
    /// When the kernel refuses (no descriptors left).
    pub fn bind() -> io::Result<Self> {
        // Random, so that a handler that outlived its runner cannot send its token to another user's later socket.
        let mut random = [0_u8; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = format!("taskqueue-{:016x}", u64::from_ne_bytes(random));
        let socket = datagram_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        set_socket_recv_buffer_size(&socket, 2 * BUFFER_BYTES)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Self { socket, name, buffer: RefCell::new(Vec::new()) })
    }

    /// The name for the variable TASKQUEUE_EVENTS_SOCKET.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes one waiting message: its event line if it carries this token, `None` if it is somebody else's, cut or
    /// malformed.
    ///
    /// # Errors
    /// `WouldBlock` when no message waits.
    pub fn receive(&self, token: &str) -> io::Result<Option<Vec<u8>>> {
        // Runners whose handlers never send a message do not pay for the memory.
        recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK)?;
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER_BYTES, 0);
        let (_, whole_length) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
        let message = buffer.get(..whole_length);
        let line = message.and_then(|message| message.strip_prefix(token.as_bytes())?.strip_prefix(b"\n"));
        Ok(line.filter(|_| !token.is_empty()).map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()))
    }
}

impl AsFd for EventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends one event line to the runner that listens under this name.
///
/// # Errors
/// `InvalidInput` when the line is too long or holds a newline; `ConnectionRefused` when no runner listens any more;
/// `WouldBlock` when it did not read for 5 seconds.
pub fn send_event(socket_name: &str, token: &str, line: &[u8]) -> io::Result<()> {
    if line.len() > LONGEST_MESSAGE_BYTES || token.len() > 512 {
        let message = format!("an event may have at most {LONGEST_MESSAGE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    if line.contains(&b'\n') || token.contains('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an event is one line"));
    }
    let socket = datagram_socket(SocketFlags::CLOEXEC)?;
    set_socket_send_buffer_size(&socket, 2 * BUFFER_BYTES)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SEND_WAIT))?;
    let message = [token.as_bytes(), b"\n", line].concat();
    let address = SocketAddrUnix::new_abstract_name(socket_name.as_bytes())?;
    sendto(&socket, &message, SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

fn datagram_socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_the_right_token_arrives_whole() {
        let socket = EventSocket::bind().unwrap();
        let longest = vec![b'x'; LONGEST_MESSAGE_BYTES];
        send_event(socket.name(), "secret", &longest).unwrap();
        send_event(socket.name(), "secret", b"{\"progress\":1}").unwrap();
        assert_eq!(socket.receive("secret").unwrap().unwrap(), longest);
        assert_eq!(socket.receive("secret").unwrap().unwrap(), b"{\"progress\":1}");
        assert_eq!(socket.receive("secret").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn lines_with_another_token_are_dropped() {
        let socket = EventSocket::bind().unwrap();
        for token in ["", "secre", "secrets", "other"] {
            send_event(socket.name(), token, b"{}").unwrap();
            assert_eq!(socket.receive("secret").unwrap(), None);
        }
        send_event(socket.name(), "", b"{}").unwrap();
        assert_eq!(socket.receive("").unwrap(), None, "an empty token is nobody's");
    }

    #[test]
    fn a_socket_that_is_gone_refuses_and_bad_lines_are_not_sent() {
        let socket = EventSocket::bind().unwrap();
        let name = socket.name().to_owned();
        assert_eq!(send_event(&name, "t", b"a\nb").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let too_long = vec![b'x'; LONGEST_MESSAGE_BYTES + 1];
        assert_eq!(send_event(&name, "t", &too_long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(socket);
        assert_eq!(send_event(&name, "t", b"{}").unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
