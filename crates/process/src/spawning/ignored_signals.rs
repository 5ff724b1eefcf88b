//! The signals that were ignored when this process was started.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Returns true if this process ignores a signal, as a process started by nohup ignores HUP. `/proc/self/status` has this too,
/// but the kernel computes much else for each read of it.
pub(crate) fn ignores_signal(number: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    #[expect(unsafe_code, reason = "no crate here asks for the action of a signal without setting one")]
    // SAFETY: without a new action, nothing changes; the present one is written to memory of its type, for which all zeros are a
    // valid value.
    let (asked, action) = unsafe {
        let asked = libc::sigaction(number, ptr::null(), action.as_mut_ptr());
        (asked, action.assume_init())
    };
    if asked == 0 { Ok(action.sa_sigaction == libc::SIG_IGN) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_signal_is_an_error() {
        assert!(!ignores_signal(libc::SIGURG).unwrap());
        assert_eq!(ignores_signal(1_000).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
