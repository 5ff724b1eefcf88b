//! The one thread of a worker that claims and records.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use wildmatch::WildMatch;

use super::super::execute::longest_silence;
use super::super::lease::{Holding, Standing};
use super::super::outcomes::{GivenBack, Outcome};
use super::super::outcomes_of_many::{Sent, leave_claims, send_many};
use super::super::process_run::ProcessReport;
use super::super::workplace::Workplace;
use super::super::{Context, EngineError, EngineResult, new_token};
use super::backlog::{Backlog, Finished, Standings};
use super::errands::Errands;
use super::memory::Memory;
use super::pace::Pause;
use super::reload::{Current, reconfigure};
use super::{WorkListener, WorkOptions};
use crate::domain::ids::RunnerId;
use crate::domain::records::ClaimedRun;
use crate::os::clock::Moment;
use crate::os::spool::SpoolFile;
use crate::store::{Claim, News, Outlook, RunRef, StoreError};

/// For how long ends are gathered before they are written, while the slots have work.
const GATHER: Duration = Duration::from_millis(8);
/// A run that waits for longer than this behind others goes back: somebody else may have a slot for it.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Between two looks at signals and orders.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two attempts to reach a database that is away.
const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// For how long it is believed which classes are held here.
const HOLDS_FOR: Duration = Duration::from_secs(1);

pub(super) struct Coordinator<'a, 'b> {
    ctx: &'a mut Context,
    options: &'a mut WorkOptions,
    patterns: Vec<WildMatch>,
    until: Option<Moment>,
    runner_id: RunnerId,
    place: &'a Workplace<'b>,
    current: Current,
    memory: Memory,
    backlog: &'a Backlog,
    errands: &'a Errands,
    held: HashSet<String>,
    held_until: Moment,
    claimed: u64,
    pause: Pause,
    /// No look for runs before.
    look_at: Moment,
    /// Wakes it when there may be something to claim.
    news: Option<News>,
    /// When the next task becomes due, as the last look has seen it.
    next_due: Option<Moment>,
    /// Whether the last look found nothing.
    found_nothing: bool,
    /// Since when there has been nothing to do at all.
    idle_since: Moment,
    /// Since when finished runs are waiting to be recorded.
    gathering_since: Option<Moment>,
    /// The database is not asked before.
    away_until: Moment,
    is_away: bool,
    /// What could not be sent because the database was away.
    unsent: Option<(Vec<Finished>, Option<SpoolFile>)>,
}

/// Whether the database may come back to us.
fn is_away(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(StoreError::Unreachable { .. } | StoreError::Busy(_) | StoreError::Full { .. }))
}

impl<'a, 'b> Coordinator<'a, 'b> {
    #[expect(clippy::too_many_arguments, reason = "what a session is made of")]
    pub(super) fn new(
        ctx: &'a mut Context,
        options: &'a mut WorkOptions,
        until: Option<Moment>,
        runner_id: RunnerId,
        place: &'a Workplace<'b>,
        current: Current,
        backlog: &'a Backlog,
        errands: &'a Errands,
        news: Option<News>,
    ) -> Self {
        let now = Moment::now();
        Self {
            ctx,
            patterns: options.classes.iter().map(|pattern| WildMatch::new(pattern)).collect(),
            memory: Memory::new(options.max_rss_bytes),
            options,
            until,
            runner_id,
            place,
            current,
            backlog,
            errands,
            held: HashSet::new(),
            held_until: now,
            claimed: 0,
            look_at: now,
            pause: if news.is_some() { Pause::with_news() } else { Pause::without_news() },
            news,
            next_due: None,
            idle_since: now,
            gathering_since: None,
            unsent: None,
            away_until: now,
            is_away: false,
            found_nothing: false,
        }
    }

    /// Until it is told to stop or it is enough, and everything that was claimed has ended.
    ///
    /// # Errors
    /// The database's. What has finished stays on the disk; what waits goes back when the database answers again.
    pub(super) fn run(mut self, listener: &mut dyn WorkListener, report: &mut ProcessReport) -> EngineResult<()> {
        let mut looked = Moment::now();
        loop {
            let asks = self.away_until.has_passed();
            match self.turn(listener, report) {
                Ok(true) => return Ok(()),
                Ok(false) if self.is_away && asks => {
                    self.is_away = false;
                    listener.found_database();
                }
                Ok(false) => {}
                // As long as the leases can be trusted, the runs in progress go on.
                Err(problem) if is_away(&problem) => {
                    listener.lost_database(&problem);
                    self.look_at = Moment::after(AWAY_PAUSE);
                    self.away_until = self.look_at;
                    self.is_away = true;
                }
                Err(problem) => return Err(problem),
            }
            let standings = self.backlog.standings();
            if looked.elapsed() >= LOOK_EVERY {
                self.look(standings, listener, report);
                looked = Moment::now();
            }
            self.sleep(standings);
        }
    }

