//! Suggestions for an unknown name.

/// The most names that are suggested.
const SUGGESTIONS: usize = 3;
/// The lowest similarity of a suggestion, from 0 (nothing in common) to 1 (equal), by Jaro-Winkler.
const LIKE_ENOUGH: f64 = 0.7;

/// Returns the known names that are similar to an unknown one, best first.
#[must_use]
pub fn nearest_names<N: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = N>) -> Vec<N> {
    let likeness = |name: &N| strsim::jaro_winkler(unknown, name.as_ref());
    let mut scored: Vec<(f64, N)> = known.into_iter().map(|name| (likeness(&name), name)).collect();
    scored.retain(|(score, _)| *score > LIKE_ENOUGH);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_what_is_not_like_the_word_does_not_come() {
        assert_eq!(nearest_names("mial", ["report", "mailing", "mail"]), ["mail", "mailing"]);
        assert!(nearest_names("mial", ["report"]).is_empty());
    }

    #[test]
    fn there_are_three_at_most() {
        assert_eq!(nearest_names("a", ["a1", "a2", "a3", "a4"]).len(), 3);
    }
}
