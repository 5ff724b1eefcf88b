//! The events of a worker.

use std::time::Duration;

use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::EngineError;
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::work::WorkListener;

/// Something that happened to a worker or to one of its runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerEvent<'a> {
    /// The worker was registered as a runner, for the first time or again after it had lost its slots together with the
    /// database.
    Registered(RunnerId),
    /// The setting TaskQueueRunnerLimit leaves no slot; the worker waits.
    WaitsForSlots {
        /// The slots in use.
        in_use: i64,
        /// The limit.
        limit: i64,
    },
    /// It runs with fewer slots than requested.
    FewerSlots {
        /// The requested slots.
        wanted: usize,
        /// Its actual slots.
        slots: usize,
        /// Why.
        why: &'a str,
    },
    /// A handler could not be started because processes, memory or descriptors were exhausted. Its run was released at no cost.
    LacksRoom {
        /// What was missing.
        why: &'a str,
        /// How many runs the worker executes at once for now.
        slots: usize,
    },
    /// A handler did not end when asked to. The end of its run is recorded, and its thread is left behind.
    LeftBehind {
        /// The task.
        task_id: TaskId,
        /// The run.
        run_id: RunId,
        /// The task class.
        class: &'a str,
        /// Threads that were left behind and have not ended.
        threads: usize,
        /// At this number, the worker claims nothing more.
        most: usize,
    },
    /// So many threads were left behind that the worker claims nothing more until one of them has ended.
    ClaimsNothing {
        /// Threads that were left behind and have not ended.
        threads: usize,
    },
    /// One of those threads has ended: the worker claims again.
    ClaimsAgain,
    /// A run was claimed, and starts when a slot is free.
    RunClaimed {
        /// The task.
        task_id: TaskId,
        /// The run.
        run_id: RunId,
        /// The task class.
        class: &'a str,
    },
    /// A run has ended, and the end is recorded.
    RunEnded(EndedRun<'a>),
    /// A run has ended, and the database refuses to record it. The outcome stays in the spool for the next process on this
    /// host.
    RunNotRecorded {
        /// The task.
        task_id: TaskId,
        /// The run.
        run_id: RunId,
        /// The error of the database.
        problem: &'a str,
    },
    /// The database is unreachable; the value is the error. The worker retries, and reports each failed attempt.
    DatabaseLost(&'a str),
    /// The worker was asked to stop, and waits for these runs.
    Stopping(&'a [RunId]),
}

/// A run that a worker has executed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndedRun<'a> {
    /// The task.
    pub task_id: TaskId,
    /// The run.
    pub run_id: RunId,
    /// The task class.
    pub class: &'a str,
    /// 1 for the first attempt.
    pub attempt: i32,
    /// How it ended; `cancelled` if that was requested and it did not succeed.
    pub status: RunStatus,
    /// What the end means for the task: whether it is retried.
    pub outcome: AttemptOutcome,
    /// Empty on success.
    pub error_code: &'a str,
    /// Empty on success.
    pub error_message: &'a str,
    /// The status of the run if another process ended it first; the outcome is then only kept as an event.
    pub lost_to: Option<&'a str>,
}

/// The callback for events.
pub(crate) type OnEvent = Box<dyn FnMut(WorkerEvent<'_>) + Send>;

/// Passes on the notifications of the engine.
pub(crate) struct EventForwarder {
    pub(crate) on_event: OnEvent,
}

impl RunListener for EventForwarder {
    fn stopping(&mut self, runs: &[RunId], _wait: Duration) {
        (self.on_event)(WorkerEvent::Stopping(runs));
    }

    fn claimed(&mut self, run: &ClaimedRun) {
        (self.on_event)(WorkerEvent::RunClaimed { task_id: run.task_id, run_id: run.run_id, class: &run.class });
    }

    fn lacks_room(&mut self, why: &str, slots: usize) {
        (self.on_event)(WorkerEvent::LacksRoom { why, slots });
    }

    fn left_behind(&mut self, run: &ClaimedRun, threads: usize, most: usize) {
        let (task_id, run_id, class) = (run.task_id, run.run_id, run.class.as_str());
        (self.on_event)(WorkerEvent::LeftBehind { task_id, run_id, class, threads, most });
    }

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        (self.on_event)(WorkerEvent::RunEnded(EndedRun {
            task_id: run.task_id,
            run_id: run.run_id,
            class: &run.class,
            attempt: run.attempt,
            status: status_of(outcome.decision.event),
            outcome: outcome.outcome(),
            error_code: &outcome.decision.error_code,
            error_message: &outcome.decision.error_message,
            lost_to: outcome.lost_to.as_deref(),
        }));
    }
}

impl WorkListener for EventForwarder {
    fn has_fewer_slots(&mut self, wanted: usize, slots: usize, why: &str) {
        (self.on_event)(WorkerEvent::FewerSlots { wanted, slots, why });
    }

    fn waits_for_slots(&mut self, in_use: i64, limit: i64) {
        (self.on_event)(WorkerEvent::WaitsForSlots { in_use, limit });
    }

    fn lost_database(&mut self, problem: &EngineError) {
        (self.on_event)(WorkerEvent::DatabaseLost(&problem.to_string()));
    }

    fn is_blocked(&mut self, threads: usize) {
        (self.on_event)(WorkerEvent::ClaimsNothing { threads });
    }

    fn claims_again(&mut self) {
        (self.on_event)(WorkerEvent::ClaimsAgain);
    }

    fn not_recorded(&mut self, run: &ClaimedRun, problem: &EngineError) {
        let problem = problem.to_string();
        (self.on_event)(WorkerEvent::RunNotRecorded { task_id: run.task_id, run_id: run.run_id, problem: &problem });
    }

    fn registered(&mut self, runner_id: RunnerId) {
        (self.on_event)(WorkerEvent::Registered(runner_id));
    }
}

fn status_of(event: RunEvent) -> RunStatus {
    run_after(RunStatus::Processing, event).unwrap_or(RunStatus::Released)
}
