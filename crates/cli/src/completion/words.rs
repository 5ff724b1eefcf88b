//! The words that an argument accepts, found by the name of its value, which is the same for every verb.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, ValueCompleter};

use crate::naming::topics;
use crate::session::look;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::choosing::selection::{FILTER_KEYS, StatusFilter};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_domain::task::unique::OnConflict;
use taskqueue_domain::time::recurrence::{CatchUp, Overlap};
use taskqueue_engine::config::{completion_limit, with_home};
use taskqueue_engine::inspect::diagnosis::candidates::{Candidate, Wanted, candidates};

/// How long a completion may wait for the store.
const LIMIT: Duration = Duration::from_millis(500);

/// What an argument accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordPlace {
    /// A selection of tasks, with ids of tasks in these statuses.
    Selection(&'static [TaskStatus]),
    /// Values from the store.
    Stored(Wanted),
    /// A class that is configured here or has tasks.
    Class,
    Setting,
    Status,
    OnConflict,
    CatchUp,
    Overlap,
    /// A file.
    File,
}

/// The statuses of finished or failed tasks, and of other tasks.
const OVER: &[TaskStatus] =
    &[TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Cancelled, TaskStatus::Expired, TaskStatus::Success];
const NOT_OVER: &[TaskStatus] =
    &[TaskStatus::Processing, TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Scheduled];

impl WordPlace {
    /// Returns what an argument of a verb accepts; `None` if it is unknown.
    fn of(verb: &str, arg: &Arg) -> Option<Self> {
        let value = arg.get_value_names()?.first().filter(|_| arg.get_action().takes_values())?.as_str();
        Some(match (value, arg.get_id().as_str(), verb) {
            ("SELECTION", _, "retry" | "prune") => Self::Selection(OVER),
            ("SELECTION", _, "cancel" | "edit" | "wait" | "explain") => Self::Selection(NOT_OVER),
            ("SELECTION", ..) => Self::Selection(&TaskStatus::ALL),
            ("TASK", ..) => Self::Stored(Wanted::Tasks(&TaskStatus::ALL)),
            ("SCHEDULE", ..) => Self::Stored(Wanted::Schedules),
            ("RUN" | "RUN_ID", _, "process-run") => Self::Stored(Wanted::WaitingRuns),
            ("RUN" | "RUN_ID", _, "events") => Self::Stored(Wanted::Runs),
            ("RUN" | "RUN_ID", ..) => Self::Stored(Wanted::ProcessingRuns),
            // A new class.
            ("CLASS", _, "init") => return None,
            ("CLASS", _, "resume") => Self::Stored(Wanted::PausedClasses),
            ("CLASS" | "PATTERN", ..) => Self::Class,
            ("NAME", "runner", "resume") => Self::Stored(Wanted::PausedRunners),
            ("NAME", "runner", _) => Self::Stored(Wanted::Runners),
            ("NAME", "name", "setting") => Self::Setting,
            ("KEY", "key" | "limit_key", _) => Self::Stored(Wanted::LimitKeys),
            ("TAG", ..) => Self::Stored(Wanted::Tags),
            ("STATUS", ..) => Self::Status,
            ("WHAT", "on_conflict", _) => Self::OnConflict,
            ("WHICH", "catch_up", _) => Self::CatchUp,
            ("WHAT", "overlap", _) => Self::Overlap,
            ("PROGRAM", ..) => Self::File,
            _ => return None,
        })
    }
}

/// Returns the command line with completions for all of its arguments.
pub(super) fn with_offers(command: Command, asker: &Arc<Asker>) -> Command {
    let verbs = command.get_subcommands().map(|verb| verb.get_name().to_owned());
    let about: Vec<String> = verbs.chain(topics::list().map(str::to_owned)).collect();
    let help = Command::new("help")
        .about("Print the help of a command or a topic")
        .arg(Arg::new("about").value_parser(PossibleValuesParser::new(about)));
    command.subcommand(help).mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        with_offers_of(verb, &name, asker)
    })
}

fn with_offers_of(command: Command, verb: &str, asker: &Arc<Asker>) -> Command {
    command
        .mut_args(|arg| match WordPlace::of(verb, &arg) {
            Some(WordPlace::File) => arg.value_hint(ValueHint::AnyPath),
            Some(place) => arg.add(ArgValueCompleter::new(Offers { place, asker: Arc::clone(asker) })),
            None => arg,
        })
        .mut_subcommands(|below| with_offers_of(below, verb, asker))
}

