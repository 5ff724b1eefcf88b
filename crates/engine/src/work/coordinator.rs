//! The coordinator thread of a worker: claims runs, records their outcomes, and decides when to poll.

use std::sync::Arc;
use std::time::Duration;

use wildmatch::WildMatch;

use super::backlog::{Backlog, BacklogCounts, FinishedRun};
use super::housekeeping::Housekeeping;
use super::listener::WorkListener;
use super::memory::MemoryLimit;
use super::options::WorkOptions;
use super::pace::IdlePause;
use super::reload::{CurrentPolicy, reconfigure};
use super::unanswered::count_answered;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::running::process_run::ProcessReport;
use crate::running::runner::holds::Holds;
use crate::running::runner::lease::LeaseState;
use crate::running::runner::runner_context::RunnerContext;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::SpoolFile;
use taskqueue_store::{ChangeListener, StoreError};

/// A run that waits longer than this for a slot is released, because another runner may have a free slot.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The pause between two checks of signals and orders.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause between two attempts to reach an unreachable database.
const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two reports of a lasting shortage.
const TELL_SHORTAGE_EVERY: Duration = Duration::from_secs(10);
/// The pause between two checks of unanswered outcomes, which other processes may have sent.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// State of the coordinator thread. Claiming is in claiming.rs, recording in recording.rs.
pub(super) struct Coordinator<'a> {
    pub(super) ctx: &'a mut Context,
    pub(super) options: &'a mut WorkOptions,
    pub(super) patterns: Vec<WildMatch>,
    pub(super) until: Option<Moment>,
    pub(super) place: &'a RunnerContext,
    pub(super) current: CurrentPolicy,
    pub(super) memory: MemoryLimit,
    pub(super) backlog: &'a Backlog,
    pub(super) housekeeping: &'a Housekeeping,
    pub(super) holds: Holds,
    pub(super) claimed: u64,
    pub(super) pause: IdlePause,
    /// When to poll for runs next.
    pub(super) next_poll_at: Moment,
    /// Wakes the thread when there may be something to claim.
    pub(super) changes: Option<ChangeListener>,
    /// When due tasks may get their runs next, while runs of limit keys wait.
    pub(super) create_at: Moment,
    /// When the next task becomes due, according to the last poll.
    pub(super) next_due: Option<Moment>,
    /// Whether the last poll found nothing.
    pub(super) last_poll_was_empty: bool,
    /// Whether the last claim was refused because enough others were in progress.
    pub(super) was_crowded: bool,
    /// Whether runs were polled for after the first housekeeping, which may have rescued some.
    pub(super) saw_housekeeping: bool,
    /// Since when there has been nothing to do.
    pub(super) idle_since: Moment,
    /// Since when finished runs are waiting to be recorded.
    pub(super) gathering_since: Option<Moment>,
    /// When to contact the database next, after it was unreachable.
    pub(super) away_until: Moment,
    pub(super) is_away: bool,
    /// Outcomes that could not be sent because the database was unreachable.
    pub(super) unsent: Option<(Vec<FinishedRun>, Option<SpoolFile>)>,
    /// When a shortage may be reported next.
    pub(super) tell_shortage_at: Moment,
    /// When to check the outcomes of an earlier session next.
    pub(super) count_at: Moment,
    /// Whether the listener was notified that nothing is claimed, because too many threads were left behind.
    pub(super) is_blocked: bool,
}

/// Returns true for errors that may go away: unreachable, busy, full.
fn is_away(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(StoreError::Unreachable { .. } | StoreError::Busy(_) | StoreError::Full { .. }))
}

impl<'a> Coordinator<'a> {
    #[expect(clippy::too_many_arguments, reason = "what a session is made of")]
    pub(super) fn new(
        ctx: &'a mut Context,
        options: &'a mut WorkOptions,
        until: Option<Moment>,
        place: &'a RunnerContext,
        current: CurrentPolicy,
        backlog: &'a Backlog,
        housekeeping: &'a Housekeeping,
        changes: Option<ChangeListener>,
    ) -> Self {
        let now = Moment::now();
        Self {
            ctx,
            patterns: options.classes.iter().map(|pattern| WildMatch::new(pattern)).collect(),
            memory: MemoryLimit::new(options.max_rss_bytes),
            options,
            until,
            place,
            current,
            backlog,
            housekeeping,
            holds: Holds::new(),
            claimed: 0,
            next_poll_at: now,
            pause: if changes.is_some() { IdlePause::while_listening() } else { IdlePause::while_polling() },
            changes,
            create_at: now,
            next_due: None,
            saw_housekeeping: false,
            idle_since: now,
            gathering_since: None,
            unsent: None,
            tell_shortage_at: now,
            count_at: Moment::after(COUNT_EVERY),
            away_until: now,
            is_away: false,
            last_poll_was_empty: false,
            was_crowded: false,
            is_blocked: false,
        }
    }

