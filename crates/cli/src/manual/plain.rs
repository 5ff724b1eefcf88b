//! Formats the pages of the documentation as text for a terminal.

use clap_mangen::roff::Inline;

use super::markdown::{Part, inlines, parts};
use taskqueue_views::human::hanging;

/// The longest name, in columns, with room for its description in the same row.
const LONGEST_NAME: usize = 20;

/// Formats a page in lines of at most this width; code stays unchanged.
pub(crate) fn to_text(page: &str, width: u16) -> String {
    let parts = parts(page);
    // No blank line between table rows and between list items.
    let is_continued = |before: &Part<'_>, next: &Part<'_>| {
        matches!((before, next), (Part::Row(..), Part::Row(..)) | (Part::Item(_), Part::Item(_)))
    };
    let block = |group: &[Part<'_>]| {
        let names = group.iter().filter_map(name).map(|name| name.chars().count());
        let room = names.filter(|length| *length <= LONGEST_NAME).max().unwrap_or(0);
        group.iter().map(|part| part_text(part, room, width)).collect::<Vec<_>>().join("\n")
    };
    parts.chunk_by(is_continued).map(block).collect::<Vec<_>>().join("\n\n")
}

/// Returns the name of a table row.
fn name(part: &Part<'_>) -> Option<String> {
    match part {
        Part::Row(name, _) => Some(plain(name)),
        _ => None,
    }
}

fn part_text(part: &Part<'_>, room: usize, width: u16) -> String {
    match part {
        Part::Heading(_, words) => plain(words).to_uppercase(),
        Part::Paragraph(text) => hanging("", &plain(text), Some(width)),
        Part::Item(text) => hanging("- ", &plain(text), Some(width)),
        Part::Row(name, text) => row(&plain(name), &plain(text), room, width),
        Part::Code(lines) => lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"),
    }
}

fn row(name: &str, text: &str, room: usize, width: u16) -> String {
    if name.chars().count() > room {
        let (above, below) = ("  ", " ".repeat(room + 4));
        return format!("{}\n{}", hanging(above, name, Some(width)), hanging(&below, text, Some(width)));
    }
    hanging(&format!("  {name:<room$}  "), text, Some(width)).trim_end().to_owned()
}

/// Returns the text without markup.
fn plain(text: &str) -> String {
    let words = |inline| match inline {
        Inline::Roman(words) | Inline::Italic(words) | Inline::Bold(words) => words,
        Inline::LineBreak => " ".to_owned(),
    };
    inlines(text).into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::topics;

    #[test]
    fn a_page_becomes_text_that_fits_the_terminal() {
        let page = "# Some title\n\nOne `two` [three](x.md)\nfour five.\n\n- a **b** c d e f g h i j\n- k\n\n```sh test\n$ `x`\n```\n";
        assert_eq!(
            to_text(page, 20),
            "SOME TITLE\n\nOne two three four\nfive.\n\n- a b c d e f g h i\n  j\n- k\n\n    $ `x`"
        );
    }

    #[test]
    fn a_row_of_a_table_stands_behind_its_name_or_below_a_long_one() {
        let page = "| A | B | C |\n|---|---|---|\n| `1` | two | three |\n| `12` | x |\n| a name that is longer than most | y |\n";
        assert_eq!(to_text(page, 40), "  1   two: three\n  12  x\n  a name that is longer than most\n      y");
    }

    #[test]
    fn no_topic_is_wider_than_a_terminal_and_none_shows_how_it_was_marked() {
        for topic in topics::list() {
            let text = to_text(topics::topic(topic).unwrap(), 80);
            assert!(!text.contains("](") && !text.contains("```") && !text.contains("|---"), "{topic}: {text}");
            let is_too_long = |line: &&str| line.chars().count() > 80 && !line.starts_with("    ");
            assert_eq!(text.lines().find(is_too_long), None, "{topic}");
        }
    }
}
