//! The threads that ask the database. Diesel's connections block, so each thread owns one, and takes requests from a queue of
//! limited length: when it is full, the server says that it is busy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::problem::Problem;
use taskqueue_engine::{Context, EngineError, EngineResult, StoreError};

/// How many requests ask the database at the same time.
const THREADS: usize = 4;
/// How many further requests wait.
const WAITING: usize = 256;

/// Opens a connection of its own.
pub(crate) type Opener = dyn Fn() -> EngineResult<Context> + Send;
/// Work of a request; returns whether the connection is still good.
type Job = Box<dyn FnOnce(EngineResult<&mut Context>) -> bool + Send>;

/// The way of the handlers to the database.
#[derive(Clone)]
pub(crate) struct Database {
    jobs: SyncSender<Job>,
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
    pub(crate) fn start(opener: Box<Opener>) -> std::io::Result<(Self, Working)> {
        let (jobs, waiting) = sync_channel(WAITING);
        let (opener, waiting) = (Arc::new(Mutex::new(opener)), Arc::new(Mutex::new(waiting)));
        let (working, ended) = sync_channel(0);
        for number in 1..=THREADS {
            let (opener, waiting, working) = (Arc::clone(&opener), Arc::clone(&waiting), working.clone());
            thread::Builder::new().name(format!("database {number}")).spawn(move || {
                work(&opener, &waiting);
                drop(working);
            })?;
        }
        Ok((Self { jobs }, Working(ended)))
    }

    /// Calls a use case, on behalf of this user.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        user: &str,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let (tell, told) = oneshot::channel();
        let user = user.to_owned();
        let job: Job = Box::new(move |context| {
            let result = context.and_then(|context| context.on_behalf_of(&user, act));
            let is_good =
                !matches!(&result, Err(EngineError::Store(error)) if !matches!(error, StoreError::NotFound(_)));
            // Who asked may have gone.
            let _ = tell.send(result);
            is_good
        });
        self.jobs.try_send(job).map_err(|_| Problem::busy())?;
        told.await.map_err(|_| Problem::failed("the request failed inside the server"))?.map_err(Problem::from)
    }
}

fn work(opener: &Mutex<Box<Opener>>, waiting: &Mutex<Receiver<Job>>) {
    let mut connection: Option<Context> = None;
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        if connection.is_none() {
            match opener.lock().unwrap_or_else(PoisonError::into_inner)() {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    job(Err(error));
                    continue;
                }
            }
        }
        let Some(context) = &mut connection else { continue };
        // A panic ends one request, not the thread.
        if !catch_unwind(AssertUnwindSafe(|| job(Ok(context)))).unwrap_or(false) {
            connection = None;
        }
    }
}
