//! Progress of long work: shown only on a terminal, and removed before anything else is printed.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{Out, tell_stderr};
use taskqueue_engine::{DatabaseUrl, announce_slow_answer};

/// With a known end: a bar, the count and the total, the rate, and the expected end.
const TO_AN_END: &str = "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
/// Without a known end: the count, the rate, and the elapsed time.
const WITHOUT_END: &str = "{prefix} {spinner} {human_pos} {msg} {per_sec} {elapsed}";
/// For a few long steps: the current step, and the elapsed time.
const STEPS: &str = "{prefix} {spinner} {human_pos}/{human_len} {msg} {elapsed}";

/// How often a line is redrawn without updates.
const TICK: Duration = Duration::from_millis(200);

/// A line on the terminal, until it is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Creates a line for a known number of things.
    pub(crate) fn to_an_end(out: &Out, doing: &str) -> Self {
        Self::new(out, TO_AN_END, doing)
    }

    /// Creates a line for an unknown number of things.
    pub(crate) fn without_end(out: &Out, doing: &str, things: &'static str) -> Self {
        let progress = Self::new(out, WITHOUT_END, doing);
        progress.0.set_message(things);
        progress
    }

    /// Creates a line for steps that may each take long.
    pub(crate) fn steps(out: &Out, doing: &str) -> Self {
        let progress = Self::new(out, STEPS, doing);
        progress.0.enable_steady_tick(TICK);
        progress
    }

    fn new(out: &Out, template: &str, doing: &str) -> Self {
        // Standard error hides it if it is no terminal, or one without control sequences.
        let target = if out.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target).with_prefix(doing.to_owned());
        match ProgressStyle::with_template(template) {
            Ok(style) => Self(bar.with_style(style.with_key("per_sec", whole_per_sec))),
            Err(_) => Self(bar),
        }
    }

    /// Sets how many of how many are done.
    pub(crate) fn at(&self, done: usize, total: usize) {
        self.0.set_length(number(total));
        self.count(done);
    }

    /// Sets how many are done.
    pub(crate) fn count(&self, done: usize) {
        self.0.set_position(number(done));
    }

    /// Prints something while the line is hidden.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Returns a function that prints a message beside the line, from any thread.
    pub(crate) fn printer(&self) -> impl Fn(&str) + Send + use<> {
        let bar = self.0.clone();
        move |text| bar.suspend(|| tell_stderr(text))
    }

    /// Shows beside the line that a server has not answered for a second.
    pub(crate) fn announce_slow_answer(&self, url: &DatabaseUrl) {
        if !self.0.is_hidden() {
            announce_slow_answer(url, self.printer());
        }
    }

    /// Sets the current step, how many were done before it, and their total.
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

/// Formats the rate without decimals.
fn whole_per_sec(state: &ProgressState, to: &mut dyn fmt::Write) {
    let _ = write!(to, "{:.0}/s", state.per_sec());
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
