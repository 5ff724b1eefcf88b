//! Moves the bytes of one handler: its input, its two outputs, its events from descriptor 3 and from the socket. One thread, one
//! poll; nothing here blocks or exceeds the limits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};

use super::capture::{Capture, Captured, SHOW_FOLLOWED_EVERY, Showing, Stream};
use super::event_socket::EventSocket;
use super::observer::{Control, IsReport, Observer};
use crate::spawning::spawn::{Input, Pipes};
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::{Moment, poll_wait};
use taskqueue_host::files::lines::LineSplitter;

/// How often the observer is called at least; the promise is 500 ms.
const IDLE_EVERY: Duration = Duration::from_millis(400);
/// A flood of messages from the socket must not starve the pipes.
const MESSAGES_PER_TURN: usize = 32;
/// The capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// The result of one turn of the loop.
#[derive(Default)]
pub(crate) struct PumpTurn {
    /// One of the watched processes ended.
    pub(crate) ended: bool,
    /// An event counted as a report.
    pub(crate) reported: bool,
    /// Why it should be asked to end, if it should.
    pub(crate) ask: Option<StopReason>,
    /// The observer wants it killed.
    pub(crate) kill: bool,
}

#[derive(Clone, Copy)]
enum PumpSource {
    Process,
    Input,
    Output(Stream),
    Events,
    Socket,
    Stop,
}

/// The open descriptors of one handler, and what was read from them.
pub(crate) struct Pump<'a> {
    input: Option<Input>,
    unwritten: &'a [u8],
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    events: Option<OwnedFd>,
    alarms: Vec<BorrowedFd<'a>>,
    socket: Option<(&'a EventSocket, &'a str)>,
    captures: [Capture; 2],
    showings: [Showing; 2],
    lines: LineSplitter,
    next_idle: Moment,
    buffer: Vec<u8>,
}

