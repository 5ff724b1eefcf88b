//! Links lead to existing files, and to headings of their pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::root;

/// Returns every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/decisions"].into_iter();
    let documents = folders.flat_map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let documents = documents.map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents
        .chain(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)))
        .collect()
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Returns the lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of its links.
fn targets(text: &str) -> Vec<&str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).collect()
}

/// Returns the text of a heading, without the targets of its links.
fn words_of(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |words, rest| words + rest.split_once(')').map_or(rest, |(_, behind)| behind))
}

/// Returns the anchors that GitHub makes of the headings: lower case, without punctuation, with hyphens for spaces, and with a
/// number for a repeated heading.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let words = line.trim_start_matches('#');
        let level = line.len() - words.len();
        let Some(heading) = words.strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else { continue };
        let lower = words_of(heading).trim().to_lowercase();
        let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let free = std::iter::once(slug.clone()).chain(numbered).find(|slug| !anchors.contains(slug));
        anchors.extend(free);
    }
    anchors
}

#[test]
fn links_lead_to_files_and_to_headings_that_are_there() {
    let mut to_headings = 0;
    for page in pages() {
        let text = read(&page);
        for target in targets(&text).into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let place = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(place.exists(), "{}: {target}", page.display());
            let Some(anchor) = anchor else { continue };
            let there = anchors(&read(&place));
            assert!(there.contains(anchor), "{}: {target}, where there are {there:?}", page.display());
            to_headings += 1;
        }
    }
    assert!(to_headings > 100, "{to_headings}");
}

#[test]
fn anchors_are_made_of_headings_as_github_makes_them() {
    let page = "# `work`: a [runner](x.md#y) that stays\n## Pause, drain & stop\n```sh\n# no heading\n```\n## Keys\n### Keys\n#Keys\n";
    let expected = ["work-a-runner-that-stays", "pause-drain--stop", "keys", "keys-1"];
    assert_eq!(anchors(page), BTreeSet::from(expected.map(str::to_owned)));
    assert_eq!(targets("see [a](b.md#c) and [d](#e)\n```\n[f](g)\n```\n"), ["b.md#c", "#e"]);
}

#[test]
fn the_contents_of_the_book_list_each_page_once() {
    let contents = read(&root().join("contrib/book/SUMMARY.md"));
    let mut listed: Vec<&str> = targets(&contents);
    listed.sort_unstable();
    let relative = |page: PathBuf| page.strip_prefix(root()).unwrap().display().to_string();
    let mut expected: Vec<String> = pages().into_iter().map(relative).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}
