//! `taskqueue explain`

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;

use crate::commands::options::selected::{SELECTION_HELP, if_gone, selected_tasks};
use crate::error::{CliError, DONE, NOT_FOUND, did_you_mean};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::output::page::Page;
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use taskqueue_domain::run::due::DueCondition;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::records::Run;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_engine::Context;
use taskqueue_engine::inspect::diagnosis::explain::{
    Condition, ConditionName, Explanation, FirstOfClass, QueueExplanation, explain_queue, explain_task,
};
use taskqueue_views::answer::{QueueAnswer, answer, answer_command, held_claim, queue_answer};
use taskqueue_views::clock::{clock_ahead, clock_words};
use taskqueue_views::human::{count, distance, fitted, fitted_words, hanging, instant, plural, relative};
use taskqueue_views::json::{explanation_json, queue_explanation_json};
use taskqueue_views::words::why::{kept_words, sentence};

/// Explain why tasks do not run, and how to change that
///
/// The answer is one sentence, followed by a command that changes it or shows more. Without a task, explains why nothing runs.
///
/// With --verbose or --json, also lists every condition that decides whether a task runs, met or not: the first one that is not
/// met is the cause. For a finished task, it shows how each attempt ended, what was decided then, and by which rule. Without a
/// task, it lists the first waiting task of each class.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue explain\n  taskqueue explain 4711\n  taskqueue explain 4711 --verbose\n  taskqueue explain status=due"
)]
pub(crate) struct ExplainArgs {
    /// Tasks
    #[arg(value_name = "SELECTION", help = SELECTION_HELP)]
    selection: Vec<String>,
    /// Explain at most N tasks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

pub(crate) fn run(session: Session, args: &ExplainArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open_to_read(out)?;
    if args.selection.is_empty() {
        let explanation = explain_queue(&mut ctx)?;
        show_queue(&explanation, out)?;
        return Ok(DONE);
    }
    let selection = Selection::parse(&args.selection).map_err(CliError::usage)?;
    let Some(ids) = selected_tasks(&mut ctx, &selection, out)? else { return Ok(NOT_FOUND) };
    let shown = usize::try_from(args.limit).unwrap_or(usize::MAX);
    for (place, id) in ids.iter().take(shown).enumerate() {
        let explanation = explain_task(&mut ctx, *id)?;
        if place > 0 && !out.is_json() {
            out.data("")?;
        }
        show(&mut ctx, &explanation, out)?;
    }
    if ids.len() > shown {
        out.say(&format!("{} more; -n N explains more", plural(ids.len() - shown, "task")));
    }
    Ok(DONE)
}

fn show(ctx: &mut Context, explanation: &Explanation, out: &mut Out) -> anyhow::Result<()> {
    let ahead = clock_ahead(ctx)?;
    if out.is_json() {
        return out.json(&explanation_json(explanation, ahead));
    }
    let page = words(explanation, ahead, out.is_verbose(), out);
    out.data(page)
}

/// The width of the labels before the lines of the details.
const LABEL: usize = 7;

/// Returns the answer and the command that changes the state; with `is_detailed`, also every condition and attempt.
pub(crate) fn words(explanation: &Explanation, ahead: Option<TimeDelta>, is_detailed: bool, out: &Out) -> Page {
    let mut lines = vec![fitted_words(&clean_line(&answer(explanation)), out.width())];
    // In one line, however long, because it is meant to be pasted.
    lines.extend(answer_command(explanation).map(|command| format!("  {}", clean_line(&command))));
    let notes = notes(explanation, ahead);
    lines.extend(notes.iter().map(|note| fitted_words(&clean_line(&format!("note: {note}")), out.width())));
    let mut page = Page::from(lines.join("\n"));
    if is_detailed {
        page.add("");
        page.add(details(explanation, out));
    }
    page
}

/// Returns what else a reader of the answer must know, one sentence each.
fn notes(explanation: &Explanation, ahead: Option<TimeDelta>) -> Vec<String> {
    let task = &explanation.task;
    let mut notes: Vec<String> = held_claim(explanation).as_ref().map(if_gone).into_iter().collect();
    if !explanation.nearest_classes.is_empty() {
        let meant = did_you_mean(&explanation.nearest_classes);
        notes.push(format!("class {} is not known here{meant}", task.class));
    }
    if let Some(holder) = explanation.key_holder {
        let key = task.unique_key.as_deref().unwrap_or_default();
        notes.push(format!("task {holder} has the key {key}: this task cannot run again until that task has finished"));
    }
    notes.extend(ahead.map(clock_words));
    notes
}

/// Returns when the state changes on its own, every condition, and the attempts.
fn details(explanation: &Explanation, out: &Out) -> Page {
    let (task, now) = (&explanation.task, explanation.now);
    let labelled = |label: &str, what: &str| hanging(&format!("{label:<LABEL$}"), &clean_line(what), out.width());
    let head = format!("task {}   {}   {}", task.id, task.class, task.status);
    let mut text = vec![fitted_words(&clean_line(&head), out.width())];
    for blocker in &explanation.blockers {
        let why = sentence(&blocker.why, None, now);
        text.push(labelled("after", &format!("task {} ({}): {why}", blocker.task_id, blocker.class)));
    }
    text.push(labelled("next", &next_words(explanation)));
    if let Some(until) = explanation.kept_until {
        text.push(labelled("kept", &kept_words(until, now)));
    }
    let mut page = Page::from(text.join("\n"));
    page.add("");
    page.add(conditions(explanation, out));
    if !explanation.attempts.is_empty() {
        let rows = explanation.attempts.iter().map(|run| attempt_row(run, now)).collect();
        page.add("");
        page.add(render(out, &["ATTEMPT", "RUN", "STATUS", "ENDED", "TOOK", "DECISION", "ERROR"], rows, &[4, 1]));
    }
    page
}

fn next_words(explanation: &Explanation) -> String {
    let Some(next) = &explanation.next else {
        return if explanation.task.is_settled() {
            "finished; it will not run again unless you retry it".to_owned()
        } else {
            "this will not change on its own".to_owned()
        };
    };
    let what = match next.condition {
        Some(condition) => condition_words(condition).to_owned(),
        None => format!("task {}", next.task_id),
    };
    format!("{} ({}): {what}", instant(next.on), relative(next.on, explanation.now))
}

/// On a narrower terminal a table of the conditions would be three times as long as a list.
const NARROW: u16 = 60;

fn conditions(explanation: &Explanation, out: &Out) -> Page {
    let rows = explanation.conditions.iter().map(|condition| condition_row(condition, explanation));
    if out.width().is_none_or(|width| width >= NARROW) {
        return render(out, &["MET", "CONDITION", "REASON"], rows.collect(), &[]);
    }
    let line = |condition: &Condition| {
        let words = condition_words(condition.condition);
        let Some(why) = &condition.why else { return hanging("yes  ", words, out.width()) };
        let why = sentence(why, explanation.last_run.as_ref(), explanation.now);
        hanging("NO   ", &clean_line(&format!("{words}: {why}")), out.width())
    };
    explanation.conditions.iter().map(line).collect::<Vec<_>>().join("\n").into()
}

fn condition_row(condition: &Condition, explanation: &Explanation) -> Vec<Field> {
    let words = condition_words(condition.condition);
    match &condition.why {
        None => vec![Field::toned("yes", Tone::Good), words.into(), "".into()],
        Some(why) => {
            let why = sentence(why, explanation.last_run.as_ref(), explanation.now);
            vec![Field::toned("NO", Tone::Bad), words.into(), why.into()]
        }
    }
}

fn condition_words(condition: ConditionName) -> &'static str {
    match condition {
        ConditionName::RunIsHeld => "the process that holds its run is alive",
        ConditionName::RowIsReadable => "every column of its row can be read",
        ConditionName::NotPaused => "it is not paused",
        ConditionName::HasHandler => "its class has a handler",
        ConditionName::ClassNotHeld => "its class is not held here",
        ConditionName::ClassHasRoom => "its class is below its limit",
        ConditionName::WithinRate => "its class is below its rate",
        ConditionName::KeyHasSlot => "its limit key has a free slot",
        ConditionName::HasRun => "it has a run",
        ConditionName::RunnerIsFree => "a runner can take it",
        ConditionName::Due(due) => due_words(due),
    }
}

