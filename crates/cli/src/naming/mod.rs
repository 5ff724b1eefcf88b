//! The names of verbs and topics, also of those that other tools have.

pub(crate) mod foreign_verbs;
pub(crate) mod number_words;
pub(crate) mod topics;
pub(crate) mod verb_groups;
