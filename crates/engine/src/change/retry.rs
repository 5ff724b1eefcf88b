//! `retry`: restarts finished tasks, whatever their outcome.

use std::collections::HashMap;

use super::edit::{Edit, checked};
use super::selected::{OnAnswer, PORTION, TaskAnswer, claims_of, key_taken, portions, preview};
use crate::claiming::take_back::{TakeBackOutcome, TakenBack, take};
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::run::status::{ScheduleStatus, TaskStatus};
use taskqueue_domain::run::transition::{TaskEvent, task_after};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{HeldClaim, Run, Task};
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_store::{NewStart, RestartAnswer};

/// What was done to a task, as one word.
const RETRIED: &str = "retried";

/// Warnings about some of the tasks.
type Notes = HashMap<TaskId, String>;

/// A task, and the seconds after which it is due.
type DueTask = (TaskId, i64);

/// How tasks are retried.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryOptions<'a> {
    /// Refuses tasks that have another status by now; empty allows every status.
    pub only: &'a [TaskStatus],
    /// The JSON text that replaces the data of the tasks.
    pub data: Option<&'a str>,
    /// Spreads the tasks over time.
    pub rate: Option<Rate>,
    /// Whether runs in progress are first taken from their claimants, as [`take_back`](crate::claiming::take_back::take_back)
    /// does.
    pub by_force: bool,
}

/// Returns the statuses of the tasks that are retried if a selection names neither tasks nor statuses: nothing that is done is
/// repeated by accident. `by_force` adds the status of tasks in progress.
#[must_use]
pub fn retryable(by_force: bool) -> Vec<TaskStatus> {
    let in_progress = by_force.then_some(TaskStatus::Processing);
    [TaskStatus::Failed, TaskStatus::Timeout].into_iter().chain(in_progress).collect()
}

/// Makes each of these tasks due now, or later by the rate, if it has finished. A task that failed has all its retries again; any
/// other starts from the beginning. Their runs are kept.
///
/// # Errors
/// Returns [`EngineError::Input`](crate::EngineError::Input) if the tasks cannot have the data; then nothing is changed. Returns
/// an error if a process of a claimant could not be ended or the database fails; earlier tasks stay retried.
pub fn retry_tasks(
    ctx: &mut Context,
    ids: &[TaskId],
    options: &RetryOptions<'_>,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    options.data.map_or(Ok(()), |data| checked(ctx, ids, &new_data(data)).map(drop))?;
    let edited = ctx.operator_event("edited", serde_json::json!({}));
    let start = NewStart {
        event: ctx.operator_event(RETRIED, serde_json::json!({})),
        data: options.data.map(|data| (data.to_owned(), edited)),
    };
    let due_in_secs = |place: usize| options.rate.map_or(0, |rate| rate.secs_until(place));
    for (number, portion) in portions(ctx, ids).enumerate() {
        let places = portion.iter().zip(number * PORTION..);
        let mut tasks: Vec<DueTask> = places.map(|(id, place)| (*id, due_in_secs(place))).collect();
        let notes = ctx.store.get_tasks(portion)?.iter().map(|task| (task.id, place_in_schedule(task))).collect();
        let mut taken = Vec::new();
        if options.by_force && !take_claimed(ctx, (&mut tasks, &mut taken), &start, &notes, on_answer)? {
            return Ok(());
        }
        // The selection found these in progress: whatever they are now is due to this call.
        for (tasks, only) in [(taken, &[][..]), (tasks, options.only)] {
            if tasks.is_empty() {
                continue;
            }
            let answers = ctx.store.restart_tasks(&tasks, only, &start)?;
            fault_point!("retry.committed");
            report(ctx, &ids_of(&tasks), answers, &notes, on_answer)?;
        }
    }
    Ok(())
}

/// Takes the claimed runs of these tasks from their claimants. Tasks that this restarts leave the list; tasks that must still be
/// restarted, because they were cancelled or their claimant released them, move to the second list. Returns false if this
/// process was asked to stop before all were taken.
fn take_claimed(
    ctx: &mut Context,
    (tasks, to_restart): (&mut Vec<DueTask>, &mut Vec<DueTask>),
    start: &NewStart,
    notes: &Notes,
    on_answer: OnAnswer<'_>,
) -> EngineResult<bool> {
    for run in ctx.store.list_claims_of_tasks(&ids_of(tasks))? {
        // Each of them may wait for processes to end.
        if ctx.is_stopping() {
            return Ok(false);
        }
        let Some(place) = tasks.iter().position(|(id, _)| *id == run.task_id) else { continue };
        let (id, due_in_secs) = tasks[place];
        let TakeBackOutcome::Taken { taken, has_restarted } = take(ctx, &run, Some((start, due_in_secs)))? else {
            continue;
        };
        tasks.remove(place);
        if has_restarted {
            // Not read again: it may have been claimed since, and have finished.
            on_answer(taken_answer(&run, &taken, note_on(notes, id)));
        } else {
            to_restart.push((id, due_in_secs));
        }
    }
    Ok(true)
}

