//! Checks that only root and the user of this process can change what is under a path, as sudo and OpenSSH do.
//!
//! Each step opens the next name relative to the descriptor of its directory, without following a link, and checks what it
//! opened. If every directory of a path is closed to others, no other user can put another file there, so the path can be opened
//! by name afterwards. The descriptors are opened with O_PATH: they hold no lock, and closing one releases none of SQLite's
//! locks.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

pub use rustix::fs::FileType;
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, getxattr, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::machine::account::{is_private_group, uid_map};
use crate::machine::proc_files::is_proc_mounted;

/// The number of links that the kernel follows.
const MOST_LINKS: u32 = 40;
const STICKY: u32 = 0o1000;
/// The owner that the kernel shows for users outside a user namespace.
const OVERFLOW_UID: u32 = 65_534;

/// The files beside a SQLite store: a user who can write one of them controls what the store holds.
const BESIDE_A_STORE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Who may be able to change a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Only root and the user of this process.
    OursAlone,
    /// The user and the group that own it, but not other users.
    NotEverybody,
}

/// Why a path is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Another user owns it and can change it.
    #[error("{} belongs to the user with the id {owner}, who can change it (chown it)", .path.display())]
    OtherOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The members of its group can change it.
    #[error("{} can be written by its group (chmod g-w)", .0.display())]
    WritableByGroup(PathBuf),
    /// Every user of this machine can change it.
    #[error("{} can be written by everybody (chmod o-w)", .0.display())]
    WritableByAll(PathBuf),
    /// Other users can create files in it, as in /tmp.
    #[error("other users can create files in {} (use a directory that only its owner can write)", .0.display())]
    Shared(PathBuf),
    /// It is a link, a directory or a device where a file is expected.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The kernel does not permit the check.
    #[error("{} cannot be examined: {error}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The error of the kernel.
        #[source]
        error: io::Error,
    },
}

impl Untrusted {
    /// Returns the file or directory that other users can change.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::OtherOwner { path, .. } | Self::Unreadable { path, .. } => path,
            Self::WritableByGroup(path) | Self::WritableByAll(path) | Self::Shared(path) | Self::NotAFile(path) => path,
        }
    }
}

/// An existing or future file or directory that was reached through trusted directories only.
#[derive(Debug)]
pub struct TrustedPath {
    trust: Trust,
    /// The last directory that exists.
    directory: Checked,
    /// The file or directory at the path; `None` if it does not exist.
    found: Option<Checked>,
    /// Its name in the directory, or the name of the first missing directory.
    name: OsString,
}

/// An open file that was checked.
#[derive(Debug)]
struct Checked {
    file: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

impl TrustedPath {
    /// Walks from the root of the file system to `path`, also through links, and checks each step.
    ///
    /// # Errors
    /// The first step that another user can change, or that cannot be examined. A path that does not exist is not an error.
    pub fn find(path: &Path, trust: Trust) -> Result<Self, Untrusted> {
        let absolute = std::path::absolute(path).map_err(|error| unreadable(path, error))?;
        let mut walk = Walk { trust, directory: Checked::root(trust)?, pending: parts_of(&absolute), links: 0 };
        while let Some(name) = walk.pending.pop_front() {
            match walk.step(&name)? {
                PathStep::Into(directory) if !walk.pending.is_empty() => walk.directory = directory,
                PathStep::Into(found) => return Ok(walk.end(Some(found), name)),
                PathStep::Followed => {}
                PathStep::Missing => return Ok(walk.end(None, name)),
            }
        }
        // The path is the root, or ends with a link to `.` or to the root.
        let name = OsString::from(".");
        let here = Checked::open(&walk.directory.file, &name, walk.directory.path.clone())?;
        Ok(walk.end(here, name))
    }

    /// Returns true if the path exists.
    #[must_use]
    pub const fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// Returns the kind of file; `None` if the path does not exist.
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        self.found.as_ref().map(|found| FileType::from_raw_mode(found.stat.st_mode))
    }

