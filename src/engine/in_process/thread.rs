//! The thread of a slot that runs its handlers in Rust, one after the other. One that is left behind ends with its handler, and
//! the slot takes another one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::super::cancel_order::CancelOrder;
use super::desk::{Desk, DeskReporter, OpenInbox};
use crate::handler::overrun::{Overrun, OverrunAction};
use crate::handler::{HandlerError, RunContext, TaskHandler, run_rust_handler};
use crate::os::survivors::thread_name;
use crate::os::thread_names::name_own_thread;

/// The name of a thread that waits for a handler.
const IDLE: &str = "handler";

/// Starts its thread with the first handler.
#[derive(Default)]
pub(in super::super) struct HandlerThread {
    jobs: Option<Sender<Job>>,
}

struct Job {
    handler: Arc<dyn TaskHandler>,
    context: RunContext,
    desk: Arc<Desk>,
    shows_run: bool,
}

impl HandlerThread {
    /// Begins this run.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(in super::super) fn begin(
        &mut self,
        handler: Arc<dyn TaskHandler>,
        context: &RunContext,
        order: Arc<CancelOrder>,
        open_inbox: OpenInbox,
        overrun: &Overrun,
    ) -> io::Result<Arc<Desk>> {
        let desk = Arc::new(Desk::new(order, open_inbox, Arc::clone(&overrun.left_behind)));
        let job = Job {
            handler,
            context: context.clone(),
            desk: Arc::clone(&desk),
            // A process that shows it is killed by whoever finds that it has lost the run.
            shows_run: overrun.action == OverrunAction::Abort,
        };
        let jobs = self.jobs.take().map_or_else(start, Ok)?;
        jobs.send(job).map_err(io::Error::other)?;
        self.jobs = Some(jobs);
        Ok(desk)
    }

    /// The thread does not end its handler: the next run gets another one.
    pub(in super::super) fn leave(&mut self) {
        self.jobs = None;
    }
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, taken) = channel();
    thread::Builder::new().name(IDLE.to_owned()).spawn(move || work(&taken))?;
    Ok(jobs)
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(Job { handler, context, desk, shows_run }) = jobs.recv() {
        if shows_run {
            name_own_thread(&thread_name(&context.token));
        }
        let mut ending = Ending { desk: &desk, result: None };
        ending.result = Some(run_rust_handler(handler.as_ref(), &context, &mut DeskReporter(&desk)));
        if shows_run {
            name_own_thread(IDLE);
        }
    }
}

/// Tells the slot that the handler has ended, also where it ended its thread.
struct Ending<'a> {
    desk: &'a Desk,
    result: Option<Result<(), HandlerError>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let ended_thread = || Err(HandlerError::new("panic", "the handler ended its thread"));
        self.desk.end(self.result.take().unwrap_or_else(ended_thread));
    }
}
