//! `process-run` (the scheme's OnProcessTaskRun): registers a runner, claims under the lock, and executes.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::execute::execute;
use super::in_process::HandlerThread;
use super::record::record;
use super::run_listener::{RunListener, RunOutcome};
use crate::context::{Context, new_token};
use crate::end_statements::end_statements_on;
use crate::enter_own_group;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::{Outcome, leave, reserve_room, send_left_over};
use crate::running::runner::holds::Holds;
use crate::running::runner::lease::LeaseState;
use crate::running::runner::lease::Leases;
use crate::running::runner::register::{as_runner, finish_dead_runners, register};
use crate::running::runner::runner_context::{RunPolicy, RunnerContext};
use crate::running::runner::stopping::Stopping;
use crate::upkeep::create_runs::move_schedules_on;
use taskqueue_domain::limits::limit::Obstacle;
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::{Spool, SpoolFile};
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{Registration, SpecificClaim, Store, StoreError};

/// How many tasks that hold the slots of a key are listed: usually there is one, and a thousand would fill the screen.
const NAMED_HOLDERS: i64 = 5;

/// What to process, and when to stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessOptions {
    /// Only this run.
    pub run_id: Option<RunId>,
    /// Continue until no run is left.
    pub drain: bool,
    /// When no run is waiting, creates the runs of tasks that became due because others finished.
    pub creates_runs: bool,
    /// The largest number of runs.
    pub max_runs: Option<u64>,
    /// No new run is started after this time.
    pub max_time: Option<Duration>,
    /// How long the current run may continue after the first signal to stop.
    pub stop_wait: Duration,
    /// Moves this process into its own control group, if possible, once it has a run.
    pub enters_group: bool,
}

impl ProcessOptions {
    fn wants_more(&self, processed: u64, until: Option<Moment>) -> bool {
        let repeats = self.drain || self.max_runs.is_some() || self.max_time.is_some();
        let has_time = until.is_none_or(|until| !until.has_passed());
        if processed == 0 {
            has_time
        } else {
            self.run_id.is_none() && repeats && has_time && self.max_runs.is_none_or(|max| processed < max)
        }
    }
}

/// The result of `process-run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// The used slots and the limit, if the limit was reached and nothing was done.
    pub limit_reached: Option<(i64, i64)>,
    /// Processed runs.
    pub processed: u64,
    /// Processed runs that succeeded.
    pub succeeded: u64,
    /// Processed runs that failed or timed out.
    pub failed: u64,
    /// Processed runs that were released.
    pub released: u64,
    /// Processed runs that were cancelled meanwhile.
    pub cancelled: u64,
    /// Threads of Rust handlers that did not end when asked to, and were left behind.
    pub left_behind: usize,
    /// The exit status of the last handler.
    pub last_exit_code: Option<u8>,
    /// Why outcomes could not be written to the spool.
    pub spool_problem: Option<String>,
    /// Why the program of a hook failed.
    pub hook_problem: Option<String>,
}

impl ProcessReport {
    pub(crate) fn count(&mut self, outcome: &RunOutcome) {
        self.processed += 1;
        self.last_exit_code = Some(outcome.exit_code);
        match outcome.decision.event {
            RunEvent::Succeed => self.succeeded += 1,
            RunEvent::Fail | RunEvent::TimeOut => self.failed += 1,
            RunEvent::Cancel | RunEvent::Expire => self.cancelled += 1,
            RunEvent::Release | RunEvent::Claim => self.released += 1,
        }
    }
}

