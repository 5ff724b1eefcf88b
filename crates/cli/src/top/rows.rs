//! The panes as rows of text, each row with the possible actions.

use chrono::{DateTime, Utc};

use crate::output::clean::clean_line;
use crate::output::table::Tone;
use taskqueue_domain::limits::pause::{Pause, PauseScope};
use taskqueue_domain::run::status::{ScheduleStatus, Stored};
use taskqueue_domain::task::ids::{RunnerId, TaskId};
use taskqueue_engine::inspect::status::{Counted, RunnerLine};
use taskqueue_engine::inspect::top::{ClassCounts, FailedTask, RunningLine, Schedule};
use taskqueue_views::human::{count, distance, relative};
use taskqueue_views::links::waits_for_key;
use taskqueue_views::words::pause_words::participle;
use taskqueue_views::words::why::final_words;

/// Text and its colour.
pub(super) type ScreenCell = (String, Tone);

/// A part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Runners,
    Running,
    Queues,
    Schedules,
    Failures,
}

impl Pane {
    pub(super) const ALL: [Self; 5] = [Self::Runners, Self::Running, Self::Queues, Self::Schedules, Self::Failures];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Runners => "Runners",
            Self::Running => "Running",
            Self::Queues => "Queues",
            Self::Schedules => "Schedules",
            Self::Failures => "Failures",
        }
    }

    /// Returns the text of an empty pane.
    pub(super) const fn if_none(self) -> &'static str {
        match self {
            Self::Runners => "no runner is alive",
            Self::Running => "nothing is running",
            Self::Queues => "nothing is waiting",
            Self::Schedules => "no schedules",
            Self::Failures => "nothing failed",
        }
    }

    pub(super) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Runners => RUNNERS,
            Self::Running => RUNNING,
            Self::Queues => QUEUES,
            Self::Schedules => SCHEDULES,
            Self::Failures => FAILURES,
        }
    }
}

