//! Takes runs from runners that died, and ends runs whose time is over where no runner does (the scheme's
//! synchronizeTaskRunStatus). A surviving handler is ended before its run becomes `timeout` (rule R7).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use chrono::TimeDelta;
use serde::Serialize;

use super::announce::start_hook;
use super::silence::{Silence, both_clocks, silence_of};
use crate::handler::command::marker;
use crate::outbox::outcomes::{GivenBack, has_outcome_of, is_being_sent, send_left_over};
use crate::running::register::liveness_of;
use crate::{Context, EngineResult};
use taskqueue_domain::run::decision::{Blame, Decision};
use taskqueue_domain::run::lease::TwoClocks;
use taskqueue_domain::run::notice::NoticeKind;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Run;
use taskqueue_process::identities::cgroup::end_group_of;
use taskqueue_process::identities::claimant::{EndAnswer, ask_to_end};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::identities::marks::{dead_owners, forget, marks_of};
use taskqueue_process::identities::survivors::{RecordedHandler, end_coprocesses, end_survivors};
use taskqueue_store::{
    EndCondition, Ended, Lateness, Loss, NewEvent, NewNotice, RunEnd, RunRef, Store, StoreError, StoreResult,
};

/// From TERM to KILL for what survived its runner: everybody who creates runs here waits for it.
const LONGEST_GRACE: Duration = Duration::from_secs(2);
/// Runs that are looked at with one query.
const PAGE: i64 = 500;
/// Runs that a claimant looks at before it claims.
const FEW: i64 = 20;

/// A run that was taken from its runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rescued {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// `runner-died`, `claimant-died` or `lease-expired`.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// Whether it was to be cancelled, so that its task is not tried again.
    pub is_cancelled: bool,
    /// Processes that were still alive and were ended: of its handler, or its claimant and what that started.
    pub ended_processes: usize,
    /// The claimant that had it, if it was no runner.
    pub claimant: Option<String>,
    /// Whether the process of the claimant got TERM and ended.
    pub claimant_ended: bool,
}

/// What a rescue did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RescueReport {
    /// Runs that were taken from their runners.
    pub rescued: Vec<Rescued>,
    /// Runs that should have been, but whose handler could not be ended; tried again next time.
    pub stuck: Vec<String>,
    /// Outcomes that dead runners of this host had left on its disk meanwhile.
    #[serde(skip)]
    pub sent_outcomes: usize,
}

/// Why a run may be taken from whoever has it.
pub(crate) struct Evidence {
    /// `runner-died`, `claimant-died` or `lease-expired`.
    pub(crate) code: &'static str,
    /// The same in words.
    pub(crate) message: String,
    /// What must still be so when the run is taken.
    condition: EndCondition,
}

/// Looks at every processing run and rescues those that nobody works on any more.
///
/// # Errors
/// The database's.
pub fn rescue_runs(ctx: &mut Context, settings: &Settings) -> EngineResult<RescueReport> {
    // Before the runs are listed: of one that dies later not all of them are looked at.
    let dead = ctx.spool.as_ref().and_then(|spool| dead_owners(spool.directory()).ok()).unwrap_or_default();
    let mut last: Option<Run> = None;
    let (report, stuck) = rescue_pages(ctx, settings, |store| {
        let page = store.list_processing_runs(last.as_ref(), PAGE)?;
        last = page.last().cloned();
        Ok(page)
    })?;
    if let Some(spool) = &ctx.spool {
        // What is left of the others takes room, and nothing else.
        dead.iter().filter(|owner| !stuck.contains(*owner)).for_each(|owner| forget(spool.directory(), owner));
    }
    Ok(report)
}

/// The same for a claimant, who waits meanwhile: a few of the runs whose lease is over, and of those that claimants of this host
/// have, whose process may be dead.
///
/// # Errors
/// The database's.
pub(crate) fn rescue_some(ctx: &mut Context, settings: &Settings) -> EngineResult<()> {
    let overdue = ctx.store.list_overdue_runs(&ctx.me.host, FEW)?;
    let mut pages = std::iter::once(overdue);
    rescue_pages(ctx, settings, |_| Ok(pages.next().unwrap_or_default())).map(drop)
}

