//! `taskqueue status`

use std::time::Duration;

use clap::Args;

use crate::commands::inspecting::runners;
use crate::commands::options::selected::{SELECTION_HELP, selected_tasks};
use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, INTERRUPTED, NOT_FOUND};
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::session::Session;
use crate::views::task_view;
use crate::views::unknown_class::{WarnOf, refuse_pattern, warn_of_unknown_class};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_engine::change::selected::select_tasks;
use taskqueue_engine::inspect::status::{self, Overview, TaskFilter};
use taskqueue_engine::{Context, EngineError, StoreError};
use taskqueue_views::answer::{queue_answer, why_nothing_runs};
use taskqueue_views::cut::Length;
use taskqueue_views::human::{fitted_words, plural};
use taskqueue_views::json::{run_json, task_record};

const WHOLE_OR_LIST: &str = "Show all details of tasks given by id or last, with all their runs and a time line; list those that ranges and filters select";

/// Show counts, runs and tasks, and the reason for each status
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue status\n  taskqueue status 4711\n  taskqueue status class=mail.* status=exhausted\n  taskqueue status --full class=mail.* status=failed -n 3\n  taskqueue status --class mail.send --status failed --status timeout\n  taskqueue status --runs --silent-for 10m\n  taskqueue status --watch"
)]
pub(crate) struct StatusArgs {
    /// Tasks
    #[arg(value_name = "SELECTION", help = format!("{WHOLE_OR_LIST}. {SELECTION_HELP}"))]
    selection: Vec<String>,
    /// Show the newest runs instead of tasks
    #[arg(long, conflicts_with_all = ["selection", "runners"])]
    runs: bool,
    /// Show only runs in progress without a renewal, heartbeat or progress report for this time
    #[arg(long, value_name = "DURATION", requires = "runs")]
    silent_for: Option<String>,
    /// Show the run that has this token, and its task
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["selection", "runs", "runners", "class", "status", "watch", "output", "columns", "no_header"])]
    token: Option<String>,
    /// Show the newest runners instead of tasks, including those that have ended
    #[arg(long, conflicts_with = "selection")]
    runners: bool,
    /// Show only tasks of this class, and how long its newest runs waited and took
    #[arg(long, value_name = "CLASS", conflicts_with_all = ["selection", "runs", "runners"])]
    class: Option<String>,
    /// Show only tasks in this status; may be given more than once
    #[arg(long, value_name = "STATUS", value_parser = parse_status, conflicts_with_all = ["selection", "runs", "runners"])]
    status: Vec<TaskStatus>,
    /// The same as the selection status=running: show only tasks that are being processed
    #[arg(long, conflicts_with_all = ["runs", "runners", "class", "status", "token"])]
    running: bool,
    /// Show at most N lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
    /// Refresh the output, every 2s or at this interval
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "2s", require_equals = true)]
    watch: Option<String>,
    /// Show all details of every selected task, with data, results and outputs however long they are; --json always prints them whole
    #[arg(long, requires = "selection")]
    full: bool,
    #[command(flatten)]
    list: ListOptions,
}

/// The records of tasks are the tasks themselves, with `last_run` and `why`.
const TASKS: ListKind = ListKind {
    columns: &["id", "class", "status", "scheduled_on", "next_attempt_on", "attempts", "failed_retries", "why.reason"],
    ids: &["id"],
};
const RUNS: ListKind = ListKind {
    columns: &["id", "task_id", "class", "attempt", "status", "started_on", "finished_on", "host", "error_code"],
    ids: &["id"],
};

/// Protects the database from frequent polls.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn parse_status(text: &str) -> Result<TaskStatus, String> {
    TaskStatus::parse(text)
        .ok_or_else(|| format!("the statuses are {}", TaskStatus::ALL.map(TaskStatus::as_str).join(", ")))
}

pub(crate) fn run(session: Session, args: &StatusArgs, out: &mut Out) -> anyhow::Result<u8> {
    let interval = duration_option("--watch", args.watch.as_deref())?;
    if interval.is_some_and(|interval| interval < SHORTEST_INTERVAL) {
        return Err(CliError::usage("--watch: 100ms is the shortest interval").into());
    }
    let Some(interval) = interval else {
        return show_once(&mut session.open_to_read(out)?, args, out);
    };
    let stop = session.stop_at_once()?;
    let mut ctx = session.open_to_follow(out)?;
    loop {
        if !out.is_json() {
            out.begin_screen();
        }
        show_once(&mut ctx, args, out)?;
        if out.is_unread() {
            return Ok(DONE);
        }
        if stop.wait(interval) {
            return Ok(INTERRUPTED);
        }
    }
}

