//! Outcomes that a worker could not send before it lost its database. Another process, mostly this same worker after it has
//! reconnected, sends them from the spool. Their result is then read from the store and counted.

use super::backlog::FinishedRun;
use crate::inspect::monitoring::counted::{CountedRun, Unanswered, outcome_of};
use crate::inspect::monitoring::tally::Tally;
use crate::outbox::outcomes::GivenBack;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_store::{EndResult, RunEnd, Store};

/// How many are checked at once: counting must not delay runs.
const AT_ONCE: usize = 200;

/// Removes texts that are not needed to recognise the end.
fn without_texts(end: RunEnd) -> RunEnd {
    RunEnd { outputs: Vec::new(), results: None, message: None, error_message: String::new(), ..end }
}

/// Remembers the finished runs and the unstarted runs when the database was lost. Runs that stay open have no answer.
pub(super) fn remember(tally: &Tally, finished: Vec<FinishedRun>, waiting: Vec<ClaimedRun>) {
    let (to_send, open): (Vec<_>, Vec<_>) = finished.into_iter().partition(|finished| finished.to_send.is_some());
    tally.ended(open.iter().map(|finished| finished.counted(None)));
    tally.add_unanswered(to_send.into_iter().filter_map(|FinishedRun { run, to_send, took, .. }| {
        let end = to_send?.end;
        Some(Unanswered::new(run, without_texts(end), Some(took)))
    }));
    tally.add_unanswered(waiting.into_iter().map(|run| Unanswered::new(run, GivenBack::ClaimedAhead.end(), None)));
}

/// Counts the runs for which the store has an answer now, and keeps the others. Ignores an unreachable database, which the next
/// step of the worker notices.
pub(super) fn count_answered(tally: &Tally, store: &mut Store) {
    let mut unanswered = tally.take_unanswered();
    let later = unanswered.split_off(unanswered.len().min(AT_ONCE));
    let mut can_ask = true;
    unanswered.retain(|Unanswered { class, run, end, took }| {
        if !can_ask {
            return true;
        }
        match store.find_end(run, end) {
            Ok(EndResult::Lost { found }) if found == RunStatus::Processing.as_str() => true,
            Ok(ended) => {
                let cpu_msecs = end.usage.map(|usage| usage.cpu_msecs);
                tally.ended([CountedRun { class, outcome: outcome_of(end.event, &ended), took: *took, cpu_msecs }]);
                false
            }
            Err(_) => {
                can_ask = false;
                true
            }
        }
    });
    // The longest-waiting ones come first.
    tally.add_unanswered(later.into_iter().chain(unanswered));
}
