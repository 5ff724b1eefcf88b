//! Runs tasks with programs that are kept running: one process takes many runs, in sequence or several at once.
//! docs/coprocess.md specifies the protocol.
//!
//! A run that a process has received ends only with its answer, or with the end of the process and all its descendants. An
//! answer for another run never ends it. Like the rest of this folder, this module does not use the store.

mod attempt;
mod coprocess_handler;
mod keeper;
mod member;
mod output_reader;
mod placing;
mod pool;
mod protocol;
mod ticket;

use std::collections::HashMap;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::attempt::CoprocessAttempt;
pub use self::coprocess_handler::{CoprocessHandler, PING_EVERY};
use self::pool::Pool;
use super::RunContext;
use super::command::{CommandObserver, HandlerEnd};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The coprocesses of this program, for all classes. Any number of threads may run tasks with them. Dropping or draining this
/// ends them.
#[derive(Default)]
pub struct Coprocesses {
    pools: Mutex<Pools>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Pools {
    /// Pools by key. A key has several while runs of a reconfigured class still finish with its old configuration.
    open: HashMap<String, Vec<Arc<Pool>>>,
    /// Retired pools.
    closed: Vec<Arc<Pool>>,
}

impl Coprocesses {
    /// Runs one attempt, with an existing process or a new one. The contract is that of [`CommandHandler::run`]: when this
    /// returns, nothing processes the run any more, unless the handler left a process running after its answer.
    pub fn run(
        &self,
        handler: &CoprocessHandler,
        run: &RunContext,
        alarms: &[BorrowedFd<'_>],
        socket: Option<&EventSocket>,
        observer: &mut dyn CommandObserver,
    ) -> HandlerEnd {
        let next_number = || self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut attempt = match CoprocessAttempt::new(handler, run, alarms, socket, observer) {
            Ok(attempt) => attempt,
            Err(end) => return *end,
        };
        loop {
            let pool = match self.pool(handler, &run.class) {
                Ok(pool) => pool,
                Err(why) => return HandlerEnd::of(Ending::NoRoom(why)),
            };
            if let Some(end) = attempt.run_by(&pool, next_number()) {
                return end;
            }
        }
    }

    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self, handler: &CoprocessHandler, class: &TaskClass) -> Result<Arc<Pool>, String> {
        let key = handler.key(class);
        let mut pools = self.pools();
        let of_class = pools.open.get(key).map_or(&[][..], Vec::as_slice);
        if let Some(pool) = of_class.iter().find(|pool| pool.handler == *handler) {
            return Ok(Arc::clone(pool));
        }
        let runner =
            ProcessIdentity::own().map_err(|error| format!("could not identify the process of the runner: {error}"))?;
        let pool = Pool::new(handler.clone(), class.clone(), runner);
        pools.open.entry(key.to_owned()).or_default().push(Arc::clone(&pool));
        Ok(pool)
    }

    /// Ends the processes of the handlers for which `is_former` returns true, each as soon as it has no run. Does not wait for
    /// them.
    pub fn retire(&self, is_former: &dyn Fn(&CoprocessHandler) -> bool) {
        let mut pools = self.pools();
        pools.closed.retain(|closed| !closed.has_ended());
        let all = mem::take(&mut pools.open);
        for (key, pool) in
            all.into_iter().flat_map(|(key, of_class)| of_class.into_iter().map(move |pool| (key.clone(), pool)))
        {
            if is_former(&pool.handler) {
                pool.close();
                pools.closed.push(pool);
            } else {
                pools.open.entry(key).or_default().push(pool);
            }
        }
    }

    /// Ends all processes and waits until they have ended. A later run starts new ones.
    pub fn drain(&self) {
        let Pools { open, closed } = mem::take(&mut *self.pools());
        let all: Vec<_> = open.into_values().flatten().chain(closed).collect();
        for pool in &all {
            pool.close();
        }
        for pool in &all {
            pool.wait();
        }
    }
}

impl Drop for Coprocesses {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod ends_tests;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod lives_tests;
#[cfg(test)]
mod tests;
