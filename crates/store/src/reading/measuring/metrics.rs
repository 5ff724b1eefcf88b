//! The numbers for monitoring: live and waiting tasks, and recently finished ones. Read only from indexes and only up to limits,
//! so that neither a long queue nor finished rows slow it down.

use std::collections::BTreeMap;
use std::ops::Bound;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::dsl::count_star;
use diesel::prelude::*;

use crate::base::cells::TimeOrPast;
use crate::base::connection::AnyConnection;
use crate::base::counted::{Counted, count_up_to};
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::SqlMoment;
use crate::base::unmarked::AllUnmarked;
use crate::reading::due::first_due_on;
use crate::reading::heads::next_head;
use crate::reading::measuring::queues::{count_running, count_waiting};
use crate::reading::status::{FINISHED, FINISHED_WITH_KEEP, count_waiting_for_keys};
use crate::{Store, StoreResult};
use taskqueue_domain::run::retention::Retention;
use taskqueue_domain::run::status::{Stored, TaskStatus};

/// The highest count of tasks of one kind.
const TASKS_LIMIT: i64 = 100_000;
/// The highest count of waiting runs of one class.
const RUNS_LIMIT: i64 = 10_000;
/// Tasks that finished longer ago are not recent.
const OF_LATE: TimeDelta = TimeDelta::hours(1);
/// A schedule is late if its planned time has had no run for this long.
const LATE_AFTER: TimeDelta = TimeDelta::minutes(1);

/// Tasks by what they wait for. A task may be counted more than once.
#[derive(Clone, Debug, Default)]
pub struct TaskBacklog {
    /// Due, without a run.
    pub due: Counted,
    /// When the first of them became due.
    pub oldest_due_on: Option<DateTime<Utc>>,
    /// Due later; only their time is missing.
    pub later: Counted,
    /// The last attempt failed or timed out.
    pub failed: Counted,
    /// Crashed too often.
    pub quarantined: Counted,
    /// How many finished in the last hour, by status, without those that will be retried.
    pub over: Vec<(TaskStatus, Counted)>,
}

/// Runs of a class that wait for a runner.
#[derive(Clone, Debug)]
pub struct WaitingRuns {
    /// The class.
    pub class: String,
    /// How many there are.
    pub waiting: Counted,
    /// When the next run to be claimed was created.
    pub next_created_on: Option<DateTime<Utc>>,
}

