//! Ends that a worker could not send before it lost its database. Whoever comes first sends them from the disk, mostly this very
//! worker when it is back. What has become of them stands in the store, whoever that was, and is counted from there.

use super::backlog::Finished;
use super::counted::{Counted, Unanswered, counted, outcome_of};
use super::tally::Tally;
use crate::outbox::outcomes::GivenBack;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_store::{Ended, RunEnd, Store};

/// So many are asked for at a time: no run is to wait for numbers.
const AT_ONCE: usize = 200;

/// It is recognised without what the handler wrote.
fn without_texts(end: RunEnd) -> RunEnd {
    RunEnd { outputs: Vec::new(), results: None, message: None, error_message: String::new(), ..end }
}

/// Remembers what had finished, and what no slot had begun, when the database was lost. What is to stay open has no answer to wait
/// for.
pub(super) fn remember(tally: &Tally, finished: Vec<Finished>, waiting: Vec<ClaimedRun>) {
    let (to_send, open): (Vec<_>, Vec<_>) = finished.into_iter().partition(|finished| finished.to_send.is_some());
    tally.ended(open.iter().map(|finished| counted(finished, None)));
    tally.add_unanswered(to_send.into_iter().filter_map(|Finished { run, to_send, took, .. }| {
        let end = to_send?.end;
        Some(Unanswered::new(run, without_texts(end), Some(took)))
    }));
    tally.add_unanswered(waiting.into_iter().map(|run| Unanswered::new(run, GivenBack::ClaimedAhead.end(), None)));
}

/// Counts those to which the store has an answer, as far as it can be asked now; the others are asked for again. A database that is
/// away is noticed by what the worker does next.
pub(super) fn count_answered(tally: &Tally, store: &mut Store) {
    let mut unanswered = tally.take_unanswered();
    let later = unanswered.split_off(unanswered.len().min(AT_ONCE));
    let mut can_ask = true;
    unanswered.retain(|Unanswered { class, run, end, took }| {
        if !can_ask {
            return true;
        }
        match store.find_end(run, end) {
            Ok(Ended::Lost { found }) if found == RunStatus::Processing.as_str() => true,
            Ok(ended) => {
                tally.ended([Counted { class, outcome: outcome_of(end.event, &ended), took: *took }]);
                false
            }
            Err(_) => {
                can_ask = false;
                true
            }
        }
    });
    // Whoever has waited longest comes first.
    tally.add_unanswered(later.into_iter().chain(unanswered));
}