/// Page by page, until one is empty. Whose handlers could not be ended comes with it.
fn rescue_pages(
    ctx: &mut Context,
    settings: &Settings,
    mut next_page: impl FnMut(&mut Store) -> StoreResult<Vec<Run>>,
) -> EngineResult<(RescueReport, BTreeSet<String>)> {
    let mut report = RescueReport::default();
    let lease_secs = settings.lease.lease_secs;
    let mut clocks = None;
    let mut stuck = BTreeSet::new();
    let mut known_runners = KnownRunners::default();
    loop {
        let page = next_page(&mut ctx.store)?;
        if page.is_empty() {
            break;
        }
        // Not before: most times there is no page. A lease that was renewed in between is seen before its run is taken.
        let now = match clocks {
            Some(now) => now,
            None => {
                *clocks.insert(ctx.store.leases_count(lease_secs)?.then(|| both_clocks(&mut ctx.store)).transpose()?)
            }
        };
        let mut suspects: Vec<(&Run, Evidence)> = Vec::new();
        for run in &page {
            match evidence_against(ctx, run, now, lease_secs)? {
                Verdict::Guilty(evidence) => suspects.push((run, evidence)),
                Verdict::ClockSet(step) => note_clock_set(ctx, run, step)?,
                Verdict::Innocent => {}
            }
        }
        if !suspects.is_empty() {
            // A runner that has been found dead can have left the outcome just before.
            report.sent_outcomes += send_left_over(ctx)?;
        }
        for (run, evidence) in &suspects {
            if !ends_by_its_outcome(ctx, run, now)?
                && let Some(run) = still_in_question(ctx, run, evidence)?
            {
                rescue_run(ctx, settings, &run, evidence, &mut known_runners, &mut report)?;
                if report.rescued.last().is_none_or(|rescued| rescued.run_id != run.id) {
                    stuck.insert(run.process_identity.clone());
                }
            }
        }
    }
    if !report.rescued.is_empty() {
        ctx.notify_finished();
    }
    Ok((report, stuck))
}

/// What is known of runners, by their identity.
#[derive(Default)]
struct KnownRunners {
    /// Whether one had several runs when the first of them was rescued: later it has fewer.
    had_several: BTreeMap<String, bool>,
    /// Those that are dead, and whose control group has been ended.
    ended: BTreeSet<String>,
}

/// What may have caused the loss of the run. What its runner had claimed and not begun is not to blame.
fn blame_for(
    ctx: &mut Context,
    run: &Run,
    evidence: &Evidence,
    known_runners: &mut KnownRunners,
) -> EngineResult<Blame> {
    let Some(runner_id) = run.runner_id.filter(|_| run.claimant.is_none()) else { return Ok(Blame::Task) };
    let identity = run.process_identity.parse::<ProcessIdentity>();
    if run.host == ctx.me.host && identity.is_ok_and(|identity| !identity.is_of_this_boot()) {
        return Ok(Blame::Restart);
    }
    let had_several = match known_runners.had_several.get(&run.process_identity) {
        Some(had_several) => *had_several,
        None => {
            let runs = ctx.store.list_runs_of_runners(&[runner_id])?;
            let of_process = runs.iter().filter(|other| other.process_identity == run.process_identity);
            let is_begun = |other: &&Run| {
                let token = other.token.as_deref().unwrap_or_default();
                other.id == run.id || !was_never_begun(ctx, other, evidence, token)
            };
            let had_several = of_process.filter(is_begun).nth(1).is_some();
            known_runners.had_several.insert(run.process_identity.clone(), had_several);
            had_several
        }
    };
    Ok(if had_several { Blame::AnyOfSeveral } else { Blame::Task })
}

/// What is known against the runner of a run.
pub(crate) enum Verdict {
    /// Nothing.
    Innocent,
    /// Its lease is over only because the database's clock was set by so much.
    ClockSet(TimeDelta),
    /// The run may be taken.
    Guilty(Evidence),
}

/// Why the run may be taken from its runner, if it may: its process is dead, or its lease was over `now`, where leases count.
pub(crate) fn evidence_against(
    ctx: &mut Context,
    run: &Run,
    now: Option<TwoClocks>,
    lease_secs: i64,
) -> EngineResult<Verdict> {
    let holder =
        || run.claimant.as_ref().map_or_else(|| "the runner".to_owned(), |name| format!("the claimant {name}"));
    let liveness = liveness_of(&run.process_identity);
    if liveness == Liveness::Dead {
        let pid = run.process_id.unwrap_or_default();
        return Ok(Verdict::Guilty(Evidence {
            code: if run.claimant.is_some() { "claimant-died" } else { "runner-died" },
            message: format!("{} (process {pid} on {}) is dead", holder(), run.host),
            condition: EndCondition::Held,
        }));
    }
    let Some(now) = now else { return Ok(Verdict::Innocent) };
    Ok(match silence_of(ctx, run, liveness, now, lease_secs)? {
        Silence::Renewed => Verdict::Innocent,
        Silence::ClockSet(step) => Verdict::ClockSet(step),
        Silence::Over(condition) => Verdict::Guilty(Evidence {
            code: "lease-expired",
            message: format!("{} on {} has not renewed its lease", holder(), run.host),
            condition,
        }),
    })
}

