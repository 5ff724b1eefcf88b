//! Executes one claimed run, wrapped so that every failure becomes an ErrorCode and an ErrorMessage (the scheme's
//! processTaskRun). Writes nothing: that is for `record` and `work`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::handler_finish::{HandlerFinish, storable};
use super::in_process::HandlerThread;
use super::lease::LeaseState;
use super::live_run::{LiveRun, RustRun};
use super::run_listener::{RunListener, RunOutcome};
use super::runner_context::{RunPolicy, RunnerContext};
use super::unsaved::Unsaved;
use crate::handler::exec::ExecRequest;
use crate::handler::{HandlerError, OverrunAction, RunContext, TaskHandler};
use crate::handlers::Handler;
use crate::outbox::outcomes::GivenBack;
use taskqueue_domain::run::decision::Decision;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::message::Messages;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::records::{ClaimedRun, RunOutput};
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::end_own::kill_own_process;
use taskqueue_store::{EndCondition, RunEnd};

/// For how long the lease of a run is kept while its end is being recorded: longer than that is repeated.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// The longest message that is stored, in characters.
pub(crate) const MAX_MESSAGE_CHARS: usize = 10_000;

/// A run whose handler has finished, and that is to be recorded.
pub(crate) struct Executed {
    pub(crate) outcome: RunOutcome,
    /// What is written of it; `None` while something of its handler still lives (rule R7): whoever finds this process gone tries
    /// again.
    pub(crate) end: Option<RunEnd>,
    /// What the handler said for anyone who follows, and nobody has kept yet.
    pub(crate) messages: Messages,
    /// Its lease could not be renewed in time: nothing may be written for it by this process.
    pub(crate) is_over: bool,
}

/// Executes the run by the policy under which it was claimed, its handler in Rust on another thread.
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
        Work::Rust(handler, context) => (handler, context),
        Work::Program(context) => return run_program(place, policy, run, context, socket, live),
    };
    let mut rust = rust_run(policy, run, live);
    let overrun = policy.handlers.overrun();
    let finished = match thread.begin(handler, context, rust.desk(), overrun.action) {
        Ok(()) => rust.watch(),
        Err(error) => no_thread(run, &error),
    };
    if finished.is_left_behind {
        thread.leave();
    }
    conclude(place, policy, run, rust.into_live(), &finished)
}

/// What is done for a run.
pub(crate) enum Work {
    /// A handler in Rust.
    Rust(Arc<dyn TaskHandler>, RunContext),
    /// A program, unless the run has ended before it began.
    Program(Result<RunContext, HandlerFinish>),
}

/// Begins a run that was claimed.
pub(crate) fn begin<'a>(
    place: &Arc<RunnerContext>,
    policy: &RunPolicy,
    run: &ClaimedRun,
    listener: Option<&'a mut dyn RunListener>,
) -> (LiveRun<'a>, Work) {
    let live = LiveRun::new(run, place, listener);
    fault_point!("execute.before_handler");
    // This process was held up since the claim: another runner may work for the task by now (rule R7).
    if place.leases.lease_state(run.run_id) != LeaseState::Held {
        return (live, Work::Program(Err(HandlerFinish::new(Some(Ending::Stopped), None))));
    }
    if let Some(reason) = live.was_cancelled() {
        let cancelled = HandlerFinish::new(Some(Ending::Cancelled(reason.to_owned())), None);
        return (live, Work::Program(Err(cancelled)));
    }
    let context = run_context(run, &policy.settings, policy.limits_of(run).timeout_secs);
    let work = match policy.handlers.find(&run.class) {
        Some(Handler::Rust(handler)) => Work::Rust(Arc::clone(handler), context),
        _ => Work::Program(Ok(context)),
    };
    (live, work)
}

/// The run of a handler in Rust, for the thread that watches it.
pub(crate) fn rust_run<'a>(policy: &RunPolicy, run: &ClaimedRun, live: LiveRun<'a>) -> RustRun<'a> {
    let limits = policy.limits_of(run);
    let limit = Duration::from_secs(u64::try_from(limits.timeout_secs).unwrap_or(u64::MAX));
    RustRun::new(live, limit, limits.kill_grace, policy.handlers.overrun())
}

