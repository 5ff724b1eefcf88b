//! Checks of files before they are trusted: programs of classes, the directory of a store.
//!
//! The result is valid only at the moment of the check: it catches mistakes, not an attacker who already owns the files.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statfs};

use super::trusted_path::{Trust, TrustedPath, Untrusted};
use crate::recent::Recent;

/// Why a program must not or cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramProblem {
    /// It depends on the working directory or on PATH.
    #[error("{} is not an absolute path", .0.display())]
    NotAbsolute(PathBuf),
    /// It does not exist.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// This process may not execute it.
    #[error("{} is not executable by this user (chmod +x)", .0.display())]
    NotExecutable(PathBuf),
    /// Any user of this machine could replace it.
    #[error("{} can be written by everybody (chmod o-w)", .0.display())]
    WritableByAll(PathBuf),
    /// It would run as root, and another user could change it.
    #[error("{} runs as root, but another user can change it (chown root, chmod g-w)", .0.display())]
    NotRoots(PathBuf),
    /// Its directory allows another user to replace it, it is not a regular file, or it could not be examined.
    #[error(transparent)]
    Untrusted(Untrusted),
}

impl ProgramProblem {
    /// Returns true if the program must not be started, because another user can change it or because that is unknown. Every
    /// other problem makes its start fail.
    #[must_use]
    pub fn forbids_start(&self, runs_as_root: bool) -> bool {
        match self {
            Self::WritableByAll(_) => true,
            Self::NotAbsolute(_) | Self::Missing(_) | Self::NotExecutable(_) => false,
            Self::Untrusted(Untrusted::NotAFile(_)) => false,
            // Missing too: PATH may list what is no directory.
            Self::Untrusted(Untrusted::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotADirectory => {
                false
            }
            Self::NotRoots(_) | Self::Untrusted(_) => runs_as_root,
        }
    }
}

/// Checks the program of a class. It must be absolute, a regular file (links are followed) and executable by this process.
/// Neither it nor a directory above it may be writable by everybody; a sticky directory such as /tmp is allowed. The owner does
/// not matter, because programs are often deployed by another user. A program that runs as root must not be changeable by another
/// user.
///
/// # Errors
/// The first problem found.
pub fn check_program(path: &Path, runs_as_root: bool) -> Result<(), ProgramProblem> {
    if !path.is_absolute() {
        return Err(ProgramProblem::NotAbsolute(path.to_owned()));
    }
    let unreadable = |error| ProgramProblem::Untrusted(Untrusted::Unreadable { path: path.to_owned(), error });
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ProgramProblem::Missing(path.to_owned())),
        Err(error) => return Err(unreadable(error)),
    };
    let file = fs::metadata(&real).map_err(unreadable)?;
    if !file.is_file() {
        return Err(ProgramProblem::Untrusted(Untrusted::NotAFile(path.to_owned())));
    }
    if accessat(CWD, &real, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return Err(ProgramProblem::NotExecutable(path.to_owned()));
    }
    let trust = if runs_as_root { Trust::OursAlone } else { Trust::NotEverybody };
    match TrustedPath::find(path, trust) {
        Ok(_) => Ok(()),
        Err(Untrusted::WritableByAll(open)) => Err(ProgramProblem::WritableByAll(open)),
        Err(Untrusted::OtherOwner { path, .. }) if runs_as_root => Err(ProgramProblem::NotRoots(path)),
        Err(Untrusted::WritableByGroup(path)) => Err(ProgramProblem::NotRoots(path)),
        Err(problem) => Err(ProgramProblem::Untrusted(problem)),
    }
}

/// Same as [`check_program`], with a result that may be a second old. The check catches mistakes made earlier; a change right
/// after a fresh check would be missed as well.
///
/// # Errors
/// As for [`check_program`].
pub fn recently_checked(path: &Path, runs_as_root: bool) -> Result<(), ProgramProblem> {
    static PROGRAMS: Recent<(PathBuf, bool), ()> = Recent::new();
    PROGRAMS.answer((path.to_owned(), runs_as_root), |(path, runs_as_root)| check_program(path, *runs_as_root))
}

fn is_writable_by_all(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o002 != 0
}

/// The magic numbers (statfs(2)) of file systems whose locks are not reliable enough for SQLite between hosts or processes. They
/// include FUSE: most FUSE mounts are remote.
const NETWORK_FILE_SYSTEMS: [u32; 16] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xfe53_4d42, // SMB2
    0xff53_4d42, // CIFS
    0x0102_1997, // 9P
    0x6573_5546, // FUSE, virtiofs
    0x7375_7245, // Coda
    0x5346_414f, // AFS
    0x6b41_4653, // AFS
    0x00c3_6400, // Ceph
    0x564c,      // NCP
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x7461_636f, // OCFS2
    0x1983_0326, // BeeGFS
    0x786f_4256, // VirtualBox shared folder
];

/// Returns true if a file at this path is or would be on a network file system; the path need not exist.
///
/// # Errors
/// No ancestor of the path can be examined.
pub fn is_network_filesystem(path: &Path) -> io::Result<bool> {
    let absolute = std::path::absolute(path)?;
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for ancestor in absolute.ancestors() {
        match statfs(ancestor) {
            // The magic is 32 bits wide, sign-extended on some architectures.
            Ok(found) => return Ok(NETWORK_FILE_SYSTEMS.iter().any(|magic| is_magic(found.f_type, *magic))),
            Err(error) => last_error = error.into(),
        }
        if last_error.kind() != io::ErrorKind::NotFound {
            break;
        }
    }
    Err(last_error)
}

