//! The inbox of one run.

use std::collections::HashSet;

use crate::handler::Inbox;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_store::Envelope;

/// The inbox of a held run, with the messages that it has received.
pub(crate) struct OpenInbox {
    pub(super) task_id: TaskId,
    pub(super) inbox: Inbox,
    /// Ids of the messages already delivered.
    pub(super) seen: HashSet<i64>,
    /// Whether nothing was delivered yet.
    pub(super) is_new: bool,
}

impl OpenInbox {
    pub(super) fn new(task_id: TaskId) -> Self {
        Self { task_id, inbox: Inbox::default(), seen: HashSet::new(), is_new: true }
    }

    pub(super) fn misses(&self, run_id: RunId, envelope: &Envelope) -> bool {
        envelope.task_id == self.task_id
            && envelope.run_id.is_none_or(|only| only == run_id)
            && !self.seen.contains(&envelope.id)
    }
}

impl Drop for OpenInbox {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
