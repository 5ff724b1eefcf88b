//! `taskqueue show`

use clap::Args;

use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::session::Session;
use crate::views::task_view;
use taskqueue_domain::task::selection::Selection;
use taskqueue_engine::inspect::status::detail;
use taskqueue_views::cut::Length;
use taskqueue_views::human::plural;
use taskqueue_views::time_line::drawn;

/// Show everything about a task, with a time line of its attempts
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue show 4711\n  taskqueue show last\n  taskqueue show class=import status=failed -n 3"
)]
pub(crate) struct ShowArgs {
    /// Tasks
    #[arg(required = true, value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Show at most N tasks, the newest of the selected ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print data, results and outputs in full, however long they are; --json always does
    #[arg(long)]
    full: bool,
}

pub(crate) fn run(session: Session, args: &ShowArgs, out: &mut Out) -> anyhow::Result<u8> {
    let selection = Selection::parse(&args.selection).map_err(CliError::usage)?;
    let mut ctx = session.open_to_read(out)?;
    let Some(ids) = selected_tasks(&mut ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    let left_out = ids.len().saturating_sub(usize::try_from(args.limit).unwrap_or(usize::MAX));
    for (place, id) in ids.iter().skip(left_out).enumerate() {
        if place > 0 && !out.is_json() {
            out.data("")?;
        }
        let (shown, now) = (detail(&mut ctx, *id)?, ctx.now()?);
        task_view::detail(&shown, now, Length::of(args.full), out)?;
        if let Some(drawing) = drawn(&shown, now, out.width()).filter(|_| !out.is_json()) {
            out.data(drawing)?;
        }
    }
    if left_out > 0 {
        out.say(&format!("{} before these not shown; -n N shows more", plural(left_out, "task")));
    }
    Ok(DONE)
}
