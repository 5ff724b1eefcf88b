//! Resource usage of a live process.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::identity::{Liveness, ProcessIdentity};

/// Returns the resident memory of the process, in bytes; `None` if it is not alive or cannot be examined from here.
#[must_use]
pub fn memory_bytes(process: &ProcessIdentity) -> Option<u64> {
    let pid = Pid::from_u32(u32::try_from(process.pid).ok()?);
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        false,
        ProcessRefreshKind::nothing().with_memory().without_tasks(),
    );
    let bytes = system.process(pid)?.memory();
    // Checked afterwards: the value then belongs to this process and not to a later one with its PID.
    (process.liveness() == Liveness::Alive).then_some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_uses_memory_and_another_under_its_pid_is_not_asked() {
        let own = ProcessIdentity::own().unwrap();
        assert!(memory_bytes(&own).is_some_and(|bytes| bytes > 100_000));
        let earlier = ProcessIdentity { start_ticks: own.start_ticks.wrapping_sub(1), ..own };
        assert_eq!(memory_bytes(&earlier), None);
    }
}
