//! Passes reports and requests between a Rust handler and the thread that watches it. It is the only way from the handler to
//! the store: once the handler was given up on, whatever it reports or returns is dropped here.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::cancel_order::CancelOrder;
use super::super::handler_finish::storable;
use super::super::unsaved::Unsaved;
use crate::handler::overrun::{LeftBehind, OverrunAction};
use crate::handler::{CancelToken, HandlerError, Inbox, Reporter, RunContext, TaskHandler, run_rust_handler};
use taskqueue_domain::run::message::Message;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::meta::Meta;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::thread_names::{name_own_thread, own_thread_name};
use taskqueue_process::identities::survivors::thread_name;

/// Opens the inbox of a run.
pub(crate) type DeskInbox = Box<dyn Fn() -> Inbox + Send + Sync>;

/// The exchange for one run.
pub(crate) struct Desk {
    order: Arc<CancelOrder>,
    open_inbox: DeskInbox,
    left_behind: Arc<LeftBehind>,
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DeskState {
    unsaved: Unsaved,
    heard_at: Option<Moment>,
    stop_reason: Option<StopReason>,
    ended: Option<Result<(), HandlerError>>,
    /// Set once the handler calls for messages.
    inbox: Option<Inbox>,
    /// Whether the handler was asked to end.
    is_asked: bool,
    /// Whether it was given up on.
    is_left: bool,
}

/// What the handler has reported since the last read.
pub(crate) struct HandlerUpdate {
    pub(crate) unsaved: Unsaved,
    /// When it last reported.
    pub(crate) heard_at: Option<Moment>,
    /// Its result, once it has returned.
    pub(crate) ended: Option<Result<(), HandlerError>>,
}

impl Desk {
    pub(crate) fn new(order: Arc<CancelOrder>, open_inbox: DeskInbox, left_behind: Arc<LeftBehind>) -> Self {
        Self { order, open_inbox, left_behind, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `until` for the end of the handler, or with `wants_reports` for a report.
    pub(crate) fn wait(&self, until: Moment, wants_reports: bool) -> HandlerUpdate {
        let mut state = self.lock();
        while state.ended.is_none() && !(wants_reports && state.heard_at.is_some()) && !until.has_passed() {
            state = self.changed.wait_timeout(state, until.remaining()).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.turn()
    }

    /// Returns what was reported since the last read.
    pub(crate) fn turn(&self) -> HandlerUpdate {
        self.lock().turn()
    }

    /// Sets the stop reason for the handler; `None` while it may continue.
    pub(crate) fn show(&self, reason: Option<StopReason>) {
        self.lock().stop_reason = reason;
    }

    /// Asks the handler to end, and ends its waits for a cancel or a message.
    pub(crate) fn ask_to_end(&self) {
        let inbox = {
            let mut state = self.lock();
            state.is_asked = true;
            state.inbox.clone()
        };
        // After setting the reason: the thread that wakes up reads it.
        self.order.token().cancel();
        if let Some(inbox) = inbox {
            inbox.close();
        }
    }

    fn inbox(&self) -> Inbox {
        let inbox = (self.open_inbox)();
        let mut state = self.lock();
        if state.is_asked || state.is_left {
            inbox.close();
        }
        state.inbox = Some(inbox.clone());
        inbox
    }

    /// Gives up on the handler, unless it has just ended. Its thread counts as left behind until it ends.
    pub(crate) fn leave(&self) -> HandlerUpdate {
        let mut state = self.lock();
        state.is_left = state.ended.is_none();
        if state.is_left {
            self.left_behind.add();
        }
        state.turn()
    }

    /// Stores the result of the handler.
    fn end(&self, result: Result<(), HandlerError>) {
        let mut state = self.lock();
        if state.is_left {
            return self.left_behind.remove();
        }
        state.ended = Some(result);
        drop(state);
        self.changed.notify_all();
    }

    fn report(&self, change: impl FnOnce(&mut Unsaved)) {
        let mut state = self.lock();
        if state.is_left {
            return;
        }
        change(&mut state.unsaved);
        let is_first = state.heard_at.replace(Moment::now()).is_none();
        drop(state);
        if is_first {
            self.changed.notify_all();
        }
    }
}

impl DeskState {
    fn turn(&mut self) -> HandlerUpdate {
        HandlerUpdate {
            unsaved: std::mem::take(&mut self.unsaved),
            heard_at: self.heard_at.take(),
            ended: self.ended.take(),
        }
    }
}

/// Runs a handler in the calling thread until it returns.
pub(crate) fn run_at(desk: &Desk, handler: &dyn TaskHandler, context: &RunContext, action: OverrunAction) {
    // The name of the thread shows the run, so that a process that rescues it can find and kill this one.
    let own_name = (action == OverrunAction::Abort).then(own_thread_name);
    if own_name.is_some() {
        name_own_thread(&thread_name(&context.token));
    }
    let mut ending = SlotEnding { desk, result: None };
    ending.result = Some(run_rust_handler(handler, context, &mut DeskReporter(desk)));
    if let Some(own_name) = own_name {
        name_own_thread(&own_name);
    }
}

/// Records the end of the handler, even if the handler ended its thread.
struct SlotEnding<'a> {
    desk: &'a Desk,
    result: Option<Result<(), HandlerError>>,
}

impl Drop for SlotEnding<'_> {
    fn drop(&mut self) {
        let ended_thread = || Err(HandlerError::new("panic", "the handler ended its thread"));
        self.desk.end(self.result.take().unwrap_or_else(ended_thread));
    }
}

/// The reporter of the handler.
struct DeskReporter<'a>(&'a Desk);

impl Reporter for DeskReporter<'_> {
    fn progress(&mut self, percent: i32, message: Option<&str>) {
        self.0.report(|unsaved| {
            unsaved.percents_completed = Some(percent);
            if let Some(message) = message {
                unsaved.message = Some(storable(message, 1_000));
            }
        });
    }

