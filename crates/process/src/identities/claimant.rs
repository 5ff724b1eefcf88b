//! The process of a claimant: a worker that this program did not start. When its claim expires, it is asked to end and never
//! killed: it may be working for other programs too.
//!
//! A row is not proof: it may have been forged to end a process of another user. A process is asked only if its environment,
//! which no other process can write, names this claimant.

use std::io;
use std::time::Duration;

use super::identity::ProcessIdentity;
use crate::identities::signalling::ProcessHandle;
use taskqueue_host::machine::proc_files::{Shown, environment_shows};

/// The variable in which a process names its claimant.
pub const VARIABLE: &str = "TASKQUEUE_CLAIMANT";

/// The result of asking a claimant's process to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndAnswer {
    /// It was asked and has ended.
    Ended,
    /// It is still running, for this reason.
    Lives(String),
    /// There is no process to ask: it is dead, on another host, or this process itself.
    Nobody,
}

/// Returns true if the environment of the process with this PID names this claimant; false also if it cannot be read.
#[must_use]
pub fn is_shown_by(pid: i32, claimant: &str) -> bool {
    shows(pid, claimant).unwrap_or(false)
}

fn shows(pid: i32, claimant: &str) -> io::Result<bool> {
    Ok(environment_shows(pid, format!("{VARIABLE}={claimant}").as_bytes())? == Shown::Yes)
}

/// Asks the process to end and waits for at most `grace`.
#[must_use]
pub fn ask_to_end(identity: &ProcessIdentity, claimant: &str, grace: Duration) -> EndAnswer {
    let is_own = u32::try_from(identity.pid) == Ok(std::process::id());
    if !identity.is_same_view() || is_own {
        return EndAnswer::Nobody;
    }
    let pid = identity.pid;
    let lives = |why: &str| EndAnswer::Lives(format!("its process {pid} {why}"));
    let asked = || -> io::Result<EndAnswer> {
        let Some(process) = ProcessHandle::open(identity)? else { return Ok(EndAnswer::Nobody) };
        // While the process is held open, its PID is not reused.
        if !shows(pid, claimant)? {
            return Ok(lives(&format!("was not asked to end: it does not show {VARIABLE}")));
        }
        process.ask_to_end()?;
        Ok(if process.wait_gone(grace) { EndAnswer::Ended } else { lives("was asked to end and has not yet") })
    };
    asked().unwrap_or_else(|error| lives(&format!("cannot be asked to end: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    const GRACE: Duration = Duration::from_secs(20);

    fn start(script: &str, claimant: Option<&str>) -> (Child, ProcessIdentity) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env_remove(VARIABLE).envs(claimant.map(|name| (VARIABLE, name)));
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
        (child, identity)
    }

    #[test]
    fn who_shows_the_name_is_asked_to_end_and_nobody_else() {
        let (mut child, identity) = start("exec sleep 600", Some("bot"));
        // Waits until /proc shows the environment after the exec.
        taskqueue_host::testing::eventually(|| is_shown_by(identity.pid, "bot"));
        for name in ["other", "bo", "bot2", ""] {
            assert!(matches!(ask_to_end(&identity, name, GRACE), EndAnswer::Lives(_)), "{name}");
        }
        let forged = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity.clone() };
        assert_eq!(ask_to_end(&forged, "bot", GRACE), EndAnswer::Nobody);
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(ask_to_end(&identity, "bot", GRACE), EndAnswer::Ended);
        child.wait().unwrap();
        assert_eq!(ask_to_end(&identity, "bot", GRACE), EndAnswer::Nobody);
        assert_eq!(ask_to_end(&ProcessIdentity::own().unwrap(), "bot", GRACE), EndAnswer::Nobody);
    }

    #[test]
    fn who_does_not_obey_is_named_and_lives_on() {
        use std::io::Read as _;
        let (mut child, identity) = start("trap '' TERM; echo; while :; do sleep 1; done", Some("bot"));
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let EndAnswer::Lives(why) = ask_to_end(&identity, "bot", Duration::from_millis(50)) else { panic!() };
        assert!(why.contains(&identity.pid.to_string()), "{why}");
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