    /// Until there is something to do.
    fn sleep(&mut self, standings: Standings) {
        let news = self.news.as_ref().map(News::as_fd);
        self.backlog.waker.wait(news, self.longest_sleep(standings));
        match self.news.as_mut().map(News::heard) {
            // To look costs as much as to claim. Who has just told does not tell again of what he queues next: it is looked for.
            Some(Ok(true)) => {
                (self.look_at, self.found_nothing) = (Moment::now(), false);
                self.pause.reset();
            }
            Some(Ok(false)) | None => {}
            // From now on it is found by looking.
            Some(Err(_)) => (self.news, self.pause) = (None, Pause::without_news()),
        }
    }

    /// Records, gives back and claims what there is. Whether that was all.
    fn turn(&mut self, listener: &mut dyn WorkListener, report: &mut ProcessReport) -> EngineResult<bool> {
        if !self.away_until.has_passed() {
            return self.is_held();
        }
        let mut standings = self.backlog.standings();
        if self.is_to_record(standings) {
            self.record(listener, report)?;
            standings = self.backlog.standings();
        }
        if self.current.read_settings(self.ctx, listener)? {
            self.change_terms();
            standings = self.backlog.standings();
        }
        if self.is_leaving() || standings.longest_wait > LONGEST_WAIT || standings.returning > 0 {
            self.give_waiting_back()?;
            standings = self.backlog.standings();
        }
        if self.wants_more(standings) {
            self.claim(standings, listener)?;
            standings = self.backlog.standings();
        }
        if !self.has_ended(standings) {
            return Ok(false);
        }
        // Whoever has lost its slots asks for them again.
        self.is_held()
            .map(|_| true)
            .or_else(|error| if self.place.stopping.is_leaving() { Ok(true) } else { Err(error) })
    }

    /// While the database is away: until the lease of the worker itself is over.
    fn is_held(&self) -> EngineResult<bool> {
        match self.place.leases.runner_standing() {
            Standing::Held => Ok(false),
            Standing::Lost | Standing::Over => Err(EngineError::RunnerOver),
        }
    }

    /// Whether nothing more is to be claimed, for good.
    fn is_leaving(&self) -> bool {
        self.place.stopping.is_leaving()
            || self.until.is_some_and(Moment::has_passed)
            || self.memory.is_too_large()
            // Whose slots were given away meanwhile may be too many (rule R5).
            || self.place.leases.runner_standing() != Standing::Held
    }

    /// Whether the ends are to be written now. Those who wait for more to come with them keep no slot from its work.
    fn is_to_record(&mut self, standings: Standings) -> bool {
        if self.unsent.is_some() {
            return true;
        }
        if standings.finished == 0 {
            self.gathering_since = None;
            return false;
        }
        let since = *self.gathering_since.get_or_insert_with(Moment::now);
        let is_dry = standings.waiting == 0 && standings.working < self.options.slots;
        is_dry || since.elapsed() >= GATHER || standings.finished >= standings.look_ahead.max(self.options.slots)
    }

    fn wants_more(&self, standings: Standings) -> bool {
        let is_enough = self.options.max_runs.is_some_and(|max| self.claimed >= max);
        !is_enough
            && !self.is_leaving()
            && self.look_at.has_passed()
            // Half of what is ahead is enough for the slots until the next time.
            && standings.waiting + standings.working < self.options.slots + standings.look_ahead.div_ceil(2)
    }

    fn has_ended(&self, standings: Standings) -> bool {
        if standings.waiting + standings.returning + standings.working + standings.finished > 0 || self.unsent.is_some()
        {
            return false;
        }
        let is_enough = self.options.max_runs.is_some_and(|max| self.claimed >= max);
        let was_idle = self.options.idle_exit.is_some_and(|idle| {
            // What was looked for and not found counts, not what was not looked for yet.
            !self.look_at.has_passed() && self.idle_since.elapsed() >= idle
        });
        is_enough || was_idle || self.is_leaving()
    }

    fn longest_sleep(&self, standings: Standings) -> Duration {
        let mut sleep = LOOK_EVERY;
        if standings.finished > 0 {
            sleep = sleep.min(self.gathering_since.map_or(GATHER, |since| GATHER.saturating_sub(since.elapsed())));
        }
        let has_room = standings.waiting + standings.working < self.options.slots + standings.look_ahead.div_ceil(2);
        if has_room && !self.is_leaving() {
            sleep = sleep.min(self.look_at.remaining());
        }
        sleep
    }

