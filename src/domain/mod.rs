//! What a task, a run and a runner are, and every rule about them that needs nothing from outside.
//!
//! Pure: no Diesel, no clock, no process, no environment, no printing. Everybody may use it; it uses nobody.

pub mod attempt_outcome;
pub mod backoff;
pub mod check;
pub mod claimant;
pub mod confinement;
pub mod decision;
pub mod dependencies;
pub mod due;
pub mod ending;
pub mod exit_rules;
pub mod follow;
pub mod histogram;
pub mod ids;
pub mod json;
pub mod lease;
pub mod limits;
pub mod listen_address;
pub mod message;
pub mod meta;
pub mod nearest;
pub mod new_task;
pub mod notice;
pub mod outside_text;
pub mod parent;
pub mod parse_words;
pub mod pause;
pub mod reason;
pub mod records;
pub mod recurrence;
pub mod retention;
pub mod selection;
pub mod served;
pub mod settings;
pub mod status;
pub mod stop_reason;
pub mod task_change;
pub mod task_choice;
pub mod task_class;
pub mod time_line;
pub mod time_zone;
pub mod transition;
pub mod unique;
pub mod unreadable;
pub mod when;
