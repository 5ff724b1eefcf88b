//! Executes one claimed run. Every failure becomes an ErrorCode and an ErrorMessage (the scheme's processTaskRun). This module
//! writes nothing; `record` and `work` do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::handler_finish::{HandlerFinish, storable};
use super::in_process::{HandlerThread, run_at};
use super::live_run::{LiveRun, RustRun};
use super::run_listener::{RunListener, RunOutcome};
use super::unsaved::Unsaved;
use crate::handler::exec::ExecRequest;
use crate::handler::handlers::ClassHandler;
use crate::handler::{HandlerError, OverrunAction, RunContext, TaskHandler};
use crate::outbox::outcomes::GivenBack;
use crate::running::runner::lease::LeaseState;
use crate::running::runner::runner_context::{RunPolicy, RunnerContext};
use taskqueue_domain::run::decision::Decision;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::message::Messages;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::end_own::kill_own_process;
use taskqueue_store::RunEnd;

/// How long the lease of a run is kept while its end is being recorded: recording may be retried for this long.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// The longest stored message, in characters.
pub(crate) const MAX_MESSAGE_CHARS: usize = 10_000;

/// A run whose handler has finished and whose end must be recorded.
pub(crate) struct Executed {
    pub(crate) outcome: RunOutcome,
    /// The end to record. `None` while a process of its handler is still alive (rule R7); after this process has ended, a
    /// rescue tries again to end it.
    pub(crate) end: Option<RunEnd>,
    /// Messages of the handler that were not stored yet.
    pub(crate) messages: Messages,
    /// Its lease could not be renewed in time, so this process may write nothing for it.
    pub(crate) is_over: bool,
}

/// Executes the run by the policy under which it was claimed; a Rust handler runs in another thread.
pub(crate) fn execute(
    place: &Arc<RunnerContext>,
    policy: &RunPolicy,
    run: &ClaimedRun,
    socket: Option<&EventSocket>,
    thread: &mut HandlerThread,
    listener: &mut dyn RunListener,
) -> Executed {
    listener.claimed(run);
    let (live, work) = begin(place, policy, run, Some(listener));
    let (handler, context) = match work {
        RunWork::Rust(handler, context) => (handler, context),
        RunWork::Program(context) => return run_program(policy, run, context, socket, live),
    };
    let mut rust = rust_run(policy, run, live);
    let (desk, action) = (rust.desk(), policy.handlers.overrun().action);
    let finished = match thread.begin(move || run_at(&desk, handler.as_ref(), &context, action)) {
        Ok(()) => rust.watch(),
        Err(error) => no_thread(run, &error),
    };
    if finished.is_left_behind {
        thread.leave();
    }
    conclude(policy, run, rust.into_live(), &finished)
}

/// What to execute for a run.
pub(crate) enum RunWork {
    /// A Rust handler.
    Rust(Arc<dyn TaskHandler>, RunContext),
    /// A program, or the end of a run that ended before its program began.
    Program(Result<RunContext, HandlerFinish>),
}

/// Begins a claimed run.
pub(crate) fn begin<'a>(
    place: &Arc<RunnerContext>,
    policy: &RunPolicy,
    run: &ClaimedRun,
    listener: Option<&'a mut dyn RunListener>,
) -> (LiveRun<'a>, RunWork) {
    let live = LiveRun::new(run, place, listener);
    fault_point!("execute.before_handler");
    // This process may have been suspended since the claim, and another runner may already process the task (rule R7).
    if place.leases.lease_state(run.run_id) != LeaseState::Held {
        return (live, RunWork::Program(Err(HandlerFinish::of(Ending::Stopped))));
    }
    // It may have been cancelled before its handler has begun.
    if let Some(reason) = live.order.reason() {
        let cancelled = HandlerFinish::of(Ending::Cancelled(reason.to_owned()));
        return (live, RunWork::Program(Err(cancelled)));
    }
    let context = run_context(run, &policy.settings, policy.limits_of(run).timeout_secs);
    let work = match policy.handlers.find(&run.class) {
        Some(ClassHandler::Rust(handler)) => RunWork::Rust(Arc::clone(handler), context),
        _ => RunWork::Program(Ok(context)),
    };
    (live, work)
}

/// Wraps the run of a Rust handler for the thread that watches it.
pub(crate) fn rust_run<'a>(policy: &RunPolicy, run: &ClaimedRun, live: LiveRun<'a>) -> RustRun<'a> {
    let limits = policy.limits_of(run);
    let limit = Duration::from_secs(u64::try_from(limits.timeout_secs).unwrap_or(u64::MAX));
    RustRun::new(live, limit, limits.kill_grace, policy.handlers.overrun())
}

/// Returns the end of a run for whose handler no thread could be started.
pub(crate) fn no_thread(run: &ClaimedRun, error: &io::Error) -> HandlerFinish {
    let why = format!("could not start {}: cannot start a thread: {error}", run.class);
    HandlerFinish::of(Ending::NoRoom(why))
}

/// Runs the program of a run until it ends, unless the run has ended before.
pub(crate) fn run_program(
    policy: &RunPolicy,
    run: &ClaimedRun,
    context: Result<RunContext, HandlerFinish>,
    socket: Option<&EventSocket>,
    mut live: LiveRun<'_>,
) -> Executed {
    let finished = match context {
        Ok(context) => run_handler(policy, run, &context, socket, &mut live),
        Err(finished) => finished,
    };
    conclude(policy, run, live, &finished)
}

