//! Signals wait while their handlers are registered.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Calls `register` while these signals wait; they are delivered afterwards. The handler of signal-hook is in the kernel before
/// it knows what is registered: a signal between the two would have no effect, and a process asked to stop would go on.
///
/// Only in this thread: register before others are started.
///
/// # Errors
/// A number is no signal, or the kernel refuses; and those of `register`.
pub(super) fn hold_during<T>(numbers: &[i32], register: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut held = SigSet::empty();
    for &number in numbers {
        held.add(Signal::try_from(number)?);
    }
    let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let registered = register();
    before.thread_set_mask()?;
    registered
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use signal_hook::consts::SIGTERM;
    use signal_hook::flag;
    use signal_hook::low_level::raise;
    use taskqueue_host::testing::run_again_inside;

    use super::*;

    #[test]
    fn a_signal_before_its_handler_is_registered_is_delivered_after() {
        let name = "signals::held_signals::tests::a_signal_before_its_handler_is_registered_is_delivered_after";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        let has_come = Arc::new(AtomicBool::new(false));
        hold_during(&[SIGTERM], || {
            raise(SIGTERM)?;
            flag::register(SIGTERM, Arc::clone(&has_come))?;
            assert!(!has_come.load(Ordering::Relaxed));
            Ok(())
        })
        .unwrap();
        assert!(has_come.load(Ordering::Relaxed));
        assert!(!SigSet::thread_get_mask().unwrap().contains(Signal::SIGTERM));
    }
}
