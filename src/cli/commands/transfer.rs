//! `taskqueue export` and `taskqueue import`

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::queue::read_batch;
use super::status::parse_status;
use crate::cli::error::DONE;
use crate::cli::output::{Out, human};
use crate::cli::session::Session;
use crate::domain::ids::TaskId;
use crate::domain::status::TaskStatus;
use crate::engine::EngineError;
use crate::engine::transfer::{ExportRequest, export, import};

/// Print tasks with their runs, outputs and events as newline-delimited JSON
///
/// All tasks, or those that are named. `taskqueue import` reads it, into a store of any engine.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  taskqueue export >tasks.ndjson\n  taskqueue --database postgres://db.example.org/tasks import tasks.ndjson"
)]
pub(crate) struct ExportArgs {
    /// These tasks
    ids: Vec<TaskId>,
    /// Only tasks of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only tasks in this status; may be given more than once
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Vec<TaskStatus>,
}

/// Insert the tasks of an export, all or none
///
/// In a store without tasks they keep their ids, elsewhere they get new ones. What was processed when it was exported is
/// given back and tried again.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The export (`-`: standard input)
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

pub(crate) fn run_export(session: Session, args: &ExportArgs, out: &mut Out) -> anyhow::Result<u8> {
    let request = ExportRequest {
        ids: args.ids.iter().map(|id| id.0).collect(),
        class: args.class.clone(),
        statuses: args.status.clone(),
    };
    let mut ctx = session.open()?;
    let count = export(&mut ctx, &request, &mut |line| {
        out.data(&line).map_err(|error| EngineError::Refused(format!("{error:#}")))
    })?;
    out.say(&format!("exported {}", human::plural(i64::try_from(count).unwrap_or(i64::MAX), "task")));
    Ok(DONE)
}

pub(crate) fn run_import(session: Session, args: &ImportArgs, out: &mut Out) -> anyhow::Result<u8> {
    let text = read_batch(&args.file)?;
    let mut ctx = session.open()?;
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("importing {wide_bar} {human_pos}/{human_len} {eta}") {
        bar.set_style(style);
    }
    let result = import(&mut ctx, &text, &mut |count, total| {
        bar.set_length(u64::try_from(total).unwrap_or(u64::MAX));
        bar.set_position(u64::try_from(count).unwrap_or(u64::MAX));
    });
    bar.finish_and_clear();
    let imported = result?;
    if out.is_json() {
        out.json(&imported)?;
    }
    let ids = if imported.keeps_ids { "with the ids that they had" } else { "with new ids" };
    out.say(&format!("imported {} {ids}", human::plural(i64::try_from(imported.tasks).unwrap_or(i64::MAX), "task")));
    Ok(DONE)
}
