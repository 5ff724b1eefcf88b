//! Runs tasks with programs that are kept running: one process takes many runs, in sequence or several at once.
//! docs/coprocess.md specifies the protocol.
//!
//! A run that a process has received ends only with its answer, or with the end of the process and all its descendants. An
//! answer for another run never ends it. Like the rest of this folder, this module does not use the store.

mod attempt;
mod keeper;
mod member;
mod output_reader;
mod pool;
mod protocol;
mod shared_pool;
mod ticket;

use std::collections::HashMap;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::attempt::Attempt;
use self::pool::Pool;
use super::RunContext;
use super::command::{CommandHandler, CommandObserver, HandlerEnd};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::random;
use taskqueue_process::children::child::{Captured, ChildSpec};
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::survivors::runner_marker;

/// Set for a program that must use the protocol.
const PROTOCOL_VARIABLE: &str = "TASKQUEUE_PROTOCOL";
/// Variables of a single run, which a coprocess does not get.
const OF_A_RUN: &[&str] = &[
    "TASKQUEUE_TASK_ID",
    "TASKQUEUE_RUN_ID",
    "TASKQUEUE_ATTEMPT",
    "TASKQUEUE_MAX_RETRIES",
    "TASKQUEUE_CLASS",
    "TASKQUEUE_DEADLINE",
    "TASKQUEUE_PLANNED_ON",
    "TASKQUEUE_EVENTS_FD",
    "TASKQUEUE_EVENTS_SOCKET",
];
/// How often a process that sends nothing is pinged.
pub const PING_EVERY: Duration = Duration::from_secs(30);

/// A program that handles a task class and is kept running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoprocessHandler {
    /// The configured class, or the pattern that matches it.
    pub name: String,
    /// How it is started. The output limit applies to the standard error of each run.
    pub command: CommandHandler,
    /// What exit codes mean. An exit before all answers is never a success.
    pub exit_rules: ExitRules,
    /// The longest time from its start to its `hello`.
    pub start_timeout: Duration,
    /// The number of runs after which it is replaced.
    pub max_runs: Option<u64>,
    /// The age at which it is replaced.
    pub max_age: Option<Duration>,
    /// The resident memory of its main process, checked after each run, at which it is replaced.
    pub max_rss_bytes: Option<u64>,
    /// How often it is pinged; it must answer within the kill grace.
    pub ping_every: Duration,
}

impl CoprocessHandler {
    fn program(&self) -> &str {
        self.command.argv.first().map_or("nothing", String::as_str)
    }

    /// Returns the key of the pool for a class: classes share processes unless the command line contains the class.
    fn key<'a>(&'a self, class: &'a TaskClass) -> &'a str {
        let names_class = self.command.argv.iter().any(|argument| argument.contains("{class}"));
        if names_class { class } else { &self.name }
    }

    /// Returns what to start for a class. The environment has a token of its own, not that of a run: it distinguishes these
    /// processes from those of other handlers. The identity of the runner in the environment is how a rescue finds them when
    /// the runner has died.
    fn child_spec(&self, class: &TaskClass, runner: &ProcessIdentity) -> Result<ChildSpec, Ending> {
        let no_room = |error| Ending::NoRoom(format!("could not start {}: {error}", self.program()));
        let nobody = RunContext {
            task_id: 0,
            run_id: 0,
            attempt: 0,
            max_retries: 0,
            class: class.clone(),
            data: String::new(),
            token: random::token().map_err(no_room)?,
            planned_on: String::new(),
            timeout_secs: 0,
            deadline: String::new(),
        };
        let mut spec = self.command.child_spec(&nobody, None)?;
        let marker = runner_marker(runner);
        let (runner_variable, runner) = marker.split_once('=').unwrap_or_default();
        spec.env.retain(|(name, _)| {
            !OF_A_RUN.iter().chain(&[PROTOCOL_VARIABLE, runner_variable]).any(|variable| name == variable)
        });
        spec.env.push((PROTOCOL_VARIABLE.into(), "coprocess".into()));
        spec.env.push((runner_variable.into(), runner.into()));
        Ok(spec)
    }
}

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
        let mut attempt = match Attempt::new(handler, run, alarms, socket, observer) {
            Ok(attempt) => attempt,
            Err(end) => return *end,
        };
        loop {
            let pool = match self.pool(handler, &run.class) {
                Ok(pool) => pool,
                Err(why) => return did_not_start(Ending::NoRoom(why)),
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
        if let Some(pool) = of_class.iter().find(|pool| *pool.handler() == *handler) {
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
            if is_former(pool.handler()) {
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

/// Returns the end of a run that was never started.
fn did_not_start(ending: Ending) -> HandlerEnd {
    HandlerEnd {
        ending,
        error: None,
        results: None,
        unread_events: 0,
        first_unread: None,
        unknown_keys: Vec::new(),
        unended: None,
        stdout: Captured::default(),
        stderr: Captured::default(),
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
