//! Ends many runs at once, for a runner with many slots: successes in few statements, other ends one by one.

use std::collections::{HashMap, HashSet};

use crate::backend;
use crate::backend::batch::{self, EndedRow, Success, SuccessDetails};
use crate::base::connection::AnyConnection;
use crate::records::outputs::put_outputs;
use crate::records::runs::RunRef;
use crate::rules::dependencies::satisfy_dependants;
use crate::session::origin::Origin;
use crate::transitions::claiming::claim::Claim;
use crate::transitions::claiming::claim_many::{ManyClaimed, claim_beside_others};
use crate::transitions::ending::end::repeated_or_lost;
use crate::transitions::ending::keep::{keep_as_classes_state, keep_results_as_stated};
use crate::transitions::ending::run_end::{EndCondition, EndResult, RunEnd};
use crate::transitions::recur::follow_settled;
use crate::{Store, StoreResult};
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::TaskId;

impl RunEnd {
    /// Returns true if it is a success without further effects.
    fn is_plain_success(&self) -> bool {
        self.event == RunEvent::Succeed
            && self.condition == EndCondition::Held
            && self.crash.is_none()
            && self.hold.is_none()
            && self.meta.is_none()
            && self.notes.is_empty()
            && self.error_code.is_empty()
            && self.error_message.is_empty()
    }

    fn as_success<'a>(&'a self, run: &'a RunRef) -> Success<'a> {
        Success {
            run_id: run.id.0,
            token: &run.token,
            handler: self.handler.as_ref().map(|(pid, identity)| (*pid, identity.as_str())),
            usage: self.usage,
            details: SuccessDetails {
                decision: &self.decision,
                results: self.results.as_deref(),
                message: self.message.as_deref(),
            },
        }
    }
}

impl Store {
    /// Ends these runs, each as [`Store::end_run`] would, the successes in one transaction. The answers are in their order. After
    /// an error, runs without an answer have not ended, unless the answer to a COMMIT was lost.
    ///
    /// # Errors
    /// The database could not be written; `ended` was called for all runs that have ended by then.
    pub fn end_runs(&mut self, ends: &[(RunRef, &RunEnd)], ended: &mut dyn FnMut(usize, EndResult)) -> StoreResult<()> {
        let is_kept_apart = self.auditor()?.is_some();
        let is_plain = |end: &RunEnd| !is_kept_apart && end.is_plain_success();
        let (plain, others): (Vec<_>, Vec<_>) = ends.iter().enumerate().partition(|(_, (_, end))| is_plain(end));
        if !plain.is_empty() {
            let runs: Vec<&(RunRef, &RunEnd)> = plain.iter().map(|(_, end)| *end).collect();
            for ((place, _), answer) in plain.iter().zip(self.end_successes(&runs)?) {
                ended(*place, answer);
            }
        }
        for (place, (run, end)) in others {
            ended(place, self.end_run(run, end)?);
        }
        Ok(())
    }

    fn end_successes(&mut self, ends: &[&(RunRef, &RunEnd)]) -> StoreResult<Vec<EndResult>> {
        let keep_of = self.keep_of.clone();
        let (answers, freed_keys) = self.write_key(|conn| {
            backend::enter_both_tables(conn)?;
            let written = write_successes(conn, ends, keep_of.as_ref())?;
            fault_point!("end_many.before_commit");
            Ok(written)
        })?;
        self.pass_key_slots_on(&freed_keys);
        Ok(answers)
    }

