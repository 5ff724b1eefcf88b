//! The queue of a handler: commands that its runner executes for it, limited to its task and the children of that task.

use super::queue::{Admission, ClassCheck};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::handler::handlers::ClassHandler;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::choosing::selection::{ClassFilter, Selection};
use taskqueue_domain::task::choosing::visible_tasks::VisibleTasks;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::parent::Parent;
pub use taskqueue_process::children::command_requests::{CommandRequests, end_with_parent};
pub use taskqueue_process::children::event_socket::{CommandAnswer, request_command};
use taskqueue_store::{EventFilter, Origin};

impl Context {
    /// Acts for the handler of the run with this token: with its rights, and recorded under its task.
    ///
    /// # Errors
    /// Returns [`EngineError::Input`] if the run has ended, or an error if the database fails.
    pub fn act_for(&mut self, token: &str) -> EngineResult<()> {
        let found = self.store.find_run_of_token(token)?;
        let run = found.filter(|run| run.status.is(RunStatus::Processing));
        let run = run.ok_or_else(|| EngineError::Input("the run of this handler has ended".to_owned()))?;
        let class = run.class.known().cloned();
        let class = class.ok_or_else(|| EngineError::Input("the class of this run cannot be read".to_owned()))?;
        let may_queue = match self.handlers.find(&class) {
            Some(ClassHandler::Command(configured)) => configured.may_queue.clone(),
            // The client that queued the task chose its program, and may queue any class.
            Some(ClassHandler::Exec) => vec![ClassFilter::new("*")],
            Some(ClassHandler::Rust(_)) | None => Vec::new(),
        };
        let id = run.task_id;
        self.me.user = format!("task {id}");
        self.store.set_origin(Origin { actor: self.me.user.clone(), host: self.me.host.clone() });
        self.store.set_visible(VisibleTasks::Family(id));
        self.parent = Some(Parent { id, class, may_queue });
        Ok(())
    }

    /// Returns true if a handler requested the command of this process.
    #[must_use]
    pub const fn acts_for_handler(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns true if this store has a run with this token.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn has_run_of(&mut self, token: &str) -> EngineResult<bool> {
        Ok(self.store.find_run_of_token(token)?.is_some())
    }

    /// Returns which tasks are accepted here.
    pub(crate) fn admission(&self, check: ClassCheck) -> Admission<'_> {
        Admission { handlers: &self.handlers, check, parent: self.parent.as_ref() }
    }

    /// Returns an error if this process acts for a handler and `ids` contains anything but its own task and children of it.
    pub(crate) fn check_family(&mut self, ids: &[TaskId]) -> EngineResult<()> {
        let Some(parent) = self.parent.as_ref().map(|parent| parent.id) else { return Ok(()) };
        let family = self.store.visible_among(ids)?;
        match ids.iter().find(|id| !family.contains(id)) {
            Some(stranger) => Err(EngineError::Input(format!(
                "task {stranger} is neither task {parent} of this handler nor its child"
            ))),
            None => Ok(()),
        }
    }

    /// Returns an error if this process acts for a handler, which may not wait for the task that has this key.
    ///
    /// # Errors
    /// Returns [`EngineError::Input`] if the task is neither that of the handler nor its child, or an error if the database fails.
    pub fn check_key_holder(&mut self, holder: TaskId, key: &str) -> EngineResult<()> {
        self.check_family(&[holder]).map_err(|error| match error {
            EngineError::Input(_) => EngineError::Input(format!(
                "another task has the key \"{key}\" already; a handler can wait only for its own task and its children"
            )),
            other => other,
        })
    }

    /// Like `check_family`, for a selection that was not read yet.
    pub(crate) fn check_family_of(&mut self, selection: &Selection) -> EngineResult<()> {
        let Some(parent) = &self.parent else { return Ok(()) };
        if parent.selects_children(selection) {
            return Ok(());
        }
        if !selection.is_named() || selection.has_last {
            let id = parent.id;
            return Err(EngineError::Input(format!(
                "a handler can select tasks only by id, or its children by parent={id}"
            )));
        }
        self.check_family(&selection.ids)
    }

    /// Like `check_family`, for the events of a task.
    pub(crate) fn check_family_of_events(&mut self, filter: &EventFilter) -> EngineResult<()> {
        match (&self.parent, filter.task_id) {
            (None, _) => Ok(()),
            (Some(_), Some(id)) => self.check_family(&[id]),
            (Some(_), None) => Err(EngineError::Input("a handler can follow the events of only one task".to_owned())),
        }
    }
}
