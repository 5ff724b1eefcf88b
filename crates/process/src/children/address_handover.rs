//! Passes the address of the database to a command that the runner executes for a handler.
//!
//! The address may contain a password. In the environment of the command, a handler of the same user could read it until the
//! command has hidden itself. So the command starts with a socket in place of its standard input. When it is hidden, it asks
//! there, and the runner answers with the address and with the standard input.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use rustix::stdio::{dup2_stdin, stdin};

use super::received::descriptors_of;

/// The variable with the address of the database, which no program that this one starts inherits.
pub(crate) const DATABASE_VARIABLE: &str = "TASKQUEUE_DATABASE_URL";
/// The question of the command; its content does not matter.
const QUESTION: &[u8] = b"?";
/// The longest address, in bytes.
const LONGEST_ADDRESS_BYTES: usize = 64 * 1024;

/// The end of the runner.
pub(crate) struct AddressHandover {
    socket: OwnedFd,
    stdin: OwnedFd,
}

impl AddressHandover {
    /// Returns it with the socket that the command gets in place of this standard input.
    pub(crate) fn instead_of(stdin: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let (socket, of_command) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket, stdin }, of_command))
    }

    /// Answers the command, which has asked or ended. Errors are ignored: it reports what it does not get.
    pub(crate) fn answer(self, address: &[u8]) {
        if recv(&self.socket, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length == QUESTION.len()) {
            let descriptors = [self.stdin.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = sendmsg(&self.socket, &[IoSlice::new(address)], &mut control, flags);
        }
    }
}

impl AsFd for AddressHandover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks the runner that started this command for the address of the database, and takes the standard input of the command from
/// it. Call it once, after the process is hidden.
///
/// # Errors
/// Standard input is not the socket of a runner, or the runner has ended.
pub fn receive_address() -> io::Result<String> {
    let runner = stdin();
    send(runner, QUESTION, SendFlags::NOSIGNAL)?;
    let mut address = vec![0_u8; LONGEST_ADDRESS_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut address)];
    let length = rustix::io::retry_on_intr(|| recvmsg(runner, parts, &mut control, RecvFlags::CMSG_CLOEXEC))?.bytes;
    let given = descriptors_of(&mut control).pop();
    dup2_stdin(given.ok_or_else(|| io::Error::other("the runner has ended"))?)?;
    address.truncate(length);
    String::from_utf8(address).map_err(|_| io::Error::other("the address of the database is not UTF-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read as _;

    use rustix::event::{PollFd, PollFlags, poll};
    use taskqueue_host::testing::run_again_inside;

    use super::*;

    #[test]
    fn a_command_that_asks_gets_the_address_and_its_standard_input() {
        // It replaces the standard input of its process.
        let test = "children::address_handover::tests::a_command_that_asks_gets_the_address_and_its_standard_input";
        if !run_again_inside(&["env"], test) {
            return;
        }
        let (input, writer) = io::pipe().unwrap();
        let (handover, of_command) = AddressHandover::instead_of(input.into()).unwrap();
        dup2_stdin(of_command).unwrap();
        let asking = std::thread::spawn(receive_address);
        poll(&mut [PollFd::new(&handover, PollFlags::IN)], None).unwrap();
        handover.answer(b"postgres://ann:secret@host/db");
        assert_eq!(asking.join().unwrap().unwrap(), "postgres://ann:secret@host/db");
        drop(writer);
        assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0, "it reads the pipe");
    }

    #[test]
    fn a_command_that_ends_without_a_question_gets_nothing() {
        let (input, _writer) = io::pipe().unwrap();
        let (handover, of_command) = AddressHandover::instead_of(input.into()).unwrap();
        let observer = of_command.try_clone().unwrap();
        rustix::net::shutdown(&of_command, rustix::net::Shutdown::Write).unwrap();
        handover.answer(b"secret");
        let (length, _) = recv(&observer, &mut [0_u8; 16], RecvFlags::DONTWAIT).unwrap();
        assert_eq!(length, 0);
    }
}
