//! The thread that manages one coprocess: starts it, reads its output, checks its pings, age and memory, and waits for its end.

use std::sync::Arc;
use std::time::Duration;

use super::member::{Member, Order};
use super::output_reader::OutputReader;
use super::pool::Pool;
use super::protocol::{DRAIN, PING, hello};
use super::ticket::{Cause, Death, TicketOutcome};
use taskqueue_domain::run::ending::Ending;
use taskqueue_host::clock::Moment;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::children::coprocess::{Coprocess, CoprocessEnd, EndPlan};

/// The pause before its output is read again while a run has too many untaken events.
const CONGESTED: Duration = Duration::from_millis(5);
/// How long a process that has closed its output may take to end.
const MUTE_END: Duration = Duration::from_millis(500);
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Starts a process for a member of the pool and manages it until it has ended.
pub(super) fn keep(pool: &Arc<Pool>, number: u64, waker: &Waker) {
    let started = pool.handler.child_spec(&pool.class, &pool.runner).and_then(|spec| Coprocess::start(&spec));
    let (coprocess, inlet) = match started {
        Ok(started) => started,
        Err(ending) => {
            let mut state = pool.state();
            state.members.retain(|member| member.number != number);
            state.could_not_start(ending);
            return;
        }
    };
    fault_point!("coprocess.started");
    if let Some(member) = pool.state().member(number) {
        member.identity = Some(Arc::new(coprocess.identity().clone()));
        member.inlet = Some(inlet);
        member.say(&hello());
    }
    let output_reader = OutputReader::new(Arc::clone(pool), number);
    Keeper { pool, number, output_reader, pings: Pings::new(pool.handler.ping_every), mute_until: None }
        .stay(coprocess, waker);
}

struct Keeper<'a> {
    pool: &'a Pool,
    number: u64,
    output_reader: OutputReader,
    pings: Pings,
    /// When it must have ended, after it closed its output.
    mute_until: Option<Moment>,
}

/// What to do next.
enum Next {
    Listen { wants_to_write: bool, until: Moment },
    End(EndPlan, Cause),
}

/// Checks whether the process still answers.
struct Pings {
    every: Duration,
    next: Moment,
    /// When it must have sent something.
    answer_by: Option<Moment>,
}

impl Pings {
    fn new(every: Duration) -> Self {
        Self { every, next: Moment::after(every), answer_by: None }
    }

    fn heard(&mut self) {
        *self = Self::new(self.every);
    }
}

