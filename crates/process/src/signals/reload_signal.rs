//! HUP as the signal to reload the configuration.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::SIGHUP;
use signal_hook::flag;
use signal_hook::low_level::unregister;

use super::held_signals::hold_during;

/// Records HUP. After it is dropped, the signal is ignored.
#[derive(Debug)]
pub struct ReloadSignal {
    has_come: Arc<AtomicBool>,
    registered: SigId,
}

impl ReloadSignal {
    /// Handles HUP for this process, even if it was started with HUP ignored: HUP does not end it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn install() -> io::Result<Self> {
        let has_come = Arc::new(AtomicBool::new(false));
        let registered = hold_during(&[SIGHUP], || flag::register(SIGHUP, Arc::clone(&has_come)))?;
        Ok(Self { has_come, registered })
    }

    /// Returns true if HUP was received since the last call. Several signals count as one.
    #[must_use]
    pub fn take(&self) -> bool {
        self.has_come.swap(false, Ordering::Relaxed)
    }
}

impl Drop for ReloadSignal {
    fn drop(&mut self) {
        unregister(self.registered);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::stop_signals::StopSignals;
    use super::*;
    use taskqueue_host::testing::{eventually, run_again_inside};

    #[test]
    fn hup_asks_for_a_reload_and_stops_nothing() {
        let name = "signals::reload_signal::tests::hup_asks_for_a_reload_and_stops_nothing";
        if !run_again_inside(&["env", "--ignore-signal=HUP"], name) {
            return;
        }
        let (stop, reload) = (StopSignals::install_without_hangup().unwrap(), ReloadSignal::install().unwrap());
        assert!(!reload.take());
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGHUP).unwrap();
            eventually(|| reload.take());
            assert!(!reload.take() && !stop.is_stopping());
        }
    }
}
