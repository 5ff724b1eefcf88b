//! How many of something each owner may have at the same time, so that one of them does not take all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// How many each owner has.
type Taken<Owner> = Arc<Mutex<HashMap<Owner, usize>>>;

/// The shares of all owners.
pub(crate) struct Shares<Owner: Eq + Hash> {
    size: usize,
    taken: Taken<Owner>,
}

impl<Owner: Clone + Eq + Hash> Shares<Owner> {
    /// Each owner may have this many.
    pub(crate) fn of_size(size: usize) -> Self {
        Self { size, taken: Taken::default() }
    }

    /// Takes one, until the result is dropped. Returns `None` if the owner has its whole share.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Part<Owner>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(owner).copied().unwrap_or_default();
        if count == self.size {
            return None;
        }
        taken.insert(owner.clone(), count + 1);
        Some(Part { owner: owner.clone(), taken: Arc::clone(&self.taken) })
    }
}

/// One of the share of an owner.
pub(crate) struct Part<Owner: Eq + Hash> {
    owner: Owner,
    taken: Taken<Owner>,
}

impl<Owner: Eq + Hash> Drop for Part<Owner> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.owner) {
            Some(count) if *count > 1 => *count -= 1,
            // Owners that have nothing take no memory.
            _ => drop(taken.remove(&self.owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_has_its_whole_share_leaves_the_shares_of_others() {
        let shares = Shares::of_size(2);
        let held = (shares.take(&"ann"), shares.take(&"ann"));
        assert!(held.0.is_some() && held.1.is_some() && shares.take(&"ann").is_none());
        assert!(shares.take(&"bob").is_some());
        drop(held.0);
        assert!(shares.take(&"ann").is_some());
        drop(held.1);
        assert!(shares.taken.lock().expect("no panic").is_empty());
    }
}
