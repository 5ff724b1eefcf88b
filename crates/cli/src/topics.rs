//! `taskqueue help TOPIC`: pages of the documents, for whoever has only the program. No topic has the name of a verb.

/// A page, or a section of one.
struct Topic {
    name: &'static str,
    /// What it is about, in a few words.
    purpose: &'static str,
    page: &'static str,
    /// The heading of the section; none takes the whole page.
    heading: Option<&'static str>,
}

const TOPICS: &[Topic] = &[
    Topic {
        name: "exit-status",
        purpose: "what the exit status of a command says",
        page: include_str!("../../../docs/commands.md"),
        heading: Some("## Exit status\n"),
    },
    Topic {
        name: "handlers",
        purpose: "what a program that handles tasks gets, and what it may say",
        page: include_str!("../../../docs/handlers.md"),
        heading: None,
    },
    Topic {
        name: "selections",
        purpose: "how tasks are chosen: by ids, ranges and filters",
        page: include_str!("../../../docs/selections.md"),
        heading: None,
    },
    Topic {
        name: "times",
        purpose: "how times and durations are written",
        page: include_str!("../../../docs/times.md"),
        heading: None,
    },
];

/// The text of a topic; `None` where there is none of this name.
pub(super) fn topic(name: &str) -> Option<&'static str> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    let Some(heading) = topic.heading else { return Some(topic.page.trim_end()) };
    let section = topic.page.get(topic.page.find(heading)?..)?;
    let end = section.get(heading.len()..)?.find("\n#").map_or(section.len(), |end| heading.len() + end);
    section.get(..end).map(str::trim_end)
}

/// Their names.
pub(super) fn list() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// The same, for the end of the help.
pub(super) fn names() -> String {
    list().collect::<Vec<_>>().join(", ")
}

/// What a topic is about, in a few words; empty where there is none of this name.
pub(super) fn purpose(name: &str) -> &'static str {
    TOPICS.iter().find(|topic| topic.name == name).map_or("", |topic| topic.purpose)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn no_topic_hides_the_help_of_a_verb() {
        let command = crate::Cli::command();
        assert!(command.get_subcommands().all(|verb| topic(verb.get_name()).is_none()));
    }

    #[test]
    fn every_topic_has_a_text() {
        for topic in TOPICS {
            assert!(super::topic(topic.name).is_some_and(|text| text.lines().count() > 5), "{}", topic.name);
        }
        let text = topic("exit-status").unwrap();
        assert!(
            text.starts_with("## Exit status") && text.contains("| `124` |") && !text.contains("## Stopping"),
            "{text}"
        );
        assert_eq!(topic("nothing"), None);
    }
}
