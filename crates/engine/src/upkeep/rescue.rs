//! Rescues runs of dead runners, and ends runs whose lease has expired (the scheme's synchronizeTaskRunStatus). A surviving
//! handler is ended before its run becomes `timeout` (rule R7).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use chrono::TimeDelta;
use serde::Serialize;

use crate::announcing::announce::start_hook;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::handler::command::marker;
use crate::outbox::outcomes::{GivenBack, has_outcome_of, is_being_sent, send_left_over};
use crate::running::runner::register::liveness_of;
use crate::running::runner::silence::{Silence, both_clocks, silence_of};
use taskqueue_domain::limits::lease::TwoClocks;
use taskqueue_domain::monitoring::notice::NoticeKind;
use taskqueue_domain::run::decision::{Blame, Decision};
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
    EndCondition, EndResult, Lateness, Loss, NewEvent, NewNotice, RunEnd, RunRef, Store, StoreError, StoreResult,
};

/// The longest time from TERM to KILL for processes that outlived their runner; all processes that create runs here wait for
/// it.
const LONGEST_GRACE: Duration = Duration::from_secs(2);
/// How many runs are read with one query.
const PAGE: i64 = 500;
/// How many runs a claimant checks before it claims.
const FEW: i64 = 20;

/// A rescued run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rescued {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// `runner-died`, `claimant-died` or `lease-expired`.
    pub reason: String,
    /// Why, as text.
    pub message: String,
    /// Whether its cancellation was requested, so that its task is not retried.
    pub is_cancelled: bool,
    /// How many live processes were ended: those of its handler, or its claimant and what that had started.
    pub ended_processes: usize,
    /// The claimant that had it; `None` for a runner's.
    pub claimant: Option<String>,
    /// Whether the process of the claimant received TERM and ended.
    pub claimant_ended: bool,
}

/// The result of a rescue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RescueReport {
    /// The rescued runs.
    pub rescued: Vec<Rescued>,
    /// Runs that could not be rescued, because their handler could not be ended or the tables refused the end; the next rescue
    /// retries.
    pub stuck: Vec<String>,
    /// Outcomes that dead runners of this host had left in the spool meanwhile.
    #[serde(skip)]
    pub sent_outcomes: usize,
}

/// Why a run may be rescued.
pub(crate) struct Evidence {
    /// `runner-died`, `claimant-died` or `lease-expired`.
    pub(crate) code: &'static str,
    /// The reason as text.
    pub(crate) message: String,
    /// The condition that must still hold when the run is rescued.
    condition: EndCondition,
}

/// Checks every run in progress, and rescues those whose runner or claimant is dead or silent.
///
/// # Errors
/// Returns an error if the database fails.
pub fn rescue_runs(ctx: &mut Context, settings: &Settings) -> EngineResult<RescueReport> {
    // Before the runs are listed: not all runs of an owner that dies later are checked.
    let dead = ctx.spool.as_ref().and_then(|spool| dead_owners(spool.directory()).ok()).unwrap_or_default();
    let mut last: Option<Run> = None;
    let (report, stuck) = rescue_pages(ctx, settings, |store| {
        let page = store.list_processing_runs(last.as_ref(), PAGE)?;
        last = page.last().cloned();
        Ok(page)
    })?;
    if let Some(spool) = &ctx.spool {
        // The remaining files of the other owners only take space.
        dead.iter().filter(|owner| !stuck.contains(*owner)).for_each(|owner| forget(spool.directory(), owner));
    }
    Ok(report)
}

/// Like [`rescue_runs`], for a claimant that waits meanwhile. Checks only some runs whose lease has expired, and some runs of
/// claimants of this host, whose process may be dead.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn rescue_some(ctx: &mut Context, settings: &Settings) -> EngineResult<()> {
    let overdue = ctx.store.list_overdue_runs(&ctx.me.host, FEW)?;
    let mut pages = std::iter::once(overdue);
    rescue_pages(ctx, settings, |_| Ok(pages.next().unwrap_or_default())).map(drop)
}

