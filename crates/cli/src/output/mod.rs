//! The only module that prints: data on standard output, messages on standard error.

mod handler_output;
mod lines;
pub(crate) mod listing;
pub(crate) mod log;
pub(crate) mod page;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod table;

use std::io::{self, IsTerminal as _, Write};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Serialize;

use self::clean::{clean_json, clean_line};
use self::handler_output::StreamCleaner;
use self::lines::write_line;
use self::log::{Log, LogFormat, Priority};
use self::page::Page;
use super::error::CliError;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::ClaimedRun;
pub(crate) use taskqueue_domain::text::outside_text as clean;
use taskqueue_engine::config::BadVariable;
use taskqueue_engine::output_was_closed;

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Standard output and standard error, and what is known about their readers.
#[derive(Default)]
pub(crate) struct Out {
    is_json: bool,
    /// Whether errors are printed as JSON, also without `--json`.
    has_json_errors: bool,
    /// Whether tables are printed without the names of their columns.
    hides_header: bool,
    is_verbose: bool,
    is_terminal: bool,
    use_color: bool,
    is_unread: bool,
    has_met_closed: bool,
    /// Whether output of handlers is cleaned even if it is not printed on a terminal.
    cleans_handler_output: bool,
    /// For standard output and standard error.
    cleaners: [StreamCleaner; 2],
    lost: Option<io::Error>,
    /// How many lines are left on the screen, if a list must not scroll its beginning away.
    lines_left: Option<usize>,
    /// Set for a verb whose messages are also read by programs.
    log: Option<Log>,
}

