//! Applies the end of a run to its task.

use diesel::dsl::case_when;
use diesel::prelude::*;

use crate::StoreResult;
use crate::backend::{self, ClassAtHost};
use crate::base::cells::{Maybe, ShownText};
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now, db_now_plus};
use crate::base::unmarked::status_in_process;
use crate::journal::events::insert_event;
use crate::records::notices::{NewNotice, insert_notice};
use crate::rules::dependencies::satisfy_dependants;
use crate::rules::settings::setting_now;
use crate::session::origin::Origin;
use crate::transitions::ending::run_end::RunEnd;
use crate::transitions::meta::extend_meta;
use crate::transitions::recur::follow_settled;
use taskqueue_domain::monitoring::notice::NoticeKind;
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::decision::rule_without_retry;
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::{
    TaskEvent, aggregated, crashes_after, failed_retries_after, one_more, run_after, status_before, task_after,
};
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::meta::MAX_META_BYTES;

/// How many names of rejected metadata an event lists.
const MAX_REFUSED_NAMES: usize = 20;

/// The task of a run that has ended.
pub(in crate::transitions) struct Aggregated {
    pub(in crate::transitions) task_id: TaskId,
    /// The limit key of which a slot is now free, if the run had one.
    pub(in crate::transitions) freed_key: Option<String>,
    /// What the end means for the task.
    pub(in crate::transitions) outcome: AttemptOutcome,
    /// Whether the task states how long results are kept.
    pub(in crate::transitions) keeps_results: bool,
}

/// A task before its run ended, with the columns that matter for the end.
#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue)]
struct TaskBefore {
    id: i64,
    #[diesel(deserialize_as = ShownText)]
    task_class: String,
    #[diesel(deserialize_as = ShownText)]
    last_status: String,
    failed_retries: i32,
    max_retries: Option<i32>,
    attempts: i32,
    current_run_id: Option<i64>,
    crashes: i32,
    #[diesel(deserialize_as = Maybe<ShownText>)]
    backoff: Option<String>,
    #[diesel(deserialize_as = Maybe<ShownText>)]
    recurrence: Option<String>,
    keep_results_secs: Option<i32>,
}

/// The task after the end.
struct TaskAfter {
    status: Option<TaskStatus>,
    failed_retries: i32,
    /// The limit that exhausted the task, if it comes from the settings and not from its row.
    retry_limit: Option<i32>,
    is_exhausted: bool,
    attempts: i32,
    crashes: i32,
    /// Set if it restarts from the beginning.
    restarts_in_secs: Option<i64>,
    is_quarantined: bool,
    delay_secs: Option<i64>,
}

impl TaskAfter {
    /// Returns true if the task does not run again unless an operator restarts it.
    fn is_finished(&self) -> bool {
        self.is_exhausted || self.is_quarantined || self.status.is_some_and(TaskStatus::is_done)
    }
}

/// Updates the task of an ended run. Returns `None` if the run has no task.
pub(in crate::transitions) fn aggregate_into_task(
    conn: &mut AnyConnection,
    run_id: RunId,
    end: &RunEnd,
) -> StoreResult<Option<Aggregated>> {
    let found: Option<(TaskBefore, ShownText, Option<ShownText>, bool)> = task_queue::table
        .inner_join(task_queue_runs::table.on(task_queue_runs::task_queue_id.eq(task_queue::id)))
        .filter(task_queue_runs::id.eq(run_id.0))
        .select((
            TaskBefore::as_select(),
            task_queue_runs::host,
            task_queue_runs::limit_key,
            task_queue_runs::has_key_slot,
        ))
        .first(conn)
        .optional()?;
    let Some((task, ShownText(host), limit_key, has_key_slot)) = found else { return Ok(None) };
    let after = task_after_end(conn, &task, end)?;
    update_task(conn, &task, &after)?;
    if let Some(meta) = &end.meta
        && !extend_meta(conn, TaskId(task.id), meta)?
    {
        // Only recorded: the end of a run must not wait for its metadata.
        let names: Vec<&str> = meta.entries().map(|(name, _)| name).take(MAX_REFUSED_NAMES).collect();
        let details = serde_json::json!({ "names": names, "bytes": meta.to_string().len(), "limit": MAX_META_BYTES });
        let origin = Origin::without_user(&host);
        insert_event(conn, &origin.event("meta-refused", Some(TaskId(task.id)), Some(run_id), details))?;
    }
    let is_given_up = after.is_quarantined || after.is_exhausted;
    let outcome = AttemptOutcome::of(end.event, is_given_up);
    follow_up(conn, &task, &after, run_id, &host, end)?;
    keep_outcome(conn, outcome, &task, &after, (run_id, &host), end)?;
    let (task_id, freed_key) = (TaskId(task.id), limit_key.filter(|_| has_key_slot).map(String::from));
    Ok(Some(Aggregated { task_id, freed_key, outcome, keeps_results: task.keep_results_secs.is_some() }))
}

