//! Words of other tools: the error for such a verb or option mentions ours. The words themselves do not work.

use std::ffi::OsString;

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::naming::topics;
use taskqueue_views::shell_word::shell_word;

/// Verbs: the start of the right command line, and the words of others for it.
const VERBS: &[(&str, &str)] = &[
    ("cancel", "delete kill remove rm"),
    ("class", "classes"),
    ("db backup", "backup dump"),
    ("db migrate", "migrate"),
    ("limit", "limits"),
    ("logs", "log tail"),
    ("prune", "purge"),
    ("queue", "add enqueue push submit"),
    ("report message", "message"),
    ("report progress", "progress"),
    ("report result", "result"),
    ("retry", "requeue restart"),
    ("runner", "runners workers"),
    ("schedule", "schedules"),
    ("setting", "settings"),
    ("status", "info inspect jobs list ls ps show"),
    ("work", "run start"),
    ("worker claim", "claim"),
    ("worker heartbeat", "heartbeat"),
    ("worker release", "release"),
    ("worker resolve", "resolve"),
];

/// The verb whose arguments are those of ours.
const OLD_RETRY: &str = "requeue";

/// Verbs of a noun that have no similar one of ours: the noun, the start of the right command line, and the verbs.
const VERBS_OF_NOUNS: &[(&str, &str, &str)] = &[
    ("db", "db backup", "dump"),
    ("db", "db migrate", "create init upgrade"),
    ("limit", "limit set CLASS --running N", "add"),
    ("runner", "stop --runner NAME", "stop"),
    ("schedule", "schedule edit", "set"),
    ("worker", "runner", "list ls ps show status"),
    ("worker", "stop --runner NAME", "stop"),
    ("worker", "work", "install run start"),
];

/// Our verbs, and others that mean the same under every noun.
const SYNONYMS: &[(&[&str], &str)] = &[
    (&["add"], "set"),
    (&["add", "set"], "create new"),
    (&["edit", "set"], "change update"),
    (&["list"], "ls ps show"),
    (&["pause"], "disable stop suspend"),
    (&["remove"], "del delete rm unset"),
    (&["resume"], "enable"),
    (&["resume", "run"], "start"),
    (&["run"], "trigger"),
    (&["set"], "add"),
    (&["show"], "describe"),
    (&["show", "list"], "get info inspect status"),
];

/// Options: the option, and for the verbs that it is about, what to type. `*` means any other verb with a
/// selection.
const OPTIONS: &[(&str, &[(&str, &str)])] = &[
    ("--alarm", LATE_SCHEDULES),
    ("--alert", LATE_SCHEDULES),
    ("--all", &[("explain", WHOLE)]),
    ("--by", &[("*", "by=NAME selects what a user queued")]),
    (
        "--class",
        &[
            ("queue", "the class is the first word: taskqueue queue CLASS"),
            ("schedule", "taskqueue queue CLASS --every '0 3 * * *' --name NAME starts a schedule of a class"),
            ("*", "class=NAME selects the tasks of a class"),
        ],
    ),
    (
        "--data",
        &[
            ("edit", "--data JSON"),
            ("queue", "the data follows the class: taskqueue queue CLASS JSON"),
            ("*", "data~TEXT selects by the data, data.NAME=VALUE by one of its values"),
        ],
    ),
    ("--every", &[("schedule", "taskqueue queue CLASS --every '0 3 * * *' starts a schedule")]),
    ("--failed", &[("*", "status=failed selects failed tasks")]),
    ("--filter", &[("*", "filters are words, such as class=mail.* or status=failed; see taskqueue help selections")]),
    ("--grep", &[("*", "data~TEXT selects tasks whose data contains the text")]),
    ("--heartbeat", &[("exec queue schedule edit", NOT_RUN)]),
    ("--ping", &[("exec queue schedule edit", NOT_RUN)]),
    ("--queue", &[("explain", WHOLE), ("* drain failures limit pause queue resume stop work worker", CLASS)]),
    ("--operator", &[("events", CHOSEN_EVENTS)]),
    ("--print-systemd-unit", SERVICE),
    ("--schedule", &[("check", COUNTED_LATE)]),
    ("--search", &[("*", "data~TEXT selects tasks whose data contains the text")]),
    ("--service", SERVICE),
    ("--since", &[("*", "since=yesterday or since=2h selects tasks that have changed since then")]),
    ("--status", &[("*", "status=failed selects by status")]),
    ("--systemd", SERVICE),
    ("--to", &[("db export", MOVE)]),
    ("--unit", SERVICE),
    ("schedules", &[("check", COUNTED_LATE)]),
];
const SERVICE: &[(&str, &str)] = &[("init process-run runner tick work worker", INSTALL)];
const LATE_SCHEDULES: &[(&str, &str)] = &[("check exec queue schedule", LATE)];
const INSTALL: &str = "taskqueue init --install service installs a worker as a systemd service";
const LATE: &str =
    "taskqueue check warns of schedules that did not run; taskqueue help operators has a dead-man's switch";
