//! Whole lines, written at once.

use std::io::{self, Write};

/// Writes a line and its line break in one call, so that no line of another process comes in between.
pub(super) fn write_line(stream: &mut impl Write, line: &str) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 1);
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    stream.write_all(&bytes)
}
