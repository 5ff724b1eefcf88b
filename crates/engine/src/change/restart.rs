//! What `retry` and `requeue` share: restarting tasks, and the answers in the words of the verb.

use std::collections::HashMap;

use super::selected::{OnAnswer, TaskAnswer, claims_of, key_taken};
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::status::ScheduleStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_store::RestartAnswer;

/// A verb that restarts tasks.
pub(crate) struct NewStart {
    /// What was done, as one word: `retried`.
    pub(crate) result: &'static str,
    /// What happens to a task then, in the answer: `retried`.
    pub(crate) becomes: &'static str,
    /// Returns the answer for a refused task with this status; the flag is whether it has an open run.
    pub(crate) refused: fn(TaskId, &str, bool) -> TaskAnswer,
}

impl NewStart {
    /// Returns what would be done to this task; `may_start` is whether its status allows it.
    pub(crate) fn outlook(&self, task: &Task, may_start: bool) -> TaskAnswer {
        if may_start && task.current_run_id.is_none() {
            let (id, place) = (task.id, place_in_schedule(task));
            return TaskAnswer::done(id, self.result, format!("task {id} would be {}{place}", self.becomes));
        }
        (self.refused)(task.id, &task.status.to_string(), task.current_run_id.is_some())
    }

    /// Reports the result for each of these tasks; `places` contains the notes about their schedules.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn tell(
        &self,
        ctx: &mut Context,
        ids: &[TaskId],
        answers: Vec<RestartAnswer>,
        places: &HashMap<TaskId, String>,
        on_answer: OnAnswer<'_>,
    ) -> EngineResult<()> {
        let has_open_run = |answer: &RestartAnswer| matches!(answer, RestartAnswer::Refused { has_open_run: true, .. });
        let held = ids.iter().zip(&answers).filter(|(_, answer)| has_open_run(answer)).map(|(id, _)| *id);
        let claims = claims_of(ctx, &held.collect::<Vec<_>>())?;
        for (id, answer) in ids.iter().zip(answers) {
            let place = places.get(id).map_or("", String::as_str);
            on_answer(match answer {
                RestartAnswer::Done => {
                    TaskAnswer::done(*id, self.result, format!("task {id} is {}{place}", self.becomes))
                }
                RestartAnswer::KeyTaken(holder) => key_taken(*id, self.becomes, &holder),
                RestartAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
                RestartAnswer::Refused { status, has_open_run } => {
                    (self.refused)(*id, &status, has_open_run).held_by(&claims)
                }
            });
        }
        Ok(())
    }
}

/// Returns a warning for an earlier task of a schedule: nothing prevents it from running beside the newest one.
fn place_in_schedule(task: &Task) -> String {
    match &task.schedule {
        Some(schedule) if schedule.status.is(ScheduleStatus::Followed) => {
            format!("; it is an earlier task of schedule {} and may run beside the newest one", schedule.id)
        }
        _ => String::new(),
    }
}

/// Returns these warnings for all of the tasks.
pub(crate) fn places_in_schedules(ctx: &mut Context, ids: &[TaskId]) -> EngineResult<HashMap<TaskId, String>> {
    let tasks = ctx.store.get_tasks(ids)?;
    Ok(tasks.iter().map(|task| (task.id, place_in_schedule(task))).collect())
}
