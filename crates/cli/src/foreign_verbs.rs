//! Names of our verbs in other queues: the error for such a name mentions our verb. The names themselves do not work.

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

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

/// Adds our verb to the error, if it is about such a name.
pub(super) fn with_our_word(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let Some((_, ours)) = FOREIGN.iter().find(|(foreign, _)| foreign == word) else { return error };
    let tip = StyledStr::from(format!("the verb for it is '{ours}'"));
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    error
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
}
