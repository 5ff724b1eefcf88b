//! Many runs end at once, for a runner with many slots: their successes in a few statements, everything else one by one.

use std::collections::{BTreeSet, HashMap};

use super::super::backend::batch::{self, EndedRow, Manner, Success};
use super::super::backend::{self, AnyConnection};
use super::super::dependencies::satisfy_dependants;
use super::super::runs::RunRef;
use super::super::{Store, StoreResult};
use super::end::{EndCondition, Ended, RunEnd, insert_outputs, repeated_or_lost};
use super::recur::{Author, follow_settled};
use crate::domain::ids::TaskId;
use crate::domain::transition::RunEvent;

impl RunEnd {
    /// Whether it is a success that brings nothing about but that of its task.
    fn is_plain_success(&self) -> bool {
        self.event == RunEvent::Succeed
            && self.condition == EndCondition::Held
            && self.crash.is_none()
            && self.hold.is_none()
            && self.note.is_none()
            && self.error_code.is_empty()
            && self.error_message.is_empty()
    }

    fn as_success<'a>(&'a self, run: &'a RunRef) -> Success<'a> {
        Success {
            run_id: run.id.0,
            token: &run.token,
            handler: self.handler.as_ref().map(|(pid, identity)| (*pid, identity.as_str())),
            manner: Manner {
                decision: &self.decision,
                results: self.results.as_deref(),
                message: self.message.as_deref(),
            },
        }
    }
}

impl Store {
    /// Ends these runs, each as [`Store::end_run`] would, those that succeeded in one transaction. The answers are in their
    /// order; who is not answered any more after an error has not ended, unless the answer to a COMMIT was lost.
    ///
    /// # Errors
    /// The database could not be written; `ended` has heard of all that have ended by then.
    pub fn end_runs(&mut self, ends: &[(RunRef, &RunEnd)], ended: &mut dyn FnMut(usize, Ended)) -> StoreResult<()> {
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

    fn end_successes(&mut self, ends: &[&(RunRef, &RunEnd)]) -> StoreResult<Vec<Ended>> {
        let mut freed_keys = BTreeSet::new();
        let answers = self.write_key(|conn| {
            backend::enter_both_tables(conn)?;
            let successes: Vec<Success<'_>> = ends.iter().map(|(run, end)| end.as_success(run)).collect();
            let rows = batch::end_successes(conn, &successes)?;
            fault_point!("end_many.runs_written");
            freed_keys = rows.iter().filter_map(|row| row.freed_key.clone()).collect();
            let ended: HashMap<i64, EndedRow> = rows.into_iter().map(|row| (row.run_id, row)).collect();
            let mut answers = Vec::with_capacity(ends.len());
            for (run, end) in ends {
                answers.push(match ended.get(&run.id.0) {
                    Some(row) => {
                        insert_outputs(conn, run.id, &end.outputs)?;
                        follow_success(conn, row)?;
                        Ended::Recorded
                    }
                    // An earlier attempt may have ended it, whose answer was lost.
                    None => repeated_or_lost(conn, run, end)?,
                });
            }
            fault_point!("end_many.before_commit");
            Ok(answers)
        })?;
        for key in &freed_keys {
            fault_point!("end_many.key_freed");
            // The runs have ended, whatever comes of this: `create-runs` gives every free slot.
            let _ = self.pass_key_slot_on(key);
        }
        Ok(answers)
    }
}

fn follow_success(conn: &mut AnyConnection, row: &EndedRow) -> StoreResult<()> {
    if row.has_succeeded && row.has_dependants {
        satisfy_dependants(conn, row.task_id)?;
    }
    if row.has_succeeded && row.recurs {
        // By nobody: the time has come.
        follow_settled(conn, TaskId(row.task_id), &Author { name: "", host: &row.host })?;
    }
    Ok(())
}
