//! How far long work has come, for the person who waits: on a terminal alone, and gone before anything else is printed.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Out;

/// Where the end is known: a bar, how many of how many, how many a second, and when it will be done.
const TO_AN_END: &str = "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
/// Elsewhere: how many, how many a second, and for how long already.
const WITHOUT_END: &str = "{prefix} {spinner} {human_pos} {msg} {per_sec} {elapsed}";
/// Of a few long steps: which one, and for how long already.
const STEPS: &str = "{prefix} {spinner} {human_pos}/{human_len} {msg} {elapsed}";

/// How often a line is drawn anew while nothing is heard.
const TICK: Duration = Duration::from_millis(200);

/// A line on the terminal, until it is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of things that are counted, and of which it is known how many there are.
    pub(crate) fn to_an_end(out: &Out, doing: &str) -> Self {
        Self::new(out, TO_AN_END, doing)
    }

    /// Of things that are counted, until there are none left.
    pub(crate) fn without_end(out: &Out, doing: &str, things: &'static str) -> Self {
        let progress = Self::new(out, WITHOUT_END, doing);
        progress.0.set_message(things);
        progress
    }

    /// Of steps each of which may take long.
    pub(crate) fn steps(out: &Out, doing: &str) -> Self {
        let progress = Self::new(out, STEPS, doing);
        progress.0.enable_steady_tick(TICK);
        progress
    }

    fn new(out: &Out, template: &str, doing: &str) -> Self {
        // Standard error that is no terminal, or one that knows no sequences of control characters, hides it by itself.
        let target = if out.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target).with_prefix(doing.to_owned());
        match ProgressStyle::with_template(template) {
            Ok(style) => Self(bar.with_style(style.with_key("per_sec", whole_per_sec))),
            Err(_) => Self(bar),
        }
    }

    /// So many are done, of so many.
    pub(crate) fn at(&self, done: usize, total: usize) {
        self.0.set_length(number(total));
        self.count(done);
    }

    /// So many are done.
    pub(crate) fn count(&self, done: usize) {
        self.0.set_position(number(done));
    }

    /// This step has begun; so many were done before it, of so many.
    pub(crate) fn step(&self, done: usize, total: usize, name: String) {
        self.0.set_message(name);
        self.at(done, total);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Who waits wants no ten-thousandths.
fn whole_per_sec(state: &ProgressState, to: &mut dyn fmt::Write) {
    let _ = write!(to, "{:.0}/s", state.per_sec());
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