const COUNTED_LATE: &str = "taskqueue check counts late schedules; --late-schedules N sets the limit";
const CHOSEN_EVENTS: &str = "--by NAME, --task ID, --kind KIND and --since TIME choose events";
const WHOLE: &str = "without a task, 'taskqueue explain' explains why nothing runs";
const NOT_RUN: &str = "taskqueue help operators: how to notice that a schedule did not run";
const CLASS: &str = "what other tools call a queue is a task class here";
const MOVE: &str = "to move to another database: taskqueue export | taskqueue --database URL import --allow-exec";

/// Replaces the suggestion of an error about such a word.
pub(crate) fn with_our_word(mut error: Error, arguments: &[OsString], command: &clap::Command) -> Error {
    let words: Vec<&str> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let verb_in = |words: &[&str]| words.iter().find_map(|word| command.find_subcommand(word));
    let tip = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (Some(ContextValue::String(word)), _) => {
            let at = words.iter().position(|other| *other == word).unwrap_or(words.len());
            let next = words.get(at + 1).and_then(|next| command.find_subcommand(next));
            match verb_in(&words[..at]) {
                Some(noun) => verb_tip(Some(noun), word).or_else(|| set_tip(noun, &words[at..])),
                None if word == OLD_RETRY => {
                    verb_tip(None, word).map(|tip| with_arguments(&tip, words.get(at + 1..).unwrap_or_default()))
                }
                None => next.and_then(|noun| swapped_tip(noun, word)).or_else(|| verb_tip(None, word)),
            }
        }
        (_, Some(ContextValue::String(option))) if error.kind() == ErrorKind::UnknownArgument => {
            option_tip(verb_in(&words), option)
        }
        _ => None,
    };
    // clap suggests `-- --option`, which passes a wrong option as a value.
    error.remove(ContextKind::Suggested);
    let Some(tip) = tip else { return error };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// Returns the start of our command line for a verb of another tool, or for an old one.
pub(crate) fn our_verb(word: &str) -> Option<&'static str> {
    VERBS.iter().find(|(_, foreign)| has(foreign, word)).map(|(ours, _)| *ours)
}

fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

/// Returns the tip with these arguments after our verb, if none of them needs quotes.
fn with_arguments(tip: &str, arguments: &[&str]) -> String {
    let arguments = if arguments.iter().all(|word| shell_word(word) == *word) { arguments } else { &[] };
    format!("{} {}", tip.trim_end_matches('\''), arguments.join(" ")).trim_end().to_owned() + "'"
}

