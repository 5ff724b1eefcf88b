//! Tables for display: fitted to the terminal, never cut for a pipe. Only this file uses comfy-table.

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use super::Out;
use super::clean::clean_line;
use super::page::Page;

/// The colour of a cell; its text always has the same information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// Running or succeeded.
    Good,
    /// Waiting.
    Waiting,
    /// Failed.
    Bad,
    /// Finished, and not important.
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

/// Formats a table without a newline at its end. On a narrow terminal the columns in `optional` (by index) are left out, the
/// first of the list first. If the others do not fit either, each row is printed as a block of lines.
pub(crate) fn render(out: &Out, header: &[&str], rows: Vec<Vec<Field>>, optional: &[usize]) -> Page {
    let left_out = match out.width() {
        Some(width) if width < 60 => optional,
        Some(width) if width < 100 => &optional[..optional.len().min(optional.len().div_ceil(2))],
        _ => &[],
    };
    if let Some(width) = out.width().filter(|width| is_too_narrow(*width, header, &rows, left_out)) {
        return blocks(width, header, &rows).into();
    }
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
    if !out.hides_header() {
        table.set_header(header.iter().enumerate().filter(|(place, _)| kept(place)).map(|(_, name)| Cell::new(name)));
    }
    for row in rows {
        table.add_row(row.into_iter().enumerate().filter(|(place, _)| kept(place)).map(|(_, field)| cell(out, &field)));
    }
    let text = table.to_string();
    Page::of_clean_table(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// Like [`render`], without the column at this place if all of its cells are empty.
pub(crate) fn render_without_empty(
    out: &Out,
    header: &[&str],
    mut rows: Vec<Vec<Field>>,
    optional: &[usize],
    place: usize,
) -> Page {
    if rows.iter().filter_map(|row| row.get(place)).any(|field| !field.0.is_empty()) {
        return render(out, header, rows, optional);
    }
    rows.iter_mut().filter(|row| row.len() > place).for_each(|row| drop(row.remove(place)));
    let header: Vec<&str> = header.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, name)| *name).collect();
    let optional: Vec<usize> =
        optional.iter().filter(|at| **at != place).map(|at| if *at > place { at - 1 } else { *at }).collect();
    render(out, &header, rows, &optional)
}

/// Below this width, a table may be printed as blocks.
const NARROW: u16 = 60;
/// The smallest readable width of the widest column.
const LEAST_ROOM: usize = 16;
/// Spaces left and right of each cell.
const PADDING: usize = 2;

/// Returns true if the widest column would be too narrow beside the others.
fn is_too_narrow(width: u16, header: &[&str], rows: &[Vec<Field>], left_out: &[usize]) -> bool {
    let longest = |(place, name): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.get(place)).map(|field| field.0.chars().count());
        cells.max().unwrap_or(0).max(name.len()) + PADDING
    };
    let kept = header.iter().enumerate().filter(|(place, _)| !left_out.contains(place));
    let lengths: Vec<usize> = kept.map(longest).collect();
    let (all, widest) = (lengths.iter().sum::<usize>(), lengths.iter().copied().max().unwrap_or(0));
    width < NARROW && usize::from(width) < all - widest + LEAST_ROOM.min(widest)
}

/// Formats each row as a block: a line or more for each cell, with the name of its column.
fn blocks(width: u16, header: &[&str], rows: &[Vec<Field>]) -> String {
    let indent = header.iter().map(|name| name.len()).max().unwrap_or(0) + PADDING;
    let room = usize::from(width).saturating_sub(indent).max(1);
    let mut blocks = Vec::new();
    for row in rows {
        let mut lines = Vec::new();
        for (name, field) in header.iter().zip(row) {
            for (number, part) in broken(&clean_line(&field.0), room).iter().enumerate() {
                let name = if number == 0 { *name } else { "" };
                lines.push(format!("{name:indent$}{part}"));
            }
        }
        blocks.push(lines.join("\n"));
    }
    blocks.join("\n\n")
}

/// Breaks text into lines of at most this many characters, between words, and inside longer words.
fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(room) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + piece.len() <= room => {
                    line.push(' ');
                    line.extend(piece);
                }
                _ => lines.push(piece.iter().collect()),
            }
        }
    }
    lines
}

fn cell(out: &Out, field: &Field) -> Cell {
    let cell = Cell::new(clean_line(&field.0));
    if !out.use_color() {
        return cell;
    }
    match field.1 {
        Tone::Plain => cell,
        // The bright colours are unreadable on white.
        Tone::Good => cell.fg(Color::DarkGreen),
        Tone::Waiting => cell.fg(Color::DarkYellow),
        Tone::Bad => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
        Tone::Quiet => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<Field> {
        cells.iter().map(|cell| Field::from(*cell)).collect()
    }

    #[test]
    fn a_table_without_room_for_its_widest_column_is_written_as_blocks() {
        let header = ["RUN", "CLASS", "NOTE"];
        let rows = [row(&["1", "thumbnails.make", "the file is no picture"]), row(&["2", "echo", ""])];
        assert!(is_too_narrow(36, &header, &rows, &[]));
        assert!(!is_too_narrow(40, &header, &rows, &[]) && !is_too_narrow(36, &header, &rows, &[1]));
        assert_eq!(
            blocks(20, &header, &rows),
            "RUN    1\nCLASS  thumbnails.ma\n       ke\nNOTE   the file is\n       no picture\n\nRUN    2\nCLASS  echo"
        );
    }
}
