//! The outcomes of a worker's runs on their way to the database: written to the spool one by one, sent together.

use super::outcomes::{ClaimedIds, GivenBack, Outcome, hear, send, shorter_if_full};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::files::spool::SpoolFile;
use taskqueue_store::{Claim, EndResult, ManyClaimed, RunEnd, RunRef, Store, StoreError, StoreResult};

/// The result of sending an outcome.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The answer of the store.
    Answered(EndResult),
    /// The database refuses it permanently; it stays in the spool.
    Refused(EngineError),
}

/// Writes the record of an outcome to a file, where it survives a crash of this process, and with `is_synced` also of the
/// machine. Returns why it could not. If there is space for the outcome but not for the output, the output is left out.
pub(crate) fn keep(file: &mut SpoolFile, outcome: &Outcome, record: &str, is_synced: bool) -> Option<String> {
    let shorter = || outcome.without_outputs()?.to_record();
    let kept = if is_synced {
        file.append_or(record, shorter)
    } else {
        file.put(record).or_else(|error| match shorter() {
            Some(shorter) => file.put(&shorter),
            None => Err(error),
        })
    };
    kept.err().map(|error| error.to_string())
}

/// Writes releases of all runs claimed with these tokens to the spool, for the next process on this host: the COMMIT may have
/// succeeded. Returns why it could not.
pub(crate) fn leave_claims(ctx: &Context, tokens: &[String]) -> Option<String> {
    leave_all(ctx, &tokens.iter().map(|token| Outcome::of_claim(ctx, token)).collect::<Vec<_>>())
}

/// Writes releases of these runs, which no slot has begun, to the spool. Returns why it could not.
pub(crate) fn leave_waiting(ctx: &Context, waiting: &[ClaimedRun]) -> Option<String> {
    let database = ctx.store.url().identity();
    let given_back = |run| Outcome::new(database, run, GivenBack::ClaimedAhead.end());
    leave_all(ctx, &waiting.iter().map(given_back).collect::<Vec<_>>())
}

fn leave_all(ctx: &Context, outcomes: &[Outcome]) -> Option<String> {
    let last = outcomes.len().checked_sub(1)?;
    let mut file = match ctx.spool.as_ref()?.take() {
        Ok(file) => file,
        Err(error) => return Some(error.to_string()),
    };
    let records =
        outcomes.iter().enumerate().filter_map(|(place, outcome)| Some((place, outcome, outcome.to_record()?)));
    // Only the last record waits for the disk.
    records.filter_map(|(place, outcome, record)| keep(&mut file, outcome, &record, place == last)).last()
}

/// Sends outcomes that are in the spool, those of successes together. `recorded` is called with those that were stored
/// unchanged.
///
/// # Errors
/// Returns an error if the database is unreachable; then the state of outcomes that were not passed to `recorded` is unknown.
/// Sending them again changes nothing.
pub(crate) fn send_many(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
) -> EngineResult<Vec<Sent>> {
    send_together(ctx, outcomes, recorded, |store, ends, ended| store.end_runs(ends, ended)).map(|(sent, _)| sent)
}

/// Like [`send_many`], and also claims with these tokens, in one commit if possible. The claim is `None` if the database
/// refused it or one of the outcomes; then nothing was claimed, unless the answer to a COMMIT was lost.
///
/// # Errors
/// Returns the errors of [`send_many`]; the COMMIT of the claim may have succeeded.
pub(crate) fn send_many_and_claim(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
    claim: &Claim<'_>,
    tokens: &[String],
) -> EngineResult<(Vec<Sent>, Option<ManyClaimed>)> {
    send_together(ctx, outcomes, recorded, |store, ends, ended| store.end_runs_and_claim(ends, ended, claim, tokens))
}

/// An outcome and its claimed run.
type Known<'a> = (&'a Outcome, ClaimedIds);

fn send_together<T>(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
    write: impl FnOnce(&mut Store, &[(RunRef, &RunEnd)], &mut dyn FnMut(usize, EndResult)) -> StoreResult<T>,
) -> EngineResult<(Vec<Sent>, Option<T>)> {
    let known: Vec<Known<'_>> = outcomes.iter().filter_map(|outcome| Some((*outcome, outcome.claimed?))).collect();
    let ends: Vec<_> = known.iter().map(|(outcome, claimed)| (outcome.reference(*claimed), &outcome.end)).collect();
    let mut answers: Vec<Option<EndResult>> = vec![None; ends.len()];
    ctx.store.wait_for_room(true);
    let written = write(&mut ctx.store, &ends, &mut |place, ended| answers[place] = Some(ended));
    ctx.store.wait_for_room(false);
    match written {
        Err(error @ (StoreError::Unreachable { .. } | StoreError::Busy(_))) => Err(error.into()),
        // An outcome that the database refuses must not affect the others: those without an answer are sent one by one.
        written => Ok((settle(ctx, known, answers, recorded)?, written.ok())),
    }
}

/// Returns the result of each outcome; those without an answer are sent one by one.
fn settle(
    ctx: &mut Context,
    known: Vec<Known<'_>>,
    answers: Vec<Option<EndResult>>,
    recorded: &mut dyn FnMut(&Outcome),
) -> EngineResult<Vec<Sent>> {
    let mut sent = Vec::with_capacity(known.len());
    for ((outcome, claimed), answer) in known.into_iter().zip(answers) {
        let heard = match answer {
            Some(ended) => {
                if ended.is_as_asked() {
                    recorded(outcome);
                }
                hear(ctx, outcome, claimed, ended)
            }
            None => shorter_if_full(send(ctx, outcome, claimed), outcome, |shorter| send(ctx, shorter, claimed)),
        };
        sent.push(match heard {
            Ok(ended) => Sent::Answered(ended),
            Err(error @ EngineError::Store(StoreError::Database(_) | StoreError::Full { .. })) => {
                // In a new file for the next process on this host, because the file of the worker is emptied.
                let problem = leave_all(ctx, std::slice::from_ref(outcome));
                ctx.spool_problem = problem.or_else(|| ctx.spool_problem.take());
                Sent::Refused(error)
            }
            Err(error) => return Err(error),
        });
    }
    Ok(sent)
}