impl Out {
    pub(crate) fn new(is_json: bool, is_verbose: bool, color: ColorChoice) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let use_color = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && terminal_wants_color(),
        };
        Self { is_json, has_json_errors: is_json, is_verbose, is_terminal, use_color, ..Self::default() }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    /// Prints errors as JSON from now on.
    pub(crate) const fn print_errors_as_json(&mut self) {
        self.has_json_errors = true;
    }

    pub(crate) const fn hide_table_header(&mut self, hides: bool) {
        self.hides_header = hides;
    }

    pub(crate) const fn hides_header(&self) -> bool {
        self.hides_header
    }

    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns true if standard error is a terminal.
    pub(crate) fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    pub(crate) const fn use_color(&self) -> bool {
        self.use_color
    }

    /// Returns the columns of the terminal; `None` for a pipe, where nothing is cut.
    pub(crate) fn width(&self) -> Option<u16> {
        self.size().map(|(width, _)| width)
    }

    /// Returns the columns and rows of the terminal.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
        if !self.is_terminal {
            return None;
        }
        terminal_size::terminal_size().map(|(width, height)| (width.0, height.0))
    }

    /// Prints data: one or more whole lines. Text is cleaned when it is added to a [`Page`], so unclean text cannot be printed.
    pub(crate) fn data(&mut self, page: impl Into<Page>) -> anyhow::Result<()> {
        self.print(page.into().text())
    }

    /// Prints the value with `--json`, and the page without it.
    pub(crate) fn json_or<T: Serialize + ?Sized>(&mut self, value: &T, page: impl Into<Page>) -> anyhow::Result<()> {
        if self.is_json { self.json(value) } else { self.data(page) }
    }

    fn print(&mut self, text: &str) -> anyhow::Result<()> {
        if output_was_closed() {
            self.has_met_closed = true;
            bail!("standard output is closed");
        }
        let Some(text) = self.cut_to_screen(text) else { return Ok(()) };
        let mut stdout = io::stdout().lock();
        let written = write_line(&mut stdout, text).and_then(|()| stdout.flush());
        match written {
            // A reader that closes the pipe early (`| head`) is not an error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_unread = true;
                Ok(())
            }
            Err(error) => Err(error).context("cannot write to standard output"),
            Ok(()) => Ok(()),
        }
    }

    /// Returns true if the reader of standard output has exited, so that further output is lost.
    pub(crate) const fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Returns true if the reader has exited, or some output of a handler was lost.
    pub(crate) const fn has_failed(&self) -> bool {
        self.is_unread || self.lost.is_some()
    }

    /// Prints data as one line of JSON.
    pub(crate) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> anyhow::Result<()> {
        self.json_text(&serde_json::to_string(value)?)
    }

    /// Prints data as one line of JSON with `--json`, and nothing without it.
    pub(crate) fn json_if_asked<T: Serialize + ?Sized>(&mut self, value: &T) -> anyhow::Result<()> {
        if self.is_json { self.json(value) } else { Ok(()) }
    }

    /// Prints a line that is JSON already.
    pub(crate) fn json_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.print(&clean_json(text))
    }

    /// Prints output of a handler, live or stored: clean on a terminal, byte for byte into a pipe or a file.
    pub(crate) fn handler_output(&mut self, is_stderr: bool, bytes: &[u8]) {
        if self.cleans(is_stderr) {
            let clean = self.cleaners[usize::from(is_stderr)].clean(bytes);
            self.write_bytes(is_stderr, clean.as_bytes());
        } else {
            self.write_bytes(is_stderr, bytes);
        }
    }

    /// Prints a line of a handler's output after a prefix, which has the colour of this number on a terminal.
    pub(crate) fn prefixed_output(&mut self, is_stderr: bool, prefix: &str, number: i64, line: &str) {
        const COLORS: [u8; 6] = [32, 33, 34, 35, 36, 31];
        let prefix = clean_line(prefix);
        let color = usize::try_from(number).ok().and_then(|number| COLORS.get(number % COLORS.len()));
        let prefix = match color.filter(|_| self.use_color) {
            Some(color) => format!("\x1b[{color}m{prefix}\x1b[0m"),
            None => prefix,
        };
        let line = if self.cleans(is_stderr) { clean_line(line) } else { line.to_owned() };
        // In one write, so that no line of another process comes in between.
        self.write_bytes(is_stderr, format!("{prefix}{line}\n").as_bytes());
    }

    /// Cleans output of handlers from now on, even if it is not printed on a terminal.
    pub(crate) const fn clean_handler_output(&mut self) {
        self.cleans_handler_output = true;
    }

    fn cleans(&self, is_stderr: bool) -> bool {
        let is_terminal = if is_stderr { io::stderr().is_terminal() } else { self.is_terminal };
        is_terminal || self.cleans_handler_output
    }

    fn write_bytes(&mut self, is_stderr: bool, bytes: &[u8]) {
        // The reader may have exited; the handler continues anyway.
        if is_stderr {
            let _ = io::stderr().write_all(bytes);
        } else if output_was_closed() && !bytes.is_empty() {
            self.has_met_closed = true;
        } else if let Err(error) = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
            if error.kind() == io::ErrorKind::BrokenPipe {
                self.is_unread = true;
            } else {
                self.lost.get_or_insert(error);
            }
        }
    }

    /// Returns why some output of a handler was lost, unless another error was reported.
    pub(crate) fn lost(&mut self) -> Option<CliError> {
        let why = match self.lost.take() {
            Some(error) => format!("cannot write to standard output: {error}"),
            None if self.has_met_closed => "standard output is closed".to_owned(),
            None => return None,
        };
        Some(self.with_output_hint(CliError::failed(format!("{why}; what the handler wrote there is lost"))))
    }

    /// Adds a hint to the error if standard output was closed.
    pub(crate) fn with_output_hint(&self, error: CliError) -> CliError {
        if self.has_met_closed && error.hint.is_none() {
            return error.with_hint("to discard the output, write >/dev/null instead of >&-");
        }
        error
    }

    /// Prints messages as lines of a log from now on.
    pub(crate) fn begin_log(&mut self, format: LogFormat) -> Result<(), BadVariable> {
        self.log = Some(Log::new(format)?);
        Ok(())
    }

    /// Adds the id of this runner to later messages.
    pub(crate) fn of_runner(&mut self, runner_id: RunnerId) {
        if let Some(log) = &mut self.log {
            log.of_runner(runner_id);
        }
    }

    /// Adds this run to the messages that `say` prints.
    pub(crate) fn about(&mut self, run: &ClaimedRun, say: impl FnOnce(&mut Self)) {
        self.set_subject(Some(run));
        say(self);
        self.set_subject(None);
    }

    fn set_subject(&mut self, run: Option<&ClaimedRun>) {
        if let Some(log) = &mut self.log {
            log.about(run);
        }
    }

    /// Prints a message for a user who waits; not with `--json`.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.is_json {
            self.tell(Priority::Info, text);
        }
    }

    /// Prints an unimportant message, such as that there was nothing to do, only on a terminal or with `-v`: cron mails all
    /// output.
    pub(crate) fn say_if_watched(&mut self, text: &str) {
        if self.is_verbose || self.is_watched() {
            self.say(text);
        }
    }

    /// Prints a message with `-v`.
    pub(crate) fn say_verbose(&mut self, text: &str) {
        if self.is_verbose {
            self.tell(Priority::Info, text);
        }
    }

    pub(crate) const fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// Prints a warning.
    pub(crate) fn warn(&mut self, text: &str) {
        self.tell(Priority::Warning, text);
    }

    /// Returns a function that prints a warning like [`Out::warn`], for a caller without an `Out`.
    pub(crate) fn warning_printer(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let format = self.log.as_ref().map(Log::format);
        move |text| match format.and_then(|format| Log::new(format).ok()) {
            Some(log) => log.tell(Priority::Warning, text),
            None => tell_stderr(&Priority::Warning.before(text)),
        }
    }

    /// Prints the error that ends the program.
    pub(crate) fn error(&mut self, error: &CliError) {
        if self.has_json_errors {
            let mut object = serde_json::json!({"error": {
                "code": error.kind, "message": error.message, "hint": error.hint, "exit_status": error.code,
            }});
            if let Some(found) = &error.details {
                object["error"]["found"] = (**found).clone();
            }
            let _ = write_line(&mut io::stderr(), &clean_json(&object.to_string()));
            return;
        }
        // A log has no lines that belong together.
        let is_log = self.log.is_some();
        self.tell(Priority::Error, if is_log { &error.message } else { error.headline() });
        for line in error.report().iter().filter(|_| !is_log) {
            tell_stderr(line);
        }
        if let Some(hint) = &error.hint {
            self.tell(Priority::Info, &format!("hint: {hint}"));
        }
    }

    fn tell(&mut self, priority: Priority, text: &str) {
        match &self.log {
            Some(log) => log.tell(priority, text),
            None => tell_stderr(&priority.before(text)),
        }
    }

    /// Returns true if a person on a terminal reads the messages.
    pub(crate) fn has_messages_on_terminal(&self) -> bool {
        !self.is_json && io::stderr().is_terminal()
    }

    /// Returns true if there is a terminal for questions.
    pub(crate) fn can_ask(&self) -> bool {
        self.has_messages_on_terminal() && io::stdin().is_terminal()
    }

    /// Asks a yes-or-no question on the terminal; `None` if there is none, or no answer.
    pub(crate) fn ask(&mut self, question: &str) -> anyhow::Result<Option<bool>> {
        if !self.can_ask() {
            return Ok(None);
        }
        // In one write, so that typed characters do not appear inside the question.
        let _ = io::stderr().write_all(format!("{} [y/N] ", clean_line(question)).as_bytes());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).context("cannot read the answer")?;
        Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
    }

    /// Clears the terminal for a list that is refreshed; from now on nothing is printed beyond its end.
    pub(crate) fn begin_screen(&mut self) {
        if !self.is_terminal || terminal_is_dumb() {
            return;
        }
        let _ = io::stdout().write_all(b"\x1b[H\x1b[2J");
        // The last line is for the cursor.
        let rows = terminal_size::terminal_size().map(|(_, height)| usize::from(height.0).saturating_sub(1));
        self.lines_left = rows.filter(|rows| *rows > 0);
    }

    /// Returns as much of the text as fits the screen.
    fn cut_to_screen<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let Some(left) = self.lines_left else { return Some(text) };
        let end = text.match_indices('\n').nth(left.saturating_sub(1)).map_or(text.len(), |(at, _)| at);
        let cut = &text[..end];
        self.lines_left = Some(left.saturating_sub(cut.matches('\n').count() + 1));
        (left > 0).then_some(cut)
    }
}

