//! kill -9 at every labelled step of every command that changes something. A trial kills several commands one after the other,
//! in the store that earlier kills have left. Then clean ticks finish everything.

mod claimants;
pub mod scenarios;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use self::scenarios::{SCENARIOS, Scenario};
use super::campaign::{Campaign, Job};
use super::options::ENGINES;
use super::records::Fate;
use super::source_labels::{NOT_ON, all_labels};
use super::stage::Stage;

pub const CAMPAIGN: Campaign =
    Campaign { name: "kill-label", what: "kill -9 at every labelled step of every command", engines: &ENGINES, run };

/// Commands that are killed in one trial.
const KILLS: usize = 6;
/// How many trials use one store.
const TRIALS_PER_STORE: usize = 150;
/// How often a kill is tried: a step that depends on another thread may be missed.
const TRIES: usize = 8;
/// Kills for each label and engine in a sample.
const QUICK: usize = 1;
/// The minimum number of kills on each engine otherwise: four engines make more than 20,000.
const ALL: usize = 5_300;

/// How a label is reached: by which scenario, and how often.
pub type Ways = BTreeMap<String, Vec<(&'static Scenario, usize)>>;

/// The ways that one worker has found for all, by engine and by whether transitions are stored: then there are no batch
/// operations.
static KNOWN: Mutex<BTreeMap<(&str, bool), Ways>> = Mutex::new(BTreeMap::new());

fn run(job: &Job<'_>) {
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    let ways = ways(job, &mut stage);
    let labels: Vec<&String> = ways.keys().collect();
    let trials = |each: usize| (labels.len() * each).div_ceil(KILLS);
    let mut made = 0;
    for trial in job.trials(trials(QUICK), trials(ALL.div_ceil(labels.len()))) {
        made += 1;
        if made % TRIALS_PER_STORE == 0 {
            stage = job.stage().unwrap();
        }
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            for nth in 0..KILLS {
                // In turn, so that every label has its number of kills with any seed.
                let label = labels[(trial * KILLS + nth) % labels.len()];
                let kills = kill_at(stage, label, &ways[label], &mut rng);
                job.count(kills);
                if kills == 0 {
                    job.missed(trial, format!("no command reached {label} in {TRIES} tries"));
                }
            }
        });
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
}

/// Returns the ways. The first worker determines them, the others wait for it.
pub fn ways(job: &Job<'_>, stage: &mut Stage) -> Ways {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // With a seeded bug in the program, the ways are assumed to be the same until they fail.
    let key = (job.engine.name(), stage.keeps_transitions());
    if let Some(ways) = known.get(&key) {
        return ways.clone();
    }
    let ways = discover(stage);
    if !stage.keeps_transitions() {
        every_label_is_reached(job, &ways);
    }
    known.entry(key).or_insert(ways).clone()
}

/// Runs every scenario without a fault, to find which labels it reaches how often.
fn discover(stage: &mut Stage) -> Ways {
    let mut ways = Ways::new();
    stage.begin_trial();
    for scenario in SCENARIOS {
        let log = stage.home().join(format!("reached-{}", scenario.name));
        let call = scenario.run(stage, None, Some(&log));
        assert!(call.is_ok(), "{}: {call:?}", scenario.name);
        stage.settle();
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let mut hits: BTreeMap<&str, usize> = BTreeMap::new();
        for label in text.lines() {
            *hits.entry(label).or_default() += 1;
        }
        for (label, count) in hits {
            ways.entry(label.to_owned()).or_default().push((scenario, count));
        }
    }
    let found = stage.check();
    assert!(found.is_empty(), "without any fault: {found:?}");
    ways
}

fn every_label_is_reached(job: &Job<'_>, ways: &Ways) {
    let missed: Vec<String> = all_labels()
        .into_iter()
        .filter(|label| !ways.contains_key(label))
        .filter(|label| !NOT_ON.iter().any(|(name, engine)| name == label && *engine == job.engine))
        .collect();
    if missed.is_empty() {
        job.note(format!("{} labels", ways.len()));
    } else {
        job.missed(0, format!("no scenario reaches {missed:?}"));
    }
}

/// Returns how many commands died at the label: 1, or 0 if it was missed every time.
fn kill_at(stage: &Stage, label: &str, ways: &[(&'static Scenario, usize)], rng: &mut super::rng::Rng) -> usize {
    for attempt in 0..TRIES {
        let (scenario, hits) = rng.pick(ways);
        let hit = if attempt < TRIES / 2 { rng.below(*hits) + 1 } else { 1 };
        let call = scenario.run(stage, Some(&format!("{label}=kill@{hit}")), None);
        if matches!(call.fate, Fate::Killed(_)) {
            return 1;
        }
    }
    0
}
