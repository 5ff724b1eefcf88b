//! `taskqueue heartbeat`, and what `progress` and `message` of a claimant answer.

use clap::Args;

use crate::error::{CliError, DONE, FAILED};
use crate::output::clean::clean_line;
use crate::output::{Out, human};
use crate::session::Session;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::claiming::claimants::{Held, ProgressReport, Renewed, check, renew};

/// The run that a claimant speaks of, and its right to do so.
#[derive(Debug, Args)]
pub(crate) struct HeldArgs {
    /// The run, as `claim` printed it
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The token that `claim` printed with it
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

impl HeldArgs {
    /// # Errors
    /// The token is missing.
    pub(crate) fn held(&self, verb: &str) -> Result<Held, CliError> {
        let Self { run: run_id, token } = self;
        let token = token.clone().ok_or_else(|| token_missing(verb, *run_id))?;
        Ok(Held { run_id: *run_id, token })
    }
}

/// A claimant that shows no token, or an operator who has none.
pub(super) fn token_missing(verb: &str, run: RunId) -> CliError {
    let or_force = if verb == "release" { ", or --force to take the run from its claimant" } else { "" };
    CliError::usage(format!(
        "`{verb}` of run {run} needs --token, with the token that `claim` printed with the run{or_force}"
    ))
    .with_hint(format!("if its claimant is gone, take its run back: `taskqueue release {run} --force`"))
}

/// Renew the lease of a run you claimed, or check it
///
/// Its deadline moves. Exit status 1 when the run is not yours any more: stop working for it. Prints a line,
/// `cancel: REASON`, when the run is to be cancelled: stop working, and end it with `release` or `resolve --error`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue heartbeat RUN --token TOKEN [--check]",
    after_help = "Examples:\n  taskqueue heartbeat 7 --token \"$token\"\n  taskqueue heartbeat 7 --token \"$token\" --check || exit 1"
)]
pub(crate) struct HeartbeatArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// Only check, and do not move the deadline: exit status 0 if the run is still yours and is not to be cancelled, else 1
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

/// Renews, saves the news, and says until when.
pub(crate) fn tell(session: Session, held: &Held, report: &ProgressReport, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let renewed = renew(&mut ctx, held, report)?;
    answer(&renewed, out)
}

pub(super) fn answer(renewed: &Renewed, out: &mut Out) -> anyhow::Result<u8> {
    if out.is_json() {
        out.json(renewed)?;
    } else if renewed.cancel_requested {
        // A shell needs no more than whether there is any output.
        out.data(clean_line(&format!("cancel: {}", renewed.cancel_reason)))?;
    } else {
        out.say_verbose(&format!("run {} is yours until {}", renewed.run_id, human::instant(renewed.deadline)));
    }
    Ok(DONE)
}
