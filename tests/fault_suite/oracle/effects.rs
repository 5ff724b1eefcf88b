//! The log of the handlers, compared with the database (I2b, I3).

use std::collections::HashMap;

use crate::records::{Effect, Records};

/// I2b: a handler that logs something after another one of its task has begun was alive at the same time.
pub fn one_live_handler_of_a_task(records: &Records, found: &mut Vec<String>) {
    let mut newest: HashMap<i64, &Effect> = HashMap::new();
    let is_expired =
        |run_id| records.runs.iter().any(|run| run.id == run_id && records.expired.contains(&run.process_id));
    let may_overlap =
        |run_id| records.runs.iter().any(|run| run.id == run_id && records.may_overlap.contains(&run.process_id));
    for effect in &records.effects {
        if effect.is_start {
            newest.insert(effect.task_id, effect);
            continue;
        }
        match newest.get(&effect.task_id) {
            // Its runner believes that it still has the lease, because no time has passed on its own clock.
            Some(start) if is_expired(effect.run_id) || is_expired(start.run_id) => {}
            Some(_) if may_overlap(effect.run_id) => {}
            Some(start) if start.run_id != effect.run_id => found.push(format!(
                "I2b: task {}: the handler of run {} was alive after that of run {} had begun ({} s after boot)",
                effect.task_id, effect.run_id, start.run_id, effect.uptime
            )),
            Some(_) => {}
            None => found.push(format!("I2b: run {} ended without a start", effect.run_id)),
        }
    }
    let mut started = HashMap::new();
    for effect in records.effects.iter().filter(|effect| effect.is_start) {
        if let Some(pid) = started.insert(effect.run_id, effect.pid) {
            found.push(format!("I2b: run {} was executed twice, by {pid} and {}", effect.run_id, effect.pid));
        }
    }
}

/// Steps after which the outcome is in the spool: it must arrive, whatever happens to the runner then.
const AFTER_THE_OUTCOME_IS_KEPT: [&str; 8] = [
    "spool.synced",
    "outcome.on_disk",
    "end.run_written",
    "end.task_written",
    "end.before_commit",
    "outcome.sent",
    "outcome.cleared",
    "process.run_ended",
];

/// I3: a handler that ended has its outcome recorded, unless its runner was killed before it could keep it.
pub fn what_a_handler_finished_is_recorded(records: &Records, found: &mut Vec<String>) {
    let runs: HashMap<i64, _> = records.runs.iter().map(|run| (run.id, run)).collect();
    for effect in &records.effects {
        let Some(run) = runs.get(&effect.run_id) else {
            found.push(format!("I3: a handler worked for run {}, which the store does not have", effect.run_id));
            continue;
        };
        let Some(code) = effect.exit_code else { continue };
        let expected = match code {
            0 => "success",
            99 => "released",
            _ => "error",
        };
        let killed_at = records.killed_at(run.process_id);
        // A sender that hangs is waited for only until the lease expires.
        let is_expired = records.expired.contains(&run.process_id);
        // The label does not show what its other slots were doing at that moment.
        let is_kept = !is_expired
            && !records.is_worker(run.process_id)
            && killed_at.is_some_and(|label| AFTER_THE_OUTCOME_IS_KEPT.contains(&label));
        // Or the runner noticed that its lease had expired, between the last log line of the handler and its end.
        let is_told = records.late_runs.contains(&run.id) || run.error_code == "lease-over";
        if records.outcomes_are_kept && is_told {
            continue;
        }
        // A coprocess may end between its last log line about a run and its answer.
        let has_no_answer = run.status == "error" || run.error_code == "handler-killed";
        if has_no_answer && records.is_of_coprocess(run) {
            continue;
        }
        if run.status != expected && (is_kept || !records.was_broken(run.process_id)) {
            found.push(format!(
                "I3: the handler of run {} ended with {code}, and the run is {} ({}); its runner was killed at {killed_at:?}",
                run.id, run.status, run.error_code
            ));
        }
    }
    // A claimant writes no log.
    for run in records.runs.iter().filter(|run| run.status == "success" && run.claimant.is_empty()) {
        let has_ended = |effect: &Effect| effect.run_id == run.id && effect.exit_code == Some(0);
        if !records.effects.iter().any(has_ended) {
            found.push(format!("I3: run {} is a success, and no handler came to its end for it", run.id));
        }
    }
}
