//! Executes one claimed run and records how it ended (the scheme's processTaskRun).

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::handlers::Handler;
use super::lease::{LeaseKeeper, Standing};
use super::outcomes::{self, GivenBack, Outcome};
use super::stopping::{Stopping, Urgency};
use super::unsaved::Unsaved;
use super::{Context, EngineError, EngineResult};
use crate::domain::backoff::possible_delay_secs;
use crate::domain::decision::{Decision, decide};
use crate::domain::ending::{Ending, ReportedError};
use crate::domain::ids::RunId;
use crate::domain::records::{ClaimedRun, RunOutput};
use crate::domain::settings::Settings;
use crate::domain::transition::RunEvent;
use crate::handler::command::{CommandHandler, CommandObserver, HandlerEnd};
use crate::handler::exec::ExecRequest;
use crate::handler::{HandlerError, Reporter, RunContext, TaskHandler, run_rust_handler};
use crate::os::child::{Captured, Control, Stream};
use crate::os::clock::Moment;
use crate::os::event_socket::EventSocket;
use crate::os::identity::ProcessIdentity;
use crate::os::spool::SpoolFile;
use crate::os::survivors::thread_name;
use crate::os::watchdog::Watchdog;
use crate::store::{EndCondition, RunEnd};

/// Beyond timeout and grace, before a runner that should have ended a handler is taken for unable to.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);
/// Reports are saved at most this often, however often the handler sends them.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);
/// The longest message that is stored, in characters.
const MAX_MESSAGE_CHARS: usize = 10_000;

