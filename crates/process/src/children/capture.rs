//! Captures the beginning and the end of a handler's output in bounded memory, as text that every engine can store.

use std::collections::VecDeque;
use std::time::Duration;

use taskqueue_domain::text::utf8::begun_character_bytes;
use taskqueue_host::clock::Moment;

/// How often the output of a running handler is shown. If the handler ends sooner, it is shown once, after its end.
const SHOW_EVERY: Duration = Duration::from_secs(2);
/// How often while a reader follows it.
pub const SHOW_FOLLOWED_EVERY: Duration = Duration::from_millis(100);
/// Larger captures are shown proportionally less often: the whole capture is written each time.
const SHOWN_AT_EASE_BYTES: usize = 64 * 1024;

/// An output stream of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The captured part of one output stream. Up to the limit, everything is captured, and `tail` follows `head` without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes, at most half of the limit.
    pub head: Vec<u8>,
    /// The last bytes after `head`, at most half of the limit.
    pub tail: Vec<u8>,
    /// How many bytes the handler wrote in total.
    pub total_bytes: u64,
}

impl Captured {
    /// Returns how many bytes between `head` and `tail` were left out.
    #[must_use]
    pub fn left_out_bytes(&self) -> u64 {
        let kept = self.head.len() + self.tail.len();
        self.total_bytes.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX))
    }

    /// Returns text that every engine can store: invalid UTF-8 becomes U+FFFD, NUL becomes U+2400, and an extra line gives the
    /// number of bytes left out.
    #[must_use]
    pub fn to_text(&self) -> String {
        let left_out = self.left_out_bytes();
        if left_out == 0 {
            // Joined first: a character may span head and tail.
            return text_of(&[self.head.as_slice(), self.tail.as_slice()].concat());
        }
        let mut text = text_of(&self.head);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("… {left_out} bytes left out …\n"));
        text.push_str(&text_of(&self.tail));
        text
    }

    /// Returns true if the text of [`Captured::to_text`] differs from what the handler wrote.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        if self.left_out_bytes() > 0 {
            return true;
        }
        let all = [self.head.as_slice(), self.tail.as_slice()].concat();
        all.contains(&0) || std::str::from_utf8(&all).is_err()
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{2400}")
}

/// Collects one stream; its memory never exceeds the limit.
pub struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total_bytes: u64,
}

impl Capture {
    /// Captures `limit_bytes` bytes, half of them from the end.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        let tail_limit = limit_bytes / 2;
        Self {
            head: Vec::new(),
            head_limit: limit_bytes - tail_limit,
            tail: VecDeque::new(),
            tail_limit,
            total_bytes: 0,
        }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    fn kept_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Returns the capture so far, without an incomplete character at its end.
    fn so_far(&self) -> Captured {
        let mut so_far = Captured {
            head: self.head.clone(),
            tail: self.tail.iter().copied().collect(),
            total_bytes: self.total_bytes,
        };
        let last = if so_far.tail.is_empty() { &mut so_far.head } else { &mut so_far.tail };
        let begun = begun_character_bytes(last);
        last.truncate(last.len() - begun);
        so_far.total_bytes -= u64::try_from(begun).unwrap_or(0);
        so_far
    }

    /// Returns the final capture.
    #[must_use]
    pub fn finish(self) -> Captured {
        Captured { head: self.head, tail: self.tail.into(), total_bytes: self.total_bytes }
    }
}

/// Decides when to show the output of a running handler.
pub struct Showing {
    next: Moment,
    next_if_followed: Moment,
    shown_bytes: u64,
}

impl Showing {
    /// Starts the time before the output is shown first.
    #[must_use]
    pub fn begin() -> Self {
        Self { next: Moment::after(SHOW_EVERY), next_if_followed: Moment::now(), shown_bytes: 0 }
    }

    /// Returns true if the capture has grown since the last time.
    pub(crate) const fn is_behind(&self, capture: &Capture) -> bool {
        capture.total_bytes > self.shown_bytes
    }

