//! A handler in Rust while it works: it is asked to end where it must, and given up on where it does not.

use std::sync::Arc;
use std::time::Duration;

use super::super::handler_finish::HandlerFinish;
use super::super::in_process::{Desk, HandlerThread, Turn};
use super::super::lease::Standing;
use super::super::stopping::Urgency;
use super::LiveRun;
use crate::domain::ending::Ending;
use crate::domain::stop_reason::StopReason;
use crate::handler::overrun::Overrun;
use crate::handler::{HandlerError, RunContext, TaskHandler};
use crate::os::clock::Moment;

/// Between two questions whether the handler must end; less than the shortest notice of a lease.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// On which terms a handler in Rust works.
pub(in super::super) struct InProcessTerms<'a> {
    /// How long it may go on once it is asked to end.
    pub(in super::super) grace: Duration,
    /// What happens where it goes on for longer.
    pub(in super::super) overrun: &'a Overrun,
}

/// When a handler is asked to end, and when it is given up on.
struct Watch {
    /// How long it may be silent.
    limit: Duration,
    grace: Duration,
    deadline: Moment,
    asked: Option<Asked>,
}

#[derive(Clone, Copy)]
struct Asked {
    why: StopReason,
    give_up_at: Moment,
}

impl Watch {
    /// The first reason counts, and the earliest end.
    fn ask(&mut self, why: StopReason, give_up_at: Moment) {
        let asked = self.asked.get_or_insert(Asked { why, give_up_at });
        asked.give_up_at = asked.give_up_at.min(give_up_at);
    }

    fn why(&self) -> Option<StopReason> {
        self.asked.map(|asked| asked.why)
    }

    fn is_over(&self) -> bool {
        self.asked.is_some_and(|asked| asked.give_up_at.has_passed())
    }

    fn next_turn(&self) -> Moment {
        let next = self.asked.map_or(self.deadline, |asked| asked.give_up_at);
        next.min(Moment::after(ASK_EVERY))
    }
}

impl LiveRun<'_> {
    /// In this very process.
    pub(in super::super) fn run_rust(
        &mut self,
        handler: &Arc<dyn TaskHandler>,
        context: &RunContext,
        own_identity: &str,
        terms: &InProcessTerms<'_>,
        thread: &mut HandlerThread,
    ) -> HandlerFinish {
        let open_inbox = Box::new(self.leases.inbox_of(self.run_id, self.task_id));
        let begun = thread.begin(Arc::clone(handler), context, Arc::clone(&self.order), open_inbox, terms.overrun);
        let desk = match begun {
            Ok(desk) => desk,
            Err(error) => {
                let why = format!("could not start {}: no thread for it: {error}", context.class);
                return HandlerFinish::new(Some(Ending::NoRoom(why)), None);
            }
        };
        self.save_handler(i64::from(std::process::id()), own_identity.to_owned());
        let limit = Duration::from_secs(u64::try_from(context.timeout_secs).unwrap_or(u64::MAX));
        let mut watch = Watch { limit, grace: terms.grace, deadline: Moment::after(limit), asked: None };
        match self.watch(&desk, &mut watch) {
            Some(result) => self.finish_of(result, watch.why()),
            None => {
                thread.leave();
                let ending = self.ending_of(watch.why());
                HandlerFinish { is_left_behind: true, ..HandlerFinish::new(Some(ending), None) }
            }
        }
    }

    /// Until the handler ends, or is given up on: `None`.
    fn watch(&mut self, desk: &Desk, watch: &mut Watch) -> Option<Result<(), HandlerError>> {
        loop {
            let wants_reports = self.save_after.has_passed();
            let turn = desk.wait(watch.next_turn(), wants_reports);
            let ended = self.take_turn(turn, watch);
            if ended.is_some() {
                return ended;
            }
            self.ask_to_end(watch);
            desk.show(self.reason_shown(watch));
            if watch.asked.is_some() {
                desk.ask_to_end();
            }
            if watch.is_over() {
                let last = desk.leave();
                return self.take_turn(last, watch);
            }
        }
    }

    fn take_turn(&mut self, turn: Turn, watch: &mut Watch) -> Option<Result<(), HandlerError>> {
        self.pending.add(turn.unsaved);
        if let Some(heard_at) = turn.heard_at {
            self.leases.heard_of(self.run_id);
            watch.deadline = heard_at.plus(watch.limit);
        }
        self.save();
        turn.ended
    }

    /// Notes why the handler must end, where it must.
    fn ask_to_end(&mut self, watch: &mut Watch) {
        let urgency = self.check_stopping();
        let standing = self.leases.standing(self.run_id);
        self.was_over |= standing == Standing::Over;
        let (why, grace) = match standing {
            // Another runner may begin at once, or has: what was asked before does not prolong that.
            Standing::Lost | Standing::Over => (StopReason::LeaseLost, self.leases.notice()),
            Standing::Held if urgency == Urgency::Kill => (StopReason::Shutdown, Duration::ZERO),
            Standing::Held if self.stopping.has_run_out() => (StopReason::Shutdown, watch.grace),
            Standing::Held if watch.deadline.has_passed() => (StopReason::Timeout, watch.grace),
            Standing::Held => return,
        };
        watch.ask(why, Moment::after(grace));
    }

    fn reason_shown(&self, watch: &Watch) -> Option<StopReason> {
        watch.why().or_else(|| self.stopping.is_stopping().then_some(StopReason::Shutdown))
    }

    /// How a run ended that was asked to end for this reason, and failed or was given up on.
    fn ending_of(&self, why: Option<StopReason>) -> Ending {
        match (why, self.order.reason()) {
            (Some(StopReason::Timeout), _) => Ending::TimedOut,
            // What is cancelled is not given back.
            (_, Some(reason)) => Ending::Cancelled(reason.to_owned()),
            (_, None) => Ending::Stopped,
        }
    }

    /// A success stays one, however late it comes. An error after it was asked to end is that end.
    fn finish_of(&self, result: Result<(), HandlerError>, why: Option<StopReason>) -> HandlerFinish {
        match (result, why) {
            (Ok(()), _) => HandlerFinish::new(None, None),
            (Err(error), None) => HandlerFinish::reported(&error),
            (Err(_), why) => HandlerFinish::new(Some(self.ending_of(why)), None),
        }
    }
}
