//! What happens when many processes want the same thing at once, when one dies in the middle, and who loses then.

mod cancel;
mod claimants;
mod collide;
mod connections;
mod dependencies;
mod failover;
mod full_disk;
mod hang;
mod interop;
mod kill;
mod leases;
mod limit_keys;
mod limits;
mod lose;
mod lost_commit;
pub(crate) mod outage;
mod outcomes;
mod pooler;
mod prune;
mod rescue;
mod schedules;
pub(crate) mod server;
pub(crate) mod stage;
mod start_due;
mod storm;
pub(crate) mod tools;
mod unique;
