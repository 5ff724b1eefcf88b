//! `taskqueue worker heartbeat`, and the answers to `report progress` and `message` of a claimant.

use clap::Args;

use crate::error::{CliError, DONE, FAILED};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::session::Session;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::claiming::claimants::{Held, ProgressReport, Renewed, check, renew};
use taskqueue_views::human;

/// The run that a claimant speaks of, and its right to do so.
#[derive(Debug, Args)]
pub(crate) struct HeldArgs {
    /// Run, as `worker claim` printed it
    #[arg(value_name = "RUN")]
    pub(crate) run: RunId,
    /// Token that `worker claim` printed with the run
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

impl HeldArgs {
    /// # Errors
    /// Returns an error if the token is missing.
    pub(crate) fn held(&self, verb: &str) -> Result<Held, CliError> {
        let Self { run: run_id, token } = self;
        let token = token.clone().ok_or_else(|| token_missing(verb, *run_id))?;
        Ok(Held { run_id: *run_id, token })
    }
}

/// Returns the error for a missing token, of a claimant or of an operator who has none.
fn token_missing(verb: &str, run: RunId) -> CliError {
    let or_force = if verb == "release" { ", or --force to take the run from its claimant" } else { "" };
    CliError::usage(format!(
        "`{verb}` of run {run} needs --token with the token that `worker claim` printed for the run{or_force}"
    ))
    .with_hint(format!("if its claimant is gone, take its run back: `taskqueue worker release {run} --force`"))
}

/// Renew the lease of a run you claimed, or check it
///
/// Renews the deadline of the run. If the run is no longer yours, the exit status is 1: stop working on it. If the run is to be
/// cancelled, prints the line `cancel: REASON`: stop working, and end the run with `worker release` or `worker resolve --error`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue worker heartbeat RUN --token TOKEN [--check]",
    after_help = "Examples:\n  taskqueue worker heartbeat 7 --token \"$token\"\n  taskqueue worker heartbeat 7 --token \"$token\" --check || exit 1"
)]
pub(crate) struct HeartbeatArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// Only check, without renewing the deadline: exit status 0 if the run is still yours and is not to be cancelled, else 1
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(session: Session, args: &HeartbeatArgs, out: &mut Out) -> anyhow::Result<u8> {
    let held = args.held.held("heartbeat")?;
    if args.check {
        let checked = check(&mut session.open()?, &held)?;
        answer(&checked, out)?;
        return Ok(if checked.cancel_requested { FAILED } else { DONE });
    }
    tell(session, &held, &ProgressReport::default(), out)
}

/// Renews the lease, saves the report, and prints the deadline.
pub(crate) fn tell(session: Session, held: &Held, report: &ProgressReport, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let renewed = renew(&mut ctx, held, report)?;
    answer(&renewed, out)
}

pub(crate) fn answer(renewed: &Renewed, out: &mut Out) -> anyhow::Result<u8> {
    if out.is_json() {
        out.json(renewed)?;
    } else if renewed.cancel_requested {
        // A shell only needs to check whether there is output.
        out.data(clean_line(&format!("cancel: {}", renewed.cancel_reason)))?;
    } else {
        out.say_verbose(&format!("run {} is yours until {}", renewed.run_id, human::instant(renewed.deadline)));
    }
    Ok(DONE)
}
