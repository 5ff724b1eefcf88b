//! `db backup` and `db check`: copies a SQLite store, and looks for damage.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_host::files::beside;
use taskqueue_host::files::lock::FileLock;
use taskqueue_host::machine::account::is_own_file;
pub use taskqueue_store::upkeep::damage::{DAMAGE_STEPS, Damage};

/// Returns the name of an unfinished backup, beside the finished one.
#[must_use]
pub fn unfinished(file: &Path) -> PathBuf {
    beside(file, ".unfinished")
}

/// Copies a SQLite store to a file that only this user can read, and returns the size in bytes. The file appears when the copy is
/// complete and on the disk.
///
/// # Errors
/// Returns [`EngineError::Input`] if the file is no regular file or belongs to the store, and an error if the database fails or the
/// file cannot be written, or another backup to it is running.
pub fn copy_to(ctx: &mut Context, file: &Path) -> EngineResult<u64> {
    refuse_precious(ctx.store.url().path().as_deref(), file)?;
    let new = unfinished(file);
    // Held until the file has its name: another backup to it is refused meanwhile. What a killed one left is written over.
    let lock = FileLock::acquire(&new, Duration::ZERO).map_err(cannot_write)?;
    let written = write_copy(ctx, lock.file(), &new).and_then(|size| {
        fs::rename(&new, file).and_then(|()| sync_directory(file)).map_err(cannot_write)?;
        Ok(size)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// A backup must replace neither a device nor the store itself, nor its log.
fn refuse_precious(store: Option<&Path>, file: &Path) -> EngineResult<()> {
    // SQLite would apply the log of another store to the copy.
    let log = beside(file, "-wal");
    if fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
        return Err(EngineError::Input(format!(
            "{} exists: a process may be using a store of this name; name another file, or remove the log if none does",
            log.display()
        )));
    }
    let Ok(found) = fs::symlink_metadata(file) else { return Ok(()) };
    if !found.is_file() {
        return Err(EngineError::Input(format!("{} is not a regular file", file.display())));
    }
    let belongs = |suffix: &str| {
        let name = beside(store.unwrap_or(Path::new("")), suffix);
        fs::metadata(name).is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
    };
    if store.is_some() && ["", "-wal", "-shm"].into_iter().any(belongs) {
        return Err(EngineError::Input(format!("{} belongs to the store itself", file.display())));
    }
    Ok(())
}

fn write_copy(ctx: &mut Context, new: &File, path: &Path) -> EngineResult<u64> {
    // Another user may have put a file there, to read or to change the backup later.
    if !is_own_file(&new.metadata().map_err(cannot_write)?) {
        return Err(EngineError::Input(format!("{} belongs to another user", path.display())));
    }
    new.set_permissions(Permissions::from_mode(0o600)).and_then(|()| new.set_len(0)).map_err(cannot_write)?;
    ctx.store.copy_into(path)?;
    new.sync_all().and_then(|()| new.metadata()).map(|found| found.len()).map_err(cannot_write)
}

fn sync_directory(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

const fn cannot_write(source: io::Error) -> EngineError {
    EngineError::Os { what: "cannot write the backup", source }
}

/// Reads the whole database and returns what is damaged. `begun` is called with the number and the name of each step.
///
/// # Errors
/// Returns an error if the database fails.
pub fn find_damage(ctx: &mut Context, begun: &mut dyn FnMut(usize, &str)) -> EngineResult<Vec<Damage>> {
    Ok(ctx.store.find_damage(begun)?)
}
