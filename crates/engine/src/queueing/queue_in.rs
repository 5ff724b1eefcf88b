//! Queues tasks inside the transaction of a calling program, with the checks of `queue`.

use chrono::{DateTime, Utc};

use super::queue::{Admission, ClassCheck, refused};
use crate::error::{EngineError, EngineResult};
use crate::handler::handlers::Handlers;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::unique::{OnConflict, QueuedTask};
use taskqueue_host::machine::host::host_name;
pub use taskqueue_store::CallersConnection;
use taskqueue_store::{Origin, callers_now, callers_settings, insert_in};

/// Returns the time of the database's clock, read over the caller's connection.
///
/// # Errors
/// Returns an error if the database fails.
pub fn now_of<C: CallersConnection>(conn: &mut C) -> EngineResult<DateTime<Utc>> {
    Ok(callers_now(conn)?)
}

/// Queues a task of any class over the caller's connection. The caller's transaction decides whether it stays.
///
/// # Errors
/// Returns [`EngineError::Input`], [`EngineError::KeyTaken`], or an error if the database fails.
pub fn queue_in<C: CallersConnection>(conn: &mut C, request: TaskRequest) -> EngineResult<QueuedTask> {
    if request.on_conflict == Some(OnConflict::Replace) {
        let why = "a task that replaces another takes locks in a different order, so it must be queued in a separate transaction";
        return Err(EngineError::Input(why.to_owned()));
    }
    let (settings, _) = Settings::from_rows(&callers_settings(conn)?);
    let admission = Admission { handlers: &Handlers::default(), check: ClassCheck::AnyName, parent: None };
    let mut task = admission.check(request, &settings)?;
    if task.recurrence.is_some() {
        task = task.planned(callers_now(conn)?).map_err(EngineError::Input)?;
    }
    let origin = settings.audits_transitions.then(|| Origin { actor: task.queued_by.clone(), host: host_name() });
    insert_in(conn, &task, origin.as_ref()).map_err(|error| refused(error).1)
}