    /// Returns the capture if it is time to show it and it has grown since the last time.
    pub fn take(&mut self, capture: &Capture, is_followed: bool) -> Option<Captured> {
        let next = if is_followed { self.next_if_followed } else { self.next };
        if !self.is_behind(capture) || !next.has_passed() {
            return None;
        }
        let times = u32::try_from(capture.kept_bytes().div_ceil(SHOWN_AT_EASE_BYTES)).unwrap_or(u32::MAX);
        self.next = Moment::after(SHOW_EVERY.saturating_mul(times.max(1)));
        self.next_if_followed = Moment::after(SHOW_FOLLOWED_EVERY.saturating_mul(times.max(1)));
        self.shown_bytes = capture.total_bytes;
        Some(capture.so_far())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_output_is_shown_after_a_while_only_when_there_is_more() {
        let mut capture = Capture::new(6);
        let mut showing = Showing::begin();
        capture.push(b"abcdefgh");
        assert_eq!(showing.take(&capture, false), None);
        showing.next = Moment::now();
        let shown = showing.take(&capture, false).unwrap();
        assert_eq!((shown.to_text(), shown.total_bytes), ("abc\n… 2 bytes left out …\nfgh".to_owned(), 8));
        showing.next = Moment::now();
        assert_eq!(showing.take(&capture, false), None);
        capture.push(b"i");
        assert!(showing.take(&capture, false).is_some());
        assert_eq!(showing.take(&capture, false), None);
    }

    #[test]
    fn followed_output_is_shown_at_once_but_a_large_one_less_often() {
        let mut capture = Capture::new(1 << 20);
        let mut showing = Showing::begin();
        capture.push(b"a");
        assert_eq!(showing.take(&capture, false), None);
        assert!(showing.take(&capture, true).is_some());
        let wait = |showing: &Showing| showing.next_if_followed.remaining();
        assert!(wait(&showing) <= SHOW_FOLLOWED_EVERY);
        capture.push(&[b'a'; 10 * SHOWN_AT_EASE_BYTES]);
        showing.next_if_followed = Moment::now();
        assert!(showing.take(&capture, true).is_some());
        assert!(wait(&showing) > SHOW_FOLLOWED_EVERY);
    }

    #[test]
    fn what_is_shown_ends_with_a_whole_character() {
        let of = |bytes: &[u8]| {
            let mut capture = Capture::new(100);
            capture.push(bytes);
            let so_far = capture.so_far();
            (so_far.to_text(), so_far.total_bytes, so_far.is_lossy())
        };
        let euro = "a€".as_bytes();
        assert_eq!(of(&euro[..2]), ("a".to_owned(), 1, false));
        assert_eq!(of(&euro[..3]), ("a".to_owned(), 1, false));
        assert_eq!(of(euro), ("a€".to_owned(), 4, false));
        assert_eq!(of(b""), (String::new(), 0, false));
        assert_eq!(of(b"a\xff"), ("a\u{fffd}".to_owned(), 2, true));
    }

    fn captured(limit: usize, pieces: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(limit);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish()
    }

    #[test]
    fn everything_up_to_the_limit_is_kept_unchanged() {
        let kept = captured(8, &["grü".as_bytes(), b"ssen"]);
        assert_eq!((kept.to_text(), kept.is_lossy()), ("grüssen".to_owned(), false));
        assert_eq!(captured(0, &[]).to_text(), "");
    }

    #[test]
    fn a_character_across_the_border_of_head_and_tail_stays_whole() {
        let kept = captured(4, &["aüb".as_bytes()]);
        assert_eq!((kept.head.len(), kept.to_text(), kept.is_lossy()), (2, "aüb".to_owned(), false));
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        for size in [1, 3, 100] {
            let all = (b'a'..=b'z').collect::<Vec<_>>();
            let kept = captured(6, &all.chunks(size).collect::<Vec<_>>());
            assert_eq!(kept.to_text(), "abc\n… 20 bytes left out …\nxyz");
            assert_eq!((kept.is_lossy(), kept.total_bytes), (true, 26));
        }
    }

    #[test]
    fn a_limit_of_nothing_only_counts() {
        let kept = captured(0, &[b"abc"]);
        assert_eq!(kept.to_text(), "… 3 bytes left out …\n");
        assert_eq!(captured(1, &[b"abc"]).to_text(), "a\n… 2 bytes left out …\n");
    }

    #[test]
    fn bytes_that_no_engine_stores_are_replaced() {
        let kept = captured(100, &[b"a\0b\xff\xfec"]);
        assert_eq!(kept.to_text(), "a\u{2400}b\u{fffd}\u{fffd}c");
        assert!(kept.is_lossy());
    }
}
