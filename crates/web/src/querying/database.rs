//! The threads that ask the database. Diesel's connections block, so each thread owns one, and takes requests that wait. When too
//! many of a login do, the server says that it is busy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::configuration::{CurrentConfiguration, WebConfiguration};
use crate::querying::hidden::Answered;
use crate::querying::jobs::{Jobs, Share};
use crate::serving::problem::Problem;
use taskqueue_engine::{Context, Engine, EngineError, EngineResult, StoreError};
use taskqueue_host::clock::Moment;

/// The number of threads, each with a connection, if the database is a server.
const THREADS: usize = 7;
/// The same for SQLite. It allows one writer at a time, so that further threads would only retry.
const THREADS_OF_SQLITE: usize = 4;
/// How long a request may take, its body included; streams are answered before.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// How long a request repeats what a server that went away, or a locked store, refuses.
const PATIENCE_LIMIT: Duration = Duration::from_secs(5);
/// How many requests of one login wait for a thread.
const MOST_WAITING: usize = 256;
/// For whom the server itself asks, such as its pollers.
pub(crate) const SERVER: &str = "web";

/// Work of a request; returns whether the connection is still good.
type Job = Box<dyn FnOnce(EngineResult<&mut Context>) -> bool + Send>;

/// Calls use cases in the threads.
#[derive(Clone)]
pub(crate) struct Database {
    jobs: Arc<OpenJobs>,
    configuration: CurrentConfiguration,
}

/// Closes the jobs with the last copy of the database.
struct OpenJobs(Arc<Jobs<Job>>);

impl Drop for OpenJobs {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The threads, as long as one of them works.
pub(crate) struct Working(Receiver<()>);

impl Working {
    /// Waits until all have ended, at most for this time: a client library must not be in use while the process exits.
    pub(crate) fn wait(&self, limit: Duration) {
        let _ = self.0.recv_timeout(limit);
    }
}

impl Database {
    /// Starts the threads; they connect when the first request comes, and end with the last copy of the database. Returns also
    /// what ends with them.
    pub(crate) fn start(context: &Context, configuration: &CurrentConfiguration) -> std::io::Result<(Self, Working)> {
        let threads = if context.store.url().engine() == Engine::Sqlite { THREADS_OF_SQLITE } else { THREADS };
        // The slow requests of one login leave a thread for the others.
        let share = Share { running: threads - 1, waiting: MOST_WAITING };
        let jobs = Arc::new(Jobs::new(share, SERVER));
        let open = Arc::new(OpenJobs(Arc::clone(&jobs)));
        let (working, ended) = sync_channel(0);
        for number in 1..=threads {
            let (opener, jobs, working) = (context.reopener(), Arc::clone(&jobs), working.clone());
            let configuration = configuration.clone();
            thread::Builder::new().name(format!("database {number}")).spawn(move || {
                work(&opener, &configuration, &jobs);
                drop(working);
            })?;
        }
        Ok((Self { jobs: open, configuration: configuration.clone() }, Working(ended)))
    }

    /// Calls a use case, on behalf of this user.
    pub(crate) async fn call<T: Answered + Send + 'static>(
        &self,
        user: &str,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.call_or_undo(user, act, |answered| answered, |_, _| ()).await
    }

    /// Like [`Self::call`]. The answer is shown in the thread, too: it can be large, and the server has few other threads. If the
    /// client goes before it gets its answer, `undo` gets that.
    pub(crate) async fn call_or_undo<T: Answered, V: Send + 'static>(
        &self,
        user: &str,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
        show: impl FnOnce(T) -> V + Send + 'static,
        undo: impl FnOnce(&mut Context, V) + Send + 'static,
    ) -> Result<V, Problem> {
        let (sender, answer) = oneshot::channel();
        let (on_behalf, configuration) = (user.to_owned(), self.configuration.clone());
        let job: Job = Box::new(move |context| {
            // The client has gone, or got an error: then it must not be done later.
            if sender.is_closed() {
                return true;
            }
            let (result, context) = match context {
                Ok(context) => (context.on_behalf_of(&on_behalf, act), Some(context)),
                Err(error) => (Err(error), None),
            };
            let is_good =
                !matches!(&result, Err(EngineError::Store(error)) if !matches!(error, StoreError::NotFound(_)));
            let result = result.map(|mut answered| {
                hide_in(&configuration, &mut answered);
                show(answered)
            });
            if let (Err(Ok(unsent)), Some(context)) = (sender.send(result), context) {
                let _: EngineResult<()> = context.on_behalf_of(&on_behalf, |ctx| {
                    undo(ctx, unsent);
                    Ok(())
                });
            }
            is_good
        });
        if !self.jobs.0.add(user, job) {
            return Err(Problem::busy());
        }
        let answered = answer.await.map_err(|_| Problem::failed("the request failed inside the server"))?;
        answered.map_err(Problem::from)
    }

    /// Hides what the configuration hides, as in every answer of `call`.
    pub(crate) fn hide_in(&self, answered: &mut impl Answered) {
        hide_in(&self.configuration, answered);
    }
}

fn hide_in(configuration: &CurrentConfiguration, answered: &mut impl Answered) {
    if let Some(classes) = &configuration.last().hidden_data {
        answered.hide(classes);
    }
}

/// Until when a request repeats what fails. One that makes many changes has it anew after each, until its client gets no answer.
#[derive(Clone)]
pub(crate) struct Patience {
    until: Arc<Mutex<Moment>>,
    no_longer_from: Moment,
}

impl Patience {
    pub(crate) fn new() -> Self {
        let until = Arc::new(Mutex::new(Moment::after(PATIENCE_LIMIT)));
        Self { until, no_longer_from: Moment::after(REQUEST_LIMIT - 2 * PATIENCE_LIMIT) }
    }

    /// Has the store give up when it is over.
    pub(crate) fn hold(&self, context: &mut Context) {
        let until = Arc::clone(&self.until);
        context.store.give_up_when(move || until.lock().unwrap_or_else(PoisonError::into_inner).has_passed());
    }

    pub(crate) fn renew(&self) {
        if !self.no_longer_from.has_passed() {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Moment::after(PATIENCE_LIMIT);
        }
    }
}

fn work(open: &dyn Fn() -> EngineResult<Context>, configuration: &CurrentConfiguration, jobs: &Jobs<Job>) {
    let mut connection: Option<Context> = None;
    let mut in_use: Option<Arc<WebConfiguration>> = None;
    while let Some((_turn, job)) = jobs.next() {
        let patience = Patience::new();
        if connection.is_none() {
            match open() {
                Ok(mut opened) => {
                    opened.store.wait_silently();
                    connection = Some(opened);
                    in_use = None;
                }
                Err(error) => {
                    job(Err(error));
                    continue;
                }
            }
        }
        let Some(context) = &mut connection else { continue };
        patience.hold(context);
        let latest = configuration.last();
        if in_use.as_ref().is_none_or(|in_use| !Arc::ptr_eq(in_use, &latest)) {
            context.use_classes(latest.classes.clone());
            in_use = Some(latest);
        }
        // A panic ends one request, not the thread.
        if !catch_unwind(AssertUnwindSafe(|| job(Ok(context)))).unwrap_or(false) {
            connection = None;
        }
    }
}
