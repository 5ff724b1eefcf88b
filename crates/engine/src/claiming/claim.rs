//! `claim`: hands runs to a claimant, a worker in any language that is no runner of this program.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use wildmatch::WildMatch;

use crate::change::not_claimable::is_never_claimable;
pub use crate::change::not_claimable::{NotClaimable, WhyNot, why_not_claimable};
use crate::outbox::outcomes::{outside_claim_leaver, send_left_over};
use crate::upkeep::rescue::rescue_some;
use crate::{Context, EngineError, EngineResult, new_tokens};
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::class_set::ClassSet;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_choice::TaskChoice;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::SpoolFile;
use taskqueue_host::random::spread;
use taskqueue_process::identities::claimant::is_shown_by;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{NewEvent, OutsideClaim, OutsideRun, StoreError};

/// The pause after the first look that found nothing; it grows from look to look.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause: what is queued is offered within a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a claim that waits takes back runs that were given up.
const RESCUE_EVERY: Duration = Duration::from_secs(5);

/// The most runs of one claim.
pub const MAX_COUNT: u16 = 1_000;

/// Who claims, and what.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// By this name it is remembered.
    pub claimant: ClaimantId,
    /// Names of classes, or patterns with `*` and `?`; empty offers all.
    pub classes: Vec<String>,
    /// Which tasks of these classes; all where nothing is set.
    pub choice: TaskChoice,
    /// At most so many runs.
    pub count: usize,
    /// How long there may be nothing to claim.
    pub wait: Duration,
    /// Its process, on this host.
    pub process: Option<ProcessIdentity>,
}

impl ClaimRequest {
    /// Returns true for a class whose runs it asks for.
    pub(crate) fn offers(&self, class: &TaskClass) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|pattern| WildMatch::new(pattern).matches(class))
    }
}

/// A run, as a claimant gets it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The run.
    pub run: ClaimedRun,
    /// When somebody else may get it, unless a heartbeat comes before.
    pub deadline: DateTime<Utc>,
    /// How far each heartbeat moves the deadline.
    pub timeout_secs: i64,
    /// How many attempts may fail.
    pub max_retries: i32,
}

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// These are the claimant's.
    Runs(Vec<Offer>),
    /// There was nothing for it in all that time, or the task that it names cannot become free for it.
    Nothing,
    /// A signal came first.
    Stopped,
}

/// Puts on the disk what a claim may have taken, and returns the file, or says why it could not.
type Leaver = Box<dyn Fn() -> Result<Option<SpoolFile>, String> + Send>;

/// What a claim may have taken, as long as nobody has its answer: for whoever ends the process without waiting for one.
#[derive(Clone, Default)]
pub struct InDoubt(Arc<Mutex<Doubt>>);

#[derive(Default)]
struct Doubt {
    leaver: Option<Leaver>,
    has_left: bool,
    /// Nobody else reads it before this process has ended, or has given up: until then the claim may still succeed.
    file: Option<SpoolFile>,
}

impl InDoubt {
    /// Leaves it on the disk, to be given back by the next process of this host; nothing is claimed from now on. Why it could
    /// not be left there; `None` also where nothing is in doubt.
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

    /// Whether the claim may begin: nobody has left yet.
    fn begin(&self, leaver: Leaver) -> bool {
        let mut doubt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doubt.leaver = Some(leaver);
        !doubt.has_left
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).leaver = None;
    }
}

/// The process with this PID, which is to be that of a claimant.
///
/// # Errors
/// There is none, or it is none that could be a claimant.
pub fn find_process(pid: i32) -> EngineResult<ProcessIdentity> {
    let found = if pid > 1 { ProcessIdentity::of_pid(pid) } else { Ok(None) };
    let found = found.map_err(|source| EngineError::Os { what: "the process cannot be seen", source })?;
    found.ok_or_else(|| EngineError::Input(format!("there is no process {pid} that could be a claimant")))
}

/// Whether this process would be asked to end when the claimant's time is over.
#[must_use]
pub fn can_be_ended(process: &ProcessIdentity, claimant: &ClaimantId) -> bool {
    is_shown_by(process.pid, claimant.as_str())
}

/// Claims the first runs that are offered to this claimant; waits for the first one if asked to. First it takes back a few runs
/// whose lease is over or whose claimant is dead, and creates the runs of due tasks: claimants alone stall only at schedules. What a
/// claim may have taken that was never answered is left on the disk, to be given back by the next process of this host.
///
/// # Errors
/// There is no such task as it names, or the database's.
pub fn claim(ctx: &mut Context, request: &ClaimRequest, stop: &StopSignals) -> EngineResult<Claimed> {
    claim_in_doubt(ctx, request, stop, &InDoubt::default())
}

/// The same for a thread that may be left behind with its process: `in_doubt` knows at each moment what that one has to leave
/// on the disk. An answer that nobody took counts as none.
///
/// # Errors
/// There is no such task as it names, or the database's.
pub fn claim_in_doubt(
    ctx: &mut Context,
    request: &ClaimRequest,
    stop: &StopSignals,
    in_doubt: &InDoubt,
) -> EngineResult<Claimed> {
    // Whoever says "stop" does not want to wait for a database that is busy or away.
    if let Ok(count) = stop.counter() {
        ctx.store.give_up_when(move || count() >= 1);
    }
    if let Some(task) = request.choice.task {
        let _ = ctx.store.get_task(task)?;
    }
    // There may be a claim among it whose answer never came: its run is offered again.
    send_left_over(ctx)?;
    let settings = ctx.store.settings()?;
    let until = Moment::after(request.wait);
    let mut pause = FIRST_PAUSE;
    let mut rescue_at = Moment::now();
    loop {
        if rescue_at.has_passed() {
            rescue_some(ctx, &settings)?;
            rescue_at = Moment::after(RESCUE_EVERY);
        }
        let offers = claim_now(ctx, request, &settings, in_doubt)?;
        if !offers.is_empty() {
            return Ok(Claimed::Runs(offers));
        }
        if until.has_passed() || is_never_claimable(ctx, request)? {
            return Ok(Claimed::Nothing);
        }
        if stop.wait(spread_out(pause).min(until.remaining())) {
            return Ok(Claimed::Stopped);
        }
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Half to all of it, so that those who wait do not ask all at once.
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
            kind: "claimed",
            task_id: Some(run.task_id),
            run_id: Some(run.run_id),
            actor: request.claimant.to_string(),
            host: me.host.clone(),
            details: serde_json::json!({ "attempt": run.attempt }),
        },
    };
    if store.has_due_task()? {
        store.create_missing_runs(&mut |_| {})?;
    }
    // The lock is for those who have something to claim: many may wait at the same time.
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
            // Its COMMIT may have happened, unless it is none of ours to make.
            if !matches!(error, StoreError::Forbidden { .. }) {
                ctx.spool_problem = in_doubt.leave().or_else(|| ctx.spool_problem.take());
            }
            in_doubt.end();
            return Err(error.into());
        }
    };
    fault_point!("outside_claim.committed");
    // What was taken stays in doubt until somebody has heard of it.
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
