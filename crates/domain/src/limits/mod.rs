//! How much may run at once, for how long, and what is paused.

pub mod confinement;
pub mod lease;
pub mod limit;
pub mod pause;
pub mod scope;