fn verb_tip(noun: Option<&clap::Command>, word: &str) -> Option<String> {
    if ["restore", "recover"].contains(&word) && noun.is_none_or(|noun| noun.get_name() == "db") {
        return Some("'taskqueue help operators' shows how to restore a backup".to_owned());
    }
    let ours = match noun {
        None => {
            let own = our_verb(word).map(str::to_owned);
            own.or_else(|| topics::topic(word).map(|_| format!("help {word}")))
        }
        Some(noun) => {
            let name = noun.get_name();
            let own = VERBS_OF_NOUNS.iter().find(|(of, _, foreign)| *of == name && has(foreign, word));
            own.map(|(_, ours, _)| (*ours).to_owned()).or_else(|| {
                let (ours, _) = SYNONYMS.iter().find(|(_, foreign)| has(foreign, word))?;
                let known = ours.iter().find(|verb| noun.find_subcommand(verb).is_some())?;
                Some(format!("{name} {known}"))
            })
        }
    };
    ours.map(|ours| format!("type 'taskqueue {ours}'"))
}

/// Returns the tip for a verb that was written before its noun, such as `list class`.
fn swapped_tip(noun: &clap::Command, word: &str) -> Option<String> {
    if !noun.has_subcommands() {
        return None;
    }
    match noun.find_subcommand(word) {
        Some(verb) => Some(format!("type 'taskqueue {} {}'", noun.get_name(), verb.get_name())),
        None => verb_tip(Some(noun), word),
    }
}

/// Returns the tip for a name and a value without a verb, such as `limit mail.send 2`.
fn set_tip(noun: &clap::Command, words: &[&str]) -> Option<String> {
    let [_, _value, ..] = words else { return None };
    let set = format!("type 'taskqueue {} set'", noun.get_name());
    noun.find_subcommand("set").map(|_| with_arguments(&set, words))
}

