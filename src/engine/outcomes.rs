//! How runs ended, on the way into the database: first on the local disk, then sent, guarded by the run's token.
//!
//! What a database that is down, or a runner that dies, keeps from being sent is sent by whichever process of this host
//! comes next. It may come too late then, and is refused like every late result (rule R3).

use serde::{Deserialize, Serialize};

use super::{Context, EngineError, EngineResult};
use crate::domain::ids::{RunId, TaskId};
use crate::domain::records::ClaimedRun;
use crate::domain::status::RunStatus;
use crate::domain::transition::run_after;
use crate::os::spool::SpoolFile;
use crate::store::{Ended, NewEvent, RunEnd, RunRef, StoreError};

/// How a run ended, with all that its row needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The address of the store, without its password.
    pub(super) database: String,
    /// The run.
    pub(super) run_id: RunId,
    /// Its task.
    pub(super) task_id: TaskId,
    /// The token of its claim.
    pub(super) token: String,
    /// What is written.
    pub(super) end: RunEnd,
}

impl Outcome {
    pub(super) fn new(ctx: &Context, run: &ClaimedRun, end: RunEnd) -> Self {
        let database = ctx.store.url().to_string();
        Self { database, run_id: run.run_id, task_id: run.task_id, token: run.token.clone(), end }
    }
}

/// Puts this end on the disk, for the next process of this host to send, when it is called: for a process that is about to
/// end with its run.
pub(super) fn prepared(ctx: &Context, run: &ClaimedRun, end: RunEnd) -> impl Fn() + Send + use<> {
    let spool = ctx.spool.clone();
    let line = serde_json::to_string(&Outcome::new(ctx, run, end));
    move || {
        // Without it the run is rescued like that of any dead process.
        if let (Some(spool), Ok(line)) = (&spool, &line) {
            let _ = spool.take().and_then(|mut file| file.append(line));
        }
    }
}

/// Puts an outcome on the disk, sends it, and takes it off again. The status that the run has if somebody else was first.
///
/// # Errors
/// The database's; the outcome stays on the disk then, unless that failed too.
pub(super) fn record(
    ctx: &mut Context,
    mut file: Option<&mut SpoolFile>,
    outcome: &Outcome,
) -> EngineResult<Option<String>> {
    // A disk that is full keeps nobody from sending: it is the net below, not the way.
    if let (Some(file), Ok(line)) = (&mut file, serde_json::to_string(outcome)) {
        let _ = file.append(&line);
    }
    let lost_to = send(ctx, outcome)?;
    if let Some(file) = file {
        // Should it stay, it is sent again, which changes nothing.
        let _ = file.clear();
    }
    Ok(lost_to)
}

fn send(ctx: &mut Context, outcome: &Outcome) -> EngineResult<Option<String>> {
    let run = RunRef { id: outcome.run_id, token: outcome.token.clone() };
    match ctx.store.end_run(&run, &outcome.end)? {
        Ended::Recorded => Ok(None),
        Ended::Lost { found } => {
            record_late_result(ctx, outcome, &found)?;
            Ok(Some(found))
        }
    }
}

/// A late finisher is refused, and that is kept (rule R3).
fn record_late_result(ctx: &mut Context, outcome: &Outcome, found: &str) -> EngineResult<()> {
    let end = &outcome.end;
    let details = serde_json::json!({
        "found": found, "decision": end.decision, "error_code": end.error_code,
        "error_message": end.error_message, "results": end.results,
    });
    Ok(ctx.store.record_event(&NewEvent {
        kind: "late-result",
        task_id: Some(outcome.task_id),
        run_id: Some(outcome.run_id),
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details,
    })?)
}

/// Sends what dead processes of this host have left. Returns how many outcomes that were.
///
/// # Errors
/// The database's; what is not sent stays. A spool that cannot be read is no reason to stop: it is tried again.
pub(super) fn send_left_over(ctx: &mut Context) -> EngineResult<usize> {
    let files = ctx.spool.as_ref().and_then(|spool| spool.take_left_over().ok()).unwrap_or_default();
    let mut sent = 0;
    for mut file in files {
        sent += empty(ctx, &mut file)?;
    }
    Ok(sent)
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
            match send_once_more(ctx, &outcome) {
                // Refused for good: it must not stop everything else on this host. Its run is rescued, and then it comes
                // too late, which is kept.
                Err(EngineError::Store(StoreError::Database(_))) => {}
                other => {
                    other?;
                    sent += 1;
                }
            }
        }
    }
    if sent == file.records().len() {
        let _ = file.clear();
    }
    Ok(sent)
}

/// The process that wrote it may have died after the database had it.
fn send_once_more(ctx: &mut Context, outcome: &Outcome) -> EngineResult<()> {
    let found = match ctx.store.get_run(outcome.run_id) {
        Err(StoreError::NotFound(_)) => return Ok(()),
        found => found?,
    };
    let ended_as = run_after(RunStatus::Processing, outcome.end.event);
    let is_recorded = ended_as.is_some_and(|status| found.status.is(status))
        && found.token.as_deref() == Some(outcome.token.as_str())
        && found.decision == outcome.end.decision
        && found.error_code == outcome.end.error_code;
    if !is_recorded {
        send(ctx, outcome)?;
    }
    Ok(())
}
