//! Completions for a word on the command line. They must be quick: the user must not wait, and an error in the middle of a
//! command line does not help.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::DatabaseUrl;
use taskqueue_domain::limits::pause::PauseScope;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_store::{Store, StoreResult, WhichRuns};

/// How many rows of each kind are read; only those that begin with the word are offered.
const LOOKED_AT: i64 = 100;
/// How many words of each kind are offered; for tasks, in each status.
const OFFERED: usize = 20;

/// What kind of word to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Ids of tasks in these statuses, in this order.
    Tasks(&'static [TaskStatus]),
    /// Ids of schedules.
    Schedules,
    /// Ids of waiting runs.
    WaitingRuns,
    /// Ids of runs in progress.
    ProcessingRuns,
    /// Ids of runs.
    Runs,
    /// Classes that have tasks.
    Classes,
    /// Paused, drained or stopped classes, or patterns of them.
    PausedClasses,
    /// Names of live runners.
    Runners,
    /// Names of paused, drained or stopped runners.
    PausedRunners,
    /// Limit keys.
    LimitKeys,
    /// Unique keys.
    UniqueKeys,
    /// Tags.
    Tags,
    /// Error codes of tasks that failed.
    ErrorCodes,
}

/// A possible completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The word.
    pub word: String,
    /// A description to display; may be empty.
    pub note: String,
}

/// Returns the words that begin with `beginning`, as far as the store answers within `limit`. Returns nothing after any error.
#[must_use]
pub fn candidates(url: &DatabaseUrl, wanted: Wanted, beginning: &str, limit: Duration) -> Vec<Candidate> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let (url, beginning) = (url.clone(), beginning.to_owned());
    // A client library that waits for a silent server cannot be interrupted, so its thread is left behind.
    let look = move || {
        let found = Store::open_to_look(&url, limit).and_then(|mut store| find(&mut store, wanted, &beginning));
        let _ = sender.send(found.unwrap_or_default());
    };
    match thread::Builder::new().name("candidates".to_owned()).spawn(look) {
        Ok(_) => receiver.recv_timeout(limit).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

fn find(store: &mut Store, wanted: Wanted, beginning: &str) -> StoreResult<Vec<Candidate>> {
    let found = match wanted {
        Wanted::Tasks(statuses) => return find_tasks(store, statuses, beginning),
        Wanted::Schedules => schedules(store)?,
        Wanted::WaitingRuns => runs(store, WhichRuns::Waiting)?,
        Wanted::ProcessingRuns => runs(store, WhichRuns::Processing)?,
        Wanted::Runs => runs(store, WhichRuns::Newest)?,
        Wanted::Classes => without_notes(store.list_task_classes(beginning, OFFERED)?),
        Wanted::PausedClasses => paused(store, |scope| matches!(scope, PauseScope::Class(_)))?,
        Wanted::Runners => named(store.list_runner_names(LOOKED_AT)?),
        Wanted::PausedRunners => paused(store, |scope| matches!(scope, PauseScope::Runner(_)))?,
        Wanted::LimitKeys => without_notes(store.list_limit_key_names(LOOKED_AT)?),
        Wanted::UniqueKeys => without_notes(store.list_unique_keys_from(beginning, LOOKED_AT)?),
        Wanted::Tags => without_notes(store.list_tags_from(beginning, OFFERED)?),
        Wanted::ErrorCodes => error_codes(store)?,
    };
    Ok(first_of(found, beginning))
}

/// Returns the words that begin so, each once.
fn first_of(found: Vec<Candidate>, beginning: &str) -> Vec<Candidate> {
    let mut offered: Vec<Candidate> = Vec::new();
    for candidate in found {
        let is_new = offered.iter().all(|other| other.word != candidate.word);
        if is_new && candidate.word.starts_with(beginning) && offered.len() < OFFERED {
            offered.push(candidate);
        }
    }
    offered
}

fn find_tasks(store: &mut Store, statuses: &[TaskStatus], beginning: &str) -> StoreResult<Vec<Candidate>> {
    let mut offered = Vec::new();
    for status in statuses {
        let tasks = store.list_recent_tasks(*status, LOOKED_AT)?;
        let rows = tasks.into_iter().map(|(id, class)| (id.to_string(), format!("{class} {}", status.as_str())));
        offered.extend(first_of(named(rows.collect()), beginning));
    }
    Ok(offered)
}

fn schedules(store: &mut Store) -> StoreResult<Vec<Candidate>> {
    let schedules = store.list_schedule_names(LOOKED_AT)?.into_iter();
    let rows = schedules.map(|schedule| (schedule.id.to_string(), format!("{} {}", schedule.class, schedule.every)));
    Ok(named(rows.collect()))
}

fn runs(store: &mut Store, which: WhichRuns) -> StoreResult<Vec<Candidate>> {
    let runs = store.list_run_names(which, LOOKED_AT)?.into_iter();
    Ok(named(runs.map(|(id, class, status)| (id.to_string(), format!("{class} {status}"))).collect()))
}

fn paused(store: &mut Store, is_meant: impl Fn(&PauseScope) -> bool) -> StoreResult<Vec<Candidate>> {
    let pauses = store.list_pauses()?.into_iter().filter(|pause| is_meant(&pause.scope));
    Ok(named(pauses.map(|pause| (pause.scope.name().to_owned(), pause.reason)).collect()))
}

fn error_codes(store: &mut Store) -> StoreResult<Vec<Candidate>> {
    let mut codes = Vec::new();
    for status in [TaskStatus::Failed, TaskStatus::Timeout] {
        let failed = store.list_failed_tasks(status, None, LOOKED_AT)?.into_iter();
        codes.extend(failed.map(|task| (task.error_code, task.error_message)));
    }
    // The code is empty if the row of the attempt was deleted.
    codes.retain(|(code, _)| !code.is_empty());
    Ok(named(codes))
}

fn named(rows: Vec<(String, String)>) -> Vec<Candidate> {
    rows.into_iter().map(|(word, note)| Candidate { word, note }).collect()
}

fn without_notes(words: Vec<String>) -> Vec<Candidate> {
    named(words.into_iter().map(|word| (word, String::new())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_begins_so_each_is_offered_once_and_not_too_many() {
        let found = without_notes(["b", "ab", "a", "ab"].map(str::to_owned).to_vec());
        let words = |found: Vec<Candidate>| found.into_iter().map(|candidate| candidate.word).collect::<Vec<_>>();
        assert_eq!(words(first_of(found.clone(), "a")), ["ab", "a"]);
        assert_eq!(words(first_of(found, "")), ["b", "ab", "a"]);
        let many = without_notes((0..1_000).map(|number| number.to_string()).collect());
        assert_eq!(first_of(many, "").len(), OFFERED);
    }

    #[test]
    fn where_no_store_can_be_opened_there_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let found = candidates(&DatabaseUrl::sqlite(&path), Wanted::Classes, "", Duration::from_secs(60));
        assert!(found.is_empty(), "{found:?}");
        assert!(!path.exists(), "nothing is made");
    }
}
