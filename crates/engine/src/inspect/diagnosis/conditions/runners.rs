//! The conditions about runners: whether the owner of a run is alive, whether its class is executed here or on another host,
//! and whether a runner has a free slot for it.

use chrono::TimeDelta;

use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::{Condition, ConditionName, Inquiry, Reason};
use crate::running::runner::register::{RunnerHealth, health_of, liveness_of};
use crate::running::runner::silence::{SilenceLimit, both_clocks, step_seen_by};
use crate::upkeep::rescue::{Evidence, Verdict, evidence_against};
use taskqueue_domain::limits::pause::{Pause, PauseScope};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, Runner, Task};
use taskqueue_process::identities::identity::Liveness;

/// How many runs in progress are checked for lost ones.
const PROCESSING_LIMIT: i64 = 500;

impl Inquiry<'_> {
    pub(crate) fn run_is_held(&mut self, run: Option<&Run>) -> EngineResult<Condition> {
        Ok(Condition::new(ConditionName::RunIsHeld, self.why_lost(run)?))
    }

    /// Returns the lost runs among the first runs in progress, by task: their runner or claimant will not end them.
    pub(crate) fn lost_runs(&mut self) -> EngineResult<Vec<(TaskId, Reason)>> {
        let mut lost = Vec::new();
        for run in self.ctx.store.list_processing_runs(None, PROCESSING_LIMIT)? {
            lost.extend(self.why_lost(Some(&run))?.map(|why| (run.task_id, why)));
        }
        Ok(lost)
    }

    /// Returns why the owner of a run in progress will not end it, if so; the rescue uses the same rule.
    fn why_lost(&mut self, run: Option<&Run>) -> EngineResult<Option<Reason>> {
        let lease_secs = self.settings()?.lease.lease_secs;
        let clock = match self.lease_clock {
            Some(clock) => clock,
            None => {
                let counts = self.ctx.store.leases_count(lease_secs)?;
                let clock = counts.then(|| both_clocks(&mut self.ctx.store)).transpose()?;
                *self.lease_clock.insert(clock)
            }
        };
        let Some(run) = run.filter(|run| run.status.is(RunStatus::Processing)) else { return Ok(None) };
        Ok(match evidence_against(self.ctx, run, clock, lease_secs)? {
            Verdict::Guilty(Evidence { code, message, .. }) => Some(Reason::Lost { code, message }),
            Verdict::Innocent | Verdict::ClockSet(_) => None,
        })
    }

    pub(crate) fn no_handler(&mut self, task: &Task) -> EngineResult<Option<Reason>> {
        let class = task.class.as_str();
        if self.ctx.handlers.find_named(class).is_some() {
            return Ok(None);
        }
        let knows_it = |runner: &Runner| runner.classes.as_ref().is_some_and(|classes| classes.includes(class));
        let is_known_elsewhere = self.live_runners()?.iter().any(knows_it);
        if is_known_elsewhere {
            return Ok(None);
        }
        let rejected_by = self.ctx.store.list_rejections(task.id)?;
        let waits_for_claimant = !rejected_by.is_empty() || self.is_served_by_claimants(class)?;
        Ok(Some(if waits_for_claimant { Reason::WaitsForClaimant { rejected_by } } else { Reason::NoHandlerHere }))
    }

    fn is_served_by_claimants(&mut self, class: &str) -> EngineResult<bool> {
        if let Some(is_served) = self.claimed_classes.get(class) {
            return Ok(*is_served);
        }
        let is_served = self.ctx.store.is_newest_start_by_claimant(class)?;
        self.claimed_classes.insert(class.to_owned(), is_served);
        Ok(is_served)
    }

    /// Returns the hold of this host, unless a runner on another host can execute the class.
    pub(crate) fn hold_of(&mut self, class: &str) -> EngineResult<Option<Reason>> {
        let own_host = self.ctx.me.host.clone();
        let serves_elsewhere = |runner: &Runner| runner.host != own_host && serves(runner, class);
        if self.ctx.handlers.find_named(class).is_none() || self.live_runners()?.iter().any(serves_elsewhere) {
            return Ok(None);
        }
        if self.holds.is_none() {
            self.holds = Some(self.ctx.store.list_class_holds()?);
        }
        let hold = self.holds.iter().flatten().find(|hold| hold.class == class && hold.host == own_host);
        Ok(hold.map(|hold| Reason::ClassHeld { why: hold.reason.clone(), until: hold.held_until }))
    }

    /// Checks whether a runner can take this waiting run now.
    pub(crate) fn runner_is_free(&mut self, task: &Task, run_id: RunId) -> EngineResult<Condition> {
        let why = self.runner_obstacle(task.class.as_str(), run_id)?;
        Ok(Condition::new(ConditionName::RunnerIsFree, why))
    }

    fn runner_obstacle(&mut self, class: &str, run_id: RunId) -> EngineResult<Option<Reason>> {
        let limit = i64::from(self.settings()?.runner_limit);
        let live = self.live_runners()?.to_vec();
        let serving: Vec<&Runner> = live.iter().filter(|runner| serves(runner, class)).collect();
        if serving.is_empty() {
            let in_use = live.iter().map(|runner| i64::from(runner.slots)).sum();
            return Ok(Some(match live.len() {
                _ if in_use >= limit => Reason::RunnerLimitReached { in_use, limit },
                0 => Reason::NoRunner,
                runners => Reason::NoRunnerForClass { runners },
            }));
        }
        let pauses = self.ctx.store.list_pauses()?;
        let at_work: Vec<&&Runner> = serving.iter().filter(|runner| order_to(runner, &pauses).is_none()).collect();
        if at_work.is_empty() {
            let pause = serving.iter().find_map(|runner| order_to(runner, &pauses));
            return Ok(pause.map(|pause| Reason::RunnersPaused { pause: Box::new(pause.clone()) }));
        }
        let (counts, before) = (self.ctx.store.count_runs_of_runners()?, self.ctx.store.count_runs_before(run_id)?);
        let has_room = |runner: &&&Runner| counts.get(&runner.id).is_none_or(|count| *count < i64::from(runner.slots));
        if !at_work.iter().any(has_room) {
            let slots = at_work.iter().map(|runner| i64::from(runner.slots)).sum();
            return Ok(Some(Reason::RunnersBusy { slots, before }));
        }
        Ok((before.count > 0).then_some(Reason::WaitsItsTurn { before }))
    }

    /// Returns the runners whose process is alive on this host but which have not renewed their lease in time. Each comes with
    /// the seconds since its last renewal. Their slots stay taken.
    pub(crate) fn silent_runners(&mut self) -> EngineResult<Vec<(Runner, i64)>> {
        let lease_secs = self.settings()?.lease.lease_secs;
        let Some(limit) = SilenceLimit::read(&mut self.ctx.store, lease_secs)? else { return Ok(Vec::new()) };
        let of_this_host = |runner: &&Runner| liveness_of(&runner.process_identity) == Liveness::Alive;
        let silent = self.live_runners()?.iter().filter(of_this_host).filter_map(|runner| {
            let silent_secs = limit.silent_secs(runner, Liveness::Alive)?;
            Some((runner.clone(), silent_secs))
        });
        Ok(silent.collect())
    }

    /// Returns by how much the database's clock was set since a runner of this host renewed its lease: the largest step, with
    /// the name of the runner.
    pub(crate) fn clock_step(&mut self) -> EngineResult<Option<(String, TimeDelta)>> {
        let now = both_clocks(&mut self.ctx.store)?;
        let steps =
            self.live_runners()?.iter().filter_map(|runner| Some((runner.name.clone(), step_seen_by(runner, now)?)));
        Ok(steps.max_by_key(|(_, step)| step.abs()))
    }

    /// Returns the live runners, as far as this host can tell.
    pub(crate) fn live_runners(&mut self) -> EngineResult<&[Runner]> {
        if self.runners.is_none() {
            let lease = TimeDelta::seconds(self.settings()?.lease.lease_secs);
            let heard_since = self.now - lease;
            let mut runners = self.ctx.store.list_live_runners()?;
            runners.retain(|runner| health_of(runner, heard_since, None) == RunnerHealth::Alive);
            self.runners = Some(runners);
        }
        Ok(self.runners.as_deref().unwrap_or_default())
    }
}

/// Returns true if its row allows runs of this class; an empty column allows all.
fn serves(runner: &Runner, class: &str) -> bool {
    runner.classes.as_ref().is_none_or(|classes| classes.includes(class))
}

/// Returns the pause of this runner that prevents it from claiming anything.
fn order_to<'a>(runner: &Runner, pauses: &'a [Pause]) -> Option<&'a Pause> {
    let of_runner = |pause: &&Pause| matches!(pause.scope, PauseScope::Runner(_));
    pauses.iter().filter(of_runner).find(|pause| pause.scope.covers_runner(&runner.name))
}
