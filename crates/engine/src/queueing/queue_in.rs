//! Queueing inside a transaction of a program's own, with the checks of `queue`.

use chrono::{DateTime, Utc};

use super::queue::{Admission, ClassCheck, refused};
use crate::{EngineError, EngineResult, Handlers};
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::unique::{OnConflict, QueuedTask};
use taskqueue_host::machine::host::host_name;
pub use taskqueue_store::CallersConnection;
use taskqueue_store::{Origin, callers_now, callers_settings, insert_in};

/// The database's clock, asked over their connection.
///
/// # Errors
/// The database's.
pub fn now_of<C: CallersConnection>(conn: &mut C) -> EngineResult<DateTime<Utc>> {
    Ok(callers_now(conn)?)
}

/// Queues a task of any class over a connection of somebody else, whose transaction decides whether it stays.
///
/// # Errors
/// [`EngineError::Input`], [`EngineError::KeyTaken`], or the database's.
pub fn queue_in<C: CallersConnection>(conn: &mut C, request: TaskRequest) -> EngineResult<QueuedTask> {
    if request.on_conflict == Some(OnConflict::Replace) {
        let why = "a task that replaces another one takes locks in an order of its own, so it is queued in a transaction of its own";
        return Err(EngineError::Input(why.to_owned()));
    }
    let settings = Settings::from_rows(&callers_settings(conn)?).map_err(taskqueue_store::StoreError::from)?;
    let admission = Admission { handlers: &Handlers::default(), check: ClassCheck::AnyName, parent: None };
    let mut task = admission.check(request, &settings)?;
    if task.recurrence.is_some() {
        task = task.planned(callers_now(conn)?).map_err(EngineError::Input)?;
    }
    let origin = settings.audits_transitions.then(|| Origin { actor: task.queued_by.clone(), host: host_name() });
    insert_in(conn, &task, origin.as_ref()).map_err(|error| refused(error).1)
}
