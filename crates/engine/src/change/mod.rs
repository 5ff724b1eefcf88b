//! Changes that an operator requests.

pub mod cancel;
pub(crate) mod class_exists;
pub mod classes;
pub mod edit;
pub mod limits;
pub mod messages;
pub mod pauses;
pub mod retry;
pub mod schedules;
pub mod selected;
pub mod settings;