/// Keeps that a run stays with its runner although its lease is over, once for each time that the clock was set.
fn note_clock_set(ctx: &mut Context, run: &Run, step: TimeDelta) -> EngineResult<()> {
    // To ten seconds: two measurements of one step differ a little.
    let seconds = (step.num_seconds() + 5) / 10 * 10;
    Ok(ctx.store.record_event_once(&NewEvent {
        kind: "clock-set",
        task_id: Some(run.task_id),
        run_id: Some(run.id),
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details: serde_json::json!({ "seconds": seconds, "runner_id": run.runner_id }),
    })?)
}

/// Whether how the run ended is known on this host after all, and on its way: somebody who sends the outcomes of dead
/// runners may have held it when we looked for them. Not for longer than its lease: the sender may hang.
fn ends_by_its_outcome(ctx: &mut Context, run: &Run, now: Option<TwoClocks>) -> EngineResult<bool> {
    let is_leased = now.is_none_or(|now| run.lease_expires_on.is_some_and(|lease| lease >= now.on));
    if is_leased && run.token.as_deref().is_some_and(|token| is_being_sent(ctx, token)) {
        return Ok(true);
    }
    // Or its sender has died meanwhile.
    send_left_over(ctx)?;
    Ok(false)
}

/// The run as it is now, if the evidence still speaks against it. The page was read before other rescues, each of which
/// may have waited for processes to end: meanwhile a run can have succeeded, and what a success leaves running may go on.
fn still_in_question(ctx: &mut Context, listed: &Run, evidence: &Evidence) -> EngineResult<Option<Run>> {
    let run = match ctx.store.get_run(listed.id) {
        Err(StoreError::NotFound(_)) => return Ok(None),
        found => found?,
    };
    let is_same = run.status.is(RunStatus::Processing) && run.token == listed.token;
    let is_renewed = evidence.condition != EndCondition::Held && run.lease_expires_on != listed.lease_expires_on;
    Ok((is_same && !is_renewed).then_some(run))
}

/// The handler as the run names it. A Rust type is handled by the runner itself, in whatever group that was started.
fn recorded_handler(run: &Run) -> Option<RecordedHandler> {
    let identity = run.handler_identity.parse::<ProcessIdentity>().ok()?;
    Some(RecordedHandler { identity, has_own_group: run.handler_identity != run.process_identity })
}

/// Ends what survived, and says how many processes showed the token of the run, and how many their runner. A handler that
/// works for many runs shows the token of none: it names its runner. What lives of it ends with all the runs it had, of
/// which their runner hears if it lives.
fn end_what_survived(
    run: &Run,
    token: &str,
    recorded: Option<&RecordedHandler>,
    grace: Duration,
    known_runners: &mut KnownRunners,
) -> io::Result<(usize, usize)> {
    let runner = run.process_identity.parse::<ProcessIdentity>().ok().filter(|_| run.claimant.is_none());
    let of_runner = runner.as_ref().map_or(Ok(0), |runner| end_coprocesses(runner, recorded, grace))?;
    let of_run = end_survivors(&marker(token), recorded, grace);
    // Last, because it gives nothing the time to end by itself.
    let of_group = match &runner {
        Some(runner) if !known_runners.ended.contains(&run.process_identity) => end_group_of(runner)?,
        _ => 0,
    };
    known_runners.ended.insert(run.process_identity.clone());
    let of_run = if of_group > 0 { of_run.or_else(|_| end_survivors(&marker(token), recorded, grace)) } else { of_run };
    Ok((of_run?, of_runner + of_group))
}

fn rescue_run(
    ctx: &mut Context,
    settings: &Settings,
    run: &Run,
    evidence: &Evidence,
    known_runners: &mut KnownRunners,
    report: &mut RescueReport,
) -> EngineResult<()> {
    fault_point!("rescue.examined");
    // A row without token was written by somebody else's hand; there is nothing to guard the write with.
    let Some(token) = run.token.clone() else { return Ok(()) };
    let blame = blame_for(ctx, run, evidence, known_runners)?;
    let handler = recorded_handler(run);
    let grace = grace_of(ctx, run);
    // One that is dead has no process.
    let asked = if evidence.condition == EndCondition::Held { EndAnswer::Nobody } else { ask_claimant(run, grace) };
    let (of_run, of_runner) = match end_what_survived(run, &token, handler.as_ref(), grace, known_runners) {
        Ok(counts) => counts,
        Err(error) => {
            report.stuck.push(format!("run {}: {error}", run.id));
            ctx.store.record_notice_once(&NewNotice {
                kind: NoticeKind::Stuck,
                task_id: run.task_id,
                run_id: run.id,
                class: run.class.to_string(),
                host: ctx.me.host.clone(),
                error_code: "not-ended".to_owned(),
                error_message: error.to_string(),
            })?;
            return Ok(());
        }
    };
    fault_point!("rescue.survivors_ended");
    let message = match &asked {
        EndAnswer::Lives(why) => format!("{}; {why}", evidence.message),
        EndAnswer::Ended | EndAnswer::Nobody => evidence.message.clone(),
    };
    let ended_processes = of_run + of_runner + usize::from(asked == EndAnswer::Ended);
    let notes = vec![rescue_event(ctx, run, evidence, ended_processes)];
    let end = if of_run == 0 && was_never_begun(ctx, run, evidence, &token) {
        RunEnd { notes, ..GivenBack::ClaimedAhead.end() }
    } else {
        RunEnd { notes, ..lost_end(ctx, settings, run, (evidence, blame), &message) }
    };
    // It carries the token that was examined: a run that changed hands meanwhile is left alone.
    let ended = ctx.store.end_run(&RunRef { id: run.id, token }, &end)?;
    if ended.is_as_asked() || ended == Ended::Cancelled {
        fault_point!("rescue.committed");
        if ended.is_as_asked() {
            start_hook(ctx, run.task_id, run.id, &end);
        }
        report.rescued.push(Rescued {
            run_id: run.id,
            task_id: run.task_id,
            reason: evidence.code.to_owned(),
            message,
            is_cancelled: ended == Ended::Cancelled,
            ended_processes,
            claimant: run.claimant.clone(),
            claimant_ended: asked == EndAnswer::Ended,
        });
    }
    Ok(())
}

