//! `work`: a runner that stays, with many slots. One thread, the coordinator, speaks with the database: it claims runs for the
//! slots, a little ahead of them, and records how they ended, many in one transaction. The slots execute and know no database.
//!
//! A run that was claimed ahead and never started goes back without costing an attempt: at the end of the worker by its own
//! hand, after its death by that of whoever finds it dead, by the marks of its slots.

mod backlog;
mod claiming;
mod coordinator;
mod counted;
mod housekeeping;
mod memory;
mod monitor;
mod pace;
mod recording;
mod reload;
mod shortage;
mod slot;
mod tally;
mod unanswered;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use self::backlog::Backlog;
use self::coordinator::Coordinator;
use self::housekeeping::Housekeeping;
pub use self::monitor::Monitor;
pub use self::reload::Reconfiguration;
use self::reload::{Current, reconfigure};
use self::slot::Slot;
pub use self::tally::{ClassTally, Tally, WorkerFacts};
use self::unanswered::{count_answered, remember};
use crate::outbox::outcomes::send_left_over;
use crate::outbox::outcomes_of_many::leave_waiting;
use crate::running::process_run::ProcessReport;
use crate::running::register::{as_runner, register};
use crate::running::run_listener::RunListener;
use crate::running::runner_context::{RunPolicy, RunnerContext};
use crate::running::stopping::{Stopping, end_statements_on};
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::descriptors;
use taskqueue_process::identities::marks::Marks;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{ChangeListener, Registration};

/// Between two questions whether there is room under the runner limit.
const LIMIT_PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at what there is to hear, while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Files that a worker has open without any slot, and at most for each; both with some to spare.
const FILES: u64 = 48;
const FILES_PER_SLOT: u64 = 10;
/// Between two attempts to come back to a database that was away.
const RETURN_PAUSE: Duration = Duration::from_secs(2);

/// How a worker works.
#[derive(Clone, Debug, Default)]
pub struct WorkOptions {
    /// Runs that are executed at once, 1 or more.
    pub slots: usize,
    /// Names of classes, or patterns with `*` and `?`; empty takes all that are known here.
    pub classes: Vec<String>,
    /// At most so many runs.
    pub max_runs: Option<u64>,
    /// No new run after this time.
    pub max_time: Option<Duration>,
    /// Ends when there was nothing to do for so long.
    pub idle_exit: Option<Duration>,
    /// Ends when the worker itself, its handlers apart, has more than this in memory, in bytes.
    pub max_rss_bytes: Option<u64>,
    /// How long the runs in progress may go on after the first signal to stop.
    pub stop_wait: Duration,
    /// Ends, once the runs in progress have ended, when so many threads were left behind that it may claim nothing; otherwise it
    /// waits until some of them end.
    pub ends_when_blocked: bool,
    /// Counts what it does.
    pub tally: Arc<Tally>,
}

/// Hears what happens to the worker itself, besides its runs.
pub trait WorkListener: RunListener {
    /// There is no room under the runner limit; it waits.
    fn waits_for_slots(&mut self, in_use: i64, limit: i64);
    /// It works with fewer slots than it was asked for, for this reason.
    fn has_fewer_slots(&mut self, _wanted: usize, _slots: usize, _why: &str) {}
    /// The database is away; it tries to come back to it.
    fn lost_database(&mut self, problem: &EngineError);
    /// It answers again.
    fn found_database(&mut self) {}
    /// The settings of the store cannot be used; those of before stay.
    fn kept_settings(&mut self, _problem: &EngineError) {}
    /// It uses more memory than it may, and ends when its runs in progress have ended.
    fn is_too_large(&mut self, _used_bytes: u64, _most_bytes: u64) {}
    /// A configuration to go on with from now on, if there is one that it has not got. Called several times a second.
    fn reconfiguration(&mut self) -> Option<Reconfiguration> {
        None
    }
    /// It goes on with that one.
    fn reconfigured(&mut self) {}
    /// What is to be called while the database is waited for in the middle of something: it is away, the worker does not hang.
    fn pulse(&self) -> Box<dyn Fn() + Send> {
        Box::new(|| {})
    }
    /// So many threads were left behind that it claims nothing for now.
    fn is_blocked(&mut self, _threads: usize) {}
    /// Some of them have ended: it claims again.
    fn claims_again(&mut self) {}
    /// The database refuses how this run ended; it is left on the disk.
    fn not_recorded(&mut self, run: &ClaimedRun, problem: &EngineError);
    /// It is one of the runners now.
    fn registered(&mut self, runner_id: RunnerId);
    /// Called several times a second.
    fn looked(&mut self, report: &ProcessReport, working: usize);
}

