//! How tasks, runs, pauses and reasons are shown.

pub(crate) mod answer;
pub(crate) mod class_times;
pub(crate) mod clock;
pub(crate) mod cut;
pub(crate) mod final_failures;
pub(crate) mod hung;
pub(crate) mod links;
pub(crate) mod outcome;
pub(crate) mod pause_words;
pub(crate) mod standstill;
pub(crate) mod task_view;
pub(crate) mod time_line;
pub(crate) mod unknown_class;
pub(crate) mod what;
pub(crate) mod why;
