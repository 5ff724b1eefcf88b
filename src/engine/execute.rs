//! Executes one claimed run and records how it ended (the scheme's processTaskRun).

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::handler_finish::{HandlerFinish, storable};
use super::handlers::Handler;
use super::lease::{LeaseKeeper, Standing};
use super::live_run::LiveRun;
use super::outcomes::{self, GivenBack, Outcome};
use super::stopping::Stopping;
use super::unsaved::Unsaved;
use super::{Context, EngineError, EngineResult};
use crate::domain::decision::{Decision, decide};
use crate::domain::ending::Ending;
use crate::domain::ids::RunId;
use crate::domain::records::{ClaimedRun, RunOutput};
use crate::domain::settings::Settings;
use crate::domain::transition::RunEvent;
use crate::handler::exec::ExecRequest;
use crate::handler::{HandlerError, RunContext};
use crate::os::child::Stream;
use crate::os::event_socket::EventSocket;
use crate::os::spool::SpoolFile;
use crate::store::{EndCondition, RunEnd, RunRef};

/// Beyond timeout and grace, before a runner that should have ended a handler is taken for unable to.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);
/// For how long the lease of a run is kept while its end is being recorded: longer than that is repeated.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// The longest message that is stored, in characters.
pub(super) const MAX_MESSAGE_CHARS: usize = 10_000;

/// Hears what a run does while it is processed.
pub trait RunListener {
    /// The runner was told to stop; its run may go on for so long, and is given back then. Without any time its handler is
    /// asked to end at once.
    fn stopping(&mut self, run_id: RunId, wait: Duration);
    /// It was claimed and is about to start.
    fn claimed(&mut self, run: &ClaimedRun);
    /// Its handler wrote this.
    fn output(&mut self, stream: Stream, bytes: &[u8]);
    /// It ended.
    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome);
}

/// What a runner brings to each of its runs.
pub struct Equipment<'a> {
    /// The settings as they stood when it began.
    pub settings: &'a Settings,
    /// Holds the run.
    pub leases: &'a LeaseKeeper,
    /// Whether it was told to stop.
    pub stopping: &'a Stopping<'a>,
    /// Where `taskqueue progress` reaches it.
    pub socket: Option<&'a EventSocket>,
    /// Where outcomes wait for the database.
    pub spool: Option<SpoolFile>,
}

/// How the execution of a run went.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// What was decided.
    pub decision: Decision,
    /// Exit status for a caller who wants to end as the handler did.
    pub exit_code: u8,
    /// The status that the run had when somebody else was first; the outcome is then only kept as an event.
    pub lost_to: Option<String>,
    /// Processes of the handler that could not be ended.
    pub unended: Option<String>,
}

/// How long a handler with this timeout can be silent while its runner does what it should.
pub(super) fn longest_silence(timeout_secs: i64, kill_grace: Duration) -> Duration {
    let timeout = Duration::from_secs(u64::try_from(timeout_secs).unwrap_or(0));
    timeout.saturating_add(kill_grace).saturating_add(SILENCE_MARGIN)
}