/// Registers as a runner and processes runs.
///
/// # Errors
/// Returns [`EngineError::NotWaiting`] or [`EngineError::NotRunnable`] if the named run cannot be claimed, or an error if the
/// database fails.
pub fn process_runs(
    ctx: &mut Context,
    options: &ProcessOptions,
    stop: &StopSignals,
    listener: &mut dyn RunListener,
) -> EngineResult<ProcessReport> {
    // After a second signal, do not wait for a database that is slow or unreachable.
    if let Ok(count) = stop.counter() {
        ctx.store.give_up_when(move || count() >= 2);
    }
    end_statements_on(ctx.store.url(), stop, options.stop_wait);
    send_left_over(ctx)?;
    fault_point!("process.left_over_sent");
    let settings = ctx.store.recent_settings()?;
    let mut holds = Holds::new();
    if options.run_id.is_none() && !(ctx.store.has_waiting_runs()? && sees_claimable(ctx, &mut holds)?) {
        // Cron starts this every minute, so without a run it must not add a row. `create-runs` has just marked dead runners.
        if !options.creates_runs {
            finish_dead_runners(ctx, settings.lease)?;
        }
        return Ok(ProcessReport::default());
    }
    let asked_at = Moment::now();
    match register(ctx, 1, &[], settings.lease)? {
        Registration::LimitReached { in_use, limit } => {
            Ok(ProcessReport { limit_reached: Some((in_use, limit)), ..ProcessReport::default() })
        }
        Registration::Registered(runner_id) => {
            fault_point!("register.committed");
            as_runner(ctx, runner_id, asked_at, settings.lease, |ctx, leases| {
                let stopping = Stopping::new(stop, leases.orders(), options.stop_wait)?;
                ctx.store.patience().end_when(stopping.must_stop());
                let place = RunnerContext::new(ctx, runner_id, leases, stopping)?;
                process_registered(ctx, &place, settings.clone(), options, holds, listener)
            })
        }
    }
}

fn process_registered(
    ctx: &mut Context,
    place: &Arc<RunnerContext>,
    settings: Settings,
    options: &ProcessOptions,
    mut holds: Holds,
    listener: &mut dyn RunListener,
) -> EngineResult<ProcessReport> {
    // Without the socket, `taskqueue report progress` fails, but descriptor 3 still works.
    let socket = EventSocket::bind(ctx.requests.clone()).ok();
    let until = options.max_time.map(Moment::after);
    let mut report = ProcessReport::default();
    let mut spool = ctx.spool.as_ref().map(Spool::take).transpose().unwrap_or_else(|error| {
        report.spool_problem = Some(error.to_string());
        None
    });
    fault_point!("process.spool_taken");
    let (mut finished_tasks, mut finished_before) = (0, 0);
    let policy = RunPolicy::new(ctx, settings);
    let mut thread = HandlerThread::default();
    while options.wants_more(report.processed, until) && !place.stopping.is_leaving() {
        // Threads that were left behind end only with this process, so it can take no more runs.
        if policy.handlers.overrun().is_full(1) {
            break;
        }
        // If its slot was given away meanwhile, another run might exceed the limit (rule R5).
        if place.leases.runner_lease_state() != LeaseState::Held {
            break;
        }
        reserve_room(spool.as_mut());
        let asked_at = Moment::now();
        let Some(run) = claim(ctx, place, &policy, options.run_id, &mut holds, spool.as_mut())? else {
            let may_be_more = options.creates_runs && finished_tasks > finished_before;
            finished_before = finished_tasks;
            if may_be_more {
                let has_moved = move_schedules_on(ctx)?;
                if ctx.store.create_missing_runs(&mut |_| {})? > 0 || has_moved {
                    continue;
                }
            }
            break;
        };
        fault_point!("claim.committed");
        place.hold(&policy, asked_at, std::slice::from_ref(&run));
        fault_point!("process.lease_held");
        if options.enters_group && report.processed == 0 {
            // Only with a run: it takes a millisecond, and tens of them on a busy machine. If it fails, `doctor` reports why.
            let _ = enter_own_group();
        }
        let executed = execute(place, &policy, &run, socket.as_ref(), &mut thread, listener);
        let outcome =
            record(ctx, &run, executed, spool.as_mut()).map_err(|error| with_status(ctx, &place.leases, error));
        place.leases.let_go(run.run_id);
        let outcome = outcome?;
        listener.ended(&run, &outcome);
        fault_point!("process.run_ended");
        report.count(&outcome);
        finished_tasks += u64::from(!matches!(outcome.outcome(), AttemptOutcome::Retry | AttemptOutcome::Released));
        if outcome.decision.holds_class {
            holds.forget();
        }
        if outcome.is_left_behind {
            let overrun = policy.handlers.overrun();
            report.left_behind = overrun.left_behind.count();
            listener.left_behind(&run, report.left_behind, overrun.most(1));
        }
        if outcome.decision.lacks_room {
            // The next run would fail in the same way.
            listener.lacks_room(&outcome.decision.error_message, 0);
            break;
        }
    }
    report.spool_problem = report.spool_problem.or_else(|| ctx.spool_problem.take());
    report.hook_problem = ctx.hook_problem.take();
    Ok(report)
}

