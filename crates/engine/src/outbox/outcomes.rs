//! How runs ended, on the way into the database: first on the local disk, then sent, guarded by the run's token. Also that
//! a run is given back, because the database was away for so long that its handler was never started, or was killed.
//!
//! What a database that is down, or a runner that dies, keeps from being sent is sent by whichever process of this host
//! comes next. It may come too late then, and is refused like every late result (rule R3).

use serde::{Deserialize, Serialize};

use crate::upkeep::announce::start_hook;
use crate::{Context, EngineError, EngineResult, NotRecorded};
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_host::files::spool::{Spool, SpoolFile};
use taskqueue_store::{Ended, NewEvent, RunEnd, RunRef, StoreError};

/// Room for an outcome with some pages of what its handler wrote; without that it needs less than one page, mostly.
const ROOM_BYTES: u64 = 64 << 10;

/// How a run ended, with all that its row needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The address of the store, without its password.
    pub(crate) database: String,
    /// The run and its task; `None` where the answer to the claim never came.
    #[serde(flatten)]
    pub(crate) claimed: Option<Claimed>,
    /// The token of its claim.
    pub(crate) token: String,
    /// In place of a token, where a claimant never got the answer to its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<OutsideDoubt>,
    /// What is written.
    pub(crate) end: RunEnd,
}

/// What tells a claim by a claimant from all others: a token begins with the id of its run, which nobody was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutsideDoubt {
    /// Who claimed.
    claimant: String,
    /// The random parts of its tokens.
    secrets: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(database: &str, run: &ClaimedRun, end: RunEnd) -> Self {
        let claimed = Some(Claimed { run_id: run.run_id, task_id: run.task_id });
        Self { database: database.to_owned(), claimed, token: run.token.clone(), outside: None, end }
    }

    /// Of whatever the claim with this token has taken, which nobody was told.
    pub(crate) fn of_claim(ctx: &Context, token: &str) -> Self {
        let end = GivenBack::NotStarted.end();
        Self { database: ctx.store.url().to_string(), claimed: None, token: token.to_owned(), outside: None, end }
    }

    /// The same of a claim by a claimant.
    fn of_outside_claim(ctx: &Context, claimant: &ClaimantId, secrets: &[String]) -> Self {
        let outside = OutsideDoubt { claimant: claimant.to_string(), secrets: secrets.to_vec() };
        Self { outside: Some(outside), ..Self::of_claim(ctx, "") }
    }

    /// The same without what the handler wrote; `None` where it wrote nothing.
    pub(crate) fn without_outputs(&self) -> Option<Self> {
        let has_any = !self.end.outputs.is_empty();
        has_any.then(|| Self { end: RunEnd { outputs: Vec::new(), ..self.end.clone() }, ..self.clone() })
    }

    pub(crate) fn reference(&self, claimed: Claimed) -> RunRef {
        RunRef { id: claimed.run_id, token: self.token.clone() }
    }

    /// What stands in the spool of it; always text, as every part of it is.
    pub(crate) fn to_record(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Whether it is of the run that has this token.
    fn is_of(&self, token: &str) -> bool {
        let has_secret = |outside: &OutsideDoubt| {
            token.split_once('-').is_some_and(|(_, secret)| outside.secrets.iter().any(|own| own == secret))
        };
        self.outside.as_ref().map_or_else(|| self.token == token, has_secret)
    }
}

/// Puts this end on the disk, for the next process of this host to send, when it is called: for a process that is about to
/// end with its run. Not in the runner's own file, which is in the hands of whoever may be busy for ever.
pub(crate) fn prepared(
    spool: Option<&Spool>,
    database: &str,
    run: &ClaimedRun,
    end: RunEnd,
) -> impl Fn() + Send + use<> {
    let (spool, outcome) = (spool.cloned(), Outcome::new(database, run, end));
    move || {
        // Without it the run is rescued like that of any dead process.
        let _ = leave(spool.as_ref().and_then(|spool| spool.take().ok()).as_mut(), &outcome);
    }
}

