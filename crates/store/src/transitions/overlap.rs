//! Replaces tasks of schedules with the overlap `replace`: a task that has not finished when the next planned time comes is
//! cancelled as an operator would cancel it. The next task is inserted when its run has ended, in the transaction that ends it.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::cancel::{CancelAnswer, Cancelling, UNFINISHED_HEADS, cancel_task, open_run};
use super::ending::keep::keep_as_classes_state;
use super::keep_claims_out;
use super::recur::{find_head, follow_settled, has_heads};
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::task_queue::dsl;
use crate::base::schema::task_queue_runs;
use crate::base::sql::{SqlMoment, db_now};
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::time::recurrence::Overlap;

impl Store {
    /// Returns true if the tasks of any schedule replace each other.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_replacing_schedules(&mut self) -> StoreResult<bool> {
        self.read(|conn| {
            let replacing = dsl::task_queue
                .filter(dsl::schedule_head.is_not_null())
                .filter(dsl::overlap.eq(Overlap::Replace.as_str()));
            Ok(replacing.select(dsl::id).first::<i64>(conn).optional()?.is_some())
        })
    }

    /// Cancels each task that has not finished although the next planned time of its schedule has come, if the tasks of the
    /// schedule replace each other. Returns how many were cancelled or asked to end.
    ///
    /// # Errors
    /// The database could not be written; changes of earlier transactions remain.
    pub fn replace_overdue_tasks(&mut self) -> StoreResult<usize> {
        let overdue = self.read(overdue_heads)?;
        if overdue.is_empty() {
            return Ok(0);
        }
        let (auditor, keep_of, origin) = (self.auditor()?, self.keep_of.clone(), self.origin.clone());
        let mut replaced = Vec::new();
        for id in overdue {
            let answer = self.write_key(|conn| {
                backend::lock_gate(conn, "create-runs")?;
                backend::enter_both_tables(conn)?;
                keep_claims_out(conn)?;
                let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
                let found = find_head(conn, id)?.filter(|(_, _, head)| UNFINISHED_HEADS.contains(&head.as_str()));
                let Some(next) = found.as_ref().and_then(|(task, ..)| passed_next_time(task, now.into())) else {
                    return Ok(CancelAnswer::NoSuchTask);
                };
                let Some((task, ..)) = found else { return Ok(CancelAnswer::NoSuchTask) };
                // It names a run that is not open, so it cannot be cancelled; an error would stop the others (R9).
                if task.current_run_id.is_some() && open_run(conn, id)?.is_none() {
                    return Ok(CancelAnswer::NoSuchTask);
                }
                let reason = reason(&task);
                let details = serde_json::json!({ "reason": reason, "next_planned_on": next });
                let event = origin.event("cancelled", None, None, details);
                let answer = cancel_task(conn, id, &reason, &event, auditor.as_ref(), Cancelling::UnfinishedHead)?;
                if answer == CancelAnswer::Cancelled {
                    keep_as_classes_state(conn, keep_of.as_ref(), &[id.0])?;
                    // Not needed if a waiting run was cancelled: its end does the same.
                    follow_settled(conn, id, &origin)?;
                }
                fault_point!("recur.replaced");
                Ok(answer)
            })?;
            if matches!(answer, CancelAnswer::Cancelled | CancelAnswer::Requested { .. }) {
                replaced.push(id);
            }
        }
        self.pass_on_slots_of(&replaced);
        Ok(replaced.len())
    }
}

/// Returns the heads that another task should replace now, without those whose run was already asked to end.
fn overdue_heads(conn: &mut AnyConnection) -> StoreResult<Vec<TaskId>> {
    if !has_heads(conn)? {
        return Ok(Vec::new());
    }
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let mut rows: Vec<TaskRow> = Vec::new();
    for head in UNFINISHED_HEADS {
        let started = dsl::task_queue
            .filter(dsl::schedule_head.eq(head))
            .filter(dsl::scheduled_on.le(now))
            .filter(dsl::overlap.eq(Overlap::Replace.as_str()));
        rows.extend(
            started.order((dsl::schedule_head, dsl::scheduled_on, dsl::id)).select(TaskRow::as_select()).load(conn)?,
        );
    }
    let is_overdue = |task: &Task| passed_next_time(task, now.into()).is_some();
    let overdue: Vec<i64> = rows.into_iter().map(Task::from).filter(is_overdue).map(|task| task.id.0).collect();
    if overdue.is_empty() {
        return Ok(Vec::new());
    }
    use task_queue_runs::dsl as run;
    let asked: Vec<i64> = run::task_queue_runs
        .filter(run::open_task_id.eq_any(&overdue))
        .filter(run::cancel_requested_on.is_not_null())
        .select(run::task_queue_id)
        .load(conn)?;
    Ok(overdue.into_iter().filter(|id| !asked.contains(id)).map(TaskId).collect())
}

/// Returns the planned time after that of this task, if it has passed and its task replaces this one.
fn passed_next_time(task: &Task, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    // The next task would copy placeholders of values that cannot be read.
    let schedule = task.schedule.as_ref().filter(|_| task.unreadable.is_empty())?;
    // An operator may have postponed the task; a retry does not postpone it.
    let own = schedule.planned_on?.max(task.scheduled_on);
    schedule.recurrence().ok()?.replaced_on(own).filter(|next| *next <= now)
}

fn reason(task: &Task) -> String {
    let schedule = task.schedule.as_ref().map_or(task.id, |schedule| schedule.id);
    let name = task.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    format!("replaced: the next time of schedule {schedule}{name} has come")
}
