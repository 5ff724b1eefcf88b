//! What is said of tasks, runs, pauses and reasons: sentences for people, JSON for programs. Prints nothing.

pub mod answer;
pub mod claim_line;
pub mod class_times;
pub mod clock;
pub mod cut;
pub mod event_words;
pub mod human;
pub mod hung;
pub mod json;
pub mod links;
pub mod pause_words;
pub mod shell_word;
pub mod standstill;
pub mod time_line;
pub mod trouble;
pub mod what;
pub mod why;