/// Leaves on the disk, for the next process of this host, that whatever this claim has taken is given back, when it is called:
/// its COMMIT may have happened, and nobody has its tokens. Returns the file, which nobody else reads while it is held, or why
/// there is none.
pub(crate) fn outside_claim_leaver(
    ctx: &Context,
    claimant: &ClaimantId,
    secrets: &[String],
) -> impl Fn() -> Result<Option<SpoolFile>, String> + Send + use<> {
    let spool = ctx.spool.clone();
    let outcome = Outcome::of_outside_claim(ctx, claimant, secrets);
    move || {
        let Some(spool) = &spool else { return Ok(None) };
        let mut file = spool.take().map_err(|error| error.to_string())?;
        leave(Some(&mut file), &outcome).map_or(Ok(Some(file)), Err)
    }
}

/// What a claim took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Claimed {
    /// The run.
    pub(crate) run_id: RunId,
    /// Its task.
    pub(crate) task_id: TaskId,
}

/// Why a run is given back by a runner that cannot reach the database. It is left on the disk for the next process of this
/// host; without a disk the run is rescued, which costs an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GivenBack {
    /// The lease could not be renewed. Its program was killed; a handler in Rust that did not return was left behind.
    LeaseOver,
    /// The claim may have taken it, but nobody was told.
    NotStarted,
    /// It was claimed ahead of the slots of its worker, and none has begun it.
    ClaimedAhead,
}

impl GivenBack {
    /// No attempt is counted: what failed is not the task.
    pub(crate) fn end(self) -> RunEnd {
        let (code, message) = match self {
            Self::LeaseOver => ("lease-over", "the lease could not be renewed in time, so the run was given up"),
            Self::NotStarted => ("not-started", "the database could not be reached when the run was claimed"),
            Self::ClaimedAhead => ("claimed-ahead", "it was claimed ahead, and no slot of its runner has begun it"),
        };
        RunEnd::of(RunEvent::Release, code, message, &format!("{code}: released"))
    }
}

/// Reserves room on the disk for an outcome while there is any: the handler itself may fill the disk. Without it the outcome
/// may find room all the same; where it does not, `leave` says so.
pub(crate) fn reserve_room(file: Option<&mut SpoolFile>) {
    let _ = file.map(|file| file.reserve(ROOM_BYTES));
}

/// Puts an outcome on the disk for the next process of this host, and says why it could not. A disk that is full keeps
/// nobody from anything: it is the net below, not the way. Where it has room for the outcome but not for what the handler
/// wrote, that is left out.
pub(crate) fn leave(file: Option<&mut SpoolFile>, outcome: &Outcome) -> Option<String> {
    let file = file?;
    let line = |outcome: &Outcome| serde_json::to_string(outcome).map_err(std::io::Error::from);
    let shorter = || line(&outcome.without_outputs()?).ok();
    line(outcome).and_then(|text| file.append_or(&text, shorter)).err().map(|error| error.to_string())
}

/// Puts the outcome of a run on the disk, sends it, and takes it off again. A database that has no room for it is waited for
/// like one that is away, and then gets it without what the handler wrote. What the store made of it.
///
/// # Errors
/// [`EngineError::NotRecorded`]; the outcome stays on the disk then, unless that failed too.
pub(crate) fn record(ctx: &mut Context, mut file: Option<&mut SpoolFile>, outcome: &Outcome) -> EngineResult<Ended> {
    ctx.store.wait_for_room(true);
    let recorded = keep_and_send(ctx, file.as_deref_mut(), outcome);
    ctx.store.wait_for_room(false);
    let recorded = shorter_if_full(recorded, outcome, |shorter| send_kept(ctx, file.as_deref_mut(), shorter));
    match (recorded, outcome.claimed) {
        (Err(EngineError::Store(source)), Some(claimed)) => {
            let is_kept = file.is_some_and(|file| !file.records().is_empty());
            let why_not = || ctx.spool_problem.clone().unwrap_or_else(|| "there is no spool".to_owned());
            let directory = ctx.spool.as_ref().filter(|_| is_kept).map(|spool| spool.directory().to_owned());
            Err(EngineError::NotRecorded(Box::new(NotRecorded {
                run_id: claimed.run_id.0,
                task_id: claimed.task_id.0,
                ended: words(&outcome.end),
                kept: directory.ok_or_else(why_not),
                source,
            })))
        }
        (recorded, _) => recorded,
    }
}