fn is_magic(kind: impl TryInto<i64>, magic: u32) -> bool {
    kind.try_into().is_ok_and(|kind: i64| kind & 0xffff_ffff == i64::from(magic))
}

/// Creates a directory and its missing ancestors, all with mode 0700. An existing directory is left unchanged.
///
/// # Errors
/// The directory cannot be created, the path is not a directory, or it is world-writable.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::metadata(path)?;
    if is_writable_by_all(&metadata) {
        let message = format!("{} can be written by everybody (chmod o-w)", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// Returns true if this process may write the file, or create files in the directory.
#[must_use]
pub fn may_write(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Same as [`create_private_dir`], for files whose content is acted on: the directory must pass [`exists_and_is_trusted`].
///
/// # Errors
/// As for [`create_private_dir`] and [`exists_and_is_trusted`].
pub fn create_trusted_dir(path: &Path) -> io::Result<()> {
    create_private_dir(path)?;
    exists_and_is_trusted(path).map(drop)
}

/// Checks that no other user can change a directory or its ancestors, or create a file in it. Returns false if it does not exist.
///
/// # Errors
/// Another user can, the path is not a directory, or it cannot be examined.
pub fn exists_and_is_trusted(path: &Path) -> io::Result<bool> {
    TrustedPath::find(path, Trust::OursAlone).map_err(io::Error::other)?.is_closed_directory()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn good_programs_pass() {
        check_program(Path::new("/bin/sh"), true).unwrap();
        let directory = tempfile::tempdir().unwrap();
        check_program(&file(directory.path(), "good", 0o755), false).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        check_program(&directory.path().join("good"), false).unwrap();
    }

    #[test]
    fn every_problem_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        assert!(matches!(check_program(Path::new("sh"), false), Err(ProgramProblem::NotAbsolute(_))));
        assert!(matches!(check_program(&here.join("none"), false), Err(ProgramProblem::Missing(_))));
        assert!(matches!(check_program(here, false), Err(ProgramProblem::Untrusted(Untrusted::NotAFile(_)))));
        let plain = file(here, "plain", 0o644);
        assert!(matches!(check_program(&plain, false), Err(ProgramProblem::NotExecutable(_))));
        let below = check_program(&plain.join("below"), false);
        assert!(matches!(below, Err(ProgramProblem::Untrusted(Untrusted::Unreadable { .. }))));
        let open = file(here, "open", 0o757);
        assert!(
            matches!(check_program(&open, false), Err(ProgramProblem::WritableByAll(path)) if path.ends_with("open"))
        );
        let good = file(here, "good", 0o755);
        fs::set_permissions(here, fs::Permissions::from_mode(0o777)).unwrap();
        let problem = check_program(&good, false).unwrap_err();
        assert_eq!(problem.to_string(), format!("{} can be written by everybody (chmod o-w)", here.display()));
    }

    #[test]
    fn what_runs_as_root_must_be_roots_alone() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let program = file(directory.path(), "program", 0o755);
        check_program(&program, true).unwrap();
        let group = |path: &Path, id, mode| {
            std::os::unix::fs::chown(path, None, Some(id)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        group(&program, 65_534, 0o775);
        assert!(matches!(check_program(&program, true), Err(ProgramProblem::NotRoots(path)) if path == program));
        check_program(&program, false).unwrap();
        group(&program, 0, 0o775);
        check_program(&program, true).unwrap();
        std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
        assert!(matches!(check_program(&program, true), Err(ProgramProblem::NotRoots(path)) if path == program));
        std::os::unix::fs::chown(&program, Some(0), None).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(65_534), None).unwrap();
        let problem = check_program(&program, true).unwrap_err().to_string();
        assert!(problem.contains("another user can change it"), "{problem}");
    }

    #[test]
    fn a_program_checked_for_a_user_is_checked_again_for_root() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let program = file(directory.path(), "program", 0o755);
        std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
        recently_checked(&program, false).unwrap();
        let problem = recently_checked(&program, true).unwrap_err();
        assert!(problem.forbids_start(true) && !problem.forbids_start(false), "{problem}");
        for missing in ["none", "program/none"] {
            let problem = recently_checked(&directory.path().join(missing), true).unwrap_err();
            assert!(!problem.forbids_start(true), "its start explains that better: {problem}");
        }
    }

    #[test]
    fn a_link_is_judged_by_both_ends() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(file(&open, "program", 0o755), directory.path().join("link")).unwrap();
        let checked = check_program(&directory.path().join("link"), false);
        assert!(matches!(checked, Err(ProgramProblem::WritableByAll(path)) if path == open));
    }

    #[test]
    fn local_file_systems_are_local_even_for_paths_to_come() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_network_filesystem(&directory.path().join("not/yet/there")).unwrap());
        assert!(!is_network_filesystem(Path::new("/proc")).unwrap());
        assert!(is_magic(0x6969_i64, 0x6969) && is_magic(i64::from(0xff53_4d42_u32.cast_signed()), 0xff53_4d42));
    }

    #[test]
    fn private_directories_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        create_private_dir(&path).unwrap();
        create_private_dir(&path).unwrap();
        for made in [&path, &directory.path().join("a")] {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
        create_trusted_dir(&path).unwrap();
        assert!(exists_and_is_trusted(&path).unwrap() && !exists_and_is_trusted(&path.join("none")).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(exists_and_is_trusted(&path).unwrap_err().to_string().starts_with("other users can create files in "));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(create_private_dir(&path).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        create_private_dir(&path).unwrap();
        let problem = create_trusted_dir(&path).unwrap_err().to_string();
        assert!(problem.contains("can be written by everybody"), "{problem}");
    }
}