    fn look(&mut self, standings: Standings, listener: &mut dyn WorkListener, report: &ProcessReport) {
        if reconfigure(self.ctx, self.options, listener) {
            self.current.take_handlers(self.ctx);
            self.change_terms();
            self.errands.reconfigure(self.ctx);
            self.place.stopping.allow(self.options.stop_wait);
        }
        self.current.forget_former();
        if let Some((used_bytes, most_bytes)) = self.memory.look(report.processed) {
            self.backlog.withdraw_waiting();
            listener.is_too_large(used_bytes, most_bytes);
        }
        let _ = self.place.stopping.check(&mut |wait| listener.stopping(&self.place.leases.held_runs(), wait));
        listener.looked(report, standings.working);
    }

    /// Runs that are claimed from now on are executed on the current terms. Those that wait were claimed on others.
    fn change_terms(&mut self) {
        self.backlog.change_terms(Arc::clone(&self.current.terms));
        // What was not handled before may be by now.
        (self.look_at, self.found_nothing) = (Moment::now(), false);
    }

    fn claim(&mut self, standings: Standings, listener: &mut dyn WorkListener) -> EngineResult<()> {
        let busy = standings.waiting + standings.working;
        let mut count = (self.options.slots + standings.look_ahead).saturating_sub(busy);
        if let Some(max) = self.options.max_runs {
            count = count.min(usize::try_from(max.saturating_sub(self.claimed)).unwrap_or(usize::MAX));
        }
        self.refresh_holds()?;
        let (runs, needs_runs) = self.claim_up_to(count)?;
        self.found_nothing = runs.is_empty() && !needs_runs;
        if runs.is_empty() {
            if needs_runs && self.ctx.store.create_missing_runs(&mut |_| {})? > 0 {
                return Ok(());
            }
            self.look_at = self.next_look();
            return Ok(());
        }
        fault_point!("work.claimed");
        if runs.len() < count && !needs_runs {
            // That was all: the next look may wait, unless something new comes of what succeeds.
            self.look_at = self.next_look();
        }
        self.claimed += u64::try_from(runs.len()).unwrap_or(u64::MAX);
        self.pause.reset();
        self.idle_since = Moment::now();
        runs.iter().for_each(|run| listener.claimed(run));
        self.backlog.add(runs);
        Ok(())
    }

    /// After a pause, or when the next task is due.
    fn next_look(&mut self) -> Moment {
        let look_at = Moment::after(self.pause.next());
        self.next_due.take().map_or(look_at, |next_due| look_at.min(next_due))
    }

