//! Counters of a worker, for monitoring. The coordinator updates them once per batch; readers get a copy.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::inspect::monitoring::counted::{CountedRun, Unanswered};
use crate::inspect::monitoring::metrics::{MOST_CLASSES, OTHERS};
use taskqueue_domain::monitoring::histogram::Histogram;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_host::clock::Moment;

/// How many unanswered outcomes are remembered.
const MOST_UNANSWERED: usize = 10_000;

/// Counts from its creation.
#[derive(Debug)]
pub struct Tally {
    began: Moment,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// In order of first use: there are few, so that a linear search is fastest.
    classes: Vec<(String, ClassTally)>,
    /// All other counters.
    facts: WorkerFacts,
    is_blocked: bool,
    /// When the coordinator last had a turn, as the time since the creation.
    turned: Duration,
    /// Not counted yet.
    unanswered: Vec<Unanswered>,
}

/// The counters of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassTally {
    /// Claimed runs.
    pub claimed: u64,
    /// How long after they were due they were claimed, as far as that is known.
    pub waits: Histogram,
    /// Ended runs, by outcome.
    pub ended: BTreeMap<&'static str, u64>,
    /// How long their handlers took.
    pub durations: Histogram,
    /// Processor time of their programs, in milliseconds.
    pub cpu_msecs: u64,
}

/// The counters and the state of a worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerFacts {
    /// Its runs by class.
    pub classes: BTreeMap<String, ClassTally>,
    /// How long writing a batch of outcomes took.
    pub commits: Histogram,
    /// How often it has renewed its leases.
    pub renewals: u64,
    /// The largest number of runs at once.
    pub slots: usize,
    /// Slots that execute a run.
    pub working: usize,
    /// Whether the database was unreachable at the last attempt.
    pub is_away: bool,
    /// Threads of handlers that did not end and were left behind.
    pub left_behind: usize,
    /// Its resident memory.
    pub memory_bytes: Option<u64>,
    /// When it started by the database's clock, in seconds since 1970.
    pub began_secs: Option<i64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { began: Moment::now(), counts: Mutex::default() }
    }
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of slots.
    pub(crate) fn set_slots(&self, slots: usize) {
        self.counts().facts.slots = slots;
    }

    /// Counts claimed runs of these classes, each with the time for which it waited, if that is known.
    pub(crate) fn claimed<'a>(&self, runs: impl IntoIterator<Item = (&'a str, Option<Duration>)>) {
        let mut counts = self.counts();
        for (class, waited) in runs {
            let of_class = counts.of_class(class);
            of_class.claimed += 1;
            if let Some(waited) = waited {
                of_class.waits.observe(waited);
            }
        }
    }

    /// Counts runs that have ended.
    pub(crate) fn ended<'a>(&self, runs: impl IntoIterator<Item = CountedRun<'a>>) {
        let mut counts = self.counts();
        for CountedRun { class, outcome, took, cpu_msecs } in runs {
            let of_class = counts.of_class(class);
            *of_class.ended.entry(outcome).or_default() += 1;
            if let Some(took) = took {
                of_class.durations.observe(took);
            }
            of_class.cpu_msecs += cpu_msecs.and_then(|msecs| u64::try_from(msecs).ok()).unwrap_or(0);
        }
    }

    /// Adds runs that are counted when the store has an answer.
    pub(crate) fn add_unanswered(&self, ends: impl IntoIterator<Item = Unanswered>) {
        let unanswered = &mut self.counts().unanswered;
        unanswered.extend(ends);
        // In case no process ever ends them.
        unanswered.truncate(MOST_UNANSWERED);
    }

    /// Takes all of these; the caller must count them.
    pub(crate) fn take_unanswered(&self) -> Vec<Unanswered> {
        std::mem::take(&mut self.counts().unanswered)
    }

    /// Counts a batch of outcomes that took this long to write.
    pub(crate) fn committed(&self, took: Duration) {
        self.counts().facts.commits.observe(took);
    }

    /// Adds to the number of renewals.
    pub(crate) fn renewed(&self, times: u64) {
        self.counts().facts.renewals += times;
    }

    /// Sets whether the database is unreachable.
    pub(crate) fn note_away(&self, is_away: bool) {
        self.counts().facts.is_away = is_away;
    }

    /// Sets how many threads were left behind, and whether nothing is claimed because of that.
    pub(crate) fn note_left_behind(&self, threads: usize, is_blocked: bool) {
        let mut counts = self.counts();
        (counts.facts.left_behind, counts.is_blocked) = (threads, is_blocked);
    }

    /// Returns true if nothing is claimed because of threads that were left behind.
    pub(crate) fn is_blocked(&self) -> bool {
        self.counts().is_blocked
    }

    /// Records a turn of the coordinator, with the number of slots that execute a run.
    pub(crate) fn turned(&self, working: usize) {
        let mut counts = self.counts();
        (counts.facts.working, counts.turned) = (working, self.age());
    }

    /// Returns the time since the creation.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time since the last turn of the coordinator.
    pub(crate) fn stands_still_for(&self) -> Duration {
        self.age().saturating_sub(self.counts().turned)
    }

    /// Returns true if the database was unreachable at the last attempt.
    pub(crate) fn was_away(&self) -> bool {
        self.counts().facts.is_away
    }

    /// Returns a copy of all counters.
    #[must_use]
    pub fn facts(&self) -> WorkerFacts {
        let counts = self.counts();
        WorkerFacts { classes: counts.classes.iter().cloned().collect(), ..counts.facts.clone() }
    }
}

