//! What became of a task from when it was queued on, stretch by stretch.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::task::records::{Run, Task};

/// What happened meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Stretch {
    /// It had no run: its time had not come, others were to succeed first, or `create-runs` had not come.
    WithoutRun,
    /// Its run waited for a runner.
    WaitedForRunner,
    /// Its handler was at work.
    Attempt {
        /// Number of the attempt.
        attempt: i32,
    },
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// What happened meanwhile.
    #[serde(flatten)]
    pub what: Stretch,
    /// Its beginning.
    pub from: DateTime<Utc>,
    /// Its end; the present for what goes on, and for what is planned the time for which it is.
    pub to: DateTime<Utc>,
}

/// The stretches of a task, one after the other, without a gap. `runs` are its newest, newest first, and all of them if
/// `are_all`; otherwise it begins with the oldest of these.
#[must_use]
pub fn time_line(task: &Task, runs: &[Run], are_all: bool, now: DateTime<Utc>) -> Vec<Segment> {
    let oldest = runs.last().map(|run| run.created_on);
    let begin = if are_all { task.queued_on } else { oldest.unwrap_or(task.queued_on) };
    let mut line = Line { segments: Vec::new(), end: begin };
    for run in runs.iter().rev() {
        line.add(Stretch::WithoutRun, run.created_on);
        line.add(Stretch::WaitedForRunner, run.started_on.or(run.finished_on).unwrap_or(now));
        if run.started_on.is_some() {
            line.add(Stretch::Attempt { attempt: run.attempt }, run.finished_on.unwrap_or(now));
        }
    }
    if !task.is_settled() && task.current_run_id.is_none() {
        line.add(Stretch::WithoutRun, task.due_from().max(now));
    }
    line.segments
}

struct Line {
    segments: Vec<Segment>,
    end: DateTime<Utc>,
}

impl Line {
    /// What lasted no time is left out.
    fn add(&mut self, what: Stretch, to: DateTime<Utc>) {
        if to > self.end {
            self.segments.push(Segment { what, from: self.end, to });
            self.end = to;
        }
    }
}
