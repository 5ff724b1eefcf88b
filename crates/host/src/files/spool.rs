//! Records that survive the process that writes them: lines in small files on the local disk, synced before the call returns.
//!
//! A process takes one file for its own use and releases it empty. A process that died leaves its records behind; later processes
//! on this host find them in a file without a holder. Only files of this user in a directory that no other user can change are
//! read. This module does not interpret records.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use super::file_checks::{create_trusted_dir, exists_and_is_trusted};
use super::lock::FileLock;
use crate::machine::account::is_own_regular_file;

/// The maximum number of files: more than the processes of one host that write at the same time.
const MOST_FILES: u32 = 10_000;
/// The smallest reservation: a page.
const LEAST_BYTES: u64 = 4 << 10;

/// The files with one name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    directory: PathBuf,
    name: String,
}

impl Spool {
    /// Returns the spool of this name. Its directory is created with mode 0700 when needed. Two names that differ only in
    /// punctuation may share files.
    #[must_use]
    pub fn new(directory: &Path, name: &str) -> Self {
        const LONGEST: usize = 150;
        let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        Self { directory: directory.to_owned(), name: plain.take(LONGEST).collect() }
    }

    /// Returns the path of a file beside the records, for another purpose of this spool.
    #[must_use]
    pub fn beside(&self, purpose: &str) -> PathBuf {
        self.directory.join(format!("{purpose}-{}", self.name))
    }

    /// Returns the directory of its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns an empty file that no other process holds.
    ///
    /// # Errors
    /// The directory or a file in it cannot be used.
    pub fn take(&self) -> io::Result<SpoolFile> {
        create_trusted_dir(&self.directory).map_err(|error| about(&self.directory, error))?;
        for number in 0..MOST_FILES {
            let taken = self.try_take(number).map_err(|error| about(&self.path(number), error))?;
            if let Some(file) = taken.filter(|file| file.records.is_empty()) {
                return Ok(file);
            }
        }
        Err(io::Error::other(format!("all {MOST_FILES} files in {} are in use", self.directory.display())))
    }

    /// Returns every file with records that no process holds: its writer is dead. Each file is held only while the caller keeps
    /// it, because there may be more files than descriptors. A file that cannot be read is skipped and found again by the next
    /// call.
    pub fn left_over(&self) -> impl Iterator<Item = SpoolFile> {
        let used = self.used_files().unwrap_or_default().into_iter();
        used.filter_map(|number| self.try_take(number).ok().flatten()).filter(|file| !file.records.is_empty())
    }

    /// Returns the records in files that other processes hold: the writer is alive, or another process is about to deliver them.
    ///
    /// # Errors
    /// Another user can change the directory, or a file of it cannot be read.
    pub fn held_records(&self) -> io::Result<Vec<String>> {
        let mut records = Vec::new();
        for number in self.used_files()? {
            if self.try_take(number)?.is_none() {
                let text = fs::read(self.path(number))?;
                records.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
            }
        }
        Ok(records)
    }

    /// Returns the numbers of the files of this user that are not empty.
    ///
    /// # Errors
    /// Another user can change the directory, or a file of it cannot be examined.
    fn used_files(&self) -> io::Result<Vec<u32>> {
        let mut used = Vec::new();
        if !exists_and_is_trusted(&self.directory)? {
            return Ok(used);
        }
        for number in 0..MOST_FILES {
            match fs::symlink_metadata(self.path(number)) {
                Ok(found) if is_own_regular_file(&found) && found.len() > 0 => used.push(number),
                Ok(_) => {}
                // The lowest free number is used first and files are never removed, so the first gap is the end.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    /// Returns the records that no process holds in the files of other spools of the directory.
    #[must_use]
    pub fn left_over_by_others(&self) -> Vec<String> {
        if !exists_and_is_trusted(&self.directory).unwrap_or_default() {
            return Vec::new();
        }
        let own = format!("{}-", self.name);
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let others = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with(&own));
        let others = others.filter(|entry| entry.metadata().is_ok_and(|found| is_own_regular_file(&found)));
        let texts = others.filter_map(|entry| {
            let _lock = FileLock::acquire(&entry.path(), Duration::ZERO).ok()?;
            fs::read(entry.path()).ok()
        });
        texts.flat_map(|text| records_of(whole_lines(&text))).collect()
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{}-{number}", self.name))
    }

    /// Returns `None` while another process holds the file, and for a file of another user.
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
        if !is_own_regular_file(&lock.file().metadata()?) {
            return Ok(None);
        }
        let mut text = Vec::new();
        lock.file().seek(SeekFrom::Start(0))?;
        lock.file().read_to_end(&mut text)?;
        let whole = whole_lines(&text);
        if whole.len() < text.len() {
            lock.file().set_len(u64::try_from(whole.len()).unwrap_or(0))?;
        }
        let records = records_of(whole);
        Ok(Some(SpoolFile { path, lock, records, has_room: false }))
    }
}

/// Adds the path, which error messages of the system lack.
fn about(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        None => error,
    }
}

