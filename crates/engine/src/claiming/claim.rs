//! `claim`: claims runs for a claimant, a worker in any language that is no runner of this program.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::claiming::not_claimable::is_never_claimable;
pub use crate::claiming::not_claimable::{NotClaimable, WhyNot, why_not_claimable};
pub use crate::claiming::request::{ClaimRequest, MAX_COUNT};
use crate::context::{Context, new_tokens};
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::{outside_claim_leaver, send_left_over};
use crate::upkeep::create_runs::move_schedules_on;
use crate::upkeep::rescue::rescue_some;
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::SpoolFile;
use taskqueue_host::random::spread;
use taskqueue_process::identities::claimant::is_shown_by;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{NewEvent, OutsideClaim, OutsideRun, StoreError};

/// The pause after the first poll that claimed nothing; each further poll makes it longer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two polls, so that a new task is claimed within a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a waiting claim rescues runs of dead or silent claimants.
const RESCUE_EVERY: Duration = Duration::from_secs(5);

/// A run that a claimant has claimed.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The run.
    pub run: ClaimedRun,
    /// When the lease expires unless a heartbeat renews it.
    pub deadline: DateTime<Utc>,
    /// The timeout in seconds: each heartbeat moves the deadline this far.
    pub timeout_secs: i64,
    /// The number of failed attempts after which the task is exhausted.
    pub max_retries: i32,
}

/// The result of a claim.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// The claimed runs.
    Runs(Vec<Offer>),
    /// No run was claimable within the wait, or the requested task can never be claimed by this claimant.
    Nothing,
    /// A signal interrupted the wait.
    Stopped,
}

/// Writes the tokens of an unfinished claim to the spool. Returns the file, or why it could not be written.
type Leaver = Box<dyn Fn() -> Result<Option<SpoolFile>, String> + Send>;

/// The claim whose result the claimant has not received yet. A process that exits early writes it to the spool.
#[derive(Clone, Default)]
pub struct InDoubt(Arc<Mutex<Doubt>>);

#[derive(Default)]
struct Doubt {
    leaver: Option<Leaver>,
    has_left: bool,
    /// Held open, and thus locked, until this process ends or gives up: until then the claim may still succeed.
    file: Option<SpoolFile>,
}

impl InDoubt {
    /// Writes the unfinished claim to the spool, so that the next process on this host releases its runs, and prevents further
    /// claims. Returns why writing failed; `None` if it succeeded or no claim is unfinished.
    #[must_use]
    pub fn leave(&self) -> Option<String> {
        let mut doubt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doubt.has_left = true;
        match doubt.leaver.take()?() {
            Ok(file) => {
                doubt.file = file;
                None
            }
            Err(problem) => Some(problem),
        }
    }

    /// Registers a claim. Returns false if `leave` was called before.
    fn begin(&self, leaver: Leaver) -> bool {
        let mut doubt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doubt.leaver = Some(leaver);
        !doubt.has_left
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).leaver = None;
    }
}

/// Returns the process with this PID, to be recorded as that of a claimant.
///
/// # Errors
/// Returns an error if there is no such process, or if it cannot be a claimant's.
pub fn find_process(pid: i32) -> EngineResult<ProcessIdentity> {
    let found = if pid > 1 { ProcessIdentity::of_pid(pid) } else { Ok(None) };
    let found = found.map_err(|source| EngineError::Os { what: "cannot read the process of the claimant", source })?;
    found.ok_or_else(|| EngineError::Input(format!("there is no process {pid} that can be a claimant")))
}

/// Returns true if a rescue could ask this process to end: its environment names the claimant.
#[must_use]
pub fn can_be_ended(process: &ProcessIdentity, claimant: &ClaimantId) -> bool {
    is_shown_by(process.pid, claimant.as_str())
}

/// Claims the first runs that this claimant accepts, without a wait. The caller limits how long the database may take.
///
/// # Errors
/// Returns an error if the requested task does not exist, or if the database fails.
pub fn claim_without_wait(ctx: &mut Context, request: &ClaimRequest) -> EngineResult<Vec<Offer>> {
    let settings = prepare(ctx, request)?;
    look_after(ctx, &settings)?;
    claim_now(ctx, request, &settings, &InDoubt::default())
}

/// Prepares a claim, and returns the settings.
fn prepare(ctx: &mut Context, request: &ClaimRequest) -> EngineResult<Settings> {
    if let Some(task) = request.choice.task {
        ctx.store.check_exists(task)?;
    }
    // The spool may contain a claim whose answer was lost: its run can be claimed again.
    send_left_over(ctx)?;
    Ok(ctx.store.settings()?)
}

/// Does what would stay undone if nothing but claimants runs.
fn look_after(ctx: &mut Context, settings: &Settings) -> EngineResult<()> {
    rescue_some(ctx, settings)?;
    // A run may wait for a slot that was not passed on. An error must not fail a claim of other runs.
    let _ = ctx.store.give_key_slots(None);
    let _ = move_schedules_on(ctx);
    Ok(())
}

