//! A run while its handler works: saves its reports from time to time, and checks whether it must end.

mod rust;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::cancel_order::CancelOrder;
use super::handler_finish::{HandlerFinish, run_output, storable};
use super::run_listener::RunListener;
use super::unsaved::Unsaved;
use crate::config::{ClassConfig, Protocol};
use crate::handler::command::{CommandHandler, CommandObserver, HandlerEnd};
use crate::handler::handlers::Handlers;
use crate::handler::{CancelToken, Inbox, Reporter, RunContext};
use crate::running::runner::lease::LeaseState;
use crate::running::runner::runner_context::RunnerContext;
use crate::running::runner::stopping::Urgency;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::message::Message;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_process::children::capture::SHOW_FOLLOWED_EVERY;
use taskqueue_process::children::child::{Captured, Control, Stream};
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::identity::ProcessIdentity;

pub(crate) use self::rust::RustRun;

/// The shortest time between two saves, however often the handler reports, while no reader follows its output.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);

/// Collects the reports of a handler.
pub(crate) struct LiveRun<'a> {
    run_id: RunId,
    task_id: TaskId,
    pub(crate) place: Arc<RunnerContext>,
    pub(crate) order: Arc<CancelOrder>,
    /// The reports that were not saved.
    pub(crate) pending: Unsaved,
    /// When reports were saved last.
    saved: Option<Moment>,
    /// Whether its handler had to be killed because the lease expired: the database may be reachable again, but the handler is
    /// gone.
    pub(crate) was_over: bool,
    /// When a handler that was asked to end because of its lease is killed.
    kill_at: Option<Moment>,
    /// `None` if no listener is interested.
    listener: Option<&'a mut dyn RunListener>,
}

impl<'a> LiveRun<'a> {
    pub(crate) fn new(run: &ClaimedRun, place: &Arc<RunnerContext>, listener: Option<&'a mut dyn RunListener>) -> Self {
        let (pending, saved) = (Unsaved::default(), None);
        // A run that is not held is not executed.
        let order = place.leases.cancel_order(run.run_id).unwrap_or_else(|| Arc::new(CancelOrder::new()));
        Self {
            run_id: run.run_id,
            task_id: run.task_id,
            place: Arc::clone(place),
            order,
            pending,
            saved,
            was_over: false,
            kill_at: None,
            listener,
        }
    }

    /// Runs the program of a configured class, by its protocol.
    pub(crate) fn run_class(
        &mut self,
        handlers: &Handlers,
        class: &ClassConfig,
        context: &RunContext,
        socket: Option<&EventSocket>,
    ) -> HandlerFinish {
        let finished = match class.protocol {
            Protocol::OneShot => handlers.command_of(class).map(|command| {
                self.run_program(|alarms, live| command.run(&class.exit_rules, context, alarms, socket, live))
            }),
            Protocol::Coprocess(config) => handlers.coprocess_of(class, config).map(|handler| {
                self.run_program(|alarms, live| handlers.coprocesses().run(&handler, context, alarms, socket, live))
            }),
        };
        finished.unwrap_or_else(HandlerFinish::misconfigured)
    }

    pub(crate) fn run_command(
        &mut self,
        command: &CommandHandler,
        context: &RunContext,
        socket: Option<&EventSocket>,
    ) -> HandlerFinish {
        self.run_program(|alarms, live| command.run(&ExitRules::default(), context, alarms, socket, live))
    }

