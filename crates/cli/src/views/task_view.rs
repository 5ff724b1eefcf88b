//! Formats tasks, runs and counters for `status`, as text or JSON.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use indicatif::HumanBytes;
use serde_json::json;

use crate::output::Out;
use crate::output::clean::{clean_block, clean_line};
use crate::output::page::Page;
use crate::output::table::{Field, Tone, render, render_without_empty};
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::claimant::HeldBack;
use taskqueue_domain::run::retention::FOREVER;
use taskqueue_domain::run::status::{RunStatus, Stored, TaskStatus};
use taskqueue_domain::task::dependencies::id_circle_words;
use taskqueue_domain::task::records::{Run, RunOutput, Task, TaskSchedule};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_domain::time::recurrence::Overlap;
use taskqueue_engine::handler::exec::ExecRequest;
use taskqueue_engine::inspect::status::{Event, Overview, Reason, TaskDetail, TaskLine};
use taskqueue_views::answer::QueueAnswer;
use taskqueue_views::class_times::class_times;
use taskqueue_views::cut::Length;
use taskqueue_views::human::{
    counters, distance, fitted, fitted_words, folded, hanging, instant, plural, relative, short_distance,
};
use taskqueue_views::json::{detail_json, overview_json};
use taskqueue_views::links::linked_line;
use taskqueue_views::shell_word::shell_word;
use taskqueue_views::time_line::drawn;
use taskqueue_views::words::event_words::event_words;
use taskqueue_views::words::pause_words::pause_words;
use taskqueue_views::words::standstill::{standstill_remedy, standstill_words};
use taskqueue_views::words::what::what;
use taskqueue_views::words::why::{deadline_words, failed_attempts, holder, kept_words, note};

/// Printed if there are no tasks yet.
pub(crate) const NO_TASKS: &str =
    "No tasks. Queue one: taskqueue queue CLASS '{\"key\":\"value\"}', or taskqueue exec PROGRAM";

/// Messages for a list of tasks.
pub(crate) struct ListWords<'a> {
    /// If there are none.
    pub(crate) if_none: &'a str,
    /// If there are more than are shown.
    pub(crate) if_more: &'a str,
    /// Why nothing runs, if something waits.
    pub(crate) stuck: Option<QueueAnswer>,
}

/// Printed if a listed task will not run again unless an operator retries it.
const NOT_RETRIED: &str = "Some tasks will not be retried: `taskqueue failures` shows how to retry them.";
/// Used if no tasks were selected.
pub(crate) const MORE_OR_OTHERS: &str =
    "There are more: -n N shows more lines; a selection, --status or --class filters them.";
/// Used if the shown tasks were selected.
pub(crate) const MORE: &str = "There are more: -n N shows more lines.";

/// Prints the counters, then the page of tasks.
pub(crate) fn overview(overview: &Overview, words: &ListWords<'_>, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&overview_json(overview));
    }
    let mut page = Page::from(fitted(&counters(&overview.counts, overview.slots), "   ", out.width()));
    for pause in &overview.pauses {
        page.add(fitted_words(&clean_line(&pause_words(pause, overview.now)), out.width()));
    }
    for standstill in &overview.standstills {
        let words = format!("{}; try {}", standstill_words(standstill, overview.now), standstill_remedy(standstill));
        page.add(fitted_words(&clean_line(&words), out.width()));
    }
    if let Some(QueueAnswer { words, command }) = &words.stuck {
        page.add(fitted_words(&clean_line(&format!("{words} Try {command}")), out.width()));
    }
    page.add("");
    if overview.lines.is_empty() {
        page.add(fitted_words(words.if_none, out.width()));
    } else {
        let rows = overview.lines.iter().map(|line| task_row(line, overview.now)).collect();
        let header = ["TASK", "CLASS", "WHAT", "STATUS", "WHEN", "FAILED", "NOTE"];
        page.add(render_without_empty(out, &header, rows, &[4, 5], 2));
    }
    let is_final = |line: &TaskLine| matches!(line.reason, Reason::Exhausted { .. } | Reason::Quarantined { .. });
    if overview.lines.iter().any(is_final) {
        page.add(fitted_words(NOT_RETRIED, out.width()));
    }
    if overview.has_more {
        page.add(fitted_words(words.if_more, out.width()));
    }
    let times = overview.times.as_ref().map(|times| class_times(times, out.width())).unwrap_or_default();
    if !times.is_empty() {
        page.add("");
        times.into_iter().for_each(|line| page.add(line));
    }
    out.data(page)
}

