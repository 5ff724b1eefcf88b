//! The new part of an output that grows while it is read repeatedly. Beyond its limit, only the beginning and the end of an
//! output are captured. What was written between two reads may then be missing; a line in the output reports the missing bytes.

use crate::task::records::RunOutput;

/// The end of the line that marks an omission.
const LEFT_OUT: &str = " bytes left out …\n";

/// One output, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    content: String,
    total_bytes: i64,
}

impl Followed {
    /// Returns what was added since the last read.
    pub fn take_new(&mut self, output: &RunOutput) -> String {
        let is_older = output.total_bytes < self.total_bytes;
        let news = match output.content.strip_prefix(self.content.as_str()) {
            _ if is_older => return String::new(),
            Some(rest) => rest.to_owned(),
            None => self.news_of_end(output),
        };
        (self.content, self.total_bytes) = (output.content.clone(), output.total_bytes);
        news
    }

    /// Returns the new part of the end: if the middle is omitted, only the end can have grown.
    fn news_of_end(&self, output: &RunOutput) -> String {
        let end = output.content.rfind(LEFT_OUT).map_or(0, |at| at + LEFT_OUT.len());
        let kept = output.content.get(end..).unwrap_or_default();
        let new_bytes = usize::try_from(output.total_bytes - self.total_bytes).unwrap_or(usize::MAX);
        let Some(missing) = new_bytes.checked_sub(kept.len()).filter(|missing| *missing > 0) else {
            let mut from = kept.len().saturating_sub(new_bytes);
            // The cut may fall inside a character.
            while !kept.is_char_boundary(from) {
                from -= 1;
            }
            return kept.get(from..).unwrap_or_default().to_owned();
        };
        format!("\n… {missing}{LEFT_OUT}{kept}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(content: &str, total_bytes: i64) -> RunOutput {
        RunOutput { stream: "stdout".to_owned(), content: content.to_owned(), total_bytes, is_lossy: false }
    }

    #[test]
    fn what_grows_is_told_piece_by_piece() {
        let mut followed = Followed::default();
        assert_eq!(followed.take_new(&output("a\n", 2)), "a\n");
        assert_eq!(followed.take_new(&output("a\n", 2)), "");
        assert_eq!(followed.take_new(&output("a\nbü", 5)), "bü");
    }

    #[test]
    fn beyond_the_limit_the_new_end_is_told() {
        let mut followed = Followed::default();
        followed.take_new(&output("abcdef", 6));
        assert_eq!(followed.take_new(&output("abc\n… 2 bytes left out …\nfgh", 8)), "gh");
        assert_eq!(followed.take_new(&output("abc\n… 3 bytes left out …\ngh\n", 9)), "\n");
    }

    #[test]
    fn what_came_and_went_between_two_looks_is_counted() {
        let mut followed = Followed::default();
        followed.take_new(&output("abcdef", 6));
        assert_eq!(followed.take_new(&output("abc\n… 10 bytes left out …\nxyz", 16)), "\n… 7 bytes left out …\nxyz");
    }

    #[test]
    fn an_older_look_that_comes_late_says_nothing() {
        let mut followed = Followed::default();
        followed.take_new(&output("abc", 3));
        assert_eq!(followed.take_new(&output("ab", 2)), "");
        assert_eq!(followed.take_new(&output("abcd", 4)), "d");
    }

    #[test]
    fn a_character_is_never_cut() {
        let mut followed = Followed::default();
        followed.take_new(&output("abcdef", 6));
        assert_eq!(followed.take_new(&output("abc\n… 3 bytes left out …\nxü", 7)), "ü");
    }
}
