//! Passes runs between the coordinator and the slots of a worker: runs that wait for a slot, and finished runs. The outcome of
//! a run is in a spool file before any other thread can read it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::pace::Pace;
use super::shortage::Shortage;
use crate::error::{EngineError, EngineResult};
use crate::inspect::monitoring::counted::{CountedRun, outcome_of_sent};
use crate::outbox::outcomes::Outcome;
use crate::outbox::outcomes_of_many::{Sent, keep};
use crate::running::execute::Executed;
use crate::running::run_listener::RunOutcome;
use crate::running::runner::runner_context::RunPolicy;
use taskqueue_domain::run::message::Messages;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::{Spool, SpoolFile};
use taskqueue_host::net::waker::Waker;

/// After a run that took longer than this, the worker syncs the outcome to the disk, so that it survives a crash of the
/// machine.
const LONG: Duration = Duration::from_secs(1);
/// How long nothing else starts beside a suspect run. A run that kills its runner mostly does so soon, and the slots have other
/// work.
const ALONE_FOR: Duration = Duration::from_secs(60);
/// How long a suspect run waits for earlier runs to end. If another suspect has begun meanwhile, it is released.
const LONGEST_WAIT_ALONE: Duration = Duration::from_secs(60);
/// How many files of the spool a worker holds.
const FILES: usize = 2;

pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    /// Signals that there is a run for a slot, or that no more will come.
    has_run: Condvar,
    /// Signals that the last run in progress has ended.
    is_idle: Condvar,
    /// The coordinator waits for this.
    pub(super) waker: Waker,
}

/// A run whose handler has finished.
pub(super) struct FinishedRun {
    pub(super) run: ClaimedRun,
    pub(super) outcome: RunOutcome,
    pub(super) messages: Messages,
    /// Whether this process may write nothing for it.
    pub(super) is_over: bool,
    /// The outcome to send; `None` while a process of its handler is still alive (rule R7).
    pub(super) to_send: Option<Outcome>,
    /// How long its handler ran.
    pub(super) took: Duration,
}

impl FinishedRun {
    /// Returns what to count for the run with this answer.
    pub(super) fn counted(&self, answer: Option<&Sent>) -> CountedRun<'_> {
        let ended = self.to_send.as_ref().zip(answer);
        let outcome = ended.map_or("open", |(to_send, sent)| outcome_of_sent(to_send.end.event, sent));
        let cpu_msecs = self.to_send.as_ref().and_then(|to_send| Some(to_send.end.usage?.cpu_msecs));
        CountedRun { class: &self.run.class, outcome, took: Some(self.took), cpu_msecs }
    }
}

/// The state for the coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogCounts {
    /// Runs that wait for a slot.
    pub(super) waiting: usize,
    /// How long the first of them has waited.
    pub(super) longest_wait: Duration,
    /// Withdrawn runs, which must be released.
    pub(super) returning: usize,
    /// Slots that execute a run.
    pub(super) working: usize,
    /// Finished runs that are not recorded.
    pub(super) finished: usize,
    /// How many more runs may be claimed: enough for the slots until the coordinator returns.
    pub(super) room: usize,
    /// Whether fewer runs wait than half of the look-ahead, or fewer than the slots can start at once.
    pub(super) is_short: bool,
    /// How long to gather outcomes before they are written, while the slots have work.
    pub(super) gather: Duration,
    /// Whether so many threads were left behind that nothing more may start.
    pub(super) is_blocked: bool,
}

struct BacklogState {
    /// The policy under which all waiting runs were claimed.
    policy: Arc<RunPolicy>,
    waiting: VecDeque<(Moment, ClaimedRun)>,
    /// Runs that must run alone, each with the time until which it waits for that.
    suspects: VecDeque<(Moment, ClaimedRun)>,
    /// The suspect that is running, and until when nothing else starts beside it.
    alone: Option<(RunId, Moment)>,
    returning: Vec<ClaimedRun>,
    working: usize,
    finished: Vec<FinishedRun>,
    pace: Pace,
    slots: usize,
    shortage: Shortage,
    spool: Option<Spool>,
    /// The file to which outcomes are written now, and the one that replaces it while it is being sent.
    files: Vec<SpoolFile>,
    problem: Option<String>,
    /// Whether the coordinator was woken because few runs wait.
    is_told: bool,
    is_closed: bool,
    /// Whether starting was blocked at the last check.
    was_blocked: bool,
}

