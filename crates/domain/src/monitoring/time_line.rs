//! The history of a task since it was queued, as segments of time.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::task::records::{Run, Task};

/// What happened during a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Stretch {
    /// It had no run: its time had not come, prerequisites had not succeeded, or `create-runs` had not run.
    WithoutRun,
    /// Its run waited for its turn: for a runner, or for a limit, a key or a pause to allow it.
    Waited,
    /// Its handler was running.
    Attempt {
        /// Number of the attempt.
        attempt: i32,
    },
}

/// A segment of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// What happened during the segment.
    #[serde(flatten)]
    pub what: Stretch,
    /// Its beginning.
    pub from: DateTime<Utc>,
    /// Its end: now for what is still in progress, the planned time for what is planned.
    pub to: DateTime<Utc>,
}

/// Returns the segments of a task in order, without gaps. `runs` are its newest runs, newest first. If `are_all`, they are all
/// its runs; otherwise the history begins with the oldest of them.
#[must_use]
pub fn time_line(task: &Task, runs: &[Run], are_all: bool, now: DateTime<Utc>) -> Vec<Segment> {
    let oldest = runs.last().map(|run| run.created_on);
    let begin = if are_all { task.queued_on } else { oldest.unwrap_or(task.queued_on) };
    let mut line = TimelineRow { segments: Vec::new(), end: begin };
    for run in runs.iter().rev() {
        line.add(Stretch::WithoutRun, run.created_on);
        line.add(Stretch::Waited, run.started_on.or(run.finished_on).unwrap_or(now));
        if run.started_on.is_some() {
            line.add(Stretch::Attempt { attempt: run.attempt }, run.finished_on.unwrap_or(now));
        }
    }
    if !task.is_settled() && task.current_run_id.is_none() {
        line.add(Stretch::WithoutRun, task.due_from().max(now));
    }
    line.segments
}

struct TimelineRow {
    segments: Vec<Segment>,
    end: DateTime<Utc>,
}

impl TimelineRow {
    /// Skips segments without length.
    fn add(&mut self, what: Stretch, to: DateTime<Utc>) {
        if to > self.end {
            self.segments.push(Segment { what, from: self.end, to });
            self.end = to;
        }
    }
}
