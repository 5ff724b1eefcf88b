//! Columns that hold something this program cannot read: text that is no UTF-8, a time that no calendar has, a name with
//! characters that no class has. The row is set aside, all others go on.

use serde::Serialize;

/// How many bytes of such a value are shown.
const SHOWN_BYTES: usize = 64;

/// The code of the run that ends because its row cannot be read.
pub const UNREADABLE_CODE: &str = "unreadable";

/// A column that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its name.
    pub column: &'static str,
    /// What it holds, in a form that is safe to show.
    pub found: String,
}

impl Unreadable {
    /// For people: which column, and what it holds.
    #[must_use]
    pub fn message(&self) -> String {
        format!("the column {} cannot be read: {}", self.column, self.found)
    }
}

/// Bytes in ASCII, each that is no printable character as `\xNN`; of many only the first.
#[must_use]
pub fn show_bytes(bytes: &[u8]) -> String {
    let shown = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
    let cut = if shown.len() < bytes.len() { format!("… ({} bytes)", bytes.len()) } else { String::new() };
    format!("{}{cut}", shown.escape_ascii())
}

/// Values of the columns of one row, and which of them could not be read.
#[derive(Debug, Default)]
pub struct RowReader {
    unreadable: Vec<Unreadable>,
}

impl RowReader {
    /// The value, or the default of its type where it cannot be read.
    pub fn take<T: Default>(&mut self, read: Result<T, Unreadable>) -> T {
        read.unwrap_or_else(|problem| {
            self.unreadable.push(problem);
            T::default()
        })
    }

    /// The text, or what is shown in its place.
    pub fn take_text(&mut self, read: Result<String, Unreadable>) -> String {
        read.unwrap_or_else(|problem| {
            let shown = problem.found.clone();
            self.unreadable.push(problem);
            shown
        })
    }

    /// Notes a column that cannot be read.
    pub fn note(&mut self, problem: Unreadable) {
        self.unreadable.push(problem);
    }

    /// How many columns could not be read so far.
    #[must_use]
    pub fn unreadable_count(&self) -> usize {
        self.unreadable.len()
    }

    /// The columns that could not be read.
    #[must_use]
    pub fn finish(self) -> Vec<Unreadable> {
        self.unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_without_what_drives_a_terminal() {
        assert_eq!(show_bytes(b"\"M\xfcller\x1b[31m\""), "\\\"M\\xfcller\\x1b[31m\\\"");
        assert_eq!(show_bytes(&[0xff; 65]), format!("{}… (65 bytes)", "\\xff".repeat(64)));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_replaced() {
        let mut reader = RowReader::default();
        let problem = Unreadable { column: "Timeout", found: "4294967295".to_owned() };
        assert_eq!(reader.take(Err::<i32, _>(problem.clone())), 0);
        assert_eq!(reader.take(Ok(7)), 7);
        assert_eq!(reader.finish(), [problem]);
    }
}
