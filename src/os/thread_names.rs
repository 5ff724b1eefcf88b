//! The names of threads, by which other processes can tell what this one works for.

use std::ffi::CString;

use rustix::thread::set_name;

/// Names the calling thread. The kernel keeps the first 15 bytes.
pub fn name_own_thread(name: &str) {
    // A name without a zero byte is never refused.
    let _ = CString::new(name).map(|name| set_name(&name));
}