impl BacklogState {
    fn busy(&self) -> usize {
        self.waiting.len() + self.suspects.len() + self.working
    }

    /// Returns true if a suspect run has begun and nothing else may start beside it.
    fn is_alone(&self) -> bool {
        self.alone.is_some_and(|(_, until)| !until.has_passed())
    }

    /// Returns true if no other run may start.
    fn is_reserved(&self) -> bool {
        !self.suspects.is_empty() || self.is_alone()
    }

    /// Returns true if so many threads were left behind that nothing more may start.
    fn is_blocked(&self) -> bool {
        self.policy.handlers.overrun().is_full(self.slots)
    }

    /// Returns the next run that may start now.
    fn pop(&mut self) -> Option<ClaimedRun> {
        if self.is_blocked() {
            return None;
        }
        let has_company = self.working > 0;
        let may_begin = |(until, _): &mut (Moment, ClaimedRun)| !has_company || until.has_passed();
        if !self.is_alone()
            && let Some((_, run)) = self.suspects.pop_front_if(may_begin)
        {
            self.alone = Some((run.run_id, Moment::after(ALONE_FOR)));
            return Some(run);
        }
        let may_begin = !self.is_reserved() && (self.shortage.is_over() || self.working < self.allowed());
        self.waiting.pop_front_if(|_| may_begin).map(|(_, run)| run)
    }

    fn allowed(&self) -> usize {
        self.shortage.allowed(self.slots)
    }

    /// Returns how many runs to claim ahead; 0 while handlers cannot be started, because another runner may have free slots for
    /// them.
    fn look_ahead(&self) -> usize {
        if self.shortage.is_over() { self.pace.look_ahead(self.slots) } else { 0 }
    }

    fn room(&self) -> usize {
        if self.is_reserved() || self.is_blocked() {
            return 0;
        }
        (self.allowed() + self.look_ahead()).saturating_sub(self.busy())
    }

    fn is_short(&self) -> bool {
        !self.is_reserved() && !self.is_blocked() && self.busy() < self.allowed() + self.look_ahead().div_ceil(2)
    }

    fn withdraw_waiting(&mut self) {
        let waiting = self.waiting.drain(..).chain(self.suspects.drain(..));
        self.returning.extend(waiting.map(|(_, run)| run));
    }

    /// Withdraws suspects that have waited for long and would still wait: the slots have other work, and another runner may be
    /// idle.
    fn withdraw_late_suspects(&mut self) {
        let is_late = |(until, _): &mut (Moment, ClaimedRun)| until.has_passed();
        while self.is_alone()
            && let Some((_, run)) = self.suspects.pop_front_if(is_late)
        {
            self.returning.push(run);
        }
    }

    /// Opens the files that are missing, for example because the disk was full.
    fn open_files(&mut self) {
        let Some(spool) = &self.spool else { return };
        while self.files.len() < FILES {
            match spool.take() {
                Ok(file) => self.files.push(file),
                Err(error) => {
                    self.problem = Some(error.to_string());
                    return;
                }
            }
        }
    }
}

impl Backlog {
    pub(super) fn open(policy: Arc<RunPolicy>, spool: Option<&Spool>, slots: usize) -> EngineResult<Self> {
        let waker = Waker::new()
            .map_err(|source| EngineError::Os { what: "cannot open a descriptor for the slots", source })?;
        let mut state = BacklogState {
            policy,
            waiting: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: None,
            returning: Vec::new(),
            working: 0,
            finished: Vec::new(),
            pace: Pace::default(),
            slots,
            shortage: Shortage::default(),
            spool: spool.cloned(),
            files: Vec::with_capacity(FILES),
            problem: None,
            is_told: false,
            is_closed: false,
            was_blocked: false,
        };
        state.open_files();
        Ok(Self { state: Mutex::new(state), has_run: Condvar::new(), is_idle: Condvar::new(), waker })
    }

    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why outcomes are not written to the spool, if so.
    pub(super) fn problem(&self) -> Option<String> {
        self.lock().problem.take()
    }

