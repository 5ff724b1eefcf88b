//! Notifies the service manager that started this process: systemd with `Type=notify`, or another one with the same protocol.
//!
//! The working thread itself sends the notifications, not a separate thread: if it hangs, they must stop, so that the watchdog of
//! the service manager notices.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};

use taskqueue_host::clock::Moment;

/// The pause between two changes of the status.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// The service manager named by NOTIFY_SOCKET. Errors are ignored: the work continues.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Half of the watchdog timeout.
    beat_every: Option<Duration>,
    /// Shared by all clones.
    told: Arc<Mutex<NotifiedState>>,
}

#[derive(Debug)]
struct NotifiedState {
    beat_at: Moment,
    status: String,
    status_at: Moment,
}

impl Supervisor {
    /// Returns the one named in the environment of this process (WATCHDOG_USEC and WATCHDOG_PID, too).
    #[must_use]
    pub fn of_environment() -> Self {
        let now = Moment::now();
        let told = NotifiedState { beat_at: now, status: String::new(), status_at: now };
        Self { beat_every: watchdog_enabled().map(|limit| limit / 2), told: Arc::new(Mutex::new(told)) }
    }

    fn told(&self) -> MutexGuard<'_, NotifiedState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that the service is ready, with its status.
    pub fn ready(&self, status: &str) {
        let mut told = self.told();
        told.status = one_line(status);
        tell(&[NotifyState::Ready, NotifyState::Status(&told.status)]);
    }

    /// Reports the status, for people. May be called often: changes are sent at most once a second.
    pub fn status(&self, status: &str) {
        let mut told = self.told();
        let status = one_line(status);
        if told.status != status && told.status_at.has_passed() {
            (told.status, told.status_at) = (status, Moment::after(STATUS_EVERY));
            tell(&[NotifyState::Status(&told.status)]);
        }
    }

    /// Reports that the configuration is being reloaded; [`Supervisor::ready`] reports the end of the reload.
    pub fn reloading(&self) {
        // Without the time, the service manager would not know which reload is meant.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
    }

    /// Reports that the process is stopping.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Feeds the watchdog. May be called often: sent only when it is due.
    pub fn beat(&self) {
        let Some(every) = self.beat_every else { return };
        let mut told = self.told();
        if told.beat_at.has_passed() {
            told.beat_at = Moment::after(every);
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(news: &[NotifyState<'_>]) {
    let _ = notify(news);
}

/// Replaces control characters: a line break would begin another message.
fn one_line(status: &str) -> String {
    status.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_whatever_stands_in_it() {
        assert_eq!(one_line("database unavailable: no\nWATCHDOG=trigger"), "database unavailable: no WATCHDOG=trigger");
    }
}
