//! Sending, receiving and blocking signals, and notifications to a service manager.

mod held_signals;
pub mod reload_signal;
pub mod stop_signals;
pub mod supervisor;
pub mod suspend;
