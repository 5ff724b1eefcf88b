//! Passes messages from the thread that reads a coprocess to the thread that waits for a run.

use std::cell::OnceCell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem};

use super::protocol::CoprocessAnswer;
use crate::handler::events::HandlerEvent;
use taskqueue_domain::run::ending::Ending;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::children::capture::{Capture, Captured, Showing};

/// The number of untaken events of one run beyond which the output of its coprocess is not read.
const MAX_EVENTS: usize = 1_000;
/// Standard error beyond this many untaken bytes is only captured.
const MOST_FRESH_BYTES: usize = 1 << 20;

/// One attempt at a run.
#[derive(Debug)]
pub(super) struct Ticket {
    waker: Arc<Waker>,
    mail: Mutex<Mail>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum TicketOutcome {
    /// The handler answered.
    Answered(CoprocessAnswer),
    /// Its coprocess ended; `may_have_started` is true if it had read any part of the run.
    Lost { death: Arc<Death>, may_have_started: bool },
}

/// How a coprocess died.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) ending: Ending,
    pub(super) cause: Cause,
    /// Why some of its processes may still be running.
    pub(super) unended: Option<String>,
}

/// Why a coprocess died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It exited on its own.
    Itself,
    /// It was killed for a run that did not end in time.
    Run(i64),
    /// It was ended because it broke the protocol: a code and a message.
    Fault(&'static str, String),
}

/// What has arrived for a run since the last read.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) events: Vec<HandlerEvent>,
    pub(super) unread: u64,
    /// New output on standard error.
    pub(super) fresh: Vec<u8>,
    pub(super) outcome: Option<TicketOutcome>,
    /// Whether it takes messages.
    pub(super) listens: bool,
    /// The index of the first of `others` that is readable.
    pub(super) ready: Option<usize>,
}

struct Mail {
    is_awaited: bool,
    letters: Letters,
    stderr: Capture,
    showing: Showing,
    is_called: bool,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("outcome", &self.letters.outcome).finish_non_exhaustive()
    }
}

impl Ticket {
    pub(super) fn new(output_limit_bytes: usize) -> io::Result<Self> {
        let mail = Mail {
            is_awaited: false,
            letters: Letters::default(),
            stderr: Capture::new(output_limit_bytes),
            showing: Showing::begin(),
            is_called: false,
        };
        Ok(Self { waker: own_waker()?, mail: Mutex::new(mail) })
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change, and wakes the waiting thread if there is one: most messages arrive while none waits.
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

    /// Adds an event. Returns whether there is room for more.
    pub(super) fn add_update(&self, event: Option<HandlerEvent>) -> bool {
        let mut has_room = true;
        self.put(|Mail { letters, .. }| {
            match event {
                Some(event) => letters.events.push(event),
                None => letters.unread = letters.unread.saturating_add(1),
            }
            has_room = letters.events.len() < MAX_EVENTS;
        });
        has_room
    }

    pub(super) fn has_room(&self) -> bool {
        self.mail().letters.events.len() < MAX_EVENTS
    }

    pub(super) fn add_stderr(&self, bytes: &[u8]) {
        self.put(|Mail { stderr, letters, .. }| {
            stderr.push(bytes);
            if letters.fresh.len() < MOST_FRESH_BYTES {
                letters.fresh.extend_from_slice(bytes);
            }
        });
    }

    pub(super) fn end(&self, outcome: TicketOutcome) {
        self.put(|mail| mail.letters.outcome = Some(outcome));
    }

    /// Records that the program takes the messages to this run.
    pub(super) fn listen(&self) {
        self.put(|mail| (mail.letters.listens, mail.is_called) = (true, true));
    }

    /// Wakes the waiting thread to check again: a process may be free, or a message may have arrived.
    pub(super) fn call(&self) {
        self.put(|mail| mail.is_called = true);
    }

    /// Waits at most `limit` for messages, a call or one of these descriptors.
    pub(super) fn wait(&self, others: &[BorrowedFd<'_>], limit: Duration) -> Letters {
        let ready = match self.look() {
            Here::Outcome => None,
            // Descriptors are checked even if there are events, so that a flood of events cannot hide an alarm.
            Here::Mail => self.waker.wait_beside(others, Duration::ZERO),
            Here::Nothing => self.waker.wait_beside(others, limit),
        };
        let mut mail = self.mail();
        mail.is_awaited = false;
        mail.is_called = false;
        let kept = Letters { listens: mail.letters.listens, ..Letters::default() };
        Letters { ready, ..mem::replace(&mut mail.letters, kept) }
    }

    /// Returns what has already arrived; if nothing has, the next change will wake this thread.
    fn look(&self) -> Here {
        let Mail { letters, is_called, is_awaited, .. } = &mut *self.mail();
        if letters.outcome.is_some() {
            return Here::Outcome;
        }
        let has_mail = *is_called || letters.unread > 0 || !letters.events.is_empty() || !letters.fresh.is_empty();
        *is_awaited = !has_mail;
        if has_mail { Here::Mail } else { Here::Nothing }
    }

    /// Returns the standard error so far, if it is time to show it and there is something new.
    pub(super) fn stderr_so_far(&self, is_followed: bool) -> Option<Captured> {
        let Mail { stderr, showing, .. } = &mut *self.mail();
        showing.take(stderr, is_followed)
    }

    pub(super) fn take_stderr(&self) -> Captured {
        mem::replace(&mut self.mail().stderr, Capture::new(0)).finish()
    }
}

/// Returns the waker of this thread. A descriptor for every run would cost as much as the rest of the wait. A wake-up for an
/// earlier run is harmless: the thread checks and waits again.
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
