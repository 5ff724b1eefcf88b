//! Finds the cause of a signal that killed a handler and that the runner did not send, as far as the kernel reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::param::clock_ticks_per_second;
use rustix::process::Signal;

use crate::identities::cgroup::own_group;
use taskqueue_domain::limits::confinement::Limits;
use taskqueue_domain::run::ending::Ending;
use taskqueue_host::machine::proc_files::read_stat;

/// How often the kernel killed a process of this control group because the group was out of memory; `None` if it does not report
/// that (version 1, the root group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OomKills(Option<u64>);

impl OomKills {
    /// Reads the current number.
    pub(crate) fn now() -> Self {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        Self(FILE.get_or_init(find_events).as_deref().and_then(count))
    }

    fn have_risen_since(self, earlier: Self) -> bool {
        self.0.zip(earlier.0).is_some_and(|(now, before)| now > before)
    }
}

fn find_events() -> Option<PathBuf> {
    // The worker's own group lacks this file; the surrounding group counts for both.
    own_group().ok()??.ancestors().map(|group| group.join("memory.events")).find(|file| file.exists())
}

fn count(file: &Path) -> Option<u64> {
    let events = fs::read_to_string(file).ok()?;
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Adds the cause of a signal, if it is known. `pid` is still a zombie, whose times can be read.
pub(crate) fn explained(ending: Ending, pid: i32, limits: &Limits, before: OomKills) -> Ending {
    let Ending::Signalled(signal) = ending else { return ending };
    let is = |other: Signal| signal == other.as_raw();
    let over_cpu = |secs: u64| format!("over its limit of {secs} seconds of processor time");
    let why = if is(Signal::XCPU) {
        limits.cpu_secs.map_or_else(|| "over the limit of processor time that its runner has".to_owned(), over_cpu)
    } else if is(Signal::XFSZ) {
        match limits.file_size_bytes {
            Some(bytes) => format!("over its limit of {bytes} bytes for a file"),
            None => "over the limit for the size of a file that its runner has".to_owned(),
        }
    } else if is(Signal::KILL) {
        match limits.cpu_secs.filter(|secs| cpu_secs(pid).is_some_and(|used| used >= *secs)) {
            Some(secs) => over_cpu(secs),
            None if OomKills::now().have_risen_since(before) => {
                "killed by the kernel, because its control group was out of memory".to_owned()
            }
            None => "killed by signal 9, which taskqueue did not send; perhaps the kernel was out of memory".to_owned(),
        }
    } else {
        return Ending::Signalled(signal);
    };
    Ending::Killed { signal, why }
}

fn cpu_secs(pid: i32) -> Option<u64> {
    read_stat(pid).ok()?.cpu_ticks.checked_div(clock_ticks_per_second())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_read_and_compared() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.events");
        let write =
            |kills: u32| fs::write(&file, format!("low 0\noom 9\noom_kill {kills}\noom_group_kill 0\n")).unwrap();
        write(3);
        let before = OomKills(count(&file));
        assert_eq!(before, OomKills(Some(3)));
        assert!(!OomKills(count(&file)).have_risen_since(before));
        write(4);
        assert!(OomKills(count(&file)).have_risen_since(before));
        assert!(!OomKills(None).have_risen_since(before) && !before.have_risen_since(OomKills(None)));
        assert_eq!(count(&directory.path().join("none")), None);
    }

    #[test]
    fn only_signals_with_a_known_cause_are_explained() {
        let own = i32::try_from(std::process::id()).unwrap();
        let limits = Limits { file_size_bytes: Some(4096), ..Limits::default() };
        let why = |signal: Signal, limits: &Limits| match explained(
            Ending::Signalled(signal.as_raw()),
            own,
            limits,
            OomKills::now(),
        ) {
            Ending::Killed { why, .. } => why,
            other => format!("{other:?}"),
        };
        assert_eq!(why(Signal::XFSZ, &limits), "over its limit of 4096 bytes for a file");
        assert_eq!(why(Signal::XCPU, &limits), "over the limit of processor time that its runner has");
        assert_eq!(why(Signal::SEGV, &limits), "Signalled(11)");
        assert!(why(Signal::KILL, &limits).contains("perhaps the kernel was out of memory"));
        assert_eq!(explained(Ending::TimedOut, own, &limits, OomKills::now()), Ending::TimedOut);
    }
}
