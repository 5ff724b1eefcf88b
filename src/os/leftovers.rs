//! Ends the rest of a handler's process group after its main process ended.
//!
//! The first TERM goes to the group while the zombie of the main process still owns the number. Once it is reaped, a
//! probe (signal 0) says whether anybody is left; the number stays reserved while somebody is, but nothing is sent to
//! it any more: members are signalled one by one through pidfds.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::clock::Moment;
use super::observer::Observer;
use super::proc_files::{other_processes, read_own_stat, read_stat};
use super::pump::Pump;
use super::signalling::{ProcessHandle, Signal};
use super::spawn::Handler;

/// The rest of a group gets no longer than this to end by itself, however patient the class is with its handler.
const LONGEST_GRACE: Duration = Duration::from_secs(2);
/// How long killed members may take to vanish before we go on without them.
const KILL_WAIT: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 256;

/// Reaps the ended handler and ends what is left of its group, serving the pipes meanwhile.
pub(super) fn end_group(handler: Handler, kill_grace: Duration, pump: &mut Pump<'_>, observer: &mut dyn Observer) {
    handler.signal_group(Signal::TERM);
    handler.signal_group(Signal::CONT);
    let group = handler.identity.pid;
    handler.reap();
    let kill_at = Moment::after(kill_grace.min(LONGEST_GRACE));
    let give_up = kill_at.plus(KILL_WAIT);
    while is_inhabited(group) && !give_up.has_passed() {
        let mut members = members(group);
        if members.is_empty() {
            // Zombies that their parent does not reap, or the number already has a new owner.
            return;
        }
        // A member forked after the TERM is asked nothing: it has until the KILL like the others.
        while !members.is_empty() && !give_up.has_passed() {
            let is_over = kill_at.has_passed();
            if is_over {
                for member in &members {
                    let _ = member.signal(Signal::KILL);
                }
            }
            let fds = members.iter().map(AsFd::as_fd).collect::<Vec<_>>();
            pump.turn(&fds, if is_over { give_up } else { kill_at }, observer);
            members.retain(|member| !member.has_ended());
        }
    }
}

/// Signal 0 reaches nobody, so the question is harmless even if the number is somebody else's by now.
fn is_inhabited(group: i32) -> bool {
    Pid::from_raw(group).is_some_and(|group| test_kill_process_group(group) != Err(Errno::SRCH))
}

/// The living members of the group of a reaped handler. A process whose PID is the group's number means that the old
/// group died out and the number was given away; a handler's group is also always in our own session.
fn members(group: i32) -> Vec<ProcessHandle> {
    let is_given_away = read_stat(group).is_ok();
    let (false, Ok(own), Ok(processes)) = (is_given_away, read_own_stat(), other_processes()) else {
        return Vec::new();
    };
    let is_member =
        |pid| read_stat(pid).is_ok_and(|stat| stat.group == group && stat.session == own.session && !stat.has_ended());
    let handles =
        processes.filter(|pid| is_member(*pid)).filter_map(|pid| ProcessHandle::open_if(pid, is_member).ok()?);
    handles.take(AT_ONCE).collect()
}
