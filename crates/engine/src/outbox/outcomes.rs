//! The outcomes of runs: first written to the local disk, then sent to the database, guarded by the token of the run. A release
//! is an outcome too: when the database was unreachable for so long that a handler was never started or was killed.
//!
//! Outcomes that were not sent because the database was down or the runner died are sent by the next process on this host. They
//! may be too late, and are then refused like every late result (rule R3).

use serde::{Deserialize, Serialize};

use crate::announcing::announce::start_hook;
use crate::context::Context;
use crate::error::{EngineError, EngineResult, NotRecorded};
use crate::me::Me;
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_host::files::spool::{Spool, SpoolFile};
use taskqueue_store::{EndResult, NewEvent, RunEnd, RunRef, StoreError};

/// Space for an outcome with some pages of output; an outcome without output mostly needs less than one page.
const ROOM_BYTES: u64 = 64 << 10;

/// How a run ended, with everything to write to its row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The identity of the store.
    pub(crate) database: String,
    /// The run and its task; `None` if the answer to the claim was lost.
    #[serde(flatten)]
    pub(crate) claimed: Option<ClaimedIds>,
    /// The token of its claim.
    pub(crate) token: String,
    /// Instead of a token, if the answer to a claimant's claim was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<OutsideDoubt>,
    /// The end to record.
    pub(crate) end: RunEnd,
}

/// Identifies a claim by a claimant whose answer was lost. Its tokens begin with the ids of the runs, which are unknown then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutsideDoubt {
    /// The name of the claimant.
    claimant: String,
    /// The random parts of its tokens.
    secrets: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(database: &str, run: &ClaimedRun, end: RunEnd) -> Self {
        let claimed = Some(ClaimedIds { run_id: run.run_id, task_id: run.task_id });
        Self { database: database.to_owned(), claimed, token: run.token.clone(), outside: None, end }
    }

    /// Creates the release of all runs that were claimed with this token, when the answer to the claim was lost.
    pub(crate) fn of_claim(ctx: &Context, token: &str) -> Self {
        let end = GivenBack::NotStarted.end();
        Self {
            database: ctx.store.url().identity().to_owned(),
            claimed: None,
            token: token.to_owned(),
            outside: None,
            end,
        }
    }

    /// Like `of_claim`, for a claim by a claimant.
    fn of_outside_claim(ctx: &Context, claimant: &ClaimantId, secrets: &[String]) -> Self {
        let outside = OutsideDoubt { claimant: claimant.to_string(), secrets: secrets.to_vec() };
        Self { outside: Some(outside), ..Self::of_claim(ctx, "") }
    }

    /// Returns a copy without output; `None` if there is no output.
    pub(crate) fn without_outputs(&self) -> Option<Self> {
        let has_any = !self.end.outputs.is_empty();
        has_any.then(|| Self { end: RunEnd { outputs: Vec::new(), ..self.end.clone() }, ..self.clone() })
    }

    pub(crate) fn reference(&self, claimed: ClaimedIds) -> RunRef {
        RunRef { id: claimed.run_id, token: self.token.clone() }
    }

    /// Returns its record for the spool; serializing cannot fail, because every part is text.
    pub(crate) fn to_record(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Returns true if it belongs to the run with this token.
    fn is_of(&self, token: &str) -> bool {
        let has_secret = |outside: &OutsideDoubt| {
            token.split_once('-').is_some_and(|(_, secret)| outside.secrets.iter().any(|own| own == secret))
        };
        self.outside.as_ref().map_or_else(|| self.token == token, has_secret)
    }
}

/// Returns a function that writes this end to the spool, for the next process on this host to send. A process that is about to
/// exit with its run calls it. It uses a new file, because another thread may hold the runner's file forever.
pub(crate) fn prepared(
    spool: Option<&Spool>,
    database: &str,
    run: &ClaimedRun,
    end: RunEnd,
) -> impl Fn() + Send + use<> {
    let (spool, outcome) = (spool.cloned(), Outcome::new(database, run, end));
    move || {
        // Without the record, the run is rescued like that of any dead process.
        let _ = leave(spool.as_ref().and_then(|spool| spool.take().ok()).as_mut(), &outcome);
    }
}