    fn run_program(&mut self, run: impl FnOnce(&[BorrowedFd<'_>], &mut Self) -> HandlerEnd) -> HandlerFinish {
        let (order, place) = (Arc::clone(&self.order), Arc::clone(&self.place));
        let alarms: Vec<_> = order.alarm().into_iter().chain([place.stopping.alarm()]).collect();
        let HandlerEnd { ending, said, unended, stdout, stderr, usage } = run(&alarms, self);
        // Even when the runner stops: a cancelled run is not released.
        let ending = match (ending, order.reason()) {
            (Ending::Stopped, Some(reason)) => Ending::Cancelled(reason.to_owned()),
            (ending, _) => ending,
        };
        HandlerFinish { said, stdout, stderr, usage, unended, ..HandlerFinish::of(ending) }
    }

    fn check_stopping(&mut self) -> Urgency {
        let (run_id, listener) = (self.run_id, &mut self.listener);
        self.place.stopping.check(&mut |wait| match listener {
            Some(listener) => {
                listener.stopping(&[run_id], wait);
                true
            }
            None => false,
        })
    }

    fn save_handler(&self, pid: i64, identity: String) {
        self.place.leases.save(self.run_id, Unsaved { handler: Some((pid, identity)), ..Unsaved::default() });
    }

    fn may_save(&self) -> bool {
        let Some(elapsed) = self.saved.map(Moment::elapsed) else { return true };
        elapsed >= SAVE_INTERVAL || elapsed >= SHOW_FOLLOWED_EVERY && self.is_followed()
    }

    fn save(&mut self) {
        if !self.may_save() {
            return;
        }
        if let Some(update) = self.pending.take_update() {
            self.saved = Some(Moment::now());
            self.place.leases.save(self.run_id, update);
        }
    }

    fn report(&mut self) {
        self.place.leases.heard_of(self.run_id);
        self.save();
    }
}

impl Reporter for LiveRun<'_> {
    fn progress(&mut self, percent: i32, message: Option<&str>) {
        self.pending.percents_completed = Some(percent);
        if let Some(message) = message {
            self.pending.message = Some(storable(message, 1_000));
        }
        self.report();
    }

    fn results(&mut self, json: &str) {
        self.pending.results = Some(json.to_owned());
        self.report();
    }

    fn heartbeat(&mut self) {
        self.report();
    }

    fn meta(&mut self, meta: Meta) {
        self.pending.add_meta(meta);
        self.report();
    }

    fn message(&mut self, message: Message) {
        self.pending.messages.push(message);
        self.report();
    }

    fn cancel_token(&self) -> CancelToken {
        self.order.token()
    }

    fn inbox(&mut self) -> Inbox {
        self.place.leases.inbox_of(self.run_id, self.task_id)()
    }

    fn stop_reason(&self) -> Option<StopReason> {
        if self.order.reason().is_some() {
            return Some(StopReason::Cancel);
        }
        if self.place.leases.lease_state(self.run_id) != LeaseState::Held {
            return Some(StopReason::LeaseLost);
        }
        self.place.stopping.is_stopping().then_some(StopReason::Shutdown)
    }
}

impl CommandObserver for LiveRun<'_> {
    fn started(&mut self, handler: &ProcessIdentity) {
        // Until it is saved, the handler is found by the token in its environment.
        self.save_handler(i64::from(handler.pid), handler.to_string());
        fault_point!("execute.handler_started");
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(listener) = &mut self.listener {
            listener.output(stream, bytes);
        }
    }

    fn output_so_far(&mut self, stream: Stream, so_far: Captured) {
        self.pending.add_output(run_output(stream, &so_far));
    }

    fn is_followed(&self) -> bool {
        self.place.leases.is_followed(self.run_id)
    }

    fn idle(&mut self) -> Control {
        self.save();
        if self.check_stopping() == Urgency::Kill {
            return Control::Kill;
        }
        match self.place.leases.lease_state(self.run_id) {
            // A handler that was asked to end because of its lease is not resumed, even if the database is reachable again.
            LeaseState::Held if self.kill_at.is_none() => Control::Continue,
            // Another runner processes the task already, so there is no time to ask the handler to end.
            LeaseState::Lost => Control::Kill,
            LeaseState::Held | LeaseState::Over => {
                self.was_over = true;
                let kill_at = *self.kill_at.get_or_insert_with(|| Moment::after(self.place.leases.notice()));
                if kill_at.has_passed() { Control::Kill } else { Control::AskToEnd(StopReason::LeaseLost) }
            }
        }
    }
}
