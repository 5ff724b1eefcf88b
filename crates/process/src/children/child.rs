//! Starts one handler process, watches it until it ends, and makes it end when it must: one thread, one poll loop.
//!
//! Knows no task and no run: the observer is told what happens and the caller decides what it means. The thread that
//! calls must be one that lives on, because the kernel kills the handler when that thread ends. `Command` elsewhere in
//! the program must not be used for handlers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::adoption::Adopting;
pub use super::capture::{Captured, Stream};
use super::cause::{OomKills, explained};
use super::event_socket::EventSocket;
use super::leftovers::end_leftovers;
pub use super::observer::{Control, Keep, Observer};
use super::pump::Pump;
use crate::signals::signalling::Signal;
pub use crate::spawning::spawn::ChildSpec;
use crate::spawning::spawn::{self, Handler};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::Moment;

/// The limits of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervision {
    /// From the start or the last report until it is ended; `None` never.
    pub timeout: Option<Duration>,
    /// Between TERM and KILL.
    pub kill_grace: Duration,
    /// How much of each output is kept, in bytes.
    pub output_limit_bytes: usize,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How the main process ended.
    pub ending: Ending,
    /// What is kept of standard output.
    pub stdout: Captured,
    /// What is kept of standard error.
    pub stderr: Captured,
}

/// How long the pipes are read after the main process and its group ended: a process that left the group may hold them
/// for ever.
const DRAIN: Duration = Duration::from_secs(2);
/// How often orphans of a running handler are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Makes this process fit to start handlers: best called first of all. [`supervise`] does it as well.
///
/// # Errors
/// When /proc cannot be opened.
pub fn prepare_process() -> io::Result<()> {
    spawn::prepare_this_process()
}

/// Why this could not be started now: its user, its limits, its directory, the permission to execute it. Nothing is
/// executed. The program must be an absolute path.
///
/// # Errors
/// Says why, as [`supervise`] would.
pub fn rehearse(spec: &ChildSpec) -> Result<(), Ending> {
    spawn::rehearse(spec)
}

/// Runs one handler to its end: its own session, `stdin` as its whole input, events on descriptor 3 and, with `socket`,
/// the messages that carry the token. One of `alarms` is readable when it must end now. Afterwards nothing that descends from it
/// lives, except what the kernel cannot kill or what another process took over; that is for `survivors`.
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
        Err(ending) => return Finished { ending, stdout: Captured::default(), stderr: Captured::default() },
    };
    let mut pump = Pump::new(pipes, stdin, limits.output_limit_bytes, alarms, socket);
    observer.started(handler.identity());
    let (ending, kill_at) = watch(&handler, limits, &mut pump, observer);
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
    Finished { ending, stdout, stderr }
}

/// Until the main process has ended; it is a zombie then, so that its PID and group are still its own. Also says when its
/// time is over, if it was asked to end.
fn watch(
    handler: &Handler,
    limits: &Supervision,
    pump: &mut Pump<'_>,
    observer: &mut dyn Observer,
) -> (Ending, Option<Moment>) {
    let after_report = || Moment::after(limits.timeout.unwrap_or(Duration::MAX));
    let mut deadline = after_report();
    let mut look_again = Moment::after(LOOK_EVERY);
    let mut decided = None;
    let mut kill_at = None;
    loop {
        let turn = pump.turn(&[handler.as_fd()], deadline, observer);
        if turn.ended {
            return (decided.unwrap_or_else(|| ending_of(handler)), kill_at);
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
            // Should it be stuck in the kernel, or have forked meanwhile: once more.
            deadline = Moment::after(Duration::from_secs(1));
        }
        if look_again.has_passed() {
            // Those that have ended are reaped by it: a handler of many days may make many.
            let _ = handler.origin.left_behind();
            look_again = Moment::after(LOOK_EVERY);
        }
    }
}

/// Looks without reaping (NOWAIT).
pub(crate) fn ending_of(handler: &Handler) -> Ending {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = loop {
        match waitid(WaitId::PidFd(handler.as_fd()), options) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    match status {
        Some(status) => match status.exit_status() {
            Some(code) => Ending::Exited(code),
            None => Ending::Signalled(status.terminating_signal().unwrap_or(0)),
        },
        None => Ending::Signalled(0),
    }
}

#[cfg(test)]
mod leftover_tests;
#[cfg(test)]
mod rights_tests;
#[cfg(test)]
mod tests;
