//! `taskqueue prune`

use clap::Args;

use crate::commands::inspecting::status::parse_status;
use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SELECTION_HELP, SelectedArgs};
use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::session::Session;
use crate::views::unknown_class::refuse_pattern;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_engine::upkeep::prune::{PruneRequest, Pruned, count_prunable, preview_prune, prune, prune_selected};
use taskqueue_views::human;

/// Delete finished tasks past their retention period
///
/// Deletes the tasks with their runs, outputs and events. Without options, the settings TaskQueueKeep… and TaskQueueMax… decide
/// which; each `create-runs` also deletes some of these. With options, deletes the finished tasks that match. With a selection,
/// deletes its finished tasks, whatever their age. Never deletes a task that has an open run, that may be retried, or for which
/// others wait. Also keeps the newest task of a schedule, and a task whose unique key is still reserved.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue prune --dry-run\n  taskqueue prune --status success --older-than 7d --yes\n  taskqueue prune 4711\n  taskqueue prune class=import.* status=cancelled --dry-run"
)]
pub(crate) struct PruneArgs {
    /// Tasks
    #[arg(value_name = "SELECTION", help = SELECTION_HELP, conflicts_with_all = ["older_than", "status", "class"])]
    selection: Vec<String>,
    /// Delete tasks whose last change is longer ago than this, regardless of the settings: 12h, 7d
    #[arg(long, value_name = "DURATION")]
    older_than: Option<String>,
    /// Delete only tasks in this status; may be given more than once
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Vec<TaskStatus>,
    /// Delete only tasks of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete everything that the selection or the options match; the options need it, a selection asks otherwise
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &PruneArgs, out: &mut Out) -> anyhow::Result<u8> {
    if !args.selection.is_empty() {
        return run_selected(session, args, out);
    }
    refuse_pattern(args.class.as_deref(), "prune")?;
    let older_than = duration_option("--older-than", args.older_than.as_deref())?;
    let request = PruneRequest {
        older_than_secs: older_than.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX)),
        statuses: args.status.clone(),
        class: args.class.clone(),
    };
    let mut ctx = session.open()?;
    if args.dry_run {
        let count = count_prunable(&mut ctx, &request)?;
        out.json_if_asked(&serde_json::json!({ "dry_run": true, "tasks": count }))?;
        out.say(&format!("{} would be deleted", human::plural(count, "task")));
        return Ok(DONE);
    }
    if request.is_own_choice() && !args.yes {
        let count = count_prunable(&mut ctx, &request)?;
        if count == 0 && !out.is_watched() {
            let error = CliError::usage("prune with options needs --yes");
            return Err(error.with_hint("--dry-run shows what would be done").into());
        }
        if count == 0 {
            return tell(&Pruned::default(), out).map(|()| DONE);
        }
        let error = CliError::usage(format!("{} would be deleted; nothing was deleted", human::plural(count, "task")));
        return Err(error.with_hint("--yes deletes them, --dry-run only counts").into());
    }
    let progress = Progress::without_end(out, "pruning", "tasks");
    selected::stop_between_parts(&mut ctx, Some(&progress), out)?;
    let result = ctx.because(args.reason.text(), |ctx| prune(ctx, &request, &mut |count| progress.count(count)));
    drop(progress);
    let pruned = result?;
    if ctx.is_stopping() {
        out.json_if_asked(&pruned)?;
        let so_far = pruned_words(&pruned).unwrap_or_else(|| "nothing pruned".to_owned());
        let error = CliError::interrupted(format!("stopped by a signal: {so_far} so far"));
        return Err(error.with_hint(selected::SAME_COMMAND).into());
    }
    tell(&pruned, out).map(|()| DONE)
}

/// Prints what was deleted. If nothing was, it prints nothing to standard error without a terminal, because cron would mail it.
fn tell(pruned: &Pruned, out: &mut Out) -> anyhow::Result<()> {
    out.json_if_asked(pruned)?;
    match pruned_words(pruned) {
        Some(words) => out.say(&words),
        None => out.say_if_watched("nothing to prune"),
    }
    Ok(())
}

fn run_selected(session: Session, args: &PruneArgs, out: &mut Out) -> anyhow::Result<u8> {
    let selected = SelectedArgs::of(args.selection.clone(), args.yes, args.dry_run);
    let words = args.selection.join(" ");
    let mut ctx = session.open()?;
    let mut verb = BulkVerb {
        name: "prune",
        done: "deleted",
        statuses: Vec::new(),
        take: None,
        widen: None,
        may_be_nothing: true,
        can_continue: true,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| prune_selected(ctx, ids, &words, hear)),
        preview: &mut preview_prune,
    };
    selected::run(&mut ctx, &selected, &mut verb, out)
}

/// Returns `None` if nothing was deleted.
pub(crate) fn pruned_words(pruned: &Pruned) -> Option<String> {
    let parts = [
        (pruned.tasks, "finished task"),
        (pruned.outputs, "old output"),
        (pruned.results, "old result"),
        (pruned.runners, "old runner"),
        (pruned.events, "old event"),
    ];
    let words: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| human::plural(count, noun)).collect();
    if words.is_empty() { None } else { Some(format!("{} pruned", words.join(", "))) }
}
