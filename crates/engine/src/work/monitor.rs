//! Tells whoever asks by HTTP how a worker stands, and the store: `/metrics` for Prometheus, `/healthz` for what watches over
//! processes. The store is asked by a thread of its own, only where somebody wants to know it and what is known is old, so that
//! nobody who asks can load the database, and a database that does not answer keeps nobody from the numbers of the worker.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::tally::{Tally, WorkerFacts};
use crate::inspect::metrics::{StoreFacts, look};
use crate::inspect::metrics_text::{CONTENT_TYPE, text};
use crate::{Context, EngineResult};
use taskqueue_domain::listen_address::ListenAddress;
use taskqueue_host::clock::Moment;
use taskqueue_host::net::http::{Answer, HttpServer, Route};
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::usage::memory_bytes;

/// What is known of the store is believed for so long.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// Whoever asks waits for so long for the store; Prometheus itself waits ten seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Where a look takes longer than that, what was seen before is told, unless it is older than this.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// A worker that has not turned for so long hangs: it waits up to a minute for a server that is silent.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(90);

/// What opens a context of its own.
type Opener = Box<dyn Fn() -> EngineResult<Context> + Send>;

/// Answers until it is dropped, or told to listen nowhere.
pub struct Monitor {
    shared: Arc<Shared>,
    /// Until the thread has it that asks the store.
    open: Option<Opener>,
    server: Option<HttpServer>,
    wanted: Option<ListenAddress>,
}

struct Shared {
    tally: Arc<Tally>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last: Option<Look>,
    /// Since when somebody waits for the next look.
    wanted_since: Option<Moment>,
    is_over: bool,
    /// By the database's clock, in seconds since 1970.
    began_secs: Option<i64>,
}

/// The last look at the store.
#[derive(Clone)]
struct Look {
    at: Moment,
    took: Duration,
    /// None where it could not be asked.
    facts: Option<Arc<StoreFacts>>,
}

impl Monitor {
    /// Listens nowhere yet.
    #[must_use]
    pub fn new(ctx: &Context, tally: &Arc<Tally>) -> Self {
        let shared = Shared { tally: Arc::clone(tally), state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), open: Some(Box::new(ctx.reopener())), server: None, wanted: None }
    }

    /// Listens there from now on, or nowhere. Where it cannot, it goes on as before, unless it had to leave the old address for
    /// the new one, and somebody else has taken that: then it has none.
    ///
    /// # Errors
    /// Somebody else listens there; what the kernel refuses.
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

    /// The address that it has left, where nobody can listen at this one beside it.
    fn make_way_for(&mut self, address: &ListenAddress) -> Option<ListenAddress> {
        let server = self.server.take_if(|server| server.address().excludes(address))?;
        let left = server.address().clone();
        server.close();
        Some(left)
    }

    fn come_back_to(&mut self, address: &ListenAddress) {
        self.server = HttpServer::start(address, self.routes()).ok();
        if self.server.is_none() {
            // Whoever wants it once more is not told that it is so already.
            self.wanted = None;
        }
    }

    /// Where it listens.
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
        let route = |path, answer: fn(&Shared) -> Answer| -> Route {
            let shared = Arc::clone(&self.shared);
            (path, Box::new(move || answer(&shared)))
        };
        // A probe does not wait until metrics are written.
        vec![route("/healthz", Shared::health), route("/metrics", Shared::metrics)]
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn metrics(&self) -> Answer {
        let look = self.fresh_look();
        let took = look.as_ref().map_or(Duration::ZERO, |look| look.took);
        let facts = look.and_then(|look| look.facts);
        Answer { status: 200, content_type: CONTENT_TYPE, body: text(facts.as_deref(), took, Some(&self.worker())) }
    }

    /// Says no more than has to be known: it is asked by whoever can reach it.
    fn health(&self) -> Answer {
        let problem = if self.tally.stands_still_for() > LONGEST_STANDSTILL {
            Some("the worker does not turn\n")
        } else if self.tally.is_blocked() {
            Some("the worker claims nothing: too many handlers did not end\n")
        } else if self.tally.was_away() || self.fresh_look().is_none_or(|look| look.facts.is_none()) {
            Some("the database is away\n")
        } else {
            None
        };
        Answer {
            status: if problem.is_some() { 503 } else { 200 },
            content_type: "text/plain; charset=utf-8",
            body: problem.unwrap_or("ok\n").to_owned(),
        }
    }

    fn worker(&self) -> WorkerFacts {
        let memory_bytes = ProcessIdentity::own().ok().and_then(|own| memory_bytes(&own));
        WorkerFacts { memory_bytes, began_secs: self.lock().began_secs, ..self.tally.facts() }
    }

    /// A look at the store that is not old; `None` where nobody has one in time.
    fn fresh_look(&self) -> Option<Look> {
        let mut state = self.lock();
        loop {
            let is_fresh = |look: &&Look| look.at.elapsed() < FRESH_FOR;
            if let Some(look) = state.last.as_ref().filter(is_fresh) {
                return Some(look.clone());
            }
            let wanted_since = *state.wanted_since.get_or_insert_with(|| {
                self.changed.notify_all();
                Moment::now()
            });
            // Of those who come one after the other while it takes its time, only the first waits.
            let give_up = wanted_since.plus(PATIENCE);
            if state.is_over || give_up.has_passed() {
                let is_usable = |look: &Look| look.facts.is_some() && look.at.elapsed() < STALE_AFTER;
                return state.last.clone().filter(is_usable);
            }
            state = self.changed.wait_timeout(state, give_up.remaining()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until somebody wants to know how the store stands. Whether somebody will ever again.
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
        state.last = Some(Look { at: Moment::now(), took, facts: facts.map(Arc::new) });
        state.wanted_since = None;
        self.changed.notify_all();
    }
}

/// The thread. It may hang in a question to the database; nobody waits for its end.
fn look_when_wanted(shared: &Shared, open: &Opener) {
    let mut kept: Option<Context> = None;
    while shared.is_asked() {
        let began = Moment::now();
        let look_with = |mut ctx: Context| {
            // Who asks again will see whether it is back.
            ctx.store.give_up_when(|| true);
            let facts = look(&mut ctx)?;
            Ok((ctx, facts))
        };
        // A connection that was kept may have been closed meanwhile: that is no database that is away.
        let again = kept.take().and_then(|ctx| look_with(ctx).ok());
        let looked: EngineResult<_> = again.map_or_else(|| open().and_then(look_with), Ok);
        let (ctx, facts) = looked.map_or((None, None), |(ctx, facts)| (Some(ctx), Some(facts)));
        kept = ctx;
        shared.note(began.elapsed(), facts);
    }
}
