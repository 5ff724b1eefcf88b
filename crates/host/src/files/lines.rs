//! Splits the event stream of a handler into lines. A line longer than the cap is passed on as an empty one. Thus a handler that
//! never writes a newline cannot fill the memory, and the lost line is counted.

/// The longest event line that is read, in bytes without its newline.
pub(crate) const LINE_CAP_BYTES: usize = 1024 * 1024;

/// Holds an unfinished line between two reads.
#[derive(Default)]
pub struct LineSplitter {
    line: Vec<u8>,
    overlong: bool,
}

impl LineSplitter {
    /// Passes every line that these bytes complete to `take`, without its newline.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.append(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.finish(&mut take);
        }
        self.append(bytes);
    }

    /// Passes on the text after the last newline: the last line of a stream may lack one.
    pub fn finish(&mut self, mut take: impl FnMut(&[u8])) {
        if self.overlong || !self.line.is_empty() {
            take(&self.line);
        }
        self.line.clear();
        self.overlong = false;
        // One long line must not keep a megabyte allocated for the rest of the run.
        self.line.shrink_to(64 * 1024);
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.overlong || self.line.len() + bytes.len() > LINE_CAP_BYTES {
            self.overlong = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::default();
        let mut take = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
        for piece in pieces {
            splitter.push(piece, &mut take);
        }
        splitter.finish(&mut take);
        lines
    }

    #[test]
    fn lines_are_found_across_reads_and_empty_ones_are_passed_over() {
        assert_eq!(split(&[b"on", b"e\ntwo\n\n", b"\nthr", b"ee"]), ["one", "two", "three"]);
        assert_eq!(split(&[b"\n", b""]), [""; 0]);
    }

    #[test]
    fn a_line_at_the_cap_is_kept_and_a_longer_one_becomes_empty() {
        let longest = vec![b'x'; LINE_CAP_BYTES];
        assert_eq!(split(&[&longest, b"\nnext\n"]).len(), 2);
        assert_eq!(split(&[b"first\n", &longest, b"x", &longest, b"\nnext\n"]), ["first", "", "next"]);
        assert_eq!(split(&[&longest, &longest]), [""]);
    }
}