    /// Opens the checked file for reading. Waits for the writer of a pipe.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    pub fn open(&self) -> io::Result<File> {
        let found = self.found.as_ref().ok_or(Errno::NOENT)?;
        // The name may lead to another file by now; the descriptor does not.
        File::open(own_link(&found.file)).map_err(|error| match is_proc_mounted() {
            true => error,
            false => io::Error::other("it cannot be opened, because /proc is not mounted"),
        })
    }

    /// Checks that no other user can create a file in the directory, as they can in a directory with the sticky bit.
    ///
    /// # Errors
    /// Other users can.
    pub fn require_closed_directory(&self) -> Result<(), Untrusted> {
        if self.directory.is_open_to_others() {
            return Err(Untrusted::Shared(self.directory.path.clone()));
        }
        Ok(())
    }

    /// Checks that the path is a directory in which no other user can create a file. Returns false if it does not exist.
    ///
    /// # Errors
    /// Other users can, or it is not a directory.
    pub fn is_closed_directory(&self) -> io::Result<bool> {
        match &self.found {
            None => Ok(false),
            Some(_) if self.file_type() != Some(FileType::Directory) => Err(Errno::NOTDIR.into()),
            Some(found) if found.is_open_to_others() => Err(io::Error::other(Untrusted::Shared(found.path.clone()))),
            Some(_) => Ok(true),
        }
    }

    /// Checks the file with this name plus `suffix`, if it exists.
    fn check_beside(&self, suffix: &str) -> Result<(), Untrusted> {
        let mut name = self.name.clone();
        name.push(suffix);
        let path = self.directory.path.join(&name);
        let Some(beside) = Checked::open(&self.directory.file, &name, path)? else { return Ok(()) };
        if !FileType::from_raw_mode(beside.stat.st_mode).is_file() {
            return Err(Untrusted::NotAFile(beside.path));
        }
        beside.check(self.trust)
    }
}

/// Checks a SQLite store: the file, each directory up to the root, and the files beside it that SQLite reads. These are the
/// write-ahead log, its index and the journal. No other user may be able to create one of them either. A store that does not
/// exist yet will be created by this user.
///
/// # Errors
/// Another user can change what the store holds, or this cannot be ruled out.
pub fn check_store(path: &Path) -> Result<(), Untrusted> {
    let store = TrustedPath::find(path, Trust::OursAlone)?;
    store.require_closed_directory()?;
    match store.file_type() {
        None => {}
        Some(FileType::RegularFile) => {}
        Some(_) => return Err(Untrusted::NotAFile(path.to_owned())),
    }
    BESIDE_A_STORE.into_iter().try_for_each(|suffix| store.check_beside(suffix))
}

enum PathStep {
    Into(Checked),
    Followed,
    Missing,
}

struct Walk {
    trust: Trust,
    directory: Checked,
    pending: VecDeque<OsString>,
    links: u32,
}

impl Walk {
    fn end(self, found: Option<Checked>, name: OsString) -> TrustedPath {
        TrustedPath { trust: self.trust, directory: self.directory, found, name }
    }

    fn step(&mut self, name: &OsStr) -> Result<PathStep, Untrusted> {
        let path = self.path_of(name);
        let Some(next) = Checked::open(&self.directory.file, name, path)? else { return Ok(PathStep::Missing) };
        if FileType::from_raw_mode(next.stat.st_mode).is_symlink() {
            return self.follow(name, next);
        }
        next.check(self.trust)?;
        self.check_owner_in_shared(&next)?;
        Ok(PathStep::Into(next))
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        match name.as_bytes() {
            b".." => self.directory.path.parent().unwrap_or(&self.directory.path).to_owned(),
            _ => self.directory.path.join(name),
        }
    }

    /// Checks the owner of an entry. In a world-writable directory, only the sticky bit protects it, and only from users other
    /// than its owner.
    fn check_owner_in_shared(&self, entry: &Checked) -> Result<(), Untrusted> {
        if self.directory.is_open_to_others() && !is_ours(entry.stat.st_uid) {
            return Err(Untrusted::OtherOwner { path: entry.path.clone(), owner: entry.stat.st_uid });
        }
        Ok(())
    }

