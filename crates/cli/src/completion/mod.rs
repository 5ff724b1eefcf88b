//! Completions for a command line. The scripts in contrib/completions call this program, so that tasks and classes of the store
//! can be offered. After any error, fewer words are offered, without a message.

mod bash;
mod words;

use std::ffi::OsString;
use std::sync::Arc;

use clap::{Command, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;

use self::bash::CompletionLine;
use self::words::Asker;
use super::output::clean::clean_line;
use taskqueue_engine::config::completing_shell;

/// A shell for which completions exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    /// Bash
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
}

impl Shell {
    /// Returns the name on the command line and in the scripts.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }

    /// Returns the script that makes the shell call this program.
    pub(super) fn script(self, program: &str) -> String {
        let script = match self {
            Self::Bash => include_str!("../../../../contrib/completions/taskqueue.bash"),
            Self::Zsh => include_str!("../../../../contrib/completions/_taskqueue"),
            Self::Fish => include_str!("../../../../contrib/completions/taskqueue.fish"),
        };
        script.replace("taskqueue", program)
    }
}

/// A completion request of a shell.
pub(super) struct Question {
    shell: Shell,
    words: Vec<String>,
}

impl Question {
    /// Returns the request of the shell that started this process, if any. The first argument must be `--`, so that a variable
    /// left in the environment has no effect.
    pub(super) fn of(arguments: &[OsString]) -> Option<Self> {
        let [_, dashes, words @ ..] = arguments else { return None };
        let asked_by = completing_shell()?;
        let shell = [Shell::Bash, Shell::Zsh, Shell::Fish].into_iter().find(|shell| shell.name() == asked_by)?;
        let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        (dashes == "--").then_some(Self { shell, words })
    }

    /// Returns the answer, one line for each possible word. `own_classes` are handled by this program.
    pub(super) fn answer(self, command: Command, own_classes: Vec<String>) -> String {
        let lines = match self.shell {
            Shell::Bash => for_bash(&self.words, command, own_classes),
            Shell::Zsh => offered(&self.words, command, own_classes).iter().map(line_for_zsh).collect(),
            Shell::Fish => offered(&self.words, command, own_classes).iter().map(line_for_fish).collect(),
        };
        lines.join("\n")
    }
}

/// A completion: a word and its description.
struct CompletionOffer {
    word: String,
    note: String,
    /// Whether it is a value from the store, not a word of this program.
    is_value: bool,
}

impl CompletionOffer {
    /// Returns `None` for a word that cannot be typed.
    fn new(candidate: &CompletionCandidate) -> Option<Self> {
        let word = candidate.get_value().to_str().filter(|word| clean_line(word) == **word)?.to_owned();
        let note = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let note = clean_line(note.lines().next().unwrap_or_default());
        Some(Self { word, note, is_value: candidate.get_id().is_none() })
    }
}

fn offered(words: &[String], command: Command, own_classes: Vec<String>) -> Vec<CompletionOffer> {
    let Some((typed, before)) = words.split_last() else { return Vec::new() };
    let asker = Arc::new(Asker::new(before, own_classes));
    let mut command = words::with_offers(command, &asker);
    command.build();
    let mut command = if typed.starts_with('-') { command } else { with_options_behind(command) };
    let directory = std::env::current_dir().ok();
    let words = words.iter().map(OsString::from).collect();
    let found = complete(&mut command, words, before.len(), directory.as_deref()).unwrap_or_default();
    found.iter().filter_map(CompletionOffer::new).collect()
}

/// Offers options only after a dash, or if nothing else is possible.
fn with_options_behind(command: Command) -> Command {
    command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) }).mut_subcommands(with_options_behind)
}

/// Formats the answer for bash, which shows the lines and inserts their common prefix. Values have notes only if there is more
/// than one word: bash would insert the note of a single one.
fn for_bash(words: &[String], command: Command, own_classes: Vec<String>) -> Vec<String> {
    let [line, replaced, completion, columns] = words else { return Vec::new() };
    let line = CompletionLine::read(line, replaced);
    let offers = offered(&line.words, command, own_classes);
    let found: Vec<(String, &CompletionOffer)> =
        offers.iter().filter_map(|offer| Some((line.replacement(&offer.word)?, offer))).collect();
    // `%` and `*`: bash inserts one word after the other, or all of them.
    let is_shown = found.len() > 1 && !matches!(completion.as_str(), "37" | "42");
    let longest = found.iter().map(|(word, _)| word.chars().count()).max().unwrap_or(0);
    let room = columns.parse().unwrap_or(80_usize).saturating_sub(longest + 5);
    let shown = |(word, offer): (String, &CompletionOffer)| {
        if !is_shown || !offer.is_value || offer.note.is_empty() || room < 10 {
            return word;
        }
        let note: String = offer.note.chars().take(room).collect();
        format!("{word:longest$}  ({note})")
    };
    found.into_iter().map(shown).collect()
}

/// Returns the word, and the word with its note in the format of `_describe`.
fn line_for_zsh(offer: &CompletionOffer) -> String {
    let word = offer.word.replace('\\', "\\\\").replace(':', "\\:");
    let note = if offer.note.is_empty() { String::new() } else { format!(":{}", offer.note.replace('\\', "\\\\")) };
    format!("{}\t{word}{note}", offer.word)
}

fn line_for_fish(offer: &CompletionOffer) -> String {
    if offer.note.is_empty() { offer.word.clone() } else { format!("{}\t{}", offer.word, offer.note) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(word: &str, note: &str) -> CompletionOffer {
        CompletionOffer { word: word.to_owned(), note: note.to_owned(), is_value: true }
    }

    #[test]
    fn each_shell_gets_words_and_notes_in_its_own_way() {
        assert_eq!(line_for_fish(&offer("12", "mail.send failed")), "12\tmail.send failed");
        assert_eq!(line_for_fish(&offer("12", "")), "12");
        assert_eq!(line_for_zsh(&offer("App\\a:b", "it: c")), "App\\a:b\tApp\\\\a\\:b:it: c");
    }

    #[test]
    fn a_word_that_cannot_be_typed_is_not_offered() {
        assert!(CompletionOffer::new(&CompletionCandidate::new("a\nb")).is_none());
        assert!(CompletionOffer::new(&CompletionCandidate::new("a\u{202e}b")).is_none());
        let noted = CompletionCandidate::new("a").help(Some("one\u{202e}\ntwo".to_owned().into()));
        assert_eq!(CompletionOffer::new(&noted).map(|offer| offer.note).as_deref(), Some("one\u{fffd}"));
    }

    #[test]
    fn the_scripts_are_those_of_the_program_under_its_own_name() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(
                shell.script("own-queue").contains("own-queue") && !shell.script("own-queue").contains("taskqueue")
            );
        }
    }
}