/// Works until it is told to stop, or until its options say that it is enough.
///
/// # Errors
/// The database's, where it was never reached; otherwise it is waited for.
pub fn work(
    ctx: &mut Context,
    options: &WorkOptions,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
) -> EngineResult<ProcessReport> {
    // Whoever says "stop" twice does not want to wait for a database that is busy or away.
    if let Ok(count) = stop.counter() {
        let pulse = listener.pulse();
        ctx.store.give_up_when(move || {
            pulse();
            count() >= 2
        });
    }
    ctx.store.prefer_lookups()?;
    let options = &mut options.clone();
    let wanted = options.slots;
    if let Some(limit) = descriptors::limit().filter(|limit| files_for(wanted) > *limit) {
        options.slots = slots_for(limit).min(wanted);
        if options.slots < wanted {
            let why = format!(
                "it may have {limit} files open (`ulimit -n`, LimitNOFILE=), and {wanted} slots need {}",
                files_for(wanted)
            );
            listener.has_fewer_slots(wanted, options.slots, &why);
        }
    }
    options.tally.set_slots(options.slots);
    let until = options.max_time.map(Moment::after);
    let mut report = ProcessReport::default();
    loop {
        // Also once more: the orders to an earlier registration do not count any more.
        end_statements_on(ctx.store.url(), stop, options.stop_wait);
        match work_registered(ctx, options, until, stop, listener, &mut report) {
            Err(problem) if problem.is_loss_of_database() && !stop.is_stopping() => {
                listener.lost_database(&problem);
                options.tally.note_away(true);
                if wait(ctx, options, stop, listener, &report, RETURN_PAUSE) {
                    return Err(problem);
                }
            }
            Err(problem) => return Err(problem),
            Ok(()) => {
                report.left_behind = ctx.handlers.overrun().left_behind.count();
                return Ok(report);
            }
        }
    }
}

/// Raises the limit of open files for this process, as far as it may, to what so many slots need. Handlers keep the limit
/// with which the process was started.
pub fn raise_limit_of_files(slots: usize) {
    descriptors::raise_limit(files_for(slots));
}

fn files_for(slots: usize) -> u64 {
    u64::try_from(slots).unwrap_or(u64::MAX).saturating_mul(FILES_PER_SLOT).saturating_add(FILES)
}

/// At least one.
fn slots_for(files: u64) -> usize {
    usize::try_from(files.saturating_sub(FILES) / FILES_PER_SLOT).unwrap_or(usize::MAX).max(1)
}

/// From the registration to its end, or to the loss of the database.
fn work_registered(
    ctx: &mut Context,
    options: &mut WorkOptions,
    until: Option<Moment>,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
    report: &mut ProcessReport,
) -> EngineResult<()> {
    send_left_over(ctx)?;
    fault_point!("work.left_over_sent");
    count_answered(&options.tally, &mut ctx.store);
    let settings = ctx.store.settings()?;
    // However long it then waits for slots.
    options.tally.note_away(false);
    let Some((runner_id, asked_at)) = take_slots(ctx, options, &settings, stop, listener, report)? else {
        return Ok(());
    };
    fault_point!("work.registered");
    // Before other threads connect: its socket is known by being the only new one.
    let changes = ChangeListener::listen(ctx.store.url());
    listener.registered(runner_id);
    as_runner(ctx, runner_id, asked_at, settings.lease, |ctx, leases| {
        let stopping = Stopping::new(stop, leases.orders(), options.stop_wait)?;
        ctx.store.patience().end_when(stopping.must_stop());
        let place = RunnerContext::new(ctx, runner_id, leases, stopping)?;
        with_slots(ctx, options, until, &settings, &place, changes, stop, listener, report)
    })
}

