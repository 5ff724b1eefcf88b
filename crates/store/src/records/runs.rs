//! TaskQueueRuns: queries, and data saved while a run is processed. Changes of a status are in `transitions`.

use diesel::dsl::{auto_type, exists, not};
use diesel::prelude::*;

use crate::backend;
use crate::base::cells::ShownText;
use crate::base::rows::RunRow;
use crate::base::schema::task_queue_runs as all_runs;
use crate::base::schema::task_queue_runs::dsl::{
    claimant, decision, handler_identity, handler_process_id, host, id, runner_id, running_class, started_on, status,
    task_class, task_queue_id, task_queue_runs, token, updated_on,
};
use crate::base::sql::db_now;
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::message::Messages;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::Run;

diesel::alias!(all_runs as last_run: LastRun);

/// A claimed run: every write for it must present the token (rule R3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// The run.
    pub id: RunId,
    /// The token of its claim.
    pub token: String,
}

/// Selects a run if its claim still holds.
#[auto_type(no_type_alias)]
pub(crate) fn held_run<'a>(run: &'a RunRef) -> _ {
    let (run_id, own_token): (i64, &'a str) = (run.id.0, &run.token);
    let processing: &'static str = RunStatus::Processing.as_str();
    task_queue_runs.filter(id.eq(run_id)).filter(status.eq(processing)).filter(token.eq(own_token))
}

impl Store {
    /// Returns the run with this id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn get_run(&mut self, run_id: RunId) -> StoreResult<Run> {
        let found = self.read(|conn| {
            Ok(task_queue_runs.filter(id.eq(run_id.0)).select(RunRow::as_select()).first(conn).optional()?)
        })?;
        found.map(Run::from).ok_or_else(|| StoreError::NotFound(format!("run {run_id}")))
    }

    /// Returns the newest `limit` runs of a task, newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_runs_of_task(&mut self, task_id: TaskId, limit: i64) -> StoreResult<Vec<Run>> {
        self.read_each(Run::from, |conn| {
            let of_task = task_queue_runs.filter(task_queue_id.eq(task_id.0));
            of_task.order((task_queue_id.desc(), id.desc())).limit(limit).select(RunRow::as_select()).load(conn)
        })
    }

    /// Returns the newest run of this task that has started, whatever its status.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn newest_begun_run(&mut self, task_id: TaskId) -> StoreResult<Option<Run>> {
        Ok(self.list_begun_runs(task_id, RunId(0), 1)?.pop())
    }

    /// Returns the newest started runs of this task, from this one on, up to `limit`, newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_begun_runs(&mut self, task_id: TaskId, from: RunId, limit: i64) -> StoreResult<Vec<Run>> {
        self.read_each(Run::from, |conn| {
            let of_task = task_queue_runs.filter(task_queue_id.eq(task_id.0)).filter(id.ge(from.0));
            let begun = of_task.filter(started_on.is_not_null()).order((task_queue_id.desc(), id.desc()));
            begun.limit(limit).select(RunRow::as_select()).load(conn)
        })
    }

    /// Returns up to `limit` runs in progress. `after` continues after the last run of an earlier page.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_processing_runs(&mut self, after: Option<&Run>, limit: i64) -> StoreResult<Vec<Run>> {
        self.read_each(Run::from, |conn| {
            let mut query = task_queue_runs
                .filter(running_class.is_not_null())
                .order((running_class, id))
                .limit(limit)
                .select(RunRow::as_select())
                .into_boxed();
            if let Some(run) = after {
                // Not its class as it was read: if that is no text, the pages would begin anew.
                let row = last_run.filter(last_run.field(id).eq(run.id.0));
                let class = row.select(last_run.field(task_class)).single_value();
                let is_later = running_class.gt(class).or(running_class.eq(class).and(id.gt(run.id.0)));
                // It may have been deleted since.
                let read = run.class.as_str();
                let is_gone = not(exists(last_run.filter(last_run.field(id).eq(run.id.0))));
                let comes_after = running_class.gt(read).or(running_class.eq(read).and(id.gt(run.id.0)));
                query = query.filter(is_later.or(is_gone.and(comes_after)));
            }
            query.load(conn)
        })
    }

    /// Returns the runs that these runners are processing.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_runs_of_runners(&mut self, runners: &[RunnerId]) -> StoreResult<Vec<Run>> {
        let ids: Vec<i64> = runners.iter().map(|runner| runner.0).collect();
        self.read_each(Run::from, |conn| {
            let of_runners = task_queue_runs.filter(running_class.is_not_null()).filter(runner_id.eq_any(&ids));
            of_runners.order((running_class, id)).select(RunRow::as_select()).load(conn)
        })
    }

    /// Returns the decision about the last run of the task before this one that was not released; `None` if there is none.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn decision_before(&mut self, task: TaskId, run: RunId) -> StoreResult<Option<String>> {
        self.read(|conn| {
            let earlier = task_queue_runs.filter(task_queue_id.eq(task.0)).filter(id.lt(run.0));
            let earlier = earlier.filter(status.ne(RunStatus::Released.as_str()));
            let newest = earlier.order((task_queue_id.desc(), id.desc()));
            Ok(newest.select(decision).first::<ShownText>(conn).optional()?.map(String::from))
        })
    }

    /// Returns the newest `limit` runs of all tasks, newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_newest_runs(&mut self, limit: i64) -> StoreResult<Vec<Run>> {
        self.read_each(Run::from, |conn| {
            task_queue_runs.order(id.desc()).limit(limit).select(RunRow::as_select()).load(conn)
        })
    }

    /// Records which process handles the run, so that it can be found if its runner dies. Returns true if the run still belongs
    /// to the caller.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn record_handler(&mut self, run: &RunRef, pid: i64, identity: &str) -> StoreResult<bool> {
        self.write(|conn| {
            let updated = diesel::update(held_run(run))
                .set((handler_process_id.eq(pid), handler_identity.eq(identity), updated_on.eq(db_now())))
                .execute(conn)?;
            fault_point!("lease.before_handler_commit");
            Ok(updated == 1)
        })
    }

    /// Records messages of the handler or claimant of a run as events, and how many were dropped before them. Returns true if the
    /// run still belongs to the caller.
    ///
    /// # Errors
    /// The database could not be written; none is recorded then.
    pub fn record_messages(&mut self, run: &RunRef, messages: &Messages) -> StoreResult<bool> {
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let held: Option<(i64, ShownText, Option<ShownText>)> =
                held_run(run).select((task_queue_id, host, claimant)).first(conn).optional()?;
            let Some((task_id, at, by)) = held else { return Ok(false) };
            let event = |kind, details| NewEvent {
                kind,
                task_id: Some(TaskId(task_id)),
                run_id: Some(run.id),
                actor: by.clone().map(String::from).unwrap_or_default(),
                host: at.0.clone(),
                details,
            };
            if messages.dropped > 0 {
                insert_event(
                    conn,
                    &event("messages-dropped", serde_json::json!({ "count": messages.dropped }).to_string()),
                )?;
            }
            for message in &messages.kept {
                insert_event(conn, &event("message", message.details()))?;
            }
            fault_point!("lease.before_messages_commit");
            Ok(true)
        })
    }

    /// Saves progress and results so far. Returns true if the run still belongs to the caller.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn record_report(&mut self, run: &RunRef, report: &RunReport<'_>) -> StoreResult<bool> {
        self.write(|conn| {
            let updated = diesel::update(held_run(run)).set((report, updated_on.eq(db_now()))).execute(conn)?;
            fault_point!("lease.before_report_commit");
            Ok(updated == 1)
        })
    }
}

/// The report of a running handler. A value that is `None` stays unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsChangeset)]
#[diesel(table_name = all_runs)]
pub struct RunReport<'a> {
    /// 0 to 100
    pub percents_completed: Option<i32>,
    /// A line for people.
    #[diesel(column_name = progress_message)]
    pub message: Option<&'a str>,
    /// JSON text
    pub results: Option<&'a str>,
}
