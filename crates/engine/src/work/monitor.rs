//! Serves the state of a worker and of the store by HTTP: `/metrics` for Prometheus, `/healthz` for process supervisors. A
//! separate thread reads the store, and only when a request needs it and the cached numbers are old. So requests cannot
//! overload the database, and a database that does not answer does not block the numbers of the worker.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::monitoring::metrics::{StoreFacts, look};
use crate::inspect::monitoring::metrics_text::{CONTENT_TYPE, text};
use crate::inspect::monitoring::tally::{Tally, WorkerFacts};
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_host::clock::Moment;
use taskqueue_host::net::http::{HttpAnswer, HttpServer, Route};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::usage::memory_bytes;

/// How long the cached numbers of the store are used.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// How long a request waits for the store; Prometheus itself waits ten seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// If a read takes longer than that, older numbers are served, up to this age, unless the worker has lost the database.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// A coordinator without a turn for this long counts as hanging; it waits up to a minute for a silent server.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(90);

/// Opens a separate context.
type MonitorOpener = Box<dyn Fn() -> EngineResult<Context> + Send>;

/// Serves requests until it is dropped or has no address.
pub struct Monitor {
    shared: Arc<SharedMonitor>,
    /// Set until the thread that reads the store takes it.
    open: Option<MonitorOpener>,
    server: Option<HttpServer>,
    wanted: Option<ListenAddress>,
}

struct SharedMonitor {
    tally: Arc<Tally>,
    state: Mutex<MonitorState>,
    changed: Condvar,
}

#[derive(Default)]
struct MonitorState {
    last: Option<MonitorScan>,
    /// Since when a request waits for the next read.
    wanted_since: Option<Moment>,
    is_over: bool,
    /// When the worker started by the database's clock, in seconds since 1970.
    began_secs: Option<i64>,
}

/// The last read of the store.
#[derive(Clone)]
struct MonitorScan {
    at: Moment,
    took: Duration,
    /// `None` if it could not be read.
    facts: Option<Arc<StoreFacts>>,
}

