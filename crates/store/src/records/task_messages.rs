//! Messages to tasks: events of the kind [`MESSAGE_TO_TASK`]. A message with a run is only for that attempt; a message without a
//! run is for every attempt of its task.

use diesel::prelude::*;
use serde::Serialize;

use crate::backend;
use crate::base::cells::ShownText;
use crate::base::schema::{task_queue_events, task_queue_runs};
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};
use taskqueue_domain::run::message::Message;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::ids::{RunId, TaskId};

/// The kind of events that are messages to a task.
pub const MESSAGE_TO_TASK: &str = "message-to-task";
/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 500;

/// A run in progress to which a message was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipient {
    /// The task.
    pub task_id: TaskId,
    /// The run.
    pub run_id: RunId,
    /// The host of its runner or claimant; empty if unknown.
    pub host: String,
    /// The claimant that processes it; `None` for a runner.
    pub claimant: Option<String>,
}

/// The recipient of a message, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Id of the event.
    pub id: i64,
    /// The task.
    pub task_id: TaskId,
    /// The only attempt that receives it; `None` for every attempt.
    pub run_id: Option<RunId>,
}

type RecipientRow = (i64, i64, ShownText, Option<ShownText>);

fn recipient((run, task, host, claimant): RecipientRow) -> Recipient {
    Recipient { task_id: TaskId(task), run_id: RunId(run), host: host.0, claimant: claimant.map(String::from) }
}

impl Store {
    /// Stores a message to a task. Returns the run in progress, if there is one. If there is none, the message is stored only if
    /// `is_kept`.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn send_message(
        &mut self,
        task: TaskId,
        event: &NewEvent<String>,
        is_kept: bool,
    ) -> StoreResult<Option<Recipient>> {
        use task_queue_runs::dsl;
        self.write_once(|conn| {
            let row: Option<RecipientRow> = dsl::task_queue_runs
                .filter(dsl::open_task_id.eq(task.0))
                .filter(dsl::status.eq(RunStatus::Processing.as_str()))
                .select((dsl::id, dsl::task_queue_id, dsl::host, dsl::claimant))
                .first(conn)
                .optional()?;
            let found = row.map(recipient);
            let run_id = found.as_ref().map(|found| found.run_id).filter(|_| !is_kept);
            if is_kept || run_id.is_some() {
                insert_event(conn, &NewEvent { task_id: Some(task), run_id, ..event.clone() })?;
                backend::notify(conn, backend::MESSAGE_CHANNEL, "")?;
            }
            Ok(found)
        })
    }

    /// Stores a message to each run in progress of these classes, in one transaction. Returns the runs, in the order of their
    /// ids.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn broadcast_message(
        &mut self,
        classes: &ClassFilter,
        event: &NewEvent<String>,
    ) -> StoreResult<Vec<Recipient>> {
        use task_queue_runs::dsl;
        self.write_once(|conn| {
            let rows: Vec<(Option<ShownText>, RecipientRow)> = dsl::task_queue_runs
                .filter(dsl::running_class.is_not_null())
                .order((dsl::running_class, dsl::id))
                .select((dsl::running_class, (dsl::id, dsl::task_queue_id, dsl::host, dsl::claimant)))
                .load(conn)?;
            let is_meant = |class: &Option<ShownText>| class.as_ref().is_some_and(|class| classes.matches(&class.0));
            let mut found: Vec<Recipient> =
                rows.into_iter().filter(|(class, _)| is_meant(class)).map(|(_, row)| recipient(row)).collect();
            found.sort_unstable_by_key(|found| found.run_id.0);
            for Recipient { task_id, run_id, .. } in &found {
                insert_event(conn, &NewEvent { task_id: Some(*task_id), run_id: Some(*run_id), ..event.clone() })?;
            }
            if !found.is_empty() {
                backend::notify(conn, backend::MESSAGE_CHANNEL, "")?;
            }
            Ok(found)
        })
    }

    /// Returns the messages to these tasks whose ids are above `after`, in the order of their ids.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_envelopes(&mut self, tasks: &[TaskId], after: i64) -> StoreResult<Vec<Envelope>> {
        use task_queue_events::dsl;
        let mut found: Vec<Envelope> = Vec::new();
        for part in tasks.chunks(IDS_PER_STATEMENT) {
            let part: Vec<i64> = part.iter().map(|task| task.0).collect();
            let rows: Vec<(i64, Option<i64>, Option<i64>)> = self.read(|conn| {
                Ok(dsl::task_queue_events
                    .filter(dsl::task_queue_id.eq_any(&part))
                    .filter(dsl::id.gt(after))
                    .filter(dsl::kind.eq(MESSAGE_TO_TASK))
                    .select((dsl::id, dsl::task_queue_id, dsl::run_id))
                    .load(conn)?)
            })?;
            found.extend(
                rows.into_iter().filter_map(|(id, task, run)| {
                    Some(Envelope { id, task_id: TaskId(task?), run_id: run.map(RunId) })
                }),
            );
        }
        found.sort_unstable_by_key(|found| found.id);
        Ok(found)
    }

    /// Returns the content of these messages with their ids, in the order of the ids. Events that are not messages are skipped.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn load_messages(&mut self, ids: &[i64]) -> StoreResult<Vec<(i64, Message)>> {
        use task_queue_events::dsl;
        let mut found: Vec<(i64, Message)> = Vec::new();
        for part in ids.chunks(IDS_PER_STATEMENT) {
            let rows: Vec<(i64, ShownText)> = self.read(|conn| {
                Ok(dsl::task_queue_events.filter(dsl::id.eq_any(part)).select((dsl::id, dsl::details)).load(conn)?)
            })?;
            found.extend(rows.into_iter().filter_map(|(id, details)| Some((id, Message::from_details(&details.0)?))));
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        Ok(found)
    }
}
