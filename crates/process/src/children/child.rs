//! Starts one handler process, watches it, and ends it when necessary: one thread, one poll loop.
//!
//! Independent of tasks and runs: the observer is notified of events and the caller decides what they mean. The calling thread
//! must stay alive, because the kernel kills the handler when that thread ends. Handlers must not be started with `Command`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use super::capture::{Captured, Stream};
use super::cause::{OomKills, explained};
use super::event_socket::EventSocket;
use super::exit::Exit;
use super::leftovers::end_leftovers;
pub use super::observer::{Control, IsReport, Observer};
use super::pump::Pump;
use crate::identities::adoption::Adopting;
use crate::identities::signalling::Signal;
use crate::spawning::spawn::{self, HandlerProcess};
pub use crate::spawning::spawn::{ChildSpec, is_lack_of_resources, prepare_process, rehearse};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::run::usage::Usage;
use taskqueue_host::clock::Moment;

/// The limits of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervision {
    /// The time from the start or the last report until the handler is ended; `None` means no limit.
    pub timeout: Option<Duration>,
    /// The time between TERM and KILL.
    pub kill_grace: Duration,
    /// How much of each output is captured, in bytes.
    pub output_limit_bytes: usize,
}

/// The result of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How the main process ended.
    pub ending: Ending,
    /// The captured standard output.
    pub stdout: Captured,
    /// The captured standard error.
    pub stderr: Captured,
    /// What it used; `None` if it did not start.
    pub usage: Option<Usage>,
}

impl Finished {
    /// Returns the result of a handler that could not be started.
    #[must_use]
    pub fn not_started(ending: Ending) -> Self {
        Self { ending, stdout: Captured::default(), stderr: Captured::default(), usage: None }
    }
}

/// How long the pipes are read after the main process and its group ended: a process that left the group may keep them open.
const DRAIN: Duration = Duration::from_secs(2);
/// How often the orphans of a running handler are checked.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Runs one handler to its end, in its own session. `stdin` is its whole input. Its events come from descriptor 3 and, with
/// `socket`, from messages that carry the token. If one of `alarms` becomes readable, the handler must end. Afterwards, no
/// descendant of it is alive, except processes that the kernel cannot kill or that another process adopted; `survivors` handles
/// those.
pub fn supervise(
    spec: &ChildSpec,
    stdin: &[u8],
    limits: &Supervision,
    alarms: &[BorrowedFd<'_>],
    socket: Option<(&EventSocket, &str)>,
    observer: &mut dyn Observer,
) -> Finished {
    let _adopting = Adopting::begin();
    let kills_before = OomKills::now();
    let (handler, pipes) = match spawn::start(spec) {
        Ok(started) => started,
        Err(ending) => return Finished::not_started(ending),
    };
    let mut pump = Pump::new(pipes, stdin, limits.output_limit_bytes, alarms, socket);
    observer.started(handler.identity());
    let (Exit { ending, usage }, kill_at) = watch(&handler, limits, &mut pump, observer);
    let ending = explained(ending, handler.identity().pid, &spec.rights.limits, kills_before);
    fault_point!("supervise.main_process_ended");
    pump.close_input();
    end_leftovers(handler, limits.kill_grace, kill_at, &mut pump, observer);
    fault_point!("supervise.group_ended");
    let drained = Moment::after(DRAIN);
    while pump.is_open() && !drained.has_passed() {
        pump.turn(&[], drained, observer);
    }
    let (stdout, stderr) = pump.finish(observer);
    Finished { ending, stdout, stderr, usage }
}

/// Waits until the main process has ended. It is then a zombie, so its PID and group are not reused. Also returns when its grace
/// period ends, if it was asked to end.
fn watch(
    handler: &HandlerProcess,
    limits: &Supervision,
    pump: &mut Pump<'_>,
    observer: &mut dyn Observer,
) -> (Exit, Option<Moment>) {
    let after_report = || Moment::after(limits.timeout.unwrap_or(Duration::MAX));
    let mut deadline = after_report();
    let mut look_again = Moment::after(LOOK_EVERY);
    let mut decided = None;
    let mut kill_at = None;
    loop {
        let turn = pump.turn(&[handler.as_fd()], deadline, observer);
        if turn.ended {
            let exit = Exit::of(handler.as_fd());
            return (Exit { ending: decided.unwrap_or(exit.ending), ..exit }, kill_at);
        }
        if turn.kill {
            decided = decided.or(Some(Ending::Stopped));
            deadline = Moment::now();
            kill_at = Some(deadline);
        }
        if decided.is_none() {
            if turn.reported {
                deadline = after_report();
            }
            let asked = turn.ask.map(|reason| (Ending::Stopped, reason));
            let asked = asked.or_else(|| deadline.has_passed().then_some((Ending::TimedOut, StopReason::Timeout)));
            if let Some((ending, reason)) = asked {
                decided = Some(ending);
                handler.ask_to_end(Some(reason));
                deadline = Moment::after(limits.kill_grace);
                kill_at = Some(deadline);
            }
        } else if deadline.has_passed() {
            handler.signal_group(Signal::KILL);
            // Repeated in case it is stuck in the kernel or has forked meanwhile.
            deadline = Moment::after(Duration::from_secs(1));
        }
        if look_again.has_passed() {
            // This reaps ended orphans: a handler that runs for days may leave many.
            let _ = handler.origin.left_behind();
            look_again = Moment::after(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod leftover_tests;
#[cfg(test)]
mod rights_tests;
#[cfg(test)]
mod tests;
