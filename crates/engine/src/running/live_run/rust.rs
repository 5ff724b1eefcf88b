//! A Rust handler at work. Another thread watches it, asks it to end when it must, and gives up on it if it does not end.

use std::sync::Arc;
use std::time::Duration;

use super::super::handler_finish::HandlerFinish;
use super::super::in_process::{Desk, HandlerUpdate};
use super::LiveRun;
use crate::handler::HandlerError;
use crate::handler::overrun::Overrun;
use crate::running::runner::lease::LeaseState;
use crate::running::runner::stopping::Urgency;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::Moment;

/// The time between two checks of a handler; less than the shortest time that it has to end after its lease is lost.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A run with a Rust handler, for the thread that watches it.
pub(crate) struct RustRun<'a> {
    live: LiveRun<'a>,
    desk: Arc<Desk>,
    /// How long the handler may be silent.
    limit: Duration,
    /// How long it may continue after it was asked to end.
    grace: Duration,
    /// When its timeout expires.
    deadline: Moment,
    asked: Option<StopRequest>,
    /// Whether the row already names the process of the handler.
    is_shown: bool,
}

#[derive(Clone, Copy)]
struct StopRequest {
    why: StopReason,
    give_up_at: Moment,
}

impl<'a> RustRun<'a> {
    /// Wraps a run whose handler is about to begin.
    pub(crate) fn new(live: LiveRun<'a>, limit: Duration, grace: Duration, overrun: &Overrun) -> Self {
        let open_inbox = Box::new(live.place.leases.inbox_of(live.run_id, live.task_id));
        let desk = Arc::new(Desk::new(Arc::clone(&live.order), open_inbox, Arc::clone(&overrun.left_behind)));
        Self { live, desk, limit, grace, deadline: Moment::after(limit), asked: None, is_shown: false }
    }

    /// Returns the exchange that the handler reports to.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }

    /// Returns the run with its reports.
    pub(crate) fn into_live(self) -> LiveRun<'a> {
        self.live
    }

    /// Watches the handler until it ends or is given up on.
    pub(crate) fn watch(&mut self) -> HandlerFinish {
        loop {
            let wants_reports = self.live.may_save();
            let turn = self.desk.wait(self.next_look(), wants_reports);
            if let Some(finish) = self.take_turn(turn) {
                return finish;
            }
        }
    }

    /// Checks the handler once; returns `None` while it may continue.
    pub(crate) fn look(&mut self) -> Option<HandlerFinish> {
        let turn = self.desk.turn();
        self.take_turn(turn)
    }

    /// Returns when the next check is due.
    pub(crate) fn next_look(&self) -> Moment {
        let next = self.asked.map_or(self.deadline, |asked| asked.give_up_at);
        next.min(Moment::after(LOOK_EVERY))
    }

    fn take_turn(&mut self, turn: HandlerUpdate) -> Option<HandlerFinish> {
        if let Some(ended) = self.take_reports(turn) {
            return Some(self.finish_of(ended));
        }
        if !std::mem::replace(&mut self.is_shown, true) {
            self.live.save_handler(self.live.place.me.process_id, self.live.place.identity.to_owned());
        }
        self.ask_to_end();
        self.desk.show(self.reason_shown());
        if self.asked.is_some() {
            self.desk.ask_to_end();
        }
        if !self.asked.is_some_and(|asked| asked.give_up_at.has_passed()) {
            return None;
        }
        let last = self.desk.leave();
        Some(match self.take_reports(last) {
            Some(ended) => self.finish_of(ended),
            None => HandlerFinish { is_left_behind: true, ..HandlerFinish::of(self.ending()) },
        })
    }

    fn take_reports(&mut self, turn: HandlerUpdate) -> Option<Result<(), HandlerError>> {
        self.live.pending.add(turn.unsaved);
        if let Some(heard_at) = turn.heard_at {
            self.live.place.leases.heard_of(self.live.run_id);
            self.deadline = heard_at.plus(self.limit);
        }
        if turn.ended.is_none() {
            self.live.save();
        }
        turn.ended
    }

    /// Checks whether the handler must end, and stores why. The first reason and the earliest deadline count.
    fn ask_to_end(&mut self) {
        let live = &mut self.live;
        let urgency = live.check_stopping();
        let standing = live.place.leases.lease_state(live.run_id);
        live.was_over |= standing == LeaseState::Over;
        let (why, grace) = match standing {
            // Another runner may have started the task already, so this deadline applies even if an earlier request allowed
            // more time.
            LeaseState::Lost | LeaseState::Over => (StopReason::LeaseLost, live.place.leases.notice()),
            LeaseState::Held if urgency == Urgency::Kill => (StopReason::Shutdown, Duration::ZERO),
            LeaseState::Held if live.place.stopping.has_run_out() => (StopReason::Shutdown, self.grace),
            LeaseState::Held if self.deadline.has_passed() => (StopReason::Timeout, self.grace),
            LeaseState::Held => return,
        };
        let give_up_at = Moment::after(grace);
        let asked = self.asked.get_or_insert(StopRequest { why, give_up_at });
        asked.give_up_at = asked.give_up_at.min(give_up_at);
    }

    fn why(&self) -> Option<StopReason> {
        self.asked.map(|asked| asked.why)
    }

    fn reason_shown(&self) -> Option<StopReason> {
        self.why().or_else(|| self.live.place.stopping.is_stopping().then_some(StopReason::Shutdown))
    }

    /// Returns how a run ended that was asked to end, and then failed or was given up on.
    fn ending(&self) -> Ending {
        match (self.why(), self.live.order.reason()) {
            (Some(StopReason::Timeout), _) => Ending::TimedOut,
            // A cancelled run is not released.
            (_, Some(reason)) => Ending::Cancelled(reason.to_owned()),
            (_, None) => Ending::Stopped,
        }
    }

    /// Returns the end for a result of the handler. A success counts however late it is; an error after a request to end counts
    /// as that end.
    fn finish_of(&self, result: Result<(), HandlerError>) -> HandlerFinish {
        match (result, self.why()) {
            (Ok(()), _) => HandlerFinish::default(),
            (Err(error), None) => HandlerFinish::reported(&error),
            (Err(_), Some(_)) => HandlerFinish::of(self.ending()),
        }
    }
}
