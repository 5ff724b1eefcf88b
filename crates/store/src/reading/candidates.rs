//! Candidates for completing a word that is being typed: a few rows of each kind, newest or nearest first, always from an index,
//! and only their identifying columns.

use diesel::prelude::*;

use super::status::part_by_part;
use crate::base::cells::{Cell, ExactText, ShownText};
use crate::base::schema::{task_queue, task_queue_key_limits, task_queue_runners, task_queue_runs};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};

/// Which runs to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichRuns {
    /// Runs that wait for a runner.
    Waiting,
    /// Runs in progress.
    Processing,
    /// The newest runs, whatever their status.
    Newest,
}

/// The identification of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleName {
    /// The id of its first task.
    pub id: TaskId,
    /// Its class.
    pub class: String,
    /// Its cron expression.
    pub every: String,
}

impl Store {
    /// Returns up to `limit` tasks in this status with their classes: unfinished tasks first, and within each group the newest
    /// first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_recent_tasks(&mut self, status: TaskStatus, limit: i64) -> StoreResult<Vec<(TaskId, String)>> {
        use task_queue::dsl;
        let name = |(id, class): (i64, ShownText)| (TaskId(id), class.0);
        self.read_each(name, |conn| {
            part_by_part(limit, |part, missing| {
                // The order names all columns of the index, as for a page of `status`.
                dsl::task_queue
                    .filter(dsl::last_status.eq(status.as_str()))
                    .filter(dsl::finished.eq(part))
                    .order((dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc()))
                    .limit(missing)
                    .select((dsl::id, dsl::task_class))
                    .load(conn)
            })
        })
    }

    /// Returns up to `limit` of these runs, each with its class and its status.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_run_names(&mut self, which: WhichRuns, limit: i64) -> StoreResult<Vec<(RunId, String, String)>> {
        use task_queue_runs::dsl;
        let name = |(id, class, status): (i64, ShownText, String)| (RunId(id), class.0, status);
        self.read_each(name, |conn| {
            let runs = dsl::task_queue_runs.select((dsl::id, dsl::task_class, dsl::status)).limit(limit).into_boxed();
            let runs = match which {
                WhichRuns::Waiting => runs.filter(dsl::claim_class.is_not_null()).order((
                    dsl::claim_class,
                    dsl::claim_order,
                    dsl::lined_up_on,
                    dsl::id,
                )),
                WhichRuns::Processing => {
                    runs.filter(dsl::running_class.is_not_null()).order((dsl::running_class, dsl::id))
                }
                WhichRuns::Newest => runs.order(dsl::id.desc()),
            };
            runs.load(conn)
        })
    }

    /// Returns names and hosts of up to `limit` runners that have not ended, according to their rows.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_runner_names(&mut self, limit: i64) -> StoreResult<Vec<(String, String)>> {
        use task_queue_runners::dsl;
        let name = |(name, host): (ShownText, ShownText)| (name.0, host.0);
        self.read_each(name, |conn| {
            dsl::task_queue_runners
                .filter(dsl::finished_on.is_null())
                .order((dsl::finished_on, dsl::id))
                .limit(limit)
                .select((dsl::name, dsl::host))
                .load(conn)
        })
    }

    /// Returns up to `limit` schedules.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_schedule_names(&mut self, limit: i64) -> StoreResult<Vec<ScheduleName>> {
        use task_queue::dsl;
        let name = |(id, schedule, class, every): (i64, Option<i64>, ShownText, Option<ShownText>)| ScheduleName {
            id: TaskId(schedule.unwrap_or(id)),
            class: class.0,
            every: every.map(String::from).unwrap_or_default(),
        };
        self.read_each(name, |conn| {
            dsl::task_queue
                .filter(dsl::schedule_head.is_not_null())
                .order((dsl::schedule_head, dsl::scheduled_on, dsl::id))
                .limit(limit)
                .select((dsl::id, dsl::schedule_id, dsl::task_class, dsl::recurrence))
                .load(conn)
        })
    }

    /// Returns up to `limit` keys that have their own limit, and up to as many keys of which runs have slots now; they may
    /// overlap.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_limit_key_names(&mut self, limit: i64) -> StoreResult<Vec<String>> {
        use {task_queue_key_limits as limits, task_queue_runs as runs};
        self.read(|conn| {
            let mut keys: Vec<String> =
                limits::table.order(limits::limit_key).limit(limit).select(limits::limit_key).load(conn)?;
            let held: Vec<Option<ShownText>> = runs::table
                .filter(runs::held_key.is_not_null())
                .order((runs::held_key, runs::claim_order, runs::id))
                .limit(limit)
                .select(runs::held_key)
                .load(conn)?;
            keys.extend(held.into_iter().flatten().map(String::from));
            Ok(keys)
        })
    }

    /// Returns the unique keys of the first `limit` tasks with a key from this text on, with repetitions.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_unique_keys_from(&mut self, beginning: &str, limit: i64) -> StoreResult<Vec<String>> {
        use task_queue::dsl;
        let keys: Vec<Option<ShownText>> = self.read(|conn| {
            Ok(dsl::task_queue
                .filter(dsl::unique_key.ge(beginning))
                .order((dsl::unique_key, dsl::id))
                .limit(limit)
                .select(dsl::unique_key)
                .load(conn)?)
        })?;
        Ok(keys.into_iter().flatten().map(String::from).collect())
    }

    /// Returns up to `limit` distinct tags of tasks from this text on. Reads one task per tag, however many have it.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_tags_from(&mut self, beginning: &str, limit: usize) -> StoreResult<Vec<String>> {
        use task_queue::dsl;
        self.read(|conn| {
            let mut tags: Vec<String> = Vec::new();
            while tags.len() < limit {
                let first = dsl::task_queue.order((dsl::tag, dsl::id)).select(dsl::tag).into_boxed();
                let first = match tags.last() {
                    None => first.filter(dsl::tag.ge(beginning)),
                    Some(last) => first.filter(dsl::tag.gt(last.as_str())),
                };
                let found: Option<Option<Cell<ExactText>>> = first.first(conn).optional()?;
                let Some(tag) = found.flatten().and_then(|tag| tag.read("Tag").ok()) else { break };
                tags.push(tag.0);
            }
            Ok(tags)
        })
    }
}
