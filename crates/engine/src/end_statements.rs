//! Statements of a process that must end are not waited for.

use std::cell::Cell;
use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::DatabaseUrl;

/// Returns a check whether the process must end now, before it is a runner: `wait` after the first signal, or at once after the
/// second.
pub(crate) fn must_end(signals: &StopSignals, wait: Duration) -> impl Fn() -> bool + Send + use<> {
    let (count, noticed) = (signals.counter().ok(), Cell::new(None));
    move || {
        let count = count.as_ref().map_or(0, |count| count());
        if count == 0 {
            return false;
        }
        let until = noticed.get().unwrap_or_else(|| Moment::after(wait));
        noticed.set(Some(until));
        count >= 2 || until.has_passed()
    }
}

/// Calls `print` once, when a server has not answered a statement for a second.
pub fn announce_slow_answer(url: &DatabaseUrl, print: impl FnOnce(&str) + Send + 'static) {
    url.patience().announce_by(|| {
        print("waiting for the database: the server has not answered for a second; another session may have locked the tasks");
    });
}

/// Stops waiting for statements on this database when these signals require the process to end.
pub fn end_statements_on(url: &DatabaseUrl, signals: &StopSignals, wait: Duration) {
    url.patience().end_when(must_end(signals, wait));
}
