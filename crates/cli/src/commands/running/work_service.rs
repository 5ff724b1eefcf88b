//! Notifications to the service manager that started the worker (systemd: `Type=notify`).

use taskqueue_engine::running::process_run::ProcessReport;
use taskqueue_engine::{EngineError, StopSignals, Supervisor};

/// The status text before the first run.
const WORKING: &str = "working";

/// What was last reported to the service manager. Sends nothing if there is none.
pub(crate) struct Service {
    supervisor: Option<Supervisor>,
    told_to_stop: Box<dyn Fn() -> bool + Send>,
    is_ready: bool,
    is_stopping: bool,
    doing: String,
    /// Why the database is unreachable, if it is.
    away: Option<String>,
    /// Why the last reloaded configuration was not applied.
    not_taken: Option<String>,
}

impl Service {
    pub(crate) fn new(supervisor: Option<Supervisor>, stop: &StopSignals) -> Self {
        let count = stop.counter().ok();
        Self {
            supervisor,
            told_to_stop: Box::new(move || count.as_ref().is_some_and(|count| count() > 0)),
            is_ready: false,
            is_stopping: false,
            doing: WORKING.to_owned(),
            away: None,
            not_taken: None,
        }
    }

    /// Reports that the worker has its slots. It is reported as ready only once, and stays ready when it loses its database.
    pub(crate) fn registered(&mut self) {
        self.away = None;
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| !self.is_ready) {
            self.is_ready = true;
            WORKING.clone_into(&mut self.doing);
            supervisor.ready(&self.status());
        }
    }

    pub(crate) fn lost_database(&mut self, problem: &EngineError) {
        self.away = Some(problem.to_string());
    }

    pub(crate) fn found_database(&mut self) {
        self.away = None;
    }

    /// Resets the watchdog; called by the coordinator, which must not hang.
    pub(crate) fn looked(&mut self, report: &ProcessReport, working: usize) {
        let Some(supervisor) = &self.supervisor else { return };
        supervisor.beat();
        self.doing = match report.limit_reached {
            Some((in_use, limit)) => format!("waiting for slots: {in_use} of {limit} in use"),
            None => format!("{} executed, {} failed, {working} in progress", report.processed, report.failed),
        };
        supervisor.status(&self.status());
        // A `stop` order of an operator does not count, because it can be withdrawn.
        if (self.told_to_stop)() {
            self.stopping();
        }
    }

    fn status(&self) -> String {
        let away = self.away.as_ref().map(|problem| format!("database unavailable: {problem}"));
        let not_taken =
            self.not_taken.as_ref().map(|problem| format!("the new configuration was not applied: {problem}"));
        let parts: Vec<String> = away.or_else(|| Some(self.doing.clone())).into_iter().chain(not_taken).collect();
        parts.join("; ")
    }

    pub(crate) fn reloading(&self) {
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| self.is_ready) {
            supervisor.reloading();
        }
    }

    /// Reports the end of a reload; `not_taken` is why the old configuration stays in effect.
    pub(crate) fn reloaded(&mut self, not_taken: Option<String>) {
        self.not_taken = not_taken;
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| self.is_ready) {
            supervisor.ready(&self.status());
        }
    }

    /// Reports once that the worker is stopping.
    pub(crate) fn stopping(&mut self) {
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| !self.is_stopping) {
            self.is_stopping = true;
            supervisor.stopping();
        }
    }

    /// Returns a function that resets the watchdog while the worker waits for the database.
    pub(crate) fn pulse(&self) -> Box<dyn Fn() + Send> {
        match self.supervisor.clone() {
            Some(supervisor) => Box::new(move || supervisor.beat()),
            None => Box::new(|| {}),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_first_what_keeps_a_worker_from_its_work() {
        let (stop, _handle) = StopSignals::by_hand().unwrap();
        let mut service = Service::new(None, &stop);
        assert_eq!(service.status(), "working");
        service.lost_database(&EngineError::RunnerOver);
        let away = "database unavailable: this runner has lost its slots: its lease could not be renewed in time";
        assert_eq!(service.status(), away);
        service.reloaded(Some("line 3".to_owned()));
        assert_eq!(service.status(), format!("{away}; the new configuration was not applied: line 3"));
        service.found_database();
        service.reloaded(None);
        assert_eq!(service.status(), "working");
    }
}
