//! Text that may be printed on standard output.

use taskqueue_domain::text::outside_text::clean_block;

/// Whole lines that may be printed. Text is cleaned as it is added. The only part with control sequences is a coloured table,
/// whose cells were cleaned. [`super::Out`] prints no other type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// Adds a page below this one.
    pub(crate) fn add(&mut self, below: impl Into<Self>) {
        self.0.push('\n');
        self.0.push_str(&below.into().0);
    }

    /// Creates a page from a table with cleaned cells.
    pub(super) const fn of_clean_table(table: String) -> Self {
        Self(table)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Page {
    fn from(text: &str) -> Self {
        Self(clean_block(text))
    }
}

impl From<String> for Page {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_of_a_page_is_clean_but_the_colours_of_a_table() {
        let mut page = Page::from("a\x1b[2Jb\nc");
        page.add("d\u{9b}\u{202e}");
        page.add(Page::of_clean_table("\x1b[31mred\x1b[0m".to_owned()));
        assert_eq!(page.text(), "a\u{fffd}[2Jb\nc\nd\u{fffd}\u{fffd}\n\x1b[31mred\x1b[0m");
    }
}
