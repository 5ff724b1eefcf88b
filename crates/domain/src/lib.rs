//! Types of tasks, runs and runners, and every rule about them that needs no input or output.
//!
//! Pure: no Diesel, no clock, no process, no environment, no printing. Every crate may depend on it; it depends on none of them.

pub mod limits;
pub mod monitoring;
pub mod run;
pub mod served;
pub mod settings;
pub mod task;
pub mod text;
pub mod time;
