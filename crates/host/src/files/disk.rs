//! Free space of file systems, and permissions of files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes available to this process.
    pub free_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
    /// Inodes available to this process: each new file needs one.
    pub free_inodes: u64,
    /// Total inodes; 0 if the file system creates them on demand.
    pub total_inodes: u64,
    /// Whether it is read-only.
    pub is_read_only: bool,
}

/// Returns the space of the file system of this file or directory.
///
/// # Errors
/// The path does not exist or cannot be accessed.
pub fn room_at(path: &Path) -> io::Result<DiskRoom> {
    let found = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskRoom {
        free_bytes: bytes(found.f_bavail),
        total_bytes: bytes(found.f_blocks),
        free_inodes: found.f_favail,
        total_inodes: found.f_files,
        is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// Returns the device of a file; `None` if the file does not exist.
#[must_use]
pub fn device_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

/// Returns the permission bits of a file and its size in bytes; `None` if the file does not exist.
#[must_use]
pub fn mode_and_bytes(path: &Path) -> Option<(u32, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.mode() & 0o777, metadata.len()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_room_and_the_mode_of_what_is_there_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let room = room_at(directory.path()).unwrap();
        assert!(room.total_bytes > 0 && room.free_bytes <= room.total_bytes, "{room:?}");
        assert!(!room.is_read_only && room.free_inodes <= room.total_inodes, "{room:?}");
        let path = directory.path().join("file");
        assert_eq!(mode_and_bytes(&path), None);
        fs::write(&path, "12345").unwrap();
        assert_eq!(mode_and_bytes(&path).map(|(_, bytes)| bytes), Some(5));
    }
}
