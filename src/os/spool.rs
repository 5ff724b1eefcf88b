//! Records that must outlive the process that writes them: lines in small files on the local disk, each on the disk
//! before the call returns.
//!
//! A process takes one file for itself and gives it back empty. One that died leaves its records behind, and whoever comes
//! next on this host finds them in a file that nobody holds. Knows nothing of what a record means.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file_checks::create_private_dir;
use super::lock::FileLock;

/// More files than processes of one host ever write at once.
const MOST_FILES: u32 = 10_000;

/// The files of one purpose in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    directory: PathBuf,
    name: String,
}

impl Spool {
    /// The spool of this name, in a directory that is made with mode 0700 when it is needed. Two names that differ in
    /// nothing but signs may share their files.
    #[must_use]
    pub fn new(directory: &Path, name: &str) -> Self {
        const LONGEST: usize = 150;
        let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        Self { directory: directory.to_owned(), name: plain.take(LONGEST).collect() }
    }

    /// An empty file that nobody holds.
    ///
    /// # Errors
    /// The directory or a file in it cannot be used.
    pub fn take(&self) -> io::Result<SpoolFile> {
        create_private_dir(&self.directory)?;
        for number in 0..MOST_FILES {
            if let Some(file) = self.try_take(number)?.filter(|file| file.records.is_empty()) {
                return Ok(file);
            }
        }
        Err(io::Error::other(format!("all {MOST_FILES} files in {} are in use", self.directory.display())))
    }

    /// Every file with records that nobody holds: its writer is dead. Each is held only while the caller keeps it: there may
    /// be more of them than descriptors. One that cannot be read is passed over, and found again by the next look.
    pub fn left_over(&self) -> impl Iterator<Item = SpoolFile> {
        // Numbers are given away from below and files are never removed, so that the first gap is the end.
        let sizes = (0..MOST_FILES).map_while(|number| {
            let metadata = fs::symlink_metadata(self.path(number)).ok()?;
            Some((number, metadata.len()))
        });
        let taken =
            sizes.filter(|(_, bytes)| *bytes > 0).filter_map(|(number, _)| self.try_take(number).ok().flatten());
        taken.filter(|file| !file.records.is_empty())
    }

    /// The records in files that other processes hold: their writer is alive, or somebody is about to bring them where
    /// they belong.
    ///
    /// # Errors
    /// A file of the directory cannot be read.
    pub fn held_records(&self) -> io::Result<Vec<String>> {
        let mut records = Vec::new();
        for number in 0..MOST_FILES {
            match fs::symlink_metadata(self.path(number)) {
                Ok(metadata) if metadata.len() == 0 => {}
                Ok(_) if self.try_take(number)?.is_some() => {}
                Ok(_) => {
                    let text = fs::read(self.path(number))?;
                    records.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{}-{number}", self.name))
    }

    /// `None` while another process holds it.
    fn try_take(&self, number: u32) -> io::Result<Option<SpoolFile>> {
        let path = self.path(number);
        let is_new = !path.exists();
        let lock = match FileLock::acquire(&path, Duration::ZERO) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
            Err(error) => return Err(error),
        };
        if is_new {
            File::open(&self.directory)?.sync_all()?;
        }
        let mut text = Vec::new();
        lock.file().seek(SeekFrom::Start(0))?;
        lock.file().read_to_end(&mut text)?;
        let whole = whole_lines(&text);
        if whole.len() < text.len() {
            lock.file().set_len(u64::try_from(whole.len()).unwrap_or(0))?;
        }
        let records = records_of(whole);
        Ok(Some(SpoolFile { lock, records }))
    }
}

/// The records that were written to their end. A line without its end was being written when its writer died: it had told
/// nobody of it yet.
pub(crate) fn whole_lines(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[..length]
}

pub(crate) fn records_of(whole: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(whole).lines().map(str::to_owned).collect()
}

/// A file that this process holds.
#[derive(Debug)]
pub struct SpoolFile {
    lock: FileLock,
    records: Vec<String>,
}

impl SpoolFile {
    /// What it holds, in the order in which it was written.
    #[must_use]
    pub fn records(&self) -> &[String] {
        &self.records
    }

    /// Adds a record, a line of text without line ends. It is on the disk when this returns.
    ///
    /// # Errors
    /// It could not be written; what was there before still is.
    pub fn append(&mut self, record: &str) -> io::Result<()> {
        let before = self.lock.file().seek(SeekFrom::End(0))?;
        fault_point!("spool.before_write");
        let written = self.lock.file().write_all(format!("{record}\n").as_bytes()).and_then(|()| {
            fault_point!("spool.written");
            self.lock.file().sync_data()
        });
        fault_point!("spool.synced");
        if let Err(error) = written {
            // Half a record would spoil the next one.
            self.lock.file().set_len(before)?;
            return Err(error);
        }
        self.records.push(record.to_owned());
        Ok(())
    }

    /// Removes all records: they are where they belong. Not synced, because to send one twice does no harm.
    ///
    /// # Errors
    /// The file could not be changed.
    pub fn clear(&mut self) -> io::Result<()> {
        self.records.clear();
        self.lock.file().set_len(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_left_is_found_when_it_is_gone_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), "x://y");
        let mut first = spool.take().unwrap();
        let mut second = spool.take().unwrap();
        first.append("a").unwrap();
        first.append("b").unwrap();
        second.append("c").unwrap();
        assert_eq!(spool.left_over().count(), 0);
        assert_eq!(spool.held_records().unwrap(), ["a", "b", "c"]);
        drop(first);
        assert_eq!(spool.held_records().unwrap(), ["c"]);
        let left: Vec<Vec<String>> = spool.left_over().map(|file| file.records().to_vec()).collect();
        assert_eq!(left, [["a", "b"]]);
        second.clear().unwrap();
        drop(second);
        assert!(spool.take().unwrap().records().is_empty(), "what is left over is not mixed with what is new");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_record_that_was_cut_is_left_out_and_spoils_none_that_follows() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), "x://y");
        spool.take().unwrap().append("whole").unwrap();
        let path = directory.path().join("x___y-0");
        fs::write(&path, "whole\nha").unwrap();
        let mut left: Vec<_> = spool.left_over().collect();
        assert_eq!(left[0].records(), ["whole"]);
        left[0].append("next").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "whole\nnext\n");
    }

    #[test]
    fn a_cleared_file_is_not_left_over_and_is_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), "x://y");
        for _ in 0..3 {
            let mut file = spool.take().unwrap();
            file.append("sent").unwrap();
            file.clear().unwrap();
        }
        assert_eq!(spool.left_over().count(), 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
