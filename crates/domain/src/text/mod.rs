//! Checks and cleans text from outside (names, JSON, unreadable values), and formats text for people (errors, suggestions).

pub mod error_words;
pub mod json;
pub mod nearest;
pub mod outside_text;
pub mod parse_words;
pub mod reason;
pub mod unreadable;
pub mod utf8;
pub(crate) mod words;
