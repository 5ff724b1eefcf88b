//! The configuration of a running server: who may log in, and the classes. It is read again while requests come, so that a token
//! that was removed is soon refused.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::login::Logins;
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
    last: Arc<Mutex<Last>>,
}

struct Last {
    configuration: Arc<WebConfiguration>,
    read_at: Instant,
    is_reading: bool,
}

impl CurrentConfiguration {
    /// Returns the configuration, and how it is read again.
    #[must_use]
    pub fn new(configuration: WebConfiguration, reader: ConfigurationReader) -> Self {
        let last = Last { configuration: Arc::new(configuration), read_at: Instant::now(), is_reading: false };
        Self { reader, last: Arc::new(Mutex::new(last)) }
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
        let reader = Arc::clone(&self.reader);
        // Files are read on a thread that may block.
        let read = tokio::task::spawn_blocking(move || reader()).await;
        let mut last = self.locked();
        if let Ok(Some(configuration)) = read {
            last.configuration = Arc::new(configuration);
        }
        (last.read_at, last.is_reading) = (Instant::now(), false);
        Arc::clone(&last.configuration)
    }

    /// Returns true for one request in each interval, and for none while another one reads: an older configuration must not
    /// replace a newer one.
    fn begins_to_read(&self) -> bool {
        let mut last = self.locked();
        let begins = !last.is_reading && last.read_at.elapsed() >= READ_EVERY;
        last.is_reading |= begins;
        begins
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