/// Returns a function that writes a release of whatever this claim has taken to the spool, for the next process on this host:
/// its COMMIT may have succeeded, and its tokens are lost. The function returns the file, which no other process reads while it
/// is held, or why there is none.
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

/// A claimed run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ClaimedIds {
    /// The run.
    pub(crate) run_id: RunId,
    /// Its task.
    pub(crate) task_id: TaskId,
}

/// Why a runner that cannot reach the database releases a run. The release is written to the spool for the next process on this
/// host. Without a spool the run is rescued, which costs an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GivenBack {
    /// The lease could not be renewed. Its program was killed; a Rust handler that did not return was left behind.
    LeaseOver,
    /// The claim may have succeeded, but its answer was lost.
    NotStarted,
    /// It was claimed ahead of the worker's slots, and no slot has begun it.
    ClaimedAhead,
}

impl GivenBack {
    /// Returns the end of such a run. No attempt is counted, because the task did not fail.
    pub(crate) fn end(self) -> RunEnd {
        let (code, message) = match self {
            Self::LeaseOver => ("lease-over", "the lease could not be renewed in time, so the run was given up"),
            Self::NotStarted => ("not-started", "the database could not be reached when the run was claimed"),
            Self::ClaimedAhead => ("claimed-ahead", "it was claimed in advance, and no slot of its runner started it"),
        };
        RunEnd::of(RunEvent::Release, code, message, &format!("{code}: released"))
    }
}

/// Reserves disk space for an outcome in advance, because the handler itself may fill the disk. If this fails, the outcome may
/// still fit; otherwise `leave` reports it.
pub(crate) fn reserve_room(file: Option<&mut SpoolFile>) {
    let _ = file.map(|file| file.reserve(ROOM_BYTES));
}

/// Writes an outcome to the spool for the next process on this host, and returns why it could not. A full disk blocks nothing,
/// because the spool is only a safety net. If there is space for the outcome but not for the output, the output is left out.
pub(crate) fn leave(file: Option<&mut SpoolFile>, outcome: &Outcome) -> Option<String> {
    let file = file?;
    let line = |outcome: &Outcome| serde_json::to_string(outcome).map_err(std::io::Error::from);
    let shorter = || line(&outcome.without_outputs()?).ok();
    line(outcome).and_then(|text| file.append_or(&text, shorter)).err().map(|error| error.to_string())
}

