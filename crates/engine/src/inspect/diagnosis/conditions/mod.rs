//! Every condition that decides whether a task runs, in the order in which they are checked. Each is evaluated by the code that
//! enforces it. `status` shows the first unmet one, `explain` all of them. Changes nothing.

mod exhausted;
mod runners;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
pub(crate) use crate::inspect::diagnosis::reasons::Reason;
use crate::upkeep::create_runs::due_facts;
use taskqueue_domain::limits::lease::TwoClocks;
use taskqueue_domain::limits::limit::Obstacle;
use taskqueue_domain::run::due::DueCondition;
use taskqueue_domain::run::status::{RunStatus, Stored, TaskStatus};
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::records::{Run, Runner, Task};
use taskqueue_domain::text::error_words::error_words;
use taskqueue_domain::text::unreadable::Unreadable;
use taskqueue_store::{ClassHold, KeyUse};

/// How many prerequisites are named in the reason.
const NAMED_LIMIT: i64 = 3;

/// A condition for running a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionName {
    /// The runner or claimant that has its run is alive and has renewed its lease.
    RunIsHeld,
    /// Every column of its row can be read.
    RowIsReadable,
    /// No operator has paused its class, or everything.
    NotPaused,
    /// Its class has a handler on this host, or at a live runner.
    HasHandler,
    /// Its class is not held on this host.
    ClassNotHeld,
    /// Fewer runs of its class are in progress than the limit.
    ClassHasRoom,
    /// Fewer runs of its class have started than its rate allows.
    WithinRate,
    /// Its limit key has a free slot.
    KeyHasSlot,
    /// It has a run.
    HasRun,
    /// A live runner can take it now.
    RunnerIsFree,
    /// A condition of the due rule.
    #[serde(untagged)]
    Due(DueCondition),
}

/// A condition and whether it is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// The condition.
    pub condition: ConditionName,
    /// Whether it is met.
    pub is_met: bool,
    /// Why it is not met.
    pub why: Option<Reason>,
    /// When it is met on its own, or is checked again, if that is known.
    pub next_on: Option<DateTime<Utc>>,
}

impl Condition {
    fn new(condition: ConditionName, why: Option<Reason>) -> Self {
        let next_on = why.as_ref().and_then(Reason::next_on);
        Self { condition, is_met: why.is_none(), why, next_on }
    }
}

/// Evaluates the tasks at one moment. What they share is read once.
pub(crate) struct Inquiry<'a> {
    pub(crate) ctx: &'a mut Context,
    now: DateTime<Utc>,
    settings: Option<Settings>,
    obstacles: HashMap<String, Vec<Obstacle>>,
    /// Whether claimants execute runs of a class.
    claimed_classes: HashMap<String, bool>,
    holds: Option<Vec<ClassHold>>,
    runners: Option<Vec<Runner>>,
    /// The clocks for expired leases, once they were read; `Some(None)` while silence does not count.
    lease_clock: Option<Option<TwoClocks>>,
}

impl<'a> Inquiry<'a> {
    /// Creates an inquiry; `now` is the time of the database's clock.
    pub(crate) fn new(ctx: &'a mut Context, now: DateTime<Utc>) -> Self {
        let (obstacles, claimed_classes) = (HashMap::new(), HashMap::new());
        Self { ctx, now, settings: None, obstacles, claimed_classes, holds: None, runners: None, lease_clock: None }
    }

    /// Returns the first unmet condition; a task that meets all of them waits for a runner.
    pub(crate) fn reason_of(&mut self, task: &Task, last_run: Option<&Run>) -> EngineResult<Reason> {
        let unmet = self.conditions_of(task, last_run)?.into_iter().find_map(|condition| condition.why);
        Ok(unmet.unwrap_or(Reason::WaitsForRunner))
    }

    /// Returns all conditions of this task except the runner: the due rule until it has a run, the conditions for claiming runs
    /// of its class until it is in progress, and then whether its run is still held.
    pub(crate) fn conditions_of(&mut self, task: &Task, last_run: Option<&Run>) -> EngineResult<Vec<Condition>> {
        let facts = due_facts(task);
        let (mut conditions, mut is_due) = (Vec::new(), true);
        for condition in DueCondition::ALL {
            let is_met = condition.is_met(&facts, self.now);
            match condition {
                DueCondition::NotProcessing if !is_met => conditions.push(self.run_is_held(last_run)?),
                DueCondition::NoOpenRun if is_met => continue,
                // The following conditions were met when the run was created.
                DueCondition::NoOpenRun => break,
                _ => {}
            }
            let why = (!is_met).then(|| self.reason_for(condition, task, last_run)).transpose()?;
            conditions.push(Condition::new(ConditionName::Due(condition), why));
            // A finished task does not change, whatever the other conditions.
            if !is_met && task.is_settled() {
                return Ok(conditions);
            }
            is_due &= is_met;
        }
        if task.status.is(TaskStatus::Processing) || matches!(task.status, Stored::Unknown(_)) {
            return Ok(conditions);
        }
        if let Some(why) = unreadable(task) {
            conditions.push(Condition::new(ConditionName::RowIsReadable, Some(why)));
            return Ok(conditions);
        }
        self.add_claim_conditions(task, last_run, &mut conditions)?;
        if is_due {
            let why = (!facts.has_open_run).then_some(Reason::WaitsForCreateRuns);
            conditions.push(Condition::new(ConditionName::HasRun, why));
        }
        Ok(conditions)
    }

