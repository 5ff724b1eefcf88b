//! Records how a run of `process-run` ended: its messages, then its outcome, through the spool.

use super::execute::Executed;
use super::run_listener::RunOutcome;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::{self, Outcome};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::files::spool::SpoolFile;
use taskqueue_store::RunRef;

/// Records the end of a run.
///
/// # Errors
/// Returns [`EngineError::LeaseOver`] if nothing may be written for the run any more, or an error if the database fails.
pub(crate) fn record(
    ctx: &mut Context,
    run: &ClaimedRun,
    executed: Executed,
    mut file: Option<&mut SpoolFile>,
) -> EngineResult<RunOutcome> {
    let Executed { mut outcome, end, messages, is_over } = executed;
    if let Some(end) = end {
        if !messages.is_empty() && !is_over {
            // Messages that cannot be stored now are dropped: they must not delay the end of the run.
            let reference = RunRef { id: run.run_id, token: run.token.clone() };
            let _ = ctx.store.record_messages(&reference, &messages);
        }
        let ended = Outcome::new(ctx.store.url().identity(), run, end);
        if is_over {
            let problem = outcomes::leave(file.as_deref_mut(), &ended);
            ctx.spool_problem = problem.or_else(|| ctx.spool_problem.take());
        } else {
            outcome.answered(outcomes::record(ctx, file, &ended)?);
            ctx.notify_finished();
        }
    }
    if is_over {
        return Err(EngineError::LeaseOver { run_id: run.run_id.0, task_id: run.task_id.0, found: None });
    }
    Ok(outcome)
}
