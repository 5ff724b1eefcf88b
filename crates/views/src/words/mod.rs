//! Sentences and words for what the engine found.

pub mod claim_line;
pub mod event_words;
pub mod hung;
pub mod pause_words;
pub mod standstill;
pub mod trouble;
pub mod what;
pub mod why;
