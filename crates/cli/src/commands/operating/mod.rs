//! Verbs for operators: pauses, limits, checks, metrics.

pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod pauses;
pub(crate) mod web;
mod web_configuration;
pub(crate) mod web_token;
