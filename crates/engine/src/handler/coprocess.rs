//! Runs tasks by programs that are kept running: one process takes many runs, one after the other or several at once.
//! docs/coprocess.md is the specification of what is said.
//!
//! A run that is given to a process ends by an answer of that process, or with the end of that process and all that descends
//! from it; never by anything else, and never by what is said about another run. Knows nothing of the store, as the rest
//! of this folder.

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

/// Says to a program that it is to speak the protocol.
const PROTOCOL_VARIABLE: &str = "TASKQUEUE_PROTOCOL";
/// Variables of a single run, which a process of many does not get.
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
/// How often a process that says nothing is asked whether it lives.
pub const PING_EVERY: Duration = Duration::from_secs(30);

/// A program that handles a task class and is kept running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoprocessHandler {
    /// The class, or the pattern that stands for it, as it is configured.
    pub name: String,
    /// How it is started. The output limit holds for the standard error of each run.
    pub command: CommandHandler,
    /// What exit codes mean: to end before all answers are given is a success by none of them.
    pub exit_rules: ExitRules,
    /// From its start to its hello.
    pub start_timeout: Duration,
    /// Runs after which it makes way for a new process.
    pub max_runs: Option<u64>,
    /// Age at which it makes way for a new one.
    pub max_age: Option<Duration>,
    /// Resident memory of its main process, after the end of a run, at which it makes way for a new one.
    pub max_rss_bytes: Option<u64>,
    /// How often it is pinged; within the kill grace it must answer.
    pub ping_every: Duration,
}

impl CoprocessHandler {
    fn program(&self) -> &str {
        self.command.argv.first().map_or("nothing", String::as_str)
    }

    /// What tells the processes for one class from those for another.
    fn key<'a>(&'a self, class: &'a TaskClass) -> &'a str {
        let names_class = self.command.argv.iter().any(|argument| argument.contains("{class}"));
        if names_class { class } else { &self.name }
    }

    /// What is started for a class. The token in its environment is its own and no run's: by it, its processes are told from
    /// those of other handlers, and by the name of the runner they are found when that has died.
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

/// The coprocesses of this program, for all classes. Any number of threads may run tasks by them. They end when this is
/// dropped, or drained.
#[derive(Default)]
pub struct Coprocesses {
    pools: Mutex<Pools>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Pools {
    /// By what tells those of one class from those of another. More than one while runs of a class that was configured anew
    /// still end as they began.
    open: HashMap<String, Vec<Arc<Pool>>>,
    /// Those that were retired.
    closed: Vec<Arc<Pool>>,
}

impl Coprocesses {
    /// Runs one attempt, by a process that is there already or by a new one. The contract is that of [`CommandHandler::run`]:
    /// when this returns, nothing works for the run any more, unless the handler has left something running beside its
    /// answer.
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
            ProcessIdentity::own().map_err(|error| format!("could not tell which process this is: {error}"))?;
        let pool = Pool::new(handler.clone(), class.clone(), runner);
        pools.open.entry(key.to_owned()).or_default().push(Arc::clone(&pool));
        Ok(pool)
    }

    /// Lets those end, once they have no run any more, that were started by handlers of which nobody is to start any more.
    /// Waits for none of them.
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

    /// Lets all of them end, and waits for it. What is run afterwards starts new ones.
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

/// The end of a run that nobody has begun.
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
