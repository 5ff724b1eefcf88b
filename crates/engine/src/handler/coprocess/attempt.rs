//! One attempt at a run, seen from the thread that waits for its end: timeout, alarms and reports.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::coprocess_handler::CoprocessHandler;
use super::placing::Place;
use super::pool::Pool;
use super::protocol::{self, CoprocessAnswer, WireId};
use super::ticket::{Cause, Death, Letters, Ticket, TicketOutcome};
use crate::handler::command::{CommandObserver, HandlerEnd};
use crate::handler::events::{Said, parse_event};
use crate::handler::{Inbox, RunContext};
use taskqueue_domain::run::ending::{Ending, ReportedError};
use taskqueue_domain::run::exit_rules::ExitMeaning;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::Moment;
use taskqueue_process::children::capture::{SHOW_FOLLOWED_EVERY, Stream};
use taskqueue_process::children::child::Control;
use taskqueue_process::children::event_socket::EventSocket;

/// How often the observer is called; the contract is 500 ms.
const IDLE_EVERY: Duration = Duration::from_millis(400);
/// How many processes may end without having read the run. After that many, the run is taken for the cause.
const MOST_TRIES: u32 = 3;
/// Limits how many socket messages are read at once, so that a flood of them cannot delay an answer.
const MESSAGES_PER_TURN: usize = 32;

pub(super) struct CoprocessAttempt<'a> {
    handler: &'a CoprocessHandler,
    run: &'a RunContext,
    alarms: &'a [BorrowedFd<'a>],
    socket: Option<&'a EventSocket>,
    observer: &'a mut dyn CommandObserver,
    ticket: Arc<Ticket>,
    /// The end that the runner decided on before the process answered.
    decided: Option<Ending>,
    next_idle: Moment,
    tries: u32,
    said: Said,
    /// Set once the program listens.
    inbox: Option<Inbox>,
}

/// The process that has a run.
struct At<'a> {
    pool: &'a Pool,
    member: u64,
    id: WireId,
}