/// Adds the current status of the run to the loss of a lease, if the database answers: another process may have rescued it.
fn with_status(ctx: &mut Context, leases: &Leases, error: EngineError) -> EngineError {
    match error {
        EngineError::LeaseOver { run_id, task_id, .. } if leases.was_answered(RunId(run_id)) => {
            ctx.store.give_up_when(|| true);
            let found = ctx.store.get_run(RunId(run_id)).ok().map(|run| run.status.to_string());
            EngineError::LeaseOver { run_id, task_id, found }
        }
        error => error,
    }
}

/// Returns true if a waiting run could be claimed now.
fn sees_claimable(ctx: &mut Context, holds: &mut Holds) -> EngineResult<bool> {
    holds.refresh(ctx)?;
    let handlers = &ctx.handlers;
    let may_begin = |class: &TaskClass| holds.allow(handlers, class);
    Ok(ctx.store.sees_claimable(&ctx.me.runner_name, &handlers.class_set(&may_begin))?)
}

fn claim(
    ctx: &mut Context,
    place: &RunnerContext,
    policy: &RunPolicy,
    run_id: Option<RunId>,
    holds: &mut Holds,
    spool: Option<&mut SpoolFile>,
) -> EngineResult<Option<ClaimedRun>> {
    holds.refresh(ctx)?;
    let token = new_token()?;
    let may_begin = |class: &TaskClass| holds.allow(&policy.handlers, class);
    let claim = place.claim(policy, policy.handlers.class_set(&may_begin));
    let claimed = match run_id {
        None => ctx.store.claim_next_run(&claim, &token),
        Some(run_id) => match ctx.store.claim_specific_run(run_id, &claim, &token) {
            Ok(SpecificClaim::Claimed(run)) => Ok(Some(*run)),
            Ok(SpecificClaim::Refused { status, class }) => return Err(refused(run_id, status, class)),
            Ok(SpecificClaim::Obstructed { obstacle }) => return Err(obstructed(&mut ctx.store, run_id, obstacle)),
            Err(error) => Err(error),
        },
    };
    if matches!(&claimed, Err(error) if !matches!(error, StoreError::NotFound(_))) {
        // The COMMIT may have succeeded.
        let problem = leave(spool, &Outcome::of_claim(ctx, &token));
        ctx.spool_problem = problem.or_else(|| ctx.spool_problem.take());
    }
    Ok(claimed?)
}

fn refused(run_id: RunId, status: String, class: String) -> EngineError {
    let run_id = run_id.0;
    if status == RunStatus::Scheduled.as_str() {
        EngineError::NotRunnable { run_id, class }
    } else {
        EngineError::NotWaiting { run_id, status }
    }
}

fn obstructed(store: &mut Store, run_id: RunId, obstacle: Obstacle) -> EngineError {
    let holders = match &obstacle {
        // If their names cannot be read, the error is still correct.
        Obstacle::KeyIsFull(limit) => store.list_key_holders(&limit.key, NAMED_HOLDERS).unwrap_or_default(),
        Obstacle::Paused(_) | Obstacle::MaxRunning(_) | Obstacle::Rate(..) => Vec::new(),
    };
    EngineError::Obstructed { run_id: run_id.0, obstacle, holders }
}