/// Claims the first runs that this claimant accepts, and waits for the first one if asked to.
///
/// It first rescues some runs whose lease has expired or whose claimant is dead, moves schedules on, and creates the runs of due
/// tasks. So claimants need no other process for their runs. If the answer to a claim is lost, the claim is written to the spool,
/// and the next process on this host releases its runs.
///
/// # Errors
/// Returns an error if the requested task does not exist, or if the database fails.
pub fn claim(ctx: &mut Context, request: &ClaimRequest, stop: &StopSignals) -> EngineResult<ClaimOutcome> {
    claim_in_doubt(ctx, request, stop, &InDoubt::default())
}

/// Like [`claim`], for a thread that may still be waiting when its process exits. `in_doubt` always contains what must be
/// written to the spool then. A result that the caller did not receive counts as none.
///
/// # Errors
/// Returns an error if the requested task does not exist, or if the database fails.
pub fn claim_in_doubt(
    ctx: &mut Context,
    request: &ClaimRequest,
    stop: &StopSignals,
    in_doubt: &InDoubt,
) -> EngineResult<ClaimOutcome> {
    // After a signal, do not wait for a database that is slow or unreachable.
    if let Ok(count) = stop.counter() {
        ctx.store.give_up_when(move || count() >= 1);
    }
    let settings = prepare(ctx, request)?;
    let until = Moment::after(request.wait);
    let mut pause = FIRST_PAUSE;
    let mut rescue_at = Moment::now();
    loop {
        if rescue_at.has_passed() {
            look_after(ctx, &settings)?;
            rescue_at = Moment::after(RESCUE_EVERY);
        }
        let offers = claim_now(ctx, request, &settings, in_doubt)?;
        if !offers.is_empty() {
            return Ok(ClaimOutcome::Runs(offers));
        }
        if until.has_passed() || is_never_claimable(ctx, request)? {
            return Ok(ClaimOutcome::Nothing);
        }
        if stop.wait(spread_out(pause).min(until.remaining())) {
            return Ok(ClaimOutcome::Stopped);
        }
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Returns a random duration from half of `pause` to all of it, so that waiting claimants do not poll at the same time.
fn spread_out(pause: Duration) -> Duration {
    pause / 2 + (pause / 2).mul_f64(f64::from(spread()) / f64::from(u16::MAX))
}

fn claim_now(
    ctx: &mut Context,
    request: &ClaimRequest,
    settings: &Settings,
    in_doubt: &InDoubt,
) -> EngineResult<Vec<Offer>> {
    let secrets = new_tokens(request.count)?;
    let leaver: Leaver = Box::new(outside_claim_leaver(ctx, &request.claimant, &secrets));
    let Context { store, handlers, me, .. } = ctx;
    let timeout_secs = |class: Option<&TaskClass>, own: Option<i32>| handlers.timeout_secs(class, own, settings);
    let is_offered = |class: &TaskClass| request.offers(class);
    let claim = OutsideClaim {
        claimant: request.claimant.as_str(),
        process: request.process.as_ref().map(|process| (i64::from(process.pid), process.to_string())),
        host: &me.host,
        classes: ClassSet::any(&is_offered).within(&request.classes),
        choice: &request.choice,
        secrets: &secrets,
        lease_secs: &timeout_secs,
        event: &|run| NewEvent {
            actor: request.claimant.to_string(),
            ..me.event_of_run("claimed", run.task_id, run.run_id, serde_json::json!({ "attempt": run.attempt }))
        },
    };
    if store.has_due_task()? {
        store.create_missing_runs(&mut |_| {})?;
    }
    // A read without the lock comes first, because many claimants may be waiting.
    if !store.has_claimable_outside(&claim)? {
        return Ok(Vec::new());
    }
    fault_point!("outside_claim.ready");
    if !in_doubt.begin(leaver) {
        return Ok(Vec::new());
    }
    let claimed = match store.claim_outside(&claim) {
        Ok(claimed) => claimed,
        Err(error) => {
            // The COMMIT may have succeeded, unless this claimant may not claim at all.
            if !matches!(error, StoreError::Forbidden { .. }) {
                ctx.spool_problem = in_doubt.leave().or_else(|| ctx.spool_problem.take());
            }
            in_doubt.end();
            return Err(error.into());
        }
    };
    fault_point!("outside_claim.committed");
    // The claim stays in doubt until the claimant has received its runs.
    if claimed.is_empty() {
        in_doubt.end();
    }
    Ok(claimed.into_iter().map(|claimed| offer(claimed, &timeout_secs, settings)).collect())
}

fn offer(
    claimed: OutsideRun,
    timeout_secs: &dyn Fn(Option<&TaskClass>, Option<i32>) -> i64,
    settings: &Settings,
) -> Offer {
    let OutsideRun { run, deadline } = claimed;
    let timeout_secs = timeout_secs(Some(&run.class), run.task_timeout_secs);
    let max_retries = settings.allowed_retries(run.max_retries);
    Offer { run, deadline, timeout_secs, max_retries }
}
