//! Reading events, and finding runs.

use std::time::Duration;

use super::error::Error;
use super::new_task::whole_secs;
use super::task_queue::TaskQueue;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::Run;
use taskqueue_engine::EngineError;
use taskqueue_engine::inspect::events::{self, Event, EventFilter};
use taskqueue_engine::inspect::status;

impl TaskQueue {
    /// Returns the newest `limit` events of this filter, oldest first, as `taskqueue events` does.
    ///
    /// ```
    /// # use taskqueue::{EventFilter, NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// queue.because("the customer left").cancel(id)?.all()?;
    /// let of_task = EventFilter { task_id: Some(id), ..EventFilter::default() };
    /// let events = queue.events(&of_task, 20)?;
    /// assert_eq!(events[0].kind, "cancelled");
    /// assert!(events[0].details.contains("the customer left"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if the filter names a task or a run that does not exist and has no events, or an error of
    /// the database.
    pub fn events(&self, filter: &EventFilter, limit: u32) -> Result<Vec<Event>, Error> {
        self.with(|ctx| {
            let found = events::list(ctx, filter, limit.into())?;
            if found.is_empty() {
                events::expect_subject(ctx, filter)?;
            }
            Ok(found)
        })
    }

    /// Returns a run.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`], or an error of the database.
    pub fn run(&self, id: RunId) -> Result<Run, Error> {
        self.with(|ctx| Ok(ctx.store.get_run(id).map_err(EngineError::from)?))
    }

    /// Returns up to `limit` runs in progress without a report for this long, as `taskqueue status --silent-for` does.
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn silent_runs(&self, time: Duration, limit: u32) -> Result<Vec<Run>, Error> {
        self.with(|ctx| Ok(status::list_silent_runs(ctx, whole_secs(time), limit.into())?))
    }

    /// Returns the run with this token, as `taskqueue status --token` does. The token of a claimant works at any time, that of
    /// a runner only while the run is in progress.
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn run_of_token(&self, token: &str) -> Result<Option<Run>, Error> {
        self.with(|ctx| Ok(status::find_run_of_token(ctx, token)?))
    }
}
