//! Words that neither the documentation nor the program uses, because a usual word says the same: see "How to write" in
//! CONTRIBUTING.md.

use super::{PAGES, read};
use crate::layout::program_lines;

const WORDS: &[&str] = &[
    "whoever",
    "somebody",
    "what becomes of",
    "for good",
    "gives back",
    "give back",
    "given back",
    "is told",
    "are told",
    "hears",
    "heard of",
    "has its turn",
    "in hand",
    "by itself",
    "by themselves",
    "tried again",
    "errand",
    "as it stands",
    "for ever",
];

/// Returns the word that a line contains as whole words.
fn word_in(line: &str) -> Option<&'static str> {
    let lower = line.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    WORDS.iter().copied().find(|word| {
        lower.match_indices(word).any(|(at, _)| {
            !is_letter(lower[..at].chars().next_back()) && !is_letter(lower[at + word.len()..].chars().next())
        })
    })
}

#[test]
fn the_documentation_uses_none_of_the_words_that_readers_stumble_over() {
    let mut found = Vec::new();
    for page in PAGES {
        let mut is_code = false;
        for (index, line) in read(page).lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if let Some(word) = word_in(line).filter(|_| !is_code) {
                found.push(format!("{page}:{}: {word}", index + 1));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_program_uses_none_of_the_words_that_readers_stumble_over() {
    let lines = program_lines();
    let found: Vec<String> = lines
        .iter()
        .filter_map(|(place, line)| word_in(line).map(|word| format!("{place}: {word}: {}", line.trim())))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}
