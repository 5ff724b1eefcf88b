//! Supervises a child from its start to its end: its output, its events, its ending.

pub mod address_handover;
pub mod capture;
pub(crate) mod cause;
pub mod child;
pub mod command_requests;
pub mod coprocess;
pub mod event_socket;
pub(crate) mod exit;
pub(crate) mod leftovers;
pub(crate) mod observer;
pub(crate) mod pump;
mod received;
