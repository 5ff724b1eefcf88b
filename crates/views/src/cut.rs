//! Long values, shortened for display.

use std::borrow::Cow;

/// How much of a long value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The beginning, some screens long.
    Cut,
    /// All.
    Full,
}

/// How many bytes of a shortened value are printed.
const CUT_BYTES: usize = 8 * 1024;

impl Length {
    /// Returns the length for a verb with or without `--full`.
    pub const fn of(is_full: bool) -> Self {
        if is_full { Self::Full } else { Self::Cut }
    }

    /// Returns the value, or its beginning and its length.
    pub fn of_value(self, text: &str) -> Cow<'_, str> {
        if self == Self::Full || text.len() <= CUT_BYTES {
            return Cow::Borrowed(text);
        }
        let beginning = &text[..text.floor_char_boundary(CUT_BYTES)];
        Cow::Owned(format!("{beginning} … ({} bytes in all; status --full prints them)", text.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_between_characters_and_its_length_is_printed() {
        assert_eq!(Length::Cut.of_value(&"x".repeat(CUT_BYTES)), "x".repeat(CUT_BYTES));
        let long = format!("{}{}", "x".repeat(CUT_BYTES - 1), "ü".repeat(CUT_BYTES));
        let cut = Length::Cut.of_value(&long).into_owned();
        assert_eq!(cut, format!("{} … (24575 bytes in all; status --full prints them)", "x".repeat(CUT_BYTES - 1)));
        assert_eq!(Length::Full.of_value(&long), long);
    }
}
