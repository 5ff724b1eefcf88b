//! The configuration of a running server: who may log in, and the classes. It is read again while requests come, so that a token
//! that was removed is soon refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::login::{Login, Logins};
use crate::uses::TokenUses;
use taskqueue_domain::task::class_patterns::ClassPatterns;
use taskqueue_engine::ClassesInUse;

/// How old the configuration may be when a request comes.
const READ_EVERY: Duration = Duration::from_secs(1);

/// What the server takes from the configuration.
#[derive(Clone, Debug, Default)]
pub struct WebConfiguration {
    /// Who may do what.
    pub logins: Logins,
    /// The classes whose data and results no login sees.
    pub hidden_data: Option<ClassPatterns>,
    /// The classes of this host.
    pub classes: ClassesInUse,
}

/// Reads the configuration again; `None` if it cannot be read now, and the last one stays in effect.
pub type ConfigurationReader = Arc<dyn Fn() -> Option<WebConfiguration> + Send + Sync>;

/// The configuration in effect.
#[derive(Clone)]
pub struct CurrentConfiguration {
    reader: ConfigurationReader,
    uses: Option<Arc<TokenUses>>,
    last: Arc<Mutex<Last>>,
}

struct Last {
    configuration: Arc<WebConfiguration>,
    read_at: Instant,
    is_reading: bool,
}

impl CurrentConfiguration {
    /// Returns the configuration, how it is read again, and where the uses of its tokens are noted, if anywhere.
    #[must_use]
    pub fn new(configuration: WebConfiguration, reader: ConfigurationReader, uses: Option<TokenUses>) -> Self {
        let last = Last { configuration: Arc::new(configuration), read_at: Instant::now(), is_reading: false };
        Self { reader, uses: uses.map(Arc::new), last: Arc::new(Mutex::new(last)) }
    }

    /// Returns true if a login is possible.
    #[must_use]
    pub fn has_logins(&self) -> bool {
        !self.last().logins.is_empty()
    }

    /// Returns the configuration as it was read last.
    pub(crate) fn last(&self) -> Arc<WebConfiguration> {
        Arc::clone(&self.locked().configuration)
    }

    /// Returns the configuration, at most as old as `READ_EVERY`.
    pub(crate) async fn read(&self) -> Arc<WebConfiguration> {
        if !self.begins_to_read() {
            return self.last();
        }
        let current = self.clone();
        // On a thread that may block. It ends what it began even if the client of this request has gone by then.
        let _ = tokio::task::spawn_blocking(move || {
            let reading = Reading(&current);
            if let Some(configuration) = (current.reader)() {
                let before = std::mem::replace(&mut reading.0.locked().configuration, Arc::new(configuration));
                reading.0.forget_removed(&before);
            }
        })
        .await;
        self.last()
    }

    /// Notes that the token of a login is used now.
    pub(crate) fn note_use(&self, login: &Login) {
        if let Some(uses) = self.uses.as_ref().filter(|_| login.is_configured) {
            uses.note(&login.sha256);
        }
    }

    /// Removes the notes about tokens that are no longer in the configuration.
    fn forget_removed(&self, before: &WebConfiguration) {
        if let Some(uses) = &self.uses {
            before.logins.missing_in(&self.last().logins).for_each(|sha256| uses.forget(sha256));
        }
    }

    /// Returns true for one request in each interval, and for none while another one reads: an older configuration must not
    /// replace a newer one.
    fn begins_to_read(&self) -> bool {
        let mut last = self.locked();
        let begins = !last.is_reading && last.read_at.elapsed() >= READ_EVERY;
        last.is_reading |= begins;
        begins
    }

    fn locked(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets others read when dropped, also after a panic.
struct Reading<'a>(&'a CurrentConfiguration);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut last = self.0.locked();
        (last.read_at, last.is_reading) = (Instant::now(), false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_request_that_ends_during_a_reading_stops_no_later_one() {
        let reads = Arc::new(AtomicUsize::new(0));
        let (release, wait) = mpsc::channel::<()>();
        let (counted, wait) = (Arc::clone(&reads), Mutex::new(wait));
        let current = CurrentConfiguration::new(
            WebConfiguration::default(),
            Arc::new(move || {
                let _ = wait.lock().map(|wait| wait.recv());
                counted.fetch_add(1, Ordering::SeqCst);
                None
            }),
            None,
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let Ok(runtime) = runtime else { panic!("no runtime") };
        let make_old = || {
            let mut last = current.locked();
            last.read_at = last.read_at.checked_sub(READ_EVERY).unwrap_or(last.read_at);
        };
        runtime.block_on(async {
            make_old();
            assert!(tokio::time::timeout(Duration::ZERO, current.read()).await.is_err(), "the request ends first");
            drop(release);
            let ended = async {
                while current.locked().is_reading {
                    tokio::task::yield_now().await;
                }
            };
            assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok(), "the reading ends");
            make_old();
            current.read().await;
            assert_eq!(reads.load(Ordering::SeqCst), 2);
        });
    }
}
