//! The guarantees of every parser, as checks that panic: for the fuzzers in fuzz/, which reach private parsers through this
//! module (feature `fuzzing`), and briefly in every `cargo test`.

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
pub use taskqueue_web::fuzzing::{web_body, web_form, web_host, web_log, web_query};

/// A check with examples of valid input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its function and of its program in fuzz/.
    pub name: &'static str,
    /// Panics if a guarantee is broken.
    pub check: fn(&[u8]),
    /// Examples to start from, including inputs that once failed.
    pub seeds: &'static [&'static str],
}

/// Returns the valid UTF-8 prefix of the input, for parsers of text.
fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_else(|error| std::str::from_utf8(&input[..error.valid_up_to()]).unwrap_or(""))
}
