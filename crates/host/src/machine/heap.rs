//! Returns free heap memory to the kernel.

/// Returns free heap memory to the kernel; otherwise the allocator keeps most of it. Takes a few milliseconds.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    #[expect(unsafe_code, reason = "a call of the C library for which no crate here has a safe form")]
    // SAFETY: may be called by any thread at any time, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: other C libraries return memory on their own.
#[cfg(not(target_env = "gnu"))]
pub const fn give_back() {}
