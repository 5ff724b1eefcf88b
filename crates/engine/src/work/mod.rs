//! `work`: a long-running runner with many slots. One thread, the coordinator, uses the database: it claims runs a little ahead
//! of the slots, and records their outcomes, many in one transaction. The slots execute runs and do not use the database.
//!
//! A run that was claimed ahead and never started is released without counting an attempt. The worker does this when it ends.
//! If it dies, a rescue does, using the marks of its slots.

mod backlog;
mod claiming;
mod coordinator;
mod housekeeping;
mod listener;
mod memory;
mod monitor;
mod options;
mod pace;
mod recording;
mod reload;
mod shortage;
mod slot;
mod unanswered;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use self::backlog::Backlog;
use self::coordinator::Coordinator;
use self::housekeeping::Housekeeping;
pub use self::listener::WorkListener;
pub use self::monitor::Monitor;
pub use self::options::{Reconfiguration, WorkOptions};
use self::reload::{CurrentPolicy, reconfigure};
use self::slot::Slot;
use self::unanswered::{count_answered, remember};
use crate::context::Context;
use crate::end_statements::end_statements_on;
use crate::error::{EngineError, EngineResult};
pub use crate::inspect::monitoring::tally::{ClassTally, Tally, WorkerFacts};
use crate::outbox::outcomes::send_left_over;
use crate::outbox::outcomes_of_many::leave_waiting;
use crate::running::process_run::ProcessReport;
use crate::running::runner::register::{as_runner, register};
use crate::running::runner::runner_context::{RunPolicy, RunnerContext};
use crate::running::runner::stopping::Stopping;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::descriptors;
use taskqueue_process::identities::marks::Marks;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{ChangeListener, Registration};

/// The pause between two checks for free slots under the runner limit.
const LIMIT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two checks for signals and reloads while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many files a worker may have open besides its slots, and for each slot; both include a reserve.
const FILES: u64 = 48;
const FILES_PER_SLOT: u64 = 10;
/// The pause between two attempts to reconnect to an unreachable database.
const RETURN_PAUSE: Duration = Duration::from_secs(2);

/// Runs a worker until it is asked to stop or its options end it.
///
/// # Errors
/// Returns an error if the database was never reached; later it waits for an unreachable database.
pub fn work(
    ctx: &mut Context,
    options: &WorkOptions,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
) -> EngineResult<ProcessReport> {
    // After a second signal, do not wait for a database that is slow or unreachable.
    if let Ok(count) = stop.counter() {
        let pulse = listener.pulse();
        ctx.store.give_up_when(move || {
            pulse();
            count() >= 2
        });
    }
    ctx.store.prefer_lookups()?;
    let mut options = options.clone();
    let wanted = options.slots;
    if let Some(limit) = descriptors::limit().filter(|limit| files_for(wanted) > *limit) {
        options.slots = slots_for(limit).min(wanted);
        if options.slots < wanted {
            let why = format!(
                "the limit of open files is {limit} (`ulimit -n`, LimitNOFILE=), and {wanted} slots need {}",
                files_for(wanted)
            );
            listener.has_fewer_slots(wanted, options.slots, &why);
        }
    }
    options.tally.set_slots(options.slots);
    let until = options.max_time.map(Moment::after);
    let mut session = Session { options, until, stop, listener, report: ProcessReport::default() };
    loop {
        // Set again, because the orders to an earlier registration no longer count.
        end_statements_on(ctx.store.url(), stop, session.options.stop_wait);
        match work_registered(ctx, &mut session) {
            Err(problem) if problem.is_loss_of_database() && !stop.is_stopping() => {
                session.listener.lost_database(&problem);
                session.options.tally.note_away(true);
                if wait(ctx, &mut session, RETURN_PAUSE) {
                    return Err(problem);
                }
            }
            Err(problem) => return Err(problem),
            Ok(()) => {
                session.report.left_behind = ctx.handlers.overrun().left_behind.count();
                return Ok(session.report);
            }
        }
    }
}

/// Raises the limit of open files for this process, as far as allowed, to what this many slots need. Handlers keep the limit
/// that the process was started with.
pub fn raise_limit_of_files(slots: usize) {
    descriptors::raise_limit(files_for(slots));
}

fn files_for(slots: usize) -> u64 {
    u64::try_from(slots).unwrap_or(u64::MAX).saturating_mul(FILES_PER_SLOT).saturating_add(FILES)
}

/// Returns how many slots this many open files allow; at least one.
fn slots_for(files: u64) -> usize {
    usize::try_from(files.saturating_sub(FILES) / FILES_PER_SLOT).unwrap_or(usize::MAX).max(1)
}

/// A worker, from its start to its end.
struct Session<'a> {
    options: WorkOptions,
    until: Option<Moment>,
    stop: &'a StopSignals,
    listener: &'a mut dyn WorkListener,
    report: ProcessReport,
}

