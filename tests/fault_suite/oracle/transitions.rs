//! The transitions that the program itself stores, compared with the rows (I19).

use std::collections::HashMap;

use crate::records::{Fate, Records};

/// I19: if transitions are stored, each one is stored once: a run created, started and ended, and a task queued.
pub fn every_transition_is_kept_once(records: &Records, found: &mut Vec<String>) {
    let Some(transitions) = &records.transitions else { return };
    let mut of_runs: HashMap<(&str, i64), usize> = HashMap::new();
    let mut queued: HashMap<i64, usize> = HashMap::new();
    for (kind, task, run) in transitions {
        if kind == "task-queued" {
            *queued.entry(*task).or_default() += 1;
        } else {
            *of_runs.entry((kind, *run)).or_default() += 1;
        }
    }
    for run in &records.runs {
        let [_, started_on, finished_on] = &run.times;
        let expected =
            [("run-created", true), ("run-started", !started_on.is_empty()), ("run-ended", !finished_on.is_empty())];
        for (kind, is_expected) in expected {
            let count = of_runs.get(&(kind, run.id)).copied().unwrap_or(0);
            if count != usize::from(is_expected) {
                found.push(format!("I19: run {}, which is {}, has {count} events {kind}", run.id, run.status));
            }
        }
    }
    // An application that inserts a row stores no event.
    let told = records.calls.iter().filter(|call| call.queues.is_some() && call.fate == Fate::Exited(0));
    for id in told.flat_map(|call| &call.ids).chain(queued.keys()) {
        let count = queued.get(id).copied().unwrap_or(0);
        if count != 1 {
            found.push(format!("I19: task {id} has {count} events task-queued"));
        }
    }
}
