//! `taskqueue logs`

use std::collections::HashMap;
use std::ops::ControlFlow;

use clap::Args;
use serde_json::{Value, json};

use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::commands::queueing::queue_and_follow::print_outputs;
use crate::error::{CliError, DONE, INTERRUPTED, NOT_FOUND};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Run;
use taskqueue_engine::inspect::log_stream::{StreamUpdate, follow_selection};
use taskqueue_engine::inspect::logs::{LogUpdate, follow, run_with_output};
use taskqueue_engine::{Context, StopSignals};

/// Print or follow the output of a task's handler
///
/// Prints the output of the newest attempt that has begun: its standard output to standard output, its standard error to standard
/// error. While the handler runs, its output appears after some seconds. On a terminal, `logs` replaces control characters. Into
/// a pipe or a file, it prints the output unchanged unless you pass --clean.
///
/// With --follow and a filter or several tasks, it prints the output of all their attempts in progress, and of those that start
/// later. Each line begins with the task, the run and the class.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue logs 4711\n  taskqueue logs last --follow\n  taskqueue logs class=mail.* --follow\n  taskqueue logs 4711 --attempt 1 2>/dev/null"
)]
pub(crate) struct LogsArgs {
    /// Task
    #[arg(required_unless_present = "class", value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Follow the tasks of this class; * matches anything
    #[arg(long, value_name = "CLASS", requires = "follow")]
    class: Option<String>,
    /// Print this attempt instead of the newest one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    attempt: Option<i32>,
    /// Print new output, including that of further attempts, until the task finishes; of a selection, print the output of all
    /// attempts that are in progress or start later
    #[arg(short, long)]
    follow: bool,
    /// Replace control and bidirectional characters even if standard output is not a terminal
    #[arg(long)]
    clean: bool,
}

pub(crate) fn run(session: Session, args: &LogsArgs, out: &mut Out) -> anyhow::Result<u8> {
    let classes = args.class.iter().map(|class| format!("class={class}"));
    let words: Vec<String> = args.selection.iter().cloned().chain(classes).collect();
    let selection = Selection::parse(&words).map_err(CliError::usage)?;
    let stop = args.follow.then(|| session.stop_at_once()).transpose()?;
    if args.clean {
        out.clean_handler_output();
    }
    let mut ctx = session.open_to_read(out)?;
    if let Some(stop) = stop.as_ref().filter(|_| selection.has_filter()) {
        return streamed(&mut ctx, &selection, stop, out);
    }
    let Some(ids) = selected_tasks(&mut ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    if let Some(stop) = stop.as_ref().filter(|_| ids.len() > 1) {
        return streamed(&mut ctx, &selection, stop, out);
    }
    let &[task_id] = ids.as_slice() else {
        let newest = ids.iter().map(|id| id.0).max().unwrap_or_default();
        let error = CliError::usage(format!("the selection matches {} tasks; `logs` prints one task", ids.len()));
        return Err(error
            .with_hint(format!("`taskqueue logs {newest}`; --follow prints all of them as they run"))
            .into());
    };
    match stop {
        Some(stop) => followed(&mut ctx, task_id, args.attempt, &stop, out),
        None => printed(&mut ctx, task_id, args.attempt, out),
    }
}

fn printed(ctx: &mut Context, task_id: TaskId, attempt: Option<i32>, out: &mut Out) -> anyhow::Result<u8> {
    let Some((run, outputs)) = run_with_output(ctx, task_id, attempt.into())? else {
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
    print_outputs(&outputs, out);
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
    let task = follow(ctx, task_id, attempt, stop, &mut |update| {
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
        None if stop.is_stopping() => {
            out.say(&format!("stopped by a signal: task {task_id} is not affected; it is {}", task.status));
            Ok(INTERRUPTED)
        }
        None => Ok(DONE),
    }
}

fn tell(run: &Run, stream: &str, text: &str, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&part_json(run, stream, text));
    }
    out.handler_output(stream == "stderr", text.as_bytes());
    Ok(())
}

fn part_json(run: &Run, stream: &str, text: &str) -> Value {
    json!({
        "task_id": run.task_id, "class": run.class, "run_id": run.id, "attempt": run.attempt, "stream": stream, "text": text,
    })
}

/// Prints whole lines of the runs of a selection, each with the task, the run and the class.
fn streamed(ctx: &mut Context, selection: &Selection, stop: &StopSignals, out: &mut Out) -> anyhow::Result<u8> {
    let mut failure = None;
    // The beginning of a line whose end was not written yet.
    let mut begun: HashMap<(RunId, String), String> = HashMap::new();
    out.say_if_watched("following the selection; Ctrl-C ends");
    follow_selection(ctx, selection, stop, &mut |update| {
        match update {
            StreamUpdate::Text { run, stream, text } if out.is_json() => {
                failure = out.json(&part_json(run, stream, text)).err();
            }
            StreamUpdate::Text { run, stream, text } => {
                let line = begun.entry((run.id, stream.to_owned())).or_default();
                line.push_str(text);
                if let Some(end) = line.rfind('\n') {
                    let rest = line.split_off(end + 1);
                    let whole = std::mem::replace(line, rest);
                    print_lines(run, stream, &whole, out);
                }
            }
            StreamUpdate::Ended(run) => {
                for stream in ["stdout", "stderr"] {
                    let rest = begun.remove(&(run.id, stream.to_owned())).unwrap_or_default();
                    print_lines(run, stream, &rest, out);
                }
            }
        }
        if failure.is_some() || out.has_failed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match failure {
        Some(error) => Err(error),
        None if stop.is_stopping() => {
            out.say("stopped by a signal: the tasks are not affected");
            Ok(INTERRUPTED)
        }
        None => Ok(DONE),
    }
}

fn print_lines(run: &Run, stream: &str, text: &str, out: &mut Out) {
    let prefix = format!("{}/{} {} | ", run.task_id, run.id, run.class);
    for line in text.lines() {
        out.prefixed_output(stream == "stderr", &prefix, run.task_id.0, line);
    }
}
