//! TaskQueueNotices: pending notifications. A notice is written in the transaction of its event, and removed after it was sent.
//! If the sender dies in between, another process sends it again.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::backend;
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::counted::Counted;
use crate::base::schema::task_queue_notices::dsl::{
    error_code, error_message, host, id, kind, occurred_on, run_id, task_class, task_queue_id, task_queue_notices,
};
use crate::base::schema::task_queue_timers::dsl::{name, next_on, task_queue_timers};
use crate::base::sql::{allowed_retries, db_now_plus};
use crate::{Store, StoreResult};
use taskqueue_domain::monitoring::notice::{MAX_EVERY_SECS, Notice, NoticeKind};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};

/// The row of TaskQueueTimers.
const TIMER: &str = "notify";
/// The row with the time until which notices are left to a host that has `[notify]`.
const NOTIFY_HOST_TIMER: &str = "notify-host";
/// How long after its last `create-runs` the notices are left to that host.
const NOTIFY_HOST_SECS: i64 = 3_600;
/// The highest exact count of tasks; beyond it, a count is shown as "or more".
const COUNT_LIMIT: i64 = 1_000;
/// Notices in one message; the others are sent with the next one.
const TOGETHER: i64 = 10_000;
/// How long a notice is kept unsent, in seconds: a week.
const KEPT_SECS: i64 = 7 * 86_400;
/// By how much the clock may be set back before a timer counts as too late.
const SMALL_STEP_SECS: i64 = 60;
/// Notices removed in one transaction.
const REMOVED_TOGETHER: usize = 1_000;

/// A notice to be written.
#[derive(Clone, Debug)]
pub struct NewNotice {
    /// Its kind.
    pub kind: NoticeKind,
    /// The task.
    pub task_id: TaskId,
    /// Its run.
    pub run_id: RunId,
    /// Its class.
    pub class: String,
    /// The host on which it happened.
    pub host: String,
    /// The error code of the run.
    pub error_code: String,
    /// The error message of the run.
    pub error_message: String,
}

/// Which notices a process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeChoice {
    /// All, on a host that has `[notify]`.
    All,
    /// The newest of each task that will not be retried; none while a host that has `[notify]` creates runs.
    FinalFailures,
}

/// Notices that one process is about to send.
#[derive(Clone, Debug, Default)]
pub struct TakenNotices {
    /// The notices to send.
    pub notices: Vec<Notice>,
    ids: Vec<i64>,
}

impl TakenNotices {
    /// Returns true if nothing was taken, neither to send nor to remove.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Writes a notice in the transaction of its event.
pub(crate) fn insert_notice(conn: &mut AnyConnection, notice: &NewNotice) -> StoreResult<()> {
    diesel::insert_into(task_queue_notices)
        .values((
            kind.eq(notice.kind.as_str()),
            task_queue_id.eq(Some(notice.task_id.0)),
            run_id.eq(Some(notice.run_id.0)),
            task_class.eq(&notice.class),
            host.eq(&notice.host),
            error_code.eq(&notice.error_code),
            error_message.eq(&notice.error_message),
        ))
        .execute(conn)?;
    Ok(())
}

impl Store {
    /// Writes a notice unless the same one is already pending.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn record_notice_once(&mut self, notice: &NewNotice) -> StoreResult<()> {
        self.write_once(|conn| {
            let same = task_queue_notices.filter(kind.eq(notice.kind.as_str())).filter(run_id.eq(notice.run_id.0));
            let waits: bool = diesel::select(diesel::dsl::exists(same)).get_result(conn)?;
            if waits { Ok(()) } else { insert_notice(conn, notice) }
        })
    }

