//! The heap of this process, as far as the kernel hears of it.

/// Gives the kernel what lies free in the heap; the allocator keeps the most of it otherwise. Takes some milliseconds.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    #[expect(unsafe_code, reason = "a call of the C library for which no crate here has a safe form")]
    // SAFETY: may be called by any thread at any time, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries give it back by themselves.
#[cfg(not(target_env = "gnu"))]
pub const fn give_back() {}
