//! Final failures on standard error: where no host has `[notify]`, each task that will not be retried is printed once.

use std::sync::Arc;

use crate::{Context, EngineResult};
use taskqueue_domain::run::notice::Digest;
use taskqueue_store::NoticeChoice;

/// Prints final failures for people.
pub type FailurePrinter = Arc<dyn Fn(&Digest) + Send + Sync>;

/// After a process that died between taking and printing them, others print the same failures so many seconds later.
const PAUSE_SECS: i64 = 60;

/// Prints the final failures that were not reported yet, unless the configuration of this host or another one has `[notify]`.
///
/// # Errors
/// The database's; what was not removed is printed again.
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
