//! What a store is, on every engine.

mod diamond;
pub mod fixture;
mod migrate;
mod model;
mod plans;
mod rules;
mod schedules;
mod schema;
mod scheme;
mod transitions;
mod wait;
