//! By whom a store is changed.

use std::time::Duration;

use crate::journal::events::NewEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};

/// How long settings are used before they are read again.
pub(crate) const SETTINGS_FRESH: Duration = Duration::from_secs(1);

/// The identity of this process in the events of its transitions.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Login name.
    pub actor: String,
    /// Host
    pub host: String,
}

impl Origin {
    /// Returns the origin of what no user caused.
    pub(crate) fn without_user(host: &str) -> Self {
        Self { actor: String::new(), host: host.to_owned() }
    }

    /// Returns an event of this origin.
    pub(crate) fn event(
        &self,
        kind: &'static str,
        task_id: Option<TaskId>,
        run_id: Option<RunId>,
        details: serde_json::Value,
    ) -> NewEvent {
        NewEvent { kind, task_id, run_id, actor: self.actor.clone(), host: self.host.clone(), details }
    }
}
