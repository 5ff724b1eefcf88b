//! Columns with unreadable values: text that is not UTF-8, an invalid time, a class name with invalid characters. The row is set
//! aside; all other rows are processed.

use std::error::Error;
use std::fmt;

use serde::Serialize;

/// How many bytes of an unreadable value are shown.
const SHOWN_BYTES: usize = 64;

/// The error code of a run that ends because its row cannot be read.
pub const UNREADABLE_CODE: &str = "unreadable";

/// A column that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its name.
    pub column: &'static str,
    /// Its value, in a form that is safe to print.
    pub found: String,
    /// The full value, if it is text.
    #[serde(skip)]
    pub text: Option<StoredText>,
}

impl Unreadable {
    /// Returns a column whose text is not a valid value.
    #[must_use]
    pub fn of_text(column: &'static str, text: StoredText) -> Self {
        Self { column, found: text.to_string(), text: Some(text) }
    }

    /// Returns a message for people. It does not contain the value, which may be secret: messages are shown where data is hidden.
    #[must_use]
    pub fn message(&self) -> String {
        format!("the column {} cannot be read", self.column)
    }
}

/// Stored text with arbitrary bytes. `Display` writes ASCII, with each unprintable byte as `\xNN`, and only the beginning of a
/// long text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredText(Vec<u8>);

impl StoredText {
    /// Returns the full text in hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<&[u8]> for StoredText {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl fmt::Display for StoredText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN_BYTES).unwrap_or(&self.0);
        write!(out, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() {
            write!(out, "… ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl Error for StoredText {}

/// Reads the columns of one row and collects the unreadable ones.
#[derive(Debug, Default)]
pub struct RowReader {
    unreadable: Vec<Unreadable>,
}

impl RowReader {
    /// Returns the value, or the default of its type if it cannot be read.
    pub fn take<T: Default>(&mut self, read: Result<T, Unreadable>) -> T {
        read.unwrap_or_else(|problem| {
            self.unreadable.push(problem);
            T::default()
        })
    }

    /// Returns the text, or a printable form if it cannot be read.
    pub fn take_text(&mut self, read: Result<String, Unreadable>) -> String {
        read.unwrap_or_else(|problem| {
            let shown = problem.found.clone();
            self.unreadable.push(problem);
            shown
        })
    }

    /// Records an unreadable column.
    pub fn note(&mut self, problem: Unreadable) {
        self.unreadable.push(problem);
    }

    /// Returns how many unreadable columns were found so far.
    #[must_use]
    pub fn unreadable_count(&self) -> usize {
        self.unreadable.len()
    }

    /// Returns the unreadable columns.
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
        let shown = |bytes: &[u8]| StoredText::from(bytes).to_string();
        assert_eq!(shown(b"\"M\xfcller\x1b[31m\""), "\\\"M\\xfcller\\x1b[31m\\\"");
        assert_eq!(shown(&[0xff; 65]), format!("{}… (65 bytes)", "\\xff".repeat(64)));
        assert_eq!(StoredText::from(&b"\xfc\0a"[..]).hex(), "fc0061");
    }

    #[test]
    fn what_cannot_be_read_is_named_and_replaced() {
        let mut reader = RowReader::default();
        let problem = Unreadable { column: "Timeout", found: "4294967295".to_owned(), text: None };
        assert_eq!(reader.take(Err::<i32, _>(problem.clone())), 0);
        assert_eq!(reader.take(Ok(7)), 7);
        assert_eq!(reader.finish(), [problem]);
    }
}
