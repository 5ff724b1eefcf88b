//! Tasks: none is lost or duplicated, each has finished, and each agrees with its runs (I1, I7).

use std::collections::{BTreeSet, HashMap};

use crate::records::{Fate, Records, Table, TaskRow};

/// I1: a caller's answer is true, and what has no answer happened once or not at all.
pub fn nothing_acknowledged_is_lost(records: &Records, found: &mut Vec<String>) {
    for call in &records.calls {
        let Some((marker, count)) = &call.queues else {
            // For a task with a key, whichever caller queued it first.
            let missing = |id: &&i64| !records.tasks.iter().any(|task| task.id == **id);
            let is_queue = call.args.first().is_some_and(|verb| verb == "queue") && call.fate == Fate::Exited(0);
            if let Some(id) = call.ids.iter().find(missing).filter(|_| is_queue) {
                found.push(format!("I1: {:?} printed the id {id}, and there is no such task", call.args));
            }
            continue;
        };
        // The later tasks of a schedule have the data of the first.
        let is_queued = |task: &&TaskRow| task.data.contains(marker) && [0, task.id].contains(&task.schedule);
        let queued: Vec<i64> = records.tasks.iter().filter(is_queued).map(|task| task.id).collect();
        let is_right = match &call.fate {
            Fate::Exited(0) => queued == call.ids && queued.len() == *count,
            Fate::Exited(_) if !records.may_fail => queued.is_empty(),
            // Without an answer: all or nothing, and never twice.
            _ => queued.is_empty() || queued.len() == *count,
        };
        if !is_right {
            found.push(format!(
                "I1: {:?} of {count} tasks {:?}: it printed {:?}, the store has {queued:?}",
                call.args, call.fate, call.ids
            ));
        }
    }
}

/// I1: in the end every task has succeeded, is exhausted if its handler fails by design, or was cancelled.
pub fn every_task_came_to_its_end(records: &Records, found: &mut Vec<String>) {
    for task in records.tasks.iter().filter(|task| !task.is_planned() || task.current_run.is_some()) {
        let fails = records.failing_classes.contains(&task.class);
        let is_cancelled = task.status == "cancelled" && records.cancelled.contains(&task.id);
        let is_exhausted =
            ["failed", "timeout"].contains(&task.status.as_str()) && task.failed_retries >= task.max_retries;
        if !(task.status == "success" && !fails || fails && is_exhausted || is_cancelled) || task.current_run.is_some()
        {
            found.push(format!("I1: task {} did not come to its end: {task:?}", task.id));
        }
    }
}

/// I1: every final failure is reported.
pub fn somebody_is_told_of_what_is_given_up(records: &Records, found: &mut Vec<String>) {
    for task in &records.tasks {
        let is_exhausted =
            ["failed", "timeout"].contains(&task.status.as_str()) && task.failed_retries >= task.max_retries;
        if is_exhausted && !records.told.contains(&task.id) {
            found.push(format!("I1: nobody was told that task {} is exhausted", task.id));
        }
    }
}

/// I1: a schedule continues, with one task at a time.
pub fn every_schedule_has_one_head(records: &Records, found: &mut Vec<String>) {
    let schedules: BTreeSet<i64> = records.tasks.iter().map(|task| task.schedule).filter(|id| *id != 0).collect();
    for schedule in schedules {
        let tasks: Vec<_> = records.tasks.iter().filter(|task| task.schedule == schedule).collect();
        if tasks.iter().filter(|task| !task.head.is_empty()).count() != 1 {
            found.push(format!("I1: schedule {schedule} has not one newest task: {tasks:?}"));
        }
    }
}

/// I7: Attempts and FailedRetries agree with the runs.
pub fn tasks_agree_with_their_runs(records: &Records, found: &mut Vec<String>) {
    let by_task = records.runs_by_task();
    for task in &records.tasks {
        let runs = by_task.get(&task.id).map(Vec::as_slice).unwrap_or_default();
        let counted: Vec<&str> = runs
            .iter()
            .map(|run| run.status.as_str())
            .filter(|status| !["released", "scheduled", "processing"].contains(status))
            .collect();
        let failures = counted.iter().rev().take_while(|status| **status != "success");
        let failed = failures.filter(|status| **status != "cancelled").count();
        let last = match counted.last().copied() {
            // A cancel does not revoke a success; a retried task may have been cancelled later.
            Some("success") if !records.retried.contains(&task.id) => "success",
            // A waiting task, without a run or between two: its last run may have ended in any other way.
            _ if task.status == "cancelled" && records.cancelled.contains(&task.id) => "cancelled",
            Some("error") => "failed",
            None => "scheduled",
            Some(same) => same,
        };
        let counted = i64::try_from(counted.len()).unwrap();
        // After a retry only later failures count, and no run shows when that was.
        let is_retried = records.retried.contains(&task.id);
        let failed = if is_retried { task.failed_retries } else { i64::try_from(failed).unwrap() };
        if (task.attempts, task.failed_retries, task.status.as_str()) != (counted, failed, last) {
            found.push(format!(
                "I7: task {} says {} attempts, {} failed retries, {}; its runs say {counted}, {failed}, {last}",
                task.id, task.attempts, task.failed_retries, task.status
            ));
        }
        // A released run is retried under the same attempt number.
        let mut expected = 1;
        for run in runs {
            if run.attempt != expected {
                found.push(format!("I7: run {} is attempt {}, not {expected}", run.id, run.attempt));
            }
            expected += i64::from(run.status != "released");
        }
    }
    let known: Vec<i64> = records.tasks.iter().map(|task| task.id).collect();
    for run in records.runs.iter().filter(|run| !known.contains(&run.task_id)) {
        found.push(format!("I7: run {} belongs to no task", run.id));
    }
}

/// I8: no caller gets an error without a cause.
pub fn no_caller_sees_an_error(records: &Records, found: &mut Vec<String>) {
    let is_expired = |pid: i64| records.expired.contains(&pid) || records.broken.contains(&pid);
    for call in &records.calls {
        let failed = matches!(call.fate, Fate::Exited(code) if code != 0 && !call.answers.contains(&code));
        if failed && !records.may_fail && !is_expired(call.pid) {
            found.push(format!("I8: {:?} failed with {:?}: {}", call.args, call.fate, call.stderr.trim()));
        }
    }
}

/// I12: there are never two live tasks with one key. In classes with keys, handlers fail too rarely to exhaust a task.
pub fn one_live_task_with_a_key(records: &Records, found: &mut Vec<String>) {
    let keys: HashMap<i64, &str> = records.keys.iter().map(|(task, key)| (*task, key.as_str())).collect();
    let mut live: HashMap<&str, BTreeSet<i64>> = HashMap::new();
    for change in records.audit.iter().filter(|change| change.table == Table::Task) {
        let Some(key) = keys.get(&change.id) else { continue };
        let tasks = live.entry(key).or_default();
        if ["success", "cancelled"].contains(&change.new.as_str()) {
            tasks.remove(&change.id);
        } else {
            tasks.insert(change.id);
        }
        if tasks.len() > 1 {
            found.push(format!("I12: the tasks {tasks:?} have the key {key} at change {}", change.at));
        }
    }
}
