//! Runs and runners, as recorded by the database's own triggers (I2 to I5, I7).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::records::{Change, Records, RunRow, Table};

fn is_open(status: &str) -> bool {
    matches!(status, "scheduled" | "processing")
}

fn changes_of(records: &Records, table: Table) -> impl Iterator<Item = &Change> {
    records.audit.iter().filter(move |change| change.table == table)
}

/// I2: a task never has two open runs.
pub fn one_open_run_of_a_task(records: &Records, found: &mut Vec<String>) {
    let mut open: HashMap<i64, BTreeSet<i64>> = HashMap::new();
    for change in changes_of(records, Table::Run) {
        let runs = open.entry(change.task_id).or_default();
        if is_open(&change.new) {
            runs.insert(change.id);
        } else {
            runs.remove(&change.id);
        }
        if runs.len() > 1 && change.old.is_empty() {
            found.push(format!("I2: task {} has the open runs {runs:?} at change {}", change.task_id, change.at));
        }
    }
}

/// I3: a run gets an ended status once, and none after it; it is claimed once, and its token does not change.
pub fn a_run_ends_exactly_once(records: &Records, found: &mut Vec<String>) {
    let mut token: HashMap<i64, &str> = HashMap::new();
    for change in changes_of(records, Table::Run) {
        let run = change.id;
        match (change.old.as_str(), change.new.as_str()) {
            ("", "scheduled") | ("scheduled", "scheduled") => {}
            ("" | "scheduled", "processing") => {
                token.insert(run, &change.detail);
            }
            (old, new) if is_open(old) => {
                if token.get(&run).is_some_and(|token| *token != change.detail) {
                    found.push(format!("I3: run {run} changed its token at change {}", change.at));
                }
                if old == "processing" && new == "scheduled" {
                    found.push(format!("I3: run {run} went back to waiting at change {}", change.at));
                }
            }
            (old, new) => found.push(format!("I3: run {run} was {old} and became {new} at change {}", change.at)),
        }
    }
}

/// I4: the slots of open runners never exceed the limit.
pub fn runners_stay_within_the_limit(records: &Records, found: &mut Vec<String>) {
    let mut open: i64 = records.slots_before;
    for change in changes_of(records, Table::Runner) {
        let slots: i64 = change.detail.parse().unwrap_or(1);
        match (change.old.as_str(), change.new.as_str()) {
            ("", "open") => open += slots,
            ("open", "finished") => open -= slots,
            ("finished", "open") => found.push(format!("I4: runner {} came back at change {}", change.id, change.at)),
            _ => {}
        }
        if change.old.is_empty() && open > records.runner_limit {
            found.push(format!("I4: {open} slots of {} are taken at change {}", records.runner_limit, change.at));
        }
    }
}

/// How many runs of each class are in progress, from change to change.
struct Running<'a> {
    class_of_task: HashMap<i64, &'a str>,
    limits: &'a HashMap<String, i64>,
    count: HashMap<&'a str, i64>,
}

impl<'a> Running<'a> {
    fn new(records: &'a Records) -> Self {
        let class_of_task = records.tasks.iter().map(|task| (task.id, task.class.as_str())).collect();
        Self { class_of_task, limits: &records.class_limits, count: HashMap::new() }
    }

    fn class(&self, task_id: i64) -> &'a str {
        self.class_of_task.get(&task_id).copied().unwrap_or_default()
    }

    /// Returns by how much it exceeds the limit of its class.
    fn excess(&self, class: &str) -> Option<i64> {
        Some(self.count.get(class).copied().unwrap_or(0) - self.limits.get(class)?)
    }

    fn is_full(&self, class: &str) -> bool {
        self.excess(class).is_some_and(|excess| excess >= 0)
    }

    fn note(&mut self, change: &Change) {
        let class = self.class(change.task_id);
        let count = self.count.entry(class).or_default();
        *count += i64::from(change.new == "processing") - i64::from(change.old == "processing");
    }
}

/// How long a run may have waited that began to wait while a due task was started.
const A_MOMENT_MICROS: i64 = 1_000_000;

