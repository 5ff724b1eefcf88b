//! Adopts the processes that a handler leaves behind, even after `setsid`, a double fork or with a cleared environment: they
//! become children of this process. Distinguishes them from children that this program started itself.
//!
//! While handlers run, this process is a subreaper: the kernel reparents orphaned descendants to it. An orphan of a handler is
//! never in the session of this process, because every handler starts its own session. Children that other parts of the program
//! started are in this session, unless they left it. If the handler has given up new privileges and the program has not, the
//! orphan must have given them up too.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use rustix::thread::no_new_privs;

use crate::identities::identity::ProcessIdentity;
use crate::identities::signalling::ProcessHandle;
use taskqueue_host::machine::proc_files::{
    Stat, children_of_main_thread, environment_entry, find_stat, has_no_new_privileges, other_processes, read_own_stat,
};

/// The most pidfds opened at once, so that a fork bomb cannot use up the descriptors; the next scan continues.
const AT_ONCE: usize = 256;

/// The maximum number of scans in one call. Processes that end faster than a scan are left to the next call.
const MOST_LOOKS: usize = 100;

/// Shared by threads that start handlers, each until its handler is in the registry. A scan holds it exclusively, so that it does
/// not take a new handler for an orphan.
static STARTS: RwLock<()> = RwLock::new(());

/// Held while a handler is reaped, so that the list of handlers is correct, and during a scan. Taken after `STARTS`.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { supervisions: 0, handlers: Vec::new() });

pub(crate) struct Registry {
    supervisions: usize,
    /// The main processes of all handlers of this process that were not reaped.
    handlers: Vec<i32>,
}

pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks scans until the guard is dropped; its holder starts a handler and adds it.
pub(crate) fn starting() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn nobody_starting() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn add(&mut self, pid: i32) {
        self.handlers.push(pid);
    }

    pub(crate) fn remove(&mut self, pid: i32) {
        self.handlers.retain(|handler| *handler != pid);
    }
}

/// While one of these exists, orphans are reparented to this process.
pub(crate) struct Adopting(());

impl Adopting {
    pub(crate) fn begin() -> Self {
        let mut registry = registry();
        if registry.supervisions == 0 {
            // No kernel with pidfds refuses this. Without it, orphans are found only by the token in their environment.
            let _ = set_child_subreaper(Some(getpid()));
        }
        registry.supervisions += 1;
        Self(())
    }
}

impl Drop for Adopting {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.supervisions -= 1;
        if registry.supervisions == 0 {
            let _ = set_child_subreaper(None);
        }
    }
}

/// How the processes of one handler are recognized.
#[derive(Clone, Debug)]
pub(crate) struct ProcessOrigin {
    /// Its main process.
    pub(crate) handler: ProcessIdentity,
    /// `NAME=value` in the environment of its processes; another value belongs to another handler.
    pub(crate) marker: Vec<u8>,
    /// Whether it and its descendants cannot gain privileges.
    pub(crate) no_new_privileges: bool,
}

/// A process as one scan read it.
#[derive(Clone, Copy)]
struct SeenProcess {
    pid: i32,
    stat: Stat,
}

/// The result of one scan of all processes, which keep running meanwhile.
struct Scan {
    family: Vec<SeenProcess>,
    has_reaped: bool,
}

impl ProcessOrigin {
    /// Returns live orphans of this handler and their descendants; reaps those that have ended.
    ///
    /// # Errors
    /// /proc cannot be read, or not now.
    pub(crate) fn left_behind(&self) -> io::Result<Vec<ProcessHandle>> {
        if !has_children() || has_no_orphans() {
            return Ok(Vec::new());
        }
        let own_session = read_own_stat()?.session;
        for _ in 0..MOST_LOOKS {
            if !has_children() {
                break;
            }
            let look = self.look(own_session)?;
            let handles: Vec<_> = look.family.iter().take(AT_ONCE).filter_map(handle_of).collect::<io::Result<_>>()?;
            // Otherwise scans again: a process that has just ended must be reaped, and may have had children, which had another
            // parent during this scan.
            if !handles.is_empty() || !look.has_reaped && look.family.is_empty() {
                return Ok(handles);
            }
        }
        Ok(Vec::new())
    }

    fn look(&self, own_session: i32) -> io::Result<Scan> {
        let mut look = Scan { family: Vec::new(), has_reaped: false };
        let mut others = Vec::new();
        {
            // Held only during the scan: other threads want to start handlers.
            let _nobody = nobody_starting();
            let registry = registry();
            for pid in other_processes()? {
                let Some(stat) = find_stat(pid)? else { continue };
                let seen = SeenProcess { pid, stat };
                if !self.is_orphan(&seen, own_session, &registry)? {
                    others.push(seen);
                } else if stat.has_ended() && reap(pid) {
                    look.has_reaped = true;
                } else {
                    look.family.push(seen);
                }
            }
        }
        add_descendants(&mut look.family, others);
        Ok(look)
    }