/// Executes the run, wrapped so that every failure becomes an ErrorCode and an ErrorMessage, and records its end.
///
/// # Errors
/// The database's: the end could not be recorded.
pub fn execute_run(
    ctx: &mut Context,
    run: &ClaimedRun,
    equipment: &mut Equipment<'_>,
    listener: &mut dyn RunListener,
) -> EngineResult<RunOutcome> {
    let Equipment { settings, leases, stopping, socket, spool } = equipment;
    let (settings, leases, stopping, socket) = (*settings, *leases, *stopping, *socket);
    listener.claimed(run);
    let timeout_secs = ctx.handlers.timeout_secs(&run.class, run.task_timeout_secs, settings);
    let context = run_context(run, timeout_secs);
    let silence = longest_silence(timeout_secs, ctx.handlers.kill_grace(&run.class));
    let mut live = LiveRun::new(run.run_id, silence, leases, stopping, listener);
    fault_point!("execute.before_handler");
    let finished = match ctx.handlers.find(&run.class) {
        // This process was held up since the claim: somebody else may work for the task by now (rule R7).
        _ if leases.standing(run.run_id) != Standing::Held => HandlerFinish::new(Some(Ending::Stopped), None),
        Some(Handler::Rust(handler)) => {
            let give_back = outcomes::prepared(ctx, run, run_end_of_stop(ctx, run, settings));
            let over = outcomes::prepared(ctx, run, GivenBack::LeaseOver.end());
            live.run_rust(handler, &context, &ctx.me.identity, give_back, over)
        }
        Some(Handler::Command(class)) => live.run_class(&ctx.handlers, class, &context, socket),
        Some(Handler::Exec) => match (ctx.handlers.exec_template(), ExecRequest::parse(&run.data)) {
            (Err(why), _) => HandlerFinish::misconfigured(why),
            (Ok(class), Ok(request)) => live.run_command(&request.into_command(&class), &context, socket),
            (Ok(_), Err(problem)) => {
                HandlerFinish::reported(&HandlerError::no_retry("invalid-data", problem.to_string()))
            }
        },
        None => HandlerFinish::could_not_start("no handler is configured here"),
    };
    fault_point!("execute.handler_ended");
    let was_over = live.was_over();
    let last_news = live.into_last_news();
    let decision = finished.decision(ctx, run, timeout_secs);
    let mut outcome = RunOutcome {
        exit_code: finished.exit_code(&decision),
        decision,
        lost_to: None,
        unended: finished.unended.clone(),
    };
    // Between here and the write its lease is trusted for the margin at least; the write is guarded by its token anyway.
    let is_over = was_over || leases.standing(run.run_id) == Standing::Over;
    // Rule R7: a run of which something still lives is not ended; whoever finds this process gone tries again.
    if outcome.unended.is_none() {
        fault_point!("execute.before_record");
        // Held on to until it is recorded: who waits for room on a full disk must not be taken for dead meanwhile.
        let mut unsaved = leases.take_unsaved(run.run_id, RECORD_LIMIT);
        unsaved.add(last_news);
        unsaved.add(Unsaved { results: finished.results.clone(), ..Unsaved::default() });
        if !unsaved.messages.is_empty() && !is_over {
            // What cannot be kept now is given up: the end of the run must not wait for what was merely said.
            let reference = RunRef { id: run.run_id, token: run.token.clone() };
            let _ = ctx.store.record_messages(&reference, &unsaved.messages);
        }
        let end = run_end(ctx, run, settings, &outcome.decision, unsaved, finished.outputs());
        if !is_over {
            outcome.lost_to = outcomes::record(ctx, spool.as_mut(), &Outcome::new(ctx, run, end))?;
        } else {
            // A handler that succeeded was faster than the KILL.
            let has_succeeded = outcome.decision.event == RunEvent::Succeed;
            let end = if has_succeeded { end } else { GivenBack::LeaseOver.end() };
            let problem = outcomes::leave(spool.as_mut(), &Outcome::new(ctx, run, end));
            ctx.spool_problem = problem.or_else(|| ctx.spool_problem.take());
        }
    }
    if is_over {
        return Err(EngineError::LeaseOver { run_id: run.run_id.0 });
    }
    listener.ended(run, &outcome);
    Ok(outcome)
}

fn run_context(run: &ClaimedRun, timeout_secs: i64) -> RunContext {
    let text = |instant: DateTime<Utc>| instant.to_rfc3339_opts(SecondsFormat::Micros, true);
    let deadline = TimeDelta::try_seconds(timeout_secs).and_then(|timeout| run.started_on.checked_add_signed(timeout));
    RunContext {
        task_id: run.task_id.0,
        run_id: run.run_id.0,
        attempt: run.attempt,
        max_retries: run.max_retries,
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
    ctx: &Context,
    run: &ClaimedRun,
    settings: &Settings,
    decision: &Decision,
    unsaved: Unsaved,
    outputs: Vec<RunOutput>,
) -> RunEnd {
    RunEnd {
        event: decision.event,
        may_retry: decision.may_retry,
        delay_secs: decision.delay_secs,
        backoff: ctx.handlers.backoff(&run.class, settings),
        crash: decision.is_crash.then(|| ctx.crash(&run.class, settings)),
        error_code: storable(&decision.error_code, 190),
        error_message: storable(&decision.error_message, MAX_MESSAGE_CHARS),
        decision: storable(&decision.rule, 190),
        handler: unsaved.handler,
        percents_completed: unsaved.percents_completed,
        message: unsaved.message,
        results: unsaved.results,
        outputs,
        hold: decision.holds_class.then(|| (ctx.me.host.clone(), settings.hold_secs)),
        condition: EndCondition::Held,
        note: None,
    }
}

/// The end of a run that was stopped together with this very process.
fn run_end_of_stop(ctx: &Context, run: &ClaimedRun, settings: &Settings) -> RunEnd {
    let decision = decide(&Ending::Stopped, None, "", &ctx.handlers.exit_rules(&run.class), 0);
    run_end(ctx, run, settings, &decision, Unsaved::default(), Vec::new())
}