fn due_words(condition: DueCondition) -> &'static str {
    match condition {
        DueCondition::StatusIsKnown => "its status is known",
        DueCondition::NotProcessing => "no process works on it",
        DueCondition::NotSucceeded => "it has not succeeded",
        DueCondition::NotCancelled => "it was not cancelled",
        DueCondition::NotExpired => "it has not expired",
        DueCondition::NoOpenRun => "it has no run yet",
        DueCondition::NotQuarantined => "it is not quarantined",
        DueCondition::RetryIsLeft => "it has a retry left",
        DueCondition::DependenciesDone => "the tasks it waits for are done",
        DueCondition::IsPlanned => "its time is known",
        DueCondition::ScheduleGoesOn => "its schedule is active",
        DueCondition::Due => "its time is reached",
    }
}

fn attempt_row(run: &Run, now: DateTime<Utc>) -> Vec<Field> {
    let error = error_words(&run.error_code, &run.error_message);
    let took = run.started_on.zip(run.finished_on).map(|(started, finished)| distance(finished - started));
    vec![
        run.attempt.to_string().into(),
        run.id.to_string().into(),
        run.status.to_string().into(),
        run.finished_on.map_or_else(|| "not yet".to_owned(), |on| relative(on, now)).into(),
        took.unwrap_or_default().into(),
        run.decision.as_str().into(),
        error.into(),
    ]
}

