//! Waiting work by class and recently finished tasks, for monitoring. Read from indexes and counted only up to limits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::dsl::count_star;
use diesel::prelude::*;
use serde::Serialize;

use crate::backend;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::counted::{Counted, count_up_to, number_of};
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now};
use crate::base::unmarked::{AllUnmarked, open_run};
use crate::reading::heads::next_head;
use crate::reading::status::{FINISHED, FINISHED_WITH_KEEP};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::ids::TaskId;

/// The number of due tasks whose classes are read, longest due first.
const DUE_LIMIT: i64 = 1_000;
/// The highest counts of rows per class: the more classes, the lower.
const MOST_OF_CLASS: i64 = 10_000;
const LEAST_OF_CLASS: i64 = 1_000;
const OF_ALL_CLASSES: i64 = 50_000;

/// The work of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Task class
    pub class: String,
    /// Due tasks without a run.
    pub due: Counted,
    /// Runs that wait for a runner.
    pub waiting: Counted,
    /// Runs in progress.
    pub running: i64,
    /// Tasks whose last attempt failed or timed out, exhausted or not.
    pub failed: Counted,
}

impl Store {
    /// Returns the classes with waiting, running or due work, and the given classes, up to `limit` of them, by name.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_by_class(&mut self, classes: &[String], limit: usize) -> StoreResult<Vec<ClassCounts>> {
        self.read(|conn| {
            let (due, running) = (first_due(conn)?, count_running(conn)?);
            let mut names: BTreeSet<String> = list_waiting_classes(conn, limit)?.into_iter().collect();
            names.extend(due.keys().chain(running.keys()).cloned());
            // If there are too many, those with work take precedence.
            for class in classes {
                if names.len() < limit {
                    names.insert(class.clone());
                }
            }
            let names: Vec<String> = names.into_iter().take(limit).collect();
            let most = most_of_each(names.len());
            let has_more_due = due.values().sum::<i64>() > DUE_LIMIT;
            let mut counts = Vec::with_capacity(names.len());
            for class in names {
                counts.push(ClassCounts {
                    due: Counted { count: due.get(&class).copied().unwrap_or(0), or_more: has_more_due },
                    waiting: count_waiting(conn, &class, most)?,
                    running: running.get(&class).copied().unwrap_or(0),
                    failed: count_failed(conn, &class, most)?,
                    class,
                });
            }
            // After the counts, as for `status`.
            let unmarked = AllUnmarked::load(conn, None)?;
            for of_class in &mut counts {
                let failed = unmarked.count_of_class(&of_class.class, &[TaskStatus::Failed, TaskStatus::Timeout]);
                of_class.failed = of_class.failed.without(failed);
            }
            Ok(counts)
        })
    }

    /// Returns for each of these classes how many of its tasks are scheduled, due or not, without an attempt so far.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_scheduled_of(&mut self, classes: &[String]) -> StoreResult<Vec<Counted>> {
        let (status, most) = (TaskStatus::Scheduled, most_of_each(classes.len()));
        self.read(|conn| {
            let count = |class: &String| backend::count_of_class(conn, class, status.as_str(), most + 1);
            let counts = classes.iter().map(count).collect::<QueryResult<Vec<i64>>>()?;
            let unmarked = AllUnmarked::load(conn, None)?;
            let of_class = |(class, count): (&String, i64)| {
                Counted::up_to(most, count).without(unmarked.count_of_class(class, &[status]))
            };
            Ok(classes.iter().zip(counts).map(of_class).collect())
        })
    }

    /// Returns up to `limit` tasks in this status that finished within the last `secs` seconds, with the end time of each, newest
    /// first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_newest_ended(
        &mut self,
        status: TaskStatus,
        secs: i64,
        limit: i64,
    ) -> StoreResult<Vec<(DateTime<Utc>, TaskId)>> {
        use task_queue::dsl;
        let ends = self.read(|conn| {
            let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
            let since = SqlMoment::from(DateTime::<Utc>::from(now) - TimeDelta::seconds(secs));
            let mut ends = Vec::new();
            // In the index, tasks that state how long they are kept are separate.
            for finished in [FINISHED, FINISHED_WITH_KEEP] {
                let over = dsl::task_queue
                    .filter(dsl::last_status.eq(status.as_str()))
                    .filter(dsl::finished.eq(finished))
                    .filter(dsl::status_on.gt(since))
                    .filter(dsl::status_on.le(now));
                let newest = over
                    .order((dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc()))
                    .limit(limit);
                ends.extend(newest.select((dsl::status_on, dsl::id)).load::<(Option<SqlMoment>, i64)>(conn)?);
            }
            Ok(ends)
        })?;
        let mut ends: Vec<(DateTime<Utc>, TaskId)> =
            ends.into_iter().filter_map(|(on, id)| Some((DateTime::from(on?), TaskId(id)))).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(ends)
    }
}