    /// Adds runs for the slots, behind those that wait already.
    pub(super) fn add(&self, runs: Vec<ClaimedRun>) {
        let now = Moment::now();
        let count = runs.len();
        self.lock().waiting.extend(runs.into_iter().map(|run| (now, run)));
        if count == 1 { self.has_run.notify_one() } else { self.has_run.notify_all() }
    }

    /// Adds runs that must run alone.
    pub(super) fn add_suspects(&self, runs: Vec<ClaimedRun>) {
        let until = Moment::after(LONGEST_WAIT_ALONE);
        self.lock().suspects.extend(runs.into_iter().map(|run| (until, run)));
        self.has_run.notify_all();
    }

    /// Waits for the next run, and returns it with its policy. `None` if no more runs will come.
    pub(super) fn next(&self) -> Option<(ClaimedRun, Arc<RunPolicy>)> {
        let mut state = self.lock();
        loop {
            if let Some(run) = state.pop() {
                state.working += 1;
                return Some((run, Arc::clone(&state.policy)));
            }
            if state.is_closed {
                return None;
            }
            state = self.has_run.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a slot has executed a run in this time. When this returns, the outcome is in the spool, or
    /// [`Backlog::problem`] returns why not.
    pub(super) fn finish(&self, database: &str, run: ClaimedRun, executed: Executed, took: Duration) {
        let Executed { outcome, end, messages, is_over } = executed;
        let to_send = end.map(|end| Outcome::new(database, &run, end));
        let record = to_send.as_ref().and_then(Outcome::to_record);
        let mut state = self.lock();
        if let (Some(outcome), Some(record), Some(file)) = (&to_send, record, state.files.first_mut()) {
            let problem = keep(file, outcome, &record, took >= LONG);
            state.problem = problem.or_else(|| state.problem.take());
        }
        fault_point!("work.outcome_kept");
        // Already subtracted if the thread of the slot panicked.
        state.working = state.working.saturating_sub(1);
        state.alone = state.alone.filter(|(alone, _)| *alone != run.run_id);
        if outcome.decision.lacks_room {
            let running = state.working;
            state.shortage.occurred(running);
            // Another runner may be able to start them.
            state.withdraw_waiting();
        } else {
            state.pace.ran(took);
        }
        if state.is_blocked() {
            state.withdraw_waiting();
        }
        state.finished.push(FinishedRun { run, outcome, messages, is_over, to_send, took });
        let is_first = state.finished.len() == 1;
        // Once is enough until the coordinator has taken the finished runs.
        let becomes_short = state.is_short() && !std::mem::replace(&mut state.is_told, true);
        if state.is_closed && state.working == 0 {
            self.is_idle.notify_all();
        }
        drop(state);
        if is_first || becomes_short {
            self.waker.wake();
        }
    }

    /// Frees unused memory.
    pub(super) fn shrink(&self) {
        self.lock().waiting.shrink_to_fit();
    }

    /// Records that a slot panicked during a run. The lease of that run expires like that of a silent handler.
    pub(super) fn lose_slot(&self) {
        let mut state = self.lock();
        state.working = state.working.saturating_sub(1);
        state.slots = state.slots.saturating_sub(1);
        self.is_idle.notify_all();
    }

    /// Takes the finished runs, with the file that contains their outcomes; return the file when they were sent.
    pub(super) fn take_finished(&self) -> (Vec<FinishedRun>, Option<SpoolFile>) {
        let mut state = self.lock();
        state.is_told = false;
        state.open_files();
        let file = (state.files.len() == FILES).then(|| state.files.remove(0));
        (std::mem::take(&mut state.finished), file)
    }

    /// Puts back outcomes that could not be sent, so that their result can be counted later.
    pub(super) fn put_back_unsent(&self, unsent: Vec<FinishedRun>) {
        self.lock().finished.extend(unsent);
    }

    /// Takes the finished runs that were not sent before the worker ends.
    pub(super) fn take_unsent(&self) -> Vec<FinishedRun> {
        std::mem::take(&mut self.lock().finished)
    }

    /// Records how long the coordinator took to write finished runs.
    pub(super) fn wrote(&self, took: Duration) {
        self.lock().pace.wrote(took);
    }

    pub(super) fn give_back(&self, file: SpoolFile) {
        self.lock().files.push(file);
    }

    /// Changes the policy for runs that are added later. Waiting runs were claimed under another policy and are released; runs
    /// that a slot has taken keep theirs.
    pub(super) fn change_policy(&self, policy: Arc<RunPolicy>) {
        let mut state = self.lock();
        state.policy = policy;
        state.withdraw_waiting();
    }

    /// Withdraws the waiting runs: no slot starts them.
    pub(super) fn withdraw_waiting(&self) {
        self.lock().withdraw_waiting();
    }

    /// Withdraws and takes all runs that no slot has started.
    pub(super) fn take_all_waiting(&self) -> Vec<ClaimedRun> {
        self.lock().withdraw_waiting();
        self.take_waiting()
    }

    /// Like `take_all_waiting`, but keeps the runs that must run alone.
    pub(super) fn take_waiting(&self) -> Vec<ClaimedRun> {
        let mut state = self.lock();
        let mut runs = std::mem::take(&mut state.returning);
        runs.extend(state.waiting.drain(..).map(|(_, run)| run));
        runs
    }

    /// Puts back runs that could not be released now.
    pub(super) fn put_back(&self, runs: Vec<ClaimedRun>) {
        self.lock().returning.extend(runs);
    }

    /// Reduces the number of slots because no more threads could be started.
    pub(super) fn limit_slots(&self, slots: usize) {
        self.lock().slots = slots;
    }

    /// Returns how many slots may execute a run now.
    pub(super) fn allowed(&self) -> usize {
        self.lock().allowed()
    }

    pub(super) fn counts(&self) -> BacklogCounts {
        let mut state = self.lock();
        let slots = state.slots;
        state.withdraw_late_suspects();
        let is_blocked = state.is_blocked();
        let has_room_again = std::mem::replace(&mut state.was_blocked, is_blocked) && !is_blocked;
        let may_begin = state.alone.is_some() || !state.suspects.is_empty() || has_room_again;
        if state.shortage.relax(slots) || may_begin {
            self.has_run.notify_all();
        }
        BacklogCounts {
            waiting: state.waiting.len() + state.suspects.len(),
            longest_wait: state.waiting.front().map_or(Duration::ZERO, |(since, _)| since.elapsed()),
            returning: state.returning.len(),
            working: state.working,
            finished: state.finished.len(),
            room: state.room(),
            is_short: state.is_short(),
            gather: state.pace.gather(),
            is_blocked,
        }
    }

    /// Ends the slots, and waits for their current runs.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.has_run.notify_all();
        while state.working > 0 {
            state = self.is_idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns a guard that ends the slots when it is dropped, after their current runs.
    pub(super) fn close_at_end(&self) -> impl Drop + '_ {
        Closing(self)
    }
}

struct Closing<'a>(&'a Backlog);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use taskqueue_domain::settings::Settings;
    use taskqueue_domain::task::ids::{RunId, TaskId};
    use taskqueue_domain::task::trace::Trace;

