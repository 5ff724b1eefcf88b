//! `sh test` and `file:` blocks: runs the commands like a reader.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Block, PAGES, blocks};
use crate::support::Cli;

/// Stands for the home of the reader.
pub(super) const HOME: &str = "/home/ann";

/// Returns true if `actual` matches `expected`, where `…` stands for anything.
pub(super) fn matches(expected: &str, actual: &str) -> bool {
    let parts: Vec<&str> = expected.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return expected == actual };
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns the commands of a block, each with its expected output.
pub(super) fn commands(block: &Block) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), String::new()));
            continue;
        }
        let (command, expected) = commands.last_mut().unwrap_or_else(|| panic!("{}: no command", block.place()));
        match line.strip_prefix("> ") {
            Some(more) => command.extend(["\n", more]),
            None => expected.extend([line, "\n"]),
        }
    }
    commands
}

/// Splits the expected output into what is printed and the exit status.
pub(super) fn with_status(expected: &str) -> (&str, i32) {
    match expected.trim_end().strip_suffix(']').and_then(|text| text.rsplit_once("[exit status ")) {
        Some((printed, status)) => (printed, status.parse().unwrap()),
        None => (expected, 0),
    }
}

fn run_block(block: &Block, home: &str) {
    let directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    for (command, expected) in commands(block) {
        let line = format!("exec 2>&1\n{}", command.replace(HOME, home));
        let ended = Cli::new(Path::new(home)).program(Path::new("/bin/sh")).env("PATH", &path).run(&["-c", &line]);
        let (expected, status) = with_status(&expected);
        let printed = ended.stdout.replace(home, HOME);
        let at = format!("{}: $ {command}\n{printed}", block.place());
        assert_eq!(ended.code, Some(status), "{at}");
        assert!(expected.is_empty() || matches(expected, &printed), "{at}instead of\n{expected}");
    }
}

fn check_commands_of(page: &'static str) {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().to_str().unwrap();
    for block in blocks(page) {
        if let Some(name) = block.file() {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, block.text.replace(HOME, home)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        } else if block.is("sh") && block.words.get(1).is_some_and(|word| word == "test") {
            run_block(&block, home);
        }
    }
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    check_commands_of("README.md");
}

#[test]
fn the_commands_of_the_other_pages_do_what_they_say() {
    for page in PAGES.iter().copied().filter(|page| *page != "README.md") {
        check_commands_of(page);
    }
}

#[test]
fn an_expectation_is_compared_whole() {
    assert!(matches("a\n", "a\n") && !matches("a\n", "ab\n") && !matches("a\n", "b\na\n"));
    assert!(matches("a…c\n", "a b c\n") && matches("…", "") && matches("a…b…c", "a1b\n2c"));
    assert!(!matches("a…c", "b c") && !matches("a…c", "a b") && !matches("a…b…c", "a c"));
}
