//! Splits the Markdown of the documentation into parts, and converts them to manual pages. Supports only the Markdown that the
//! documentation uses.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// A part of a page.
pub(super) enum Part<'a> {
    /// Its level and its text.
    Heading(usize, &'a str),
    Paragraph(String),
    Item(String),
    /// A row of a table: its first cell, and the other cells. Column titles are dropped.
    Row(String, String),
    Code(Vec<&'a str>),
}

/// Converts a page to the body of a manual page. The first heading is its title, and is printed elsewhere.
pub(super) fn to_roff(page: &str) -> Roff {
    let mut roff = Roff::new();
    let mut has_title = false;
    for part in parts(page) {
        match part {
            // The first heading is the title, whatever its level.
            Part::Heading(..) if !has_title => has_title = true,
            Part::Heading(level, words) => {
                roff.control(if level > 2 { "SS" } else { "SH" }, [words]);
            }
            Part::Paragraph(text) => {
                roff.control("PP", []).text(inlines(&text));
            }
            Part::Item(text) => {
                roff.control("IP", ["\\(bu", "2"]).text(inlines(&text));
            }
            Part::Row(name, text) => {
                roff.control("TP", ["8"]).text(inlines(&name)).text(inlines(&text));
            }
            Part::Code(lines) => {
                roff.control("PP", []).control("RS", ["4"]).control("nf", []);
                for line in lines {
                    roff.text([roman(line)]);
                }
                roff.control("fi", []).control("RE", []);
            }
        }
    }
    roff
}

/// Returns the parts of a page in order.
pub(super) fn parts(page: &str) -> Vec<Part<'_>> {
    let mut reader = Reader { parts: Vec::new(), text: Vec::new(), is_item: false };
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let code = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            reader.add(Part::Code(code));
        } else if let Some((level, heading)) = heading(line) {
            reader.add(Part::Heading(level, heading));
        } else if line.starts_with('|') {
            reader.row(line, lines.peek().is_some_and(|next| next.starts_with("|-")));
        } else if let Some(item) = line.strip_prefix("- ") {
            reader.end_paragraph();
            reader.is_item = true;
            reader.text.push(item);
        } else if line.trim().is_empty() {
            reader.end_paragraph();
            reader.is_item = false;
        } else {
            reader.text.push(line.trim());
        }
    }
    reader.end_paragraph();
    reader.parts
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    Some((level, line.get(level..)?.strip_prefix(' ')?)).filter(|_| level > 0)
}

struct Reader<'a> {
    parts: Vec<Part<'a>>,
    /// The lines of the current paragraph.
    text: Vec<&'a str>,
    /// Whether it is a list item.
    is_item: bool,
}

impl<'a> Reader<'a> {
    fn end_paragraph(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.text).join(" ");
        self.parts.push(if self.is_item { Part::Item(text) } else { Part::Paragraph(text) });
    }

    fn add(&mut self, part: Part<'a>) {
        self.end_paragraph();
        self.parts.push(part);
    }

    fn row(&mut self, line: &str, is_head: bool) {
        self.end_paragraph();
        if is_head || line.starts_with("|-") {
            return;
        }
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap_or_default().to_owned();
        self.parts.push(Part::Row(name, cells.collect::<Vec<_>>().join(": ")));
    }
}

/// Parses the inline markup of a paragraph: text in backquotes or between two stars is bold, and of a link only the text is
/// kept.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    let (mut rest, mut plain) = (text, String::new());
    while let Some(c) = rest.chars().next() {
        let marked = between(rest, "`", "`").or_else(|| between(rest, "**", "**"));
        if let Some((marked, behind)) = marked {
            found.extend([roman(std::mem::take(&mut plain)), bold(marked)]);
            rest = behind;
        } else if let Some((words, behind)) = link(rest) {
            found.push(roman(std::mem::take(&mut plain)));
            found.extend(inlines(words));
            rest = behind;
        } else {
            plain.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    found.push(roman(plain));
    found.retain(|inline| !matches!(inline, Inline::Roman(text) if text.is_empty()));
    found
}

/// Returns the text between two marks at the beginning, and the rest.
fn between<'a>(text: &'a str, opening: &str, closing: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(opening)?.split_once(closing).filter(|(inside, _)| !inside.is_empty())
}

/// Returns the text of a link at the beginning, and the rest.
fn link(text: &str) -> Option<(&str, &str)> {
    let (words, behind) = text.strip_prefix('[')?.split_once(']')?;
    let (_, behind) = behind.strip_prefix('(')?.split_once(')')?;
    Some((words, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roff(page: &str) -> String {
        to_roff(page).to_roff()
    }

    #[test]
    fn headings_paragraphs_and_lists_become_those_of_a_manual_page() {
        let page = "# Title\n\nOne `two`\nthree.\n\n## Part\n\n- a **b**\n  c\n- [d](e.md#f) g\n\nEnd.\n";
        assert_eq!(
            roff(page),
            ".PP\nOne \\fBtwo\\fR three.\n.SH Part\n.IP \\(bu 2\na \\fBb\\fR c\n.IP \\(bu 2\nd g\n.PP\nEnd.\n"
        );
    }

    #[test]
    fn a_row_of_a_table_is_an_entry() {
        let page = "### Title\n\n| A | B | C |\n|---|---|---|\n| `1` | two | three |\n";
        assert_eq!(roff(page), ".TP 8\n\\fB1\\fR\ntwo: three\n");
    }

    #[test]
    fn code_stays_as_it_is() {
        let page = "# Title\n\n```sh test\n$ a `b` **c**\n.d\n```\nEnd\n";
        assert_eq!(roff(page), ".PP\n.RS 4\n.nf\n$ a `b` **c**\n\\&.d\n.fi\n.RE\n.PP\nEnd\n");
    }

    #[test]
    fn marks_that_are_none_stay() {
        assert_eq!(inlines("a * b [c] d"), [roman("a * b [c] d")]);
        assert_eq!(inlines("`a|b`"), [bold("a|b")]);
        assert_eq!(inlines("[a] [b](c) d"), [roman("[a] "), roman("b"), roman(" d")]);
    }
}