    /// Runs until the worker is asked to stop or its options end it, and everything that was claimed has ended.
    ///
    /// # Errors
    /// Returns an error if the database fails. Outcomes then stay in the spool, and waiting runs are released when the database
    /// is reachable again.
    pub(super) fn run(mut self, listener: &mut dyn WorkListener, report: &mut ProcessReport) -> EngineResult<()> {
        let mut looked = Moment::now();
        loop {
            let asks = self.away_until.has_passed();
            match self.turn(listener, report) {
                Ok(true) => return Ok(()),
                Ok(false) if self.is_away && asks => {
                    self.is_away = false;
                    self.options.tally.note_away(false);
                    listener.found_database();
                }
                Ok(false) => {}
                // While the leases can be trusted, the runs in progress continue.
                Err(problem) if is_away(&problem) && !self.has_to_end() => {
                    listener.lost_database(&problem);
                    self.options.tally.note_away(true);
                    self.next_poll_at = Moment::after(AWAY_PAUSE);
                    self.away_until = self.next_poll_at;
                    self.is_away = true;
                }
                Err(problem) => {
                    let unsent = self.unsent.take().map(|(finished, _)| finished);
                    self.backlog.put_back_unsent(unsent.unwrap_or_default());
                    return Err(problem);
                }
            }
            let counts = self.backlog.counts();
            self.look_at_left_behind(counts, listener);
            if looked.elapsed() >= LOOK_EVERY {
                self.look(counts, listener, report);
                looked = Moment::now();
            }
            self.sleep(counts);
        }
    }

    /// Returns true if the worker need not wait any longer: no handler is running, and the time to stop has passed. All
    /// outcomes are in the spool.
    fn has_to_end(&self) -> bool {
        self.ctx.store.patience().is_over() && self.backlog.counts().working == 0
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, counts: BacklogCounts) {
        let changes = self.changes.as_ref().map(ChangeListener::as_fd);
        self.backlog.waker.wait(changes, self.longest_sleep(counts));
        match self.changes.as_mut().map(ChangeListener::has_changed) {
            // A check costs as much as a claim, so it claims at once. A client that has just sent a notification may send none
            // for its next task, so it polls.
            Some(Ok(true)) => {
                (self.next_poll_at, self.last_poll_was_empty) = (Moment::now(), false);
                self.pause.reset();
            }
            Some(Ok(false)) | None => {}
            // Without notifications, new work is found by polling.
            Some(Err(_)) => (self.changes, self.pause) = (None, IdlePause::while_polling()),
        }
    }

    /// Records, releases and claims what it can. Returns whether the worker has finished.
    fn turn(&mut self, listener: &mut dyn WorkListener, report: &mut ProcessReport) -> EngineResult<bool> {
        if !self.away_until.has_passed() {
            return self.is_held();
        }
        let mut counts = self.backlog.counts();
        if self.is_to_record(counts) {
            self.record(counts, listener, report)?;
            counts = self.backlog.counts();
        }
        if self.count_at.has_passed() {
            count_answered(&self.options.tally, &mut self.ctx.store);
            self.count_at = Moment::after(COUNT_EVERY);
        }
        if self.current.read_settings(self.ctx)? {
            self.change_policy();
            counts = self.backlog.counts();
        }
        if self.is_to_give_back(counts) {
            self.give_waiting_back()?;
            counts = self.backlog.counts();
        }
        if !self.saw_housekeeping && self.housekeeping.has_looked_after() {
            self.saw_housekeeping = true;
            (self.next_poll_at, self.last_poll_was_empty) = (Moment::now(), false);
        }
        if self.wants_more(counts) {
            self.claim(counts, listener)?;
            counts = self.backlog.counts();
        }
        if !self.has_ended(counts) {
            return Ok(false);
        }
        if counts.is_blocked && self.options.ends_when_blocked && !self.is_leaving() {
            let threads = self.current.policy.handlers.overrun().left_behind.count();
            return Err(EngineError::TooManyLeftBehind { threads });
        }
        // A worker that lost its slots must register again.
        self.is_held()
            .map(|_| true)
            .or_else(|error| if self.place.stopping.is_leaving() { Ok(true) } else { Err(error) })
    }

    /// While the database is unreachable: returns an error once the lease of the worker itself has expired.
    fn is_held(&self) -> EngineResult<bool> {
        match self.place.leases.runner_lease_state() {
            LeaseState::Held => Ok(false),
            LeaseState::Lost | LeaseState::Over => Err(EngineError::RunnerOver),
        }
    }

    /// Returns true if the worker will claim nothing more.
    pub(super) fn is_leaving(&self) -> bool {
        self.place.stopping.is_leaving()
            || self.until.is_some_and(Moment::has_passed)
            || self.memory.is_too_large()
            // If its slots were given away meanwhile, more runs might exceed the limit (rule R5).
            || self.place.leases.runner_lease_state() != LeaseState::Held
    }