impl Store {
    /// Returns the numbers of live and recently finished tasks at this time of the database's clock.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_backlog(&mut self, now: DateTime<Utc>) -> StoreResult<TaskBacklog> {
        self.read(|conn| {
            let (failed, timeout) = (count_status(conn, TaskStatus::Failed)?, count_status(conn, TaskStatus::Timeout)?);
            let mut over = Vec::new();
            for status in Retention::FINISHED {
                over.push((status, count_over(conn, status, (now - OF_LATE).into())?));
            }
            let now = SqlMoment::from(now);
            let of_due = task_queue::table.order((task_queue::due_on, task_queue::id)).select(task_queue::id);
            let due = count_up_to!(TASKS_LIMIT, of_due.filter(task_queue::due_on.le(now)), conn)?;
            let oldest_due_on = first_due_on(conn, now)?.map(DateTime::from);
            let later = count_up_to!(TASKS_LIMIT, of_due.filter(task_queue::due_on.gt(now)), conn)?;
            let of_quarantined = task_queue::table.filter(task_queue::quarantined_on.is_not_null());
            let of_quarantined = of_quarantined.order((task_queue::quarantined_on, task_queue::id));
            let quarantined = count_up_to!(TASKS_LIMIT, of_quarantined.select(task_queue::id), conn)?;
            let unmarked = AllUnmarked::load(conn, None)?;
            let due = due.without(unmarked.count());
            let failed = sum(
                failed.without(unmarked.count_with(TaskStatus::Failed)),
                timeout.without(unmarked.count_with(TaskStatus::Timeout)),
            );
            Ok(TaskBacklog { due, oldest_due_on, later, failed, quarantined, over })
        })
    }

    /// Returns the waiting runs of the first `most` classes, by name, and the number of those of other classes.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_waiting_by_class(&mut self, most: usize) -> StoreResult<(Vec<WaitingRuns>, Counted)> {
        use task_queue_runs::dsl;
        self.read(|conn| {
            let (mut found, mut last_class) = (Vec::new(), String::new());
            while found.len() < most {
                // A name that cannot be read stops the scan; the next claim sets its run aside.
                let Some((Stored::Known(class), run_id, ..)) = next_head(conn, Bound::Excluded(&last_class), None)?
                else {
                    return Ok((found, Counted::default()));
                };
                let created_on: Option<TimeOrPast> =
                    dsl::task_queue_runs.filter(dsl::id.eq(run_id)).select(dsl::created_on).first(conn).optional()?;
                let waiting = count_waiting(conn, &class, RUNS_LIMIT)?;
                last_class = class.to_string();
                found.push(WaitingRuns {
                    class: class.to_string(),
                    waiting,
                    next_created_on: created_on.map(DateTime::from),
                });
            }
            let others = count_up_to!(
                RUNS_LIMIT,
                dsl::task_queue_runs
                    .filter(dsl::claim_class.gt(last_class.as_str()))
                    .order((dsl::claim_class, dsl::claim_order, dsl::lined_up_on, dsl::id))
                    .select(dsl::id),
                conn
            )?;
            Ok((found, others))
        })
    }

    /// Returns how many runs wait for a slot of their limit key.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_waiting_for_keys(&mut self) -> StoreResult<Counted> {
        self.read(|conn| Ok(count_waiting_for_keys(conn, None, TASKS_LIMIT)?))
    }

    /// Returns how many runs of each class are being processed.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_running_by_class(&mut self) -> StoreResult<BTreeMap<String, i64>> {
        self.read(|conn| Ok(count_running(conn)?))
    }

    /// Returns the number of schedules by status, and how many are late at this time of the database's clock.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_schedules(&mut self, now: DateTime<Utc>) -> StoreResult<(Vec<(String, i64)>, Counted)> {
        use task_queue::dsl;
        let late_since = SqlMoment::from(now - LATE_AFTER);
        let (counts, late) = self.read(|conn| {
            let heads = dsl::task_queue.filter(dsl::schedule_head.is_not_null());
            let counts: Vec<(Option<String>, i64)> =
                heads.group_by(dsl::schedule_head).select((dsl::schedule_head, count_star())).load(conn)?;
            let mut late = Counted::default();
            // Also those that no `create-runs` has seen yet: perhaps none ever runs.
            for state in ["waiting", "new"] {
                let of_state = count_up_to!(
                    TASKS_LIMIT,
                    dsl::task_queue
                        .filter(dsl::schedule_head.eq(state))
                        .filter(dsl::scheduled_on.le(late_since))
                        .order((dsl::schedule_head, dsl::scheduled_on, dsl::id))
                        .select(dsl::id),
                    conn
                )?;
                late = sum(late, of_state);
            }
            Ok((counts, late))
        })?;
        Ok((counts.into_iter().filter_map(|(head, count)| Some((head?, count))).collect(), late))
    }
}

fn sum(one: Counted, other: Counted) -> Counted {
    Counted { count: one.count + other.count, or_more: one.or_more || other.or_more }
}

fn count_status(conn: &mut AnyConnection, status: TaskStatus) -> StoreResult<Counted> {
    use crate::base::schema::task_queue::dsl::{finished, id, last_status, status_on, task_queue};
    Ok(count_up_to!(
        TASKS_LIMIT,
        task_queue.filter(last_status.eq(status.as_str())).order((last_status, finished, status_on, id)).select(id),
        conn
    )?)
}

/// Counts tasks of this status that finished after this moment.
fn count_over(conn: &mut AnyConnection, status: TaskStatus, after: SqlMoment) -> StoreResult<Counted> {
    use crate::base::schema::task_queue::dsl::{finished, id, last_status, status_on, task_queue};
    let mut counts = Vec::with_capacity(2);
    // In the index, tasks that state how long they are kept are separate.
    for part in [FINISHED, FINISHED_WITH_KEEP] {
        counts.push(count_up_to!(
            TASKS_LIMIT,
            task_queue
                .filter(last_status.eq(status.as_str()))
                .filter(finished.eq(part))
                .filter(status_on.gt(after))
                .order((last_status, finished, status_on, id))
                .select(id),
            conn
        )?);
    }
    Ok(sum(counts[0], counts[1]))
}