fn option_tip(command: Option<&clap::Command>, option: &str) -> Option<String> {
    let option = option.split([' ', '=']).next()?;
    let verb = command.map(clap::Command::get_name);
    if verb == Some("stop") && option.chars().all(|c| c.is_ascii_digit()) {
        return Some(format!("'taskqueue cancel {option}' ends a task; 'stop' ends runners"));
    }
    if verb == Some("db") && option.contains("://") {
        return Some(MOVE.to_owned());
    }
    if verb == Some("events") && !option.starts_with('-') {
        return Some(CHOSEN_EVENTS.to_owned());
    }
    let option = option.strip_suffix("-after").unwrap_or(option);
    let (_, tips) = OPTIONS.iter().find(|(foreign, _)| *foreign == option)?;
    let selects = command.is_some_and(|verb| verb.get_arguments().any(|argument| argument.get_id() == "selection"));
    let of_verb = tips.iter().find(|(of, _)| verb.is_some_and(|verb| has(of, verb)));
    let of_any = || tips.iter().find(|(of, _)| selects && has(of, "*"));
    of_verb.or_else(of_any).map(|(_, tip)| (*tip).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn error_of(words: &[&str]) -> String {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let command = crate::Cli::command();
        let error = command.clone().try_get_matches_from(&arguments).unwrap_err();
        with_our_word(error, &arguments, &command).to_string()
    }

    #[test]
    fn every_foreign_word_leads_to_a_verb_and_is_none() {
        let command = crate::Cli::command();
        let is_ours = |ours: &str| {
            let words = ours.split(' ').take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            words
                .take_while(|word| !word.starts_with('-'))
                .try_fold(&command, |command, word| command.find_subcommand(word))
        };
        for (ours, foreign) in VERBS {
            assert!(is_ours(ours).is_some_and(|verb| !verb.is_hide_set()), "{ours}");
            assert!(foreign.split(' ').all(|foreign| command.find_subcommand(foreign).is_none()), "{foreign}");
        }
        for (noun, ours, foreign) in VERBS_OF_NOUNS {
            assert!(is_ours(ours).is_some(), "{ours}");
            let noun = command.find_subcommand(noun).unwrap();
            assert!(foreign.split(' ').all(|foreign| noun.find_subcommand(foreign).is_none()), "{foreign}");
        }
    }

    #[test]
    fn a_foreign_verb_is_told_ours_and_no_similar_one() {
        for (words, ours) in [
            (&["taskqueue", "list"][..], "type 'taskqueue status'"),
            (&["taskqueue", "worker", "list"], "type 'taskqueue runner'"),
            (&["taskqueue", "schedule", "create", "x"], "type 'taskqueue schedule add'"),
            (&["taskqueue", "class", "set", "x"], "type 'taskqueue class add'"),
            (&["taskqueue", "sql"], "type 'taskqueue help sql'"),
            (&["taskqueue", "migrate"], "type 'taskqueue db migrate'"),
            (&["taskqueue", "db", "init"], "type 'taskqueue db migrate'"),
            (&["taskqueue", "db", "restore"], "'taskqueue help operators' shows how to restore a backup"),
            (&["taskqueue", "schedule", "rm", "7"], "type 'taskqueue schedule remove'"),
            (&["taskqueue", "--json", "limit", "ls"], "type 'taskqueue limit list'"),
            (&["taskqueue", "add", "import", "{}"], "type 'taskqueue queue'"),
            (&["taskqueue", "enqueue", "report"], "type 'taskqueue queue'"),
            (&["taskqueue", "list", "class"], "type 'taskqueue class list'"),
            (&["taskqueue", "run", "tick"], "type 'taskqueue work'"),
            (&["taskqueue", "--json", "requeue", "4711", "--force"], "type 'taskqueue retry 4711 --force'"),
            (&["taskqueue", "requeue", "7", "--reason", "by hand"], "type 'taskqueue retry'"),
            (&["taskqueue", "limit", "mail.send", "2"], "type 'taskqueue limit set mail.send 2'"),
            (
                &["taskqueue", "setting", "TaskQueueMaxRetries", "3"],
                "type 'taskqueue setting set TaskQueueMaxRetries 3'",
            ),
        ] {
            let text = error_of(words);
            assert!(text.contains(&format!("  tip: {ours}\n")), "{text}");
            assert_eq!(text.matches("tip:").count(), 1, "{text}");
        }
    }

    #[test]
    fn an_unknown_option_is_not_suggested_as_a_value() {
        let text = error_of(&["taskqueue", "status", "--colour"]);
        assert!(text.contains("unexpected argument '--colour'") && !text.contains("-- --colour"), "{text}");
    }

    #[test]
    fn a_foreign_option_is_told_ours_and_no_similar_one() {
        for (words, ours) in [
            (&["taskqueue", "status", "--search", "A-17"][..], "data~TEXT"),
            (&["taskqueue", "db", "migrate", "postgres://h/d"], MOVE),
            (&["taskqueue", "events", "operator=ann"], "--by NAME"),
            (&["taskqueue", "status", "--since=yesterday"], "since=yesterday"),
            (&["taskqueue", "queue", "--class", "mail"], "the class is the first word"),
            (&["taskqueue", "exec", "--ping", "URL"], NOT_RUN),
            (&["taskqueue", "init", "--systemd"], INSTALL),
            (&["taskqueue", "schedule", "edit", "nightly", "--alarm-after", "1h"], LATE),
            (&["taskqueue", "schedule", "edit", "nightly", "--alert-after", "1h"], LATE),
            (&["taskqueue", "check", "schedules"], COUNTED_LATE),
            (&["taskqueue", "check", "--schedule", "nightly"], COUNTED_LATE),
            (&["taskqueue", "events", "--operator"], CHOSEN_EVENTS),
            (&["taskqueue", "explain", "--queue"], "without a task"),
            (&["taskqueue", "db", "migrate", "--to", "postgres://h/d"], MOVE),
        ] {
            let text = error_of(words);
            assert!(text.contains(&format!("tip: {ours}")), "{text}");
            assert_eq!(text.matches("tip:").count(), 1, "{text}");
        }
    }
}
