//! Pausing, draining, stopping and resuming.

use std::time::Duration;

use crate::library::error::Error;
use crate::library::task_queue::TaskQueue;
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::task::records::Runner;
use taskqueue_engine::change::pauses::{self, PauseRequest};

impl TaskQueue {
    /// Stops claims for a class, the runners with a name, or everything, as `taskqueue pause` does: for a time, or until
    /// [`TaskQueue::resume`]. Runs in progress continue. Returns the live runners that it names.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use taskqueue::{PauseScope, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// let mails = PauseScope::Class("mail.*".to_owned());
    /// queue.because("the mail server is down").pause(&mails, Some(Duration::from_secs(7_200)))?;
    /// assert_eq!(queue.pauses()?[0].reason, "the mail server is down");
    /// assert!(queue.resume(&mails)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Input`] if a name, a reason or a time is invalid, or an error of the database.
    pub fn pause(&self, scope: &PauseScope, limit: Option<Duration>) -> Result<Vec<Runner>, Error> {
        self.order(scope, PauseMode::Pause, limit)
    }

    /// Stops claims, and lets runners exit after their current run, as `taskqueue drain` does. Returns the live runners that it
    /// names.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::pause`].
    pub fn drain(&self, scope: &PauseScope, limit: Option<Duration>) -> Result<Vec<Runner>, Error> {
        self.order(scope, PauseMode::Drain, limit)
    }

    /// Stops claims, and ends runners like a signal, as `taskqueue stop` does: runs in progress may continue for a while, and
    /// are then released. Returns the live runners that it names.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::pause`].
    pub fn stop_runners(&self, scope: &PauseScope, limit: Option<Duration>) -> Result<Vec<Runner>, Error> {
        self.order(scope, PauseMode::Stop, limit)
    }

    /// Ends a pause, a drain or a stop of the same scope. Returns whether there was one.
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn resume(&self, scope: &PauseScope) -> Result<bool, Error> {
        self.with(|ctx| Ok(pauses::resume(ctx, scope)?))
    }

    /// Returns every pause, drain and stop in effect.
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn pauses(&self) -> Result<Vec<Pause>, Error> {
        self.with(|ctx| Ok(pauses::list(ctx)?))
    }

    fn order(&self, scope: &PauseScope, mode: PauseMode, duration: Option<Duration>) -> Result<Vec<Runner>, Error> {
        let reason = self.reason().unwrap_or_default().to_owned();
        self.with(|ctx| Ok(pauses::pause(ctx, PauseRequest { scope: scope.clone(), mode, reason, duration })?))
    }
}
