//! What a task, a run and a runner are, and every rule about them that needs nothing from outside.
//!
//! Pure: no Diesel, no clock, no process, no environment, no printing. Every crate may use it; it uses none of them.

pub mod listen_address;
pub mod pause;
pub mod run;
pub mod served;
pub mod settings;
pub mod task;
pub mod text;
pub mod time;
