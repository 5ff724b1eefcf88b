//! Schedules: the heads of the chains, the tasks of one chain, and the schedules of configuration files.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::task_queue::dsl;
use crate::base::schema::{task_queue, task_queue_schedules};
use crate::{Store, StoreResult};
use taskqueue_domain::task::configured::ConfiguredSchedule;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;

diesel::alias!(task_queue as earlier: Earlier);

impl Store {
    /// Returns the head of every schedule, ordered by what happens to it next.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_schedules(&mut self) -> StoreResult<Vec<Task>> {
        self.read_each(Task::from, |conn| {
            dsl::task_queue
                .filter(dsl::schedule_head.is_not_null())
                .order((dsl::schedule_head, dsl::scheduled_on, dsl::id))
                .select(TaskRow::as_select())
                .load(conn)
        })
    }

    /// Returns the task before the head of each schedule, by planned time, under the id of the head. Uses the index of planned
    /// times once for each schedule.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_tasks_before_heads(&mut self) -> StoreResult<HashMap<TaskId, TaskId>> {
        let before = earlier
            .filter(earlier.field(dsl::schedule_id).eq(dsl::schedule_id))
            .filter(earlier.field(dsl::planned_on).lt(dsl::planned_on))
            .order((earlier.field(dsl::schedule_id).desc(), earlier.field(dsl::planned_on).desc()))
            .select(earlier.field(dsl::id))
            .limit(1)
            .single_value();
        let found: Vec<(i64, Option<i64>)> = self.read(|conn| {
            Ok(dsl::task_queue.filter(dsl::schedule_head.is_not_null()).select((dsl::id, before)).load(conn)?)
        })?;
        Ok(found.into_iter().filter_map(|(head, before)| Some((TaskId(head), TaskId(before?)))).collect())
    }

    /// Returns the newest `limit` tasks of a schedule, the head first, then by planned time. The head can have an earlier time than
    /// a cancelled task.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_tasks_of_schedule(&mut self, schedule: TaskId, limit: i64) -> StoreResult<Vec<Task>> {
        let (head, rows) = self.read(|conn| {
            let head = head_row_of(conn, schedule)?;
            let rows: Vec<TaskRow> = dsl::task_queue
                .filter(dsl::schedule_id.eq(schedule.0))
                .order((dsl::schedule_id.desc(), dsl::planned_on.desc()))
                .limit(limit)
                .select(TaskRow::as_select())
                .load(conn)?;
            Ok((head, if rows.is_empty() { of_new_schedule(conn, schedule)? } else { rows }))
        })?;
        let mut tasks: Vec<Task> = rows.into_iter().map(Task::from).collect();
        if let Some(head) = head.map(Task::from) {
            tasks.retain(|task| task.id != head.id);
            tasks.insert(0, head);
            tasks.truncate(usize::try_from(limit).unwrap_or(0));
        }
        Ok(tasks)
    }
}

fn head_row_of(conn: &mut AnyConnection, schedule: TaskId) -> StoreResult<Option<TaskRow>> {
    let head = dsl::task_queue.filter(dsl::schedule_id.eq(schedule.0)).filter(dsl::schedule_head.is_not_null());
    Ok(head.select(TaskRow::as_select()).first(conn).optional()?)
}

/// A row of TaskQueueSchedules.
type ConfiguredRow = (ShownText, Option<i64>, Option<ShownText>, TimeOrPast, ShownText, ShownText);

/// The names of the schedules that a file states, as far as they were not removed.
#[diesel::dsl::auto_type(no_type_alias)]
pub(crate) fn configured_schedules() -> _ {
    task_queue_schedules::table
        .filter(task_queue_schedules::definition.is_not_null())
        .select(task_queue_schedules::name)
}

impl Store {
    /// Returns the schedules that files configured, also those that are gone from their files.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_configured_schedules(&mut self) -> StoreResult<Vec<ConfiguredSchedule>> {
        self.read_each(configured, |conn| {
            task_queue_schedules::table
                .order(task_queue_schedules::name)
                .select(task_queue_schedules::all_columns)
                .load(conn)
        })
    }

    /// Returns true if a file states any schedule.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_configured_schedules(&mut self) -> StoreResult<bool> {
        self.read(|conn| Ok(diesel::select(diesel::dsl::exists(configured_schedules())).get_result(conn)?))
    }

    /// Returns the heads of the schedules with this name.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_schedules_named(&mut self, name: &str) -> StoreResult<Vec<Task>> {
        self.read_each(Task::from, |conn| {
            dsl::task_queue
                .filter(dsl::name.eq(name))
                .filter(dsl::schedule_head.is_not_null())
                .order(dsl::id)
                .select(TaskRow::as_select())
                .load(conn)
        })
    }
}

fn configured((name, schedule_id, definition, configured_on, host, file): ConfiguredRow) -> ConfiguredSchedule {
    ConfiguredSchedule {
        name: name.0,
        schedule_id: schedule_id.map(TaskId),
        definition: definition.map(String::from),
        configured_on: configured_on.into(),
        host: host.0,
        file: file.0,
    }
}

/// Returns the row of a schedule that a file configured.
pub(crate) fn find_configured(conn: &mut AnyConnection, name: &str) -> StoreResult<Option<ConfiguredSchedule>> {
    let row: Option<ConfiguredRow> = task_queue_schedules::table
        .filter(task_queue_schedules::name.eq(name))
        .select(task_queue_schedules::all_columns)
        .first(conn)
        .optional()?;
    Ok(row.map(configured))
}

/// Returns the first row of a schedule, which has no ScheduleId until `create-runs` has processed it.
fn of_new_schedule(conn: &mut AnyConnection, id: TaskId) -> StoreResult<Vec<TaskRow>> {
    Ok(dsl::task_queue
        .filter(dsl::id.eq(id.0))
        .filter(dsl::recurrence.is_not_null())
        .select(TaskRow::as_select())
        .load(conn)?)
}

/// Returns the head of a schedule.
pub(crate) fn head_of(conn: &mut AnyConnection, schedule: TaskId) -> StoreResult<Option<Task>> {
    let new = match head_row_of(conn, schedule)? {
        None => of_new_schedule(conn, schedule)?.into_iter().next(),
        found => found,
    };
    // The last row of a removed schedule is not a head.
    Ok(new.map(Task::from).filter(is_head))
}

fn is_head(task: &Task) -> bool {
    use taskqueue_domain::run::status::ScheduleStatus::{Ended, Followed};
    task.schedule.as_ref().is_some_and(|schedule| !schedule.status.is(Followed) && !schedule.status.is(Ended))
}