/// Works from registration until the worker ends or loses the database.
fn work_registered(ctx: &mut Context, session: &mut Session<'_>) -> EngineResult<()> {
    send_left_over(ctx)?;
    fault_point!("work.left_over_sent");
    count_answered(&session.options.tally, &mut ctx.store);
    let settings = ctx.store.settings()?;
    // Before it waits for slots, which may take long.
    session.options.tally.note_away(false);
    let Some((runner_id, asked_at)) = take_slots(ctx, session, &settings)? else { return Ok(()) };
    fault_point!("work.registered");
    // Before other threads connect: its socket is recognised as the only new one.
    let changes = ChangeListener::listen(ctx.store.url());
    session.listener.registered(runner_id);
    as_runner(ctx, runner_id, asked_at, settings.lease, |ctx, leases| {
        let stopping = Stopping::new(session.stop, leases.orders(), session.options.stop_wait)?;
        ctx.store.patience().end_when(stopping.must_stop());
        let place = RunnerContext::new(ctx, runner_id, leases, stopping)?;
        with_slots(ctx, session, &settings, &place, changes)
    })
}

/// Registers as soon as the limit allows. Returns `None` if the worker was asked to stop, or has waited long enough.
fn take_slots(
    ctx: &mut Context,
    session: &mut Session<'_>,
    settings: &Settings,
) -> EngineResult<Option<(RunnerId, Moment)>> {
    let began = Moment::now();
    loop {
        let Session { options, listener, report, .. } = &mut *session;
        let asked_at = Moment::now();
        let slots = i32::try_from(options.slots).unwrap_or(i32::MAX);
        match register(ctx, slots, &options.classes, settings.lease)? {
            Registration::Registered(runner_id) => {
                report.limit_reached = None;
                return Ok(Some((runner_id, asked_at)));
            }
            Registration::LimitReached { in_use, limit } => {
                // With more slots than the limit, it would wait forever.
                if let Some(most) = usize::try_from(limit).ok().filter(|most| (1..options.slots).contains(most)) {
                    listener.has_fewer_slots(options.slots, most, "the setting TaskQueueRunnerLimit allows no more");
                    options.slots = most;
                    continue;
                }
                if report.limit_reached.replace((in_use, limit)).is_none() {
                    listener.waits_for_slots(in_use, limit);
                }
            }
        }
        let is_enough = options.idle_exit.is_some_and(|idle| began.elapsed() >= idle);
        if is_enough || wait(ctx, session, LIMIT_PAUSE) {
            return Ok(None);
        }
    }
}

/// Waits, and checks for signals and reloads meanwhile. Returns true as soon as the worker is asked to stop.
fn wait(ctx: &mut Context, session: &mut Session<'_>, limit: Duration) -> bool {
    let until = Moment::after(limit);
    loop {
        reconfigure(ctx, &mut session.options, session.listener);
        session.options.tally.turned(0);
        session.listener.looked(&session.report, 0);
        if session.stop.wait(until.remaining().min(LOOK_EVERY)) {
            return true;
        }
        if until.has_passed() {
            return false;
        }
    }
}

fn with_slots(
    ctx: &mut Context,
    session: &mut Session<'_>,
    settings: &Settings,
    place: &Arc<RunnerContext>,
    changes: Option<ChangeListener>,
) -> EngineResult<()> {
    let (until, stop) = (session.until, session.stop);
    let Session { options, listener, report, .. } = session;
    let policy = RunPolicy::new(ctx, settings.clone());
    let marks =
        place.spool.as_ref().and_then(|spool| Marks::begin(spool.directory(), place.identity, options.slots).ok());
    let marks = marks.map(Arc::new);
    let backlog = Arc::new(Backlog::open(Arc::clone(&policy), place.spool.as_ref(), options.slots)?);
    report.spool_problem = backlog.problem();
    fault_point!("work.spool_taken");
    let result = thread::scope(|scope| {
        // Ends the slots after any error too, and waits for their runs.
        let _closing = backlog.close_at_end();
        let housekeeping = Housekeeping::start(scope, ctx, stop)?;
        for number in 0..options.slots {
            match Slot::start(number, place, &backlog, marks.as_ref()) {
                Ok(()) => {}
                Err(source) if number == 0 => {
                    return Err(EngineError::Os { what: "cannot start a thread for a slot", source });
                }
                Err(problem) => {
                    backlog.limit_slots(number);
                    let why = format!("cannot start another thread: {problem} (`ulimit -u`, TasksMax=)");
                    listener.has_fewer_slots(options.slots, number, &why);
                    break;
                }
            }
        }
        let result =
            Coordinator::new(ctx, options, until, place, CurrentPolicy::new(policy), &backlog, &housekeeping, changes)
                .run(*listener, report);
        report.hook_problem = report.hook_problem.take().or_else(|| housekeeping.problem());
        result
    });
    // After the loss of the database, unstarted runs are released when it is reachable again.
    let waiting = backlog.take_all_waiting();
    let left = leave_waiting(ctx, &waiting);
    remember(&options.tally, backlog.take_unsent(), waiting);
    report.spool_problem = report.spool_problem.take().or_else(|| ctx.spool_problem.take()).or(left);
    // The marks are useless when all claimed runs have ended.
    if let (Ok(()), Some(marks)) = (&result, marks.and_then(Arc::into_inner)) {
        marks.end();
    }
    result
}
