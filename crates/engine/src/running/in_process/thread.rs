//! The thread of `process-run` that runs its Rust handlers one after the other. The main thread can give up on one that does
//! not end. A thread that was left behind exits after its handler, and the next run gets a new one.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread when the first handler runs.
#[derive(Default)]
pub(crate) struct HandlerThread {
    jobs: Option<Sender<Job>>,
}

impl HandlerThread {
    /// Begins a run.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(crate) fn begin(&mut self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let jobs = self.jobs.take().map_or_else(start, Ok)?;
        jobs.send(Box::new(job)).map_err(|error| io::Error::other(error.to_string()))?;
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Leaves the thread behind because its handler does not end; the next run gets a new one.
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
    while let Ok(job) = jobs.recv() {
        job();
    }
}
