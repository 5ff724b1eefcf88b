//! What users may rely on about when and whether a task runs (I14 to I18).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::records::{Change, Records, Table};

const MICROS: i64 = 1_000_000;

/// Returns true if a run is created.
fn is_new_run(change: &Change) -> bool {
    change.table == Table::Run && change.old.is_empty()
}

/// Returns true if a run is started.
fn is_start(change: &Change) -> bool {
    // A worker starts a due task without a waiting run in between.
    change.table == Table::Run && matches!(change.old.as_str(), "" | "scheduled") && change.new == "processing"
}

/// I14: a cancelled task is not retried unless a user requests it, and a run whose end was requested has ended or succeeded.
pub fn what_is_cancelled_is_not_tried_again(records: &Records, found: &mut Vec<String>) {
    let mut cancelled: BTreeSet<i64> = BTreeSet::new();
    for change in records.audit.iter().filter(|change| !records.retried.contains(&change.task_id)) {
        let task = change.task_id;
        if change.table == Table::Task && change.new == "cancelled" {
            cancelled.insert(task);
        } else if change.table == Table::Task && cancelled.contains(&task) {
            found.push(format!("I14: task {task} was cancelled and is {} at change {}", change.new, change.at));
        }
        if (is_new_run(change) || is_start(change)) && cancelled.contains(&task) {
            found.push(format!(
                "I14: run {} of the cancelled task {task} is {} at change {}",
                change.id, change.new, change.at
            ));
        }
    }
    for run in records.runs.iter().filter(|run| run.is_to_end) {
        if !["success", "cancelled"].contains(&run.status.as_str()) {
            found.push(format!("I14: run {} was to be cancelled, and is {}", run.id, run.status));
        }
    }
}

/// I15: no task gets a run before its planned time.
pub fn nothing_runs_before_its_time(records: &Records, found: &mut Vec<String>) {
    let mut due: HashMap<i64, i64> = HashMap::new();
    for change in &records.audit {
        if change.table == Table::Task {
            due.insert(change.id, change.time);
        }
        let early = due.get(&change.task_id).map_or(0, |due| due - change.time);
        if is_new_run(change) && early > 0 {
            found.push(format!(
                "I15: run {} of task {} came {early} microseconds too early, at change {}",
                change.id, change.task_id, change.at
            ));
        }
    }
}

/// I16: in no period of the length of a rate do more runs of its class start than it allows.
pub fn starts_stay_within_their_rate(records: &Records, found: &mut Vec<String>) {
    let class_of: HashMap<i64, &str> = records.tasks.iter().map(|task| (task.id, task.class.as_str())).collect();
    let mut starts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for change in records.audit.iter().filter(|change| is_start(change)) {
        starts.entry(class_of.get(&change.task_id).copied().unwrap_or_default()).or_default().push(change.time);
    }
    for (class, times) in &mut starts {
        let Some((count, secs)) = records.class_rates.get(*class) else { continue };
        times.sort_unstable();
        let too_many = times.windows(count + 1).find(|window| window[*count] - window[0] < secs * MICROS);
        if let Some(window) = too_many {
            found.push(format!(
                "I16: {} runs of class {class} started in {} microseconds",
                window.len(),
                window[*count] - window[0]
            ));
        }
    }
}

/// I17: each planned time of a schedule is used once, and one task follows the other.
pub fn each_planned_time_happens_once(records: &Records, found: &mut Vec<String>) {
    let of_schedule: HashMap<i64, i64> =
        records.tasks.iter().filter(|task| task.schedule != 0).map(|task| (task.id, task.schedule)).collect();
    let mut times = BTreeSet::new();
    for task in records.tasks.iter().filter(|task| task.schedule != 0) {
        if !times.insert((task.schedule, &task.planned_on)) {
            found.push(format!("I17: schedule {} has the planned time {} twice", task.schedule, task.planned_on));
        }
    }
    let mut live: HashMap<i64, BTreeSet<i64>> = HashMap::new();
    for change in records.audit.iter().filter(|change| change.table == Table::Task) {
        // A user who restarts an earlier task wants it to run beside the newest.
        let Some(schedule) = of_schedule.get(&change.id).filter(|_| !records.retried.contains(&change.id)) else {
            continue;
        };
        let tasks = live.entry(*schedule).or_default();
        if ["success", "cancelled"].contains(&change.new.as_str()) {
            tasks.remove(&change.id);
        } else {
            tasks.insert(change.id);
        }
        if tasks.len() > 1 {
            found.push(format!("I17: the tasks {tasks:?} of schedule {schedule} are open at change {}", change.at));
        }
    }
}

/// I18: a command that begins after a pause and ends before the resume claims nothing that was paused.
pub fn nothing_is_claimed_while_it_is_paused(records: &Records, found: &mut Vec<String>) {
    let class_of: HashMap<i64, &str> = records.tasks.iter().map(|task| (task.id, task.class.as_str())).collect();
    let starts: HashMap<i64, i64> =
        records.audit.iter().filter(|change| is_start(change)).map(|change| (change.id, change.time)).collect();
    for pause in &records.pauses {
        // PIDs are reused: the run must have been claimed meanwhile, too.
        let is_claimed_then = |run: i64| starts.get(&run).is_some_and(|at| pause.micros.contains(at));
        let is_within = |pid: i64| {
            records.calls.iter().any(|call| call.pid == pid && call.began >= pause.from && call.ended <= pause.until)
        };
        let is_paused = |task: i64| pause.class.as_deref().is_none_or(|class| class_of.get(&task) == Some(&class));
        for run in records.runs.iter().filter(|run| run.process_id != 0 && is_paused(run.task_id)) {
            if is_within(run.process_id) && is_claimed_then(run.id) {
                found.push(format!("I18: run {} was claimed although {:?} was paused", run.id, pause.class));
            }
        }
    }
}