    /// Takes the pending notices, unless it is too early. Other processes then take none for `pause_secs` seconds, whatever
    /// happens to this process.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn take_notices(&mut self, choice: NoticeChoice, pause_secs: i64) -> StoreResult<TakenNotices> {
        if !self.read(|conn| is_any_due(conn, choice))? {
            return Ok(TakenNotices::default());
        }
        self.write_once(|conn| {
            backend::lock_gate(conn, TIMER)?;
            if !is_any_due(conn, choice)? {
                return Ok(TakenNotices::default());
            }
            let taken = load_notices(conn, choice)?;
            diesel::update(task_queue_timers.filter(name.eq(TIMER)))
                .set(next_on.eq(db_now_plus(pause_secs)))
                .execute(conn)?;
            fault_point!("notices.before_take_commit");
            Ok(taken)
        })
    }

    /// Leaves the notices to hosts that have `[notify]`, such as this one, for the next hour.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn leave_notices_to_notify_hosts(&mut self) -> StoreResult<()> {
        if !self.read(|conn| Ok(ends_within(conn, NOTIFY_HOST_TIMER, NOTIFY_HOST_SECS / 2)?))? {
            return Ok(());
        }
        self.write(|conn| {
            diesel::update(task_queue_timers.filter(name.eq(NOTIFY_HOST_TIMER)))
                .set(next_on.eq(db_now_plus(NOTIFY_HOST_SECS)))
                .execute(conn)?;
            Ok(())
        })
    }

    /// Delays the next notices by `secs` seconds.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn tell_again_after(&mut self, secs: i64) -> StoreResult<()> {
        self.write(|conn| {
            diesel::update(task_queue_timers.filter(name.eq(TIMER)))
                .set(next_on.eq(db_now_plus(secs)))
                .execute(conn)?;
            Ok(())
        })
    }

    /// Removes sent notices.
    ///
    /// # Errors
    /// The database could not be written; notices that remain are sent again.
    pub fn remove_told_notices(&mut self, taken: &TakenNotices) -> StoreResult<()> {
        for part in taken.ids.chunks(REMOVED_TOGETHER) {
            self.write(|conn| Ok(diesel::delete(task_queue_notices.filter(id.eq_any(part))).execute(conn)?))?;
            fault_point!("notices.removed");
        }
        Ok(())
    }

    /// Removes a batch of notices that were not sent within a week.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn remove_old_notices(&mut self) -> StoreResult<usize> {
        // By id, in the order of the primary key: their ages follow their ids closely enough.
        let oldest = |conn: &mut AnyConnection| -> StoreResult<Vec<(i64, bool)>> {
            let is_old = occurred_on.lt(db_now_plus(-KEPT_SECS));
            Ok(task_queue_notices.order(id).limit(1_000).select((id, is_old)).load(conn)?)
        };
        let old: Vec<i64> = self.read(oldest)?.into_iter().filter(|(_, is_old)| *is_old).map(|(old, _)| old).collect();
        if old.is_empty() {
            return Ok(0);
        }
        self.write(|conn| Ok(diesel::delete(task_queue_notices.filter(id.eq_any(&old))).execute(conn)?))
    }
}

fn is_any_due(conn: &mut AnyConnection, choice: NoticeChoice) -> StoreResult<bool> {
    if !ends_within(conn, TIMER, 0)? {
        return Ok(false);
    }
    if choice == NoticeChoice::All {
        let any = task_queue_notices.select(id);
        return Ok(diesel::select(diesel::dsl::exists(any)).get_result(conn)?);
    }
    let any = task_queue_notices.filter(kind.eq_any(final_kinds()));
    Ok(diesel::select(diesel::dsl::exists(any)).get_result(conn)? && ends_within(conn, NOTIFY_HOST_TIMER, 0)?)
}

/// Returns true if this timer ends within `secs` seconds. One that is too late for every host was set while the clock was ahead,
/// and has ended.
fn ends_within(conn: &mut AnyConnection, timer: &str, secs: i64) -> QueryResult<bool> {
    let longest_secs = if timer == TIMER { MAX_EVERY_SECS } else { NOTIFY_HOST_SECS };
    let is_too_late = next_on.gt(db_now_plus(longest_secs + SMALL_STEP_SECS));
    let ended = task_queue_timers.filter(name.eq(timer)).filter(next_on.le(db_now_plus(secs)).or(is_too_late));
    diesel::select(diesel::dsl::exists(ended)).get_result(conn)
}

