//! Signals: sent, received, held back, and what a service manager is told.

pub mod reload_signal;
pub mod signalling;
pub mod stop_signals;
pub mod supervisor;
pub mod suspend;
