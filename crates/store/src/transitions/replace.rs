//! Replaces a waiting task by a new one with the same key.

use std::collections::BTreeSet;

use diesel::prelude::*;

use super::ending::end::end_waiting_run;
use super::ending::run_end::RunEnd;
use crate::StoreResult;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use crate::base::schema::task_queue_runs;
use crate::base::sql::{SqlMoment, allowed_retries, any_year, db_now, db_now_plus};
use crate::journal::events::{NewEvent, insert_event};
use crate::records::tasks::set_start_before;
use crate::session::origin::Origin;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::new_task::NewTask;

/// Who replaces, and whether every transition is recorded.
#[derive(Clone, Copy)]
pub(in super::super) struct Replacer<'a> {
    pub(in super::super) origin: &'a Origin,
    pub(in super::super) is_auditor: bool,
}

/// Gives a waiting task the data, times and numbers of a new one. Releases its waiting run, so that the new time and priority
/// apply; the key whose slot it had is added to `freed_keys`. Requires the lock `create-runs`, so that no run is created
/// meanwhile. Returns `false` if the task is not waiting.
pub(in super::super) fn replace_task(
    conn: &mut AnyConnection,
    id: TaskId,
    task: &NewTask,
    replacer: Replacer<'_>,
    freed_keys: &mut BTreeSet<String>,
) -> StoreResult<bool> {
    freed_keys.extend(release_waiting_run(conn, id, replacer)?);
    let window_secs = task.unique.as_ref().and_then(|unique| unique.window_secs);
    let waiting = [TaskStatus::Scheduled, TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
    let this_task = || dsl::task_queue.filter(dsl::id.eq(id.0));
    let replaced = diesel::update(this_task())
        .filter(dsl::last_status.eq_any(waiting))
        .filter(dsl::live_unique_key.is_not_null())
        .filter(dsl::quarantined_on.is_null().and(dsl::failed_retries.lt(allowed_retries())))
        .set((
            dsl::task_data.eq(&task.data),
            dsl::queued_by_id.eq(&task.queued_by),
            dsl::scheduled_on.eq(db_now()),
            dsl::next_attempt_on.eq(None::<SqlMoment>),
            dsl::start_before.eq(None::<SqlMoment>),
            dsl::max_retries.eq(task.max_retries),
            dsl::retry_limit.eq(None::<i32>),
            dsl::timeout_secs.eq(task.timeout_secs),
            dsl::priority.eq(task.priority),
            dsl::backoff.eq(task.backoff.as_ref().map(ToString::to_string)),
            dsl::limit_key.eq(task.limit_key.as_ref()),
            dsl::tag.eq(task.tag.as_ref()),
            dsl::name.eq(task.name.as_ref()),
            dsl::keep_secs.eq(task.keep_secs),
            dsl::keep_results_secs.eq(task.keep_results_secs),
            dsl::meta.eq(task.meta.as_ref()),
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
        diesel::update(this_task()).set(dsl::scheduled_on.eq(any_year(on.into()))).execute(conn)?;
    }
    if let Some(expiry) = task.expires {
        let scheduled_on: SqlMoment = this_task().select(dsl::scheduled_on).first(conn)?;
        set_start_before(conn, id, Some(expiry.start_before(scheduled_on.into()).into()))?;
    }
    insert_event(
        conn,
        &NewEvent {
            kind: "replaced",
            task_id: Some(id),
            run_id: None,
            actor: task.queued_by.clone(),
            host: replacer.origin.host.clone(),
            details: serde_json::json!({ "key": task.unique.as_ref().map(|unique| &unique.key) }),
        },
    )?;
    fault_point!("queue.task_replaced");
    Ok(true)
}

/// Returns the key whose slot is now free, if it had one.
fn release_waiting_run(
    conn: &mut AnyConnection,
    task_id: TaskId,
    replacer: Replacer<'_>,
) -> StoreResult<Option<String>> {
    use task_queue_runs::dsl;
    let open = dsl::task_queue_runs.filter(dsl::open_task_id.eq(task_id.0));
    let found: Option<(i64, Option<String>)> = open.select((dsl::id, dsl::held_key)).first(conn).optional()?;
    let Some((run_id, held_key)) = found else { return Ok(None) };
    let why = "its task was replaced by a new one with the same key";
    let end = RunEnd::of(RunEvent::Release, "replaced", why, "replaced: released");
    let has_ended = end_waiting_run(conn, RunId(run_id), &end, replacer.is_auditor.then_some(replacer.origin))?;
    Ok(held_key.filter(|_| has_ended))
}