    fn follow(&mut self, name: &OsStr, link: Checked) -> Result<PathStep, Untrusted> {
        self.check_owner_in_shared(&link)?;
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(unreadable(&link.path, Errno::LOOP.into()));
        }
        if is_proc(&self.directory.file) {
            return self.follow_descriptor(name, link.path);
        }
        let target = readlinkat(&link.file, "", Vec::new()).map_err(|error| unreadable(&link.path, error.into()))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.directory = Checked::root(self.trust)?;
        }
        for part in parts_of(&target).into_iter().rev() {
            self.pending.push_front(part);
        }
        Ok(PathStep::Followed)
    }

    /// Follows a link in /proc, which refers to what a process has open, regardless of the text of the link.
    fn follow_descriptor(&self, name: &OsStr, path: PathBuf) -> Result<PathStep, Untrusted> {
        let open = openat(&self.directory.file, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let next = Checked::of(open.map_err(|error| unreadable(&path, error.into()))?, path)?;
        // A pipe has no name that others could open: the caller of this program chose its writer.
        if !FileType::from_raw_mode(next.stat.st_mode).is_fifo() {
            next.check(self.trust)?;
        }
        Ok(PathStep::Into(next))
    }
}

impl Checked {
    fn root(trust: Trust) -> Result<Self, Untrusted> {
        let path = PathBuf::from("/");
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = Self::of(root.map_err(|error| unreadable(&path, error.into()))?, path)?;
        root.check(trust)?;
        Ok(root)
    }

    fn open(directory: &OwnedFd, name: &OsStr, path: PathBuf) -> Result<Option<Self>, Untrusted> {
        match openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Self::of(file, path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(unreadable(&path, error.into())),
        }
    }

    fn of(file: OwnedFd, path: PathBuf) -> Result<Self, Untrusted> {
        let stat = fstat(&file).map_err(|error| unreadable(&path, error.into()))?;
        Ok(Self { file, path, stat })
    }

    fn check(&self, trust: Trust) -> Result<(), Untrusted> {
        let mode = self.stat.st_mode;
        let kind = FileType::from_raw_mode(mode);
        // The mode of a device or a socket controls its use; it does not allow other users to change it.
        if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Fifo) {
            return Ok(());
        }
        let is_sticky = kind.is_dir() && mode & STICKY != 0;
        if mode & 0o002 != 0 && !is_sticky {
            return Err(Untrusted::WritableByAll(self.path.clone()));
        }
        if trust == Trust::NotEverybody {
            return Ok(());
        }
        let owner = self.stat.st_uid;
        if !(is_ours(owner) || kind.is_dir() && is_unmapped_root(owner)) {
            return Err(Untrusted::OtherOwner { path: self.path.clone(), owner });
        }
        if self.is_writable_by_group() && !is_sticky {
            return Err(Untrusted::WritableByGroup(self.path.clone()));
        }
        Ok(())
    }

    fn is_open_to_others(&self) -> bool {
        self.stat.st_mode & 0o002 != 0 || self.is_writable_by_group()
    }

    /// Root's group counts as root. A group without other members counts as the user. Neither applies if the bits belong to an
    /// access control list.
    fn is_writable_by_group(&self) -> bool {
        let is_ours = || self.stat.st_gid == 0 || is_private_group(self.stat.st_gid);
        self.stat.st_mode & 0o020 != 0 && (self.has_access_list() || !is_ours())
    }

    fn has_access_list(&self) -> bool {
        let mut none: [u8; 0] = [];
        getxattr(own_link(&self.file), "system.posix_acl_access", &mut none).is_ok_and(|bytes| bytes > 0)
    }
}