fn task_after_end(conn: &mut AnyConnection, task: &TaskBefore, end: &RunEnd) -> StoreResult<TaskAfter> {
    let event = aggregated(end.event);
    let before = match event {
        TaskEvent::Release if end.restart.is_none() => last_status_before(conn, task.id)?,
        _ => TaskStatus::Scheduled,
    };
    let restarts_in_secs = end.new_start().map(|_| end.delay_secs.unwrap_or(0));
    let counted = if restarts_in_secs.is_some() { TaskEvent::Retry } else { event };
    let has_failed = matches!(event, TaskEvent::Fail | TaskEvent::TimeOut);
    let allowed = if has_failed { allowed_now(conn, task.max_retries)? } else { i32::MAX };
    let failed_retries = failed_retries_after(counted, task.failed_retries, allowed, end.may_retry);
    let is_exhausted = has_failed && failed_retries >= allowed;
    let crashes = crashes_after(counted, task.crashes, end.crash.is_some());
    // A run of an expired task has never started.
    let counts = !matches!(event, TaskEvent::Release | TaskEvent::Expire);
    Ok(TaskAfter {
        status: status_while_run(task).and_then(|from| task_after(from, event, before)),
        failed_retries,
        retry_limit: Some(allowed).filter(|_| is_exhausted && task.max_retries != Some(allowed)),
        is_exhausted,
        attempts: if counts { one_more(task.attempts) } else { task.attempts },
        crashes,
        restarts_in_secs,
        is_quarantined: end.unreadable.is_some() || end.crash.as_ref().is_some_and(|crash| crashes >= crash.limit),
        delay_secs: delay_secs(task, counted, (failed_retries, crashes), end),
    })
}

/// Returns the status of the task while its run was processed: a batch start does not change the rows of tasks.
fn status_while_run(task: &TaskBefore) -> Option<TaskStatus> {
    if task.current_run_id.is_none() {
        return status_in_process(&task.last_status);
    }
    TaskStatus::parse(&task.last_status)
}

/// Returns how many attempts of a task with this MaxRetries may fail, by the current settings.
fn allowed_now(conn: &mut AnyConnection, max_retries: Option<i32>) -> StoreResult<i32> {
    let asked = max_retries.map_or_else(|| setting_now(conn, Setting::MaxRetries), |count| Ok(count.into()))?;
    let allowed = asked.min(setting_now(conn, Setting::MaxRetriesCap)?);
    Ok(i32::try_from(allowed).unwrap_or(i32::MAX))
}

/// Returns the seconds until the next attempt, if the end changes its time.
fn delay_secs(task: &TaskBefore, event: TaskEvent, (failed_retries, crashes): (i32, i32), end: &RunEnd) -> Option<i64> {
    match event {
        TaskEvent::Fail | TaskEvent::TimeOut => {
            let own = task.backoff.as_ref().and_then(|text| text.parse::<Backoff>().ok());
            let stated = own.as_ref().or(end.loss.as_ref().and_then(|loss| loss.class_backoff.as_ref()));
            let by_backoff = || match (stated, &end.loss) {
                (Some(backoff), _) => backoff.delay_secs(failed_retries, task.id),
                (None, Some(_)) if end.crash.is_none() || crashes < 2 => 0,
                (None, Some(_)) => end.backoff.delay_secs(crashes - 1, task.id),
                (None, None) => end.backoff.delay_secs(failed_retries, task.id),
            };
            Some(end.delay_secs.unwrap_or_else(by_backoff))
        }
        TaskEvent::Release => end.delay_secs,
        TaskEvent::Start | TaskEvent::Succeed | TaskEvent::Cancel | TaskEvent::Expire | TaskEvent::Retry => None,
    }
}