/// Reads the store and the configuration for completions.
pub(super) struct Asker {
    database: Option<String>,
    config: Option<String>,
    own_classes: Vec<String>,
    limit: Duration,
}

impl Asker {
    /// Uses the store and the configuration that these complete words select.
    pub(super) fn new(words: &[String], own_classes: Vec<String>) -> Self {
        let option = |name| option_of(words, name).map(|value| with_home(&value));
        Self {
            database: option("--database"),
            config: option("--config"),
            own_classes,
            limit: completion_limit().unwrap_or(LIMIT),
        }
    }

    fn find(&self, wanted: Wanted, beginning: &str) -> Vec<Candidate> {
        look(self.database.as_deref(), self.config.as_deref().map(Path::new))
            .map_or_else(Vec::new, |there| candidates(&there.url, wanted, beginning, self.limit))
    }

    /// Returns classes, those that are configured here first.
    fn find_classes(&self, beginning: &str) -> Vec<Candidate> {
        let there = look(self.database.as_deref(), self.config.as_deref().map(Path::new));
        let mut found: Vec<Candidate> =
            self.own_classes.iter().map(|name| candidate(name, "handled by this program")).collect();
        if let Some(there) = &there {
            let configured = there.classes.by_name().into_iter().filter(|class| !class.is_pattern());
            found.extend(configured.map(|class| candidate(&class.name, &class.command.argv.join(" "))));
            found.extend(there.exec_enabled.then(|| candidate(EXEC_CLASS, "built in")));
        }
        let stored =
            there.map_or_else(Vec::new, |there| candidates(&there.url, Wanted::Classes, beginning, self.limit));
        let is_new = |class: &Candidate| found.iter().all(|known| known.word != class.word);
        let others: Vec<Candidate> = stored.into_iter().filter(is_new).collect();
        found.extend(others);
        found
    }
}

/// Returns the value of an option before a `--`.
fn option_of(words: &[String], name: &str) -> Option<String> {
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        match word.strip_prefix(name) {
            Some("") => return words.next().cloned(),
            Some(value) if value.starts_with('=') => return value.get(1..).map(str::to_owned),
            _ => {}
        }
    }
    None
}

/// The completions of an argument, read when they are needed.
struct Offers {
    place: WordPlace,
    asker: Arc<Asker>,
}

impl ValueCompleter for Offers {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let typed = typed.to_str().unwrap_or_default();
        let found = match self.place {
            WordPlace::Selection(statuses) => selection(&self.asker, statuses, typed),
            WordPlace::Stored(wanted) => self.asker.find(wanted, typed),
            WordPlace::Class => self.asker.find_classes(typed),
            WordPlace::Setting => {
                Setting::ALL.iter().map(|setting| candidate(setting.name(), setting.purpose())).collect()
            }
            WordPlace::Status => plain(TaskStatus::ALL.map(TaskStatus::as_str)),
            WordPlace::OnConflict => plain(OnConflict::ALL.map(OnConflict::as_str)),
            WordPlace::CatchUp => plain(CatchUp::ALL.map(CatchUp::as_str)),
            WordPlace::Overlap => plain(Overlap::ALL.map(Overlap::as_str)),
            WordPlace::File => Vec::new(),
        };
        let begins_so = |found: &Candidate| found.word.starts_with(typed);
        found.into_iter().filter(begins_so).map(offer).collect()
    }
}

fn offer(found: Candidate) -> CompletionCandidate {
    let note = Some(found.note).filter(|note| !note.is_empty());
    CompletionCandidate::new(found.word).help(note.map(Into::into))
}

/// Completes ids, `last`, and filters with their values.
fn selection(asker: &Asker, statuses: &'static [TaskStatus], typed: &str) -> Vec<Candidate> {
    if let Some((key, value)) = typed.split_once('=') {
        let found = match key {
            "class" => asker.find_classes(value),
            "status" => plain(TaskStatus::ALL.map(TaskStatus::as_str).into_iter().chain(StatusFilter::OTHER_WORDS)),
            "schedule" => asker.find(Wanted::Schedules, value),
            "error" => asker.find(Wanted::ErrorCodes, value),
            "key" => asker.find(Wanted::UniqueKeys, value),
            "tag" => asker.find(Wanted::Tags, value),
            _ => Vec::new(),
        };
        let with_key = |found: Candidate| Candidate { word: format!("{key}={}", found.word), ..found };
        return found.into_iter().map(with_key).collect();
    }
    let may_be_id = typed.chars().all(|c| c.is_ascii_digit());
    let mut found = if may_be_id { asker.find(Wanted::Tasks(statuses), typed) } else { Vec::new() };
    found.push(candidate("last", "the task that was queued last"));
    found.extend(plain(FILTER_KEYS.map(|key| format!("{key}="))));
    found
}

