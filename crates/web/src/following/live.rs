//! One poller for all who watch: while there are any, it reads the overview twice a second, and informs all when it has
//! changed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::querying::database::{Database, SERVER};
use crate::querying::hidden::hidden_in;
use crate::serving::problem::Problem;
use taskqueue_engine::Context;
use taskqueue_engine::EngineResult;
use taskqueue_engine::inspect::diagnosis::explain::QueueExplanation;
use taskqueue_engine::inspect::status::{Overview, RunnerLine, TaskFilter, list_runners, newest_ids, overview};
use taskqueue_views::answer::why_nothing_runs;
use taskqueue_views::json::overview_json;

/// How often the database is asked while a page is open.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How old the figures for a request may be.
const FRESH: Duration = Duration::from_millis(400);
/// How long a failure is remembered.
const FRESH_FAILURE: Duration = Duration::from_secs(1);
/// How long the database may take for newer figures; then older ones are shown.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take for the first figures. On a busy server, the connection alone can take seconds.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How many tasks the first page lists.
const TASKS: i64 = 20;
/// How many runners the first page lists.
const RUNNERS: i64 = 100;

/// What the first page shows.
#[derive(Clone, Debug)]
pub(crate) struct Glance {
    pub(crate) overview: Overview,
    pub(crate) runners: Vec<RunnerLine>,
    /// Why nothing runs, if work waits.
    pub(crate) stuck: Option<QueueExplanation>,
    /// Differs if the pages have changed.
    fingerprint: Value,
}

hidden_in!(Glance { overview, stuck });

/// The last figures, when they were read, and why newer ones could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) glance: Arc<Glance>,
    pub(crate) read_at: Instant,
    pub(crate) problem: Option<Problem>,
}

/// The poller.
pub(crate) struct Live {
    database: Database,
    /// A number that grows with every change.
    version: watch::Sender<u64>,
    watchers: Arc<AtomicUsize>,
    seen: Mutex<Option<Seen>>,
    /// Held while the database is asked, so that one request asks for all. The last failure, which is not repeated at once.
    asking: tokio::sync::Mutex<Option<(Instant, Problem)>>,
}

impl Live {
    pub(crate) fn new(database: Database) -> Self {
        let (version, _) = watch::channel(0);
        Self {
            database,
            version,
            watchers: Arc::default(),
            seen: Mutex::new(None),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the figures, at most half a second old; older ones with the reason if the database cannot be read.
    pub(crate) async fn glance(&self) -> Result<Seen, Problem> {
        if let Some(seen) = self.fresh() {
            return Ok(seen);
        }
        let mut last_failure = self.asking.lock().await;
        if let Some(seen) = self.fresh() {
            return Ok(seen);
        }
        if let Some((_, problem)) = last_failure.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FAILURE) {
            return self.outdated(problem.clone());
        }
        let limit = if self.last().is_some() { ANSWER_LIMIT } else { FIRST_ANSWER_LIMIT };
        let answer = tokio::time::timeout(limit, self.database.call(SERVER, read)).await;
        match answer.unwrap_or_else(|_| Err(Problem::silent())) {
            Ok(glance) => {
                let seen = Seen { glance: Arc::new(glance), read_at: Instant::now(), problem: None };
                self.note(&seen);
                Ok(seen)
            }
            Err(problem) => {
                *last_failure = Some((Instant::now(), problem.clone()));
                self.outdated(problem)
            }
        }
    }

    /// Returns the last figures with the reason why there are no newer ones.
    fn outdated(&self, problem: Problem) -> Result<Seen, Problem> {
        self.last().map(|seen| Seen { problem: Some(problem.clone()), ..seen }).ok_or(problem)
    }

    fn last(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fresh(&self) -> Option<Seen> {
        self.last().filter(|seen| seen.read_at.elapsed() < FRESH)
    }

    /// Keeps the figures, and informs the watchers if they differ from the last ones.
    fn note(&self, seen: &Seen) {
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).replace(seen.clone());
        if before.is_none_or(|before| before.glance.fingerprint != seen.glance.fingerprint) {
            self.changed();
        }
    }

    /// Informs the watchers.
    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Returns what a watcher waits for. The watch ends when the guard is dropped.
    pub(crate) fn watch(&self) -> (watch::Receiver<u64>, Watching) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        (self.version.subscribe(), Watching(Arc::clone(&self.watchers)))
    }

    /// Returns true while a page is open.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) > 0
    }

    /// Polls as long as the server runs, while a page is open.
    pub(crate) async fn poll(&self) {
        loop {
            tokio::time::sleep(POLL_EVERY).await;
            if self.is_watched() {
                // The page of a watcher shows why it failed.
                let _ = self.glance().await;
            }
        }
    }
}

/// An open page.
pub(crate) struct Watching(Arc<AtomicUsize>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn read(ctx: &mut Context) -> EngineResult<Glance> {
    let overview = overview(ctx, &TaskFilter { class: None, statuses: Vec::new(), limit: TASKS })?;
    let runners = list_runners(ctx, RUNNERS, true)?;
    let stuck = why_nothing_runs(ctx, &overview)?;
    // Pages also show what the overview does not count, such as schedules and the history of a task.
    let newest = newest_ids(ctx)?;
    let fingerprint = fingerprint(&overview, &runners, newest);
    Ok(Glance { overview, runners, stuck, fingerprint })
}

/// Returns what is compared: not the time itself, nor data and results, which can be large. With other data, a task has another
/// time of its last change.
fn fingerprint(overview: &Overview, runners: &[RunnerLine], newest: [Option<i64>; 3]) -> Value {
    let mut compared = overview.clone();
    for line in &mut compared.lines {
        line.task.data = String::from("null");
        line.last_run.iter_mut().for_each(|run| run.results = None);
    }
    let mut value = json!(overview_json(&compared));
    value["now"] = Value::Null;
    value["counts"]["oldest_due_secs"] = Value::Null;
    value["newest"] = json!(newest);
    value["runners"] = json!(runners.iter().map(|line| line.runner.id).collect::<Vec<_>>());
    value
}