    fn results(&mut self, json: &str) {
        self.0.report(|unsaved| unsaved.results = Some(json.to_owned()));
    }

    fn heartbeat(&mut self) {
        self.0.report(|_| {});
    }

    fn meta(&mut self, meta: Meta) {
        self.0.report(|unsaved| unsaved.add_meta(meta));
    }

    fn message(&mut self, message: Message) {
        self.0.report(|unsaved| unsaved.messages.push(message));
    }

    fn cancel_token(&self) -> CancelToken {
        self.0.order.token()
    }

    fn inbox(&mut self) -> Inbox {
        self.0.inbox()
    }

    fn stop_reason(&self) -> Option<StopReason> {
        let is_cancelled = self.0.order.reason().is_some();
        if is_cancelled { Some(StopReason::Cancel) } else { self.0.lock().stop_reason }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn desk() -> Desk {
        Desk::new(Arc::new(CancelOrder::new()), Box::new(Inbox::default), Arc::default())
    }

    #[test]
    fn what_comes_after_it_was_given_up_on_is_dropped() {
        let desk = desk();
        DeskReporter(&desk).progress(10, None);
        assert_eq!(desk.leave().unsaved.percents_completed, Some(10));
        DeskReporter(&desk).progress(90, None);
        DeskReporter(&desk).results("1");
        assert_eq!(desk.left_behind.count(), 1);
        desk.end(Ok(()));
        assert_eq!(desk.left_behind.count(), 0);
        let turn = desk.wait(Moment::now(), true);
        assert!(turn.unsaved.is_empty() && turn.heard_at.is_none() && turn.ended.is_none());
    }

    #[test]
    fn a_handler_that_is_asked_to_end_waits_for_no_message_any_more() {
        let desk = desk();
        let before = DeskReporter(&desk).inbox();
        desk.ask_to_end();
        let after = DeskReporter(&desk).inbox();
        assert_eq!([before, after].map(|inbox| inbox.wait(Duration::from_secs(600))), [None, None]);
        assert!(DeskReporter(&desk).cancel_token().wait(Duration::ZERO));
    }

    #[test]
    fn a_handler_that_ends_while_it_is_given_up_on_has_ended() {
        let desk = desk();
        desk.end(Ok(()));
        assert!(matches!(desk.leave().ended, Some(Ok(()))));
        assert_eq!(desk.left_behind.count(), 0);
    }

    #[test]
    fn reports_are_waited_for_only_where_they_are_wanted() {
        let desk = desk();
        DeskReporter(&desk).heartbeat();
        let turn = desk.wait(Moment::after(Duration::from_secs(60)), true);
        assert!(turn.heard_at.is_some());
        DeskReporter(&desk).heartbeat();
        let until = Moment::after(Duration::from_millis(5));
        assert!(desk.wait(until, false).heard_at.is_some() && until.has_passed());
    }
}