fn own_link(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn is_ours(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Returns true for the owner that directories of the real root show in a user namespace. Root there has only the rights of the
/// user who created the namespace.
fn is_unmapped_root(owner: u32) -> bool {
    let is_whole = || uid_map().split_whitespace().eq(["0", "0", "4294967295"]);
    owner == OVERFLOW_UID && !is_whole()
}

fn is_proc(directory: &OwnedFd) -> bool {
    fstatfs(directory).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
}

/// Returns the names of a path, without the root.
fn parts_of(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

fn unreadable(path: &Path, error: io::Error) -> Untrusted {
    Untrusted::Unreadable { path: path.to_owned(), error }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use tempfile::TempDir;

    use super::*;

    const NOBODY: u32 = 65_534;

    /// Returns a store at `a/b/store` below a test directory.
    fn store() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/store");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        for (name, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/store", 0o600)] {
            set_mode(&directory.path().join(name), mode);
        }
        (directory, path)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_store_that_only_its_owner_can_change_is_trusted() {
        let (directory, path) = store();
        check_store(&path).unwrap();
        check_store(&path.with_file_name("not-yet")).unwrap();
        check_store(&directory.path().join("not/yet/there")).unwrap();
        fs::write(path.with_file_name("store-wal"), "").unwrap();
        check_store(&path).unwrap();
    }

    #[test]
    fn every_directory_above_a_store_is_checked() {
        for (name, mode) in [("a", 0o777), ("a", 0o757), ("a/b", 0o777), ("a/b/store", 0o606)] {
            let (directory, path) = store();
            let open = directory.path().join(name);
            set_mode(&open, mode);
            let problem = check_store(&path).unwrap_err();
            assert!(matches!(&problem, Untrusted::WritableByAll(path) if *path == open), "{problem}");
        }
    }

    #[test]
    fn a_sticky_directory_protects_what_is_there_and_not_a_store_in_it() {
        let (directory, path) = store();
        set_mode(&directory.path().join("a"), 0o1777);
        check_store(&path).unwrap();
        set_mode(&directory.path().join("a/b"), 0o1777);
        assert!(matches!(check_store(&path), Err(Untrusted::Shared(shared)) if shared.ends_with("a/b")));
        assert!(TrustedPath::find(&path, Trust::OursAlone).unwrap().exists());
    }

    #[test]
    fn what_another_user_owns_is_not_trusted_wherever_it_is() {
        if !geteuid().is_root() {
            return;
        }
        for name in ["a", "a/b", "a/b/store", "a/b/store-wal", "a/b/store-shm", "a/b/store-journal"] {
            let (directory, path) = store();
            let foreign = directory.path().join(name);
            if !foreign.exists() {
                fs::write(&foreign, "").unwrap();
            }
            chown(&foreign, Some(NOBODY), None).unwrap();
            let problem = check_store(&path).unwrap_err();
            assert!(
                matches!(&problem, Untrusted::OtherOwner { path, owner: NOBODY } if *path == foreign),
                "{name}: {problem}"
            );
            TrustedPath::find(&path, Trust::NotEverybody).unwrap();
        }
    }

    #[test]
    fn a_group_that_may_write_is_trusted_only_if_it_is_roots() {
        if !geteuid().is_root() {
            return;
        }
        let (directory, path) = store();
        let open = directory.path().join("a/b");
        set_mode(&open, 0o775);
        check_store(&path).unwrap();
        chown(&open, None, Some(NOBODY)).unwrap();
        assert!(matches!(check_store(&path), Err(Untrusted::WritableByGroup(path)) if path == open));
    }

    #[test]
    fn both_ends_of_a_link_are_checked_and_a_planted_link_is_not_followed() {
        let (directory, path) = store();
        let other = directory.path().join("other");
        fs::create_dir(&other).unwrap();
        symlink("../a/b/store", other.join("link")).unwrap();
        check_store(&other.join("link")).unwrap();
        set_mode(&directory.path().join("a"), 0o777);
        assert!(check_store(&other.join("link")).is_err());
        set_mode(&directory.path().join("a"), 0o755);
        symlink(&path, other.join("absolute")).unwrap();
        check_store(&other.join("absolute")).unwrap();
        symlink("itself", other.join("itself")).unwrap();
        assert!(matches!(check_store(&other.join("itself")), Err(Untrusted::Unreadable { .. })));
        symlink("/etc/passwd", path.with_file_name("store-wal")).unwrap();
        assert!(matches!(check_store(&path), Err(Untrusted::NotAFile(_))));
        if geteuid().is_root() {
            set_mode(&other, 0o1777);
            std::os::unix::fs::lchown(other.join("link"), Some(NOBODY), None).unwrap();
            let problem = TrustedPath::find(&other.join("link"), Trust::NotEverybody).unwrap_err();
            assert!(matches!(problem, Untrusted::OtherOwner { .. }), "{problem}");
        }
    }

    #[test]
    fn what_was_checked_is_what_is_read() {
        let (_directory, path) = store();
        fs::write(&path, "first").unwrap();
        let found = TrustedPath::find(&path, Trust::OursAlone).unwrap();
        fs::rename(&path, path.with_file_name("moved")).unwrap();
        fs::write(&path, "second").unwrap();
        assert_eq!(io::read_to_string(found.open().unwrap()).unwrap(), "first");
        assert!(TrustedPath::find(&path.join("below"), Trust::OursAlone).is_err());
        let root = TrustedPath::find(Path::new("/"), Trust::OursAlone).unwrap();
        assert_eq!(root.file_type(), Some(FileType::Directory));
    }
}
