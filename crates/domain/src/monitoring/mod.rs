//! What people and monitoring see: notices, time lines, histograms, thresholds.

pub mod follow;
pub mod histogram;
pub mod listen_address;
pub mod notice;
pub mod run_times;
pub mod spread;
pub mod thresholds;
pub mod time_line;
