//! `taskqueue help TOPIC`: pages of the documentation, for users who only have the program. No topic has the name of a verb.

/// A page, or a section of one.
struct Topic {
    name: &'static str,
    /// A short description.
    purpose: &'static str,
    page: &'static str,
    /// The heading of the section; `None` for the whole page.
    heading: Option<&'static str>,
}

/// A topic whose text is the whole page of its name.
macro_rules! whole_page {
    ($name:literal, $purpose:literal) => {
        Topic {
            name: $name,
            purpose: $purpose,
            page: include_str!(concat!("../../../../docs/", $name, ".md")),
            heading: None,
        }
    };
}

const TOPICS: &[Topic] = &[
    whole_page!("configuration", "every key of the configuration file, with its unit and its default"),
    Topic {
        name: "exit-status",
        purpose: "what the exit status of a command means",
        page: include_str!("../../../../docs/commands.md"),
        heading: Some("## Exit status\n"),
    },
    whole_page!("handlers", "what a handler program receives, and what it can report"),
    whole_page!("incidents", "real incidents, from `doctor` to a queue that runs again"),
    whole_page!("operators", "how to run taskqueue in production, and what to do during an incident"),
    whole_page!("schedules", "how to manage recurring tasks"),
    whole_page!("selections", "how to select tasks: by ids, ranges and filters"),
    whole_page!("sql", "how to queue, look and work in plain SQL"),
    whole_page!("states", "the states of tasks and runs, and what changes them"),
    whole_page!("times", "how to write times and durations"),
    whole_page!("workers", "how to write workers in any language"),
];

/// Returns the text of a topic; `None` if there is no such topic.
pub(crate) fn topic(name: &str) -> Option<&'static str> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    let Some(heading) = topic.heading else { return Some(topic.page.trim_end()) };
    let section = topic.page.get(topic.page.find(heading)?..)?;
    let end = section.get(heading.len()..)?.find("\n#").map_or(section.len(), |end| heading.len() + end);
    section.get(..end).map(str::trim_end)
}

/// Returns the names of all topics.
pub(crate) fn list() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// Returns a short description of a topic; empty if there is no such topic.
pub(crate) fn purpose(name: &str) -> &'static str {
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
