//! Lines that can be read only once, perhaps from a pipe, but are needed again. Each has a maximum length; beyond a few
//! megabytes, lines are kept in a file without a name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};

/// How much is kept in memory.
const MEMORY_BYTES: usize = 8 << 20;
/// Directories on a disk come first. The file never gets a name there.
const DIRECTORIES: [&str; 2] = ["/var/tmp", "/tmp"];

/// An invalid line: its number, from 1, and the problem, as a sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The number.
    pub number: usize,
    /// The problem.
    pub problem: String,
}

/// Reads lines of at most `longest` bytes; of a longer line, no more than that is read.
pub struct BoundedLines<'a> {
    input: Box<dyn BufRead + 'a>,
    longest: usize,
    number: usize,
    line: Vec<u8>,
}

impl<'a> BoundedLines<'a> {
    /// Returns the lines of this input.
    pub fn new(input: impl BufRead + 'a, longest: usize) -> Self {
        Self { input: Box::new(input), longest, number: 0, line: Vec::new() }
    }

    /// Returns the next line without its end, and its number; `None` at the end of the input.
    ///
    /// # Errors
    /// The line is too long, is not UTF-8, or cannot be read.
    pub fn next_line(&mut self) -> Result<Option<(usize, &str)>, BadLine> {
        self.number += 1;
        let number = self.number;
        let bad = |problem: String| BadLine { number, problem };
        self.line.clear();
        let room = u64::try_from(self.longest).unwrap_or(u64::MAX).saturating_add(1);
        let read = self.input.by_ref().take(room).read_until(b'\n', &mut self.line);
        if read.map_err(|error| bad(format!("cannot be read: {error}")))? == 0 {
            return Ok(None);
        }
        let has_end = self.line.pop_if(|byte| *byte == b'\n').is_some();
        if !has_end && self.line.len() > self.longest {
            return Err(bad(format!("longer than {} bytes, the most that a line can have", self.longest)));
        }
        if has_end {
            self.line.pop_if(|byte| *byte == b'\r');
        }
        std::str::from_utf8(&self.line).map(|line| Some((number, line))).map_err(|_| bad("not UTF-8".to_owned()))
    }
}

/// Lines that can be read again.
#[derive(Debug, Default)]
pub struct SpooledLines {
    memory: Vec<u8>,
    file: Option<BufWriter<File>>,
}

impl SpooledLines {
    /// Adds a line.
    ///
    /// # Errors
    /// The disk is full.
    pub fn push(&mut self, line: &str) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(line.as_bytes()).and_then(|()| file.write_all(b"\n"));
        }
        self.memory.extend_from_slice(line.as_bytes());
        self.memory.push(b'\n');
        if self.memory.len() > MEMORY_BYTES {
            let mut file = BufWriter::new(nameless_file()?);
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// Returns all lines from the beginning.
    ///
    /// # Errors
    /// The disk is full or cannot be read.
    pub fn lines(&mut self) -> io::Result<BoundedLines<'_>> {
        let Some(file) = &mut self.file else { return Ok(BoundedLines::new(self.memory.as_slice(), usize::MAX)) };
        file.flush()?;
        let mut file = file.get_ref();
        file.seek(SeekFrom::Start(0))?;
        Ok(BoundedLines::new(BufReader::with_capacity(1 << 16, file), usize::MAX))
    }
}

/// Creates a file that only this process has, and that disappears with it. Kept in memory if no file system supports such files.
fn nameless_file() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = DIRECTORIES.iter().find_map(|directory| open(*directory, flags, Mode::RUSR | Mode::WUSR).ok());
    let file = made.map_or_else(|| memfd_create("taskqueue-lines", MemfdFlags::CLOEXEC), Ok)?;
    Ok(File::from(file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &[u8], longest: usize) -> Result<Vec<(usize, String)>, BadLine> {
        let (mut lines, mut found) = (BoundedLines::new(text, longest), Vec::new());
        while let Some((number, line)) = lines.next_line()? {
            found.push((number, line.to_owned()));
        }
        Ok(found)
    }

    #[test]
    fn lines_are_numbered_and_end_as_in_any_text() {
        let found = read(b"a\r\n\n\xc3\xbc\nlast\r", 6).unwrap();
        let expected = [(1, "a"), (2, ""), (3, "\u{fc}"), (4, "last\r")];
        assert_eq!(found, expected.map(|(number, line)| (number, line.to_owned())));
        assert_eq!(read(b"a\n", 6).unwrap().len(), 1);
        assert_eq!(read(b"", 6).unwrap(), []);
    }

    #[test]
    fn a_line_that_is_too_long_or_not_utf_8_is_named() {
        assert_eq!(read(b"abc\nabcd", 4).unwrap().len(), 2);
        let bad = read(b"abc\nabcde", 4).unwrap_err();
        assert_eq!((bad.number, bad.problem.as_str()), (2, "longer than 4 bytes, the most that a line can have"));
        assert_eq!(read(b"\xff\n", 4).unwrap_err(), BadLine { number: 1, problem: "not UTF-8".to_owned() });
        // An endless line.
        let mut endless = BoundedLines::new(BufReader::new(io::repeat(b'x')), 1_000);
        assert_eq!(endless.next_line().unwrap_err().number, 1);
    }

    #[test]
    fn spooled_lines_are_read_again_from_memory_and_from_a_file() {
        for count in [3, 3 * MEMORY_BYTES / 1_000] {
            let mut spooled = SpooledLines::default();
            let line = "x".repeat(999);
            (0..count).for_each(|_| spooled.push(&line).unwrap());
            assert_eq!(spooled.file.is_some(), count > 3);
            for _ in 0..2 {
                let (mut lines, mut found) = (spooled.lines().unwrap(), 0);
                while let Some((number, again)) = lines.next_line().unwrap() {
                    found += usize::from(again == line);
                    assert_eq!(number, found);
                }
                assert_eq!(found, count);
            }
        }
    }
}
