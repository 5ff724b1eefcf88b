//! TaskQueueStarts: the starts counted by rates. Only runs of classes with a rate have rows, so that other runs cost nothing, and
//! pruning a run does not change a rate. A start later than now was recorded while the clock was ahead, and does not count.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_runs;
use crate::base::schema::task_queue_starts::dsl::{run_id, started_on, task_class, task_queue_starts};
use crate::base::sql::{SqlMoment, db_now};
use taskqueue_domain::limits::limit::Rate;

/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 1_000;
/// Runs that are read for a new rate, while claims wait.
const RECALLED: i64 = 20_000;

/// Returns how many runs of the class may start now.
pub(crate) fn starts_left(conn: &mut AnyConnection, class: &str, rate: Rate) -> QueryResult<usize> {
    let (now, window_begins) = window(conn, rate)?;
    let of_class = task_queue_starts.filter(task_class.eq(class));
    let started: i64 =
        of_class.filter(started_on.gt(window_begins)).filter(started_on.le(now)).count().get_result(conn)?;
    Ok(usize::try_from(i64::from(rate.count) - started).unwrap_or(0))
}

/// Returns when the next run of the class may start, if not now. The window slides: the start that is `count` starts back must be
/// older than the period.
pub(crate) fn next_start(conn: &mut AnyConnection, class: &str, rate: Rate) -> QueryResult<Option<DateTime<Utc>>> {
    let (now, _) = window(conn, rate)?;
    let start: Option<TimeOrPast> = task_queue_starts
        .filter(task_class.eq(class))
        .filter(started_on.le(now))
        .order((task_class.desc(), started_on.desc(), run_id.desc()))
        .offset(i64::from(rate.count) - 1)
        .limit(1)
        .select(started_on)
        .first(conn)
        .optional()?;
    let Some(start) = start else { return Ok(None) };
    let (start, now): (DateTime<Utc>, DateTime<Utc>) = (start.into(), now.into());
    let next = start + TimeDelta::seconds(i64::from(rate.secs));
    Ok((next > now).then_some(next))
}

/// Records that these runs of the class have started, and removes starts that are outside the window.
pub(crate) fn keep_starts(conn: &mut AnyConnection, class: &str, rate: Rate, runs: &[i64]) -> StoreResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let (now, window_begins) = window(conn, rate)?;
    let of_class = task_queue_starts.filter(task_class.eq(class));
    diesel::delete(of_class.filter(started_on.le(window_begins).or(started_on.gt(now)))).execute(conn)?;
    insert(conn, runs)
}

/// Records starts within the window of a new rate, from the runs of the class in progress and the newest [`RECALLED`] runs. Keeps
/// starts recorded earlier.
pub(crate) fn recall_starts(conn: &mut AnyConnection, class: &str, rate: Rate) -> StoreResult<()> {
    use task_queue_runs::dsl;
    type Start = (i64, ShownText, Option<TimeOrPast>);
    let (now, window_begins) = window(conn, rate)?;
    let columns = (dsl::id, dsl::task_class, dsl::started_on);
    let mut found: Vec<Start> = dsl::task_queue_runs.filter(dsl::running_class.eq(class)).select(columns).load(conn)?;
    found.extend(dsl::task_queue_runs.order(dsl::id.desc()).limit(RECALLED).select(columns).load::<Start>(conn)?);
    found.retain(|(_, of, on)| of.0 == class && on.is_some_and(|on| on.0 > window_begins && on.0 <= now));
    let mut runs: BTreeSet<i64> = found.into_iter().map(|(id, ..)| id).collect();
    for kept in task_queue_starts.filter(task_class.eq(class)).select(run_id).load::<i64>(conn)? {
        runs.remove(&kept);
    }
    insert(conn, &runs.into_iter().collect::<Vec<_>>())
}

/// Removes the starts of a class that no longer has a rate.
pub(crate) fn forget_starts(conn: &mut AnyConnection, class: &str) -> StoreResult<()> {
    diesel::delete(task_queue_starts.filter(task_class.eq(class))).execute(conn)?;
    Ok(())
}

fn insert(conn: &mut AnyConnection, runs: &[i64]) -> StoreResult<()> {
    use task_queue_runs::dsl;
    for part in runs.chunks(IDS_PER_STATEMENT) {
        let started = dsl::task_queue_runs.filter(dsl::id.eq_any(part)).filter(dsl::started_on.is_not_null());
        let starts = started.select((dsl::task_class, dsl::started_on.assume_not_null(), dsl::id));
        diesel::insert_into(task_queue_starts)
            .values(starts)
            .into_columns((task_class, started_on, run_id))
            .execute(conn)?;
    }
    Ok(())
}

/// Returns the time of the database, and the beginning of the window of the rate that ends now.
fn window(conn: &mut AnyConnection, rate: Rate) -> QueryResult<(SqlMoment, SqlMoment)> {
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    Ok((now, SqlMoment::from(DateTime::<Utc>::from(now) - TimeDelta::seconds(i64::from(rate.secs)))))
}
