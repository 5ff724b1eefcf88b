//! Keys of unique tasks: who holds one, and writes that race for it.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::audit::{Origin, keep_run_transition};
use super::backend::{self, AnyConnection};
use super::events::{NewEvent, insert_event};
use super::schema::task_queue::dsl;
use super::schema::task_queue_runs;
use super::sql::{Moment, db_now, db_now_plus};
use super::{Store, StoreError, StoreResult};
use crate::domain::ids::{RunId, TaskId};
use crate::domain::new_task::{NewTask, QueueRefusal};
use crate::domain::status::{RunStatus, TaskStatus};
use crate::domain::transition::{RunEvent, run_after};
use crate::domain::unique::Uniqueness;

/// How often a write is repeated because others took the key that it had just found free.
const RACES: u32 = 50;

/// Who replaces, and whether every transition is kept.
#[derive(Clone, Copy)]
pub(super) struct Author<'a> {
    pub(super) origin: &'a Origin,
    pub(super) is_auditor: bool,
}

/// The live task that has a key, or the one that had it last in a window that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) id: i64,
    pub(super) status: String,
}

/// Who holds the key of a class. A window that is over is taken away by whoever comes across it.
pub(super) fn find_holder(conn: &mut AnyConnection, class: &str, key: &str) -> StoreResult<Option<Holder>> {
    let of_key = || dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::live_unique_key.eq(key));
    let over = dsl::unique_until.le(db_now().nullable());
    let ended: Option<i64> = of_key().filter(over).select(dsl::id).first(conn).optional()?;
    if let Some(id) = ended {
        diesel::update(dsl::task_queue.filter(dsl::id.eq(id)).filter(over))
            .set(dsl::unique_until.eq(None::<Moment>))
            .execute(conn)?;
    }
    let found: Option<(i64, String)> = of_key().select((dsl::id, dsl::last_status)).first(conn).optional()?;
    Ok(found.map(|(id, status)| Holder { id, status }))
}

/// Another task that holds the key of this one, which is in one of these statuses and would be live again: the newer one
/// wins.
pub(super) fn find_other_holder(
    conn: &mut AnyConnection,
    task_id: TaskId,
    statuses: &[&str],
) -> StoreResult<Option<(String, Holder)>> {
    let own: Option<(String, Option<String>)> = dsl::task_queue
        .filter(dsl::id.eq(task_id.0))
        .filter(dsl::last_status.eq_any(statuses))
        .select((dsl::task_class, dsl::unique_key))
        .first(conn)
        .optional()?;
    let Some((class, Some(key))) = own else { return Ok(None) };
    let holder = find_holder(conn, &class, &key)?.filter(|holder| holder.id != task_id.0);
    Ok(holder.map(|holder| (key, holder)))
}

/// Why a task whose key is taken is not queued.
pub(super) fn key_taken(unique: &Uniqueness, holder: &Holder) -> QueueRefusal {
    QueueRefusal::KeyTaken { key: unique.key.clone(), holder: TaskId(holder.id), status: holder.status.clone() }
}

/// Gives a waiting task the data, times and numbers of a new one. A run of it that waits is given back, so that the new
/// time and priority count. Must run behind the gate `create-runs`: none is created meanwhile. `false` if it is not waiting.
pub(super) fn replace_task(conn: &mut AnyConnection, id: i64, task: &NewTask, author: Author<'_>) -> StoreResult<bool> {
    release_waiting_run(conn, id, author)?;
    let window_secs = task.unique.as_ref().and_then(|unique| unique.window_secs);
    let waiting = [TaskStatus::Scheduled, TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
    let replaced = diesel::update(dsl::task_queue.filter(dsl::id.eq(id)))
        .filter(dsl::last_status.eq_any(waiting))
        .filter(dsl::live_unique_key.is_not_null())
        .filter(dsl::quarantined_on.is_null().and(dsl::failed_retries.lt(dsl::max_retries)))
        .set((
            dsl::task_data.eq(&task.data),
            dsl::queued_by_id.eq(&task.queued_by),
            dsl::scheduled_on.eq(db_now()),
            dsl::max_retries.eq(task.max_retries),
            dsl::timeout_secs.eq(task.timeout_secs),
            dsl::priority.eq(task.priority),
            dsl::backoff.eq(task.backoff.as_ref().map(ToString::to_string)),
            dsl::failed_retries.eq(0),
            dsl::crashes.eq(0),
            dsl::current_run_id.eq(None::<i64>),
            window_secs.map(|secs| dsl::unique_until.eq(db_now_plus(secs.into()).nullable())),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if replaced == 0 {
        return Ok(false);
    }
    if let Some(on) = task.scheduled_on {
        backend::set_scheduled_on(conn, id, on.into())?;
    }
    insert_event(
        conn,
        &NewEvent {
            kind: "replaced",
            task_id: Some(TaskId(id)),
            run_id: None,
            actor: task.queued_by.clone(),
            host: author.origin.host.clone(),
            details: serde_json::json!({ "key": task.unique.as_ref().map(|unique| &unique.key) }),
        },
    )?;
    fault_point!("queue.task_replaced");
    Ok(true)
}

fn release_waiting_run(conn: &mut AnyConnection, task_id: i64, author: Author<'_>) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let Some(status) = run_after(RunStatus::Scheduled, RunEvent::Release) else { return Ok(()) };
    let run_id: Option<i64> =
        dsl::task_queue_runs.filter(dsl::open_task_id.eq(task_id)).select(dsl::id).first(conn).optional()?;
    let Some(run_id) = run_id else { return Ok(()) };
    let decision = "replaced: release";
    let released = diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::error_code.eq("replaced"),
            dsl::error_message.eq("its task was replaced by a new one with the same key"),
            dsl::decision.eq(decision),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if released == 1 && author.is_auditor {
        let details = serde_json::json!({ "status": status, "decision": decision });
        keep_run_transition(conn, author.origin, "run-ended", (TaskId(task_id), RunId(run_id)), details)?;
    }
    Ok(())
}

impl Store {
    /// [`Store::write_once`] for what makes a task live that has a key: when others take the key between the look and the
    /// write, it looks again. Nobody hears of the violated index.
    pub(super) fn write_key_once<T: Clone>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut races = 0;
        loop {
            match self.write_once(&mut work) {
                Err(StoreError::Database(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)))
                    if races < RACES =>
                {
                    races += 1;
                }
                other => return other,
            }
        }
    }
}
