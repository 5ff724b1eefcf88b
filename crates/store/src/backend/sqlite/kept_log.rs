//! SQLite: the command line keeps the write-ahead log of a store, and its index, when it exits.
//!
//! By default, the last connection copies the log into the store, syncs both and removes the log. A command that writes one row
//! pays four fsyncs for that. A kept log costs the next command no fsync, but the time to read it at the start. The log must
//! therefore stay short. A connection that finds a long log empties it when it closes, if it is the last one.
//!
//! SQLite offers this only to C, and opens the log so that its first sync in each process also syncs the directory. The code here
//! configures connections that use the VFS in [`option`]; other connections of this process are unaffected.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{addr_eq, from_mut, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libsqlite3_sys as ffi;

use crate::backend::log_of;

const NAME: &CStr = c"taskqueue";
/// A longer log is emptied. Reading a log of this length takes about as long as one fsync of a fast disk.
const LONG_LOG_BYTES: u64 = 1 << 20;
/// The length of the header. If a log is longer, the process that created it has written to it and synced its directory.
const HEADER_BYTES: u64 = 32;

type OpenLog =
    unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, *mut ffi::sqlite3_file, c_int, *mut c_int) -> c_int;

static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
static OPEN_OF_SYSTEM: OnceLock<OpenLog> = OnceLock::new();
static VFS: AtomicPtr<ffi::sqlite3_vfs> = AtomicPtr::new(null_mut());

/// Keeps the logs of SQLite stores that this process opens later: for a process that runs one command.
pub fn keep_sqlite_logs() {
    IS_REGISTERED.get_or_init(register);
}

/// Returns the parameter of an address that makes a connection keep the log; `None` if the process closes stores as usual.
pub(crate) fn option() -> Option<(&'static str, &'static str)> {
    let is_registered = IS_REGISTERED.get().copied().unwrap_or_default();
    is_registered.then(|| ("vfs", NAME.to_str().unwrap_or_default()))
}

#[expect(unsafe_code, reason = "SQLite offers neither a VFS nor the settings of a connection to SQL")]
fn register() -> bool {
    // SAFETY: the default VFS is valid as long as the process runs, and so is its copy, which is never freed. The methods of
    // SQLite's own VFS use only the fields that were copied.
    unsafe {
        let Some(system) = ffi::sqlite3_vfs_find(null()).as_ref() else { return false };
        let Some(open_of_system) = system.xOpen else { return false };
        OPEN_OF_SYSTEM.get_or_init(|| open_of_system);
        let copy = ffi::sqlite3_vfs { pNext: null_mut(), zName: NAME.as_ptr(), xOpen: Some(open), ..*system };
        let copy = Box::into_raw(Box::new(copy));
        VFS.store(copy, Ordering::Release);
        ffi::sqlite3_vfs_register(copy, 0) == ffi::SQLITE_OK
            && ffi::sqlite3_auto_extension(Some(set_up)) == ffi::SQLITE_OK
    }
}

/// Opens a file of a store. If the log already exists durably, its directory is not synced again: only files that may be created
/// are synced with their directory.
#[expect(unsafe_code, reason = "called by SQLite")]
unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    mut flags: c_int,
    opened: *mut c_int,
) -> c_int {
    let Some(open_of_system) = OPEN_OF_SYSTEM.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: the log has a name, which SQLite owns during the call.
    if flags & ffi::SQLITE_OPEN_WAL != 0 && unsafe { length(name) } > HEADER_BYTES {
        flags &= !ffi::SQLITE_OPEN_CREATE;
    }
    // SAFETY: the arguments come from SQLite.
    unsafe { open_of_system(vfs, name, file, flags, opened) }
}

/// Configures a connection that was just opened.
#[expect(unsafe_code, reason = "called by SQLite")]
unsafe extern "C" fn set_up(
    db: *mut ffi::sqlite3,
    _error: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    let (mut vfs, mut yes) = (null_mut::<ffi::sqlite3_vfs>(), 1 as c_int);
    // SAFETY: the connection is open, each operation gets a value of the documented type, and the name of the store lives as long
    // as the connection.
    unsafe {
        let asked =
            ffi::sqlite3_file_control(db, null(), ffi::SQLITE_FCNTL_VFS_POINTER, from_mut(&mut vfs).cast::<c_void>());
        if asked != ffi::SQLITE_OK || !addr_eq(vfs, VFS.load(Ordering::Acquire)) {
            return ffi::SQLITE_OK;
        }
        ffi::sqlite3_file_control(db, null(), ffi::SQLITE_FCNTL_PERSIST_WAL, from_mut(&mut yes).cast::<c_void>());
        let store = ffi::sqlite3_db_filename(db, c"main".as_ptr());
        if !store.is_null() && is_short(&log_of(path(store))) {
            ffi::sqlite3_db_config(db, ffi::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1 as c_int, null_mut::<c_int>());
        }
    }
    ffi::SQLITE_OK
}

fn is_short(log: &Path) -> bool {
    metadata(log).map_or(true, |found| found.len() <= LONG_LOG_BYTES)
}

#[expect(unsafe_code, reason = "a name that SQLite gave")]
unsafe fn length(name: *const c_char) -> u64 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    metadata(unsafe { path(name) }).map_or(0, |found| found.len())
}

#[expect(unsafe_code, reason = "a name that SQLite gave")]
unsafe fn path<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: guaranteed by the caller.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}
