//! `taskqueue status`

use std::time::Duration;

use clap::Args;

use super::task_options::duration_option;
use super::{runners, show};
use crate::cli::error::{DONE, INTERRUPTED};
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::ids::TaskId;
use crate::domain::status::TaskStatus;
use crate::engine::Context;
use crate::engine::StopSignals;
use crate::engine::status::{self, TaskFilter};

/// Show what is in the tables: counters, then tasks, and why each one is where it is
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue status\n  taskqueue status 4711\n  taskqueue status --class mail.send --status failed --status timeout\n  taskqueue status --watch"
)]
pub(crate) struct StatusArgs {
    /// Everything about these tasks, with all their runs
    ids: Vec<TaskId>,
    /// The newest runs instead of tasks
    #[arg(long, conflicts_with_all = ["ids", "runners"])]
    runs: bool,
    /// The newest runners instead of tasks, those that have ended too
    #[arg(long, conflicts_with = "ids")]
    runners: bool,
    /// Only tasks of this class
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["ids", "runs", "runners"])]
    class: Option<String>,
    /// Only tasks in this status; may be given more than once
    #[arg(long, value_name = "STATUS", value_parser = parse_status, conflicts_with_all = ["ids", "runs", "runners"])]
    status: Vec<TaskStatus>,
    /// At most N lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
    /// Show it again and again, every 2s or as often as given
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s", require_equals = true)]
    watch: Option<String>,
}

fn parse_status(text: &str) -> Result<TaskStatus, String> {
    TaskStatus::parse(text)
        .ok_or_else(|| format!("the statuses are {}", TaskStatus::ALL.map(TaskStatus::as_str).join(", ")))
}

pub(crate) fn run(session: Session, args: &StatusArgs, out: &mut Out) -> anyhow::Result<u8> {
    let interval = duration_option("--watch", args.watch.as_deref())?;
    let Some(interval) = interval else {
        show_once(&mut session.open()?, args, out)?;
        return Ok(DONE);
    };
    let stop = StopSignals::install()?;
    let mut ctx = session.open()?;
    loop {
        if out.is_terminal() && !out.is_json() {
            out.clear_screen();
        }
        show_once(&mut ctx, args, out)?;
        if out.is_unread() {
            return Ok(DONE);
        }
        if stop.wait(interval.max(Duration::from_millis(100))) {
            return Ok(INTERRUPTED);
        }
    }
}

fn show_once(ctx: &mut Context, args: &StatusArgs, out: &mut Out) -> anyhow::Result<()> {
    if args.runners {
        return runners::show(&status::list_runners(ctx, args.limit, false)?, ctx.now()?, out);
    }
    if args.runs {
        return show::runs(&status::list_runs(ctx, args.limit)?, ctx.now()?, out);
    }
    if args.ids.is_empty() {
        let filter = TaskFilter { class: args.class.clone(), statuses: args.status.clone(), limit: args.limit };
        let is_filtered = filter.class.is_some() || !filter.statuses.is_empty();
        return show::overview(&status::overview(ctx, &filter)?, is_filtered, out);
    }
    for id in &args.ids {
        show::detail(&status::detail(ctx, *id)?, ctx.now()?, out)?;
    }
    Ok(())
}
