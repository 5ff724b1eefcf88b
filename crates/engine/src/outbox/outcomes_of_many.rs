//! The outcomes of the runs of a worker, on their way into the database: kept one by one, sent together.

use super::outcomes::{Claimed, GivenBack, Outcome, hear, leave, send, shorter_if_full};
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::files::spool::{Spool, SpoolFile};
use taskqueue_store::{Claim, Ended, ManyClaimed, RunEnd, RunRef, Store, StoreError, StoreResult};

/// What became of an outcome that was sent.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The store has given this answer.
    Answered(Ended),
    /// The database refuses it for good; it is left on the disk.
    Refused(EngineError),
}

/// Puts the record of an outcome into a file, where it survives this process, and with `is_synced` the machine, too. Why it
/// could not. Where the disk has room for the outcome but not for what the handler wrote, that is left out.
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

/// Leaves on the disk, for the next process of this host, that whatever was claimed with these tokens is given back: the
/// COMMIT may have happened. Why it could not be left.
pub(crate) fn leave_claims(ctx: &Context, tokens: &[String]) -> Option<String> {
    leave_all(ctx, &tokens.iter().map(|token| Outcome::of_claim(ctx, token)).collect::<Vec<_>>())
}

/// Leaves on the disk that these runs go back, which nobody has begun. Why that could not be left.
pub(crate) fn leave_waiting(ctx: &Context, waiting: &[ClaimedRun]) -> Option<String> {
    let database = ctx.store.url().to_string();
    let given_back = |run| Outcome::new(&database, run, GivenBack::ClaimedAhead.end());
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
    // The disk is waited for once.
    records.filter_map(|(place, outcome, record)| keep(&mut file, outcome, &record, place == last)).last()
}

/// Sends outcomes that are on the disk, those of successes together. `recorded` hears of those that were recorded as they are.
///
/// # Errors
/// The database's, where it is away: then nothing is known of those of which `recorded` has not heard. To send them once more
/// changes nothing.
pub(crate) fn send_many(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
) -> EngineResult<Vec<Sent>> {
    send_together(ctx, outcomes, recorded, |store, ends, ended| store.end_runs(ends, ended)).map(|(sent, _)| sent)
}

/// The same, and claims with these tokens; in one commit where that can be. `None` if the database refused one of the outcomes,
/// or the claim: nothing was claimed then, unless the answer to a COMMIT was lost.
///
/// # Errors
/// As of [`send_many`]; the COMMIT of the claim may have happened.
pub(crate) fn send_many_and_claim(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
    claim: &Claim<'_>,
    tokens: &[String],
) -> EngineResult<(Vec<Sent>, Option<ManyClaimed>)> {
    send_together(ctx, outcomes, recorded, |store, ends, ended| store.end_runs_and_claim(ends, ended, claim, tokens))
}

/// An outcome, and the claim whose run has ended so.
type Known<'a> = (&'a Outcome, Claimed);

fn send_together<T>(
    ctx: &mut Context,
    outcomes: &[&Outcome],
    recorded: &mut dyn FnMut(&Outcome),
    write: impl FnOnce(&mut Store, &[(RunRef, &RunEnd)], &mut dyn FnMut(usize, Ended)) -> StoreResult<T>,
) -> EngineResult<(Vec<Sent>, Option<T>)> {
    let known: Vec<Known<'_>> = outcomes.iter().filter_map(|outcome| Some((*outcome, outcome.claimed?))).collect();
    let ends: Vec<_> = known.iter().map(|(outcome, claimed)| (outcome.reference(*claimed), &outcome.end)).collect();
    let mut answers: Vec<Option<Ended>> = vec![None; ends.len()];
    ctx.store.wait_for_room(true);
    let written = write(&mut ctx.store, &ends, &mut |place, ended| answers[place] = Some(ended));
    ctx.store.wait_for_room(false);
    match written {
        Err(error @ (StoreError::Unreachable { .. } | StoreError::Busy(_))) => Err(error.into()),
        // One that the database refuses must not take the others with it: those that have no answer are sent one by one.
        written => Ok((settle(ctx, known, answers, recorded)?, written.ok())),
    }
}

/// What became of each, where those that have no answer are sent one by one.
fn settle(
    ctx: &mut Context,
    known: Vec<Known<'_>>,
    answers: Vec<Option<Ended>>,
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
                leave_refused(ctx, outcome);
                Sent::Refused(error)
            }
            Err(error) => return Err(error),
        });
    }
    Ok(sent)
}

/// For the next process of this host, in a file of its own: that of the worker is emptied.
fn leave_refused(ctx: &mut Context, outcome: &Outcome) {
    let file = ctx.spool.as_ref().map(Spool::take);
    let problem = match file {
        Some(Ok(mut file)) => leave(Some(&mut file), outcome),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    ctx.spool_problem = problem.or_else(|| ctx.spool_problem.take());
}
