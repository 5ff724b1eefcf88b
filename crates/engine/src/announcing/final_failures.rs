//! Final failures on standard error: if no host has `[notify]`, each task that will not be retried is printed once.

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::monitoring::notice::Digest;
use taskqueue_store::NoticeChoice;

/// If a process dies between taking failures and printing them, others print them after this many seconds.
const PAUSE_SECS: i64 = 60;

/// Prints the final failures that were not reported yet, unless this host or another one has `[notify]`.
///
/// # Errors
/// Returns an error if the database fails; failures that were not removed are printed again.
pub(crate) fn print_final_failures(ctx: &mut Context) -> EngineResult<()> {
    if ctx.announcements.notify.is_some() || ctx.announcements.is_silent {
        return Ok(());
    }
    let Some(print) = ctx.failure_printer.clone() else { return Ok(()) };
    let taken = ctx.store.take_notices(NoticeChoice::FinalFailures, PAUSE_SECS)?;
    if taken.is_empty() {
        return Ok(());
    }
    if let Some(digest) = Digest::of(&taken.notices) {
        print(&digest);
    }
    ctx.store.remove_told_notices(&taken)?;
    Ok(ctx.store.tell_again_after(0)?)
}