    /// Returns the reason of a task that does not meet a condition.
    fn reason_for(&mut self, unmet: DueCondition, task: &Task, last_run: Option<&Run>) -> EngineResult<Reason> {
        let error = || last_run.map(error_text).unwrap_or_default();
        Ok(match unmet {
            DueCondition::NotProcessing => Reason::Running {
                process_id: last_run.and_then(|run| run.process_id),
                host: last_run.map(|run| run.host.clone()).unwrap_or_default(),
                claimant: last_run.and_then(|run| run.claimant.clone()),
                deadline: last_run.and_then(Run::held_claim).and_then(|claim| claim.deadline),
            },
            DueCondition::NoOpenRun => Reason::WaitsForRunner,
            DueCondition::Due => {
                let has_failed = task.status.is(TaskStatus::Failed) || task.status.is(TaskStatus::Timeout);
                Reason::NotYet { on: task.due_from(), after_error: has_failed.then(error) }
            }
            DueCondition::DependenciesDone => Reason::WaitsForDependencies {
                count: task.waiting_for,
                on: self.ctx.store.list_prerequisites(task.id, true, NAMED_LIMIT)?,
            },
            DueCondition::IsPlanned => {
                Reason::NotPlanned { problem: task.schedule.as_ref().and_then(|schedule| schedule.recurrence().err()) }
            }
            DueCondition::ScheduleGoesOn => Reason::SchedulePaused,
            DueCondition::NotQuarantined => {
                unreadable(task).unwrap_or_else(|| Reason::Quarantined { crashes: task.crashes, error: error() })
            }
            DueCondition::RetryIsLeft => self.exhausted(task, last_run, error())?,
            DueCondition::NotSucceeded => Reason::Done,
            DueCondition::NotCancelled => Reason::Cancelled,
            DueCondition::NotExpired => Reason::Expired { on: task.start_before },
            DueCondition::StatusIsKnown => Reason::UnknownStatus,
        })
    }

    /// Adds the conditions that every claim checks; pauses of single runners do not count.
    fn add_claim_conditions(
        &mut self,
        task: &Task,
        last_run: Option<&Run>,
        conditions: &mut Vec<Condition>,
    ) -> EngineResult<()> {
        let obstacles = self.obstacles_to(task.class.as_str())?;
        let find = |reason: &dyn Fn(&Obstacle) -> Option<Reason>| obstacles.iter().find_map(reason);
        let paused = find(&|obstacle| match obstacle {
            Obstacle::Paused(pause) => Some(Reason::Paused { pause: pause.clone() }),
            _ => None,
        });
        let full = find(&|obstacle| match obstacle {
            Obstacle::MaxRunning(max_running) => Some(Reason::ClassIsFull { max_running: *max_running }),
            _ => None,
        });
        let over_rate = find(&|obstacle| match obstacle {
            Obstacle::Rate(rate, next_on) => Some(Reason::RateReached { rate: *rate, next_on: *next_on }),
            _ => None,
        });
        let unhandled = self.no_handler(task)?;
        let held = self.hold_of(task.class.as_str())?;
        let no_slot = self.key_is_full(last_run)?;
        conditions.extend([
            Condition::new(ConditionName::NotPaused, paused),
            Condition::new(ConditionName::HasHandler, unhandled),
            Condition::new(ConditionName::ClassNotHeld, held),
            Condition::new(ConditionName::ClassHasRoom, full),
            Condition::new(ConditionName::WithinRate, over_rate),
            Condition::new(ConditionName::KeyHasSlot, no_slot),
        ]);
        Ok(())
    }

    fn key_is_full(&mut self, last_run: Option<&Run>) -> EngineResult<Option<Reason>> {
        let waiting = last_run.filter(|run| run.status.is(RunStatus::Scheduled) && !run.has_key_slot);
        let Some(key) = waiting.and_then(|run| run.limit_key.clone()) else { return Ok(None) };
        let KeyUse { max_running, running, .. } = self.ctx.store.use_of_key(&key)?;
        let holders = self.ctx.store.list_key_holders(&key, NAMED_LIMIT)?;
        Ok(Some(Reason::KeyIsFull { key, max_running, running, holders }))
    }

    fn settings(&mut self) -> EngineResult<Settings> {
        if let Some(settings) = &self.settings {
            return Ok(settings.clone());
        }
        Ok(self.settings.insert(self.ctx.store.settings()?).clone())
    }

    fn obstacles_to(&mut self, class: &str) -> EngineResult<Vec<Obstacle>> {
        if let Some(obstacles) = self.obstacles.get(class) {
            return Ok(obstacles.clone());
        }
        let obstacles = self.ctx.store.list_obstacles(class, "")?;
        self.obstacles.insert(class.to_owned(), obstacles.clone());
        Ok(obstacles)
    }
}

/// Returns the first column of its row that cannot be read.
fn unreadable(task: &Task) -> Option<Reason> {
    let Unreadable { column, found, .. } = task.unreadable.first()?.clone();
    Some(Reason::Unreadable { column, found })
}

fn error_text(run: &Run) -> String {
    if run.status.is(RunStatus::Success) || run.error_code.is_empty() {
        return String::new();
    }
    error_words(&run.error_code, run.error_message.lines().next().unwrap_or_default())
}
