//! Ends this very process when it does not report in time: for handlers that run inside it and cannot be ended otherwise.
//! Whoever finds the process dead takes their runs. One thread watches for all of them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::thread::{gettid, name, set_name};

use super::clock::Moment;

/// Between two questions whether the process must end for another reason than a deadline.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What the thread watches.
static WATCHED: Mutex<Watched> =
    Mutex::new(Watched { handlers: BTreeMap::new(), next: 0, has_thread: false, is_asleep: false });
/// There is something to watch again.
static CHANGED: Condvar = Condvar::new();

struct Watched {
    handlers: BTreeMap<u64, Handler>,
    next: u64,
    has_thread: bool,
    /// Whether the thread waits for something to watch.
    is_asleep: bool,
}

struct Handler {
    deadline: Moment,
    must_end: Box<dyn Fn() -> bool + Send>,
}

/// Armed while it exists. Belongs to the thread that started it.
#[derive(Debug)]
pub struct Watchdog {
    number: u64,
    limit: Duration,
    _sign: Sign,
}

impl Watchdog {
    /// From now on the process has `limit` until the next report, and lives no longer than `must_end` says no. A thread of the
    /// process has this name, by which others can tell what it works for.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(name: &str, limit: Duration, must_end: impl Fn() -> bool + Send + 'static) -> io::Result<Self> {
        let sign = Sign::show(name)?;
        let mut watched = lock();
        if !watched.has_thread {
            thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
            watched.has_thread = true;
        }
        let number = watched.next;
        watched.next += 1;
        let handler = Handler { deadline: Moment::after(limit), must_end: Box::new(must_end) };
        watched.handlers.insert(number, handler);
        if watched.is_asleep {
            CHANGED.notify_one();
        }
        Ok(Self { number, limit, _sign: sign })
    }

    /// A report: the limit is counted from now.
    pub fn restart(&self) {
        if let Some(handler) = lock().handlers.get_mut(&self.number) {
            handler.deadline = Moment::after(self.limit);
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // What it holds is dropped without the lock.
        let handler = lock().handlers.remove(&self.number);
        drop(handler);
    }
}

fn lock() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    let mut watched = lock();
    loop {
        if watched.handlers.values().any(|handler| handler.deadline.has_passed() || (handler.must_end)()) {
            // KILL: TERM may be taken over, and the handler has shown that it does not listen.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        let next = watched.handlers.values().map(|handler| handler.deadline.remaining()).min();
        watched.is_asleep = next.is_none();
        watched = match next {
            Some(next) => CHANGED.wait_timeout(watched, next.min(ASK_EVERY)).unwrap_or_else(PoisonError::into_inner).0,
            None => CHANGED.wait(watched).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// The name of a thread, for as long as this exists: that of the calling one, unless it is the first, whose name is that of
/// the process.
#[derive(Debug)]
enum Sign {
    Own { before: CString },
    Other { bearer: Thread, wanted: Option<Arc<()>> },
}

impl Sign {
    fn show(text: &str) -> io::Result<Self> {
        if gettid() == getpid() {
            let wanted = Arc::new(());
            let kept = Arc::downgrade(&wanted);
            let bear = move || {
                while kept.strong_count() > 0 {
                    thread::park();
                }
            };
            let bearer = thread::Builder::new().name(text.to_owned()).spawn(bear)?.thread().clone();
            return Ok(Self::Other { bearer, wanted: Some(wanted) });
        }
        let before = name()?;
        set_name(&CString::new(text).map_err(io::Error::other)?)?;
        Ok(Self::Own { before })
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        match self {
            Self::Own { before } => {
                let before: &CStr = before;
                let _ = set_name(before);
            }
            Self::Other { bearer, wanted } => {
                *wanted = None;
                bearer.unpark();
            }
        }
    }
}