fn words(end: &RunEnd) -> String {
    match end.event {
        RunEvent::Succeed => "success".to_owned(),
        _ => error_words(&end.error_code, &end.error_message),
    }
}

fn keep_and_send(ctx: &mut Context, mut file: Option<&mut SpoolFile>, outcome: &Outcome) -> EngineResult<Ended> {
    ctx.spool_problem = leave(file.as_deref_mut(), outcome).or_else(|| ctx.spool_problem.take());
    fault_point!("outcome.on_disk");
    send_kept(ctx, file, outcome)
}

/// Sends an outcome that is on the disk, and takes it off.
fn send_kept(ctx: &mut Context, file: Option<&mut SpoolFile>, outcome: &Outcome) -> EngineResult<Ended> {
    let ended = match outcome.claimed {
        Some(claimed) => send(ctx, outcome, claimed)?,
        None => Ended::Recorded,
    };
    fault_point!("outcome.sent");
    if let Some(file) = file {
        // Should it stay, it is sent again, which changes nothing.
        let _ = file.clear();
        fault_point!("outcome.cleared");
    }
    Ok(ended)
}

/// Where a database that has room for little had none for this outcome, it is sent without what the handler wrote.
pub(crate) fn shorter_if_full<T>(
    sent: EngineResult<T>,
    outcome: &Outcome,
    send: impl FnOnce(&Outcome) -> EngineResult<T>,
) -> EngineResult<T> {
    match sent {
        Err(EngineError::Store(full @ StoreError::Full { .. })) => {
            outcome.without_outputs().map_or(Err(full.into()), |shorter| send(&shorter))
        }
        sent => sent,
    }
}

pub(crate) fn send(ctx: &mut Context, outcome: &Outcome, claimed: Claimed) -> EngineResult<Ended> {
    let ended = ctx.store.end_run(&outcome.reference(claimed), &outcome.end)?;
    if ended.is_as_asked() {
        start_hook(ctx, claimed.task_id, claimed.run_id, &outcome.end);
    }
    hear(ctx, outcome, claimed, ended)
}

/// What the store made of an end to which it has given this answer. Where somebody else was first, that is kept.
pub(crate) fn hear(ctx: &mut Context, outcome: &Outcome, claimed: Claimed, ended: Ended) -> EngineResult<Ended> {
    if !matches!(ended, Ended::Lost { .. }) {
        return Ok(ended);
    }
    // It may have been sent before, and the answer was lost: then it is not late.
    let ended = ctx.store.find_end(&outcome.reference(claimed), &outcome.end)?;
    if let Ended::Lost { found } = &ended {
        record_late_result(ctx, outcome, claimed, found)?;
    }
    Ok(ended)
}

/// A late finisher is refused, and that is kept (rule R3).
fn record_late_result(ctx: &mut Context, outcome: &Outcome, claimed: Claimed, found: &str) -> EngineResult<()> {
    let end = &outcome.end;
    let details = serde_json::json!({
        "found": found, "decision": end.decision, "error_code": end.error_code,
        "error_message": end.error_message, "results": end.results,
    });
    // A process that was killed between this and the end of its record is repeated by the next one.
    Ok(ctx.store.record_event_once(&NewEvent {
        kind: "late-result",
        task_id: Some(claimed.task_id),
        run_id: Some(claimed.run_id),
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details,
    })?)
}

