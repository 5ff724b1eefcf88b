//! Changes that an operator requests.

pub mod cancel;
pub(crate) mod class_exists;
pub mod classes;
pub mod edit;
pub mod limits;
pub mod messages;
pub(crate) mod not_claimable;
pub mod pauses;
pub mod requeue;
pub(crate) mod restart;
pub mod retry;
pub mod schedules;
pub mod selected;
pub mod settings;
pub mod take_back;