/// Rescues page by page, until a page is empty. Returns the owners whose handlers could not be ended.
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
        // The clocks are read only now, because mostly there is no page. A lease that was renewed since the page was read is
        // noticed before its run is rescued.
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
            // A runner that was just found dead may have written the outcome shortly before.
            report.sent_outcomes += send_left_over(ctx)?;
        }
        for (run, evidence) in &suspects {
            if !ends_by_its_outcome(ctx, run, now)?
                && let Some(run) = still_in_question(ctx, run, evidence)?
            {
                match rescue_run(ctx, settings, &run, evidence, &mut known_runners, &mut report) {
                    // Values of this run that the tables refuse must not stop the rescue of others.
                    Err(EngineError::Store(error)) if error.is_refusal() => {
                        report.stuck.push(format!("run {}: {error}", run.id));
                    }
                    rescued => rescued?,
                }
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

/// Cached facts about runners, by identity.
#[derive(Default)]
struct KnownRunners {
    /// Whether a runner had several runs when the first of them was rescued; later it has fewer.
    had_several: BTreeMap<String, bool>,
    /// Dead runners whose control group was ended.
    ended: BTreeSet<String>,
}

/// Returns what may have caused the loss of the run. Runs that the runner had claimed but not begun do not count.
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

/// Whether a run may be rescued.
pub(crate) enum Verdict {
    /// It may not.
    Innocent,
    /// Its lease has expired only because the database's clock was set by this much.
    ClockSet(TimeDelta),
    /// It may be rescued, for this reason.
    Guilty(Evidence),
}

/// Checks whether the run may be rescued: its process is dead, or its lease had expired at `now`, if leases count.
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

/// Stores an event that a run stays with its runner although its lease has expired; once for each time that the clock was set.
fn note_clock_set(ctx: &mut Context, run: &Run, step: TimeDelta) -> EngineResult<()> {
    // Rounded to ten seconds, because two measurements of one step differ a little.
    let seconds = (step.num_seconds() + 5) / 10 * 10;
    let details = serde_json::json!({ "seconds": seconds, "runner_id": run.runner_id });
    Ok(ctx.store.record_event_once(&ctx.me.event_of_run("clock-set", run.task_id, run.id, details))?)
}

/// Returns true if another process on this host holds the outcome of the run and is about to send it; it may have held the file
/// when this process read the spool. True only until the lease expires, because that process may hang.
fn ends_by_its_outcome(ctx: &mut Context, run: &Run, now: Option<TwoClocks>) -> EngineResult<bool> {
    let is_leased = now.is_none_or(|now| run.lease_expires_on.is_some_and(|lease| lease >= now.on));
    if is_leased && run.token.as_deref().is_some_and(|token| is_being_sent(ctx, token)) {
        return Ok(true);
    }
    // Its sender may have died meanwhile.
    send_left_over(ctx)?;
    Ok(false)
}

/// Returns the current run, if the evidence still holds. The page was read before other rescues, and each of them may have
/// waited for processes to end. Meanwhile a run may have succeeded, and processes that a success leaves running may continue.
fn still_in_question(ctx: &mut Context, listed: &Run, evidence: &Evidence) -> EngineResult<Option<Run>> {
    let run = match ctx.store.get_run(listed.id) {
        Err(StoreError::NotFound(_)) => return Ok(None),
        found => found?,
    };
    let is_same = run.status.is(RunStatus::Processing) && run.token == listed.token;
    let is_renewed = evidence.condition != EndCondition::Held && run.lease_expires_on != listed.lease_expires_on;
    Ok((is_same && !is_renewed).then_some(run))
}

/// Returns the handler recorded in the run. A Rust handler is the runner itself, whatever group it was started in.
fn recorded_handler(run: &Run) -> Option<RecordedHandler> {
    let identity = run.handler_identity.parse::<ProcessIdentity>().ok()?;
    Some(RecordedHandler { identity, has_own_group: run.handler_identity != run.process_identity })
}

/// Ends the surviving processes. Returns how many of them had the token of the run, and how many named its runner. A coprocess
/// has no token of a run: it names its runner. It ends with all its runs, and their runner notices that if it is alive.
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
    // Last, because it gives the processes no time to end on their own.
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
    // A row without a token was written by another program; nothing could guard the write.
    let Some(token) = run.token.clone() else { return Ok(()) };
    let blame = blame_for(ctx, run, evidence, known_runners)?;
    let handler = recorded_handler(run);
    let grace = grace_of(ctx, run);
    // A dead claimant has no process.
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
    // It passes the token that was examined, so a run that was claimed again meanwhile is left alone.
    let ended = ctx.store.end_run(&RunRef { id: run.id, token }, &end)?;
    if ended.is_as_asked() || ended == EndResult::Cancelled {
        fault_point!("rescue.committed");
        if ended.is_as_asked() {
            start_hook(ctx, run.task_id, run.id, &end);
        }
        report.rescued.push(Rescued {
            run_id: run.id,
            task_id: run.task_id,
            reason: evidence.code.to_owned(),
            message,
            is_cancelled: ended == EndResult::Cancelled,
            ended_processes,
            claimant: run.claimant.clone(),
            claimant_ended: asked == EndAnswer::Ended,
        });
    }
    Ok(())
}

/// Returns the end of a run that its runner may have begun.
fn lost_end(
    ctx: &Context,
    settings: &Settings,
    run: &Run,
    (evidence, blame): (&Evidence, Blame),
    message: &str,
) -> RunEnd {
    let decision = Decision::lost(evidence.code, message, blame);
    // A claimant that did not report in time counts as late, not as dead.
    let is_late = run.claimant.is_some() && evidence.condition != EndCondition::Held;
    let lateness = is_late.then_some(Lateness { hold_secs: settings.hold_secs, limit: settings.claim_timeout_limit });
    RunEnd {
        may_retry: decision.may_retry,
        backoff: settings.backoff.clone(),
        loss: Some(Loss { class_backoff: ctx.handlers.stated_backoff(run.class.known()), lateness }),
        crash: (decision.is_crash && lateness.is_none())
            .then(|| ctx.handlers.crash(&ctx.me, run.class.known(), settings)),
        condition: evidence.condition,
        ..RunEnd::of(decision.event, &decision.error_code, &decision.error_message, &decision.rule)
    }
}

/// Returns true if its runner died before one of its slots had begun it. Only the marks that the slots have left on this host
/// can show that; without them the run may have begun, and the attempt counts.
fn was_never_begun(ctx: &Context, run: &Run, evidence: &Evidence, token: &str) -> bool {
    if evidence.condition != EndCondition::Held || !run.handler_identity.is_empty() {
        return false;
    }
    let Some(spool) = &ctx.spool else { return false };
    let Ok(Some(marks)) = marks_of(spool.directory(), &run.process_identity) else { return false };
    // A slot marks its next run when the outcome of the last one is in the spool, where it may still be.
    !marks.iter().any(|mark| mark == token) && !has_outcome_of(spool, token)
}

/// Returns the time from TERM to KILL for surviving processes of a run.
fn grace_of(ctx: &Context, run: &Run) -> Duration {
    ctx.handlers.kill_grace(run.class.known()).min(LONGEST_GRACE)
}

/// Asks the claimant of this run to end, if its process is on this host.
fn ask_claimant(run: &Run, grace: Duration) -> EndAnswer {
    match (&run.claimant, run.process_identity.parse::<ProcessIdentity>()) {
        (Some(claimant), Ok(identity)) => ask_to_end(&identity, claimant, grace),
        _ => EndAnswer::Nobody,
    }
}

/// Asks the claimant of this run to end, and ends the processes that it has started for the run, if they are on this host.
/// Returns the result for the claimant, and how many processes of the run were ended.
///
/// # Errors
/// Returns an error if a process of the run could not be ended.
pub(crate) fn end_processes_of_claim(ctx: &Context, run: &Run, token: &str) -> io::Result<(EndAnswer, usize)> {
    let grace = grace_of(ctx, run);
    let asked = ask_claimant(run, grace);
    let handler = recorded_handler(run);
    let (of_run, of_runner) = end_what_survived(run, token, handler.as_ref(), grace, &mut KnownRunners::default())?;
    Ok((asked, of_run + of_runner))
}

fn rescue_event(ctx: &Context, run: &Run, evidence: &Evidence, ended_processes: usize) -> NewEvent {
    let details = serde_json::json!({
        "reason": evidence.code, "message": evidence.message, "ended_processes": ended_processes,
        "process_identity": run.process_identity,
    });
    ctx.me.event_of_run("rescued", run.task_id, run.id, details)
}
