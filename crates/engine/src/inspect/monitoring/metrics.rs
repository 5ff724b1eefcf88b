//! Numbers about the store for monitoring systems: tasks, runs and runners. Changes nothing.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
use crate::running::runner::register::{RunnerHealth, health_of};
use crate::running::runner::silence::SilenceLimit;
use taskqueue_domain::task::records::Runner;
pub use taskqueue_store::Counted;
use taskqueue_store::{TaskBacklog, WaitingRuns};

/// How many classes and hosts are reported separately, because each is a time series in the monitoring database.
pub(crate) const MOST_CLASSES: usize = 30;
const MOST_HOSTS: usize = 50;
/// The label of all others.
pub(crate) const OTHERS: &str = "other";

/// The store at one moment. Large counts are capped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreFacts {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// Tasks that are due and have no run, up to 100,000.
    pub due: Counted,
    /// Seconds for which the first of them has been due; 0 if there is none.
    pub oldest_due_secs: f64,
    /// Tasks that become due later by their time alone, up to 100,000.
    pub later: Counted,
    /// Tasks whose last attempt failed or timed out, up to 100,000 of each.
    pub failed: Counted,
    /// Quarantined tasks.
    pub quarantined: Counted,
    /// Tasks that finished in the last hour, by status, up to 100,000 of each.
    pub over: BTreeMap<&'static str, Counted>,
    /// Runs that wait for a slot of their limit key, up to 100,000.
    pub waiting_for_key: Counted,
    /// Classes with waiting runs or runs in progress.
    pub classes: BTreeMap<String, ClassFacts>,
    /// Runs whose runner is dead or silent.
    pub lost: usize,
    /// Runners that have not finished, by host.
    pub runners: Vec<RunnersOfHost>,
    /// Slots of the runners that have not finished.
    pub slots_in_use: i64,
    /// The limit of slots.
    pub slots_limit: i64,
    /// Pauses by scope: all, class, runner.
    pub pauses: BTreeMap<&'static str, i64>,
    /// Classes held on a host.
    pub held_classes: usize,
    /// Schedules by status.
    pub schedules: BTreeMap<String, i64>,
    /// Schedules whose time came more than a minute ago and which got no run.
    pub late_schedules: Counted,
}

/// Runs of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassFacts {
    /// Waiting runs, up to 10,000.
    pub waiting: Counted,
    /// Seconds since the next run to be claimed was created; 0 if none waits.
    pub next_waiting_secs: f64,
    /// Runs in progress.
    pub running: i64,
}

/// Runners of a host with the same health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunnersOfHost {
    /// The host.
    pub host: String,
    /// Their health.
    pub state: RunnerHealth,
    /// How many.
    pub runners: i64,
}

/// Reads the current numbers.
///
/// # Errors
/// Returns an error if the database fails.
pub fn look(ctx: &mut Context) -> EngineResult<StoreFacts> {
    // A frequent query must not use a plan that was made while the tables were small.
    ctx.store.prefer_lookups()?;
    let (now, settings) = (ctx.store.now()?, ctx.store.settings()?);
    let TaskBacklog { due, oldest_due_on, later, failed, quarantined, over } = ctx.store.count_backlog(now)?;
    let (waiting, other_waiting) = ctx.store.count_waiting_by_class(MOST_CLASSES)?;
    let running = ctx.store.count_running_by_class()?;
    let (schedules, late_schedules) = ctx.store.count_schedules(now)?;
    let registered = ctx.store.list_live_runners()?;
    let heard_since = now - TimeDelta::seconds(settings.lease.lease_secs);
    let limit = SilenceLimit::read(&mut ctx.store, settings.lease.lease_secs)?;
    let standing = |runner: &Runner| health_of(runner, heard_since, limit.as_ref());
    let mut pauses: BTreeMap<&'static str, i64> = BTreeMap::new();
    for pause in ctx.store.list_pauses()? {
        *pauses.entry(pause.scope.kind()).or_default() += 1;
    }
    Ok(StoreFacts {
        now,
        due,
        oldest_due_secs: oldest_due_on.map_or(0.0, |on| secs_between(on, now)),
        later,
        failed,
        quarantined,
        over: over.into_iter().map(|(status, count)| (status.as_str(), count)).collect(),
        waiting_for_key: ctx.store.count_waiting_for_keys()?,
        classes: by_class(waiting, other_waiting, running, now),
        slots_in_use: registered.iter().map(|runner| i64::from(runner.slots)).sum(),
        slots_limit: i64::from(settings.runner_limit),
        runners: by_host(registered.iter().map(|runner| (runner.host.as_str(), standing(runner)))),
        pauses,
        held_classes: ctx.store.list_class_holds()?.len(),
        schedules: schedules.into_iter().collect(),
        late_schedules,
        lost: Inquiry::new(ctx, now).lost_runs()?.len(),
    })
}

