//! By whom a store is changed, and whether each change of a status is kept as an event.

use std::time::{Duration, Instant};

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

/// Whether transitions are kept as events, as far as this is known.
#[derive(Debug, Default)]
pub(crate) struct AuditSwitch {
    is_on: bool,
    read_at: Option<Instant>,
}

impl AuditSwitch {
    /// Keeps the value that was just read.
    pub(crate) fn set(&mut self, is_on: bool) {
        *self = Self { is_on, read_at: Some(Instant::now()) };
    }

    /// Returns the value, or `None` where it must be read again.
    pub(crate) fn is_on(&self) -> Option<bool> {
        self.read_at.filter(|at| at.elapsed() < SETTINGS_FRESH).map(|_| self.is_on)
    }
}