    fn is_orphan(&self, seen: &SeenProcess, own_session: i32, registry: &Registry) -> io::Result<bool> {
        let SeenProcess { pid, stat } = seen;
        let is_ours = stat.parent == getpid().as_raw_nonzero().get() && !registry.handlers.contains(pid);
        if !is_ours || stat.session == own_session || stat.start_ticks < self.handler.start_ticks {
            return Ok(false);
        }
        // The session of another live handler.
        if stat.session != self.handler.pid && registry.handlers.contains(&stat.session) {
            return Ok(false);
        }
        if self.no_new_privileges && !no_new_privs().unwrap_or(true) && has_no_new_privileges(*pid)? == Some(false) {
            return Ok(false);
        }
        let name = self.marker.split(|byte| *byte == b'=').next().unwrap_or_default();
        if name.is_empty() {
            return Ok(true);
        }
        Ok(match environment_entry(*pid, name)? {
            Some(entry) => entry == self.marker,
            // PID 1 of a container also gets the orphans of processes that entered it from outside.
            None => !getpid().is_init(),
        })
    }
}

/// Returns a handle to the process of the scan, if it is still alive.
fn handle_of(seen: &SeenProcess) -> Option<io::Result<ProcessHandle>> {
    let is_same = |pid| Ok(find_stat(pid)?.is_some_and(|stat| stat.start_ticks == seen.stat.start_ticks));
    ProcessHandle::open_if(seen.pid, is_same).transpose()
}

/// Checked before reading /proc: most handlers leave nothing behind.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// Returns true if this process has no orphans; false if that is unknown. Reads only the children of the main thread: the kernel
/// reparents orphans to the first live thread of a process.
///
/// The kernel may omit a child if another listed child is reaped during the read. Handlers are not reaped meanwhile, because the
/// registry is locked; any other listed child already means that there are orphans.
fn has_no_orphans() -> bool {
    let registry = registry();
    let children = children_of_main_thread();
    // Read afterwards: if the main thread is not ending yet, no orphan can have gone to another thread.
    let main_is_ending = read_own_stat().map(|main| main.is_ending);
    are_handlers(children, main_is_ending, &registry.handlers)
}

fn are_handlers(children: io::Result<Vec<i32>>, main_is_ending: io::Result<bool>, handlers: &[i32]) -> bool {
    let Ok(children) = children else { return false };
    main_is_ending.is_ok_and(|is_ending| !is_ending) && children.iter().all(|child| handlers.contains(child))
}

/// Only for orphans: no other code of this process waits for them.
fn reap(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG), Ok(Some(_)))
}

fn add_descendants(family: &mut Vec<SeenProcess>, mut others: Vec<SeenProcess>) {
    let mut next = 0;
    while let Some(parent) = family.get(next).map(|seen| seen.pid) {
        let (children, rest) = others.into_iter().partition::<Vec<_>, _>(|seen| seen.stat.parent == parent);
        family.extend(children);
        others = rest;
        next += 1;
    }
}

/// Asks processes that have left the running handler to end. Called once, so no process is asked twice.
pub(crate) fn ask_orphans_to_end(origin: &ProcessOrigin) {
    for orphan in origin.left_behind().unwrap_or_default() {
        let _ = orphan.ask_to_end();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use taskqueue_host::testing::{eventually, run_again_inside};

    const MODULE: &str = "identities::adoption::tests::";

    #[test]
    fn children_that_are_handlers_are_no_orphans_and_doubt_means_a_look() {
        let refused = || io::Error::from(io::ErrorKind::NotFound);
        assert!(are_handlers(Ok(vec![]), Ok(false), &[]));
        assert!(are_handlers(Ok(vec![7, 9]), Ok(false), &[9, 8, 7]));
        assert!(!are_handlers(Ok(vec![7, 9]), Ok(false), &[7]));
        assert!(!are_handlers(Err(refused()), Ok(false), &[7]), "the kernel does not say");
        assert!(!are_handlers(Ok(vec![7]), Ok(true), &[7]), "orphans may have gone to another thread");
        assert!(!are_handlers(Ok(vec![7]), Err(refused()), &[7]));
    }

    #[test]
    fn children_of_other_threads_are_no_reason_for_a_look_and_orphans_are() {
        if !run_again_inside(
            &["env"],
            &format!("{MODULE}children_of_other_threads_are_no_reason_for_a_look_and_orphans_are"),
        ) {
            return;
        }
        let _adopting = Adopting::begin();
        assert!(has_no_orphans());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(has_children() && has_no_orphans(), "it belongs to the thread of this test");
        let mut parent = Command::new("sh");
        parent.args(["-c", "sleep 600 >/dev/null & echo $!"]).stdout(Stdio::piped());
        let mut parent = parent.spawn().unwrap();
        let mut orphan = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut orphan).unwrap();
        parent.wait().unwrap();
        eventually(|| !has_no_orphans());
        let orphan = Pid::from_raw(orphan.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
        eventually(|| reap(orphan.as_raw_nonzero().get()));
        assert!(has_no_orphans());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// While one thread starts a handler, other threads start handlers and notice that theirs have ended.
    #[test]
    fn handlers_are_started_side_by_side() {
        if !run_again_inside(&["env"], &format!("{MODULE}handlers_are_started_side_by_side")) {
            return;
        }
        let _starting = starting();
        let other = std::thread::spawn(|| {
            let _starting = starting();
            has_no_orphans()
        });
        assert!(other.join().unwrap());
        assert!(STARTS.try_write().is_err(), "no look begins meanwhile");
    }
}