/// Returns the highest count of rows of each of this many classes.
fn most_of_each(classes: usize) -> i64 {
    let number = i64::try_from(classes).unwrap_or(i64::MAX).max(1);
    (OF_ALL_CLASSES / number).clamp(LEAST_OF_CLASS, MOST_OF_CLASS)
}

/// Returns how many of the first due tasks belong to each class.
fn first_due(conn: &mut AnyConnection) -> QueryResult<BTreeMap<String, i64>> {
    use task_queue::dsl;
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let due = dsl::task_queue.filter(dsl::due_on.le(now)).filter(open_run().is_null());
    let due = due.order((dsl::due_on, dsl::id));
    let classes: Vec<ShownText> = due.limit(DUE_LIMIT + 1).select(dsl::task_class).load(conn)?;
    let mut counts = BTreeMap::new();
    for class in classes {
        *counts.entry(class.0).or_insert(0) += 1;
    }
    Ok(counts)
}

pub(in crate::reading) fn count_running(conn: &mut AnyConnection) -> QueryResult<BTreeMap<String, i64>> {
    use task_queue_runs::dsl;
    let processing = dsl::task_queue_runs.filter(dsl::running_class.is_not_null());
    let counts: Vec<(Option<ShownText>, i64)> =
        processing.group_by(dsl::running_class).select((dsl::running_class, count_star())).load(conn)?;
    Ok(counts.into_iter().filter_map(|(class, count)| Some((class?.0, count))).collect())
}

fn list_waiting_classes(conn: &mut AnyConnection, limit: usize) -> QueryResult<Vec<String>> {
    let mut classes: Vec<String> = Vec::new();
    while classes.len() < limit {
        let last = classes.last().map_or("", String::as_str);
        // A name that cannot be read stops the scan; the next claim sets its run aside.
        let Some((Stored::Known(class), ..)) = next_head(conn, Bound::Excluded(last), None)? else { break };
        classes.push(class.to_string());
    }
    Ok(classes)
}

pub(in crate::reading) fn count_waiting(conn: &mut AnyConnection, class: &str, most: i64) -> QueryResult<Counted> {
    use task_queue_runs::dsl;
    // In index order, so that no plan reads the table for a class with few rows.
    let waiting = dsl::task_queue_runs.filter(dsl::claim_class.eq(class)).select(dsl::id);
    let waiting = waiting.order((dsl::claim_class, dsl::claim_order, dsl::lined_up_on, dsl::id));
    count_up_to!(most, waiting, conn)
}

fn count_failed(conn: &mut AnyConnection, class: &str, most: i64) -> QueryResult<Counted> {
    use task_queue::dsl;
    let mut count = 0;
    for status in [TaskStatus::Failed, TaskStatus::Timeout] {
        let of_class = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::last_status.eq(status.as_str()));
        let of_class = of_class.order((dsl::task_class, dsl::last_status, dsl::scheduled_on, dsl::id));
        count += number_of(of_class.select(dsl::id).limit(most + 1)).get_result::<i64>(conn)?;
    }
    Ok(Counted::up_to(most, count))
}
