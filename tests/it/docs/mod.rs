//! The documentation is correct: its commands are run, its SQL is executed on the engine that it is for, its configuration is
//! loaded, and its tables match the code.
//!
//! The first word after the fence of a block is its language, and the next ones control its test:
//! - `sh test`: each line that starts with `$ ` is run (`> ` continues it), in one home for the whole document. The lines below
//!   are the expected output on both streams, where `…` stands for anything; without any, nothing is compared. `[exit status
//!   N]` as the last line is an exit status other than 0.
//! - `sh incident:NAME`: a transcript, which a test types during that incident on each engine.
//! - `LANGUAGE file:NAME`: the block is written into the home as an executable file.
//! - `sql ENGINE…`: executed on these engines (sqlite, postgres, mysql), or on all if none is named.
//! - `sql steps`: for the administrator of a server, with a separate test.
//! - `sh`: not run, but in guides its verbs and options must exist.
//! - `toml`: loaded as configuration.
//!
//! `/home/ann` stands for the home.

mod blocks_of_data;
mod commands;
mod guides;
mod incidents;
mod indexes;
mod library_api;
mod library_names;
mod links;
mod rules;
mod several_hosts;
mod statements;
mod tables;
mod words;

use std::path::Path;

pub(crate) use self::tables::configuration_keys;

const PAGES: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/architecture.md",
    "docs/commands.md",
    "docs/configuration.md",
    "docs/coprocess.md",
    "docs/events.md",
    "docs/explain.md",
    "docs/from-cron.md",
    "docs/handlers.md",
    "docs/incidents.md",
    "docs/json.md",
    "docs/library.md",
    "docs/metrics.md",
    "docs/notices.md",
    "docs/operators.md",
    "docs/retention.md",
    "docs/runners.md",
    "docs/schedules.md",
    "docs/schema.md",
    "docs/selections.md",
    "docs/several-hosts-mysql.md",
    "docs/several-hosts-postgresql.md",
    "docs/shell.md",
    "docs/sql.md",
    "docs/states.md",
    "docs/tasks.md",
    "docs/times.md",
    "docs/top.md",
    "docs/web.md",
    "docs/workers.md",
];

fn root() -> &'static Path {
    Path::new(env!("REPOSITORY_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A fenced block.
struct Block {
    page: &'static str,
    line: usize,
    words: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, language: &str) -> bool {
        self.words.first().is_some_and(|word| word == language)
    }

    fn file(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("file:"))
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.page, self.line)
    }
}

fn blocks(page: &'static str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (index, line) in read(page).lines().enumerate() {
        match line.strip_prefix("```") {
            Some(words) if !is_inside => {
                let words = words.split_whitespace().map(str::to_owned).collect();
                blocks.push(Block { page, line: index + 1, words, text: String::new() });
                is_inside = true;
            }
            Some(_) => is_inside = false,
            None if is_inside => blocks.last_mut().unwrap().text.extend([line, "\n"]),
            None => {}
        }
    }
    assert!(!is_inside, "{page}: a fence is not closed");
    blocks
}

fn all_blocks() -> Vec<Block> {
    PAGES.iter().copied().flat_map(blocks).collect()
}

/// Returns the cells of the table rows of a page, without backquotes.
fn table_rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    text.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn one_word_for_each_thing() {
    let synonyms = ["enqueue", "worker pool", "reaper", "exactly once execution", "exactly-once processing"];
    for page in PAGES.iter().copied() {
        // The role with that name is older than the rule.
        let text = read(page).to_lowercase().replace("taskqueue_enqueue", "");
        for synonym in synonyms {
            assert!(!text.contains(synonym), "{page}: {synonym}");
        }
        let jobs = text.split(|c: char| !c.is_alphanumeric()).filter(|word| matches!(*word, "job" | "jobs")).count();
        assert_eq!(jobs, usize::from(page == "README.md"), "{page}: a task has another name");
    }
}
