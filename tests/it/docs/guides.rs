//! Pages that only show commands use existing verbs and options.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Block, blocks, read};
use crate::support::Cli;
use crate::support::cli::configure;

const GUIDES: [&str; 7] = [
    "docs/commands.md",
    "docs/explain.md",
    "docs/operators.md",
    "docs/runners.md",
    "docs/several-hosts-mysql.md",
    "docs/several-hosts-postgresql.md",
    "README.md",
];

/// Returns the words of each call of the program in a line, up to shell syntax.
fn calls(line: &str) -> Vec<Vec<&str>> {
    let is_end =
        |word: &str| word.starts_with(['#', '|', '&', ';', '<', '>']) || word.starts_with("2>") || word == "--";
    line.split("taskqueue ")
        .skip(1)
        .zip(line.split("taskqueue "))
        // Neither a part of another name nor the name of a user.
        .filter(|(_, before)| before.is_empty() || before.ends_with([' ', '(', '/']) && !before.ends_with("-u "))
        .map(|(rest, _)| rest.split_whitespace().take_while(|word| !is_end(word)).collect())
        .collect()
}

/// Returns the verb, and the options without their values.
fn verb_and_options<'a>(words: &[&'a str]) -> Option<(&'a str, Vec<&'a str>)> {
    let options = words.iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap());
    let mut rest = words.iter();
    let mut verb = rest.next()?;
    while verb.starts_with("--") {
        // Options before the verb have a value.
        verb = rest.nth(1)?;
    }
    verb.chars().all(|c| c.is_ascii_lowercase() || c == '-').then(|| (*verb, options.collect()))
}

#[test]
fn every_command_of_the_guides_has_a_verb_and_options_that_exist() {
    let home = tempfile::tempdir().unwrap();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut help_of = |words: &[&str]| {
        let asked = [words, &["--help"]].concat();
        helps.entry(words.join(" ")).or_insert_with(|| Cli::new(home.path()).run(&asked).ok()).clone()
    };
    let mut count = 0;
    let is_shown = |block: &Block| block.words == ["sh"];
    for block in GUIDES.into_iter().flat_map(blocks).filter(is_shown) {
        for words in block.text.lines().flat_map(calls) {
            let Some((verb, options)) = verb_and_options(&words) else { continue };
            let mut help = help_of(&[verb]);
            // `limit set`, `setting set`, `class release`.
            if let Some(action) = words.get(1).filter(|_| help.contains("Commands:")) {
                help = help_of(&[verb, action]);
            }
            for option in options {
                assert!(help.contains(option), "{}: taskqueue {}: no {option}", block.place(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn calls_are_found_among_other_words() {
    assert_eq!(calls("sudo -u taskqueue env A=b taskqueue status --runs | less"), [["status", "--runs"]]);
    assert_eq!(calls("taskqueue wait 1 && taskqueue logs 1   # then"), [vec!["wait", "1"], vec!["logs", "1"]]);
    assert_eq!(
        verb_and_options(&["--database", "x.db", "prune", "--yes"]),
        Some(("prune", vec!["--database", "--yes"]))
    );
}

/// Cron gives a line a minimal environment, with only the system directories in PATH.
#[test]
fn the_cron_lines_of_the_first_pages_process_what_was_queued() {
    const INSTALLED: &str = "/usr/local/bin/taskqueue";
    for page in ["README.md", "docs/from-cron.md"] {
        let home = tempfile::tempdir().unwrap();
        configure(home.path(), "[class.echo]\nargv = [\"/bin/cat\"]\n");
        let cli = Cli::new(home.path());
        cli.run(&["queue", "echo"]).ok();
        let text = read(page);
        let line = text.lines().find_map(|line| line.strip_prefix("* * * * *")).unwrap_or_else(|| panic!("{page}"));
        assert!(line.contains(INSTALLED), "{page}: this path is not in cron's PATH: {line}");
        let command = line.replace(INSTALLED, env!("CARGO_BIN_EXE_taskqueue"));
        let ended = cli.clone().program(Path::new("/bin/sh")).env("PATH", "/usr/bin:/bin").run(&["-c", &command]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""), "{page}");
        assert_eq!(cli.run(&["status", "1", "--json"]).json()["task"]["status"], "success", "{page}");
    }
}
