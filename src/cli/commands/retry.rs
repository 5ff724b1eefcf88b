//! `taskqueue retry`

use clap::Args;

use crate::cli::error::{DONE, FAILED, NOT_FOUND};
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::ids::TaskId;
use crate::engine::retry::retry_tasks;

/// Try failed, exhausted or quarantined tasks again, with all their retries
///
/// A task that failed and waits for its next attempt is due at once. Failures and crashes are counted from zero.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The tasks
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<TaskId>,
}

pub(crate) fn run(session: Session, args: &RetryArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let answers = retry_tasks(&mut ctx, &args.tasks)?;
    for answer in &answers {
        if out.is_json() {
            out.json(answer)?;
        } else {
            match &answer.refusal {
                Some(refusal) => out.warn(refusal),
                None => out.say(&format!("task {} is tried again", answer.id)),
            }
        }
    }
    Ok(if answers.iter().all(|answer| answer.retried) {
        DONE
    } else if answers.iter().all(|answer| !answer.exists) {
        NOT_FOUND
    } else {
        FAILED
    })
}
