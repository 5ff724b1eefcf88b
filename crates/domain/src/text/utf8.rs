//! UTF-8 that arrives in parts.

/// Returns how many bytes at the end belong to an incomplete character.
#[must_use]
pub fn begun_character_bytes(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    // The first byte of a character; earlier bytes belong to the previous character.
    let mut starts = (from..bytes.len()).filter(|at| bytes[*at] >= 0xc0);
    let is_cut = |at: &usize| std::str::from_utf8(&bytes[*at..]).is_err_and(|error| error.error_len().is_none());
    starts.next_back().filter(is_cut).map_or(0, |at| bytes.len() - at)
}