/// Sends what dead processes of this host have left. Returns how many outcomes that were.
///
/// # Errors
/// The database's; what is not sent stays. A spool that cannot be read is no reason to stop: it is tried again.
pub(crate) fn send_left_over(ctx: &mut Context) -> EngineResult<usize> {
    let Some(spool) = ctx.spool.clone() else { return Ok(0) };
    let mut sent = 0;
    for mut file in spool.left_over() {
        fault_point!("left_over.taken");
        sent += empty(ctx, &mut file)?;
    }
    if sent > 0 {
        ctx.notify_finished();
    }
    Ok(sent)
}

/// Whether another process of this host is about to send how this run ended.
pub(crate) fn is_being_sent(ctx: &Context, token: &str) -> bool {
    let held = ctx.spool.as_ref().and_then(|spool| spool.held_records().ok()).unwrap_or_default();
    held.iter().any(|record| serde_json::from_str::<Outcome>(record).is_ok_and(|outcome| outcome.is_of(token)))
}

/// Whether how this run ended stands in a file that its process has left.
pub(crate) fn has_outcome_of(spool: &Spool, token: &str) -> bool {
    let is_of_it = |record: &String| serde_json::from_str::<Outcome>(record).is_ok_and(|outcome| outcome.is_of(token));
    spool.left_over().any(|file| file.records().iter().any(is_of_it))
}

/// Sends the records of a file.
///
/// # Errors
/// The database's; what is not sent stays.
fn empty(ctx: &mut Context, file: &mut SpoolFile) -> EngineResult<usize> {
    let database = ctx.store.url().to_string();
    let mut sent = 0;
    for record in file.records().to_vec() {
        // Another store's, or a newer version's, is left for whom it is for.
        if let Ok(outcome) = serde_json::from_str::<Outcome>(&record)
            && outcome.database == database
        {
            let sent_once_more = send_once_more(ctx, &outcome);
            match shorter_if_full(sent_once_more, &outcome, |shorter| send_once_more(ctx, shorter)) {
                // Refused for good: it must not stop everything else on this host. Its run is rescued, and then it comes
                // too late, which is kept.
                Err(EngineError::Store(StoreError::Database(_))) => {}
                // The same for one that ends its connection (it is too large), while the database answers others.
                Err(EngineError::Store(StoreError::Unreachable { .. })) if ctx.store.now().is_ok() => {}
                other => {
                    other?;
                    sent += 1;
                }
            }
        }
    }
    fault_point!("left_over.sent");
    if sent == file.records().len() {
        let _ = file.clear();
        fault_point!("left_over.cleared");
    }
    Ok(sent)
}

/// Gives back what the claim has taken, if it has taken anything.
fn give_back_outside(ctx: &mut Context, outcome: &Outcome, outside: &OutsideDoubt) -> EngineResult<()> {
    for run in ctx.store.find_claimed_outside(&outside.claimant, &outside.secrets)? {
        // Whoever was first has ended it: it never began, so that nothing comes too late.
        ctx.store.end_run(&run, &outcome.end)?;
    }
    Ok(())
}

/// The process that wrote it may have died after the database had it.
fn send_once_more(ctx: &mut Context, outcome: &Outcome) -> EngineResult<()> {
    if let Some(outside) = &outcome.outside {
        return give_back_outside(ctx, outcome, outside);
    }
    let claimed = match outcome.claimed {
        Some(claimed) => claimed,
        None => match ctx.store.find_claimed(&outcome.token)? {
            Some((run_id, task_id)) => Claimed { run_id, task_id },
            // The claim took nothing, or it has been rescued: then there is no late result, for it never began.
            None => return Ok(()),
        },
    };
    let found = match ctx.store.get_run(claimed.run_id) {
        Err(StoreError::NotFound(_)) => return Ok(()),
        found => found?,
    };
    if found.token.as_deref() != Some(outcome.token.as_str()) || !outcome.end.is_end_of(&found) {
        send(ctx, outcome, claimed)?;
    }
    Ok(())
}
