//! The threads that ask the database. Diesel's connections block, so each thread owns one, and takes requests from a queue of
//! limited length: when it is full, the server says that it is busy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::configuration::{CurrentConfiguration, WebConfiguration};
use crate::hidden::Answered;
use crate::problem::Problem;
use taskqueue_engine::{Context, EngineError, EngineResult, StoreError};
use taskqueue_host::clock::Moment;

/// How many requests ask the database at the same time.
const THREADS: usize = 4;
/// How long a request repeats what a server that went away, or a locked store, refuses.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many further requests wait.
const WAITING: usize = 256;

/// Work of a request; returns whether the connection is still good.
type Job = Box<dyn FnOnce(EngineResult<&mut Context>) -> bool + Send>;

/// Calls use cases in the threads.
#[derive(Clone)]
pub(crate) struct Database {
    jobs: SyncSender<Job>,
    configuration: CurrentConfiguration,
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
        let (jobs, waiting) = sync_channel(WAITING);
        let waiting = Arc::new(Mutex::new(waiting));
        let (working, ended) = sync_channel(0);
        for number in 1..=THREADS {
            let (opener, waiting, working) = (context.reopener(), Arc::clone(&waiting), working.clone());
            let configuration = configuration.clone();
            thread::Builder::new().name(format!("database {number}")).spawn(move || {
                work(&opener, &configuration, &waiting);
                drop(working);
            })?;
        }
        Ok((Self { jobs, configuration: configuration.clone() }, Working(ended)))
    }

    /// Calls a use case, on behalf of this user.
    pub(crate) async fn call<T: Answered + Send + 'static>(
        &self,
        user: &str,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.call_or_undo(user, act, |_, _| ()).await
    }

    /// Like [`Self::call`]. If the client goes before it gets its answer, `undo` gets that.
    pub(crate) async fn call_or_undo<T: Answered + Send + 'static>(
        &self,
        user: &str,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
        undo: impl FnOnce(&mut Context, T) + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, answer) = oneshot::channel();
        let user = user.to_owned();
        let job: Job = Box::new(move |context| {
            // The client has gone, or got an error: then it must not be done later.
            if sender.is_closed() {
                return true;
            }
            let (result, context) = match context {
                Ok(context) => (context.on_behalf_of(&user, act), Some(context)),
                Err(error) => (Err(error), None),
            };
            let is_good =
                !matches!(&result, Err(EngineError::Store(error)) if !matches!(error, StoreError::NotFound(_)));
            if let (Err(Ok(unsent)), Some(context)) = (sender.send(result), context) {
                let _: EngineResult<()> = context.on_behalf_of(&user, |ctx| {
                    undo(ctx, unsent);
                    Ok(())
                });
            }
            is_good
        });
        self.jobs.try_send(job).map_err(|_| Problem::busy())?;
        let answered = answer.await.map_err(|_| Problem::failed("the request failed inside the server"))?;
        let mut answered = answered.map_err(Problem::from)?;
        self.hide_in(&mut answered);
        Ok(answered)
    }

    /// Hides what the configuration hides, as every answer of `call` does.
    pub(crate) fn hide_in(&self, answered: &mut impl Answered) {
        if let Some(classes) = &self.configuration.last().hidden_data {
            answered.hide(classes);
        }
    }
}

fn work(
    open: &dyn Fn() -> EngineResult<Context>,
    configuration: &CurrentConfiguration,
    waiting: &Mutex<Receiver<Job>>,
) {
    let mut connection: Option<Context> = None;
    let mut in_use: Option<Arc<WebConfiguration>> = None;
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let until = Moment::after(PATIENCE);
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
        context.store.give_up_when(move || until.has_passed());
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
