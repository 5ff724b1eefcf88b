//! `taskqueue logs`

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::commands::queueing::queue_and_follow::pass_outputs;
use crate::error::{CliError, DONE, INTERRUPTED, NOT_FOUND};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_domain::task::selection::Selection;
use taskqueue_engine::inspect::logs::{LogUpdate, follow, run_with_output};
use taskqueue_engine::{Context, StopSignals};

/// Print or follow the output of a task's handler
///
/// Prints the output of the newest attempt that has begun: its standard output to standard output, its standard error to standard
/// error. While the handler runs, its output appears after some seconds. On a terminal, `logs` replaces control characters. Into
/// a pipe or a file, it prints the output unchanged unless you pass --clean.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue logs 4711\n  taskqueue logs last --follow\n  taskqueue logs 4711 --attempt 1 2>/dev/null"
)]
pub(crate) struct LogsArgs {
    /// Task
    #[arg(required = true, value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Print this attempt instead of the newest one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    attempt: Option<i32>,
    /// Print new output, including that of further attempts, until the task finishes
    #[arg(short, long)]
    follow: bool,
    /// Replace control and bidirectional characters even if standard output is not a terminal
    #[arg(long)]
    clean: bool,
}

pub(crate) fn run(session: Session, args: &LogsArgs, out: &mut Out) -> anyhow::Result<u8> {
    let selection = Selection::parse(&args.selection).map_err(CliError::usage)?;
    let stop = args.follow.then(StopSignals::install).transpose()?;
    if args.clean {
        out.clean_kept_output();
    }
    if let Some(stop) = &stop {
        session.end_statements_on(stop, Duration::ZERO);
    }
    let mut ctx = session.open_to_read(out)?;
    let Some(ids) = selected_tasks(&mut ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    let &[task_id] = ids.as_slice() else {
        let newest = ids.iter().map(|id| id.0).max().unwrap_or_default();
        let error = CliError::usage(format!("the selection matches {} tasks; `logs` prints one task", ids.len()));
        return Err(error.with_hint(format!("taskqueue logs {newest}")).into());
    };
    match stop {
        Some(stop) => followed(&mut ctx, task_id, args.attempt, &stop, out),
        None => printed(&mut ctx, task_id, args.attempt, out),
    }
}

fn printed(ctx: &mut Context, task_id: TaskId, attempt: Option<i32>, out: &mut Out) -> anyhow::Result<u8> {
    let Some((run, outputs)) = run_with_output(ctx, task_id, attempt)? else {
        if out.is_json() {
            out.json(&json!({ "task_id": task_id, "run_id": null, "attempt": null, "status": null, "outputs": [] }))?;
        }
        out.say(&format!("task {task_id} has not started; `taskqueue explain {task_id}` shows why"));
        return Ok(DONE);
    };
    if out.is_json() {
        out.json(&json!({
            "task_id": run.task_id, "run_id": run.id, "attempt": run.attempt, "status": run.status, "outputs": outputs,
        }))?;
        return Ok(DONE);
    }
    if outputs.is_empty() {
        out.say(&nothing_of(&run));
    }
    pass_outputs(&outputs, out);
    Ok(DONE)
}

fn nothing_of(run: &Run) -> String {
    let (attempt, id) = (run.attempt, run.task_id);
    if run.finished_on.is_some() {
        return format!("attempt {attempt} of task {id} wrote no output, or its output was pruned");
    }
    format!("attempt {attempt} of task {id} is running and has written no output yet; --follow waits for output")
}

fn followed(
    ctx: &mut Context,
    task_id: TaskId,
    attempt: Option<i32>,
    stop: &StopSignals,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let mut failure = None;
    let mut first = None;
    follow(ctx, task_id, attempt, stop, &mut |update| {
        let told = match update {
            // With an explicit attempt, the number is already known.
            LogUpdate::Run(run) if first.is_none() => {
                first = Some(run.id);
                Ok(())
            }
            LogUpdate::Run(run) => {
                out.say(&format!("attempt {} of task {}", run.attempt, run.task_id));
                Ok(())
            }
            LogUpdate::Text { run, stream, text } => tell(run, stream, text, out),
        };
        failure = told.err();
        if failure.is_some() || out.has_failed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match failure {
        Some(error) => Err(error),
        None if stop.is_stopping() => Ok(INTERRUPTED),
        None => Ok(DONE),
    }
}

fn tell(run: &Run, stream: &str, text: &str, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&json!({ "run_id": run.id, "attempt": run.attempt, "stream": stream, "text": text }));
    }
    out.kept_output(stream == "stderr", text);
    Ok(())
}