fn secs_between(earlier: DateTime<Utc>, later: DateTime<Utc>) -> f64 {
    (later - earlier).to_std().map_or(0.0, |between| between.as_secs_f64())
}

fn by_class(
    waiting: Vec<WaitingRuns>,
    other_waiting: Counted,
    running: impl IntoIterator<Item = (String, i64)>,
    now: DateTime<Utc>,
) -> BTreeMap<String, ClassFacts> {
    let mut classes: BTreeMap<String, ClassFacts> = BTreeMap::new();
    for WaitingRuns { class, waiting, next_created_on } in waiting {
        let next_waiting_secs = next_created_on.map_or(0.0, |on| secs_between(on, now));
        classes.insert(class, ClassFacts { waiting, next_waiting_secs, running: 0 });
    }
    for (class, count) in running {
        let is_told_apart = classes.contains_key(&class) || classes.len() < MOST_CLASSES;
        let name = if is_told_apart { class } else { OTHERS.to_owned() };
        classes.entry(name).or_default().running += count;
    }
    if other_waiting.count > 0 {
        let others = classes.entry(OTHERS.to_owned()).or_default();
        others.waiting.count += other_waiting.count;
        others.waiting.or_more |= other_waiting.or_more;
    }
    classes
}

fn by_host<'a>(runners: impl Iterator<Item = (&'a str, RunnerHealth)>) -> Vec<RunnersOfHost> {
    let mut counts: BTreeMap<&str, BTreeMap<RunnerHealth, i64>> = BTreeMap::new();
    for (host, state) in runners {
        let is_told_apart = counts.contains_key(host) || counts.len() < MOST_HOSTS;
        let name = if is_told_apart { host } else { OTHERS };
        *counts.entry(name).or_default().entry(state).or_default() += 1;
    }
    let of_host = |(host, states): (&str, BTreeMap<RunnerHealth, i64>)| {
        let host = host.to_owned();
        states.into_iter().map(move |(state, runners)| RunnersOfHost { host: host.clone(), state, runners })
    };
    counts.into_iter().flat_map(of_host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(class: &str, count: i64) -> WaitingRuns {
        WaitingRuns { class: class.to_owned(), waiting: Counted { count, or_more: false }, next_created_on: None }
    }

    #[test]
    fn classes_beyond_those_that_are_told_apart_are_counted_together() {
        let many = (0..MOST_CLASSES).map(|number| waiting(&format!("c{number:02}"), 1)).collect();
        let running = vec![("c00".to_owned(), 2), ("x".to_owned(), 3), ("y".to_owned(), 4)];
        let others = Counted { count: 5, or_more: true };
        let classes = by_class(many, others, running, DateTime::UNIX_EPOCH);
        assert_eq!(classes.len(), MOST_CLASSES + 1);
        assert_eq!((classes["c00"].waiting.count, classes["c00"].running), (1, 2));
        assert_eq!((classes[OTHERS].waiting, classes[OTHERS].running), (others, 7));
        let few = by_class(vec![waiting("a", 1)], Counted::default(), vec![("b".to_owned(), 1)], DateTime::UNIX_EPOCH);
        assert_eq!(few.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn runners_are_counted_by_host_and_by_how_they_stand() {
        use RunnerHealth::{Alive, Dead};
        let found = by_host([("one", Alive), ("two", Dead), ("one", Alive), ("one", Dead)].into_iter());
        let found: Vec<_> = found.iter().map(|group| (group.host.as_str(), group.state, group.runners)).collect();
        assert_eq!(found, [("one", Alive, 2), ("one", Dead, 1), ("two", Dead, 1)]);
        let hosts: Vec<String> = (0..MOST_HOSTS + 3).map(|number| format!("host-{number:03}")).collect();
        let found = by_host(hosts.iter().map(|host| (host.as_str(), Alive)));
        assert_eq!(found.len(), MOST_HOSTS + 1);
        assert!(found.iter().any(|group| group.host == OTHERS && group.runners == 3));
    }
}