    /// Returns true if outcomes should be written now. Waiting for further ones does not keep a slot from working. A worker that
    /// may not claim yet gains nothing from writing a few of them early.
    fn is_to_record(&mut self, counts: BacklogCounts) -> bool {
        if self.unsent.is_some() {
            return true;
        }
        if counts.finished == 0 {
            self.gathering_since = None;
            return false;
        }
        let since = *self.gathering_since.get_or_insert_with(Moment::now);
        counts.is_short && !self.was_crowded || since.elapsed() >= counts.gather
    }

    /// Returns how many runs there is room for.
    pub(super) fn room(&self, counts: BacklogCounts) -> usize {
        if self.is_leaving() {
            return 0;
        }
        let left = self.options.max_runs.map(|max| max.saturating_sub(self.claimed));
        left.map_or(counts.room, |left| counts.room.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    fn wants_more(&self, counts: BacklogCounts) -> bool {
        counts.is_short && self.next_poll_at.has_passed() && self.room(counts) > 0
    }

    /// Reports that a handler could not be started because this process lacked a resource.
    pub(super) fn note_shortage(&mut self, why: &str, listener: &mut dyn WorkListener) {
        if self.tell_shortage_at.has_passed() {
            self.tell_shortage_at = Moment::after(TELL_SHORTAGE_EVERY);
            listener.lacks_room(why, self.backlog.allowed());
        }
    }

    pub(super) fn is_to_give_back(&self, counts: BacklogCounts) -> bool {
        self.is_leaving() || counts.longest_wait > LONGEST_WAIT || counts.returning > 0
    }

    fn has_ended(&self, counts: BacklogCounts) -> bool {
        if counts.waiting + counts.returning + counts.working + counts.finished > 0 || self.unsent.is_some() {
            return false;
        }
        let is_enough = self.options.max_runs.is_some_and(|max| self.claimed >= max);
        let was_idle = self.options.idle_exit.is_some_and(|idle| {
            // Counts only if it has polled and found nothing.
            let has_looked = counts.is_blocked || !self.next_poll_at.has_passed() && !self.was_crowded;
            self.saw_housekeeping && has_looked && self.idle_since.elapsed() >= idle
        });
        is_enough || was_idle || self.is_leaving() || (counts.is_blocked && self.options.ends_when_blocked)
    }

    fn longest_sleep(&self, counts: BacklogCounts) -> Duration {
        let mut sleep = LOOK_EVERY;
        if counts.finished > 0 {
            let gathered = self.gathering_since.map_or(Duration::ZERO, Moment::elapsed);
            sleep = sleep.min(counts.gather.saturating_sub(gathered));
        }
        if counts.is_short && !self.is_leaving() {
            sleep = sleep.min(self.next_poll_at.remaining());
        }
        sleep
    }

    fn look(&mut self, counts: BacklogCounts, listener: &mut dyn WorkListener, report: &ProcessReport) {
        if reconfigure(self.ctx, self.options, listener) {
            self.current.take_handlers(self.ctx);
            self.change_policy();
            self.housekeeping.reconfigure(self.ctx);
            // Only `explain` uses this, so an error here is ignored.
            if !self.is_away {
                let served = self.ctx.handlers.served(&self.options.classes);
                let _ = self.ctx.store.record_classes_of_runner(self.place.runner_id, &served);
            }
            self.place.stopping.allow(self.options.stop_wait);
        }
        self.current.forget_former();
        if let Some((used_bytes, most_bytes)) = self.memory.look(report.processed) {
            self.backlog.withdraw_waiting();
            listener.is_too_large(used_bytes, most_bytes);
        }
        if counts.working == 0 && counts.waiting == 0 {
            let (backlog, leases) = (self.backlog, &self.place.leases);
            self.memory.give_back(self.claimed, self.idle_since.elapsed(), || {
                backlog.shrink();
                leases.shrink();
            });
        }
        let _ = self.place.stopping.check(&mut |wait| {
            listener.stopping(&self.place.leases.held_runs(), wait);
            true
        });
        self.options.tally.renewed(self.place.leases.take_renewals());
        self.options.tally.turned(counts.working);
        listener.looked(report, counts.working);
    }

    fn look_at_left_behind(&mut self, counts: BacklogCounts, listener: &mut dyn WorkListener) {
        let threads = self.current.policy.handlers.overrun().left_behind.count();
        // The listener must first get the end of the run whose thread was left behind last.
        let is_blocked = counts.is_blocked && (self.is_blocked || counts.finished == 0);
        self.options.tally.note_left_behind(threads, is_blocked);
        if is_blocked == self.is_blocked {
            return;
        }
        self.is_blocked = is_blocked;
        if self.is_blocked {
            listener.is_blocked(threads);
        } else {
            (self.next_poll_at, self.last_poll_was_empty) = (Moment::now(), false);
            listener.claims_again();
        }
    }

    /// Applies the current policy to runs that are claimed later; waiting runs were claimed under another one.
    fn change_policy(&mut self) {
        self.backlog.change_policy(Arc::clone(&self.current.policy));
        // Classes without a handler may have one now.
        (self.next_poll_at, self.last_poll_was_empty) = (Moment::now(), false);
    }
}
