//! Shared by the verbs for several tasks: the selection, the confirmation, and the result for each task.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;

use crate::commands::queueing::batch_input::{NEXT_POLL, NOTICE_AFTER};
use crate::error::{CliError, DONE, FAILED, INTERRUPTED, NOT_FOUND};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::views::outcome::tell_at_once;
use crate::views::task_view;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::HeldClaim;
use taskqueue_engine::change::cancel::REQUESTED;
use taskqueue_engine::change::selected::{OnAnswer, TaskAnswer, oldest, select_tasks};
use taskqueue_engine::{Context, EngineResult, StopSignals, announce_slow_answer};
use taskqueue_views::human;
use taskqueue_views::json::{Object, task_json};

/// The help text about selections, the same for every verb.
pub(crate) const SELECTION_HELP: &str = "Tasks: ids (12), ranges (5-9), last, or filters, which must all match: \
    class=mail.* status=failed by=ann error=exit:1 schedule=7 key=order-17 name=nightly tag=account-17 \
    parent=5 meta.order=17 data.order=17 data~text since=1d older=2d newer=1h. Statuses: scheduled, waiting, \
    due, processing (or running), success, failed, timeout, exhausted, quarantined, cancelled, expired";

/// The hint for a command that was interrupted between two parts.
pub(crate) const SAME_COMMAND: &str = "the same command continues with the rest";

/// Returns the selected tasks. `None` if there are none: then a message was printed, and the exit status is [`NOT_FOUND`].
pub(crate) fn selected_tasks(
    ctx: &mut Context,
    selection: &Selection,
    out: &mut Out,
) -> anyhow::Result<Option<Vec<TaskId>>> {
    let ids = select_tasks(ctx, selection)?;
    if ids.is_empty() {
        none_selected(out);
        return Ok(None);
    }
    Ok(Some(ids))
}

fn none_selected(out: &mut Out) -> u8 {
    out.say("no task matches the selection");
    NOT_FOUND
}

