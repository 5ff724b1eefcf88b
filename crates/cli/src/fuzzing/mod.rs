//! What every parser promises of any input, as checks that panic when it is broken: for the fuzzers in fuzz/, which reach
//! the parsers that are not public through here (feature `fuzzing`), and for a moment of every `cargo test`.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a broken promise is a panic")]

mod domain;
mod files;
mod processes;
mod seeds;
#[cfg(test)]
mod tests;
mod text;

pub use self::domain::{batch_line, class_name, event, exec_data, exit_codes, json, selection, when};
pub use self::files::{config, database_url, outcome, spool};
pub use self::processes::{environ, identity, stat};
pub use self::seeds::TARGETS;
pub use self::text::clean;

/// A check, and what its parser understands.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// That of its function and of its program in fuzz/.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub check: fn(&[u8]),
    /// Where to begin. What was found once is among them.
    pub seeds: &'static [&'static str],
}

/// The input as the text that a parser gets where it gets text.
fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_else(|error| std::str::from_utf8(&input[..error.valid_up_to()]).unwrap_or(""))
}
