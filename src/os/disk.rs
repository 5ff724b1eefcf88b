//! How much room a file system has, and who may read or write a file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statvfs;

/// The room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What is free for us.
    pub free_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

/// The room where this file or directory lies.
///
/// # Errors
/// It is not there, or may not be looked at.
pub fn room_at(path: &Path) -> io::Result<Room> {
    let found = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Room { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

/// The permission bits of a file, and its size in bytes; `None` where there is no such file.
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
        let path = directory.path().join("file");
        assert_eq!(mode_and_bytes(&path), None);
        fs::write(&path, "12345").unwrap();
        assert_eq!(mode_and_bytes(&path).map(|(_, bytes)| bytes), Some(5));
    }
}
