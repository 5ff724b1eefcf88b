//! Receives events without a descriptor: an abstract Unix datagram socket to which `taskqueue report progress` and
//! `taskqueue report result` send from anywhere inside a handler. Also receives commands that the runner is to execute.
//!
//! The address is not secret; the run's token in the message authenticates it. Each supervising thread has its own socket,
//! because messages with another token are dropped.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, recv, recvmsg, sendmsg_addr, socket_with, socketpair,
};
use rustix::stdio::{stderr, stdin, stdout};

use super::command_requests::{CommandRequests, Request, reply};
use super::received::descriptors_of;
use taskqueue_domain::task::trace::Trace;

/// The longest event line that can be sent, in bytes.
pub const LONGEST_MESSAGE_BYTES: usize = 200 * 1024;
/// Space for the token and its newline in addition to the line.
const BUFFER_BYTES: usize = LONGEST_MESSAGE_BYTES + 1024;
/// How long a sender waits: a runner that does not read for this long will not read at all.
const SEND_WAIT: Duration = Duration::from_secs(5);
/// The descriptors of a command: standard input, output and error, and the socket for its exit status.
const DESCRIPTORS: usize = 4;
/// The longest answer, in bytes.
const ANSWER_BYTES: usize = 1024;

/// The receiving end, in the runner.
#[derive(Debug)]
pub struct EventSocket {
    socket: OwnedFd,
    name: String,
    buffer: RefCell<Vec<u8>>,
    requests: Option<Arc<CommandRequests>>,
}

impl EventSocket {
    /// Opens a socket with a new random name. `requests` executes the commands that handlers ask for; without it, they are
    /// refused.
    ///
    /// # Errors
    /// The kernel refuses (no descriptors left).
    pub fn bind(requests: Option<Arc<CommandRequests>>) -> io::Result<Self> {
        // Random, so that a handler that outlived its runner cannot send its token to a later socket of another user.
        let mut random = [0_u8; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = format!("taskqueue-{:016x}", u64::from_ne_bytes(random));
        let socket = datagram_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        set_socket_recv_buffer_size(&socket, 2 * BUFFER_BYTES)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Self { socket, name, buffer: RefCell::new(Vec::new()), requests })
    }

    /// Returns the name, for the variable TASKQUEUE_EVENTS_SOCKET.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Receives one waiting message and returns its event line if it carries this token. Returns `None` if it requests a command,
    /// which is started, or if it has another token, is truncated or malformed.
    ///
    /// # Errors
    /// `WouldBlock` if no message waits.
    pub fn receive(&self, token: &str) -> io::Result<Option<Vec<u8>>> {
        // Runners whose handlers never send a message do not need the memory.
        recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK)?;
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER_BYTES, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
        let whole_length = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?.bytes;
        let descriptors = descriptors_of(&mut control);
        let message = buffer.get(..whole_length);
        let line = message.and_then(|message| message.strip_prefix(token.as_bytes())?.strip_prefix(b"\n"));
        let Some(line) = line.filter(|_| !token.is_empty()) else { return Ok(None) };
        if descriptors.is_empty() {
            return Ok(Some(line.strip_suffix(b"\n").unwrap_or(line).to_vec()));
        }
        self.start(line, descriptors, token);
        Ok(None)
    }

    /// Starts the command of a message. A malformed message is dropped with its descriptors, so its sender reads end of file.
    fn start(&self, line: &[u8], descriptors: Vec<OwnedFd>, token: &str) {
        let Ok([stdin, stdout, stderr, answer]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else { return };
        let Ok((arguments, variables)) = serde_json::from_slice::<(Vec<String>, Vec<(String, String)>)>(line) else {
            return;
        };
        // Checked again: any process of the handler could have written the message.
        let value = |wanted: &str| variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        let trace = Trace::of_variables(value).unwrap_or_default();
        match &self.requests {
            Some(requests) => {
                requests.serve(Request { arguments, trace, stdio: [stdin, stdout, stderr], answer }, token);
            }
            None => reply(&answer, "the program that runs this task executes no commands for handlers"),
        }
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
/// `InvalidInput` if the line is too long or contains a newline; `ConnectionRefused` if no runner listens any more; `WouldBlock`
/// if the runner did not read for 5 seconds.
pub fn send_event(socket_name: &str, token: &str, line: &[u8]) -> io::Result<()> {
    if line.contains(&b'\n') || token.contains('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an event is one line"));
    }
    send_message(socket_name, token, line, &[])
}

/// The answer of the runner to a command.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// The command was executed and ended with this exit status.
    Ended(u8),
    /// The command was not executed, for this reason.
    Refused(String),
    /// The runner ended before the command did, or dropped it.
    Lost,
}

/// Asks the runner that listens under this name to execute this program with these arguments and this trace, and waits for its
/// end. The program uses the standard input, output and error of this process.
///
/// # Errors
/// As for [`send_event`].
pub fn request_command(
    socket_name: &str,
    token: &str,
    arguments: &[String],
    trace: &Trace,
) -> io::Result<CommandAnswer> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let variables: Vec<(&str, &str)> = trace.variables().collect();
    let line = serde_json::to_vec(&(arguments, variables))?;
    send_message(socket_name, token, &line, &[stdin(), stdout(), stderr(), theirs.as_fd()])?;
    drop(theirs);
    let mut answer = [0_u8; ANSWER_BYTES];
    let length = rustix::io::retry_on_intr(|| recv(&ours, &mut answer, RecvFlags::empty()).map(|(length, _)| length));
    let text = String::from_utf8_lossy(answer.get(..length?).unwrap_or_default());
    Ok(match text.parse() {
        Ok(code) => CommandAnswer::Ended(code),
        Err(_) if text.is_empty() => CommandAnswer::Lost,
        Err(_) => CommandAnswer::Refused(text.into_owned()),
    })
}

