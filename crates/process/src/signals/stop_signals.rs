//! Counts HUP, INT, QUIT and TERM outside of signal handlers, and provides a descriptor that poll loops can watch.
//!
//! The command line installs it once; all code that waits checks it. The callers decide what stopping means.

use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{pipe, unregister};

use super::held_signals::hold_during;
use crate::spawning::ignored_signals::ignores_signal;
use taskqueue_host::clock::{Moment, poll_wait};
use taskqueue_host::net::waker::Waker;

/// Further signals are not counted.
const COUNTED: usize = 8;
const STOPPING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// Counts the received signals; QUIT, which means "now", counts as two. After it is dropped, the signals are ignored.
#[derive(Debug)]
pub struct StopSignals {
    reader: UnixStream,
    registered: Vec<SigId>,
}

impl StopSignals {
    /// Handles HUP, INT, QUIT and TERM for this process. HUP and QUIT stay ignored if they were ignored at the start: by nohup,
    /// or by a shell in the background.
    ///
    /// # Errors
    /// The kernel refuses (no descriptors left), or the ignored signals cannot be read.
    pub fn install() -> io::Result<Self> {
        Self::install_with(&[SIGHUP, SIGQUIT])
    }

    /// Same as [`StopSignals::install`] without HUP, which then means a reload: see [`super::reload_signal::ReloadSignal`].
    ///
    /// # Errors
    /// As for [`StopSignals::install`].
    pub fn install_without_hangup() -> io::Result<Self> {
        Self::install_with(&[SIGQUIT])
    }

    fn install_with(unless_ignored: &[i32]) -> io::Result<Self> {
        hold_during(&STOPPING, || Self::register(unless_ignored))
    }

    fn register(unless_ignored: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let mut signals = Self { reader, registered: Vec::new() };
        for number in [SIGTERM, SIGINT] {
            signals.registered.push(pipe::register(number, writer.try_clone()?)?);
        }
        for &number in unless_ignored {
            if !ignores_signal(number)? {
                signals.registered.push(pipe::register(number, writer.try_clone()?)?);
            }
        }
        if !ignores_signal(SIGQUIT)? {
            signals.registered.push(pipe::register(SIGQUIT, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Same as [`StopSignals::install`], for work that checks for signals only between its parts, of which one may take long: a
    /// second signal has its default effect.
    ///
    /// # Errors
    /// As for [`StopSignals::install`].
    pub fn install_for_one() -> io::Result<Self> {
        let mut signals = Self::install()?;
        let has_come = Arc::new(AtomicBool::new(false));
        for number in STOPPING {
            if ignores_signal(number)? {
                continue;
            }
            // In this order: at the first signal, the first registration finds that none was received before.
            signals.registered.push(flag::register_conditional_default(number, Arc::clone(&has_come))?);
            signals.registered.push(flag::register(number, Arc::clone(&has_come))?);
        }
        Ok(signals)
    }

    /// Handles no signals: a handle stops it. For a program that uses signals itself.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn by_hand() -> io::Result<(Self, StopHandle)> {
        let (reader, writer) = UnixStream::pair()?;
        let handle = StopHandle { writer: Arc::new(writer), has_stopped: Arc::default() };
        Ok((Self { reader, registered: Vec::new() }, handle))
    }

    /// Makes INT and TERM of this process count in addition to the handle that was created with it.
    ///
    /// # Errors
    /// The kernel refuses (no descriptors left).
    pub fn follow_signals(&mut self, handle: &StopHandle) -> io::Result<()> {
        hold_during(&STOPPING, || {
            for number in [SIGTERM, SIGINT] {
                self.registered.push(pipe::register(number, handle.writer.try_clone()?)?);
            }
            Ok(())
        })
    }

    /// Returns true if one of the signals was received.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Returns how many were received.
    #[must_use]
    pub fn count(&self) -> usize {
        count(&self.reader)
    }

    /// Returns a function that returns this count, for another thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn counter(&self) -> io::Result<impl Fn() -> usize + Send + Sync + use<>> {
        let reader = self.reader.try_clone()?;
        Ok(move || count(&reader))
    }

    /// Waits for at most `limit`. Returns true if one of the signals was received.
    pub fn wait(&self, limit: Duration) -> bool {
        self.wait_beside(None, limit)
    }

    /// Same as [`StopSignals::wait`], or until `readable` can be read.
    pub fn wait_beside(&self, readable: Option<BorrowedFd<'_>>, limit: Duration) -> bool {
        self.wait_or_read(readable, limit).0
    }

    /// Same as [`StopSignals::wait_beside`]; also returns whether `readable` can be read or is at its end.
    pub fn wait_or_read(&self, readable: Option<BorrowedFd<'_>>, limit: Duration) -> (bool, bool) {
        let mut fds = vec![PollFd::new(&self.reader, PollFlags::IN)];
        fds.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let until = Moment::after(limit);
        // Interrupted by the signal itself: polls again.
        while matches!(poll(&mut fds, Some(&poll_wait(until.remaining()))), Err(rustix::io::Errno::INTR)) {}
        let has_come = |place: usize| fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
        (has_come(0), has_come(1))
    }

    /// Runs `work` in its own thread, for work that cannot be interrupted. Returns `None` if one of the signals was received and
    /// the work has not ended within `grace`: its thread is abandoned, and ends at the latest with this process.
    ///
    /// # Errors
    /// The kernel refuses (no descriptor left, no thread), or the work panics.
    pub fn wait_for_work<T: Send + 'static>(
        &self,
        grace: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let (alarm, (sender, receiver)) = (Arc::new(Waker::new()?), mpsc::sync_channel(1));
        let wakes = WakesAtEnd(Arc::clone(&alarm));
        thread::Builder::new().name("work".to_owned()).spawn(move || {
            let _wakes = wakes;
            // If it is too late, the result is discarded.
            let _ = sender.send(work());
        })?;
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN), PollFd::new(&*alarm, PollFlags::IN)];
        while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
        if self.is_stopping() {
            return Ok(receiver.recv_timeout(grace).ok());
        }
        receiver.recv().map(Some).map_err(io::Error::other)
    }
}