fn candidate(word: &str, note: &str) -> Candidate {
    Candidate { word: word.to_owned(), note: note.to_owned() }
}

fn plain(words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Candidate> {
    words.into_iter().map(|word| candidate(word.as_ref(), "")).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    fn places_below(command: &Command, verb: &str) -> Vec<(String, WordPlace)> {
        let own = command
            .get_arguments()
            .filter_map(|arg| Some((format!("{verb} {}", arg.get_id()), WordPlace::of(verb, arg)?)));
        own.chain(command.get_subcommands().flat_map(|below| places_below(below, verb))).collect()
    }

    fn words(found: Vec<Candidate>) -> Vec<String> {
        found.into_iter().map(|found| found.word).collect()
    }

    #[test]
    fn the_verbs_name_their_values_so_that_their_places_are_known() {
        let command = Cli::command();
        let places: Vec<(String, WordPlace)> =
            command.get_subcommands().flat_map(|verb| places_below(verb, verb.get_name())).collect();
        for (place, expected) in [
            ("retry selection", WordPlace::Selection(OVER)),
            ("status selection", WordPlace::Selection(&TaskStatus::ALL)),
            ("queue class", WordPlace::Class),
            ("queue after", WordPlace::Stored(Wanted::Tasks(&TaskStatus::ALL))),
            ("queue limit_key", WordPlace::Stored(Wanted::LimitKeys)),
            ("queue tag", WordPlace::Stored(Wanted::Tags)),
            ("worker tag", WordPlace::Stored(Wanted::Tags)),
            ("queue on_conflict", WordPlace::OnConflict),
            ("queue catch_up", WordPlace::CatchUp),
            ("queue overlap", WordPlace::Overlap),
            ("work classes", WordPlace::Class),
            ("worker class", WordPlace::Class),
            ("worker task", WordPlace::Stored(Wanted::Tasks(&TaskStatus::ALL))),
            ("worker limit_key", WordPlace::Stored(Wanted::LimitKeys)),
            ("failures class", WordPlace::Class),
            ("limit key", WordPlace::Stored(Wanted::LimitKeys)),
            ("pause runner", WordPlace::Stored(Wanted::Runners)),
            ("resume runner", WordPlace::Stored(Wanted::PausedRunners)),
            ("resume class", WordPlace::Stored(Wanted::PausedClasses)),
            ("process-run run_id", WordPlace::Stored(Wanted::WaitingRuns)),
            ("events run", WordPlace::Stored(Wanted::Runs)),
            ("worker run", WordPlace::Stored(Wanted::ProcessingRuns)),
            ("schedule schedules", WordPlace::Stored(Wanted::Schedules)),
            ("setting name", WordPlace::Setting),
            ("status status", WordPlace::Status),
            ("exec argv", WordPlace::File),
        ] {
            assert!(places.contains(&(place.to_owned(), expected)), "{place}: {places:?}");
        }
        assert!(!places.iter().any(|(place, _)| place == "init class" || place == "tick name" || place == "queue run"));
    }

    #[test]
    fn the_line_says_which_store_is_asked() {
        let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(option_of(&line("taskqueue --database a.db status"), "--database").as_deref(), Some("a.db"));
        assert_eq!(option_of(&line("taskqueue status --database=a=b.db"), "--database").as_deref(), Some("a=b.db"));
        assert_eq!(option_of(&line("taskqueue exec -- --database x"), "--database"), None);
        assert_eq!(option_of(&line("taskqueue --database"), "--database"), None);
    }

    #[test]
    fn a_filter_is_offered_before_its_values() {
        let asker = Asker { limit: Duration::ZERO, ..Asker::new(&[], Vec::new()) };
        let offered = words(selection(&asker, OVER, "st"));
        assert!(offered.contains(&"status=".to_owned()) && offered.contains(&"last".to_owned()), "{offered:?}");
        let offered = words(selection(&asker, OVER, "status=exh"));
        assert!(offered.contains(&"status=exhausted".to_owned()) && offered.contains(&"status=failed".to_owned()));
        assert!(selection(&asker, OVER, "colour=r").is_empty());
    }
}