/// Which tasks.
#[derive(Clone, Debug, Args)]
pub(crate) struct SelectedArgs {
    /// Tasks
    #[arg(required_unless_present_any = ["class", "status", "since"], value_name = "SELECTION", help = SELECTION_HELP)]
    pub(crate) selection: Vec<String>,
    /// The same as class=CLASS
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// The same as status=STATUS
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// The same as since=TIME
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Change all tasks that a range or a filter selects, without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl SelectedArgs {
    pub(crate) fn of(selection: Vec<String>, yes: bool, dry_run: bool) -> Self {
        Self { selection, class: Vec::new(), status: Vec::new(), since: None, yes, dry_run }
    }

    fn parse(&self) -> Result<Selection, CliError> {
        let classes = self.class.iter().map(|class| format!("class={class}"));
        let statuses = self.status.iter().map(|status| format!("status={status}"));
        let since = self.since.iter().map(|time| format!("since={time}"));
        let words: Vec<String> = self.selection.iter().cloned().chain(classes).chain(statuses).chain(since).collect();
        Selection::parse(&words).map_err(CliError::usage)
    }

    /// Returns the statuses of the selected tasks, for a verb that changes tasks in `statuses`; empty if they can have any.
    pub(crate) fn statuses(&self, statuses: &[TaskStatus]) -> Result<Vec<TaskStatus>, CliError> {
        let mut selection = self.parse()?;
        selection.narrow_to(statuses);
        Ok(selection.allowed_statuses())
    }
}

/// Changes these tasks, or reports what it would do, with an answer for each.
type SelectedStep<'a> = &'a mut dyn FnMut(&mut Context, &[TaskId], OnAnswer<'_>) -> EngineResult<()>;

/// Adds other tasks to these.
type Widen = fn(&mut Context, Vec<TaskId>) -> EngineResult<Vec<TaskId>>;

/// A verb for several tasks.
pub(crate) struct BulkVerb<'a> {
    /// The name on the command line: `retry`.
    pub(crate) name: &'a str,
    /// What was done to several tasks, in messages: `retried`.
    pub(crate) done: &'a str,
    /// The statuses in which it can change a task; empty if it has an answer for every status.
    pub(crate) statuses: Vec<TaskStatus>,
    /// Only this many of the selected tasks, the oldest.
    pub(crate) take: Option<usize>,
    /// Adds the tasks that belong to the selected ones.
    pub(crate) widen: Option<Widen>,
    /// Whether filters without a match are a success, for verbs that cron calls every night.
    pub(crate) may_be_nothing: bool,
    /// Whether the same command continues after an interruption: the tasks that are done no longer match, or are left alone.
    pub(crate) can_continue: bool,
    /// Makes the change.
    pub(crate) act: SelectedStep<'a>,
    /// Reports what it would do.
    pub(crate) preview: SelectedStep<'a>,
}

/// Selects the tasks, asks for confirmation if needed, changes them, and reports the result for each.
pub(crate) fn run(
    ctx: &mut Context,
    args: &SelectedArgs,
    verb: &mut BulkVerb<'_>,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let mut selection = args.parse()?;
    selection.narrow_to(&verb.statuses);
    let ids = oldest(select_tasks(ctx, &selection)?, verb.take);
    let may_be_nothing = verb.may_be_nothing && !selection.has_ids();
    if may_be_nothing && ids.is_empty() {
        if args.dry_run {
            out.say(&SelectedReport { is_dry_run: true, ..SelectedReport::default() }.total(verb.done));
        } else if !args.yes && !out.is_watched() {
            return Err(unasked(verb.name).into());
        } else {
            out.say_if_watched(&format!("nothing to {}", verb.name));
        }
        return Ok(DONE);
    }
    if ids.is_empty() {
        return Ok(none_selected(out));
    }
    let selected = ids.len();
    let ids = match verb.widen {
        Some(widen) => widen(ctx, ids)?,
        None => ids,
    };
    let is_named = selection.is_named() && ids.len() == selected;
    if !is_named && !args.yes && !args.dry_run && !may_act(&ids, verb.name, out)? {
        out.say("nothing was changed");
        return Ok(INTERRUPTED);
    }
    let mut told = SelectedReport { is_named, is_dry_run: args.dry_run, ..SelectedReport::default() };
    let mut failure = None;
    let is_silent = !is_named && !args.dry_run && !out.is_verbose();
    let mut progress = is_silent.then(|| Progress::to_an_end(out, verb.name));
    if !args.dry_run {
        stop_between_parts(ctx, progress.as_ref(), out)?;
    }
    let mut hear = |answer: TaskAnswer| {
        // The task is printed where the progress line is.
        progress.take_if(|_| answer.current.is_some());
        if let Err(error) = told.hear(&answer, out) {
            failure.get_or_insert(error);
        }
        if let Some(progress) = &progress {
            progress.at(told.heard, ids.len());
        }
    };
    if args.dry_run {
        (verb.preview)(ctx, &ids, &mut hear)?;
    } else {
        (verb.act)(ctx, &ids, &mut hear)?;
    }
    drop(progress);
    if let Some(error) = failure {
        return Err(error);
    }
    if told.heard < ids.len() && ctx.is_stopping() {
        return Err(told.interrupted(ids.len(), verb).into());
    }
    let code = told.finish(verb.done, out);
    Ok(if may_be_nothing && code == NOT_FOUND { DONE } else { code })
}

/// From now on, a signal stops the work between two parts; earlier parts stay done and are reported. A terminal shows what a long
/// part waits for.
pub(crate) fn stop_between_parts(ctx: &mut Context, progress: Option<&Progress>, out: &Out) -> anyhow::Result<()> {
    let signals = Arc::new(StopSignals::install_for_one()?);
    ctx.stop_on(Arc::clone(&signals));
    if out.has_messages_on_terminal() {
        announce_waits(ctx, signals, progress);
    }
    Ok(())
}

fn announce_waits(ctx: &Context, signals: Arc<StopSignals>, progress: Option<&Progress>) {
    let printer = || -> Box<dyn Fn(&str) + Send> {
        match progress {
            Some(progress) => Box::new(progress.printer()),
            None => Box::new(tell_at_once),
        }
    };
    announce_slow_answer(ctx.store.url(), printer());
    let print = printer();
    // Without a thread, only its message is missing.
    let _ = std::thread::Builder::new().spawn(move || {
        while !signals.wait(NEXT_POLL) {}
        std::thread::sleep(NOTICE_AFTER);
        print("stopping after the part in progress; a second signal ends it at once, and undoes this part");
    });
}

/// Returns the error of a script that selects nothing now, and that would fail on the first day on which it selects a task.
fn unasked(verb: &str) -> CliError {
    CliError::usage(format!("{verb} needs --yes, because it cannot ask without a terminal"))
        .with_hint("--dry-run shows what would be done")
}

/// Asks the user for confirmation; without a terminal, `--yes` is required.
fn may_act(ids: &[TaskId], name: &str, out: &mut Out) -> anyhow::Result<bool> {
    let number = human::plural(ids.len(), "task");
    match out.ask(&format!("{name} {number}?"))? {
        Some(answer) => Ok(answer),
        None => Err(CliError::usage(format!("the selection matches {number}; pass --yes to confirm"))
            .with_hint("--dry-run shows what would be done")
            .into()),
    }
}

/// Returns the hint for a claimant that has disappeared.
pub(crate) fn if_gone(claim: &HeldClaim) -> String {
    format!("if claimant {} is gone, take its run back: `{}`", claim.claimant, take_back_command(claim.run_id))
}

/// Returns the command that takes a run from its claimant.
pub(crate) fn take_back_command(run: RunId) -> String {
    format!("taskqueue worker release {run} --force")
}

/// Counts the answers.
#[derive(Default)]
struct SelectedReport {
    is_named: bool,
    is_dry_run: bool,
    heard: usize,
    done: usize,
    /// Tasks in progress whose end was requested.
    requested: usize,
    missing: usize,
    refused: usize,
    /// How many were refused for each reason.
    reasons: BTreeMap<String, usize>,
}

impl SelectedReport {
    fn hear(&mut self, answer: &TaskAnswer, out: &mut Out) -> anyhow::Result<()> {
        self.heard += 1;
        match answer.result {
            Some(REQUESTED) => self.requested += 1,
            Some(_) => self.done += 1,
            None if answer.exists => {
                self.refused += 1;
                // Without the id of the task, so that equal reasons are counted together.
                let reason = answer.message.replacen(&format!("task {} ", answer.id), "", 1);
                *self.reasons.entry(reason).or_default() += 1;
            }
            None => self.missing += 1,
        }
        if out.is_json() {
            let mut value = Object::of(answer).with("dry_run", &self.is_dry_run);
            if let Some(task) = &answer.current {
                value = value.with("task", &task_json(task));
            }
            return out.json(&value);
        }
        if answer.result.is_none() && self.is_named {
            out.warn(&answer.message);
        } else if self.is_named || self.is_dry_run {
            out.say(&answer.message);
        } else {
            out.say_verbose(&answer.message);
        }
        if let Some(claim) = answer.claim.as_ref().filter(|_| self.is_named) {
            out.say(&format!("hint: {}", if_gone(claim)));
        }
        match &answer.current {
            Some(task) => task_view::current(task, out),
            None => Ok(()),
        }
    }

