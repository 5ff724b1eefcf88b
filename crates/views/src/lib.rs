//! What is said of tasks, runs, pauses and reasons: sentences for people, JSON for programs. Prints nothing.

pub mod answer;
pub mod class_times;
pub mod clock;
pub mod cut;
pub mod human;
pub mod json;
pub mod links;
pub mod shell_word;
pub mod time_line;
pub mod words;
