//! What the verbs for many tasks share: the selection, the question before something happens to many, what became of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde_json::json;

use super::task_view;
use crate::error::{CliError, DONE, FAILED, INTERRUPTED, NOT_FOUND};
use crate::output::progress::Progress;
use crate::output::{Out, human};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::HeldClaim;
use taskqueue_domain::task::selection::Selection;
use taskqueue_engine::change::cancel::REQUESTED;
use taskqueue_engine::change::selected::{OnAnswer, TaskAnswer, select_tasks};
use taskqueue_engine::{Context, EngineResult, StopSignals};

/// How every verb explains its selection.
pub(crate) const SELECTION_HELP: &str = "The tasks: ids (12), ranges (5-9), last, or filters, which must all hold: \
    class=mail.* status=failed by=ann error=exit:1 schedule=7 key=order-17 parent=5 older=2d newer=1h. Statuses are those of \
    `status`, and exhausted, quarantined, waiting and due";

/// The tasks that a selection means. `None` where there are none: that was said, and what is left is [`NOT_FOUND`].
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
    out.say("no task is selected by that");
    NOT_FOUND
}

/// Which tasks.
#[derive(Debug, Args)]
pub(crate) struct SelectedArgs {
    /// The tasks
    #[arg(required = true, value_name = "SELECTION", help = SELECTION_HELP)]
    pub(crate) selection: Vec<String>,
    /// Do it to all that a range or a filter selects, without a question
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Does something to these tasks, or says what it would do, and tells of each.
type Step<'a> = &'a mut dyn FnMut(&mut Context, &[TaskId], OnAnswer<'_>) -> EngineResult<()>;

/// These tasks and others.
type Widen = fn(&mut Context, Vec<TaskId>) -> EngineResult<Vec<TaskId>>;

/// A verb for many tasks.
pub(crate) struct BulkVerb<'a> {
    /// As the command line names it: `retry`.
    pub(crate) name: &'a str,
    /// What has been done to several: `tried again`.
    pub(crate) done: &'a str,
    /// The statuses in which it can do something; empty where it has something to say about every one.
    pub(crate) statuses: Vec<TaskStatus>,
    /// Only so many of the selected tasks, the oldest.
    pub(crate) take: Option<usize>,
    /// Adds what belongs to the selected tasks.
    pub(crate) widen: Option<Widen>,
    /// Whether it is success that filters leave nothing to do, as of what cron calls each night.
    pub(crate) may_be_nothing: bool,
    /// Does it.
    pub(crate) act: Step<'a>,
    /// Says what it would do.
    pub(crate) preview: Step<'a>,
}

/// Finds the tasks, asks if there may be more of them than somebody thinks, does it, and says what became of each.
pub(crate) fn run(
    ctx: &mut Context,
    args: &SelectedArgs,
    verb: &mut BulkVerb<'_>,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let mut selection = Selection::parse(&args.selection).map_err(CliError::usage)?;
    selection.narrow_to(&verb.statuses);
    let mut ids = select_tasks(ctx, &selection)?;
    ids.truncate(verb.take.unwrap_or(usize::MAX));
    let may_be_nothing = verb.may_be_nothing && !selection.has_ids();
    if may_be_nothing && ids.is_empty() {
        if args.dry_run {
            out.say(&Told { is_dry_run: true, ..Told::default() }.total(verb.done));
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
    let mut told = Told { is_named, is_dry_run: args.dry_run, ..Told::default() };
    let mut failure = None;
    let is_silent = !is_named && !args.dry_run && !out.is_verbose();
    let mut progress = is_silent.then(|| Progress::to_an_end(out, verb.name));
    let mut hear = |answer: TaskAnswer| {
        // It is shown, where the line of the progress stands.
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
        stop_between_parts(ctx)?;
        (verb.act)(ctx, &ids, &mut hear)?;
    }
    drop(progress);
    if let Some(error) = failure {
        return Err(error);
    }
    if told.heard < ids.len() && ctx.is_stopping() {
        return Err(told.interrupted(ids.len(), verb.done).into());
    }
    let code = told.finish(verb.done, out);
    Ok(if may_be_nothing && code == NOT_FOUND { DONE } else { code })
}

/// From now on a signal is looked for between the parts of a work; what is done stays done, and is told of.
pub(crate) fn stop_between_parts(ctx: &mut Context) -> anyhow::Result<()> {
    ctx.stop_on(Arc::new(StopSignals::install_for_one()?));
    Ok(())
}

/// Whether whoever sits there wants it; without anybody there, `--yes` has to say so.
fn may_act(ids: &[TaskId], name: &str, out: &mut Out) -> anyhow::Result<bool> {
    let number = human::plural(ids.len(), "task");
    match out.ask(&format!("{name} {number}?"))? {
        Some(answer) => Ok(answer),
        None => Err(CliError::usage(format!("that selects {number}, and nobody can be asked"))
            .with_hint("--yes does it; --dry-run says what would be done")
            .into()),
    }
}

/// What helps where the claimant that has a run is gone.
pub(super) fn if_gone(claim: &HeldClaim) -> String {
    format!("if claimant {} is gone, take its run back: `{}`", claim.claimant, take_back_command(claim.run_id))
}

/// The command that takes a run from its claimant.
pub(super) fn take_back_command(run: RunId) -> String {
    format!("taskqueue release {run} --force")
}

/// What was heard so far.
#[derive(Default)]
struct Told {
    is_named: bool,
    is_dry_run: bool,
    heard: usize,
    done: usize,
    /// What is processed, and is to be ended by whoever does so.
    requested: usize,
    missing: usize,
    refused: usize,
    /// How many of what was refused are in which status, as far as the refusals say it.
    reasons: BTreeMap<String, usize>,
}

impl Told {
    fn hear(&mut self, answer: &TaskAnswer, out: &mut Out) -> anyhow::Result<()> {
        self.heard += 1;
        match answer.result {
            Some(REQUESTED) => self.requested += 1,
            Some(_) => self.done += 1,
            None if answer.exists => {
                self.refused += 1;
                // Without the number of the task: one reason for all that share it.
                let reason = answer.message.replacen(&format!("task {} ", answer.id), "", 1);
                *self.reasons.entry(reason).or_default() += 1;
            }
            None => self.missing += 1,
        }
        if out.is_json() {
            let mut value = json!(answer);
            value["dry_run"] = json!(self.is_dry_run);
            if let Some(task) = &answer.current {
                value["task"] = task_view::task_json(task);
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

    /// What becomes of those of which the end was only asked for.
    fn ended(&self) -> Option<String> {
        let to_be = if self.is_dry_run { "would be" } else { "to be" };
        match self.requested {
            0 => None,
            1 => Some(format!("{to_be} ended by whoever processes it")),
            _ => Some(format!("{to_be} ended by whoever processes them")),
        }
    }

    /// A signal came before all of them were reached.
    fn interrupted(&self, selected: usize, done: &str) -> CliError {
        let ended = self.ended().map(|ended| format!(", {} {ended}", self.requested)).unwrap_or_default();
        let selected = human::plural(selected, "task");
        CliError::interrupted(format!("stopped by a signal: {} of {selected} {done}{ended}", self.done))
    }

    /// `2 tasks cancelled, 3 to be ended by whoever processes them`
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
                    out.say(&format!("{} left alone: {each} {reason}", human::plural(*count, "task")));
                }
            }
        }
        match (self.done + self.requested, self.refused, self.missing) {
            (_, 0, 0) => DONE,
            (0, 0, _) => NOT_FOUND,
            // What a range or a filter selects besides is no failure, unless there was nothing else.
            (1.., _, _) if !self.is_named => DONE,
            (0, _, _) if !self.is_named => NOT_FOUND,
            _ => FAILED,
        }
    }
}
