//! The output of handlers on a terminal.

use taskqueue_domain::text::outside_text::clean_block;
use taskqueue_domain::text::utf8::begun_character_bytes;

/// Cleans one stream of output that arrives in parts.
#[derive(Default)]
pub(super) struct StreamCleaner {
    /// The beginning of a character whose end has not arrived.
    begun: Vec<u8>,
}

impl StreamCleaner {
    /// Returns what can be printed after this part, as clean text.
    pub(super) fn clean(&mut self, part: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(part);
        self.begun = bytes.split_off(bytes.len() - begun_character_bytes(&bytes));
        clean_block(&String::from_utf8_lossy(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cleaned_like_the_whole_wherever_they_are_cut() {
        let output = "a\u{1b}[31m\u{9b}2J\u{202e}\u{fc}\u{1f600}\tb\r\n".as_bytes();
        let whole = StreamCleaner::default().clean(output);
        assert_eq!(whole, "a\u{fffd}[31m\u{fffd}2J\u{fffd}\u{fc}\u{1f600}\tb\u{fffd}\n");
        for cut in 0..=output.len() {
            let mut cleaner = StreamCleaner::default();
            let parts = cleaner.clean(&output[..cut]) + &cleaner.clean(&output[cut..]);
            assert_eq!(parts, whole, "{cut}");
        }
        let mut cleaner = StreamCleaner::default();
        assert_eq!(output.iter().map(|byte| cleaner.clean(&[*byte])).collect::<String>(), whole);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_reach_the_terminal() {
        // Some terminals read the byte 0x9b as the beginning of a control sequence.
        assert_eq!(StreamCleaner::default().clean(b"a\x9b2J\xc3(b"), "a\u{fffd}2J\u{fffd}(b");
    }
}