/// Prints one message line on standard error.
pub(crate) fn tell_stderr(text: &str) {
    // If standard error is closed, the message is lost.
    let _ = write_line(&mut io::stderr(), &clean_line(text));
}

/// Returns the width of the help, like clap: that of the terminal on any stream, or COLUMNS, or 100.
#[expect(clippy::disallowed_methods, reason = "conventions of terminals, not configuration")]
pub(crate) fn help_width() -> u16 {
    let columns = || std::env::var_os("COLUMNS")?.to_str()?.parse::<u16>().ok();
    terminal_size::terminal_size().map(|(width, _)| width.0).or_else(columns).unwrap_or(100)
}

#[expect(clippy::disallowed_methods, reason = "conventions of terminals, not configuration")]
fn terminal_wants_color() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && !terminal_is_dumb()
}

/// Returns true if the terminal does not support control sequences.
#[expect(clippy::disallowed_methods, reason = "conventions of terminals, not configuration")]
fn terminal_is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_its_end_are_one_write() {
        struct Writes(Vec<Vec<u8>>);

        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let mut writes = Writes(Vec::new());
        assert!(write_line(&mut writes, "two\nlines").is_ok());
        assert_eq!(writes.0, [b"two\nlines\n".to_vec()]);
    }

    #[test]
    fn a_screen_takes_as_many_lines_as_it_has_room_for() {
        let mut out = Out::new(false, false, ColorChoice::Never);
        assert_eq!(out.cut_to_screen("a\nb\nc"), Some("a\nb\nc"));
        out.lines_left = Some(4);
        assert_eq!(out.cut_to_screen("a"), Some("a"));
        assert_eq!(out.cut_to_screen("b\nc"), Some("b\nc"));
        assert_eq!(out.cut_to_screen("d\ne"), Some("d"));
        assert_eq!(out.cut_to_screen("f"), None);
    }
}