fn run_handler(
    policy: &RunPolicy,
    run: &ClaimedRun,
    context: &RunContext,
    socket: Option<&EventSocket>,
    live: &mut LiveRun<'_>,
) -> HandlerFinish {
    match policy.handlers.find(&run.class) {
        Some(ClassHandler::Command(class)) => live.run_class(&policy.handlers, class, context, socket),
        Some(ClassHandler::Exec) => match (policy.handlers.exec_template(), ExecRequest::parse(&run.data)) {
            (Err(why), _) => HandlerFinish::misconfigured(why),
            (Ok(class), Ok(request)) => live.run_command(&request.into_command(&class), context, socket),
            (Ok(_), Err(problem)) => {
                HandlerFinish::reported(&HandlerError::no_retry("invalid-data", problem.to_string()))
            }
        },
        Some(ClassHandler::Rust(_)) | None => HandlerFinish::could_not_start("no handler is configured here"),
    }
}

/// Returns what to record of a run whose handler has finished.
pub(crate) fn conclude(policy: &RunPolicy, run: &ClaimedRun, live: LiveRun<'_>, finished: &HandlerFinish) -> Executed {
    fault_point!("execute.handler_ended");
    let place = &live.place;
    let decision = finished.decision(&policy.handlers, run, policy.limits_of(run).timeout_secs);
    let outcome = RunOutcome {
        exit_code: finished.exit_code(&decision),
        decision,
        lost_to: None,
        is_given_up: false,
        unended: finished.unended.clone(),
        is_left_behind: finished.is_left_behind,
    };
    // From here to the write, the lease is trusted for at least the margin; in any case the token guards the write.
    let is_over = live.was_over || place.leases.lease_state(run.run_id) == LeaseState::Over;
    if outcome.unended.is_some() {
        return Executed { outcome, end: None, messages: Messages::default(), is_over };
    }
    fault_point!("execute.before_record");
    // The lease is kept until the end is recorded: a runner that waits for space on a full disk must not appear dead.
    let mut unsaved = place.leases.take_unsaved(run.run_id, RECORD_LIMIT);
    unsaved.add(live.pending);
    unsaved.add(Unsaved { results: finished.said.results.clone(), ..Unsaved::default() });
    let messages = std::mem::take(&mut unsaved.messages);
    let end = run_end(place, policy, run, &outcome.decision, unsaved, finished);
    // The handler succeeded before it was killed.
    let has_succeeded = outcome.decision.event == RunEvent::Succeed;
    let end = if is_over && !has_succeeded { GivenBack::LeaseOver.end() } else { end };
    if outcome.is_left_behind {
        // If the database is unreachable, another process on this host may reach it first.
        let leave_end = place.prepared(run, end.clone());
        match policy.handlers.overrun().action {
            OverrunAction::LeaveBehind if is_over => leave_end(),
            OverrunAction::LeaveBehind => {}
            OverrunAction::Abort => {
                leave_end();
                kill_own_process();
            }
        }
    }
    Executed { outcome, end: Some(end), messages, is_over }
}

fn run_context(run: &ClaimedRun, settings: &Settings, timeout_secs: i64) -> RunContext {
    let text = |instant: DateTime<Utc>| instant.to_rfc3339_opts(SecondsFormat::Micros, true);
    let deadline = TimeDelta::try_seconds(timeout_secs).and_then(|timeout| run.started_on.checked_add_signed(timeout));
    RunContext {
        task_id: run.task_id.0,
        run_id: run.run_id.0,
        attempt: run.attempt,
        max_retries: settings.allowed_retries(run.max_retries),
        class: run.class.clone(),
        data: run.data.clone(),
        token: run.token.clone(),
        planned_on: text(run.planned_on),
        timeout_secs,
        deadline: text(deadline.unwrap_or(run.started_on)),
        trace: run.trace.clone(),
    }
}

/// Returns the end to record.
fn run_end(
    place: &RunnerContext,
    policy: &RunPolicy,
    run: &ClaimedRun,
    decision: &Decision,
    unsaved: Unsaved,
    finished: &HandlerFinish,
) -> RunEnd {
    let (code, message) = (storable(&decision.error_code, 190), storable(&decision.error_message, MAX_MESSAGE_CHARS));
    RunEnd {
        may_retry: decision.may_retry,
        delay_secs: decision.delay_secs,
        backoff: policy.handlers.backoff(Some(&run.class), &policy.settings),
        crash: decision.is_crash.then(|| policy.handlers.crash(&place.me, Some(&run.class), &policy.settings)),
        handler: unsaved.handler,
        usage: finished.usage,
        percents_completed: unsaved.percents_completed,
        message: unsaved.message,
        results: unsaved.results,
        meta: unsaved.meta,
        outputs: finished.outputs(),
        hold: decision.holds_class.then(|| (place.me.host.clone(), policy.settings.hold_secs)),
        notes: finished.notes(&place.me, run),
        ..RunEnd::of(decision.event, &code, &message, &storable(&decision.rule, 190))
    }
}
