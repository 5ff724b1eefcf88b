//! TaskQueueRunOutputs: the captured output of handlers, also while they run. Pruning is in `prune`.

use diesel::prelude::*;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::rows::{NewRunOutputRow, RunOutputRow};
use crate::base::schema::{task_queue_run_outputs, task_queue_runs};
use crate::base::sql::db_now;
use crate::{RunRef, Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::RunOutput;

impl Store {
    /// Returns the captured output of the handler of a run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_run_outputs(&mut self, run_id: RunId) -> StoreResult<Vec<RunOutput>> {
        let rows: Vec<RunOutputRow> = self.read(|conn| {
            let of_run = task_queue_run_outputs::table.filter(task_queue_run_outputs::run_id.eq(run_id.0));
            Ok(of_run.order(task_queue_run_outputs::stream).select(RunOutputRow::as_select()).load(conn)?)
        })?;
        Ok(rows.into_iter().map(RunOutput::from).collect())
    }

    /// Saves the output of a run so far, replacing earlier output. Returns true if the run still belongs to the caller.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn record_outputs(&mut self, run: &RunRef, outputs: &[RunOutput]) -> StoreResult<bool> {
        use task_queue_runs::dsl;
        self.write(|conn| {
            let updated = diesel::update(dsl::task_queue_runs)
                .filter(dsl::id.eq(run.id.0))
                .filter(dsl::status.eq(RunStatus::Processing.as_str()))
                .filter(dsl::token.eq(&run.token))
                .set(dsl::updated_on.eq(db_now()))
                .execute(conn)?;
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
        backend::put_output(conn, &NewRunOutputRow::new(run_id, output))?;
    }
    Ok(())
}
