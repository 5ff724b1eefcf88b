//! TaskQueueEvents: events recorded for later, such as late results, rescues, actions of operators and messages of handlers. The
//! start of a hold is recorded on the run that caused it.

use std::fmt::Display;

use diesel::prelude::*;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_events::dsl::{
    actor, details, host, kind, run_id, task_queue_events, task_queue_id,
};
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::TaskChange;

/// An event to be recorded.
#[derive(Clone, Debug)]
pub struct NewEvent<Details = serde_json::Value> {
    /// What happened; docs/events.md lists the kinds.
    pub kind: &'static str,
    /// Its task.
    pub task_id: Option<TaskId>,
    /// Its run.
    pub run_id: Option<RunId>,
    /// Who caused it.
    pub actor: String,
    /// The host.
    pub host: String,
    /// A JSON object with further details, or its text: that of a message must not change.
    pub details: Details,
}

impl NewEvent {
    /// Returns the event with the values that this change replaces in a task.
    pub(crate) fn edited(&self, change: &TaskChange, task: &Task) -> Self {
        let before = change.replaced_in(task);
        self.with_details(serde_json::json!({ "columns": before.keys().collect::<Vec<_>>(), "before": before }))
    }

    /// Returns the event with these additional details.
    pub(crate) fn with_details(&self, more: serde_json::Value) -> Self {
        let mut event = self.clone();
        if let (Some(object), serde_json::Value::Object(more)) = (event.details.as_object_mut(), more) {
            object.extend(more);
        }
        event
    }
}

/// Records an event in the transaction of the change it describes.
pub(crate) fn insert_event<Details: Display>(conn: &mut AnyConnection, event: &NewEvent<Details>) -> StoreResult<()> {
    diesel::insert_into(task_queue_events)
        .values((
            kind.eq(event.kind),
            task_queue_id.eq(event.task_id.map(|task| task.0)),
            run_id.eq(event.run_id.map(|run| run.0)),
            actor.eq(&event.actor),
            host.eq(&event.host),
            details.eq(event.details.to_string()),
        ))
        .execute(conn)?;
    Ok(())
}

/// Returns true if the same event was recorded for its task before.
pub(crate) fn is_kept_of_task(conn: &mut AnyConnection, event: &NewEvent) -> StoreResult<bool> {
    let same = task_queue_events
        .filter(task_queue_id.eq(event.task_id.map(|task| task.0)))
        .filter(kind.eq(event.kind))
        .filter(details.eq(event.details.to_string()));
    Ok(diesel::select(diesel::dsl::exists(same)).get_result(conn)?)
}

impl Store {
    /// Records an event of a run unless the same event was recorded before.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn record_event_once(&mut self, event: &NewEvent) -> StoreResult<()> {
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let same = task_queue_events
                .filter(task_queue_id.eq(event.task_id.map(|task| task.0)))
                .filter(run_id.eq(event.run_id.map(|run| run.0)))
                .filter(kind.eq(event.kind))
                .filter(details.eq(event.details.to_string()));
            let is_kept: bool = diesel::select(diesel::dsl::exists(same)).get_result(conn)?;
            if is_kept { Ok(()) } else { insert_event(conn, event) }
        })
    }
}
