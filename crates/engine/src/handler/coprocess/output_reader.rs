//! Splits the output of one process into lines, parses them, and passes them to its runs. A message about a run goes only to
//! that run.

use std::mem;
use std::sync::Arc;

use super::member::{Member, Order};
use super::pool::Pool;
use super::protocol::{self, CoprocessAnswer, CoprocessMessage, not_one_of_its_runs};
use super::ticket::{Ticket, TicketOutcome};
use taskqueue_host::files::lines::LineSplitter;
use taskqueue_process::children::capture::Capture;
use taskqueue_process::children::coprocess::CoprocessListener;

/// How much of standard error is kept to explain why the process could not start.
const WORDS_BYTES: usize = 8 * 1024;

pub(super) struct OutputReader {
    pool: Arc<Pool>,
    number: u64,
    lines: LineSplitter,
    heard: Vec<CoprocessMessage>,
    /// How it broke the protocol; its later output is ignored.
    pub(super) fault: Option<String>,
    ignores_output: bool,
    /// Runs that do not take their events.
    congested: Vec<Arc<Ticket>>,
    words: Option<Capture>,
    last_words: String,
    /// Whether it is being killed already, so that no check is needed.
    is_being_killed: bool,
}

impl OutputReader {
    pub(super) fn new(pool: Arc<Pool>, number: u64) -> Self {
        Self {
            pool,
            number,
            lines: LineSplitter::default(),
            heard: Vec::new(),
            fault: None,
            ignores_output: false,
            congested: Vec::new(),
            words: Some(Capture::new(WORDS_BYTES)),
            last_words: String::new(),
            is_being_killed: false,
        }
    }

    /// Returns true if its output should be read now.
    pub(super) fn are_open(&mut self) -> bool {
        self.congested.retain(|ticket| !ticket.has_room());
        self.congested.is_empty()
    }

    pub(super) fn have_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    pub(super) fn has_answer(&self) -> bool {
        self.heard.iter().any(|message| matches!(message, CoprocessMessage::Answer(..)))
    }

    pub(super) fn begin_the_end(&mut self, is_being_killed: bool) {
        self.is_being_killed = is_being_killed;
        self.last_words = self.words.take().map(last_line).unwrap_or_default();
    }

    /// Returns the last line that it wrote to standard error before its hello.
    pub(super) fn last_words(&self) -> String {
        self.last_words.clone()
    }

    /// Delivers the messages that were read, taking the lock once. With `retires`, it takes no more runs; this is set before
    /// any run can see its end.
    pub(super) fn deliver(&mut self, retires: bool) {
        let mut answered: Vec<(Arc<Ticket>, CoprocessAnswer)> = Vec::new();
        let mut state = self.pool.state();
        let is_awaited = state.is_waited_for();
        let Some(member) = state.member(self.number) else { return };
        if retires {
            member.order(Order::Retire);
        }
        let was_known = member.hello.is_some();
        for message in mem::take(&mut self.heard) {
            if let Err(why) = take(member, message, &mut answered, &mut self.congested) {
                self.fault.get_or_insert(why);
                self.ignores_output = true;
                break;
            }
        }
        let hello = member.hello.filter(|_| !was_known);
        match hello {
            Some(hello) => {
                self.words = None;
                state.said_hello(hello.max_in_flight);
            }
            None if is_awaited && !answered.is_empty() => state.call_waiting(),
            None => {}
        }
        drop(state);
        for (ticket, answer) in answered {
            ticket.end(TicketOutcome::Answered(answer));
        }
    }
}

/// Applies one message; the error is how it breaks the protocol.
fn take(
    member: &mut Member,
    message: CoprocessMessage,
    answered: &mut Vec<(Arc<Ticket>, CoprocessAnswer)>,
    congested: &mut Vec<Arc<Ticket>>,
) -> Result<(), String> {
    if member.hello.is_none() && !matches!(message, CoprocessMessage::Hello(..)) {
        return Err("its first message is not a hello".to_owned());
    }
    match message {
        CoprocessMessage::Hello(..) if member.hello.is_some() => return Err("it sent hello twice".to_owned()),
        CoprocessMessage::Hello(hello, unknown_keys) => {
            member.hello = Some(hello);
            member.unknown_keys = unknown_keys;
        }
        CoprocessMessage::Report(id, event) => {
            if let Some(run) = member.in_flight.get(&id)
                && !run.ticket.add_update(event)
            {
                congested.push(Arc::clone(&run.ticket));
            }
        }
        CoprocessMessage::Listen(id) => {
            if let Some(run) = member.in_flight.get(&id) {
                run.ticket.listen();
            }
        }
        CoprocessMessage::Answer(id, mut answer) => {
            answer.unknown_keys.append(&mut member.unknown_keys);
            let run = member.take(id).ok_or_else(|| not_one_of_its_runs(&id.to_string()))?;
            answered.push((run.ticket, answer));
        }
        CoprocessMessage::Drain => member.order(Order::Retire),
        CoprocessMessage::Unknown => {
            for run in member.in_flight.values() {
                run.ticket.add_update(None);
            }
        }
        CoprocessMessage::Pong => {}
    }
    Ok(())
}

fn last_line(words: Capture) -> String {
    let text = words.finish().to_text();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

impl CoprocessListener for OutputReader {
    fn stdout(&mut self, bytes: &[u8]) {
        let (heard, fault, ignores_output) = (&mut self.heard, &mut self.fault, &mut self.ignores_output);
        self.lines.push(bytes, |line| {
            if !*ignores_output {
                match protocol::read(line) {
                    Ok(message) => heard.push(message),
                    Err(why) => {
                        *ignores_output = true;
                        *fault = Some(why);
                    }
                }
            }
        });
    }

    fn stderr(&mut self, bytes: &[u8]) {
        if let Some(words) = &mut self.words {
            words.push(bytes);
        }
        // It is unknown which of its runs this is about, so all of them get it.
        if let Some(member) = self.pool.state().member(self.number) {
            for run in member.in_flight.values() {
                run.ticket.add_stderr(bytes);
            }
        }
    }

    fn must_be_killed(&mut self) -> bool {
        self.deliver(false);
        self.is_being_killed
            || self.pool.state().member(self.number).is_some_and(|member| matches!(member.order, Order::Kill(_)))
    }
}