fn update_task(conn: &mut AnyConnection, task: &TaskBefore, after: &TaskAfter) -> StoreResult<()> {
    use task_queue::dsl;
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task.id)))
        .set((
            after.status.map(|status| dsl::last_status.eq(status.as_str())),
            dsl::failed_retries.eq(after.failed_retries),
            after.retry_limit.map(|limit| dsl::retry_limit.eq(limit)),
            dsl::attempts.eq(after.attempts),
            dsl::current_run_id.eq(None::<i64>),
            dsl::crashes.eq(after.crashes),
            // The current retention of the class is written afterwards.
            dsl::class_keep_secs.eq(None::<i32>),
            after.restarts_in_secs.map(|secs| {
                (
                    dsl::retry_limit.eq(None::<i32>),
                    dsl::quarantined_on.eq(None::<SqlMoment>),
                    dsl::scheduled_on.eq(db_now_plus(secs)),
                    dsl::next_attempt_on.eq(None::<SqlMoment>),
                )
            }),
            after.is_quarantined.then(|| dsl::quarantined_on.eq(db_now().nullable())),
            after.delay_secs.filter(|secs| *secs > 0).map(|secs| {
                // An operator may have set a later time while the run was in progress.
                let is_postponed = dsl::scheduled_on.gt(db_now_plus(secs));
                let planned = case_when(is_postponed, dsl::scheduled_on.nullable());
                dsl::next_attempt_on.eq(planned.otherwise(db_now_plus(secs).nullable()))
            }),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    Ok(())
}

/// Performs the further effects of an end, in its transaction.
fn follow_up(
    conn: &mut AnyConnection,
    task: &TaskBefore,
    after: &TaskAfter,
    run_id: RunId,
    host: &str,
    end: &RunEnd,
) -> StoreResult<()> {
    if after.is_finished() {
        satisfy_dependants(conn, task.id, after.status == Some(TaskStatus::Success))?;
    }
    let quarantined = |by: &Origin, details| by.event("quarantined", Some(TaskId(task.id)), Some(run_id), details);
    if let Some(crash) = end.crash.as_ref().filter(|_| after.is_quarantined) {
        let by = Origin { actor: crash.actor.clone(), host: crash.host.clone() };
        let details = serde_json::json!({ "crashes": after.crashes, "limit": crash.limit });
        insert_event(conn, &quarantined(&by, details))?;
    }
    if let Some(problem) = &end.unreadable {
        let details = serde_json::json!({ "unreadable": problem });
        insert_event(conn, &quarantined(&Origin::without_user(host), details))?;
    }
    if let Some((host, secs)) = &end.hold {
        backend::hold_class(conn, &ClassAtHost { class: &task.task_class, host }, &end.error_message, *secs)?;
    }
    // `create-runs` handles a task that was settled by a manual change of the tables: a claim could not write the next task.
    if task.recurrence.is_some() && after.status.is_some() {
        follow_settled(conn, TaskId(task.id), &Origin::without_user(host))?;
    }
    if let Some(kind) = what_to_tell(after.is_quarantined, after.is_exhausted, end.hold.is_some()) {
        let notice = NewNotice {
            kind,
            task_id: TaskId(task.id),
            run_id,
            class: task.task_class.clone(),
            host: host.to_owned(),
            error_code: end.error_code.clone(),
            error_message: end.error_message.clone(),
        };
        insert_notice(conn, &notice)?;
    }
    Ok(())
}

/// Returns the notice of an end; of several, the one that needs an operator most.
const fn what_to_tell(is_quarantined: bool, is_exhausted: bool, is_held: bool) -> Option<NoticeKind> {
    match (is_quarantined, is_exhausted, is_held) {
        (true, _, _) => Some(NoticeKind::Quarantined),
        (false, true, _) => Some(NoticeKind::Exhausted),
        (false, false, true) => Some(NoticeKind::Held),
        (false, false, false) => None,
    }
}

/// Records that the task is retried, or no longer. A success has no event: most runs succeed, and their ends are written in
/// batches with few statements.
fn keep_outcome(
    conn: &mut AnyConnection,
    outcome: AttemptOutcome,
    task: &TaskBefore,
    after: &TaskAfter,
    (run_id, host): (RunId, &str),
    end: &RunEnd,
) -> StoreResult<()> {
    let decision = match outcome {
        AttemptOutcome::Retry => end.decision.clone(),
        AttemptOutcome::Failed => rule_without_retry(&end.decision),
        _ => return Ok(()),
    };
    let details = serde_json::json!({
        "status": run_after(RunStatus::Processing, end.event), "error_code": end.error_code, "decision": decision,
        "attempts": after.attempts, "failed_retries": after.failed_retries, "max_retries": task.max_retries,
    });
    let origin = Origin::without_user(host);
    insert_event(conn, &origin.event(outcome.as_str(), Some(TaskId(task.id)), Some(run_id), details))
}

/// Returns the status that a task had before its open run was claimed, from the last of its runs that counted.
fn last_status_before(conn: &mut AnyConnection, task_id: i64) -> StoreResult<TaskStatus> {
    use task_queue_runs::dsl;
    let counted: Vec<&str> =
        RunStatus::ALL.into_iter().filter(|status| status_before(*status).is_some()).map(RunStatus::as_str).collect();
    let last: Option<String> = dsl::task_queue_runs
        .filter(dsl::task_queue_id.eq(task_id))
        .filter(dsl::status.eq_any(counted))
        .order((dsl::task_queue_id.desc(), dsl::id.desc()))
        .select(dsl::status)
        .first(conn)
        .optional()?;
    let before = last.as_deref().and_then(RunStatus::parse).and_then(status_before);
    Ok(before.unwrap_or(TaskStatus::Scheduled))
}
