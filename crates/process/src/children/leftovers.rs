//! Ends the processes that a handler leaves behind after its main process ended, in any group or session.
//!
//! The first TERM goes to the group while the zombie of the main process still reserves the PID. After it was reaped, no signal
//! is sent to that PID. The remaining processes are orphans of this process (`adoption`), signalled one by one through pidfds.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::Duration;

use super::observer::Observer;
use super::pump::Pump;
use crate::identities::signalling::Signal;
use crate::spawning::spawn::HandlerProcess;
use taskqueue_host::clock::Moment;

/// The longest time that remaining processes get to end, even if the grace period of the class is longer.
const LONGEST_GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to disappear before the runner continues without them.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// The pause after orphans could not be searched for.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Reaps the ended handler and ends what is left of it, serving the pipes meanwhile. `kill_at` is the end of its grace period, if
/// it was already asked to end.
pub(crate) fn end_leftovers(
    handler: HandlerProcess,
    kill_grace: Duration,
    kill_at: Option<Moment>,
    pump: &mut Pump<'_>,
    observer: &mut dyn Observer,
) {
    handler.signal_group(Signal::TERM);
    handler.signal_group(Signal::CONT);
    let origin = handler.origin.clone();
    handler.reap();
    let patience = Moment::after(kill_grace.min(LONGEST_GRACE));
    let kill_at = kill_at.map_or(patience, |kill_at| kill_at.min(patience));
    let give_up = kill_at.max(Moment::now()).plus(KILL_WAIT);
    let mut asked = HashSet::new();
    while !give_up.has_passed() {
        let mut members = match origin.left_behind() {
            Ok(members) if members.is_empty() => break,
            Ok(members) => members,
            // /proc can be read again when other handlers have returned their descriptors or memory.
            Err(_) => {
                pump.turn(&[], give_up.min(Moment::after(RETRY_AFTER)), observer);
                continue;
            }
        };
        let count = members.len();
        while members.len() == count && !give_up.has_passed() {
            let is_over = kill_at.has_passed();
            for member in &members {
                if is_over {
                    let _ = member.signal(Signal::KILL);
                } else if asked.insert(member.pid()) {
                    let _ = member.ask_to_end();
                }
            }
            let fds = members.iter().map(AsFd::as_fd).collect::<Vec<_>>();
            pump.turn(&fds, if is_over { give_up } else { kill_at }, observer);
            // The end of one process may have reparented others to this process.
            members.retain(|member| !member.has_ended());
        }
    }
}