/// Hears what a run does while it is processed.
pub trait RunListener {
    /// The runner was told to stop; its run may go on for so long, and is given back then.
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
    let mut live = LiveRun {
        run_id: run.run_id,
        leases,
        longest_silence: longest_silence(timeout_secs, ctx.handlers.kill_grace(&run.class)),
        pending: Unsaved::default(),
        save_after: Moment::now(),
        watchdog: None,
        stopping,
        listener,
    };
    fault_point!("execute.before_handler");
    let finished = match ctx.handlers.find(&run.class) {
        // This process was held up since the claim: somebody else may work for the task by now (rule R7).
        _ if leases.standing(run.run_id) != Standing::Held => HandlerFinish::new(Some(Ending::Stopped), None),
        Some(Handler::Rust(handler)) => {
            let give_back = outcomes::prepared(ctx, run, run_end_of_stop(ctx, run, settings));
            let over = outcomes::prepared(ctx, run, GivenBack::LeaseOver.end());
            live.run_rust(handler, &context, &ctx.me.identity, give_back, over)
        }
        Some(Handler::Command(class)) => match ctx.handlers.command_of(class) {
            Ok(command) => live.run_command(&command, &context, socket),
            Err(why) => HandlerFinish::misconfigured(why),
        },
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
    let last_news = live.pending;
    let decision = finished.decision(ctx, run, timeout_secs);
    let mut outcome = RunOutcome {
        exit_code: finished.exit_code(&decision),
        decision,
        lost_to: None,
        unended: finished.unended.clone(),
    };
    // Between here and the write its lease is trusted for the margin at least; the write is guarded by its token anyway.
    let is_over = leases.standing(run.run_id) == Standing::Over;
    // Rule R7: a run of which something still lives is not ended; whoever finds this process gone tries again.
    if outcome.unended.is_none() {
        fault_point!("execute.before_record");
        let mut unsaved = leases.let_go(run.run_id);
        unsaved.add(last_news);
        unsaved.add(Unsaved { results: finished.results.clone(), ..Unsaved::default() });
        let end = run_end(ctx, run, settings, &outcome.decision, unsaved, outputs(&finished));
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

/// How a handler finished, whichever kind it is.
struct HandlerFinish {
    ending: Option<Ending>,
    error: Option<ReportedError>,
    results: Option<String>,
    stdout: Captured,
    stderr: Captured,
    unended: Option<String>,
    unread_events: u64,
}

impl HandlerFinish {
    fn new(ending: Option<Ending>, error: Option<ReportedError>) -> Self {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        Self { ending, error, results: None, stdout, stderr, unended: None, unread_events: 0 }
    }

    fn could_not_start(why: &str) -> Self {
        Self::new(Some(Ending::CouldNotStart(why.to_owned())), None)
    }

    fn misconfigured(why: String) -> Self {
        Self::new(Some(Ending::Misconfigured(why)), None)
    }

    fn reported(error: &HandlerError) -> Self {
        let error = ReportedError {
            code: error.code.clone(),
            message: error.message.clone(),
            retry: Some(error.retry),
            // The field is public: a handler may have set it by hand.
            delay_secs: error.delay_secs.map(possible_delay_secs),
        };
        Self::new(None, Some(error))
    }

    fn decision(&self, ctx: &Context, run: &ClaimedRun, timeout_secs: i64) -> Decision {
        let decision = match (&self.ending, &self.error) {
            (Some(ending), error) => {
                let stderr = self.stderr.to_text();
                let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                decide(ending, error.as_ref(), last_line, &ctx.handlers.exit_rules(&run.class), timeout_secs)
            }
            (None, Some(error)) => Decision::reported(error),
            (None, None) => Decision::returned(),
        };
        decision.with_unread_events(self.unread_events)
    }

    fn exit_code(&self, decision: &Decision) -> u8 {
        match &self.ending {
            // A handler that reports an error has failed, whatever it exits with.
            Some(Ending::Exited(0)) => u8::from(decision.event != RunEvent::Succeed),
            Some(Ending::Exited(code)) => u8::try_from(*code).unwrap_or(1),
            Some(Ending::Signalled(signal) | Ending::Killed { signal, .. }) => u8::try_from(128 + signal).unwrap_or(1),
            Some(Ending::TimedOut) => 124,
            Some(Ending::CouldNotStart(_) | Ending::NoRoom(_) | Ending::Misconfigured(_)) => 127,
            Some(Ending::Stopped) => 130,
            None => u8::from(decision.event != RunEvent::Succeed),
        }
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

fn outputs(finished: &HandlerFinish) -> Vec<RunOutput> {
    [("stdout", &finished.stdout), ("stderr", &finished.stderr)]
        .into_iter()
        .filter(|(_, captured)| captured.total_bytes > 0)
        .map(|(stream, captured)| RunOutput {
            stream: stream.to_owned(),
            content: captured.to_text(),
            total_bytes: i64::try_from(captured.total_bytes).unwrap_or(i64::MAX),
            is_lossy: captured.is_lossy(),
        })
        .collect()
}

/// What every engine can store, in the length that the column has.
fn storable(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).map(|c| if c == '\0' { '\u{2400}' } else { c }).collect()
}

/// A run while its handler works: collects what it reports and has it saved now and then.
struct LiveRun<'a> {
    run_id: RunId,
    leases: &'a LeaseKeeper,
    longest_silence: Duration,
    pending: Unsaved,
    save_after: Moment,
    watchdog: Option<Watchdog>,
    stopping: &'a Stopping<'a>,
    listener: &'a mut dyn RunListener,
}

impl LiveRun<'_> {
    fn run_command(
        &mut self,
        command: &CommandHandler,
        context: &RunContext,
        socket: Option<&EventSocket>,
    ) -> HandlerFinish {
        let HandlerEnd { ending, error, results, unread_events, unended, stdout, stderr } =
            command.run(context, Some(self.stopping.alarm()), socket, self);
        HandlerFinish { ending: Some(ending), error, results, stdout, stderr, unended, unread_events }
    }

    /// In this very process: a handler that does not end in time takes the process with it, and the run is rescued.
    fn run_rust(
        &mut self,
        handler: &dyn TaskHandler,
        context: &RunContext,
        own_identity: &str,
        give_back: impl Fn() + Send + 'static,
        give_back_when_over: impl Fn() + Send + 'static,
    ) -> HandlerFinish {
        let limit = Duration::from_secs(u64::try_from(context.timeout_secs).unwrap_or(u64::MAX));
        // Not when it is lost: whoever took the run on this host has ended this process for it, and elsewhere nobody could
        // before it was over.
        let (is_over, must_stop) = (self.leases.over_of(self.run_id), self.stopping.must_stop());
        let must_end = move || {
            let (must_stop, is_over) = (must_stop(), is_over());
            if is_over {
                give_back_when_over();
            } else if must_stop {
                give_back();
            }
            must_stop || is_over
        };
        // Unwatched it could go on for ever, and nothing would show that this process works for the run.
        self.watchdog = match Watchdog::start(&thread_name(&context.token), limit, must_end) {
            Ok(watchdog) => Some(watchdog),
            Err(error) => {
                let why = format!("could not start {}: no thread to watch it: {error}", context.class);
                return HandlerFinish::new(Some(Ending::NoRoom(why)), None);
            }
        };
        self.save_handler(i64::from(std::process::id()), own_identity.to_owned());
        let result = run_rust_handler(handler, context, self);
        self.watchdog = None;
        match result {
            Ok(()) => HandlerFinish::new(None, None),
            Err(error) => HandlerFinish::reported(&error),
        }
    }

    fn save_handler(&self, pid: i64, identity: String) {
        self.leases.save(self.run_id, Unsaved { handler: Some((pid, identity)), ..Unsaved::default() });
    }

    fn save(&mut self) {
        if self.pending.is_empty() || !self.save_after.has_passed() {
            return;
        }
        self.save_after = Moment::after(SAVE_INTERVAL);
        self.leases.save(self.run_id, std::mem::take(&mut self.pending));
    }

    fn report(&mut self) {
        self.leases.heard_of(self.run_id, self.longest_silence);
        if let Some(watchdog) = &self.watchdog {
            watchdog.restart();
        }
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
}

impl CommandObserver for LiveRun<'_> {
    fn started(&mut self, handler: &ProcessIdentity) {
        // Until it is saved, the token in the handler's environment finds it.
        self.save_handler(i64::from(handler.pid), handler.to_string());
        fault_point!("execute.handler_started");
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.listener.output(stream, bytes);
    }

    fn idle(&mut self) -> Control {
        self.save();
        let (run_id, listener) = (self.run_id, &mut self.listener);
        if self.stopping.check(&mut |wait| listener.stopping(run_id, wait)) == Urgency::Kill {
            return Control::Kill;
        }
        // Somebody else works for the task now, or may any moment: no time to ask it to end.
        if self.leases.standing(self.run_id) == Standing::Held { Control::Continue } else { Control::Kill }
    }
}
