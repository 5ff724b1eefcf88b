//! Writes to the systemd journal in its native protocol: a message with fields by which it can be found.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The socket of the journal.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Returns the journal if this stream leads to it: `named` gives its device and inode, as JOURNAL_STREAM does.
    #[must_use]
    pub fn behind(stream: BorrowedFd<'_>, named: &str, path: &Path) -> Option<Self> {
        let metadata = fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).ok()?;
        let is_it = named == format!("{}:{}", metadata.dev(), metadata.ino());
        let socket = UnixDatagram::unbound().ok().filter(|_| is_it)?;
        Some(Self { socket, path: path.to_owned() })
    }

    /// Sends a message with these fields. Values must not contain line breaks.
    ///
    /// # Errors
    /// No process listens there, or the message is too long.
    pub fn send(&self, fields: &[(&str, &str)]) -> io::Result<()> {
        let text: String = fields.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        self.socket.send_to(text.as_bytes(), &self.path).map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn only_the_stream_that_is_named_leads_to_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let (stream, other) = (fs::File::open("/dev/null").unwrap(), fs::File::open(directory.path()).unwrap());
        let metadata = stream.metadata().unwrap();
        let named = format!("{}:{}", metadata.dev(), metadata.ino());
        let path = directory.path().join("socket");
        let listening = UnixDatagram::bind(&path).unwrap();
        for bad in ["", "1", "1:2:3", "x:y"] {
            assert!(Journal::behind(stream.as_fd(), bad, &path).is_none(), "{bad}");
        }
        assert!(Journal::behind(other.as_fd(), &named, &path).is_none());
        let journal = Journal::behind(stream.as_fd(), &named, &path).unwrap();
        journal.send(&[("MESSAGE", "a=b"), ("PRIORITY", "6")]).unwrap();
        let mut heard = [0; 100];
        let count = listening.recv(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"MESSAGE=a=b\nPRIORITY=6\n");
        // The file is removed because closing is not enough: a process that another test starts briefly has a copy of the
        // descriptor.
        fs::remove_file(&path).unwrap();
        assert!(journal.send(&[("MESSAGE", "x")]).is_err());
    }
}
