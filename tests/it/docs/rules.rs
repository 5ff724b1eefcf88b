//! The rules R1 to R10 are documented in one place, and everything that the page names exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{read, root, table_rows};

/// The folders in which rules are cited.
const FOLDERS: [&str; 4] = ["src", "crates", "tests", "docs"];

fn texts_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(texts_below(&path));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path, text));
        }
    }
    texts
}

/// Returns the rows of the table of rules: rule, held by, test, fault.
fn rules() -> Vec<[String; 4]> {
    let is_rule = |row: &Vec<String>| row.len() == 4 && row[0].starts_with("[R");
    table_rows(&read("docs/architecture.md")).into_iter().filter(is_rule).map(|row| row.try_into().unwrap()).collect()
}

#[test]
fn every_rule_has_one_definition() {
    let page = read("docs/architecture.md");
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("### R")).collect();
    assert_eq!(headings.len(), 10);
    for number in 1..=10 {
        let defined = headings.iter().filter(|line| line.starts_with(&format!("### R{number}: "))).count();
        let listed = rules().iter().filter(|row| row[0].starts_with(&format!("[R{number}]"))).count();
        assert_eq!((defined, listed), (1, 1), "R{number}");
    }
}

#[test]
fn what_holds_tests_and_attacks_each_rule_exists() {
    let tests = texts_below(&root().join("tests/it"));
    let suite = texts_below(&root().join("tests/fault_suite"));
    for [rule, held_by, test, fault] in rules() {
        let (item, place) = held_by.split_once(" in ").expect("ITEM in PLACE");
        let place = root().join(place);
        let places = if place.is_dir() {
            texts_below(&place)
        } else {
            vec![(place.clone(), std::fs::read_to_string(&place).unwrap())]
        };
        assert!(places.iter().any(|(_, text)| text.contains(item)), "{rule}: {item}");
        let number = rule.trim_start_matches("[R").split(']').next().unwrap();
        assert!(test.starts_with(&format!("r{number}_")), "{rule}: {test}");
        assert!(tests.iter().any(|(_, text)| text.contains(&format!("fn {test}("))), "{rule}: {test}");
        let exists = match fault.split_once(' ') {
            Some(("bug", name)) => root().join(format!("tests/fault_suite/bugs/{name}.patch")).exists(),
            Some(("campaign", name)) => suite.iter().any(|(_, text)| text.contains(&format!("name: \"{name}\""))),
            _ => false,
        };
        assert!(exists, "{rule}: {fault}");
    }
}

#[test]
fn no_rule_is_cited_that_is_not_defined() {
    let texts = FOLDERS.into_iter().flat_map(|folder| texts_below(&root().join(folder)));
    let mut cited = BTreeSet::new();
    for (_, text) in texts {
        for citation in text.split("rule R").skip(1).chain(text.split("rules R").skip(1)) {
            let digits: String = citation.chars().take_while(char::is_ascii_digit).collect();
            cited.extend(digits.parse::<u32>().ok());
        }
    }
    assert!(cited.len() >= 8 && cited.iter().all(|number| (1..=10).contains(number)), "{cited:?}");
}
