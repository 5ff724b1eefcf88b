//! What passes between the thread that waits for a run and the thread that hears the coprocess.

use std::cell::OnceCell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem};

use super::protocol::Answer;
use crate::handler::events::Event;
use taskqueue_domain::run::ending::Ending;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::children::capture::{Capture, Captured, Showing};

/// Events of one run beyond which the output of its coprocess is not read until they are taken.
const MAX_EVENTS: usize = 1_000;
/// What nobody takes of standard error beyond this is only captured.
const MOST_FRESH_BYTES: usize = 1 << 20;

/// One attempt at a run.
#[derive(Debug)]
pub(super) struct Ticket {
    waker: Arc<Waker>,
    mail: Mutex<Mail>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The handler said so.
    Answered(Answer),
    /// Its coprocess is dead; `may_have_started` is whether it had read anything of the run.
    Lost { death: Arc<Death>, may_have_started: bool },
}

/// How a coprocess died.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) ending: Ending,
    pub(super) cause: Cause,
    /// Why processes of it may still live.
    pub(super) unended: Option<String>,
}

/// Why it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// For reasons of its own.
    Itself,
    /// We killed it for a run that did not end when it had to.
    Run(i64),
    /// We ended it for what it did wrong: a code and the words.
    Fault(&'static str, String),
}

/// What has come for a run since somebody looked.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) events: Vec<Event>,
    pub(super) unread: u64,
    /// Of standard error.
    pub(super) fresh: Vec<u8>,
    pub(super) outcome: Option<Outcome>,
    /// Whether it takes messages.
    pub(super) listens: bool,
    /// The index of the first of the descriptors that were waited for that is readable.
    pub(super) ready: Option<usize>,
}

struct Mail {
    is_awaited: bool,
    events: Vec<Event>,
    unread: u64,
    fresh: Vec<u8>,
    stderr: Capture,
    showing: Showing,
    outcome: Option<Outcome>,
    listens: bool,
    is_called: bool,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Ticket {
    pub(super) fn new(output_limit_bytes: usize) -> io::Result<Self> {
        let mail = Mail {
            is_awaited: false,
            events: Vec::new(),
            unread: 0,
            fresh: Vec::new(),
            stderr: Capture::new(output_limit_bytes),
            showing: Showing::begin(),
            outcome: None,
            listens: false,
            is_called: false,
        };
        Ok(Self { waker: own_waker()?, mail: Mutex::new(mail) })
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits, if somebody does: most messages come while nobody sleeps.
    fn put(&self, change: impl FnOnce(&mut Mail)) {
        let is_awaited = {
            let mut mail = self.mail();
            change(&mut mail);
            mem::take(&mut mail.is_awaited)
        };
        if is_awaited {
            self.waker.wake();
        }
    }

    /// Whether there is room for more.
    pub(super) fn add_update(&self, event: Option<Event>) -> bool {
        let mut has_room = true;
        self.put(|mail| {
            match event {
                Some(event) => mail.events.push(event),
                None => mail.unread = mail.unread.saturating_add(1),
            }
            has_room = mail.events.len() < MAX_EVENTS;
        });
        has_room
    }

    pub(super) fn has_room(&self) -> bool {
        self.mail().events.len() < MAX_EVENTS
    }

    pub(super) fn add_stderr(&self, bytes: &[u8]) {
        self.put(|mail| {
            mail.stderr.push(bytes);
            if mail.fresh.len() < MOST_FRESH_BYTES {
                mail.fresh.extend_from_slice(bytes);
            }
        });
    }

    pub(super) fn end(&self, outcome: Outcome) {
        self.put(|mail| mail.outcome = Some(outcome));
    }

    /// The program takes the messages to this run from now on.
    pub(super) fn listen(&self) {
        self.put(|mail| (mail.listens, mail.is_called) = (true, true));
    }

    /// Something has changed for the thread that waits: there may be a place, or a message.
    pub(super) fn call(&self) {
        self.put(|mail| mail.is_called = true);
    }

    /// Waits for letters, a call or one of these descriptors, for at most so long.
    pub(super) fn wait(&self, others: &[BorrowedFd<'_>], limit: Duration) -> Letters {
        let ready = match self.look() {
            Here::Outcome => None,
            // A flood of news must not hide an alarm.
            Here::Mail => self.waker.wait_beside(others, Duration::ZERO),
            Here::Nothing => self.waker.wait_beside(others, limit),
        };
        let mut mail = self.mail();
        mail.is_awaited = false;
        mail.is_called = false;
        Letters {
            events: mem::take(&mut mail.events),
            unread: mem::take(&mut mail.unread),
            fresh: mem::take(&mut mail.fresh),
            outcome: mail.outcome.take(),
            listens: mail.listens,
            ready,
        }
    }

    /// What is here already; if nothing, whoever puts something here wakes us.
    fn look(&self) -> Here {
        let mut mail = self.mail();
        if mail.outcome.is_some() {
            return Here::Outcome;
        }
        let has_mail = mail.is_called || mail.unread > 0 || !mail.events.is_empty() || !mail.fresh.is_empty();
        mail.is_awaited = !has_mail;
        if has_mail { Here::Mail } else { Here::Nothing }
    }

    /// What it has written so far, where it is time to show that and there is more than the last time.
    pub(super) fn stderr_so_far(&self) -> Option<Captured> {
        let Mail { stderr, showing, .. } = &mut *self.mail();
        showing.take(stderr)
    }

    pub(super) fn take_stderr(&self) -> Captured {
        mem::replace(&mut self.mail().stderr, Capture::new(0)).finish()
    }
}

/// One for each thread that waits: a descriptor for every run would cost as much as the rest of the wait. Whoever is woken for
/// a run that is over looks in vain, and waits again.
fn own_waker() -> io::Result<Arc<Waker>> {
    thread_local!(static OWN: OnceCell<Arc<Waker>> = const { OnceCell::new() });
    OWN.with(|own| {
        if let Some(waker) = own.get() {
            return Ok(Arc::clone(waker));
        }
        let waker = Arc::new(Waker::new()?);
        Ok(Arc::clone(own.get_or_init(|| waker)))
    })
}

enum Here {
    Outcome,
    Mail,
    Nothing,
}
