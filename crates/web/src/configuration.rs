//! The configuration of a running server: who may log in, and the classes. It is read again while requests come, so that a token
//! that was removed is soon refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::following::refresh::Refresh;
use crate::logins::login::{Login, Logins};
use crate::logins::proxy_users::ProxyUsers;
use crate::logins::uses::TokenUses;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_engine::ClassesInUse;

/// What the server takes from the configuration.
#[derive(Clone, Debug, Default)]
pub struct WebConfiguration {
    /// Who may do what.
    pub logins: Logins,
    /// The proxies that name some of the logins.
    pub proxy_users: ProxyUsers,
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
    refresh: Refresh,
    last: Arc<Mutex<Arc<WebConfiguration>>>,
}

impl CurrentConfiguration {
    /// Returns the configuration, how it is read again, and where the uses of its tokens are noted, if anywhere.
    #[must_use]
    pub fn new(configuration: WebConfiguration, reader: ConfigurationReader, uses: Option<TokenUses>) -> Self {
        let last = Arc::new(Mutex::new(Arc::new(configuration)));
        Self { reader, uses: uses.map(Arc::new), refresh: Refresh::new(), last }
    }

    /// Returns true if a login is possible.
    #[must_use]
    pub fn has_logins(&self) -> bool {
        !self.last().logins.is_empty()
    }

    /// Returns the configuration as it was read last.
    pub(crate) fn last(&self) -> Arc<WebConfiguration> {
        Arc::clone(&self.locked())
    }

    /// Returns the configuration, after reading it again if it is time.
    pub(crate) async fn read(&self) -> Arc<WebConfiguration> {
        let current = self.clone();
        self.refresh.run(move || current.replace()).await;
        self.last()
    }

    fn replace(&self) {
        if let Some(configuration) = (self.reader)() {
            let before = std::mem::replace(&mut *self.locked(), Arc::new(configuration));
            self.forget_removed(&before);
        }
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

    fn locked(&self) -> MutexGuard<'_, Arc<WebConfiguration>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