fn task_row(line: &TaskLine, now: DateTime<Utc>) -> Vec<Field> {
    let task = &line.task;
    let (status, tone) = status_words(task, line.last_run.as_ref());
    let when = match (&line.last_run, &line.reason) {
        (Some(run), Reason::Running { .. } | Reason::Lost { .. }) => {
            run.started_on.map_or_else(String::new, |on| format!("started {}", relative(on, now)))
        }
        (_, Reason::NotYet { on, .. }) => relative(*on, now),
        (_, Reason::ClassHeld { until, .. }) => relative(*until, now),
        (Some(run), _) if run.finished_on.is_some() => {
            run.finished_on.map_or_else(String::new, |on| format!("ended {}", relative(on, now)))
        }
        _ => format!("queued {}", relative(task.queued_on, now)),
    };
    vec![
        task.id.to_string().into(),
        task.class.as_str().into(),
        what(task).into(),
        Field::toned(status, tone),
        when.into(),
        format!("{}/{}", failed_attempts(task, &line.reason), line.allowed_retries).into(),
        note(&line.reason, line.last_run.as_ref(), now).into(),
    ]
}

fn status_words(task: &Task, run: Option<&Run>) -> (String, Tone) {
    let percents = run.map_or(0, |run| run.percents_completed);
    match &task.status {
        Stored::Known(TaskStatus::Processing) if percents > 0 => (format!("processing {percents}%"), Tone::Good),
        Stored::Known(TaskStatus::Processing) => ("processing".to_owned(), Tone::Good),
        Stored::Known(status @ (TaskStatus::Failed | TaskStatus::Timeout)) => (status.to_string(), Tone::Bad),
        Stored::Known(TaskStatus::Scheduled) => ("scheduled".to_owned(), Tone::Waiting),
        Stored::Known(status @ (TaskStatus::Success | TaskStatus::Cancelled | TaskStatus::Expired)) => {
            (status.to_string(), Tone::Quiet)
        }
        Stored::Unknown(status) => (format!("{status} (unknown)"), Tone::Bad),
    }
}

/// Prints the current task, for a caller that expected other values.
pub(crate) fn current(task: &Task, out: &mut Out) -> anyhow::Result<()> {
    let mut lines = vec![
        format!("task {}   {}   {}", task.id, task.class, task.status),
        format!("  updated on   {}", task.updated_on.to_rfc3339_opts(SecondsFormat::Micros, true)),
        format!("  scheduled    {}", instant(task.due_from())),
        format!(
            "  max retries  {}",
            task.max_retries.map_or("from the settings".to_owned(), |count| count.to_string())
        ),
        format!("  priority     {}", task.priority),
    ];
    lines.extend(attempt_lines(task));
    lines.push(format!("  data         {}", Length::Cut.of_value(&task.data)));
    out.data(lines.iter().map(|line| clean_line(line)).collect::<Vec<_>>().join("\n"))
}

