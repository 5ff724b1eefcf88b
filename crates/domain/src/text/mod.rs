//! Text from outside, and text for people.

pub mod error_words;
pub mod json;
pub mod nearest;
pub mod outside_text;
pub mod parse_words;
pub mod reason;
pub mod unreadable;
