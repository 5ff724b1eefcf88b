//! Orders of operators for a running runner: exit after the current run, or exit as after a signal. The lease thread reads the
//! pauses; other threads only query this copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use taskqueue_domain::limits::pause::{Pause, PauseMode};

/// The orders for this runner, as last read.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    is_leaving: AtomicBool,
    is_stopping: AtomicBool,
}

impl Orders {
    /// Stores what the pauses order a runner with this name and these classes to do.
    pub fn note(&self, pauses: &[Pause], runner_name: &str, classes: &[String]) {
        let is_stopping = pauses.iter().filter(|pause| pause.is(PauseMode::Stop)).any(|pause| {
            pause.scope.covers_runner(runner_name) || classes.iter().any(|class| pause.scope.covers(class, runner_name))
        });
        let is_drained =
            pauses.iter().any(|pause| pause.is(PauseMode::Drain) && pause.scope.covers_runner(runner_name));
        self.inner.is_stopping.store(is_stopping, Ordering::Relaxed);
        self.inner.is_leaving.store(is_stopping || is_drained, Ordering::Relaxed);
    }

    /// Returns true if the runner should exit after its current run.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.inner.is_leaving.load(Ordering::Relaxed)
    }

    /// Returns true if the runner should exit as after a signal.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.inner.is_stopping.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use taskqueue_domain::limits::pause::PauseScope;
    use taskqueue_domain::run::status::Stored;

    fn pause(scope: PauseScope, mode: &str) -> Pause {
        Pause {
            scope,
            mode: Stored::from(mode.to_owned()),
            reason: String::new(),
            author: "ann".to_owned(),
            host: String::new(),
            created_on: DateTime::UNIX_EPOCH,
            until: None,
        }
    }

    /// Returns (leaving, stopping) for the runner `one`, which executes a run of class `a`.
    fn ordered(scope: PauseScope, mode: &str) -> (bool, bool) {
        let orders = Orders::default();
        orders.note(&[pause(scope, mode)], "one", &["a".to_owned()]);
        (orders.is_leaving(), orders.is_stopping())
    }

    #[test]
    fn each_mode_means_something_else_for_a_runner_at_work() {
        for scope in [PauseScope::All, PauseScope::Runner("one".to_owned())] {
            assert_eq!(ordered(scope.clone(), "pause"), (false, false));
            assert_eq!(ordered(scope.clone(), "drain"), (true, false));
            assert_eq!(ordered(scope.clone(), "stop"), (true, true));
            assert_eq!(ordered(scope, "hibernate"), (false, false));
        }
        assert_eq!(ordered(PauseScope::Runner("two".to_owned()), "stop"), (false, false));
    }

    #[test]
    fn a_stopped_class_ends_the_runners_on_it_and_a_drained_one_keeps_them() {
        assert_eq!(ordered(PauseScope::Class("a".to_owned()), "drain"), (false, false));
        assert_eq!(ordered(PauseScope::Class("a".to_owned()), "stop"), (true, true));
        assert_eq!(ordered(PauseScope::Class("b".to_owned()), "stop"), (false, false));
    }

    #[test]
    fn what_is_resumed_is_forgotten() {
        let orders = Orders::default();
        orders.note(&[pause(PauseScope::All, "stop")], "one", &[]);
        orders.note(&[], "one", &[]);
        assert!(!orders.is_leaving() && !orders.is_stopping());
    }
}
