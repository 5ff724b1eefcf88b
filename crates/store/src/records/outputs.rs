//! TaskQueueRunOutputs: the captured output of handlers, also while they run. Pruning is in `prune`.

use std::collections::HashSet;

use diesel::dsl::{Nullable, auto_type};
use diesel::prelude::*;

use crate::backend;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue_run_outputs, task_queue_runs};
use crate::base::sql::{DbClock, db_now, db_now_plus};
use crate::records::runs::held_run;
use crate::{RunRef, Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::RunOutput;

/// How long a run counts as followed after a reader has said so. Readers say so more often.
const FOLLOWED_SECS: i64 = 15;

/// Whether the output of a run is being read. Not if the clock was set back: then the time lies ahead.
#[auto_type(no_type_alias)]
pub(crate) fn is_followed() -> _ {
    let from: Nullable<DbClock> = db_now_plus(-FOLLOWED_SECS).nullable();
    let to: Nullable<DbClock> = db_now().nullable();
    task_queue_runs::followed_on.between(from, to)
}

/// How much output of a run is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSize {
    /// How many bytes its handler has written to both streams.
    pub total_bytes: i64,
    /// Whether there will be no more.
    pub is_final: bool,
}

impl Store {
    /// Notes for some seconds that the output of these runs is being read, so that their runners save it more often. Waits at
    /// most a second for the lock of SQLite, and is not repeated.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn follow_runs(&mut self, runs: &[RunId]) -> StoreResult<()> {
        use task_queue_runs::dsl;
        let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
        self.write_now(|conn| {
            diesel::update(dsl::task_queue_runs)
                .filter(dsl::id.eq_any(&ids))
                .filter(dsl::status.eq(RunStatus::Processing.as_str()))
                .set(dsl::followed_on.eq(db_now().nullable()))
                .execute(conn)?;
            Ok(())
        })
    }

    /// Returns how much output of each of these runs is saved. A deleted run writes no more.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn output_sizes(&mut self, runs: &[RunId]) -> StoreResult<Vec<(RunId, OutputSize)>> {
        use task_queue_run_outputs::dsl as output;
        use task_queue_runs::dsl;
        let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
        self.read(|conn| {
            // Read first: after the end, no more output is saved.
            let open = dsl::task_queue_runs.filter(dsl::id.eq_any(&ids)).filter(dsl::finished_on.is_null());
            let open: HashSet<i64> = open.select(dsl::id).load(conn)?.into_iter().collect();
            let outputs = output::task_queue_run_outputs.filter(output::run_id.eq_any(&ids));
            let written: Vec<(i64, i64)> = outputs.select((output::run_id, output::total_bytes)).load(conn)?;
            let size = |run: &i64| OutputSize {
                total_bytes: written.iter().filter(|(id, _)| id == run).map(|(_, bytes)| bytes).sum(),
                is_final: !open.contains(run),
            };
            Ok(ids.iter().map(|run| (RunId(*run), size(run))).collect())
        })
    }

    /// Returns the captured output of the handler of a run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_run_outputs(&mut self, run_id: RunId) -> StoreResult<Vec<RunOutput>> {
        use task_queue_run_outputs::dsl;
        let output = |(stream, content, total_bytes, is_lossy): (ShownText, ShownText, i64, bool)| RunOutput {
            stream: stream.0,
            content: content.0,
            total_bytes,
            is_lossy,
        };
        self.read_each(output, |conn| {
            let of_run = dsl::task_queue_run_outputs.filter(dsl::run_id.eq(run_id.0)).order(dsl::stream);
            of_run.select((dsl::stream, dsl::content, dsl::total_bytes, dsl::is_lossy)).load(conn)
        })
    }

    /// Saves the output of a run so far, replacing earlier output. Returns true if the run still belongs to the caller.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn record_outputs(&mut self, run: &RunRef, outputs: &[RunOutput]) -> StoreResult<bool> {
        self.write(|conn| {
            let updated = diesel::update(held_run(run)).set(task_queue_runs::updated_on.eq(db_now())).execute(conn)?;
            if updated == 1 {
                put_outputs(conn, run.id, outputs)?;
            }
            Ok(updated == 1)
        })
    }
}

/// Saves outputs, replacing those saved while the handler was running.
pub(crate) fn put_outputs(conn: &mut AnyConnection, run_id: RunId, outputs: &[RunOutput]) -> StoreResult<()> {
    for output in outputs {
        backend::put_output(conn, run_id, output)?;
    }
    Ok(())
}