impl<'a> CoprocessAttempt<'a> {
    /// Creates an attempt; the error is the end of a run that cannot even begin.
    pub(super) fn new(
        handler: &'a CoprocessHandler,
        run: &'a RunContext,
        alarms: &'a [BorrowedFd<'a>],
        socket: Option<&'a EventSocket>,
        observer: &'a mut dyn CommandObserver,
    ) -> Result<Self, Box<HandlerEnd>> {
        let no_room = |error| Ending::NoRoom(format!("could not start {}: {error}", handler.program()));
        let ticket = Ticket::new(handler.command.output_limit_bytes);
        let ticket = ticket.map_err(|error| Box::new(HandlerEnd::of(no_room(error))))?;
        Ok(Self {
            handler,
            run,
            alarms,
            socket,
            observer,
            ticket: Arc::new(ticket),
            decided: None,
            next_idle: Moment::after(IDLE_EVERY),
            tries: 0,
            said: Said::default(),
            inbox: None,
        })
    }

    /// Runs the attempt on this pool. Returns `None` if it must be retried: the process ended without having read anything of
    /// the run, or the pool was closed.
    pub(super) fn run_by(&mut self, pool: &Arc<Pool>, number: u64) -> Option<HandlerEnd> {
        let id = WireId { run_id: self.run.run_id, number };
        let message = match protocol::run(id, self.run, self.socket.map(EventSocket::name)) {
            Ok(message) => message,
            Err(error) => return Some(self.refused(&error)),
        };
        let seen = pool.failures();
        let member = loop {
            match pool.place(id, &message, &self.ticket, seen) {
                Place::Given { member, identity } => {
                    self.observer.started(&identity);
                    break member;
                }
                Place::Closed => return None,
                Place::Failed(ending) => return Some(self.ended(ending)),
                Place::Wait => {}
            }
            if self.must_leave() {
                pool.leave(&self.ticket);
                return Some(self.ended(Ending::Stopped));
            }
        };
        self.follow(&At { pool, member, id })
    }

    /// Waits for a change while no process has the run yet. Returns whether the run must end.
    fn must_leave(&mut self) -> bool {
        if self.ticket.wait(self.alarms, self.next_idle.remaining()).ready.is_some() {
            return true;
        }
        if !self.next_idle.has_passed() {
            return false;
        }
        self.next_idle = Moment::after(IDLE_EVERY);
        // A run that waits for a process has not begun, so it does not count as silent.
        self.observer.heartbeat();
        self.observer.idle() != Control::Continue
    }

    fn follow(&mut self, at: &At<'_>) -> Option<HandlerEnd> {
        let timeout = Duration::from_secs(u64::try_from(self.run.timeout_secs).unwrap_or(0));
        let mut deadline = Moment::after(timeout);
        loop {
            let alarms = if self.decided.is_none() { self.alarms } else { &[] };
            let others: Vec<_> = alarms.iter().copied().chain(self.socket.map(AsFd::as_fd)).collect();
            let letters = self.ticket.wait(&others, deadline.min(self.next_idle).remaining());
            let has_alarm = letters.ready.is_some_and(|ready| ready < alarms.len());
            let has_message = letters.ready.is_some_and(|ready| ready == alarms.len());
            let (mut reported, outcome) = self.read(letters);
            // Before the outcome, because messages sent while the run was processed count.
            if has_message || outcome.is_some() {
                reported |= self.read_socket();
            }
            match outcome {
                Some(TicketOutcome::Answered(answer)) => return Some(self.answered(answer)),
                Some(TicketOutcome::Lost { death, may_have_started }) => return self.lost(&death, may_have_started),
                None => {}
            }
            self.pass_messages(at);
            let mut control = Control::Continue;
            if self.next_idle.has_passed() {
                let is_followed = self.observer.is_followed();
                if let Some(so_far) = self.ticket.stderr_so_far(is_followed) {
                    self.observer.output_so_far(Stream::Stderr, so_far);
                }
                control = self.observer.idle();
                self.next_idle = Moment::after(if is_followed { SHOW_FOLLOWED_EVERY } else { IDLE_EVERY });
            }
            if control == Control::Kill {
                self.decided.get_or_insert(Ending::Stopped);
            } else if self.decided.is_none() {
                if reported {
                    deadline = Moment::after(timeout);
                }
                let (decided, reason) = match control {
                    _ if has_alarm => (Ending::Stopped, self.observer.stop_reason().unwrap_or(StopReason::Shutdown)),
                    Control::AskToEnd(reason) => (Ending::Stopped, reason),
                    _ if deadline.has_passed() => (Ending::TimedOut, StopReason::Timeout),
                    _ => continue,
                };
                self.decided = Some(decided);
                at.pool.ask_to_end(at.member, at.id, reason);
                deadline = Moment::after(self.handler.command.kill_grace);
                continue;
            } else if !deadline.has_passed() {
                continue;
            }
            // The process did not end this run, so it must end itself.
            at.pool.kill(at.member, at.id);
            deadline = Moment::after(Duration::from_secs(1));
        }
    }

    /// Processes what has arrived. Returns whether it contained a report, and the outcome.
    fn read(&mut self, letters: Letters) -> (bool, Option<TicketOutcome>) {
        if !letters.fresh.is_empty() {
            self.observer.output(Stream::Stderr, &letters.fresh);
        }
        if letters.listens && self.inbox.is_none() {
            let (inbox, ticket) = (self.observer.inbox(), Arc::clone(&self.ticket));
            inbox.notify_by(move || ticket.call());
            self.inbox = Some(inbox);
        }
        self.said.unread = self.said.unread.saturating_add(letters.unread);
        let mut reported = false;
        for event in letters.events {
            reported |= event.is_report();
            self.said.hear(event, self.observer);
        }
        (reported, letters.outcome)
    }

    fn pass_messages(&self, at: &At<'_>) {
        if let Some(inbox) = &self.inbox {
            at.pool.pass_messages(at.member, at.id, inbox);
        }
    }

    /// Processes the messages of the event socket. Returns whether they contained a report.
    fn read_socket(&mut self) -> bool {
        let Some(socket) = self.socket else { return false };
        let mut reported = false;
        for _ in 0..MESSAGES_PER_TURN {
            match socket.receive(&self.run.token) {
                Ok(Some(line)) => match parse_event(&line) {
                    Some(event) => {
                        reported |= event.is_report();
                        self.said.hear(event, self.observer);
                    }
                    None => self.said.note_unread(&line),
                },
                // The message started a command, or had the token of another run.
                Ok(None) => {}
                Err(_) => break,
            }
        }
        reported
    }

    fn answered(&mut self, answer: CoprocessAnswer) -> HandlerEnd {
        self.said.error = answer.error.or_else(|| self.said.error.take());
        self.said.results = answer.results.or_else(|| self.said.results.take());
        if let Some(meta) = answer.meta {
            self.observer.meta(meta);
        }
        self.said.unread = self.said.unread.saturating_add(u64::from(answer.is_partly_unread));
        self.said.note_unknown_keys(&answer.unknown_keys);
        let ending = self.decided.take().unwrap_or(Ending::Exited(answer.exit_code));
        self.ended(ending)
    }

    fn lost(&mut self, death: &Death, may_have_started: bool) -> Option<HandlerEnd> {
        self.tries += 1;
        if !may_have_started && self.decided.is_none() && self.tries < MOST_TRIES {
            return None;
        }
        let ending = match (self.decided.take(), &death.cause) {
            (Some(decided), _) => decided,
            (None, Cause::Run(run_id)) if *run_id != self.run.run_id => Ending::KilledWithAnother(format!(
                "run {run_id} of the same coprocess did not end in time, so the coprocess was killed"
            )),
            (None, Cause::Fault(code, why)) => {
                self.said.error =
                    Some(ReportedError { code: (*code).to_owned(), message: why.clone(), ..Default::default() });
                death.ending.clone()
            }
            (None, Cause::Itself | Cause::Run(_)) => {
                self.never_well(&death.ending);
                death.ending.clone()
            }
        };
        Some(HandlerEnd { unended: death.unended.clone(), ..self.ended(ending) })
    }

    /// Reports an error if the process exits with success before it has answered: the run is not done.
    fn never_well(&mut self, ending: &Ending) {
        if let Ending::Exited(code) = ending
            && self.handler.exit_rules.meaning(*code).0 == ExitMeaning::Success
            && self.said.error.is_none()
        {
            let message = format!("the coprocess ended with exit code {code} before it had answered for this run");
            self.said.error = Some(ReportedError { code: "no-answer".to_owned(), message, ..Default::default() });
        }
    }

    fn refused(&mut self, error: &serde_json::Error) -> HandlerEnd {
        let message = format!("the data of the task is not JSON: {error}");
        let (code, retry) = ("invalid-data".to_owned(), Some(false));
        self.said.error = Some(ReportedError { code, message, retry, delay_secs: None });
        self.ended(Ending::Exited(1))
    }

    fn ended(&mut self, ending: Ending) -> HandlerEnd {
        // No usage, because its process handles many runs.
        let (said, stderr) = (std::mem::take(&mut self.said), self.ticket.take_stderr());
        HandlerEnd { said, stderr, ..HandlerEnd::of(ending) }
    }
}
