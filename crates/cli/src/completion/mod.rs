//! What a shell offers while somebody types a command line. The scripts of contrib/completions ask the program itself, so that it
//! knows the tasks and classes of the store. Whatever goes wrong, less is offered, and nothing is said of it.

mod bash;
mod words;

use std::ffi::OsString;
use std::sync::Arc;

use clap::{Command, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;

use self::bash::Line;
use self::words::Asker;
use super::output::clean::clean_line;
use taskqueue_engine::config::completing_shell;

/// A shell that can ask.
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
    /// As it is spelt on the command line and by the scripts.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }

    /// What makes the shell ask this program.
    pub(super) fn script(self, program: &str) -> String {
        let script = match self {
            Self::Bash => include_str!("../../../../contrib/completions/taskqueue.bash"),
            Self::Zsh => include_str!("../../../../contrib/completions/_taskqueue"),
            Self::Fish => include_str!("../../../../contrib/completions/taskqueue.fish"),
        };
        script.replace("taskqueue", program)
    }
}

/// What a shell wants to know.
pub(super) struct Question {
    shell: Shell,
    words: Vec<String>,
}

impl Question {
    /// The question of the shell that started this process, if one did. Nobody else writes `--` first: a variable that was left
    /// behind by accident changes nothing.
    pub(super) fn of(arguments: &[OsString]) -> Option<Self> {
        let [_, dashes, words @ ..] = arguments else { return None };
        let asked_by = completing_shell()?;
        let shell = [Shell::Bash, Shell::Zsh, Shell::Fish].into_iter().find(|shell| shell.name() == asked_by)?;
        let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        (dashes == "--").then_some(Self { shell, words })
    }

    /// The answer, a line for each word that may stand there. `own_classes` are handled by this very program.
    pub(super) fn answer(self, command: Command, own_classes: Vec<String>) -> String {
        let lines = match self.shell {
            Shell::Bash => for_bash(&self.words, command, own_classes),
            Shell::Zsh => offered(&self.words, command, own_classes).iter().map(line_for_zsh).collect(),
            Shell::Fish => offered(&self.words, command, own_classes).iter().map(line_for_fish).collect(),
        };
        lines.join("\n")
    }
}

/// A word, and what it is.
struct Offer {
    word: String,
    note: String,
    /// Whether it is one of the values that somebody looks up, not one of the words of this program.
    is_value: bool,
}

impl Offer {
    /// Of a word that cannot be typed, whoever wrote it into the store, nobody wants to hear.
    fn new(candidate: &CompletionCandidate) -> Option<Self> {
        let word = candidate.get_value().to_str().filter(|word| clean_line(word) == **word)?.to_owned();
        let note = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let note = clean_line(note.lines().next().unwrap_or_default());
        Some(Self { word, note, is_value: candidate.get_id().is_none() })
    }
}

fn offered(words: &[String], command: Command, own_classes: Vec<String>) -> Vec<Offer> {
    let Some((typed, before)) = words.split_last() else { return Vec::new() };
    let asker = Arc::new(Asker::new(before, own_classes));
    let mut command = words::with_offers(command, &asker);
    command.build();
    let mut command = if typed.starts_with('-') { command } else { with_options_behind(command) };
    let directory = std::env::current_dir().ok();
    let words = words.iter().map(OsString::from).collect();
    let found = complete(&mut command, words, before.len(), directory.as_deref()).unwrap_or_default();
    found.iter().filter_map(Offer::new).collect()
}

/// Options are offered to whoever types a dash, or where nothing else can stand.
fn with_options_behind(command: Command) -> Command {
    command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) }).mut_subcommands(with_options_behind)
}

/// Bash shows what it is given, and types as much of it as all have in common: as long as there is more than one word, there can be
/// notes behind values.
fn for_bash(words: &[String], command: Command, own_classes: Vec<String>) -> Vec<String> {
    let [line, replaced, completion, columns] = words else { return Vec::new() };
    let line = Line::read(line, replaced);
    let offers = offered(&line.words, command, own_classes);
    let found: Vec<(String, &Offer)> =
        offers.iter().filter_map(|offer| Some((line.replacement(&offer.word)?, offer))).collect();
    // % and *: they are typed one after the other, or all of them.
    let is_shown = found.len() > 1 && !matches!(completion.as_str(), "37" | "42");
    let longest = found.iter().map(|(word, _)| word.chars().count()).max().unwrap_or(0);
    let room = columns.parse().unwrap_or(80_usize).saturating_sub(longest + 5);
    let shown = |(word, offer): (String, &Offer)| {
        if !is_shown || !offer.is_value || offer.note.is_empty() || room < 10 {
            return word;
        }
        let note: String = offer.note.chars().take(room).collect();
        format!("{word:longest$}  ({note})")
    };
    found.into_iter().map(shown).collect()
}

/// The word, and the same with its note as `_describe` takes them.
fn line_for_zsh(offer: &Offer) -> String {
    let word = offer.word.replace('\\', "\\\\").replace(':', "\\:");
    let note = if offer.note.is_empty() { String::new() } else { format!(":{}", offer.note.replace('\\', "\\\\")) };
    format!("{}\t{word}{note}", offer.word)
}

fn line_for_fish(offer: &Offer) -> String {
    if offer.note.is_empty() { offer.word.clone() } else { format!("{}\t{}", offer.word, offer.note) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(word: &str, note: &str) -> Offer {
        Offer { word: word.to_owned(), note: note.to_owned(), is_value: true }
    }

    #[test]
    fn each_shell_gets_words_and_notes_in_its_own_way() {
        assert_eq!(line_for_fish(&offer("12", "mail.send failed")), "12\tmail.send failed");
        assert_eq!(line_for_fish(&offer("12", "")), "12");
        assert_eq!(line_for_zsh(&offer("App\\a:b", "it: c")), "App\\a:b\tApp\\\\a\\:b:it: c");
    }

    #[test]
    fn a_word_that_cannot_be_typed_is_not_offered() {
        assert!(Offer::new(&CompletionCandidate::new("a\nb")).is_none());
        assert!(Offer::new(&CompletionCandidate::new("a\u{202e}b")).is_none());
        let noted = CompletionCandidate::new("a").help(Some("one\u{202e}\ntwo".to_owned().into()));
        assert_eq!(Offer::new(&noted).map(|offer| offer.note).as_deref(), Some("one\u{fffd}"));
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