/// The name of a column, and when it is left out: if there is too little room, the column with the highest number is left out
/// first; 0 is never left out. The last column of a pane takes the remaining width.
pub(super) type Column = (&'static str, u8);

const RUNNERS: &[Column] = &[("NAME", 0), ("STATE", 0), ("SLOTS", 1), ("HOST", 2), ("STARTED", 3), ("TASKS", 0)];
const RUNNING: &[Column] =
    &[("TASK", 0), ("CLASS", 0), ("FOR", 0), ("DONE", 1), ("ATTEMPT", 4), ("BY", 3), ("NOTE", 2)];
const QUEUES: &[Column] = &[("CLASS", 0), ("DUE", 0), ("WAITING", 0), ("RUNNING", 2), ("FAILED", 0), ("NOTE", 1)];
const SCHEDULES: &[Column] = &[("TASK", 0), ("CLASS", 0), ("EVERY", 2), ("STATUS", 0), ("NEXT", 1), ("NOTE", 3)];
const FAILURES: &[Column] = &[("TASK", 0), ("CLASS", 0), ("ERROR", 0), ("FAILED", 2), ("NEXT", 3), ("MESSAGE", 1)];

/// Identifies a row after it has moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowId {
    Runner(RunnerId),
    Task(TaskId),
    Class(String),
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct TopRow {
    pub(super) id: RowId,
    pub(super) task: Option<TaskId>,
    pub(super) class: Option<String>,
    pub(super) cells: Vec<ScreenCell>,
}

pub(super) fn runner(line: &RunnerLine, now: DateTime<Utc>) -> TopRow {
    let state = match (line.state, &line.pause) {
        ("dead", _) => ("dead", Tone::Waiting),
        ("silent", _) => ("silent", Tone::Waiting),
        (_, Some(pause)) => (participle(pause), Tone::Waiting),
        ("alive", None) => ("alive", Tone::Good),
        // On another host, whose processes cannot be checked from here.
        _ => ("elsewhere", Tone::Plain),
    };
    let works_on: Vec<String> = line
        .works_on
        .iter()
        .map(|work| format!("{} {}{}", work.task_id, work.class, percents(work.percents_completed, " ")))
        .collect();
    let only = <&[_; 1]>::try_from(line.works_on.as_slice()).ok().map(|[work]| work);
    TopRow {
        id: RowId::Runner(line.runner.id),
        task: only.map(|work| work.task_id),
        class: None,
        cells: vec![
            plain(&line.runner.name),
            (state.0.to_owned(), state.1),
            plain(&format!("{}/{}", line.works_on.len(), line.runner.slots)),
            plain(&line.runner.host),
            plain(&relative(line.runner.started_on, now)),
            (clean_line(&works_on.join(", ")), if works_on.is_empty() { Tone::Quiet } else { Tone::Good }),
        ],
    }
}

pub(super) fn run(line: &RunningLine, now: DateTime<Utc>) -> TopRow {
    let tone = if line.lost.is_some() { Tone::Waiting } else { Tone::Good };
    let note = match &line.lost {
        Some(why) => (clean_line(why), Tone::Waiting),
        None if line.is_to_end => ("stopping".to_owned(), Tone::Waiting),
        None => plain(&line.message),
    };
    let since = line.started_on.map(|on| distance(now - on)).unwrap_or_default();
    TopRow {
        id: RowId::Task(line.task_id),
        task: Some(line.task_id),
        class: Some(line.class.clone()),
        cells: vec![
            (line.task_id.to_string(), tone),
            plain(&line.class),
            plain(&since),
            plain(&percents(line.percents_completed, "")),
            plain(&line.attempt.to_string()),
            plain(line.claimant.as_ref().unwrap_or(&line.host)),
            note,
        ],
    }
}

fn percents(number: i32, before: &str) -> String {
    if number > 0 { format!("{before}{number}%") } else { String::new() }
}

pub(super) fn queue(class: &ClassCounts, pauses: &[Pause]) -> TopRow {
    let covers = |pause: &&Pause| !matches!(pause.scope, PauseScope::Runner(_)) && pause.scope.covers(&class.class, "");
    let note = pauses.iter().find(covers).map(|pause| match &pause.scope {
        PauseScope::All => format!("everything is {}", participle(pause)),
        _ => participle(pause).to_owned(),
    });
    let running = Counted { count: class.running, or_more: false };
    TopRow {
        id: RowId::Class(class.class.clone()),
        task: None,
        class: Some(class.class.clone()),
        cells: vec![
            plain(&class.class),
            number(class.due, Tone::Waiting),
            number(class.waiting, Tone::Plain),
            number(running, Tone::Good),
            number(class.failed, Tone::Bad),
            (note.unwrap_or_default(), Tone::Waiting),
        ],
    }
}

pub(super) fn schedule(line: &Schedule, now: DateTime<Utc>) -> TopRow {
    let tone = match &line.status {
        Stored::Known(ScheduleStatus::Active) => Tone::Good,
        Stored::Known(ScheduleStatus::Paused) => Tone::Waiting,
        Stored::Known(ScheduleStatus::Broken) | Stored::Unknown(_) => Tone::Bad,
        Stored::Known(ScheduleStatus::Followed | ScheduleStatus::Ended) => Tone::Quiet,
    };
    let note = line.problem.clone().or_else(|| line.key_holder.map(waits_for_key)).unwrap_or_default();
    TopRow {
        id: RowId::Task(line.task_id),
        task: Some(line.task_id),
        class: Some(line.class.clone()),
        cells: vec![
            plain(&line.task_id.to_string()),
            plain(&line.class),
            plain(&format!("{} {}", line.every, line.time_zone)),
            (clean_line(&line.status.to_string()), tone),
            plain(&line.planned_on.map(|on| relative(on, now)).unwrap_or_default()),
            plain(&note),
        ],
    }
}

fn number(counted: Counted, tone: Tone) -> ScreenCell {
    (count(counted), if counted.count > 0 { tone } else { Tone::Quiet })
}

pub(super) fn failure(task: &FailedTask, now: DateTime<Utc>) -> TopRow {
    TopRow {
        id: RowId::Task(task.task_id),
        task: Some(task.task_id),
        class: Some(task.class.clone()),
        cells: vec![
            (task.task_id.to_string(), Tone::Bad),
            plain(&task.class),
            (clean_line(&task.error_code), Tone::Bad),
            plain(&task.failed_on.map(|on| relative(on, now)).unwrap_or_default()),
            plain(final_words(task.why_final)),
            plain(task.error_message.lines().next().unwrap_or_default()),
        ],
    }
}

/// Returns true if a cell of the row contains this text, in upper or lower case.
pub(super) fn matches(row: &TopRow, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    row.cells.iter().any(|(text, _)| text.to_lowercase().contains(&filter))
}

/// Text from the database is cleaned.
fn plain(text: &str) -> ScreenCell {
    (clean_line(text), Tone::Plain)
}
