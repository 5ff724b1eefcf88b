//! Checks the records of a trial: a function from the records to the violations, as text. It does not depend on how the trial was
//! run.

mod effects;
mod results;
mod rules;
mod runs;
mod tasks;
mod transitions;

use super::records::Records;

/// The invariants, in the order of the documentation; each adds its violations.
const INVARIANTS: &[fn(&Records, &mut Vec<String>)] = &[
    tasks::nothing_acknowledged_is_lost,
    tasks::every_task_came_to_its_end,
    tasks::somebody_is_told_of_what_is_given_up,
    tasks::every_schedule_has_one_head,
    tasks::tasks_agree_with_their_runs,
    tasks::no_caller_sees_an_error,
    runs::one_open_run_of_a_task,
    runs::a_run_ends_exactly_once,
    runs::runners_stay_within_the_limit,
    runs::claims_are_first_in_first_out,
    runs::classes_stay_within_their_limits,
    runs::keys_are_one_at_a_time,
    runs::times_are_in_order,
    runs::none_before_its_prerequisites,
    runs::what_is_rejected_never_comes_back,
    tasks::one_live_task_with_a_key,
    rules::what_is_cancelled_is_not_tried_again,
    rules::nothing_runs_before_its_time,
    rules::starts_stay_within_their_rate,
    rules::each_planned_time_happens_once,
    rules::nothing_is_claimed_while_it_is_paused,
    transitions::every_transition_is_kept_once,
    effects::one_live_handler_of_a_task,
    effects::what_a_handler_finished_is_recorded,
    runs::only_what_was_begun_counts,
    results::results_are_those_of_their_own_run,
];

/// Returns all violations.
pub fn violations(records: &Records) -> Vec<String> {
    let mut found = Vec::new();
    for invariant in INVARIANTS {
        invariant(records, &mut found);
    }
    nothing_is_left(records, &mut found);
    found
}

/// I6: no process, outcome, lock or slot is left behind. I7: the engine's check finds no error in its file.
fn nothing_is_left(records: &Records, found: &mut Vec<String>) {
    found.extend(records.survivors.iter().map(|process| format!("I6: left running: {process}")));
    found.extend(records.left_files.iter().map(|file| format!("I6: left behind: {file}")));
    found.extend(records.stayed.iter().map(|pid| format!("I6: process {pid} has ended and keeps its slot")));
    found.extend(records.integrity.iter().map(|problem| format!("I7: {problem}")));
    if records.open_runners != 0 {
        found.push(format!("I6: {} runners are still registered", records.open_runners));
    }
}
