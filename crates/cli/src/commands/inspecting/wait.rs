//! `taskqueue wait`

use std::collections::HashSet;

use clap::Args;
use serde_json::json;

use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, FAILED, INTERRUPTED, NOT_FOUND, WAITED_TOO_LONG};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::session::Session;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_engine::inspect::wait::{Waited, wait_for_tasks};
use taskqueue_views::human::plural;

/// Wait until tasks have finished
///
/// A task has finished if it succeeded, was cancelled, has expired, or has no retry left. The exit status is 0 if all tasks that it waited for
/// succeeded, 1 if one did not, and 124 after --timeout. The selection is evaluated once, at the start.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue wait 4711 && deploy\n  taskqueue wait 12-19 --timeout 10m\n  taskqueue wait class=import status=waiting --any"
)]
pub(crate) struct WaitArgs {
    /// Tasks
    #[arg(required = true, value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Wait only for the first task that finishes
    #[arg(long)]
    any: bool,
    /// Wait at most this long: 90s, 10m
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
}

pub(crate) fn run(session: Session, args: &WaitArgs, out: &mut Out) -> anyhow::Result<u8> {
    let limit = duration_option("--timeout", args.timeout.as_deref())?;
    let selection = Selection::parse(&args.selection).map_err(CliError::usage)?;
    let stop = session.stop_at_once()?;
    let mut ctx = session.open_to_wait()?;
    let Some(ids) = selected_tasks(&mut ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    let (mut failure, mut have_all_succeeded, mut over) = (None, true, HashSet::new());
    let progress = Progress::steps(out, "waiting");
    progress.step(0, ids.len(), "finished".to_owned());
    let waited = wait_for_tasks(&mut ctx, &ids, args.any, &stop, limit, &mut |id, task| {
        over.insert(id);
        have_all_succeeded &= task.is_some_and(|task| task.status.is(TaskStatus::Success));
        progress.at(over.len(), ids.len());
        if let Err(error) = progress.beside(|| tell(id, task, out)) {
            failure.get_or_insert(error);
        }
    });
    drop(progress);
    let waited = waited?;
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(match waited {
        Waited::Ended(()) if have_all_succeeded => DONE,
        Waited::Ended(()) => FAILED,
        Waited::Stopped => {
            out.say(&format!("stopped by a signal: {} of {} finished", over.len(), plural(ids.len(), "task")));
            INTERRUPTED
        }
        Waited::TooLong => {
            let left: Vec<TaskId> = ids.into_iter().filter(|id| !over.contains(id)).collect();
            tell_left(&left, out);
            WAITED_TOO_LONG
        }
    })
}

/// Reports the tasks that are not waited for any longer, although they are unfinished.
fn tell_left(left: &[TaskId], out: &mut Out) {
    let (id, others) = match left {
        [] => return,
        [id] => (id, "is"),
        [id, ..] => (id, "and others are"),
    };
    out.say(&format!("task {id} {others} not finished; `taskqueue explain {id}` shows why"));
}

fn tell(id: TaskId, task: Option<&Task>, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        let status = task.map(|task| &task.status);
        return out.json(&json!({ "id": id, "status": status, "class": task.map(|task| &task.class) }));
    }
    match task {
        None => out.say(&format!("task {id} was deleted")),
        Some(task) if task.status.is(TaskStatus::Success) => out.say_verbose(&format!("task {id}: success")),
        Some(task) => out.say(&format!("task {id}: {}; `taskqueue explain {id}` shows why", task.status)),
    }
    Ok(())
}