/// I5: no run is claimed while an earlier one waits, by priority and then by its place in the line, unless that one is blocked. The records do
/// not show whether a rate or a pause blocks it; within one class it does not matter. Starting a due task locks nothing, so a
/// run may begin to wait between the check and the start.
pub fn claims_are_first_in_first_out(records: &Records, found: &mut Vec<String>) {
    if records.is_order_free {
        return;
    }
    let mut places: HashMap<i64, (i64, i64)> = HashMap::new();
    let mut waiting: BTreeMap<((i64, i64), i64), &str> = BTreeMap::new();
    let mut running = Running::new(records);
    // The clock according to the rows, and its value when a run began to wait.
    let (mut clock, mut since) = (i64::MIN, HashMap::new());
    let may_be_closed = |class: &str| {
        records.class_rates.contains_key(class)
            || records.pauses.iter().any(|pause| pause.class.as_deref().is_none_or(|paused| paused == class))
    };
    for change in in_order_of_claims(records) {
        clock = clock.max(change.time);
        let place = places.remove(&change.id);
        let was_waiting = place.is_some();
        if let Some(rank) = place {
            waiting.remove(&(rank, change.id));
        }
        // A due task that is started comes after every waiting run.
        let place = place.or((change.old.is_empty() && change.new == "processing").then_some((i64::MAX, i64::MAX)));
        if let Some(rank) = place.filter(|_| change.new == "processing") {
            let class = running.class(change.task_id);
            let patience_micros = if change.old.is_empty() { A_MOMENT_MICROS } else { 0 };
            let came_meanwhile = |run: i64| since.get(&run).is_some_and(|since| change.time - since < patience_micros);
            let stands_before = |(_, run): &((i64, i64), i64), other: &str| {
                !came_meanwhile(*run)
                    && (other == class || !running.is_full(other) && !may_be_closed(other))
                    && !is_rejected(records, change.id, *run)
            };
            let first = waiting.range(..(rank, change.id)).find(|(place, other)| stands_before(place, other));
            if let Some(((_, first), _)) = first {
                found.push(format!(
                    "I5: run {} was claimed while run {first} waited, at change {}",
                    change.id, change.at
                ));
            }
        }
        if let Some(rank) = change.rank {
            places.insert(change.id, rank);
            if !was_waiting {
                since.insert(change.id, clock);
            }
            waiting.insert((rank, change.id), running.class(change.task_id));
        }
        running.note(change);
    }
}

/// Returns the changes of runs. Runs that a worker claims together have one time, and one statement writes them in any order;
/// here they are in the order of the claim.
fn in_order_of_claims(records: &Records) -> Vec<&Change> {
    let mut changes: Vec<&Change> = changes_of(records, Table::Run).collect();
    let ranks: HashMap<i64, (i64, i64)> = changes.iter().filter_map(|change| Some((change.id, change.rank?))).collect();
    let is_start = |change: &Change| change.old == "scheduled" && change.new == "processing";
    for at_once in changes.chunk_by_mut(|one, next| is_start(one) && is_start(next) && one.time == next.time) {
        at_once.sort_by_key(|change| (ranks.get(&change.id).copied().unwrap_or_default(), change.id));
    }
    changes
}

/// Returns true if the claimant of the first run has rejected the task of the other before.
fn is_rejected(records: &Records, claimed: i64, other: i64) -> bool {
    let run = |id: i64| records.runs.iter().find(|run| run.id == id);
    run(claimed)
        .zip(run(other))
        .is_some_and(|(claimed, other)| !claimed.claimant.is_empty() && records.had_rejected(other.task_id, claimed))
}

/// I10: a claimant never gets a task that it has rejected.
pub fn what_is_rejected_never_comes_back(records: &Records, found: &mut Vec<String>) {
    for run in records.runs.iter().filter(|run| !run.claimant.is_empty()) {
        if records.had_rejected(run.task_id, run) {
            found.push(format!(
                "I10: run {} of task {} went to {}, who has rejected it",
                run.id, run.task_id, run.claimant
            ));
        }
    }
}