/// Prints everything about one task.
pub(crate) fn detail(detail: &TaskDetail, now: DateTime<Utc>, length: Length, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&detail_json(detail, now));
    }
    let task = &detail.task;
    let last_run = detail.runs.first().map(|(run, _)| run);
    let mut lines = vec![format!("task {}   {}   {}", task.id, task.class, status_words(task, last_run).0)];
    lines.extend(task.name.iter().map(|name| format!("  name         {name}")));
    lines.extend([
        format!("  why          {}", non_empty(note(&detail.reason, last_run, now))),
        format!("  queued       {} ({}) by {}", instant(task.queued_on), relative(task.queued_on, now), task.queued_by),
        format!("  scheduled    {}", scheduled_words(task, now)),
        format!(
            "  failed       {} of {} retries, {} in all",
            failed_attempts(task, &detail.reason),
            detail.allowed_retries,
            plural(task.attempts, "attempt")
        ),
        format!("  priority     {}", task.priority),
    ]);
    lines.extend(task.start_before.map(|on| format!("  start before {} ({})", instant(on), relative(on, now))));
    lines.extend(attempt_lines(task));
    lines.extend(task.schedule.iter().map(|schedule| format!("  schedule     {}", schedule_words(schedule))));
    if task.crashes > 0 {
        lines.push(format!("  crashes      {} since the last success", task.crashes));
    }
    if !detail.rejected_by.is_empty() {
        lines.push(format!("  rejected by  {}", detail.rejected_by.join(", ")));
    }
    for HeldBack { claimant, until } in &detail.held_back {
        lines.push(format!("  held back    from {claimant} until {} ({})", instant(*until), relative(*until, now)));
    }
    if let Some(key) = &task.unique_key {
        let until = task.unique_until.map(|on| format!(" (at least until {})", instant(on))).unwrap_or_default();
        lines.push(format!("  unique       {key}{until}"));
    }
    lines.extend(task.limit_key.iter().map(|key| format!("  limit key    {key}")));
    lines.extend(task.tag.iter().map(|tag| format!("  tag          {tag}")));
    lines.extend(task.parent_id.map(|parent| format!("  parent       {parent}")));
    lines.extend(keep_lines(detail, now));
    if let Some(circle) = &detail.circle {
        lines.push(format!("  circle       {}: they wait for each other forever", id_circle_words(circle)));
    }
    lines.extend(linked_line("after", &detail.prerequisites));
    lines.extend(linked_line("before", &detail.dependants));
    lines.extend(command_lines(task, length));
    let mut text: Vec<String> = lines.iter().map(|line| described(line, out.width())).collect();
    text.push(clean_line(&format!("  data         {}", length.of_value(&task.data))));
    text.extend(task.meta.iter().map(|meta| clean_line(&format!("  meta         {}", length.of_value(meta)))));
    for (run, outputs) in &detail.runs {
        text.push(run_block(run, outputs, now, length, out.width()));
    }
    // The runs above show how each attempt ended.
    let is_told = |event: &&Event| !ATTEMPT_KINDS.contains(&event.kind.as_str());
    for event in detail.events.iter().filter(is_told) {
        let line = format!(
            "event {}   {}   {} on {}   {}",
            instant(event.occurred_on),
            event.kind,
            event.actor,
            event.host,
            length.of_value(&event_words(&event.details))
        );
        text.push(folded(clean_line(&line).trim_end(), out.width()));
    }
    text.extend(drawn(detail, now, out.width()));
    out.data(text.join("\n"))
}

/// Returns what a task of the class `exec` runs, and where. Nothing if its data cannot be read.
fn command_lines(task: &Task, length: Length) -> Vec<String> {
    if task.class.as_str() != EXEC_CLASS {
        return Vec::new();
    }
    let Ok(request) = ExecRequest::parse(&task.data) else { return Vec::new() };
    let command = request.command_line(shell_word);
    let directory = request.cwd.as_ref().map(|directory| format!("  directory    {}", directory.display()));
    [Some(format!("  command      {}", length.of_value(&command))), directory].into_iter().flatten().collect()
}

/// The kinds of events about the end of an attempt.
const ATTEMPT_KINDS: [&str; 2] = [AttemptOutcome::Retry.as_str(), AttemptOutcome::Failed.as_str()];

/// The column of the values.
const NAMES: usize = 15;