fn send_message(socket_name: &str, token: &str, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if line.len() > LONGEST_MESSAGE_BYTES || token.len() > 512 {
        let message = format!("a message may have at most {LONGEST_MESSAGE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let socket = datagram_socket(SocketFlags::CLOEXEC)?;
    set_socket_send_buffer_size(&socket, 2 * BUFFER_BYTES)?;
    set_socket_timeout(&socket, Timeout::Send, Some(SEND_WAIT))?;
    let message = [token.as_bytes(), b"\n", line].concat();
    let address = SocketAddrUnix::new_abstract_name(socket_name.as_bytes())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg_addr(&socket, &address, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
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
        let socket = EventSocket::bind(None).unwrap();
        let longest = vec![b'x'; LONGEST_MESSAGE_BYTES];
        send_event(socket.name(), "secret", &longest).unwrap();
        send_event(socket.name(), "secret", b"{\"progress\":1}").unwrap();
        assert_eq!(socket.receive("secret").unwrap().unwrap(), longest);
        assert_eq!(socket.receive("secret").unwrap().unwrap(), b"{\"progress\":1}");
        assert_eq!(socket.receive("secret").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn lines_with_another_token_are_dropped() {
        let socket = EventSocket::bind(None).unwrap();
        for token in ["", "secre", "secrets", "other"] {
            send_event(socket.name(), token, b"{}").unwrap();
            assert_eq!(socket.receive("secret").unwrap(), None);
        }
        send_event(socket.name(), "", b"{}").unwrap();
        assert_eq!(socket.receive("").unwrap(), None, "an empty token is nobody's");
    }

    #[test]
    fn a_socket_that_is_gone_refuses_and_bad_lines_are_not_sent() {
        let socket = EventSocket::bind(None).unwrap();
        let name = socket.name().to_owned();
        assert_eq!(send_event(&name, "t", b"a\nb").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let too_long = vec![b'x'; LONGEST_MESSAGE_BYTES + 1];
        assert_eq!(send_event(&name, "t", &too_long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(socket);
        assert_eq!(send_event(&name, "t", b"{}").unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_command_is_refused_where_none_run_and_lost_if_nothing_answers() {
        let socket = EventSocket::bind(None).unwrap();
        let ask = |token: &'static str| {
            let name = socket.name().to_owned();
            std::thread::spawn(move || {
                request_command(&name, token, &["status".to_owned()], &Trace::default()).unwrap()
            })
        };
        let refused = ask("secret");
        taskqueue_host::testing::eventually(|| socket.receive("secret").is_ok());
        assert!(matches!(refused.join().unwrap(), CommandAnswer::Refused(_)));
        let lost = ask("other");
        taskqueue_host::testing::eventually(|| socket.receive("secret").is_ok());
        assert_eq!(lost.join().unwrap(), CommandAnswer::Lost);
    }
}
