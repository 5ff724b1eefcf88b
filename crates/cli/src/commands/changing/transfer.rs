//! `taskqueue export` and `taskqueue import`

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::commands::queueing::batch_input::{BatchInput, BatchStop};
use crate::error::{CliError, DONE, FAILED, NOT_FOUND};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::session::Session;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::queueing::import::{ImportOptions, import};
use taskqueue_engine::queueing::transfer::{Exported, export_all, export_selected, with_prerequisites};
use taskqueue_engine::{Context, EngineError, EngineResult, StopSignals};
use taskqueue_views::human;

/// Print tasks with all their rows, as lines of JSON
///
/// Prints all tasks, or those of a selection, with their runs, outputs and events. `taskqueue import` inserts them into a store
/// of any engine.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue export >tasks.ndjson\n  taskqueue --database postgres://db.example.org/tasks import tasks.ndjson\n  taskqueue export class=import.* status=waiting --prerequisites >waiting.ndjson"
)]
pub(crate) struct ExportArgs {
    /// Tasks
    #[arg(value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Also export the tasks for which these still wait, directly or through others
    #[arg(long, requires = "selection")]
    prerequisites: bool,
}

/// Insert the tasks of an export, all or none
///
/// In a store without tasks, the tasks keep their ids; elsewhere they get new ones. A run that was in progress is released, and
/// its task is retried. The classes of this configuration handle the tasks. Only tasks of the class `exec` contain their own
/// program, and are refused without --allow-exec. An export that was imported before is refused without --again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue import tasks.ndjson\n  taskqueue export | taskqueue --database copy.db import --allow-exec"
)]
pub(crate) struct ImportArgs {
    /// Export file (`-`: standard input)
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Also import tasks of the class `exec`: each runs the program that its data names
    #[arg(long)]
    allow_exec: bool,
    /// Import an export that was imported before: its tasks get new ids, and are then in the store twice
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run_export(session: Session, args: &ExportArgs, out: &mut Out) -> anyhow::Result<u8> {
    let selection = (!args.selection.is_empty()).then(|| Selection::parse(&args.selection)).transpose();
    let selection = selection.map_err(CliError::usage)?;
    let stop = StopSignals::install_for_one()?;
    session.end_statements_on(&stop, Duration::ZERO);
    let mut ctx = session.open_to_read(out)?;
    let mut ids = match &selection {
        Some(selection) => match selected_tasks(&mut ctx, selection, out)? {
            Some(ids) => Some(ids),
            None => return Ok(NOT_FOUND),
        },
        None => None,
    };
    if args.prerequisites {
        ids = ids.map(|ids| with_prerequisites(&mut ctx, ids)).transpose()?;
    }
    let (exported, was_cut_off) = export(&mut ctx, ids.as_deref(), &stop, out)?;
    if out.is_unread() {
        return Ok(DONE);
    }
    // A signal after the last line cut nothing off.
    if was_cut_off {
        let tasks = human::plural(exported.tasks, "task");
        let words = format!("stopped by a signal: {tasks} written; the export was cut off, and `import` refuses it");
        return Err(CliError::interrupted(words).into());
    }
    // Tasks matched by a range or a filter may have been deleted since.
    let missing =
        if selection.is_some_and(|selection| selection.is_named()) { exported.missing.as_slice() } else { &[] };
    for id in missing {
        out.warn(&format!("there is no task {id}"));
    }
    tell(&exported, out);
    Ok(match (exported.tasks, missing) {
        (_, []) => DONE,
        (0, _) => NOT_FOUND,
        _ => FAILED,
    })
}

/// Prints these tasks, or all, until a signal, or until the output has no reader. Returns also whether a signal cut it off.
fn export(
    ctx: &mut Context,
    ids: Option<&[TaskId]>,
    stop: &StopSignals,
    out: &mut Out,
) -> EngineResult<(Exported, bool)> {
    // A line of progress would stand between the lines of the export.
    let progress = (!out.is_terminal()).then(|| match ids {
        Some(_) => Progress::to_an_end(out, "exporting"),
        None => Progress::without_end(out, "exporting", "tasks"),
    });
    let mut lines = 0;
    let mut was_cut_off = false;
    let mut print = |line: String| {
        if stop.is_stopping() {
            was_cut_off = true;
            return Ok(ControlFlow::Break(()));
        }
        out.json_text(&line).map_err(|error| EngineError::Refused(format!("{error:#}")))?;
        match (&progress, ids) {
            (Some(progress), Some(ids)) => progress.at(lines, ids.len()),
            (Some(progress), None) => progress.count(lines),
            (None, _) => {}
        }
        lines += 1;
        Ok(if out.is_unread() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    let exported = match ids {
        Some(ids) => export_selected(ctx, ids, &mut print),
        None => export_all(ctx, &mut print),
    }?;
    Ok((exported, was_cut_off))
}

fn tell(exported: &Exported, out: &mut Out) {
    if let [(id, awaited), others @ ..] = exported.in_vain.as_slice() {
        let others = match others.len() {
            0 => String::new(),
            number => format!(" ({} like it)", human::plural(number, "other")),
        };
        out.warn(&format!(
            "task {id} waits for task {awaited}, which is not exported{others}; import will refuse it; --prerequisites adds it"
        ));
    }
    out.say(&format!("exported {}", human::plural(exported.tasks, "task")));
}

pub(crate) fn run_import(session: Session, args: &ImportArgs, out: &mut Out) -> anyhow::Result<u8> {
    let input = BatchInput::open(&args.file)?;
    let mut ctx = session.open_or_make()?;
    let stop = BatchStop::install("imported")?;
    let mut input = input.until(&stop, out);
    let options = ImportOptions { allows_exec: args.allow_exec, again: args.again };
    let progress = Progress::to_an_end(out, "importing");
    progress.announce_slow_answer(ctx.store.url());
    let mut imported = |count, total| progress.at(count, total);
    let result = ctx.because(args.reason.text(), |ctx| import(ctx, &mut input, options, &mut imported));
    drop(progress);
    let imported = result.map_err(|error| stop.explain(error))?;
    out.json_if_asked(&imported)?;
    let ids = if imported.keeps_ids { "with the original ids" } else { "with new ids" };
    out.say(&format!("imported {} {ids}", human::plural(imported.tasks, "task")));
    Ok(DONE)
}
