//! How many of something each login may have at the same time, so that one of them does not take all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// The shares of all logins.
pub(crate) struct Shares {
    size: usize,
    of_logins: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Shares {
    /// Each login has this many.
    pub(crate) fn of_size(size: usize) -> Self {
        Self { size, of_logins: Mutex::default() }
    }

    /// Returns the share of a login.
    pub(crate) fn of(&self, login: &str) -> Arc<Semaphore> {
        let mut of_logins = self.of_logins.lock().unwrap_or_else(PoisonError::into_inner);
        let share = of_logins.entry(login.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.size)));
        Arc::clone(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_has_its_whole_share_leaves_the_shares_of_others() {
        let shares = Shares::of_size(1);
        let held = shares.of("ann").try_acquire_owned().ok();
        assert!(held.is_some() && shares.of("ann").try_acquire_owned().is_err());
        assert!(shares.of("bob").try_acquire_owned().is_ok());
        drop(held);
        assert!(shares.of("ann").try_acquire_owned().is_ok());
    }
}
