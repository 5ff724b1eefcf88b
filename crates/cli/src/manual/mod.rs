//! Manual pages of the program and each verb, from `--help`, and of each topic, from `help TOPIC`. They depend only on the
//! program, not on a clock or the host.

mod markdown;
mod plain;

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

pub(super) use self::plain::to_text;
use crate::naming::topics;

/// A manual page.
pub(super) struct ManualPage {
    /// For example `taskqueue-queue.1`.
    pub(super) name: String,
    pub(super) text: String,
}

/// The sections of the manual: commands and miscellanea.
const COMMANDS: &str = "1";
const MISCELLANEA: &str = "7";

/// Returns all pages of a command line.
pub(super) fn pages(command: Command) -> io::Result<Vec<ManualPage>> {
    let program = ManualProgram::of(command);
    let mut pages = Vec::new();
    program.add_commands(&program.command, &mut pages)?;
    for topic in topics::list() {
        pages.extend(program.topic_page(topic));
    }
    Ok(pages)
}

/// Returns the page of a verb or subcommand; without words, of the program itself. `None` if there is no such verb or topic.
pub(super) fn page(command: Command, words: &[String]) -> io::Result<Option<ManualPage>> {
    let program = ManualProgram::of(command);
    if let [topic] = words
        && let Some(page) = program.topic_page(topic)
    {
        return Ok(Some(page));
    }
    let mut found = &program.command;
    for word in words {
        match found.find_subcommand(word) {
            Some(below) => found = below,
            None => return Ok(None),
        }
    }
    program.command_page(found).map(Some)
}

/// A program whose pages are generated.
struct ManualProgram {
    command: Command,
    /// Its name and version.
    source: String,
}

impl ManualProgram {
    fn of(command: Command) -> Self {
        let mut command = without_help_verbs(command);
        command.build();
        let source = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
        Self { command, source }
    }

    fn name(&self) -> &str {
        self.command.get_name()
    }

    fn add_commands(&self, command: &Command, pages: &mut Vec<ManualPage>) -> io::Result<()> {
        pages.push(self.command_page(command)?);
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .try_for_each(|below| self.add_commands(below, pages))
    }

    fn command_page(&self, command: &Command) -> io::Result<ManualPage> {
        let name = command.get_display_name().unwrap_or(self.name());
        let man = Man::new(command.clone()).section(COMMANDS);
        let mut text = self.title(name, COMMANDS);
        text.push_str(&section(|to| man.render_name_section(to))?);
        text.push_str(&synopsis(command));
        text.push_str(&section(|to| man.render_description_section(to))?);
        text.push_str(&section(|to| man.render_options_section(to))?);
        if command.has_subcommands() {
            text.push_str(&section(|to| man.render_subcommands_section(to))?);
        }
        text.push_str(&examples(command));
        text.push_str(&self.see_also(name));
        Ok(ManualPage { name: format!("{name}.{COMMANDS}"), text: printable(&text) })
    }

    fn topic_page(&self, topic: &str) -> Option<ManualPage> {
        let name = format!("{}-{topic}", self.name());
        let body = markdown::to_roff(topics::topic(topic)?);
        let mut head = Roff::new();
        head.control("SH", ["NAME"]).text([roman(format!("{name} - {}", topics::purpose(topic)))]);
        head.control("SH", ["DESCRIPTION"]);
        let mut text = self.title(&name, MISCELLANEA);
        text.push_str(&without_preamble(&head.render()));
        text.push_str(&without_preamble(&body.render()));
        text.push_str(&self.see_also(&name));
        Some(ManualPage { name: format!("{name}.{MISCELLANEA}"), text: printable(&text) })
    }

    /// Returns the title with an empty date, so that the page does not depend on a clock.
    fn title(&self, name: &str, section: &str) -> String {
        let manual = format!("Manual of {}", self.name());
        format!("{}.TH \"{name}\" \"{section}\" \"\" \"{}\" \"{manual}\"\n", Roff::new().render(), self.source)
    }

    fn see_also(&self, name: &str) -> String {
        let all = [(self.name().to_owned(), COMMANDS)]
            .into_iter()
            .chain(topics::list().map(|topic| (format!("{}-{topic}", self.name()), MISCELLANEA)));
        let mut words = Vec::new();
        for (other, section) in all.filter(|(other, _)| other != name) {
            let between = if words.is_empty() { "" } else { ", " };
            words.extend([roman(between), bold(other), roman(format!("({section})"))]);
        }
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]).text(words);
        without_preamble(&roff.render())
    }
}

/// Removes the `help` verbs, which have no page.
fn without_help_verbs(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_verbs)
}

fn section(render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<String> {
    let mut text = Vec::new();
    render(&mut text)?;
    Ok(without_preamble(&String::from_utf8_lossy(&text)))
}

/// Removes the definitions at the beginning of a rendered part; the whole page needs them once.
fn without_preamble(text: &str) -> String {
    text.strip_prefix(&Roff::new().render()).unwrap_or(text).to_owned()
}

fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (number, form) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        match form.strip_prefix(name) {
            Some(rest) => roff.text([bold(name), roman(rest)]),
            None => roff.text([roman(form)]),
        };
    }
    without_preamble(&roff.render())
}

fn examples(command: &Command) -> String {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some(lines) = after.strip_prefix("Examples:\n") else { return String::new() };
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    without_preamble(&roff.render())
}

/// Replaces characters that not every terminal has, and escapes those with a meaning in a manual page.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '`' => printable.push_str("\\(ga"),
            '^' => printable.push_str("\\(ha"),
            '~' => printable.push_str("\\(ti"),
            '\u{2026}' => printable.push_str("\\&..."),
            c if c.is_ascii() => printable.push(c),
            c => printable.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn there_is_a_page_for_the_program_for_each_verb_and_for_each_topic() {
        let names: Vec<String> = pages(crate::Cli::command()).unwrap().into_iter().map(|page| page.name).collect();
        for name in ["taskqueue.1", "taskqueue-queue.1", "taskqueue-schedule.1", "taskqueue-schedule-show.1"] {
            assert!(names.iter().any(|page| page == name), "{name}: {names:?}");
        }
        for topic in topics::list() {
            assert!(names.contains(&format!("taskqueue-{topic}.7")), "{topic}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    }

    #[test]
    fn a_page_is_found_by_its_verb_or_topic() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let name = |text: &str| page(crate::Cli::command(), &words(text)).unwrap().map(|page| page.name);
        assert_eq!(name("").as_deref(), Some("taskqueue.1"));
        assert_eq!(name("setting set").as_deref(), Some("taskqueue-setting-set.1"));
        assert_eq!(name("times").as_deref(), Some("taskqueue-times.7"));
        assert_eq!(name("nothing"), None);
        assert_eq!(name("queue nothing"), None);
    }
}
