//! Rules that block claims (limits, pauses, dependencies, keys), settings, and the registration of runners and claimants.

pub(crate) mod claimants;
pub(crate) mod classes;
pub(crate) mod dependencies;
pub(crate) mod key_slots;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod pauses;
pub(crate) mod runners;
pub(crate) mod settings;
pub(crate) mod starts;
pub(crate) mod unique;
pub(crate) mod visibility;
