//! Executes one claimed run, wrapped so that every failure becomes an ErrorCode and an ErrorMessage (the scheme's
//! processTaskRun). Writes nothing: that is for `record` and `work`.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::handler_finish::{HandlerFinish, storable};
use super::handlers::Handler;
use super::in_process::HandlerThread;
use super::lease::Standing;
use super::live_run::{InProcessTerms, LiveRun};
use super::outcomes::GivenBack;
use super::run_listener::{RunListener, RunOutcome};
use super::unsaved::Unsaved;
use super::workplace::{Terms, Workplace};
use crate::domain::decision::Decision;
use crate::domain::ending::Ending;
use crate::domain::message::Messages;
use crate::domain::records::{ClaimedRun, RunOutput};
use crate::domain::settings::Settings;
use crate::domain::transition::RunEvent;
use crate::handler::exec::ExecRequest;
use crate::handler::{HandlerError, OverrunAction, RunContext};
use crate::os::end_own::kill_own_process;
use crate::os::event_socket::EventSocket;
use crate::store::{EndCondition, RunEnd};

/// For how long the lease of a run is kept while its end is being recorded: longer than that is repeated.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// The longest message that is stored, in characters.
pub(super) const MAX_MESSAGE_CHARS: usize = 10_000;

/// A run whose handler has finished, and that is to be recorded.
pub(super) struct Executed {
    pub(super) outcome: RunOutcome,
    /// What is written of it; `None` while something of its handler still lives (rule R7): whoever finds this process gone tries
    /// again.
    pub(super) end: Option<RunEnd>,
    /// What the handler said for anyone who follows, and nobody has kept yet.
    pub(super) messages: Messages,
    /// Its lease could not be renewed in time: nothing may be written for it by this process.
    pub(super) is_over: bool,
}

/// Executes the run on the terms on which it was claimed.
pub(super) fn execute(
    place: &Workplace<'_>,
    terms: &Terms,
    run: &ClaimedRun,
    socket: Option<&EventSocket>,
    thread: &mut HandlerThread,
    listener: &mut dyn RunListener,
) -> Executed {
    listener.claimed(run);
    let limits = terms.limits_of(run);
    let mut live = LiveRun::new(run, place.leases, place.stopping, listener);
    fault_point!("execute.before_handler");
    let context = run_context(run, &terms.settings, limits.timeout_secs);
    let finished = run_handler(place, terms, run, &context, socket, thread, &mut live);
    fault_point!("execute.handler_ended");
    let was_over = live.was_over();
    let last_news = live.into_last_news();
    let decision = finished.decision(&terms.handlers, run, limits.timeout_secs);
    let outcome = RunOutcome {
        exit_code: finished.exit_code(&decision),
        decision,
        lost_to: None,
        is_given_up: false,
        unended: finished.unended.clone(),
        is_left_behind: finished.is_left_behind,
    };
    // Between here and the write its lease is trusted for the margin at least; the write is guarded by its token anyway.
    let is_over = was_over || place.leases.standing(run.run_id) == Standing::Over;
    if outcome.unended.is_some() {
        return Executed { outcome, end: None, messages: Messages::default(), is_over };
    }
    fault_point!("execute.before_record");
    // Held on to until it is recorded: who waits for room on a full disk must not be taken for dead meanwhile.
    let mut unsaved = place.leases.take_unsaved(run.run_id, RECORD_LIMIT);
    unsaved.add(last_news);
    unsaved.add(Unsaved { results: finished.results.clone(), ..Unsaved::default() });
    let messages = std::mem::take(&mut unsaved.messages);
    let mut end = run_end(place, terms, run, &outcome.decision, unsaved, finished.outputs());
    end.notes = finished.notes(&place.me, run);
    // A handler that succeeded was faster than the KILL.
    let has_succeeded = outcome.decision.event == RunEvent::Succeed;
    let end = if is_over && !has_succeeded { GivenBack::LeaseOver.end() } else { end };
    if outcome.is_left_behind {
        // Where the database is away, another process of this host may reach it before this one.
        let leave_end = place.prepared(run, end.clone());
        match terms.handlers.overrun().action {
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

fn run_handler(
    place: &Workplace<'_>,
    terms: &Terms,
    run: &ClaimedRun,
    context: &RunContext,
    socket: Option<&EventSocket>,
    thread: &mut HandlerThread,
    live: &mut LiveRun<'_>,
) -> HandlerFinish {
    match terms.handlers.find(&run.class) {
        // This process was held up since the claim: somebody else may work for the task by now (rule R7).
        _ if place.leases.standing(run.run_id) != Standing::Held => HandlerFinish::new(Some(Ending::Stopped), None),
        _ if live.was_cancelled().is_some() => {
            HandlerFinish::new(live.was_cancelled().map(|reason| Ending::Cancelled(reason.to_owned())), None)
        }
        Some(Handler::Rust(handler)) => {
            let in_process =
                InProcessTerms { grace: terms.limits_of(run).kill_grace, overrun: terms.handlers.overrun() };
            live.run_rust(handler, context, place.identity, &in_process, thread)
        }
        Some(Handler::Command(class)) => live.run_class(&terms.handlers, class, context, socket),
        Some(Handler::Exec) => match (terms.handlers.exec_template(), ExecRequest::parse(&run.data)) {
            (Err(why), _) => HandlerFinish::misconfigured(why),
            (Ok(class), Ok(request)) => live.run_command(&request.into_command(&class), context, socket),
            (Ok(_), Err(problem)) => {
                HandlerFinish::reported(&HandlerError::no_retry("invalid-data", problem.to_string()))
            }
        },
        None => HandlerFinish::could_not_start("no handler is configured here"),
    }
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
    place: &Workplace<'_>,
    terms: &Terms,
    run: &ClaimedRun,
    decision: &Decision,
    unsaved: Unsaved,
    outputs: Vec<RunOutput>,
) -> RunEnd {
    RunEnd {
        event: decision.event,
        may_retry: decision.may_retry,
        delay_secs: decision.delay_secs,
        backoff: terms.handlers.backoff(Some(&run.class), &terms.settings),
        loss: None,
        unreadable: None,
        crash: decision.is_crash.then(|| terms.crash(&place.me, &run.class)),
        error_code: storable(&decision.error_code, 190),
        error_message: storable(&decision.error_message, MAX_MESSAGE_CHARS),
        decision: storable(&decision.rule, 190),
        handler: unsaved.handler,
        percents_completed: unsaved.percents_completed,
        message: unsaved.message,
        results: unsaved.results,
        meta: unsaved.meta,
        outputs,
        hold: decision.holds_class.then(|| (place.me.host.clone(), terms.settings.hold_secs)),
        condition: EndCondition::Held,
        restarts_task: false,
        notes: Vec::new(),
    }
}
