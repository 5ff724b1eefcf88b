//! The thread of `process-run` that runs its handlers in Rust, one after the other, so that the main thread can give up on one
//! that does not end. One that is left behind ends with its handler, and the next run gets another thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::desk::{Desk, run_at};
use crate::handler::overrun::OverrunAction;
use crate::handler::{RunContext, TaskHandler};

/// Starts its thread with the first handler.
#[derive(Default)]
pub(crate) struct HandlerThread {
    jobs: Option<Sender<Job>>,
}

struct Job {
    handler: Arc<dyn TaskHandler>,
    context: RunContext,
    desk: Arc<Desk>,
    action: OverrunAction,
}

impl HandlerThread {
    /// Begins this run.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn begin(
        &mut self,
        handler: Arc<dyn TaskHandler>,
        context: RunContext,
        desk: Arc<Desk>,
        action: OverrunAction,
    ) -> io::Result<()> {
        let jobs = self.jobs.take().map_or_else(start, Ok)?;
        jobs.send(Job { handler, context, desk, action }).map_err(io::Error::other)?;
        self.jobs = Some(jobs);
        Ok(())
    }

    /// The thread does not end its handler: the next run gets another one.
    pub(crate) fn leave(&mut self) {
        self.jobs = None;
    }
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, taken) = channel();
    thread::Builder::new().name("handler".to_owned()).spawn(move || work(&taken))?;
    Ok(jobs)
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(Job { handler, context, desk, action }) = jobs.recv() {
        run_at(&desk, handler.as_ref(), &context, action);
    }
}