/// I11: the runs of a class in progress never exceed its limit.
pub fn classes_stay_within_their_limits(records: &Records, found: &mut Vec<String>) {
    let mut running = Running::new(records);
    for change in changes_of(records, Table::Run) {
        running.note(change);
        let class = running.class(change.task_id);
        if change.new == "processing"
            && change.old != "processing"
            && running.excess(class).is_some_and(|excess| excess > 0)
        {
            found.push(format!("I11: run {} is one too many of class {class} at change {}", change.id, change.at));
        }
    }
}

/// I13: two runs with one limit key are never in progress.
pub fn keys_are_one_at_a_time(records: &Records, found: &mut Vec<String>) {
    let mut running: HashMap<&str, BTreeSet<i64>> = HashMap::new();
    for change in changes_of(records, Table::Run) {
        let Some(key) = records.limit_keys.get(&change.task_id) else { continue };
        let runs = running.entry(key).or_default();
        if change.new == "processing" {
            runs.insert(change.id);
        } else {
            runs.remove(&change.id);
        }
        if runs.len() > 1 && change.new == "processing" && change.old != "processing" {
            found.push(format!(
                "I13: the runs {runs:?} with the key {key} are processed at once at change {}",
                change.at
            ));
        }
    }
}

/// I20: a run that a worker had claimed ahead of its slots costs no attempt when the worker dies, and a run that it may have
/// begun does. After a restart of the machine nothing shows what was begun, so all runs may have been.
pub fn only_what_was_begun_counts(records: &Records, found: &mut Vec<String>) {
    let most_slots = records.most_slots();
    let mut lost: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let has_ended = |run: i64| records.effects.iter().any(|effect| effect.run_id == run && effect.exit_code.is_some());
    let is_lost = |run: &&RunRow| {
        run.error_code == "runner-died" && !run.decision.contains("machine was started again") && !has_ended(run.id)
    };
    for run in records.runs.iter().filter(is_lost) {
        lost.entry(&run.process_identity).or_default().push(run.id);
    }
    for (runner, runs) in lost.into_iter().filter(|(_, runs)| runs.len() > most_slots) {
        found.push(format!(
            "I20: the runner {runner} with at most {most_slots} slots died with the runs {runs:?} begun"
        ));
    }
    for run in records.runs.iter().filter(|run| run.error_code == "claimed-ahead") {
        if records.effects.iter().any(|effect| effect.run_id == run.id) {
            found.push(format!("I20: run {} was begun, and went back as one that was only claimed", run.id));
        }
    }
}

/// I7: a run is created, started and finished in this order.
pub fn times_are_in_order(records: &Records, found: &mut Vec<String>) {
    for run in &records.runs {
        let times: Vec<&String> = run.times.iter().filter(|time| !time.is_empty()).collect();
        if !times.is_sorted() {
            found.push(format!("I7: the times of run {} are out of order: {:?}", run.id, run.times));
        }
    }
}

/// I9: a task gets no run before all its prerequisites have succeeded.
pub fn none_before_its_prerequisites(records: &Records, found: &mut Vec<String>) {
    let mut prerequisites: HashMap<i64, Vec<i64>> = HashMap::new();
    for (task, prerequisite) in &records.dependencies {
        prerequisites.entry(*task).or_default().push(*prerequisite);
    }
    // Tasks from before the trial had finished.
    let mut open: BTreeSet<i64> = records.tasks.iter().map(|task| task.id).collect();
    for change in &records.audit {
        if change.table == Table::Task && change.new == "success" {
            open.remove(&change.id);
        }
        if change.table != Table::Run || !is_open(&change.new) {
            continue;
        }
        let missing: Vec<&i64> =
            prerequisites.get(&change.task_id).into_iter().flatten().filter(|id| open.contains(id)).collect();
        if !missing.is_empty() {
            found.push(format!(
                "I9: task {} has the run {} at change {}, before {missing:?} succeeded",
                change.task_id, change.id, change.at
            ));
        }
    }
}