/// Formats a name and its value. JSON is not wrapped, because users copy it to edit it.
fn described(line: &str, width: Option<u16>) -> String {
    let line = clean_line(line);
    match line.split_at_checked(NAMES).filter(|_| line.starts_with("  ")) {
        Some((name, words)) => hanging(name, words, width),
        None => fitted_words(&line, width),
    }
}

/// Returns when a task is planned; for a finished task, without the distance from now.
fn scheduled_words(task: &Task, now: DateTime<Utc>) -> String {
    let planned = instant(task.scheduled_on);
    match task.next_attempt_on {
        _ if task.is_settled() => planned,
        None => format!("{planned} ({})", relative(task.scheduled_on, now)),
        Some(next) => format!("{planned}, next attempt {} ({})", instant(next), relative(next, now)),
    }
}

/// Returns lines about how long the task is kept, and its own period for results.
fn keep_lines(TaskDetail { task, kept_until, .. }: &TaskDetail, now: DateTime<Utc>) -> Vec<String> {
    let when = kept_until.map(|on| kept_words(on, now));
    let stated = |secs: Option<i32>, after: &str| {
        secs.map(|secs| if secs == 0 { FOREVER.to_owned() } else { format!("{secs}s after {after}") })
    };
    let kept = when.or_else(|| stated(task.keep_secs, "it finishes")).map(|words| format!("  kept         {words}"));
    let results =
        stated(task.keep_results_secs, "the end of each run").map(|words| format!("  results      kept {words}"));
    kept.into_iter().chain(results).collect()
}

/// Returns lines about the timeout and the backoff of a task that has its own.
fn attempt_lines(task: &Task) -> impl Iterator<Item = String> {
    let timeout = task.timeout_secs.map(|secs| format!("  timeout      {secs}s"));
    timeout.into_iter().chain(task.backoff.iter().map(|backoff| format!("  backoff      {}", backoff_words(backoff))))
}

/// Rows inserted by SQL can contain any text here.
fn backoff_words(backoff: &str) -> String {
    backoff.parse::<Backoff>().map_or_else(
        |_| format!("{backoff} (cannot be read: that of the class applies)"),
        |backoff| backoff.to_string(),
    )
}

fn schedule_words(schedule: &TaskSchedule) -> String {
    let planned = schedule.planned_on.map(|on| format!(", planned for {}", instant(on))).unwrap_or_default();
    let when = format!("{} in {}, catch-up {}", schedule.every, schedule.time_zone, schedule.catch_up);
    let problem = schedule.recurrence().err().map(|why| format!(" (cannot be read: {why})")).unwrap_or_default();
    let overlap = Some(&schedule.overlap).filter(|overlap| *overlap != Overlap::default().as_str());
    let overlap = overlap.map(|overlap| format!(", overlap {overlap}")).unwrap_or_default();
    format!("{} ({}): {when}{overlap}{planned}{problem}", schedule.id, schedule.status)
}