/// Writes the outcome of a run to the spool, sends it, and removes it from the spool. A database without space is waited for
/// like an unreachable one, and then gets the outcome without the output. Returns the answer of the store.
///
/// # Errors
/// Returns [`EngineError::NotRecorded`]; the outcome then stays in the spool, unless writing it failed too.
pub(crate) fn record(
    ctx: &mut Context,
    mut file: Option<&mut SpoolFile>,
    outcome: &Outcome,
) -> EngineResult<EndResult> {
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

fn keep_and_send(ctx: &mut Context, mut file: Option<&mut SpoolFile>, outcome: &Outcome) -> EngineResult<EndResult> {
    ctx.spool_problem = leave(file.as_deref_mut(), outcome).or_else(|| ctx.spool_problem.take());
    fault_point!("outcome.on_disk");
    send_kept(ctx, file, outcome)
}

/// Sends an outcome from the spool, and removes it.
fn send_kept(ctx: &mut Context, file: Option<&mut SpoolFile>, outcome: &Outcome) -> EngineResult<EndResult> {
    let ended = match outcome.claimed {
        Some(claimed) => send(ctx, outcome, claimed)?,
        None => EndResult::Recorded,
    };
    fault_point!("outcome.sent");
    if let Some(file) = file {
        // If it stays, it is sent again, which changes nothing.
        let _ = file.clear();
        fault_point!("outcome.cleared");
    }
    Ok(ended)
}

/// Sends the outcome without its output if the database had no space for all of it.
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

pub(crate) fn send(ctx: &mut Context, outcome: &Outcome, claimed: ClaimedIds) -> EngineResult<EndResult> {
    let ended = ctx.store.end_run(&outcome.reference(claimed), &outcome.end)?;
    if ended.is_as_asked() {
        start_hook(ctx, claimed.task_id, claimed.run_id, &outcome.end);
    }
    hear(ctx, outcome, claimed, ended)
}

/// Handles the answer of the store to an end. If another process had ended the run before, stores that as an event.
pub(crate) fn hear(
    ctx: &mut Context,
    outcome: &Outcome,
    claimed: ClaimedIds,
    ended: EndResult,
) -> EngineResult<EndResult> {
    if !matches!(ended, EndResult::Lost { .. }) {
        return Ok(ended);
    }
    // The outcome may have been stored before, with its answer lost: then it is not late.
    let ended = ctx.store.find_end(&outcome.reference(claimed), &outcome.end)?;
    if let EndResult::Lost { found } = &ended {
        record_late_result(ctx, outcome, claimed, found)?;
    }
    Ok(ended)
}

/// Stores the result of a late finisher as an event (rule R3).
fn record_late_result(ctx: &mut Context, outcome: &Outcome, claimed: ClaimedIds, found: &str) -> EngineResult<()> {
    // If this process is killed before it clears its record, the next one repeats this.
    Ok(ctx.store.record_event_once(&late_result(&ctx.me, claimed, found, &outcome.end))?)
}

/// Returns the event about an end that came when the status of the run was already `found`.
pub(crate) fn late_result(me: &Me, claimed: ClaimedIds, found: &str, end: &RunEnd) -> NewEvent {
    let details = serde_json::json!({
        "found": found, "decision": end.decision, "error_code": end.error_code,
        "error_message": end.error_message, "results": end.results,
    });
    me.event_of_run("late-result", claimed.task_id, claimed.run_id, details)
}

/// Sends the outcomes that dead processes of this host have left. Returns how many.
///
/// # Errors
/// Returns an error if the database fails; unsent outcomes stay. A spool that cannot be read is not an error: the next call
/// retries.
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

/// Returns true if another process on this host is about to send the outcome of this run.
pub(crate) fn is_being_sent(ctx: &Context, token: &str) -> bool {
    let held = ctx.spool.as_ref().and_then(|spool| spool.held_records().ok()).unwrap_or_default();
    held.iter().any(|record| serde_json::from_str::<Outcome>(record).is_ok_and(|outcome| outcome.is_of(token)))
}

/// Returns true if a file left by its process contains the outcome of this run.
pub(crate) fn has_outcome_of(spool: &Spool, token: &str) -> bool {
    let is_of_it = |record: &String| serde_json::from_str::<Outcome>(record).is_ok_and(|outcome| outcome.is_of(token));
    spool.left_over().any(|file| file.records().iter().any(is_of_it))
}

/// Sends the records of a file.
///
/// # Errors
/// Returns an error if the database fails; unsent outcomes stay.
fn empty(ctx: &mut Context, file: &mut SpoolFile) -> EngineResult<usize> {
    let database = ctx.store.url().identity().to_owned();
    let mut sent = 0;
    for record in file.records().to_vec() {
        // A record of another store or of a newer version is left for the process that understands it.
        if let Ok(outcome) = serde_json::from_str::<Outcome>(&record)
            && outcome.database == database
        {
            let sent_once_more = send_once_more(ctx, &outcome);
            match shorter_if_full(sent_once_more, &outcome, |shorter| send_once_more(ctx, shorter)) {
                // Refused permanently. It must not block everything else on this host: the run is rescued, and a later result
                // is stored as late.
                Err(EngineError::Store(StoreError::Database(_))) => {}
                // The same applies to an outcome that is too large and breaks its connection, if the database still answers.
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

/// Releases the runs that the claim has taken, if any.
fn give_back_outside(ctx: &mut Context, outcome: &Outcome, outside: &OutsideDoubt) -> EngineResult<()> {
    for run in ctx.store.find_claimed_outside(&outside.claimant, &outside.secrets)? {
        // If another process has ended it before, nothing is late, because the run never began.
        ctx.store.end_run(&run, &outcome.end)?;
    }
    Ok(())
}

/// Sends an outcome again: the process that wrote it may have died after the database stored it.
fn send_once_more(ctx: &mut Context, outcome: &Outcome) -> EngineResult<()> {
    if let Some(outside) = &outcome.outside {
        return give_back_outside(ctx, outcome, outside);
    }
    let claimed = match outcome.claimed {
        Some(claimed) => claimed,
        None => match ctx.store.find_claimed(&outcome.token)? {
            Some((run_id, task_id)) => ClaimedIds { run_id, task_id },
            // The claim took nothing, or the run was rescued. There is no late result, because it never began.
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
