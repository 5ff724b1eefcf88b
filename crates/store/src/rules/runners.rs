//! TaskQueueRunners: registration within the runner limit (rule R5).

use diesel::prelude::*;

use crate::backend;
use crate::base::rows::RunnerRow;
use crate::base::schema::task_queue_runners::dsl::{
    classes, finished_on, heartbeat_boot_ms, heartbeat_on, host, id, name, process_id, process_identity, slots,
    task_queue_runners, version,
};
use crate::base::sql::db_now;
use crate::rules::settings::setting_now;
use crate::{Store, StoreResult};
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::Runner;

/// A process that registers as a runner.
#[derive(Clone, Debug)]
pub struct NewRunner {
    /// PID
    pub process_id: i64,
    /// Host
    pub host: String,
    /// The identity of its process.
    pub process_identity: String,
    /// How many runs it may execute at once.
    pub slots: i32,
    /// Version of the program.
    pub version: String,
    /// The name by which operators refer to it.
    pub name: String,
    /// The classes that it executes.
    pub classes: ServedClasses,
    /// Reads its host's clock since boot, in milliseconds.
    pub boot_ms: fn() -> i64,
}

/// The answer to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It is registered until it is marked as finished.
    Registered(RunnerId),
    /// The limit is reached.
    LimitReached {
        /// Slots of the registered runners.
        in_use: i64,
        /// The limit.
        limit: i64,
    },
}

impl Store {
    /// Registers a runner unless the limit is reached. Concurrent registrations are serialized.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn register_runner(&mut self, runner: &NewRunner) -> StoreResult<Registration> {
        self.write_once(|conn| {
            backend::lock_gate(conn, "register")?;
            fault_point!("register.gate_locked");
            let limit = setting_now(conn, Setting::RunnerLimit)?;
            let live: Vec<i32> = task_queue_runners.filter(finished_on.is_null()).select(slots).load(conn)?;
            let in_use: i64 = live.into_iter().map(i64::from).sum();
            if in_use + i64::from(runner.slots) > limit {
                return Ok(Registration::LimitReached { in_use, limit });
            }
            diesel::insert_into(task_queue_runners)
                .values((
                    process_id.eq(runner.process_id),
                    host.eq(&runner.host),
                    process_identity.eq(&runner.process_identity),
                    slots.eq(runner.slots),
                    version.eq(&runner.version),
                    name.eq(&runner.name),
                    classes.eq(as_json(&runner.classes)),
                    // Read here, because the transaction may have waited for the lock before.
                    heartbeat_boot_ms.eq((runner.boot_ms)()),
                ))
                .execute(conn)?;
            // Under the lock, the newest open row of this process is the one just inserted.
            let own_id = task_queue_runners
                .filter(finished_on.is_null())
                .filter(process_identity.eq(&runner.process_identity))
                .order(id.desc())
                .select(id)
                .first(conn)?;
            fault_point!("register.before_commit");
            Ok(Registration::Registered(RunnerId(own_id)))
        })
    }

    /// Records the classes that a runner now executes.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn record_classes_of_runner(&mut self, runner: RunnerId, served: &ServedClasses) -> StoreResult<()> {
        self.write(|conn| {
            let own = task_queue_runners.filter(id.eq(runner.0));
            diesel::update(own).set(classes.eq(as_json(served))).execute(conn)?;
            Ok(())
        })
    }

    /// Returns the runners that have not ended, according to their rows.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_live_runners(&mut self) -> StoreResult<Vec<Runner>> {
        self.read_each(Runner::from, |conn| {
            task_queue_runners.filter(finished_on.is_null()).order(id).select(RunnerRow::as_select()).load(conn)
        })
    }

    /// Returns the runner with this id, even if it has ended.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_runner(&mut self, runner: RunnerId) -> StoreResult<Option<Runner>> {
        let row: Option<RunnerRow> = self.read(|conn| {
            Ok(task_queue_runners.filter(id.eq(runner.0)).select(RunnerRow::as_select()).first(conn).optional()?)
        })?;
        Ok(row.map(Runner::from))
    }

    /// Returns the newest `limit` runners, newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_runners(&mut self, limit: i64) -> StoreResult<Vec<Runner>> {
        self.read_each(Runner::from, |conn| {
            task_queue_runners.order(id.desc()).limit(limit).select(RunnerRow::as_select()).load(conn)
        })
    }

    /// Marks runners as finished: called by a runner at its end, or by a process that proved it dead. Returns how many were still
    /// open.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn finish_runners(&mut self, ids: &[RunnerId]) -> StoreResult<usize> {
        if ids.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = ids.iter().map(|runner| runner.0).collect();
        self.write(|conn| {
            let open = task_queue_runners.filter(id.eq_any(&ids)).filter(finished_on.is_null());
            let finished = diesel::update(open)
                .set((finished_on.eq(db_now().nullable()), heartbeat_on.eq(db_now())))
                .execute(conn)?;
            fault_point!("runners.before_finish_commit");
            Ok(finished)
        })
    }
}

/// Returns the classes as JSON. A list of names can always be written so; otherwise the classes are stored as unknown.
fn as_json(served: &ServedClasses) -> Option<String> {
    serde_json::to_string(served).ok()
}