fn final_kinds() -> [&'static str; 2] {
    NoticeKind::FINAL_FAILURES.map(NoticeKind::as_str)
}

fn load_notices(conn: &mut AnyConnection, choice: NoticeChoice) -> StoreResult<TakenNotices> {
    type Row = (i64, TimeOrPast, ShownText, Option<i64>, Option<i64>, ShownText, ShownText, ShownText, ShownText);
    let mut query = task_queue_notices
        .order(id)
        .limit(TOGETHER)
        .select((id, occurred_on, kind, task_queue_id, run_id, task_class, host, error_code, error_message))
        .into_boxed();
    if choice == NoticeChoice::FinalFailures {
        query = query.filter(kind.eq_any(final_kinds()));
    }
    let rows: Vec<Row> = query.load(conn)?;
    let ids = rows.iter().map(|row| row.0).collect();
    let notice = |(_, on, what, task, run, class, place, code, message): Row| Notice {
        occurred_on: DateTime::<Utc>::from(on),
        kind: what.0,
        task_id: task.map(TaskId),
        run_id: run.map(RunId),
        class: class.0,
        host: place.0,
        error_code: code.0,
        error_message: message.0,
    };
    let mut notices: Vec<Notice> = rows.into_iter().map(notice).collect();
    if choice == NoticeChoice::FinalFailures {
        keep_newest_of_given_up(conn, &mut notices)?;
    }
    Ok(TakenNotices { notices, ids })
}

/// Keeps the newest notice of each task that will still not be retried: an operator may have retried, edited or deleted a task
/// since its notice was written.
fn keep_newest_of_given_up(conn: &mut AnyConnection, notices: &mut Vec<Notice>) -> StoreResult<()> {
    let tasks: Vec<i64> = notices.iter().filter_map(|notice| notice.task_id).map(|task| task.0).collect();
    let mut given_up = given_up_among(conn, &tasks)?;
    notices.reverse();
    notices.retain(|notice| notice.task_id.is_some_and(|task| given_up.remove(&task.0)));
    notices.reverse();
    Ok(())
}

/// Returns those of these tasks that failed or timed out and will not be retried.
fn given_up_among(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<HashSet<i64>> {
    use crate::base::schema::task_queue::dsl;
    let failed = [TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
    let mut found = HashSet::new();
    for part in tasks.chunks(REMOVED_TOGETHER) {
        let ids: Vec<i64> = dsl::task_queue
            .filter(dsl::id.eq_any(part))
            .filter(dsl::last_status.eq_any(failed))
            .filter(dsl::failed_retries.ge(allowed_retries()).or(dsl::quarantined_on.is_not_null()))
            .select(dsl::id)
            .load(conn)?;
        found.extend(ids);
    }
    Ok(found)
}

/// Counts the tasks, of all classes or of one, that will not be retried and that were not reported yet.
pub(crate) fn count_unreported(conn: &mut AnyConnection, class: Option<&str>) -> StoreResult<Counted> {
    let mut query = task_queue_notices
        .filter(kind.eq_any(final_kinds()))
        .select(task_queue_id)
        .distinct()
        .limit(COUNT_LIMIT + 1)
        .into_boxed();
    if let Some(class) = class {
        query = query.filter(task_class.eq(class));
    }
    let tasks: Vec<i64> = query.load::<Option<i64>>(conn)?.into_iter().flatten().collect();
    let given_up = i64::try_from(given_up_among(conn, &tasks)?.len()).unwrap_or(i64::MAX);
    Ok(Counted::up_to(COUNT_LIMIT, given_up))
}
