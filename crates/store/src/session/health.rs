//! Symptoms of the server or the file that an operator should know, and tasks that will never run.

use diesel::prelude::*;

use crate::backend;
pub use crate::backend::health::Symptom;
use crate::base::rows::TaskRow;
use crate::base::schema::{task_queue, task_queue_dependencies};
use crate::base::sql::{SqlMoment, allowed_retries, db_now, db_now_plus};
use crate::journal::events::{NewEvent, insert_event};
use crate::reading::status::NOT_FINISHED;
use crate::transitions::skips_times;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::status::{ScheduleStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;

/// A row of this size rarely fits into a page that other rows have left partly free, and is not compressed.
const PROBE_BYTES: usize = 1_500;
/// How many schedules are examined whose last change is in the future.
const HEADS: i64 = 100;

impl Store {
    /// Returns the symptoms of the server or the file; a transaction is long if it has been open for `long_secs` seconds.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn symptoms(&mut self, long_secs: i64) -> StoreResult<Vec<Symptom>> {
        let file = self.url.path().filter(|_| !self.is_frozen);
        let mut symptoms = self.read(|conn| Ok(backend::health::symptoms(conn, file.as_deref(), long_secs)?))?;
        // Without a log, SQLite reports another mode than that of the file.
        let is_of_log = |it: &Symptom| matches!(it, Symptom::Setting { name, .. } if name == "journal_mode");
        symptoms.retain(|symptom| !(self.is_frozen && is_of_log(symptom)));
        symptoms.extend(self.find_full_server());
        Ok(symptoms)
    }

    /// Inserts a row into a server and undoes that: the space on its disk cannot be examined from here. A server or user that
    /// may not write at all is not a full disk.
    fn find_full_server(&mut self) -> Option<Symptom> {
        if self.url.path().is_some() {
            return None;
        }
        let details = serde_json::json!({ "padding": "x".repeat(PROBE_BYTES) });
        let (actor, host) = (String::new(), String::new());
        let event = NewEvent { kind: "probe", task_id: None, run_id: None, actor, host, details };
        let undone = self.write(|conn| {
            insert_event(conn, &event)?;
            Err::<(), _>(StoreError::Database(diesel::result::Error::RollbackTransaction))
        });
        match undone {
            Err(StoreError::Full { message, .. }) => Some(Symptom::Full { error: message }),
            _ => None,
        }
    }

    /// Returns the number of nodes of the server's Galera cluster; `None` if it is not in a cluster.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn cluster_nodes(&mut self) -> StoreResult<Option<i64>> {
        self.read(|conn| Ok(backend::health::cluster_nodes(conn)?))
    }

    /// Returns up to `limit` schedules that cannot be parsed, by their newest tasks.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_broken_schedules(&mut self, limit: i64) -> StoreResult<Vec<TaskId>> {
        use task_queue::dsl;
        self.read_each(TaskId, |conn| {
            let broken = dsl::task_queue.filter(dsl::schedule_head.is_not_null());
            let broken = broken.filter(dsl::schedule_status.eq(ScheduleStatus::Broken.as_str()));
            broken.order(dsl::id).limit(limit).select(dsl::id).load(conn)
        })
    }

    /// Returns up to `limit` failed tasks that have retries left and whose last change is more than `lead_secs` in the future.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_failed_in_the_future(&mut self, lead_secs: i64, limit: i64) -> StoreResult<Vec<TaskId>> {
        use task_queue::dsl;
        let failed = [TaskStatus::Failed.as_str(), TaskStatus::Timeout.as_str()];
        self.read_each(TaskId, |conn| {
            let waiting = dsl::task_queue.filter(dsl::last_status.eq_any(failed)).filter(dsl::quarantined_on.is_null());
            // Most failures are finished: the index skips them.
            let unfinished = waiting.filter(dsl::finished.eq(NOT_FINISHED));
            let future = unfinished.filter(dsl::updated_on.gt(db_now_plus(lead_secs)));
            let retried = future.filter(dsl::failed_retries.lt(allowed_retries()));
            retried.order(dsl::id).limit(limit).select(dsl::id).load(conn)
        })
    }

    /// Returns the first newest tasks of active schedules that skip times and whose last change is more than `lead_secs` in the
    /// future: they were planned under a clock that was ahead.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_planned_in_the_future(&mut self, lead_secs: i64) -> StoreResult<Vec<TaskId>> {
        use task_queue::dsl;
        self.read(|conn| {
            let active = dsl::task_queue.filter(dsl::schedule_head.is_not_null());
            let active = active.filter(dsl::schedule_status.eq(ScheduleStatus::Active.as_str()));
            let future = active.filter(dsl::updated_on.gt(db_now_plus(lead_secs))).order(dsl::id).limit(HEADS);
            let rows: Vec<TaskRow> = future.select(TaskRow::as_select()).load(conn)?;
            let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
            let mut found = Vec::new();
            for head in rows.into_iter().map(Task::from) {
                if skips_times(conn, &head, now.into())? {
                    found.push(head.id);
                }
            }
            Ok(found)
        })
    }

    /// Returns up to `limit` tasks that wait for a cancelled or expired task: they will not run on their own.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_stranded_tasks(&mut self, limit: i64) -> StoreResult<Vec<TaskId>> {
        use task_queue_dependencies::dsl;
        self.read_each(TaskId, |conn| {
            let never = [TaskStatus::Cancelled, TaskStatus::Expired].map(TaskStatus::as_str);
            let cancelled = task_queue::table
                .filter(task_queue::id.eq(dsl::depends_on_id))
                .filter(task_queue::last_status.eq_any(never))
                .select(task_queue::id)
                .single_value();
            let waiting = task_queue::table
                .filter(task_queue::id.eq(dsl::task_id))
                .filter(task_queue::last_status.eq(TaskStatus::Scheduled.as_str()))
                .select(task_queue::id)
                .single_value();
            let open = dsl::task_queue_dependencies.filter(dsl::is_satisfied.eq(false));
            let stranded = open.filter(cancelled.is_not_null()).filter(waiting.is_not_null()).order(dsl::task_id);
            stranded.limit(limit).select(dsl::task_id).distinct().load(conn)
        })
    }
}
