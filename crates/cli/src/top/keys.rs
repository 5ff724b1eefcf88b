//! Parses the bytes that a terminal sends for keys.

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopKey {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// Returns true if the bytes end inside the sequence of a key, which a slow line delivers in parts.
pub(crate) fn is_cut(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().rposition(|byte| *byte == 0x1b) else { return false };
    match &bytes[at + 1..] {
        [] => true,
        [b'[' | b'O', sequence @ ..] => !sequence.iter().any(|byte| (b'@'..=b'~').contains(byte)),
        _ => false,
    }
}

/// Returns the pressed keys. Unused keys and keys held with Alt are dropped.
pub(crate) fn keys_of(mut bytes: &[u8]) -> Vec<TopKey> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (key, rest) = match first {
            0x1b => escaped(rest),
            0x03 => (Some(TopKey::Interrupt), rest),
            0x1a => (Some(TopKey::Suspend), rest),
            0x0c => (Some(TopKey::Redraw), rest),
            b'\r' | b'\n' => (Some(TopKey::Enter), rest),
            b'\t' => (Some(TopKey::Tab), rest),
            0x08 | 0x7f => (Some(TopKey::Backspace), rest),
            b' '..=b'~' => (Some(TopKey::Char(char::from(first))), rest),
            _ => (None, rest),
        };
        keys.extend(key);
        bytes = rest;
    }
    keys
}

/// Parses what follows an escape: nothing if that is the key itself, or a sequence.
fn escaped(rest: &[u8]) -> (Option<TopKey>, &[u8]) {
    match rest {
        [] => (Some(TopKey::Escape), rest),
        // `ESC [ parameters final`, or `ESC O final`.
        [b'[' | b'O', sequence @ ..] => {
            let is_final = |byte: &u8| (b'@'..=b'~').contains(byte);
            let Some(end) = sequence.iter().position(is_final) else { return (None, &[]) };
            let (parameters, after) = sequence.split_at(end);
            let (last, after) = after.split_first().map_or((0, after), |(last, after)| (*last, after));
            (key_of_sequence(parameters, last), after)
        }
        [_, after @ ..] => (None, after),
    }
}

fn key_of_sequence(parameters: &[u8], last: u8) -> Option<TopKey> {
    Some(match (last, parameters.first()) {
        (b'A', _) => TopKey::Up,
        (b'B', _) => TopKey::Down,
        (b'C', _) => TopKey::Right,
        (b'D', _) => TopKey::Left,
        (b'H', _) | (b'~', Some(b'1' | b'7')) => TopKey::Home,
        (b'F', _) | (b'~', Some(b'4' | b'8')) => TopKey::End,
        (b'Z', _) => TopKey::BackTab,
        (b'~', Some(b'5')) => TopKey::PageUp,
        (b'~', Some(b'6')) => TopKey::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_in_parts_is_known_as_such() {
        for part in [b"\x1b".as_slice(), b"j\x1b[", b"\x1bO", b"\x1b[1;5"] {
            assert!(is_cut(part), "{part:?}");
        }
        for whole in [b"".as_slice(), b"j", b"\x1b[A", b"\x1bOB", b"\x1b[1;5C", b"\x1bx"] {
            assert!(!is_cut(whole), "{whole:?}");
        }
    }

    #[test]
    fn the_bytes_of_a_terminal_are_keys() {
        let keys: [(&[u8], Vec<TopKey>); 7] = [
            (b"q", vec![TopKey::Char('q')]),
            (b"\x1b", vec![TopKey::Escape]),
            (b"\x1b[A\x1bOB\x1b[1;5C", vec![TopKey::Up, TopKey::Down, TopKey::Right]),
            (
                b"\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[Z\t",
                vec![TopKey::PageUp, TopKey::PageDown, TopKey::Home, TopKey::End, TopKey::BackTab, TopKey::Tab],
            ),
            (
                b"\x03\x1a\x0c\r\x7f",
                vec![TopKey::Interrupt, TopKey::Suspend, TopKey::Redraw, TopKey::Enter, TopKey::Backspace],
            ),
            // Alt, an unused key, a truncated sequence, letters beyond ASCII.
            (b"\x1bx\x1b[3~j\x1b[1;", vec![TopKey::Char('j')]),
            ("é".as_bytes(), vec![]),
        ];
        for (bytes, expected) in keys {
            assert_eq!(keys_of(bytes), expected, "{bytes:?}");
        }
    }
}
