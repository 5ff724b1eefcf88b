//! Fault points: steps at which a test may kill, stop or delay this process. Compiled only with the feature `fault-points`, for
//! the fault suite; never in a release.
//!
//! TASKQUEUE_FAULT has the form `label=ACTION@HIT`, with several entries separated by commas. ACTION is `kill`, `stop`,
//! `sleep:MILLISECONDS` or `exit:CODE`; without `@HIT`, it happens at the first hit of the step. TASKQUEUE_FAULT_LOG names a
//! file; the label of every step that is reached is appended to it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultAction {
    Kill,
    Stop,
    Sleep(u64),
    Exit(i32),
}

struct Fault {
    label: String,
    action: FaultAction,
    hit: u32,
    reached: AtomicU32,
}

struct FaultPlan {
    faults: Vec<Fault>,
    log: Option<File>,
}

/// Reaches the step `label`: performs its faults.
pub fn reach(label: &str) {
    for action in due_at(label) {
        action.happen();
    }
}

/// Returns the signal to send to this process at the step `label`. Called before that step, for a child that can neither allocate
/// nor lock.
pub fn planned(label: &str) -> Option<Signal> {
    due_at(label).find_map(|action| match action {
        FaultAction::Kill => Some(Signal::KILL),
        FaultAction::Stop => Some(Signal::STOP),
        FaultAction::Sleep(_) | FaultAction::Exit(_) => None,
    })
}

fn due_at(label: &str) -> impl Iterator<Item = FaultAction> + use<'_> {
    static PLAN: OnceLock<FaultPlan> = OnceLock::new();
    let plan = PLAN.get_or_init(FaultPlan::of_environment);
    if let Some(mut log) = plan.log.as_ref() {
        let _ = log.write_all(format!("{label}\n").as_bytes());
    }
    let here = plan.faults.iter().filter(move |fault| fault.label == label);
    here.filter(|fault| fault.reached.fetch_add(1, Ordering::Relaxed) + 1 == fault.hit).map(|fault| fault.action)
}

impl FaultPlan {
    #[expect(clippy::disallowed_methods, reason = "not a setting of the program: it exists in the fault suite alone")]
    fn of_environment() -> Self {
        let log = std::env::var_os("TASKQUEUE_FAULT_LOG")
            .and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
        let text = std::env::var("TASKQUEUE_FAULT").unwrap_or_default();
        Self { faults: text.split(',').filter_map(parse).collect(), log }
    }
}

fn parse(text: &str) -> Option<Fault> {
    let (label, action) = text.trim().split_once('=')?;
    let (action, hit) = action.split_once('@').unwrap_or((action, "1"));
    let (verb, value) = action.split_once(':').unwrap_or((action, "0"));
    let action = match verb {
        "kill" => FaultAction::Kill,
        "stop" => FaultAction::Stop,
        "sleep" => FaultAction::Sleep(value.parse().ok()?),
        "exit" => FaultAction::Exit(value.parse().ok()?),
        _ => return None,
    };
    Some(Fault { label: label.to_owned(), action, hit: hit.parse().ok()?, reached: AtomicU32::new(0) })
}

impl FaultAction {
    #[expect(clippy::disallowed_methods, reason = "to end without any clean-up is what is asked for")]
    fn happen(self) {
        match self {
            Self::Kill => {
                let _ = kill_process(getpid(), Signal::KILL);
                // The signal may reach another thread first; this thread must not continue.
                loop {
                    std::thread::park();
                }
            }
            Self::Stop => {
                let _ = kill_process(getpid(), Signal::STOP);
            }
            Self::Sleep(millis) => std::thread::sleep(Duration::from_millis(millis)),
            Self::Exit(code) => std::process::exit(code),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_label_its_action_and_when() {
        let parsed = |text| parse(text).map(|fault| (fault.label, fault.action, fault.hit));
        assert_eq!(parsed("a.b=kill@3"), Some(("a.b".to_owned(), FaultAction::Kill, 3)));
        assert_eq!(parsed(" a.b=sleep:20"), Some(("a.b".to_owned(), FaultAction::Sleep(20), 1)));
        assert_eq!(parsed("a.b=stop"), Some(("a.b".to_owned(), FaultAction::Stop, 1)));
        assert_eq!(parsed("a.b=exit:3@2"), Some(("a.b".to_owned(), FaultAction::Exit(3), 2)));
        for bad in ["", "a.b", "a.b=", "a.b=explode", "a.b=kill@x", "a.b=sleep:x"] {
            assert!(parsed(bad).is_none(), "{bad}");
        }
    }
}