impl Monitor {
    /// Creates a monitor without an address.
    #[must_use]
    pub fn new(ctx: &Context, tally: &Arc<Tally>) -> Self {
        let shared = SharedMonitor { tally: Arc::clone(tally), state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), open: Some(Box::new(ctx.reopener())), server: None, wanted: None }
    }

    /// Changes the address; `None` closes it. If that fails, the old address stays in use. The exception: the old address had
    /// to be closed for the new one, and another process has taken it meanwhile.
    ///
    /// # Errors
    /// Returns an error if another process uses the address, or if a system call fails.
    pub fn listen(&mut self, address: Option<&ListenAddress>) -> io::Result<()> {
        if self.wanted.as_ref() == address {
            return Ok(());
        }
        let server = address.map(|address| self.server_at(address)).transpose()?;
        (self.server, self.wanted) = (server, address.cloned());
        Ok(())
    }

    fn server_at(&mut self, address: &ListenAddress) -> io::Result<HttpServer> {
        self.begin_to_look()?;
        let left = self.make_way_for(address);
        let started = HttpServer::start(address, self.routes());
        if let (Err(_), Some(left)) = (&started, left) {
            self.come_back_to(&left);
        }
        started
    }

    /// Closes the old address if it excludes the new one. Returns it.
    fn make_way_for(&mut self, address: &ListenAddress) -> Option<ListenAddress> {
        let server = self.server.take_if(|server| server.address().excludes(address))?;
        let left = server.address().clone();
        server.close();
        Some(left)
    }

    fn come_back_to(&mut self, address: &ListenAddress) {
        self.server = HttpServer::start(address, self.routes()).ok();
        if self.server.is_none() {
            // Otherwise a repeated call would do nothing.
            self.wanted = None;
        }
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> Option<&ListenAddress> {
        self.server.as_ref().map(HttpServer::address)
    }

    fn begin_to_look(&mut self) -> io::Result<()> {
        if let Some(open) = self.open.take() {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name("metrics".to_owned()).spawn(move || look_when_wanted(&shared, &open))?;
        }
        Ok(())
    }

    fn routes(&self) -> Vec<Route> {
        let route = |path, answer: fn(&SharedMonitor) -> HttpAnswer| -> Route {
            let shared = Arc::clone(&self.shared);
            (path, Box::new(move || answer(&shared)))
        };
        // A probe must not wait while metrics are written.
        vec![route("/healthz", SharedMonitor::health), route("/metrics", SharedMonitor::metrics)]
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl SharedMonitor {
    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn metrics(&self) -> HttpAnswer {
        let look = self.fresh_look();
        let took = look.as_ref().map_or(Duration::ZERO, |look| look.took);
        let facts = look.and_then(|look| look.facts);
        HttpAnswer { status: 200, content_type: CONTENT_TYPE, body: text(facts.as_deref(), took, Some(&self.worker())) }
    }

    /// Returns no details, because anyone who can connect may read it.
    fn health(&self) -> HttpAnswer {
        let problem = if self.tally.stands_still_for() > LONGEST_STANDSTILL {
            Some("the worker does not respond\n")
        } else if self.tally.is_blocked() {
            Some("the worker claims nothing: too many handlers did not return\n")
        } else if self.tally.was_away() || self.fresh_look().is_none_or(|look| look.facts.is_none()) {
            Some("the database is unavailable\n")
        } else {
            None
        };
        HttpAnswer {
            status: if problem.is_some() { 503 } else { 200 },
            content_type: "text/plain; charset=utf-8",
            body: problem.unwrap_or("ok\n").to_owned(),
        }
    }

    fn worker(&self) -> WorkerFacts {
        let memory_bytes = ProcessIdentity::own().ok().and_then(|own| memory_bytes(&own));
        WorkerFacts { memory_bytes, began_secs: self.lock().began_secs, ..self.tally.facts() }
    }

    /// Returns the numbers of the store, reading them if they are old; `None` if there are none in time.
    fn fresh_look(&self) -> Option<MonitorScan> {
        let mut state = self.lock();
        loop {
            let is_fresh = |look: &&MonitorScan| look.at.elapsed() < FRESH_FOR;
            if let Some(look) = state.last.as_ref().filter(is_fresh) {
                return Some(look.clone());
            }
            let wanted_since = *state.wanted_since.get_or_insert_with(|| {
                self.changed.notify_all();
                Moment::now()
            });
            // If requests come one after the other while a read takes long, only the first one waits.
            let give_up = wanted_since.plus(PATIENCE);
            if state.is_over || give_up.has_passed() {
                let is_usable = |look: &MonitorScan| look.facts.is_some() && look.at.elapsed() < STALE_AFTER;
                return state.last.clone().filter(|look| is_usable(look) && !self.tally.was_away());
            }
            state = self.changed.wait_timeout(state, give_up.remaining()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until a request needs the store. Returns false if none can come any more.
    fn is_asked(&self) -> bool {
        let mut state = self.lock();
        while state.wanted_since.is_none() && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_over
    }

    fn note(&self, took: Duration, facts: Option<StoreFacts>) {
        let mut state = self.lock();
        if let (None, Some(facts)) = (state.began_secs, &facts) {
            let age_secs = i64::try_from(self.tally.age().as_secs()).unwrap_or(0);
            state.began_secs = Some(facts.now.timestamp() - age_secs);
        }
        state.last = Some(MonitorScan { at: Moment::now(), took, facts: facts.map(Arc::new) });
        state.wanted_since = None;
        self.changed.notify_all();
    }
}

/// The thread that reads the store. A query may block it; no thread waits for its end.
fn look_when_wanted(shared: &SharedMonitor, open: &MonitorOpener) {
    let mut kept: Option<Context> = None;
    while shared.is_asked() {
        let began = Moment::now();
        let look_with = |mut ctx: Context| {
            // Do not retry: the next request reads again.
            ctx.store.give_up_when(|| true);
            let facts = look(&mut ctx)?;
            Ok((ctx, facts))
        };
        // A kept connection may have been closed; that does not mean that the database is unreachable.
        let again = kept.take().and_then(|ctx| look_with(ctx).ok());
        let looked: EngineResult<_> = again.map_or_else(|| open().and_then(look_with), Ok);
        let (ctx, facts) = looked.map_or((None, None), |(ctx, facts)| (Some(ctx), Some(facts)));
        kept = ctx;
        shared.note(began.elapsed(), facts);
    }
}