/// Asks work to stop gracefully, from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle {
    writer: Arc<UnixStream>,
    has_stopped: Arc<AtomicBool>,
}

impl StopHandle {
    /// Ends waits at once, and work after its current part. Further calls have no effect.
    pub fn stop(&self) {
        if !self.has_stopped.swap(true, Ordering::Relaxed) {
            // On error, the receiver has been dropped and there is nothing to stop.
            let _ = (&*self.writer).write(&[1]);
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

/// Returns the number of signals: one byte is written for each, and none is read.
fn count(reader: &UnixStream) -> usize {
    let mut bytes = [0; COUNTED];
    recv(reader, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).map_or(0, |(count, _)| count)
}

/// Wakes when it is dropped, so that a thread that panics is not waited for.
struct WakesAtEnd(Arc<Waker>);

impl Drop for WakesAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use taskqueue_host::testing::{eventually, run_again_inside};

    /// In its own process, because the signals go to the whole test program.
    #[test]
    fn each_signal_is_counted_and_none_is_forgotten() {
        let name = "signals::stop_signals::tests::each_signal_is_counted_and_none_is_forgotten";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        for (number, weight) in [(SIGTERM, 1), (SIGINT, 1), (SIGHUP, 1), (SIGQUIT, 2)] {
            let signals = StopSignals::install().unwrap();
            let count = signals.counter().unwrap();
            assert!(!signals.is_stopping() && signals.count() == 0 && count() == 0);
            for times in 1..=2 {
                signal_hook::low_level::raise(number).unwrap();
                eventually(|| signals.count() == times * weight);
                assert!(signals.is_stopping() && count() == times * weight);
            }
        }
    }

    #[test]
    fn what_was_ignored_from_the_start_stays_ignored() {
        let name = "signals::stop_signals::tests::what_was_ignored_from_the_start_stays_ignored";
        if !run_again_inside(&["env", "--ignore-signal=HUP,QUIT"], name) {
            return;
        }
        let signals = StopSignals::install().unwrap();
        for number in [SIGHUP, SIGQUIT] {
            signal_hook::low_level::raise(number).unwrap();
        }
        assert!(!signals.is_stopping() && ignores_signal(SIGHUP).unwrap());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        eventually(|| signals.is_stopping());
    }

    #[test]
    fn work_is_waited_for_until_a_signal_comes_and_no_longer_than_its_grace() {
        let name = "signals::stop_signals::tests::work_is_waited_for_until_a_signal_comes_and_no_longer_than_its_grace";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        let signals = StopSignals::install().unwrap();
        assert_eq!(signals.wait_for_work(Duration::ZERO, || 7).unwrap(), Some(7));
        let (_for_ever, never) = mpsc::channel::<()>();
        let unanswered = signals.wait_for_work(Duration::from_millis(1), move || {
            signal_hook::low_level::raise(SIGTERM).unwrap();
            never.recv()
        });
        assert!(unanswered.unwrap().is_none());
        let long = Duration::from_secs(60);
        assert_eq!(signals.wait_for_work(long, || 8).unwrap(), Some(8), "what ends in time counts");
        assert_eq!(signals.wait_for_work::<()>(long, || panic!("as it should")).unwrap(), None);
    }

    #[test]
    fn a_stop_handle_ends_a_wait_and_counts_as_one_signal_however_often_used() {
        let (signals, handle) = StopSignals::by_hand().unwrap();
        assert!(!signals.is_stopping());
        handle.stop();
        handle.clone().stop();
        assert!(signals.wait(Duration::from_secs(60)) && signals.count() == 1);
    }

    #[test]
    fn signals_that_are_followed_count_beside_the_handle() {
        let name = "signals::stop_signals::tests::signals_that_are_followed_count_beside_the_handle";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        let (mut signals, handle) = StopSignals::by_hand().unwrap();
        signals.follow_signals(&handle).unwrap();
        assert!(!signals.is_stopping());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        eventually(|| signals.count() == 1);
        handle.stop();
        assert_eq!(signals.count(), 2);
    }

    #[test]
    fn a_wait_ends_when_a_descriptor_is_readable_and_reports_no_signal() {
        let (signals, handle) = StopSignals::by_hand().unwrap();
        let alarm = Waker::new().unwrap();
        alarm.wake();
        let long = Duration::from_secs(3_600);
        assert!(!signals.wait_beside(Some(alarm.as_fd()), long));
        assert_eq!(signals.wait_or_read(Some(alarm.as_fd()), long), (false, true));
        handle.stop();
        assert!(signals.wait_beside(Some(alarm.as_fd()), long));
        assert_eq!(signals.wait_or_read(Some(Waker::new().unwrap().as_fd()), long), (true, false));
    }

    #[test]
    fn an_alarm_is_readable_once_it_has_rung() {
        let alarm = Waker::new().unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(&alarm, PollFlags::IN)];
            poll(&mut fds, Some(&poll_wait(Duration::ZERO))).unwrap() == 1
        };
        assert!(!is_readable());
        alarm.wake();
        alarm.wake();
        assert!(is_readable());
    }
}