    fn claim_up_to(&mut self, count: usize) -> EngineResult<(Vec<ClaimedRun>, bool)> {
        let asked_at = Moment::now();
        let tokens: Vec<String> = (0..count).map(|_| new_token()).collect::<EngineResult<_>>()?;
        let (place, terms, held, patterns) = (self.place, &self.current.terms, &self.held, &self.patterns);
        let is_runnable = |class: &str| {
            (patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(class)))
                && terms.handlers.find(class).is_some()
                && !held.contains(class)
        };
        let claim = Claim {
            runner_id: self.runner_id,
            runner_name: &place.me.runner_name,
            process_id: place.me.process_id,
            host: &place.me.host,
            process_identity: &place.me.identity,
            is_runnable: &is_runnable,
            lease_secs: terms.settings.lease.lease_secs,
        };
        // The lock is for those who have something to claim.
        if self.found_nothing {
            match self.ctx.store.look_for_work(&claim)? {
                Outlook::Now => {}
                Outlook::In(wait) => {
                    self.next_due = Some(Moment::after(wait));
                    return Ok((Vec::new(), false));
                }
                Outlook::Nothing => return Ok((Vec::new(), false)),
            }
        }
        let claimed = match self.ctx.store.claim_runs(&claim, &tokens) {
            Ok(claimed) => claimed,
            Err(error) => {
                // Its COMMIT may have happened.
                self.ctx.spool_problem = leave_claims(self.ctx, &tokens).or_else(|| self.ctx.spool_problem.take());
                return Err(error.into());
            }
        };
        fault_point!("work.claim_committed");
        let holdings = claimed.runs.iter().map(|run| {
            let timeout_secs = terms.handlers.timeout_secs(&run.class, run.task_timeout_secs, &terms.settings);
            let silence = longest_silence(timeout_secs, terms.handlers.kill_grace(&run.class));
            Holding { run: RunRef { id: run.run_id, token: run.token.clone() }, class: &run.class, silence }
        });
        place.leases.hold(asked_at, holdings);
        fault_point!("work.leases_held");
        Ok((claimed.runs, claimed.needs_runs))
    }

    fn refresh_holds(&mut self) -> EngineResult<()> {
        if self.held_until.has_passed() {
            let holds = self.ctx.store.list_class_holds()?;
            self.held =
                holds.into_iter().filter(|hold| hold.host == self.place.me.host).map(|hold| hold.class).collect();
            self.held_until = Moment::after(HOLDS_FOR);
        }
        Ok(())
    }

    /// Writes what has finished, all in a few transactions.
    fn record(&mut self, listener: &mut dyn WorkListener, report: &mut ProcessReport) -> EngineResult<()> {
        if self.unsent.is_none() {
            self.unsent = Some(self.backlog.take_finished());
        }
        self.gathering_since = None;
        let Some((finished, file)) = self.unsent.take() else { return Ok(()) };
        let answers = match self.send(&finished) {
            Ok(answers) => answers,
            Err(error) => {
                self.unsent = Some((finished, file));
                return Err(error);
            }
        };
        fault_point!("work.outcomes_sent");
        self.errands.tell_of_ends();
        if let Some(mut file) = file {
            // Should it stay, it is sent again, which changes nothing.
            let _ = file.clear();
            fault_point!("work.outcomes_cleared");
            self.backlog.give_back(file);
        }
        self.ctx.spool_problem = self.backlog.problem().or_else(|| self.ctx.spool_problem.take());
        for (finished, answer) in finished.into_iter().zip(answers) {
            self.note(finished, answer, listener, report);
        }
        fault_point!("work.runs_ended");
        // What succeeds may be waited for.
        (self.look_at, self.idle_since) = (Moment::now(), Moment::now());
        self.pause.reset();
        Ok(())
    }

    /// The answer to each; `None` for what has no end yet.
    fn send(&mut self, finished: &[Finished]) -> EngineResult<Vec<Option<Sent>>> {
        if let Some(over) = finished.iter().find(|finished| finished.is_over) {
            // All that has finished stays on the disk: by now it may be somebody else's.
            return Err(EngineError::LeaseOver { run_id: over.run.run_id.0 });
        }
        self.record_messages(finished);
        let outcomes: Vec<&Outcome> = finished.iter().filter_map(|finished| finished.to_send.as_ref()).collect();
        let errands = self.errands;
        let mut answers = send_many(self.ctx, &outcomes, &mut |outcome| errands.tell(outcome))?.into_iter();
        Ok(finished.iter().map(|finished| finished.to_send.as_ref().and_then(|_| answers.next())).collect())
    }

    /// A run is over.
    fn note(
        &mut self,
        finished: Finished,
        answer: Option<Sent>,
        listener: &mut dyn WorkListener,
        report: &mut ProcessReport,
    ) {
        let Finished { run, mut outcome, .. } = finished;
        self.place.leases.let_go(run.run_id);
        match answer {
            Some(Sent::Lost(found)) => outcome.lost_to = Some(found),
            Some(Sent::Refused(problem)) => listener.not_recorded(&run, &problem),
            Some(Sent::Recorded) | None => {}
        }
        if outcome.decision.holds_class {
            self.held_until = Moment::now();
        }
        report.count(&outcome);
        listener.ended(&run, &outcome);
    }

    fn record_messages(&mut self, finished: &[Finished]) {
        for Finished { run, messages, .. } in finished.iter().filter(|finished| !finished.messages.is_empty()) {
            // What cannot be kept now is given up: the end of the run must not wait for what was merely said.
            let reference = RunRef { id: run.run_id, token: run.token.clone() };
            let _ = self.ctx.store.record_messages(&reference, messages);
        }
    }

    /// Gives back what no slot has begun, at no cost.
    fn give_waiting_back(&mut self) -> EngineResult<()> {
        let waiting = self.backlog.take_waiting();
        if waiting.is_empty() {
            return Ok(());
        }
        let database = &self.place.database;
        let outcomes: Vec<Outcome> =
            waiting.iter().map(|run| Outcome::new(database, run, GivenBack::ClaimedAhead.end())).collect();
        if let Err(problem) = send_many(self.ctx, &outcomes.iter().collect::<Vec<_>>(), &mut |_| {}) {
            self.backlog.put_back(waiting);
            return Err(problem);
        }
        self.claimed = self.claimed.saturating_sub(u64::try_from(waiting.len()).unwrap_or(0));
        waiting.iter().for_each(|run| self.place.leases.let_go(run.run_id));
        Ok(())
    }
}
