//! One poller for all who read logs of runs in progress: while there are any, it looks for new output ten times a second, and
//! their runners save the output as often.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::querying::database::{Database, SERVER};
use crate::querying::hidden::nothing_to_hide;
use crate::serving::problem::Problem;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::inspect::logs::{OutputFollower, OutputSize};

/// A runner saves the output of a run that is followed as often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause after an error.
const REST: Duration = Duration::from_millis(500);
/// How many runs are followed at the same time: each look asks for all of them.
const MOST_RUNS: usize = 200;

nothing_to_hide!(OutputSize, OutputFollower, (taskqueue_domain::task::ids::RunId, OutputSize));

/// The followed runs, each with how much output its readers know of.
pub(crate) struct Logs {
    database: Database,
    /// Whether runners are informed that they are followed: this writes to the database.
    tells: bool,
    followed: Mutex<HashMap<RunId, watch::Sender<OutputSize>>>,
    /// Wakes the poller when a reader comes.
    has_reader: Notify,
}

impl Logs {
    pub(crate) fn new(database: Database, tells: bool) -> Self {
        Self { database, tells, followed: Mutex::default(), has_reader: Notify::new() }
    }

    /// Returns what a reader waits for. It ends when the run has ended.
    pub(crate) fn follow(&self, run_id: RunId) -> Result<watch::Receiver<OutputSize>, Problem> {
        let mut followed = self.lock();
        if followed.len() >= MOST_RUNS && !followed.contains_key(&run_id) {
            return Err(Problem::busy());
        }
        let reader = followed.entry(run_id).or_insert_with(|| watch::channel(OutputSize::default()).0).subscribe();
        self.has_reader.notify_one();
        Ok(reader)
    }

    /// Polls as long as the server runs, while there are readers.
    pub(crate) async fn poll(&self) {
        let mut follower = OutputFollower::new(self.tells);
        loop {
            let runs = self.read_runs();
            if runs.is_empty() {
                self.has_reader.notified().await;
                continue;
            }
            let looked = self.database.call(SERVER, move |ctx| {
                let changed = follower.look(ctx, &runs)?;
                Ok((follower, changed))
            });
            match looked.await {
                Ok((same, changed)) => {
                    follower = same;
                    let has_news = !changed.is_empty();
                    changed.into_iter().for_each(|(run_id, size)| self.note(run_id, size));
                    // A new reader has what is there; the runner must know of it at once.
                    if !(has_news && follower.is_to_tell()) {
                        sleep(LOOK_EVERY).await;
                    }
                }
                // The page of a reader shows why it failed.
                Err(_) => {
                    follower = OutputFollower::new(self.tells);
                    sleep(REST).await;
                }
            }
        }
    }

    /// Forgets the runs without readers, and returns the others.
    fn read_runs(&self) -> Vec<RunId> {
        let mut followed = self.lock();
        followed.retain(|_, sender| sender.receiver_count() > 0);
        followed.keys().copied().collect()
    }

    /// Informs the readers; those of a run that has ended for the last time.
    fn note(&self, run_id: RunId, size: OutputSize) {
        let mut followed = self.lock();
        if let Some(sender) = followed.get(&run_id) {
            sender.send_replace(size);
            if size.is_final {
                followed.remove(&run_id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, watch::Sender<OutputSize>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
