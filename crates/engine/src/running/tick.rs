//! `tick`: create-runs, then process-run until no run is left or the time is up; for a crontab of one line.

use serde::Serialize;

use crate::announcing::final_failures::print_final_failures;
use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::standstill::{Standstill, pauses_of_own};
use crate::running::process_run::{ProcessOptions, ProcessReport, process_runs};
use crate::running::run_listener::RunListener;
use crate::upkeep::create_runs::{CreateRunsReport, create_runs};
use taskqueue_process::signals::stop_signals::StopSignals;

/// The result of `tick`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TickReport {
    /// The result of create-runs.
    pub created: CreateRunsReport,
    /// The result of process-run.
    pub processed: ProcessReport,
    /// Pauses that prevented it from processing anything.
    pub standstills: Vec<Standstill>,
}

/// Runs both parts of the scheme, one after the other.
///
/// # Errors
/// Returns an error if the database fails.
pub fn tick(
    ctx: &mut Context,
    options: &ProcessOptions,
    stop: &StopSignals,
    listener: &mut dyn RunListener,
) -> EngineResult<TickReport> {
    if let Ok(count) = stop.counter() {
        ctx.store.give_up_when(move || count() >= 2);
    }
    let created = create_runs(ctx, &mut |_| {})?;
    let options = ProcessOptions { creates_runs: true, ..*options };
    let processed = process_runs(ctx, &options, stop, listener)?;
    if processed.failed > 0 {
        print_final_failures(ctx)?;
    }
    let standstills = if processed.processed == 0 { pauses_of_own(ctx)? } else { Vec::new() };
    Ok(TickReport { created, processed, standstills })
}
