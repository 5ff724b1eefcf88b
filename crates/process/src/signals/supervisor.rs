//! The service manager that has started this process and wants to hear of it: systemd with `Type=notify`, or whatever speaks
//! its protocol.
//!
//! It is told by whoever does the work, never by a thread of its own: what hangs must fall silent, so that the watchdog of the
//! service manager sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};

use taskqueue_host::clock::Moment;

/// Between two changes of the status.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Where NOTIFY_SOCKET says. What cannot be told is not: the work goes on.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Half of the time after which it takes us for hung.
    beat_every: Option<Duration>,
    /// Shared by all copies.
    told: Arc<Mutex<Told>>,
}

#[derive(Debug)]
struct Told {
    beat_at: Moment,
    status: String,
    status_at: Moment,
}

impl Supervisor {
    /// The one that the environment of this process names (WATCHDOG_USEC and WATCHDOG_PID, too).
    #[must_use]
    pub fn of_environment() -> Self {
        let now = Moment::now();
        let told = Told { beat_at: now, status: String::new(), status_at: now };
        Self { beat_every: watchdog_enabled().map(|limit| limit / 2), told: Arc::new(Mutex::new(told)) }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It works now, and this is what it does.
    pub fn ready(&self, status: &str) {
        let mut told = self.told();
        told.status = one_line(status);
        tell(&[NotifyState::Ready, NotifyState::Status(&told.status)]);
    }

    /// What it does, for people. To be called often: what has changed is told at most once a second.
    pub fn status(&self, status: &str) {
        let mut told = self.told();
        let status = one_line(status);
        if told.status != status && told.status_at.has_passed() {
            (told.status, told.status_at) = (status, Moment::after(STATUS_EVERY));
            tell(&[NotifyState::Status(&told.status)]);
        }
    }

    /// It reads its configuration again; [`Supervisor::ready`] says when it has.
    pub fn reloading(&self) {
        // Without the time the service manager would not know which reload is meant.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
    }

    /// It is about to end.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// It still turns: to be called often by what must not hang, and told in time.
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

/// A line end would begin another message.
fn one_line(status: &str) -> String {
    status.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_whatever_stands_in_it() {
        assert_eq!(one_line("database away: no\nWATCHDOG=trigger"), "database away: no WATCHDOG=trigger");
    }
}
