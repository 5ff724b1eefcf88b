//! The audit of transitions: if the setting TaskQueueAuditTransitions is on, each change of a status records an event in its own
//! transaction. Actions of operators are always recorded, by the code of each action.

use std::time::Instant;

use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_events, task_queue_runs, task_queue_settings};
use crate::session::origin::{Origin, SETTINGS_FRESH};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::settings::Setting;

/// Tasks in one statement.
const PART: usize = 500;
/// The kind of the event for the creation of a run.
pub(crate) const CREATED: &str = "run-created";

impl Store {
    /// Sets the identity of this process.
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Returns who records transitions, if they are recorded. Queries the database at most once a second; never inside a
    /// transaction.
    pub(crate) fn auditor(&mut self) -> StoreResult<Option<Origin>> {
        let is_on = match self.audit {
            Some((is_on, read_at)) if read_at.elapsed() < SETTINGS_FRESH => is_on,
            _ => {
                let is_on = self.read(|conn| Ok(keeps_transitions(conn)?))?;
                self.audit = Some((is_on, Instant::now()));
                is_on
            }
        };
        Ok(is_on.then(|| self.origin.clone()))
    }
}

/// Returns true if the setting is on. For operations rare enough to query it each time; must not be called where a claim has
/// locked the tables.
pub(crate) fn keeps_transitions(conn: &mut AnyConnection) -> QueryResult<bool> {
    let setting = Setting::AuditTransitions;
    let text: Option<String> = task_queue_settings::table
        .filter(task_queue_settings::name.eq(setting.name()))
        .select(task_queue_settings::value)
        .first(conn)
        .optional()?;
    // An invalid value must not block anything: reading all settings reports it.
    Ok(text.is_some_and(|text| setting.value(&text).is_ok_and(|value| value != 0)))
}

/// Records that these tasks were queued.
pub(crate) fn keep_queued(conn: &mut AnyConnection, origin: &Origin, ids: &[i64]) -> StoreResult<()> {
    use task_queue_events::dsl;
    for part in ids.chunks(PART) {
        let rows = task_queue::table.filter(task_queue::id.eq_any(part)).order(task_queue::id).select((
            "task-queued".into_sql::<Text>(),
            task_queue::id.nullable(),
            origin.actor.as_str().into_sql::<Text>(),
            origin.host.as_str().into_sql::<Text>(),
        ));
        diesel::insert_into(dsl::task_queue_events)
            .values(rows)
            .into_columns((dsl::kind, dsl::task_queue_id, dsl::actor, dsl::host))
            .execute(conn)?;
    }
    Ok(())
}

/// Returns the newest run: runs created later under the lock `create-runs` have higher ids.
pub(crate) fn newest_run(conn: &mut AnyConnection) -> QueryResult<i64> {
    let newest = task_queue_runs::table.order(task_queue_runs::id.desc()).select(task_queue_runs::id).first(conn);
    Ok(newest.optional()?.unwrap_or(0))
}

/// Records the creation of the runs after this one that have no such event yet: those of this transaction. Runs that other
/// transactions have committed meanwhile already have their events, and so has the run of a schedule's next task. An imported
/// run is not waiting and was not created here.
pub(crate) fn keep_created(conn: &mut AnyConnection, origin: &Origin, after: i64) -> StoreResult<()> {
    use task_queue_events::dsl;
    // A join, because MySQL does not document subqueries on the table into which it inserts.
    let is_kept = task_queue_events::task_queue_id
        .eq(task_queue_runs::task_queue_id.nullable())
        .and(task_queue_events::run_id.eq(task_queue_runs::id.nullable()))
        .and(task_queue_events::kind.eq(CREATED));
    let rows = task_queue_runs::table
        .left_join(task_queue_events::table.on(is_kept))
        .filter(task_queue_runs::id.gt(after))
        .filter(task_queue_runs::status.eq(RunStatus::Scheduled.as_str()))
        .filter(task_queue_events::id.is_null())
        .order(task_queue_runs::id)
        .select((
            CREATED.into_sql::<Text>(),
            task_queue_runs::task_queue_id.nullable(),
            task_queue_runs::id.nullable(),
            origin.actor.as_str().into_sql::<Text>(),
            origin.host.as_str().into_sql::<Text>(),
        ));
    diesel::insert_into(dsl::task_queue_events)
        .values(rows)
        .into_columns((dsl::kind, dsl::task_queue_id, dsl::run_id, dsl::actor, dsl::host))
        .execute(conn)?;
    Ok(())
}