    /// Same as [`Store::end_runs`] followed by [`Store::claim_runs`], in one commit if only successes ended.
    ///
    /// # Errors
    /// The database could not be written. `ended` was called for all runs that have ended by then. Nothing was claimed, unless
    /// the answer to a COMMIT was lost.
    pub fn end_runs_and_claim(
        &mut self,
        ends: &[(RunRef, &RunEnd)],
        ended: &mut dyn FnMut(usize, EndResult),
        claim: &Claim<'_>,
        tokens: &[String],
    ) -> StoreResult<ManyClaimed> {
        let is_plain = self.auditor()?.is_none() && ends.iter().all(|(_, end)| end.is_plain_success());
        if ends.is_empty() || !is_plain {
            self.end_runs(ends, ended)?;
            return self.claim_runs(claim, tokens);
        }
        let ends: Vec<&(RunRef, &RunEnd)> = ends.iter().collect();
        let (mut is_repeated, remembered, keep_of) = (false, self.low_water, self.keep_of.clone());
        let (answers, freed_keys, shared, low_water) = self.shared_claim_write(|conn| {
            let mut low_water = remembered;
            let (answers, freed_keys) = write_successes(conn, &ends, keep_of.as_ref())?;
            let shared = claim_beside_others(conn, claim, tokens, is_repeated, &mut low_water)?;
            // An error after this point may belong to a COMMIT that succeeded.
            is_repeated = true;
            fault_point!("end_many.before_commit_with_claim");
            Ok((answers, freed_keys, shared, low_water))
        })?;
        self.low_water = low_water;
        self.pass_key_slots_on(&freed_keys);
        answers.into_iter().enumerate().for_each(|(place, answer)| ended(place, answer));
        let claimed = self.finish_claim(shared, claim, tokens)?;
        if freed_keys.is_empty() || !claimed.runs.is_empty() || claimed.is_crowded {
            return Ok(claimed);
        }
        // The next runs got the freed slots after this claim.
        self.claim_runs(claim, tokens)
    }

    fn pass_key_slots_on(&mut self, freed_keys: &[String]) {
        for key in freed_keys {
            fault_point!("end_many.key_freed");
            // Errors are ignored: the runs have ended, and `create-runs` assigns free slots.
            let _ = self.pass_key_slot_on(key);
        }
    }
}

/// Returns the answer to each, and the limit keys of which a slot is now free, in the order in which their last runs ended: the key
/// whose run ended last goes behind the others.
fn write_successes(
    conn: &mut AnyConnection,
    ends: &[&(RunRef, &RunEnd)],
    keep_of: Option<&KeepOfClass>,
) -> StoreResult<(Vec<EndResult>, Vec<String>)> {
    let mut successes: Vec<Success<'_>> = ends.iter().map(|(run, end)| end.as_success(run)).collect();
    // In the order in which leases are renewed, so that the two cannot deadlock.
    successes.sort_unstable_by_key(|success| success.run_id);
    let rows = batch::end_successes(conn, &successes)?;
    keep_as_stated(conn, &rows, keep_of)?;
    fault_point!("end_many.runs_written");
    let ended: HashMap<i64, EndedRow> = rows.into_iter().map(|row| (row.run_id, row)).collect();
    let mut answers = Vec::with_capacity(ends.len());
    for (run, end) in ends {
        answers.push(match ended.get(&run.id.0) {
            Some(row) => {
                put_outputs(conn, run.id, &end.outputs)?;
                follow_success(conn, row)?;
                EndResult::Recorded
            }
            // An earlier attempt whose answer was lost may have ended it.
            None => repeated_or_lost(conn, run, end)?,
        });
    }
    Ok((answers, freed_keys(ends.iter().filter_map(|(run, _)| ended.get(&run.id.0)))))
}

/// Returns each key once, at the place of its last run.
fn freed_keys<'a>(rows: impl DoubleEndedIterator<Item = &'a EndedRow>) -> Vec<String> {
    let mut known = HashSet::new();
    let newest_first = rows.rev().filter_map(|row| row.freed_key.as_ref());
    let mut keys: Vec<String> = newest_first.filter(|key| known.insert(*key)).cloned().collect();
    keys.reverse();
    keys
}

fn keep_as_stated(conn: &mut AnyConnection, rows: &[EndedRow], keep_of: Option<&KeepOfClass>) -> StoreResult<()> {
    let tasks: Vec<i64> = rows.iter().map(|row| row.task_id).collect();
    keep_as_classes_state(conn, keep_of, &tasks)?;
    let stated = rows.iter().filter(|row| row.keeps_results || keep_of.is_some());
    keep_results_as_stated(conn, keep_of, &stated.map(|row| row.run_id).collect::<Vec<_>>())
}

fn follow_success(conn: &mut AnyConnection, row: &EndedRow) -> StoreResult<()> {
    if row.has_succeeded && row.has_dependants {
        satisfy_dependants(conn, row.task_id, true)?;
    }
    if row.has_succeeded && row.recurs {
        follow_settled(conn, TaskId(row.task_id), &Origin::without_user(&row.host))?;
    }
    Ok(())
}