impl Counts {
    /// Returns the counters of a class; above a number of classes, those of all others.
    fn of_class(&mut self, class: &str) -> &mut ClassTally {
        let find = |classes: &[(String, ClassTally)], wanted: &str| classes.iter().position(|(name, _)| name == wanted);
        let name = match find(&self.classes, class) {
            None if self.classes.len() >= MOST_CLASSES => OTHERS,
            _ => class,
        };
        let place = find(&self.classes, name).unwrap_or_else(|| {
            // Each series starts at 0: a query for the increase of a series ignores its first value.
            let none = [RunStatus::Success, RunStatus::Error, RunStatus::Timeout].map(|status| (status.as_str(), 0));
            self.classes.push((name.to_owned(), ClassTally { ended: none.into(), ..ClassTally::default() }));
            self.classes.len() - 1
        });
        &mut self.classes[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::monitoring::counted::outcome_of;
    use taskqueue_domain::run::transition::RunEvent;
    use taskqueue_store::EndResult;

    #[test]
    fn runs_are_counted_by_class_and_by_how_they_ended() {
        let tally = Tally::default();
        let took = Some(Duration::from_millis(3));
        tally.claimed([("a", took), ("b", None), ("a", took)]);
        tally.ended([
            CountedRun {
                class: "a",
                outcome: outcome_of(RunEvent::Succeed, &EndResult::Recorded),
                took,
                cpu_msecs: Some(2),
            },
            CountedRun {
                class: "a",
                outcome: outcome_of(RunEvent::Fail, &EndResult::Recorded),
                took,
                cpu_msecs: Some(3),
            },
            CountedRun {
                class: "b",
                outcome: outcome_of(RunEvent::Release, &EndResult::Recorded),
                took: None,
                cpu_msecs: None,
            },
        ]);
        let facts = tally.facts();
        assert_eq!((facts.classes["a"].claimed, facts.classes["b"].claimed), (2, 1));
        assert_eq!(facts.classes["a"].ended, BTreeMap::from([("success", 1), ("error", 1), ("timeout", 0)]));
        assert_eq!((facts.classes["a"].durations.count(), facts.classes["b"].durations.count()), (2, 0));
        assert_eq!((facts.classes["a"].waits.count(), facts.classes["b"].waits.count()), (2, 0));
        assert_eq!((facts.classes["a"].cpu_msecs, facts.classes["b"].cpu_msecs), (5, 0));
        assert_eq!(
            facts.classes["b"].ended,
            BTreeMap::from([("success", 0), ("error", 0), ("timeout", 0), ("released", 1)])
        );
    }

    #[test]
    fn beyond_so_many_classes_all_others_are_one() {
        let tally = Tally::default();
        for number in 0..MOST_CLASSES + 2 {
            tally.claimed([(format!("class{number}").as_str(), None)]);
        }
        tally.claimed([("class0", None)]);
        let facts = tally.facts();
        assert_eq!((facts.classes.len(), facts.classes[OTHERS].claimed), (MOST_CLASSES + 1, 2));
        assert_eq!(facts.classes["class0"].claimed, 2);
    }
}
