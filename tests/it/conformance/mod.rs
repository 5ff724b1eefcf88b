//! What a store is, on every engine.

mod batch;
mod claims_behind;
mod diamond;
mod end_news;
mod explain;
pub mod fixture;
mod kept_plans;
mod library;
mod library_claims;
mod library_tasks;
mod listen;
mod messages;
mod migrate;
mod model;
mod plans;
mod prune;
mod rules;
mod schedules;
mod schema;
mod scheme;
mod snapshot;
mod transitions;
mod unmarked;
mod wait;
mod worker;
mod worker_counts;
mod worker_overrun;
