//! `taskqueue worker release`: a claimant rejects a run or releases it at no cost, or an operator takes it from its claimant.

use clap::Args;

use crate::commands::claiming::heartbeat::HeldArgs;
use crate::commands::claiming::resolve::end;
use crate::commands::options::selected::take_back_command;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_engine::Context;
use taskqueue_engine::claiming::claimants::Resolution;
use taskqueue_engine::claiming::take_back::{TakenBack, take_back};
use taskqueue_engine::inspect::status;

/// Reject or release a run you claimed
///
/// A rejected task is due at once for others, and you are never offered it again. The attempt counts as failed, so a task that
/// every claimant rejects is exhausted. With --no-reject, no attempt is counted, and you may be offered the task again. With
/// --force, an operator takes the run from its claimant before the deadline, without the token. The claimant can no longer end
/// the run, and its process gets TERM if it is on this host. The task is due at once.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue worker release RUN --token TOKEN [--no-reject] [--reason TEXT]\n       taskqueue worker release RUN --force [--reason TEXT]",
    after_help = "Examples:\n  taskqueue worker release 7 --token \"$token\" --reason 'no such disk'\n  taskqueue worker release 7 --token \"$token\" --no-reject\n  taskqueue worker release 7 --force --reason 'bot-1 was removed'"
)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// Release the run without rejecting its task, for example at a shutdown; no attempt is counted
    #[arg(long)]
    no_reject: bool,
    /// Take the run from its claimant, as an operator; `events` shows who did it
    #[arg(long, conflicts_with_all = ["token", "no_reject"])]
    force: bool,
    /// Reason, stored with the run
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) fn run(session: Session, args: &ReleaseArgs, out: &mut Out) -> anyhow::Result<u8> {
    if args.force {
        return take(session, args, out);
    }
    let held = args.held.held("release")?;
    let reason = args.reason.clone().unwrap_or_default();
    let resolution = if args.no_reject { Resolution::Release(reason) } else { Resolution::Rejection(reason) };
    end(session, &held, &resolution, None, out)
}

/// Adds a hint if the number is that of a task whose run a claimant holds.
fn with_run_of_task(ctx: &mut Context, number: RunId, error: CliError) -> CliError {
    let task = TaskId(number.0);
    let claim = status::detail(ctx, task).ok().and_then(|found| found.runs.first()?.0.held_claim());
    match claim.filter(|claim| claim.run_id != number) {
        Some(claim) => error.with_hint(format!(
            "{number} may be the task; claimant {} has its run: `{}`",
            claim.claimant,
            take_back_command(claim.run_id)
        )),
        None => error,
    }
}

fn take(session: Session, args: &ReleaseArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let taken = match ctx.because(args.reason.as_deref(), |ctx| take_back(ctx, args.held.run)) {
        Ok(taken) => taken,
        Err(error) => return Err(with_run_of_task(&mut ctx, args.held.run, error.into()).into()),
    };
    if out.is_json() {
        out.json(&taken)?;
        return Ok(DONE);
    }
    let TakenBack { run_id, task_id, claimant, status, .. } = &taken;
    if taken.was_recorded_before {
        out.say(&format!("run {run_id} was already recorded as {status}"));
    } else {
        out.say(&format!("run {run_id} of task {task_id} is {status}; it was taken from claimant {claimant}"));
    }
    if let Some(why) = &taken.not_ended {
        out.warn(&format!("claimant {claimant} may still be working on run {run_id}, but can no longer end it: {why}"));
    }
    Ok(DONE)
}