impl<'a> Pump<'a> {
    pub(crate) fn new(
        pipes: Pipes,
        stdin: &'a [u8],
        limit_bytes: usize,
        alarms: &[BorrowedFd<'a>],
        socket: Option<(&'a EventSocket, &'a str)>,
    ) -> Self {
        let mut pump = Self {
            input: Some(pipes.stdin),
            unwritten: stdin,
            stdout: Some(pipes.stdout),
            stderr: Some(pipes.stderr),
            events: Some(pipes.events),
            alarms: alarms.to_vec(),
            socket,
            captures: [Capture::new(limit_bytes), Capture::new(limit_bytes)],
            showings: [Showing::begin(), Showing::begin()],
            lines: LineSplitter::default(),
            next_idle: Moment::after(IDLE_EVERY),
            buffer: Vec::with_capacity(READ_BYTES),
        };
        // Most data fits into the pipe at once; then there is nothing to poll for.
        pump.write_input();
        pump
    }

    /// Waits for an event, at most until `until`, and handles it with one read of each stream, so that no stream starves the
    /// others or the deadlines.
    pub(crate) fn turn(
        &mut self,
        processes: &[BorrowedFd<'_>],
        until: Moment,
        observer: &mut dyn Observer,
    ) -> PumpTurn {
        let mut turn = PumpTurn::default();
        for source in self.wait(processes, until.min(self.next_idle)) {
            match source {
                PumpSource::Process => turn.ended = true,
                PumpSource::Input => self.write_input(),
                PumpSource::Output(stream) => self.read_output(stream, observer),
                PumpSource::Events => turn.reported |= self.read_events(observer),
                PumpSource::Socket => turn.reported |= self.read_socket(observer),
                PumpSource::Stop => {
                    // It stays readable: polling it again would spin.
                    self.alarms.clear();
                    turn.ask = Some(observer.stop_reason());
                }
            }
        }
        if self.next_idle.has_passed() {
            let is_followed = observer.is_followed();
            self.show(observer, is_followed);
            match observer.idle() {
                Control::Continue => {}
                Control::AskToEnd(reason) => turn.ask = Some(reason),
                Control::Kill => turn.kill = true,
            }
            // A reader who comes soon must not wait for output that is there.
            let is_behind =
                self.showings.iter().zip(&self.captures).any(|(showing, capture)| showing.is_behind(capture));
            self.next_idle = Moment::after(if is_followed || is_behind { SHOW_FOLLOWED_EVERY } else { IDLE_EVERY });
        }
        turn
    }

    fn wait(&self, processes: &[BorrowedFd<'_>], until: Moment) -> Vec<PumpSource> {
        let ours = [
            (PumpSource::Input, self.input.as_ref().map(|input| input.writer.as_fd()), PollFlags::OUT),
            (PumpSource::Output(Stream::Stdout), self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (PumpSource::Output(Stream::Stderr), self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (PumpSource::Events, self.events.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (PumpSource::Socket, self.socket.map(|(socket, _)| socket.as_fd()), PollFlags::IN),
        ];
        let alarms = self.alarms.iter().map(|alarm| (PumpSource::Stop, Some(*alarm), PollFlags::IN));
        let processes = processes.iter().map(|process| (PumpSource::Process, Some(*process), PollFlags::IN));
        let (sources, mut fds): (Vec<_>, Vec<_>) = ours
            .into_iter()
            .chain(alarms)
            .chain(processes)
            .filter_map(|(source, fd, flags)| Some((source, PollFd::from_borrowed_fd(fd?, flags))))
            .unzip();
        match poll(&mut fds, Some(&poll_wait(until.remaining()))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Vec::new(),
            Err(_) => {
                // Only lack of kernel memory can cause this; it is temporary, and the handler must be served until then.
                std::thread::sleep(Duration::from_millis(20));
                return Vec::new();
            }
        }
        let ready = sources.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| source).collect()
    }

    fn write_input(&mut self) {
        let Some(input) = &self.input else { return };
        while !self.unwritten.is_empty() {
            match write(&input.writer, self.unwritten) {
                Ok(count) => self.unwritten = self.unwritten.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            }
        }
        self.close_input();
    }

    /// Closes the input: the handler, or a process that inherited its input, reads end of file.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    fn read_output(&mut self, stream: Stream, observer: &mut dyn Observer) {
        let (fd, capture) = match stream {
            Stream::Stdout => (&mut self.stdout, &mut self.captures[0]),
            Stream::Stderr => (&mut self.stderr, &mut self.captures[1]),
        };
        if let Some(bytes) = read_once(fd, &mut self.buffer) {
            capture.push(bytes);
            observer.output(stream, bytes);
            self.next_idle = self.next_idle.min(Moment::after(SHOW_FOLLOWED_EVERY));
        }
    }

    fn show(&mut self, observer: &mut dyn Observer, is_followed: bool) {
        let streams = [Stream::Stdout, Stream::Stderr];
        for ((stream, capture), showing) in streams.into_iter().zip(&self.captures).zip(&mut self.showings) {
            if let Some(so_far) = showing.take(capture, is_followed) {
                observer.output_so_far(stream, so_far);
            }
        }
    }

    fn read_events(&mut self, observer: &mut dyn Observer) -> bool {
        let mut reported = false;
        let mut take = |line: &[u8]| reported |= observer.event_line(line) == IsReport::Yes;
        match read_once(&mut self.events, &mut self.buffer) {
            Some(bytes) => self.lines.push(bytes, &mut take),
            None if self.events.is_none() => self.lines.finish(&mut take),
            None => {}
        }
        reported
    }

    fn read_socket(&mut self, observer: &mut dyn Observer) -> bool {
        let Some((socket, token)) = self.socket else { return false };
        let mut reported = false;
        for _ in 0..MESSAGES_PER_TURN {
            match socket.receive(token) {
                Ok(Some(line)) => reported |= observer.event_line(&line) == IsReport::Yes,
                // A message for another run, or for one that has ended.
                Ok(None) => {}
                Err(_) => break,
            }
        }
        reported
    }

    /// Returns true if any output of the handler is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some() || self.events.is_some()
    }

    /// Passes on unread output and ends the capture; processes that still hold the pipes get EPIPE.
    pub(crate) fn finish(mut self, observer: &mut dyn Observer) -> (Captured, Captured) {
        // A message sent before the handler ended is in the socket by now.
        self.read_socket(observer);
        self.lines.finish(|line| {
            observer.event_line(line);
        });
        let [stdout, stderr] = self.captures;
        (stdout.finish(), stderr.finish())
    }
}

/// Reads once, into an empty buffer; closes the descriptor at end of file. Returns `None` if there was nothing to read.
fn read_once<'b>(fd: &mut Option<OwnedFd>, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    buffer.clear();
    match read(fd.as_ref()?, spare_capacity(buffer)) {
        Ok(0) => {
            *fd = None;
            None
        }
        Ok(_) => Some(buffer),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(_) => {
            *fd = None;
            None
        }
    }
}