/// There is no thread for the handler of the run.
pub(crate) fn no_thread(run: &ClaimedRun, error: &io::Error) -> HandlerFinish {
    let why = format!("could not start {}: no thread for it: {error}", run.class);
    HandlerFinish::new(Some(Ending::NoRoom(why)), None)
}

/// Runs the program of a run to its end, unless the run has ended before.
pub(crate) fn run_program(
    place: &RunnerContext,
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
    conclude(place, policy, run, live, &finished)
}

fn run_handler(
    policy: &RunPolicy,
    run: &ClaimedRun,
    context: &RunContext,
    socket: Option<&EventSocket>,
    live: &mut LiveRun<'_>,
) -> HandlerFinish {
    match policy.handlers.find(&run.class) {
        Some(Handler::Command(class)) => live.run_class(&policy.handlers, class, context, socket),
        Some(Handler::Exec) => match (policy.handlers.exec_template(), ExecRequest::parse(&run.data)) {
            (Err(why), _) => HandlerFinish::misconfigured(why),
            (Ok(class), Ok(request)) => live.run_command(&request.into_command(&class), context, socket),
            (Ok(_), Err(problem)) => {
                HandlerFinish::reported(&HandlerError::no_retry("invalid-data", problem.to_string()))
            }
        },
        Some(Handler::Rust(_)) | None => HandlerFinish::could_not_start("no handler is configured here"),
    }
}

/// What is to be recorded of a run whose handler has finished so.
pub(crate) fn conclude(
    place: &RunnerContext,
    policy: &RunPolicy,
    run: &ClaimedRun,
    live: LiveRun<'_>,
    finished: &HandlerFinish,
) -> Executed {
    fault_point!("execute.handler_ended");
    let was_over = live.was_over();
    let last_update = live.into_last_update();
    let decision = finished.decision(&policy.handlers, run, policy.limits_of(run).timeout_secs);
    let outcome = RunOutcome {
        exit_code: finished.exit_code(&decision),
        decision,
        lost_to: None,
        is_given_up: false,
        unended: finished.unended.clone(),
        is_left_behind: finished.is_left_behind,
    };
    // Between here and the write its lease is trusted for the margin at least; the write is guarded by its token anyway.
    let is_over = was_over || place.leases.lease_state(run.run_id) == LeaseState::Over;
    if outcome.unended.is_some() {
        return Executed { outcome, end: None, messages: Messages::default(), is_over };
    }
    fault_point!("execute.before_record");
    // Held on to until it is recorded: who waits for room on a full disk must not be taken for dead meanwhile.
    let mut unsaved = place.leases.take_unsaved(run.run_id, RECORD_LIMIT);
    unsaved.add(last_update);
    unsaved.add(Unsaved { results: finished.results.clone(), ..Unsaved::default() });
    let messages = std::mem::take(&mut unsaved.messages);
    let mut end = run_end(place, policy, run, &outcome.decision, unsaved, finished.outputs());
    end.notes = finished.notes(&place.me, run);
    // A handler that succeeded was faster than the KILL.
    let has_succeeded = outcome.decision.event == RunEvent::Succeed;
    let end = if is_over && !has_succeeded { GivenBack::LeaseOver.end() } else { end };
    if outcome.is_left_behind {
        // Where the database is away, another process of this host may reach it before this one.
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
    }
}

/// What is written of a run that ended so.
fn run_end(
    place: &RunnerContext,
    policy: &RunPolicy,
    run: &ClaimedRun,
    decision: &Decision,
    unsaved: Unsaved,
    outputs: Vec<RunOutput>,
) -> RunEnd {
    RunEnd {
        event: decision.event,
        may_retry: decision.may_retry,
        delay_secs: decision.delay_secs,
        backoff: policy.handlers.backoff(Some(&run.class), &policy.settings),
        loss: None,
        unreadable: None,
        crash: decision.is_crash.then(|| policy.crash(&place.me, &run.class)),
        error_code: storable(&decision.error_code, 190),
        error_message: storable(&decision.error_message, MAX_MESSAGE_CHARS),
        decision: storable(&decision.rule, 190),
        handler: unsaved.handler,
        percents_completed: unsaved.percents_completed,
        message: unsaved.message,
        results: unsaved.results,
        meta: unsaved.meta,
        outputs,
        hold: decision.holds_class.then(|| (place.me.host.clone(), policy.settings.hold_secs)),
        condition: EndCondition::Held,
        restarts_task: false,
        notes: Vec::new(),
    }
}