fn show_queue(explanation: &QueueExplanation, out: &mut Out) -> anyhow::Result<()> {
    let QueueAnswer { words, command } = queue_answer(explanation);
    if out.is_json() {
        return out.json(&queue_explanation_json(explanation));
    }
    let mut page = Page::from(fitted_words(&clean_line(&words), out.width()));
    page.add(format!("  {}", clean_line(&command)));
    if out.is_verbose() {
        page.add("");
        page.add(queue_details(explanation, out));
    }
    out.data(page)
}

/// Returns the counters, the lost runs, and the first waiting task of each class.
fn queue_details(explanation: &QueueExplanation, out: &Out) -> Page {
    let (counts, now) = (&explanation.counts, explanation.now);
    let mut counters = vec![
        format!("running {}", count(counts.processing)),
        format!("slots {}/{}", explanation.slots.0, explanation.slots.1),
        format!("waiting runs {}", count(counts.waiting_runs)),
        format!("due {}", count(counts.due)),
    ];
    if counts.waiting_for_key.has_any() {
        counters.push(format!("waiting for a limit key {}", count(counts.waiting_for_key)));
    }
    let mut page = Page::from(fitted(&counters, "   ", out.width()));
    for (task_id, why) in &explanation.lost {
        page.add(fitted_words(&clean_line(&format!("task {task_id}: {}", sentence(why, None, now))), out.width()));
    }
    if !explanation.first.is_empty() {
        let row = |first: &FirstOfClass| {
            let why = first
                .why
                .as_ref()
                .map_or_else(|| "a runner can take it now".to_owned(), |why| sentence(why, None, now));
            vec![first.class.as_str().into(), first.task_id.to_string().into(), why.into()]
        };
        page.add("");
        page.add(render(out, &["CLASS", "FIRST TASK", "WHY"], explanation.first.iter().map(row).collect(), &[]));
    }
    if let Some(next) = &explanation.next {
        let words = format!("next   {} ({}): task {}", instant(next.on), relative(next.on, now), next.task_id);
        page.add(fitted_words(&words, out.width()));
    }
    page
}
