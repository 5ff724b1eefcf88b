//! Memory of this process that it does not need for now.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this is a program of ours: another one may have changed its instructions in memory, as debuggers do.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// How much free memory the allocator keeps at the end of each of its arenas.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 512 << 10;

/// Lets the allocator keep little free memory. By default it keeps twice as much as the largest block that was ever freed, for each
/// arena, and not even [`give_back`] frees that. For programs of our own alone: it also makes the allocator slower for blocks of
/// more than 128 KiB.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "a call of the C library for which no crate here has a safe form")]
    // SAFETY: may be called by any thread at any time, and touches no block.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
    IS_OURS.store(true, Ordering::Relaxed);
}

/// Returns free memory to the kernel. After [`keep_little`], it also returns the pages of the program's instructions, most of which
/// only its start needed; those that it executes again come back from the page cache. Takes a few milliseconds.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "a call of the C library for which no crate here has a safe form")]
    // SAFETY: may be called by any thread at any time, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
    if let Some(instructions) = IS_OURS.load(Ordering::Relaxed).then(instructions).flatten() {
        #[expect(unsafe_code, reason = "rustix has no safe form either: in other memory this would lose data")]
        // SAFETY: these pages of the file are mapped without the right to write, and our programs change none of them; the kernel
        // reads them again when they are used.
        unsafe {
            libc::madvise(instructions.start as *mut c_void, instructions.len(), libc::MADV_DONTNEED);
        }
    }
}

/// Returns the addresses at which the instructions of this program lie; `None` if /proc does not say.
fn instructions() -> Option<Range<usize>> {
    let program = fs::read_link("/proc/self/exe").ok()?;
    let program = program.to_str()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(program))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}
