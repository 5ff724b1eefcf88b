//! Tables for people: fitted to the terminal, never cut into a pipe. The only user of comfy-table.

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use super::Out;
use super::clean::clean_line;

/// What a cell says beyond its words; the words always say it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// Works or has worked.
    Good,
    /// Waits for something.
    Waiting,
    /// Has failed.
    Bad,
    /// Done and out of the way.
    Quiet,
}

/// One cell.
pub(crate) struct Field(String, Tone);

impl Field {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self(text.into(), tone)
    }
}

impl<T: Into<String>> From<T> for Field {
    fn from(text: T) -> Self {
        Self(text.into(), Tone::Plain)
    }
}

/// A table as text, without a newline at its end. On a narrow terminal the columns whose place stands in `optional` are
/// left out, from the first of the list on.
pub(crate) fn render(out: &Out, header: &[&str], rows: Vec<Vec<Field>>, optional: &[usize]) -> String {
    let left_out = match out.width() {
        Some(width) if width < 60 => optional,
        Some(width) if width < 100 => &optional[..optional.len().min(optional.len().div_ceil(2))],
        _ => &[],
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match out.width() {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    if out.use_color() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let kept = |place: &usize| !left_out.contains(place);
    table.set_header(header.iter().enumerate().filter(|(place, _)| kept(place)).map(|(_, name)| Cell::new(name)));
    for row in rows {
        table.add_row(row.into_iter().enumerate().filter(|(place, _)| kept(place)).map(|(_, field)| cell(out, &field)));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn cell(out: &Out, field: &Field) -> Cell {
    let cell = Cell::new(clean_line(&field.0));
    if !out.use_color() {
        return cell;
    }
    match field.1 {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Waiting => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        Tone::Quiet => cell.add_attribute(Attribute::Dim),
    }
}
