//! Parsers for process data: of the kernel, and our own identities.

use super::text;
use taskqueue_host::machine::proc_files::{EntryMatcher, Stat, parse_stat};
use taskqueue_process::identities::identity::ProcessIdentity;

/// `/proc/PID/stat`: a process may have any name and is still parsed correctly.
pub fn stat(input: &[u8]) {
    let _ = parse_stat(input);
    let mut text = b"77 (".to_vec();
    text.extend_from_slice(input);
    text.extend_from_slice(b") S 5 66 55 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n");
    let expected =
        Stat { state: b'S', parent: 5, group: 66, session: 55, is_ending: true, cpu_ticks: 11, start_ticks: 987_654 };
    assert_eq!(parse_stat(&text), Some(expected));
}

/// `/proc/PID/environ`: the entry is everything before the first byte 1, the environment everything after it.
pub fn environ(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == 1).unwrap_or(0);
    let (entry, environment) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    if entry.is_empty() || entry.contains(&0) {
        return;
    }
    let has_entry = environment.split(|byte| *byte == 0).any(|part| part == entry);
    for size in [1, 7, 8_192] {
        let mut matcher = EntryMatcher::new(entry);
        let found = environment.chunks(size).any(|chunk| matcher.push(chunk)) || matcher.end();
        assert_eq!(found, has_entry, "in chunks of {size}");
    }
}

/// The text of an identity: only the form that we write is valid.
pub fn identity(input: &[u8]) {
    let Ok(identity) = text(input).parse::<ProcessIdentity>() else { return };
    assert_eq!(identity.to_string(), text(input));
    assert!(identity.pid > 0);
}
