//! This process: its name, host and user, and the events that it records.

use std::sync::OnceLock;

use crate::{EngineError, EngineResult};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_host::machine::host;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_store::NewEvent;

/// This process, as recorded in the tables.
#[derive(Clone, Debug)]
pub struct Me {
    /// PID.
    pub process_id: i64,
    /// Host name.
    pub host: String,
    /// Login name of the effective user.
    pub user: String,
    /// The name by which operators address this process if it is a runner.
    pub runner_name: String,
}

impl Me {
    pub(crate) fn new() -> Self {
        let (pid, host) = (std::process::id(), host::host_name());
        let (process_id, runner_name) = (i64::from(pid), format!("{host}:{pid}"));
        Self { process_id, runner_name, host, user: host::user_name() }
    }

    /// Returns boot id, PID namespace, PID and start ticks, which identify a runner. Reads four files of /proc.
    pub(crate) fn identity(&self) -> EngineResult<&'static str> {
        static IDENTITY: OnceLock<String> = OnceLock::new();
        if let Some(known) = IDENTITY.get() {
            return Ok(known);
        }
        let own = ProcessIdentity::own()
            .map_err(|source| EngineError::Os { what: "cannot identify this process", source })?;
        Ok(IDENTITY.get_or_init(|| own.to_string()))
    }

    /// Returns an event that this process records.
    pub(crate) fn event<Details>(&self, kind: &'static str, details: Details) -> NewEvent<Details> {
        let (actor, host) = (self.user.clone(), self.host.clone());
        NewEvent { kind, task_id: None, run_id: None, actor, host, details }
    }

    /// Like `event`, about a run.
    pub(crate) fn event_of_run(
        &self,
        kind: &'static str,
        task: TaskId,
        run: RunId,
        details: serde_json::Value,
    ) -> NewEvent {
        NewEvent { task_id: Some(task), run_id: Some(run), ..self.event(kind, details) }
    }
}