fn taken_answer(run: &Run, taken: &TakenBack, note: &str) -> TaskAnswer {
    let id = run.task_id;
    let not_ended = taken.not_ended.as_ref().map(|why| format!("; the claimant may still be working: {why}"));
    let message = format!(
        "task {id} is taken from claimant {} and {RETRIED}{note}{}",
        taken.claimant,
        not_ended.unwrap_or_default()
    );
    TaskAnswer::done(id, RETRIED, message)
}

/// Reports the results for these tasks.
fn report(
    ctx: &mut Context,
    ids: &[TaskId],
    answers: Vec<RestartAnswer>,
    notes: &Notes,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    let has_open_run = |answer: &RestartAnswer| matches!(answer, RestartAnswer::Refused { has_open_run: true, .. });
    let held = ids.iter().zip(&answers).filter(|(_, answer)| has_open_run(answer)).map(|(id, _)| *id);
    let claims = claims_of(ctx, &held.collect::<Vec<_>>())?;
    for (id, answer) in ids.iter().zip(answers) {
        on_answer(match answer {
            RestartAnswer::Done => {
                TaskAnswer::done(*id, RETRIED, format!("task {id} is {RETRIED}{}", note_on(notes, *id)))
            }
            RestartAnswer::KeyTaken(holder) => key_taken(*id, RETRIED, &holder),
            RestartAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
            RestartAnswer::Refused { status, has_open_run } => refused(*id, &status, has_open_run).held_by(&claims),
        });
    }
    Ok(())
}

/// Reports what `retry_tasks` would do now; changes nothing.
///
/// # Errors
/// Returns the same errors as [`retry_tasks`].
pub fn preview_retry(
    ctx: &mut Context,
    ids: &[TaskId],
    options: &RetryOptions<'_>,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    options.data.map_or(Ok(()), |data| checked(ctx, ids, &new_data(data)).map(drop))?;
    for portion in ids.chunks(PORTION) {
        let claims = if options.by_force { claims_of(ctx, portion)? } else { HashMap::new() };
        preview(ctx, portion, &|task| outlook(task, claims.get(&task.id)), on_answer)?;
    }
    Ok(())
}

fn outlook(task: &Task, to_be_taken: Option<&HeldClaim>) -> TaskAnswer {
    let id = task.id;
    let would_be = match to_be_taken {
        Some(HeldClaim { claimant, .. }) => format!("taken from claimant {claimant} and {RETRIED}"),
        None if is_finished(task) && task.current_run_id.is_none() => format!("{RETRIED}{}", place_in_schedule(task)),
        None => return refused(id, &task.status.to_string(), task.current_run_id.is_some()),
    };
    TaskAnswer::done(id, RETRIED, format!("task {id} would be {would_be}"))
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    let is_finished = TaskStatus::parse(status).is_some_and(may_restart);
    let why = match (has_open_run, is_finished) {
        (true, _) => "it has an open run",
        (false, true) => "only tasks of other statuses are retried",
        (false, false) => "it has not finished",
    };
    TaskAnswer::refused(id, format!("task {id} has the status {status}; {why}"))
}

fn is_finished(task: &Task) -> bool {
    task.status.known().copied().is_some_and(may_restart)
}

fn may_restart(from: TaskStatus) -> bool {
    task_after(from, TaskEvent::Retry, from).is_some()
}

fn new_data(data: &str) -> Edit {
    Edit { change: ChangeRequest { data: Some(data.to_owned()), ..ChangeRequest::default() }, if_version: None }
}

fn ids_of(tasks: &[DueTask]) -> Vec<TaskId> {
    tasks.iter().map(|(id, _)| *id).collect()
}

fn note_on(notes: &Notes, id: TaskId) -> &str {
    notes.get(&id).map_or("", String::as_str)
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
