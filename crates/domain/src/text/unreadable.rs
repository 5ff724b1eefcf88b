//! Columns that hold something this program cannot read: text that is no UTF-8, a time that no calendar has, a name with
//! characters that no class has. The row is set aside, all others go on.

use std::error::Error;
use std::fmt;

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
    /// All of it, where it holds text.
    #[serde(skip)]
    pub text: Option<StoredText>,
}

impl Unreadable {
    /// A column with text that is no value of it.
    #[must_use]
    pub fn of_text(column: &'static str, text: StoredText) -> Self {
        Self { column, found: text.to_string(), text: Some(text) }
    }

    /// For people: which column, and what it holds.
    #[must_use]
    pub fn message(&self) -> String {
        format!("the column {} cannot be read: {}", self.column, self.found)
    }
}

/// Text as it is stored, of any bytes. It shows itself in ASCII, each byte that is no printable character as `\xNN`; of a long
/// one only the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredText(Vec<u8>);

impl StoredText {
    /// All of it, in hexadecimal digits.
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