/// The end of a run that its runner may have begun.
fn lost_end(
    ctx: &Context,
    settings: &Settings,
    run: &Run,
    (evidence, blame): (&Evidence, Blame),
    message: &str,
) -> RunEnd {
    let decision = Decision::lost(evidence.code, message, blame);
    // A claimant that did not come back in time is late, as far as anybody knows, and not dead.
    let is_late = run.claimant.is_some() && evidence.condition != EndCondition::Held;
    let lateness = is_late.then_some(Lateness { hold_secs: settings.hold_secs, limit: settings.claim_timeout_limit });
    RunEnd {
        may_retry: decision.may_retry,
        backoff: settings.backoff.clone(),
        loss: Some(Loss { class_backoff: ctx.handlers.stated_backoff(run.class.known()), lateness }),
        crash: (decision.is_crash && lateness.is_none()).then(|| ctx.crash(run.class.known(), settings)),
        condition: evidence.condition,
        ..RunEnd::of(decision.event, &decision.error_code, &decision.error_message, &decision.rule)
    }
}

/// Whether its runner died before one of its slots had begun it. Only what the slots of a process have left on this host shows
/// that: without it the run may have begun, and its attempt counts.
fn was_never_begun(ctx: &Context, run: &Run, evidence: &Evidence, token: &str) -> bool {
    if evidence.condition != EndCondition::Held || !run.handler_identity.is_empty() {
        return false;
    }
    let Some(spool) = &ctx.spool else { return false };
    let Ok(Some(marks)) = marks_of(spool.directory(), &run.process_identity) else { return false };
    // A slot passes on to its next run once the outcome of the last one is in the spool, where it may still be.
    !marks.iter().any(|mark| mark == token) && !has_outcome_of(spool, token)
}

/// How long what survives of a run has from TERM to KILL.
fn grace_of(ctx: &Context, run: &Run) -> Duration {
    ctx.handlers.kill_grace(run.class.known()).min(LONGEST_GRACE)
}

/// Asks the claimant that has this run to end, where its process is on this host.
fn ask_claimant(run: &Run, grace: Duration) -> EndAnswer {
    match (&run.claimant, run.process_identity.parse::<ProcessIdentity>()) {
        (Some(claimant), Ok(identity)) => ask_to_end(&identity, claimant, grace),
        _ => EndAnswer::Nobody,
    }
}

/// Asks the claimant that has this run to end, and ends what it has started for the run, as far as both are on this host. Returns
/// what became of the claimant, and how many processes of the run were ended.
///
/// # Errors
/// A process of the run could not be ended.
pub(crate) fn end_processes_of_claim(ctx: &Context, run: &Run, token: &str) -> io::Result<(EndAnswer, usize)> {
    let grace = grace_of(ctx, run);
    let asked = ask_claimant(run, grace);
    let handler = recorded_handler(run);
    let (of_run, of_runner) = end_what_survived(run, token, handler.as_ref(), grace, &mut KnownRunners::default())?;
    Ok((asked, of_run + of_runner))
}

fn rescue_event(ctx: &Context, run: &Run, evidence: &Evidence, ended_processes: usize) -> NewEvent {
    NewEvent {
        kind: "rescued",
        task_id: Some(run.task_id),
        run_id: Some(run.id),
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details: serde_json::json!({
            "reason": evidence.code, "message": evidence.message, "ended_processes": ended_processes,
            "process_identity": run.process_identity,
        }),
    }
}