    fn policy() -> Arc<RunPolicy> {
        Arc::new(RunPolicy { handlers: Arc::default(), settings: Settings::from_rows(&[]).0 })
    }

    fn run(id: i64) -> ClaimedRun {
        ClaimedRun {
            run_id: RunId(id),
            task_id: TaskId(id),
            class: "echo".parse().unwrap(),
            data: "{}".to_owned(),
            token: id.to_string(),
            attempt: 1,
            max_retries: Some(5),
            task_timeout_secs: None,
            planned_on: DateTime::UNIX_EPOCH,
            started_on: DateTime::UNIX_EPOCH,
            due_on: None,
            trace: Trace::default(),
        }
    }

    #[test]
    fn a_suspect_begins_with_nothing_beside_it_and_nothing_begins_beside_it() {
        let backlog = Backlog::open(policy(), None, 3).unwrap();
        backlog.add(vec![run(1)]);
        assert_eq!(backlog.next().unwrap().0.run_id, RunId(1));
        backlog.add_suspects(vec![run(2), run(3)]);
        backlog.add(vec![run(4)]);
        let begun = |backlog: &Backlog| {
            let mut state = backlog.lock();
            let begun = state.pop();
            state.working += usize::from(begun.is_some());
            begun.map(|run| run.run_id.0)
        };
        let ends = |backlog: &Backlog, id: i64| {
            let mut state = backlog.lock();
            state.working -= 1;
            state.alone = state.alone.filter(|(alone, _)| alone.0 != id);
        };
        assert_eq!((begun(&backlog), backlog.counts().room), (None, 0));
        ends(&backlog, 1);
        assert_eq!((begun(&backlog), begun(&backlog), backlog.counts().is_short), (Some(2), None, false));
        ends(&backlog, 2);
        assert_eq!((begun(&backlog), begun(&backlog), backlog.counts().room), (Some(3), None, 0));
        // The time for which it ran alone has passed.
        backlog.lock().alone = Some((RunId(3), Moment::now()));
        assert_eq!((begun(&backlog), backlog.counts().room), (Some(4), 1));
        backlog.add_suspects(vec![run(5)]);
        assert_eq!((begun(&backlog), backlog.take_waiting().len(), backlog.take_all_waiting().len()), (None, 0, 1));
    }

