//! TaskQueueNotices: what somebody is to be told of. Written in the transaction of what happened, removed when it was told:
//! whoever tells and dies in between is followed by one who tells again.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::backend::{self, AnyConnection};
use super::cells::ShownText;
use super::schema::task_queue_notices::dsl::{
    error_code, error_message, host, id, kind, occurred_on, run_id, task_class, task_queue_id, task_queue_notices,
};
use super::schema::task_queue_timers::dsl::{name, next_on, task_queue_timers};
use super::sql::{Moment, db_now, db_now_plus};
use super::{Store, StoreResult};
use crate::domain::ids::{RunId, TaskId};
use crate::domain::notice::{Notice, NoticeKind};

/// The row of TaskQueueTimers.
const TIMER: &str = "notify";
/// Notices of one message; the rest come with the next.
const TOGETHER: i64 = 10_000;
/// How long a notice waits for somebody who tells it, in seconds: a week.
const KEPT_SECS: i64 = 7 * 86_400;
/// Those removed in one transaction.
const REMOVED_TOGETHER: usize = 1_000;

/// A notice to be written.
#[derive(Clone, Debug)]
pub struct NewNotice {
    /// What happened.
    pub kind: NoticeKind,
    /// The task.
    pub task_id: TaskId,
    /// Its run.
    pub run_id: RunId,
    /// Its class.
    pub class: String,
    /// Where.
    pub host: String,
    /// Error of the run.
    pub error_code: String,
    /// Error of the run.
    pub error_message: String,
}

/// Notices that one process is about to tell.
#[derive(Clone, Debug, Default)]
pub struct TakenNotices {
    /// What to tell.
    pub notices: Vec<Notice>,
    ids: Vec<i64>,
}

/// Leaves a notice in the transaction of what happened.
pub(super) fn insert_notice(conn: &mut AnyConnection, notice: &NewNotice) -> StoreResult<()> {
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
    /// Leaves a notice unless the same waits already.
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

    /// Takes what there is to tell, unless it is too early: others take nothing for so many seconds then, whatever becomes
    /// of this process.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn take_notices(&mut self, pause_secs: i64) -> StoreResult<TakenNotices> {
        if !self.read(is_any_due)? {
            return Ok(TakenNotices::default());
        }
        self.write_once(|conn| {
            backend::lock_gate(conn, TIMER)?;
            if !is_any_due(conn)? {
                return Ok(TakenNotices::default());
            }
            let taken = load_notices(conn)?;
            diesel::update(task_queue_timers.filter(name.eq(TIMER)))
                .set(next_on.eq(db_now_plus(pause_secs)))
                .execute(conn)?;
            fault_point!("notices.before_take_commit");
            Ok(taken)
        })
    }

    /// From now on, nobody tells anything for so many seconds.
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

    /// Removes what was told.
    ///
    /// # Errors
    /// The database could not be written; what was not removed is told again.
    pub fn remove_told_notices(&mut self, taken: &TakenNotices) -> StoreResult<()> {
        for part in taken.ids.chunks(REMOVED_TOGETHER) {
            self.write(|conn| Ok(diesel::delete(task_queue_notices.filter(id.eq_any(part))).execute(conn)?))?;
            fault_point!("notices.removed");
        }
        Ok(())
    }

    /// Removes a part of what nobody wanted to be told of for a week.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn remove_old_notices(&mut self) -> StoreResult<usize> {
        // By id, which the primary key has in order: they are about as old as their ids say.
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

fn is_any_due(conn: &mut AnyConnection) -> StoreResult<bool> {
    let is_time = task_queue_timers.filter(name.eq(TIMER)).filter(next_on.le(db_now()));
    let any = task_queue_notices.select(id);
    Ok(diesel::select(diesel::dsl::exists(is_time)).get_result(conn)?
        && diesel::select(diesel::dsl::exists(any)).get_result(conn)?)
}

fn load_notices(conn: &mut AnyConnection) -> StoreResult<TakenNotices> {
    type Row = (i64, Moment, String, Option<i64>, Option<i64>, ShownText, ShownText, ShownText, ShownText);
    let rows: Vec<Row> = task_queue_notices
        .order(id)
        .limit(TOGETHER)
        .select((id, occurred_on, kind, task_queue_id, run_id, task_class, host, error_code, error_message))
        .load(conn)?;
    let ids = rows.iter().map(|row| row.0).collect();
    let notice = |(_, on, what, task, run, class, place, code, message): Row| Notice {
        occurred_on: DateTime::<Utc>::from(on),
        kind: what,
        task_id: task.map(TaskId),
        run_id: run.map(RunId),
        class: class.0,
        host: place.0,
        error_code: code.0,
        error_message: message.0,
    };
    Ok(TakenNotices { notices: rows.into_iter().map(notice).collect(), ids })
}
