//! TaskQueueRunOutputs: what handlers wrote, also while they write. Pruning is in `prune`.

use diesel::prelude::*;

use crate::backend::{self, AnyConnection};
use crate::base::rows::{NewRunOutputRow, RunOutputRow};
use crate::base::schema::{task_queue_run_outputs, task_queue_runs};
use crate::base::sql::db_now;
use crate::{RunRef, Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::RunOutput;

impl Store {
    /// What the handler of a run wrote.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn list_run_outputs(&mut self, run_id: RunId) -> StoreResult<Vec<RunOutput>> {
        let rows: Vec<RunOutputRow> = self.read(|conn| {
            let of_run = task_queue_run_outputs::table.filter(task_queue_run_outputs::run_id.eq(run_id.0));
            Ok(of_run.order(task_queue_run_outputs::stream).select(RunOutputRow::as_select()).load(conn)?)
        })?;
        Ok(rows.into_iter().map(RunOutput::from).collect())
    }

    /// Saves what the handler of a run has written so far, in place of what was saved before. Whether the run is still ours.
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

/// In place of what was saved before, while the handler wrote it.
pub(crate) fn put_outputs(conn: &mut AnyConnection, run_id: RunId, outputs: &[RunOutput]) -> StoreResult<()> {
    for output in outputs {
        backend::put_output(conn, &NewRunOutputRow::new(run_id, output))?;
    }
    Ok(())
}