fn show_once(ctx: &mut Context, args: &StatusArgs, out: &mut Out) -> anyhow::Result<u8> {
    if args.runners {
        return runners::show(&status::list_runners(ctx, args.limit, false)?, ctx.now()?, &args.list, out)
            .map(|()| DONE);
    }
    if let Some(token) = &args.token {
        let found = status::find_run_of_token(ctx, token)?;
        let run = found.ok_or_else(|| EngineError::from(StoreError::NotFound("run with this token".to_owned())))?;
        return task_view::run_of_token(&run, out).map(|()| DONE);
    }
    if let Some(silence) = duration_option("--silent-for", args.silent_for.as_deref())? {
        let silent_secs = i64::try_from(silence.as_secs()).unwrap_or(i64::MAX);
        let silent = status::list_silent_runs(ctx, silent_secs, args.limit + 1)?;
        if silent.is_empty() && !out.is_json() && !args.list.is_given() {
            let none = "No run in progress has been silent for that long.";
            return out.data(fitted_words(none, out.width())).map(|()| DONE);
        }
        return runs(ctx, silent, args, out).map(|()| DONE);
    }
    if args.runs {
        let newest = status::list_runs(ctx, args.limit + 1)?;
        return runs(ctx, newest, args, out).map(|()| DONE);
    }
    refuse_pattern(args.class.as_deref(), "status")?;
    if !args.selection.is_empty() || args.running {
        return selected(ctx, args, out);
    }
    let filter = TaskFilter { class: args.class.clone(), statuses: args.status.clone(), limit: args.limit };
    let none = match (&filter.class, filter.statuses.is_empty()) {
        (None, true) => task_view::NO_TASKS,
        _ => "No task has this class and status.",
    };
    let mut overview = status::overview(ctx, &filter)?;
    if let Some(listing) = Listing::of(&args.list, &TASKS, out)? {
        list_tasks(&overview, listing, out)?;
    } else {
        if let Some(class) = filter.class.as_deref().filter(|_| filter.statuses.is_empty()) {
            overview.times = Some(status::class_times(ctx, class)?);
        }
        let stuck = if filter.class.is_none() && !out.is_json() { why_nothing_runs(ctx, &overview)? } else { None };
        let stuck = stuck.as_ref().map(queue_answer);
        let words = task_view::ListWords { if_none: none, if_more: task_view::MORE_OR_OTHERS, stuck };
        task_view::overview(&overview, &words, out)?;
    }
    // With `--watch`, the first task may come later.
    if let Some(class) = filter.class.filter(|_| overview.lines.is_empty() && args.watch.is_none()) {
        warn_of_unknown_class(ctx, &class, WarnOf::Any, out)?;
    }
    Ok(DONE)
}

/// Shows named tasks in detail, and with `--full` all selected ones; otherwise the tasks of a range or a filter as a list.
fn selected(ctx: &mut Context, args: &StatusArgs, out: &mut Out) -> anyhow::Result<u8> {
    let running = args.running.then(|| "status=running".to_owned());
    let words: Vec<String> = args.selection.iter().cloned().chain(running).collect();
    let selection = Selection::parse(&words).map_err(CliError::usage)?;
    let listing = Listing::of(&args.list, &TASKS, out)?;
    if listing.is_some() || (!selection.is_named() && !args.full) {
        let ids = select_tasks(ctx, &selection)?;
        let overview = status::overview_of(ctx, &ids, args.limit)?;
        if let Some(listing) = listing {
            // A task that was given by its id must exist.
            let is_missing =
                |id: &&TaskId| !overview.has_more && overview.lines.iter().all(|line| line.task.id != **id);
            if let Some(id) = ids.iter().find(is_missing).filter(|_| selection.is_named()) {
                return Err(EngineError::from(StoreError::NotFound(format!("task {id}"))).into());
            }
            list_tasks(&overview, listing, out)?;
        } else {
            let if_none = "No task matches the selection.";
            let words = task_view::ListWords { if_none, if_more: task_view::MORE, stuck: None };
            task_view::overview(&overview, &words, out)?;
        }
        return Ok(if ids.is_empty() { NOT_FOUND } else { DONE });
    }
    let Some(ids) = selected_tasks(ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    let most = if selection.is_named() { ids.len() } else { usize::try_from(args.limit).unwrap_or(usize::MAX) };
    let left_out = ids.len().saturating_sub(most);
    for (position, id) in ids.iter().skip(left_out).enumerate() {
        if position > 0 && !out.is_json() {
            out.data("")?;
        }
        task_view::detail(&status::detail(ctx, *id)?, ctx.now()?, Length::of(args.full), out)?;
    }
    if left_out > 0 {
        out.say(&format!("{} before these not shown; -n N shows more", plural(left_out, "task")));
    }
    Ok(DONE)
}

/// Prints tasks as records.
fn list_tasks(overview: &Overview, mut listing: Listing<'_>, out: &mut Out) -> anyhow::Result<()> {
    listing.print(&overview.lines.iter().map(task_record).collect::<Vec<_>>(), out)?;
    if overview.has_more {
        out.warn(task_view::MORE);
    }
    Ok(())
}

/// Prints runs; one more than `limit` was read, to detect whether there are more.
fn runs(ctx: &mut Context, mut runs: Vec<Run>, args: &StatusArgs, out: &mut Out) -> anyhow::Result<()> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let has_more = runs.len() > limit;
    runs.truncate(limit);
    if print_for_programs(Listing::of(&args.list, &RUNS, out)?, runs.iter().map(run_json), out)? {
        if has_more {
            out.warn(task_view::MORE);
        }
        return Ok(());
    }
    task_view::runs(&runs, has_more, ctx.now()?, out)
}