/// Registers as soon as there is room under the limit. `None` if it was told to stop, or has waited long enough.
fn take_slots(
    ctx: &mut Context,
    options: &mut WorkOptions,
    settings: &Settings,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
    report: &mut ProcessReport,
) -> EngineResult<Option<(RunnerId, Moment)>> {
    let began = Moment::now();
    loop {
        let asked_at = Moment::now();
        let slots = i32::try_from(options.slots).unwrap_or(i32::MAX);
        match register(ctx, slots, &options.classes, settings.lease)? {
            Registration::Registered(runner_id) => {
                report.limit_reached = None;
                return Ok(Some((runner_id, asked_at)));
            }
            Registration::LimitReached { in_use, limit } => {
                // More than the limit would never get in, however long they waited.
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
        if is_enough || wait(ctx, options, stop, listener, report, LIMIT_PAUSE) {
            return Ok(None);
        }
    }
}

/// Waits for so long, and hears meanwhile what there is to hear. `true` as soon as it is told to stop.
fn wait(
    ctx: &mut Context,
    options: &mut WorkOptions,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
    report: &ProcessReport,
    limit: Duration,
) -> bool {
    let until = Moment::after(limit);
    loop {
        reconfigure(ctx, options, listener);
        options.tally.turned(0);
        listener.looked(report, 0);
        if stop.wait(until.remaining().min(LOOK_EVERY)) {
            return true;
        }
        if until.has_passed() {
            return false;
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what a session is made of, gathered in one place")]
fn with_slots(
    ctx: &mut Context,
    options: &mut WorkOptions,
    until: Option<Moment>,
    settings: &Settings,
    place: &Arc<RunnerContext>,
    changes: Option<ChangeListener>,
    stop: &StopSignals,
    listener: &mut dyn WorkListener,
    report: &mut ProcessReport,
) -> EngineResult<()> {
    let policy = RunPolicy::new(ctx, settings.clone());
    let marks =
        place.spool.as_ref().and_then(|spool| Marks::begin(spool.directory(), place.identity, options.slots).ok());
    let marks = marks.map(Arc::new);
    let backlog = Arc::new(Backlog::open(Arc::clone(&policy), place.spool.as_ref(), options.slots)?);
    report.spool_problem = backlog.problem();
    fault_point!("work.spool_taken");
    let result = thread::scope(|scope| {
        // Whatever happens here, the slots end: their runs are waited for.
        let _closing = backlog.close_at_end();
        let housekeeping = Housekeeping::start(scope, ctx, stop)?;
        for number in 0..options.slots {
            match Slot::start(number, place, &backlog, marks.as_ref()) {
                Ok(()) => {}
                Err(source) if number == 0 => return Err(EngineError::Os { what: "no thread for a slot", source }),
                Err(problem) => {
                    backlog.limit_slots(number);
                    let why = format!("no thread for another one: {problem} (`ulimit -u`, TasksMax=)");
                    listener.has_fewer_slots(options.slots, number, &why);
                    break;
                }
            }
        }
        let result =
            Coordinator::new(ctx, options, until, place, Current::new(policy), &backlog, &housekeeping, changes)
                .run(listener, report);
        report.hook_problem = report.hook_problem.take().or_else(|| housekeeping.problem());
        result
    });
    // After the loss of the database: what no slot has begun goes back when it answers again.
    let waiting = backlog.take_all_waiting();
    let left = leave_waiting(ctx, &waiting);
    remember(&options.tally, backlog.take_unsent(), waiting);
    report.spool_problem = report.spool_problem.take().or_else(|| ctx.spool_problem.take()).or(left);
    // What they tell is of no use any more once all that was claimed has ended.
    if let (Ok(()), Some(marks)) = (&result, marks.and_then(Arc::into_inner)) {
        marks.end();
    }
    result
}