fn non_empty(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Formats a run and its output.
pub(crate) fn run_block(
    run: &Run,
    outputs: &[RunOutput],
    now: DateTime<Utc>,
    length: Length,
    width: Option<u16>,
) -> String {
    let mut lines =
        vec![format!("run {}   attempt {}   {}   {}%", run.id, run.attempt, run.status, run.percents_completed)];
    if let Some(started) = run.started_on {
        lines.push(format!(
            "  started      {} ({}) by {}",
            instant(started),
            relative(started, now),
            holder(run.claimant.as_deref(), run.process_id, &run.host)
        ));
        if let Some(finished) = run.finished_on {
            lines.push(format!("  finished     {} (took {})", instant(finished), distance(finished - started)));
        }
    }
    if let Some(msecs) = run.cpu_msecs {
        let memory = run.peak_memory_bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(HumanBytes);
        let memory = memory.map_or_else(|| "below that of its runner".to_owned(), |bytes| bytes.to_string());
        lines.push(format!(
            "  used         cpu {}, peak memory {memory}",
            short_distance(TimeDelta::milliseconds(msecs))
        ));
    }
    if let Some(deadline) = run.held_claim().and_then(|claim| claim.deadline) {
        lines.push(format!("  deadline     {} ({})", instant(deadline), relative(deadline, now)));
    }
    if !run.progress_message.is_empty() {
        lines.push(format!("  message      {}", length.of_value(&run.progress_message)));
    }
    if let Some(requested) = run.cancel_requested_on {
        lines.push(format!(
            "  stopping     since {} ({}): {}",
            instant(requested),
            relative(requested, now),
            run.cancel_reason
        ));
    }
    if !run.error_code.is_empty() {
        let error = error_words(&run.error_code, &length.of_value(&run.error_message));
        lines.push(format!("  error        {error}"));
    }
    if !run.decision.is_empty() {
        lines.push(format!("  decision     {}", run.decision));
    }
    let mut text: Vec<String> = lines.iter().map(|line| described(line, width)).collect();
    text.extend(run.results.iter().map(|results| clean_line(&format!("  results      {}", length.of_value(results)))));
    for output in outputs {
        text.push(format!("  {} ({} bytes)", output.stream, output.total_bytes));
        text.extend(clean_block(&length.of_value(&output.content)).lines().map(|line| format!("    {line}")));
    }
    text.join("\n")
}

/// Prints the run that has a token, and its task.
pub(crate) fn run_of_token(run: &Run, out: &mut Out) -> anyhow::Result<()> {
    let is_processing = run.status.is(RunStatus::Processing);
    let value = json!({
        "run_id": run.id, "task_id": run.task_id, "status": run.status, "is_processing": is_processing,
    });
    out.json_or(&value, format!("run {} of task {}: {}", run.id, run.task_id, run.status))
}

/// Prints runs of all tasks, for people.
pub(crate) fn runs(runs: &[Run], has_more: bool, now: DateTime<Utc>, out: &mut Out) -> anyhow::Result<()> {
    if runs.is_empty() {
        return out
            .data(fitted_words("No runs yet: `taskqueue create-runs` or `taskqueue tick` creates them.", out.width()));
    }
    let rows = runs.iter().map(|run| run_row(run, now)).collect();
    let header = ["RUN", "TASK", "CLASS", "ATTEMPT", "STATUS", "STARTED", "TOOK", "NOTE"];
    let mut page = render(out, &header, rows, &[3, 5, 6]);
    if has_more {
        page.add(fitted_words(MORE, out.width()));
    }
    out.data(page)
}

fn run_row(run: &Run, now: DateTime<Utc>) -> Vec<Field> {
    let tone = match &run.status {
        Stored::Known(RunStatus::Processing) => Tone::Good,
        Stored::Known(RunStatus::Scheduled) => Tone::Waiting,
        Stored::Known(RunStatus::Error | RunStatus::Timeout) | Stored::Unknown(_) => Tone::Bad,
        Stored::Known(RunStatus::Success | RunStatus::Cancelled | RunStatus::Released) => Tone::Quiet,
    };
    let took = run.started_on.map(|started| distance(run.finished_on.unwrap_or(now) - started)).unwrap_or_default();
    let note = if run.error_code.is_empty() {
        let deadline = run.held_claim().and_then(|claim| claim.deadline).map(|on| deadline_words(on, now));
        let parts = [Some(run.progress_message.clone()).filter(|message| !message.is_empty()), deadline];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    } else {
        error_words(&run.error_code, &run.error_message)
    };
    vec![
        run.id.to_string().into(),
        run.task_id.to_string().into(),
        run.class.as_str().into(),
        run.attempt.to_string().into(),
        Field::toned(run.status.to_string(), tone),
        run.started_on.map(|on| relative(on, now)).unwrap_or_default().into(),
        took.into(),
        note.into(),
    ]
}