    #[test]
    fn a_suspect_that_runs_for_long_keeps_no_other_from_its_turn() {
        let backlog = Backlog::open(policy(), None, 3).unwrap();
        let begun = |backlog: &Backlog| backlog.lock().pop().map(|run| run.run_id.0);
        backlog.lock().working = 1;
        backlog.lock().alone = Some((RunId(1), Moment::now()));
        backlog.lock().suspects.extend([2, 3].map(|id| (Moment::now(), run(id))));
        assert_eq!(begun(&backlog), Some(2));
        assert_eq!((backlog.counts().returning, begun(&backlog)), (1, None));
    }

    #[test]
    fn files_that_could_not_be_opened_are_opened_later() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("spool");
        std::fs::write(&directory, "").unwrap();
        let backlog = Backlog::open(policy(), Some(&Spool::new(&directory, "x")), 1).unwrap();
        assert!(backlog.take_finished().1.is_none() && backlog.problem().is_some());
        std::fs::remove_file(&directory).unwrap();
        assert!(backlog.take_finished().1.is_some() && backlog.problem().is_none());
    }

    #[test]
    fn the_end_does_not_wait_for_a_slot_that_is_gone() {
        let backlog = Backlog::open(policy(), None, 2).unwrap();
        backlog.add(vec![run(1)]);
        assert!(backlog.next().is_some());
        backlog.lose_slot();
        assert_eq!((backlog.counts().working, backlog.allowed()), (0, 1));
        drop(backlog.close_at_end());
    }

    #[test]
    fn a_change_of_terms_gives_back_what_waits_and_leaves_what_was_taken() {
        let (old, new) = (policy(), policy());
        let backlog = Backlog::open(Arc::clone(&old), None, 1).unwrap();
        backlog.add(vec![run(1), run(2), run(3)]);
        let (taken, on) = backlog.next().unwrap();
        assert!(taken.run_id == RunId(1) && Arc::ptr_eq(&on, &old));
        backlog.change_policy(Arc::clone(&new));
        let counts = backlog.counts();
        assert_eq!((counts.waiting, counts.returning, counts.working), (0, 2, 1));
        backlog.add(vec![run(4)]);
        let (taken, on) = backlog.next().unwrap();
        assert!(taken.run_id == RunId(4) && Arc::ptr_eq(&on, &new));
        let ids = |runs: &[ClaimedRun]| runs.iter().map(|run| run.run_id.0).collect::<Vec<_>>();
        let returning = backlog.take_waiting();
        assert_eq!(ids(&returning), [2, 3]);
        // The database was unreachable: no slot may start them, even though they were put back.
        backlog.put_back(returning);
        assert_eq!((backlog.counts().waiting, backlog.counts().returning), (0, 2));
        assert_eq!(ids(&backlog.take_waiting()), [2, 3]);
    }
}