/// Returns the complete lines. An incomplete last line was being written when its writer died, before the writer reported it.
pub fn whole_lines(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[..length]
}

/// Returns the records in these lines.
#[must_use]
pub fn records_of(whole: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(whole).lines().map(str::to_owned).collect()
}

/// A file that this process holds.
#[derive(Debug)]
pub struct SpoolFile {
    path: PathBuf,
    lock: FileLock,
    records: Vec<String>,
    /// Whether space was reserved for the next record.
    has_room: bool,
}

impl SpoolFile {
    /// Returns its records, in the order in which they were written.
    #[must_use]
    pub fn records(&self) -> &[String] {
        &self.records
    }

    /// Reserves space for a record of `bytes` bytes, or less if the disk has less, so that the record can be written when the
    /// disk is full. Unused space stays reserved for the next user of the file. Does nothing if the file system cannot reserve
    /// space.
    ///
    /// # Errors
    /// The disk is full.
    pub fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        if self.has_room {
            return Ok(());
        }
        // Beyond the end of the file: other processes still see it as empty.
        let end = self.lock.file().metadata()?.len();
        let mut wanted = bytes.max(LEAST_BYTES);
        loop {
            match retry_on_intr(|| fallocate(self.lock.file(), FallocateFlags::KEEP_SIZE, end, wanted)) {
                Err(Errno::NOSPC | Errno::DQUOT) if wanted > LEAST_BYTES => wanted = (wanted / 4).max(LEAST_BYTES),
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(about(&self.path, error.into())),
                Ok(()) | Err(_) => break,
            }
        }
        self.has_room = true;
        Ok(())
    }

    /// Appends a record: a line of text without line breaks. It is synced to disk when this returns.
    ///
    /// # Errors
    /// It could not be written; earlier records are unchanged.
    pub fn append(&mut self, record: &str) -> io::Result<()> {
        self.append_or(record, || None)
    }

    /// Appends a record without syncing: it survives this process, and a crash of the machine once the kernel has written it.
    ///
    /// # Errors
    /// It could not be written; earlier records are unchanged.
    pub fn put(&mut self, record: &str) -> io::Result<()> {
        let before = self.lock.file().seek(SeekFrom::End(0))?;
        self.has_room = false;
        if let Err(error) = self.lock.file().write_all(format!("{record}\n").as_bytes()) {
            // A partial record would corrupt the next one.
            self.lock.file().set_len(before)?;
            return Err(about(&self.path, error));
        }
        self.records.push(record.to_owned());
        Ok(())
    }

    /// Same as [`SpoolFile::append`]; if the record cannot be written, tries a shorter one instead.
    ///
    /// # Errors
    /// Neither could be written; earlier records are unchanged.
    pub fn append_or(&mut self, record: &str, shorter: impl FnOnce() -> Option<String>) -> io::Result<()> {
        let before = self.lock.file().seek(SeekFrom::End(0))?;
        self.has_room = false;
        fault_point!("spool.before_write");
        let written = self.lock.file().write_all(format!("{record}\n").as_bytes()).and_then(|()| {
            fault_point!("spool.written");
            self.lock.file().sync_data()
        });
        fault_point!("spool.synced");
        let Err(error) = written else {
            self.records.push(record.to_owned());
            return Ok(());
        };
        if let Some(shorter) = shorter()
            && self.write_over(before, &shorter).is_ok()
        {
            self.records.push(shorter);
            return Ok(());
        }
        // A partial record would corrupt the next one.
        self.lock.file().set_len(before)?;
        Err(about(&self.path, error))
    }

    /// Overwrites a partial record, whose space the file has already. Truncates only afterwards: truncating frees the reserved
    /// space.
    fn write_over(&self, start: u64, record: &str) -> io::Result<()> {
        let line = format!("{record}\n");
        let mut file = self.lock.file();
        file.seek(SeekFrom::Start(start))?;
        file.write_all(line.as_bytes())?;
        let end = file.stream_position()?;
        file.set_len(end)?;
        file.sync_data()
    }

    /// Removes all records, because they were delivered. Not synced: delivering a record twice does no harm.
    ///
    /// # Errors
    /// The file could not be changed.
    pub fn clear(&mut self) -> io::Result<()> {
        self.records.clear();
        self.has_room = false;
        self.lock.file().set_len(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
    fn room_that_is_reserved_is_no_record_and_holds_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), "x://y");
        let mut file = spool.take().unwrap();
        for record in ["first", "second"] {
            file.reserve(64 << 10).unwrap();
            assert_eq!(fs::metadata(directory.path().join("x___y-0")).unwrap().len(), 0);
            file.append(record).unwrap();
            assert_eq!(spool.held_records().unwrap(), [record]);
            file.clear().unwrap();
        }
        file.reserve(64 << 10).unwrap();
        drop(file);
        assert_eq!(spool.left_over().count(), 0);
        assert!(spool.take().unwrap().records().is_empty());
    }

    #[test]
    fn a_shorter_record_takes_the_place_of_half_a_longer_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = Spool::new(directory.path(), "x://y").take().unwrap();
        file.append("before").unwrap();
        let start = file.lock.file().seek(SeekFrom::End(0)).unwrap();
        file.lock.file().write_all(b"half of a long rec").unwrap();
        file.write_over(start, "short").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("x___y-0")).unwrap(), "before\nshort\n");
    }

    #[test]
    fn records_in_a_directory_that_others_can_change_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, other) = (Spool::new(directory.path(), "x://y"), Spool::new(directory.path(), "x://z"));
        spool.take().unwrap().append("left").unwrap();
        let mut held = spool.take().unwrap();
        held.append("held").unwrap();
        let found = || (spool.left_over().count(), spool.held_records().is_ok(), other.left_over_by_others().len());
        assert_eq!(found(), (1, true, 1));
        for (mode, expected) in [(0o777, (0, false, 0)), (0o1777, (0, false, 0)), (0o755, (1, true, 1))] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(found(), expected, "{mode:o}");
        }
        let missing = Spool::new(&directory.path().join("missing"), "x://y");
        assert_eq!((missing.left_over().count(), missing.held_records().unwrap()), (0, Vec::new()));
    }

    #[test]
    fn a_record_of_another_user_is_not_read_and_its_file_not_taken() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (spool, other) = (Spool::new(directory.path(), "x://y"), Spool::new(directory.path(), "x://z"));
        spool.take().unwrap().append("planted").unwrap();
        std::os::unix::fs::chown(directory.path().join("x___y-0"), Some(65_534), None).unwrap();
        let mut own = spool.take().unwrap();
        own.append("own").unwrap();
        assert_eq!((spool.held_records().unwrap(), other.left_over_by_others()), (vec!["own".to_owned()], Vec::new()));
        drop(own);
        let left: Vec<Vec<String>> = spool.left_over().map(|file| file.records().to_vec()).collect();
        assert_eq!(left, [["own"]]);
        assert_eq!(other.left_over_by_others(), ["own"]);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        fs::write(&path, "").unwrap();
        let error = Spool::new(&path, "x://y").take().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
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
