//! The verbs under headings, as `--help` lists them, because clap supports headings only for options.

use clap::Command;

use taskqueue_views::human::hanging;

/// Each heading with its verbs, in the order in which they are shown.
const GROUPS: &[(&str, &[&str])] = &[
    ("Daily", &["queue", "exec", "status", "logs", "wait", "top", "explain", "cancel", "retry"]),
    ("Run", &["tick", "work", "process-run", "create-runs"]),
    (
        "Operate",
        &[
            "web", "doctor", "pause", "resume", "drain", "stop", "edit", "prune", "failures", "events", "export",
            "import", "check", "metrics",
        ],
    ),
    ("Manage", &["schedule", "class", "setting", "limit", "runner", "db"]),
    ("Workers", &["worker", "report"]),
    ("Set up", &["init", "completions", "man"]),
];

/// Verbs that packages use, and people once at most: only `help all` lists them.
const ONLY_IN_HELP_ALL: [&str; 2] = ["completions", "man"];

/// The options in the help that fits a small terminal.
const OPTIONS: &str = "--database <URL>, --config <FILE>, --json, --verbose, --color <WHEN>, --help, --version";

/// Returns the command with a help that fits a small terminal: its verbs by their names, one line per group.
pub(crate) fn compact(command: Command, columns: u16) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let widest = GROUPS.iter().map(|(heading, _)| heading.len()).max().unwrap_or(0);
    let line = |heading: &str, words: &str, style: clap::builder::styling::Style| {
        let line = hanging(&format!("{heading:widest$}  "), words, Some(columns));
        let (heading, words) = line.split_at(widest);
        format!("{header}{heading}{header:#}{style}{words}{style:#}")
    };
    let group = |(heading, verbs): &(&str, &[&str])| {
        let listed: Vec<&str> = verbs.iter().copied().filter(|verb| !ONLY_IN_HELP_ALL.contains(verb)).collect();
        line(heading, &listed.join(" "), literal)
    };
    let groups: Vec<String> = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n\n{}{{after-help}}",
        groups.join("\n"),
        line("Options", OPTIONS, clap::builder::styling::Style::new())
    );
    let about = command.get_about().cloned().unwrap_or_default();
    command.long_about(about).help_template(template)
}

/// Returns the command with its verbs in groups, for a help of this width. Names and descriptions of the verbs are unchanged.
pub(crate) fn grouped(command: Command, columns: u16) -> Command {
    let names = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter());
    let room = names.map(|name| name.len()).max().unwrap_or(0);
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let line = |verb: &Command| {
        let name = verb.get_name();
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let text = hanging(&format!("  {name:room$}  "), &about, Some(columns));
        text.replacen(name, &format!("{literal}{name}{literal:#}"), 1)
    };
    let group = |(heading, verbs): &(&str, &[&str])| {
        let lines = verbs.iter().filter_map(|name| command.find_subcommand(name)).map(line);
        let lines: Vec<String> = lines.collect();
        format!("{header}{heading}:{header:#}\n{}", lines.join("\n"))
    };
    let groups: Vec<String> = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n\n{header}Options:{header:#}\n{{options}}{{after-help}}",
        groups.join("\n\n")
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn visible(command: &Command) -> Vec<&Command> {
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect()
    }

    #[test]
    fn each_visible_verb_stands_under_one_heading_and_nothing_else_does() {
        let command = crate::Cli::command();
        let mut verbs: Vec<&str> = visible(&command).into_iter().map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        verbs.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, verbs);
    }

    #[test]
    fn short_and_long_help_list_the_same_lines_one_a_verb_at_80_columns() {
        let verbs = crate::Cli::command();
        let verbs = visible(&verbs);
        for columns in [40, 80] {
            let mut command = grouped(crate::Cli::command(), columns).term_width(columns.into());
            let [short, long] = [command.render_help(), command.render_long_help()].map(|help| help.to_string());
            let listed = |help: &str| {
                let (_, behind) = help.split_once("\nDaily:\n").unwrap();
                let (listed, options) = behind.split_once("\n\nOptions:\n").unwrap();
                assert!(options.contains("--database <URL>") && options.contains("--version"), "{options}");
                listed.to_owned()
            };
            assert_eq!(listed(&short), listed(&long));
            let text = listed(&short);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns.into()), "{columns}: {widest:?}\n{text}");
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for verb in &verbs {
                let words = format!("{} {}", verb.get_name(), verb.get_about().unwrap());
                assert!(flat.contains(&words), "{words}\n{text}");
            }
            let lines = text.lines().filter(|line| line.starts_with("  ")).count();
            assert!(columns < 80 || lines == verbs.len(), "{lines} lines for {} verbs\n{text}", verbs.len());
        }
    }
}
