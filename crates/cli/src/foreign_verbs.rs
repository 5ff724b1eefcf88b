//! Names of our verbs and options in other queues: the error for such a name mentions ours. The names themselves do not work.

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Sorted. The second part is the start of the right command line.
const FOREIGN: &[(&str, &str)] = &[
    ("add", "queue"),
    ("claim", "worker claim"),
    ("classes", "class"),
    ("delete", "cancel"),
    ("enqueue", "queue"),
    ("heartbeat", "worker heartbeat"),
    ("info", "show"),
    ("jobs", "status"),
    ("kill", "cancel"),
    ("limits", "limit"),
    ("list", "status"),
    ("log", "logs"),
    ("ls", "status"),
    ("message", "report message"),
    ("progress", "report progress"),
    ("ps", "status"),
    ("purge", "prune"),
    ("push", "queue"),
    ("release", "worker release"),
    ("remove", "cancel"),
    ("resolve", "worker resolve"),
    ("restart", "retry"),
    ("result", "report result"),
    ("rm", "cancel"),
    ("run", "work"),
    ("runners", "runner"),
    ("schedules", "schedule"),
    ("settings", "setting"),
    ("start", "work"),
    ("submit", "queue"),
    ("tail", "logs"),
    ("workers", "runner"),
];

/// The verb, an option that it does not have, and what to write instead.
const FOREIGN_OPTIONS: &[(&str, &str, &str)] = &[
    ("explain", "--queue", "without a task, 'taskqueue explain' explains why nothing runs"),
    ("explain", "--all", "without a task, 'taskqueue explain' explains why nothing runs"),
    ("explain", "--class", "a filter selects tasks: 'taskqueue explain class=NAME'"),
];

/// Adds our verb or option to the error, if it is about such a name.
pub(super) fn with_our_word(mut error: Error) -> Error {
    let tip = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (Some(ContextValue::String(word)), _) => our_verb(word),
        (None, Some(ContextValue::String(option))) if error.kind() == ErrorKind::UnknownArgument => {
            our_option(option, &error.render().to_string())
        }
        _ => None,
    };
    let Some(tip) = tip else { return error };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

fn our_verb(word: &str) -> Option<String> {
    let (_, ours) = FOREIGN.iter().find(|(foreign, _)| *foreign == word)?;
    Some(format!("the verb for it is '{ours}'"))
}

/// Finds the verb in the usage line of the error.
fn our_option(option: &str, text: &str) -> Option<String> {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let found = FOREIGN_OPTIONS
        .iter()
        .find(|(verb, foreign, _)| *foreign == option && usage.split(' ').any(|word| word == *verb))?;
    Some(found.2.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_foreign_word_leads_to_a_verb_and_is_none() {
        let command = crate::Cli::command();
        for (foreign, ours) in FOREIGN {
            let found = ours.split(' ').try_fold(&command, |command, word| command.find_subcommand(word));
            assert!(found.is_some_and(|verb| !verb.is_hide_set()), "{ours}");
            assert!(command.find_subcommand(foreign).is_none(), "{foreign}");
        }
    }

    #[test]
    fn a_foreign_verb_is_told_ours_and_no_similar_one() {
        let error = crate::Cli::command().try_get_matches_from(["taskqueue", "list"]).unwrap_err();
        let text = with_our_word(error).to_string();
        assert!(text.contains("  tip: the verb for it is 'status'\n"), "{text}");
        assert_eq!(text.matches("tip:").count(), 1, "{text}");
    }

    #[test]
    fn an_option_that_a_verb_does_not_have_is_told_what_to_write_instead() {
        let error = crate::Cli::command().try_get_matches_from(["taskqueue", "explain", "--queue"]).unwrap_err();
        let text = with_our_word(error).to_string();
        assert!(text.contains("  tip: without a task, 'taskqueue explain' explains why nothing runs\n"), "{text}");
        assert_eq!(text.matches("tip:").count(), 1, "{text}");
        for (verb, option, _) in FOREIGN_OPTIONS {
            let parsed = crate::Cli::command().try_get_matches_from(["taskqueue", verb, option]);
            assert_eq!(
                parsed.map_err(|error| error.kind()).unwrap_err(),
                ErrorKind::UnknownArgument,
                "{verb} {option}"
            );
        }
    }
}