impl Keeper<'_> {
    fn stay(mut self, mut coprocess: Coprocess, waker: &Waker) {
        let (plan, cause) = loop {
            let (wants_to_write, until) = match self.next() {
                Next::Listen { wants_to_write, until } => (wants_to_write, until),
                Next::End(plan, cause) => break (plan, cause),
            };
            let reads_output = self.output_reader.are_open();
            let until = if reads_output { until } else { until.min(Moment::after(CONGESTED)) };
            let turn = coprocess.turn(waker, (reads_output, wants_to_write), until, &mut self.output_reader);
            self.wake_up();
            if self.output_reader.have_heard() {
                self.pings.heard();
                fault_point!("coprocess.heard");
                let may_be_large = self.pool.handler.config.max_rss_bytes;
                let is_large = may_be_large.is_some_and(|most| {
                    self.output_reader.has_answer() && coprocess.resident_bytes().is_some_and(|found| found > most)
                });
                self.output_reader.deliver(is_large);
            }
            // Checked whether or not the process has ended.
            if let Some(why) = self.output_reader.fault.take() {
                break (self.plan(Duration::ZERO, self.grace()), Cause::Fault("protocol", why));
            }
            if turn.has_ended {
                break (self.plan(Duration::ZERO, self.grace()), Cause::Itself);
            }
            if turn.is_mute && self.ends_by_itself_no_more() {
                let why = "it closed its standard output".to_owned();
                break (self.plan(Duration::ZERO, self.grace()), Cause::Fault("protocol", why));
            }
        };
        self.finish(coprocess, &plan, cause);
    }

    /// Returns true if a process that closed its output has had enough time to end: the output closes a little before the exit
    /// is seen.
    fn ends_by_itself_no_more(&mut self) -> bool {
        self.mute_until.get_or_insert_with(|| Moment::after(MUTE_END)).has_passed()
    }

    /// Makes this thread write what other threads send to the process.
    fn wake_up(&self) {
        if let Some(member) = self.pool.state().member(self.number) {
            member.keeper_is_awake = true;
        }
    }

    fn grace(&self) -> Duration {
        self.pool.handler.command.kill_grace
    }

    fn plan(&self, term_after: Duration, kill_after: Duration) -> EndPlan {
        EndPlan { closes_input: false, term_after, kill_after, kill_grace: self.grace(), reason: None }
    }

    /// Writes pending output, and checks orders and deadlines.
    fn next(&mut self) -> Next {
        let (pool, number) = (self.pool, self.number);
        let mut state = pool.state();
        let Some(member) = state.member(number) else {
            return Next::End(self.plan(Duration::ZERO, Duration::ZERO), Cause::Itself);
        };
        let until = match self.due(member) {
            Ok(until) => until,
            Err(why) => return Next::End(self.plan(Duration::ZERO, Duration::ZERO), why),
        };
        let next = match member.order.clone() {
            Order::Kill(cause) => Next::End(self.plan(Duration::ZERO, Duration::ZERO), cause),
            Order::Terminate(cause, reason) => {
                let plan = self.plan(Duration::ZERO, self.grace());
                Next::End(EndPlan { reason: Some(reason), ..plan }, cause)
            }
            Order::Retire if member.in_flight.is_empty() => {
                member.say(DRAIN);
                let (grace, is_known) = (self.grace(), member.hello.is_some());
                // A process that has sent no hello has no run to finish.
                let term_after = if is_known { grace } else { Duration::ZERO };
                let kill_after = term_after.saturating_add(grace);
                Next::End(EndPlan { closes_input: true, ..self.plan(term_after, kill_after) }, Cause::Itself)
            }
            Order::Serve | Order::Retire => Next::Listen { wants_to_write: false, until },
        };
        let is_written = member.flush();
        match next {
            Next::Listen { .. } => {
                member.keeper_is_awake = false;
                Next::Listen { wants_to_write: !is_written, until }
            }
            end @ Next::End(..) => end,
        }
    }

    /// Returns when the next deadline is; the error is why the process must be killed.
    fn due(&mut self, member: &mut Member) -> Result<Moment, Cause> {
        let mut until = self.mute_until.unwrap_or_else(|| Moment::after(LONGEST_SLEEP));
        let Some(hello) = member.hello else {
            let limit = self.pool.handler.config.start_timeout;
            let hello_by = member.started.plus(limit);
            if hello_by.has_passed() {
                return Err(Cause::Fault(
                    "no-hello",
                    format!("it sent no hello within {} seconds", limit.as_secs_f64()),
                ));
            }
            return Ok(until.min(hello_by));
        };
        if let Some(max_age) = self.pool.handler.config.max_age.filter(|_| member.given > 0) {
            if member.is_old(max_age) {
                member.order(Order::Retire);
            } else {
                until = until.min(member.started.plus(max_age));
            }
        }
        match self.pings.answer_by {
            Some(by) if by.has_passed() => {
                let why = format!("it did not answer a ping within {} seconds", self.grace().as_secs_f64());
                return Err(Cause::Fault("no-pong", why));
            }
            Some(by) => until = until.min(by),
            // A process that does one thing at a time cannot answer while it works.
            None if !hello.can_ping && !member.in_flight.is_empty() => {}
            None if self.pings.next.has_passed() => {
                member.say(PING);
                let by = Moment::after(self.grace());
                self.pings.answer_by = Some(by);
                until = until.min(by);
            }
            None => until = until.min(self.pings.next),
        }
        Ok(until)
    }

    fn finish(mut self, coprocess: Coprocess, plan: &EndPlan, cause: Cause) {
        let inlet = self.pool.state().member(self.number).and_then(|member| {
            // It gets no further runs.
            member.is_leaving = true;
            member.inlet.take()
        });
        fault_point!("coprocess.ending");
        self.output_reader.begin_the_end(plan.kill_after.is_zero());
        let end = coprocess.end(inlet, plan, &mut self.output_reader);
        self.output_reader.deliver(false);
        fault_point!("coprocess.ended");
        self.bury(end, cause, plan.closes_input);
    }

    /// Removes the process from the pool, and reports its end to its runs.
    fn bury(&self, end: CoprocessEnd, cause: Cause, was_asked: bool) {
        let CoprocessEnd { ending, unended, unread_bytes } = end;
        let death = Arc::new(Death { ending, cause, unended });
        let mut state = self.pool.state();
        let Some(at) = state.members.iter().position(|member| member.number == self.number) else { return };
        let member = state.members.remove(at);
        if member.hello.is_none() && !was_asked {
            state.could_not_start(self.start_failure(&death));
        }
        state.call_waiting();
        drop(state);
        let read = member.written.saturating_sub(unread_bytes);
        for run in member.in_flight.into_values() {
            let outcome = TicketOutcome::Lost { death: Arc::clone(&death), may_have_started: run.start < read };
            run.ticket.end(outcome);
        }
    }

    fn start_failure(&self, death: &Death) -> Ending {
        let why = match (&death.cause, &death.ending) {
            (Cause::Fault(_, why), _) => why.clone(),
            (_, Ending::Exited(code)) => format!("it ended with exit code {code} before its hello"),
            (_, Ending::Signalled(signal) | Ending::Killed { signal, .. }) => {
                format!("it was ended by signal {signal} before its hello")
            }
            (_, other) => format!("it sent no hello: {other:?}"),
        };
        let said = self.output_reader.last_words();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Ending::CouldNotStart(format!("could not start {}: {why}{said}", self.pool.handler.program()))
    }
}
