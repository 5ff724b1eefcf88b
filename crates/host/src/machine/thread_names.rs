//! Thread names, which show other processes what this one is working on.

use std::ffi::CString;
use std::thread;

use rustix::thread::set_name;

/// Returns the name with which the calling thread was started.
#[must_use]
pub fn own_thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Names the calling thread. The kernel keeps the first 15 bytes.
pub fn name_own_thread(name: &str) {
    // A name without a NUL byte is never rejected.
    let _ = CString::new(name).map(|name| set_name(&name));
}
