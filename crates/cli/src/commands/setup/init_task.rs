//! The first task of a new store: `taskqueue init` queues it and runs it, to show that both work.

use std::time::Duration;

use serde::Serialize;

use crate::output::Out;
use crate::views::outcome::{say_failure, tell_asked_to_end};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::inspect::wait;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_one};
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::{Context, StopSignals, Stream};

/// The task and its outcome.
#[derive(Debug, Serialize)]
pub(crate) struct FirstTask {
    id: TaskId,
    /// Whether its handler succeeded.
    pub(crate) has_succeeded: bool,
    /// What its handler printed.
    output: String,
    /// Whether a signal came before it succeeded.
    #[serde(skip)]
    pub(crate) was_interrupted: bool,
}

/// Stores the output of the handler and the outcome of its run.
#[derive(Default)]
struct Keeper {
    output: Vec<u8>,
    outcome: Option<RunOutcome>,
}

impl RunListener for Keeper {
    fn stopping(&mut self, runs: &[RunId], _wait: Duration) {
        tell_asked_to_end(runs);
    }

    fn output(&mut self, _stream: Stream, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    fn ended(&mut self, _run: &ClaimedRun, outcome: &RunOutcome) {
        self.outcome = Some(outcome.clone());
    }
}

/// Queues a task with this data, and runs it in this process.
pub(crate) fn run_first(ctx: &mut Context, class: &str, data: &str, out: &mut Out) -> anyhow::Result<FirstTask> {
    let queued_by = ctx.me.user.clone();
    let request =
        TaskRequest { class: class.to_owned(), data: Some(data.to_owned()), queued_by, ..TaskRequest::default() };
    let (queued, _) = queue_one(ctx, request, ClassCheck::KnownHere)?;
    let mut keeper = Keeper::default();
    let stop = StopSignals::install()?;
    wait::run_here(ctx, queued.id, &stop, &mut keeper, &mut |_| {})?;
    let event = keeper.outcome.as_ref().map(|outcome| outcome.decision.event);
    let has_succeeded = event == Some(RunEvent::Succeed);
    let first = FirstTask {
        id: queued.id,
        has_succeeded,
        was_interrupted: stop.is_stopping() && !has_succeeded,
        output: String::from_utf8_lossy(&keeper.output).into_owned(),
    };
    if first.has_succeeded {
        out.say(&format!("task {} of class {class} has run; it printed: {}", first.id, first.output.trim_end()));
    } else if let Some(outcome) = &keeper.outcome {
        say_failure(outcome, class, first.id, out);
    } else {
        out.say(&format!("task {} stays queued", first.id));
    }
    Ok(first)
}
