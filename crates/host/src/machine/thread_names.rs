//! The names of threads, by which other processes can tell what this one works for.

use std::ffi::CString;
use std::thread;

use rustix::thread::set_name;

/// The name that the calling thread was started with.
#[must_use]
pub fn own_thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Names the calling thread. The kernel keeps the first 15 bytes.
pub fn name_own_thread(name: &str) {
    // A name without a zero byte is never refused.
    let _ = CString::new(name).map(|name| set_name(&name));
}