    /// Returns the text about tasks whose end was only requested.
    fn ended(&self) -> Option<String> {
        let to_be = if self.is_dry_run { "would be" } else { "to be" };
        match self.requested {
            0 => None,
            1 => Some(format!("{to_be} ended by its runner or claimant")),
            _ => Some(format!("{to_be} ended by their runners or claimants")),
        }
    }

    /// Returns the error for a signal that came before all tasks were processed.
    fn interrupted(&self, selected: usize, verb: &BulkVerb<'_>) -> CliError {
        let ended = self.ended().map(|ended| format!(", {} {ended}", self.requested)).unwrap_or_default();
        let selected = human::plural(selected, "task");
        let error =
            CliError::interrupted(format!("stopped by a signal: {} of {selected} {}{ended}", self.done, verb.done));
        if verb.can_continue { error.with_hint(SAME_COMMAND) } else { error }
    }

    /// Formats the totals: `2 tasks cancelled, 3 to be ended by their runners or claimants`.
    fn total(&self, done: &str) -> String {
        let would = if self.is_dry_run { "would be " } else { "" };
        match (self.done, self.ended()) {
            (0, Some(ended)) => format!("{} {ended}", human::plural(self.requested, "task")),
            (_, Some(ended)) => {
                format!("{} {would}{done}, {} {ended}", human::plural(self.done, "task"), self.requested)
            }
            (_, None) => format!("{} {would}{done}", human::plural(self.done, "task")),
        }
    }

    fn finish(&self, done: &str, out: &mut Out) -> u8 {
        if !self.is_named {
            out.say(&self.total(done));
            if !self.is_dry_run {
                for (reason, count) in &self.reasons {
                    let each = if *count == 1 { "it" } else { "each" };
                    out.say(&format!("{} skipped: {each} {reason}", human::plural(*count, "task")));
                }
            }
        }
        match (self.done + self.requested, self.refused, self.missing) {
            (_, 0, 0) => DONE,
            (0, 0, _) => NOT_FOUND,
            // Tasks that a range or a filter matched but that were refused are no failure, unless there was nothing else.
            (1.., _, _) if !self.is_named => DONE,
            (0, _, _) if !self.is_named => NOT_FOUND,
            _ => FAILED,
        }
    }
}
