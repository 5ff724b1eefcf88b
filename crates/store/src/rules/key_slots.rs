//! The slots of limit keys: only a limited number of open runs with a key have a slot, and a run without one is not claimed.
//! Slots are assigned and removed under the lock of the claim, so that no race assigns one too many, and they end with their
//! runs. Claims therefore never scan runs that wait for a slot. The process that ends a run with a slot assigns the slot to the
//! next run; `create-runs` assigns all free slots. A run that had to wait for its slot goes behind the runs of other keys that wait
//! to be claimed, so that keys take turns, however many runs of each wait.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::dsl::{auto_type, count_star, exists};
use diesel::prelude::*;

use crate::backend;
use crate::base::cells::{Cell, ExactText, ShownText};
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_key_limits;
use crate::base::schema::task_queue_runs::dsl::{
    claim_order, has_key_slot, held_key, id, lined_up_on, status, task_queue_id, task_queue_runs, updated_on,
    waiting_key, waiting_order,
};
use crate::base::sql::{SqlMoment, any_year, db_now};
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};
use taskqueue_domain::limits::limit::{DEFAULT_KEY_LIMIT, KeyLimit};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::TaskId;

/// Keys that are checked together.
const KEYS_PER_PAGE: usize = 500;
/// Keys, and slots of each key, that are handled under one lock, so that other claims wait only some milliseconds.
const KEYS_PER_TRANSACTION: usize = 50;
const SLOTS_PER_TRANSACTION: i64 = 100;
/// So many runs with a slot are looked at to find the last one. Of more, the last one is the last of all that wait.
const HOLDERS_LOOKED_AT: i64 = 200;
/// The finest time that all engines store.
const NEXT_PLACE: TimeDelta = TimeDelta::microseconds(1);

/// The usage of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The limit of simultaneous runs.
    pub max_running: i32,
    /// Runs that have a slot: they are being processed, or are next.
    pub held: i64,
    /// Those of them that are being processed.
    pub running: i64,
}

impl Store {
    /// Returns all limits of keys, by key.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_key_limits(&mut self) -> StoreResult<Vec<KeyLimit>> {
        use task_queue_key_limits::dsl;
        let limit = |(ShownText(key), max_running)| KeyLimit { key, max_running };
        self.read_each(limit, |conn| {
            let all = dsl::task_queue_key_limits.order(dsl::limit_key);
            all.select((dsl::limit_key, dsl::max_running)).load(conn)
        })
    }

    /// Sets the limit of a key, and records the event. If too many runs have a slot, waiting ones lose theirs; runs in progress
    /// continue.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn set_key_limit(&mut self, limit: &KeyLimit, event: &NewEvent) -> StoreResult<()> {
        use task_queue_key_limits::dsl;
        // If two transactions limit the same key at once, both find no row to remove; the second one is repeated.
        self.write_key_once(|conn| {
            backend::enter_both_tables(conn)?;
            diesel::delete(dsl::task_queue_key_limits.filter(dsl::limit_key.eq(&limit.key))).execute(conn)?;
            diesel::insert_into(dsl::task_queue_key_limits)
                .values((dsl::limit_key.eq(&limit.key), dsl::max_running.eq(limit.max_running)))
                .execute(conn)?;
            insert_event(conn, event)?;
            fault_point!("limits.before_set_key_commit");
            Ok(())
        })?;
        // Errors are ignored: the limit is set, and `create-runs` also adjusts the slots.
        let _ = self.fit_keys(std::slice::from_ref(&limit.key), None);
        Ok(())
    }

    /// Removes the limit of a key, so that the default of 1 applies again, and records the event. Returns true if it had one.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn remove_key_limit(&mut self, key: &str, event: &NewEvent) -> StoreResult<bool> {
        use task_queue_key_limits::dsl;
        let row = || dsl::task_queue_key_limits.filter(dsl::limit_key.eq(key));
        // Sets the default first: `create-runs` removes no slots of keys without a row.
        self.write(|conn| {
            backend::enter_both_tables(conn)?;
            diesel::update(row()).set(dsl::max_running.eq(DEFAULT_KEY_LIMIT)).execute(conn)?;
            Ok(())
        })?;
        self.fit_keys(&[key.to_owned()], None)?;
        fault_point!("limits.key_lowered");
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let removed = diesel::delete(row()).execute(conn)?;
            if removed > 0 {
                insert_event(conn, event)?;
            }
            fault_point!("limits.before_remove_key_commit");
            Ok(removed > 0)
        })
    }

    /// Returns the usage of a key.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn use_of_key(&mut self, key: &str) -> StoreResult<KeyUse> {
        self.read(|conn| {
            let holders = task_queue_runs.filter(held_key.eq(key)).filter(status.eq(RunStatus::Processing.as_str()));
            let running = holders.count().get_result(conn)?;
            Ok(KeyUse { max_running: limit_of(conn, key)?, held: count_held(conn, key)?, running })
        })
    }

    /// Returns up to `limit` tasks whose runs have the slots of a key, in the order of claims.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_key_holders(&mut self, key: &str, limit: i64) -> StoreResult<Vec<TaskId>> {
        self.read_each(TaskId, |conn| {
            let held = task_queue_runs.filter(held_key.eq(key)).order((held_key, claim_order, id));
            held.limit(limit).select(task_queue_id).load(conn)
        })
    }

    /// Assigns every free slot to the first waiting run, also those that no end of a run has passed on, because its process died or
    /// because SQL has raised a limit; removes slots beyond a lowered limit. Runs with a higher id than `kept_after` keep their
    /// place in the line: they were created a moment ago, and the slot was free. The others waited for it.
    ///
    /// # Errors
    /// The database could not be written; earlier assignments remain.
    pub fn give_key_slots(&mut self, kept_after: Option<i64>) -> StoreResult<()> {
        // Most stores have no limit keys and no runs that wait for a slot: one query checks both.
        let (has_limits, has_waiting): (bool, bool) = self.read(|conn| {
            let limits = task_queue_key_limits::table.select(task_queue_key_limits::limit_key);
            Ok(diesel::select((exists(limits), first_waiting_key().is_not_null())).get_result(conn)?)
        })?;
        if !has_limits && !has_waiting {
            return Ok(());
        }
        let limits: HashMap<String, i32> =
            self.list_key_limits()?.into_iter().map(|limit| (limit.key, limit.max_running)).collect();
        let limited: Vec<String> = limits.keys().cloned().collect();
        self.fit_where(&limited, kept_after, |held, key| held > i64::from(limits[key]))?;
        let mut last_key = String::new();
        loop {
            let keys = self.read(|conn| Ok(list_waiting_keys(conn, &last_key)?))?;
            let max_running = |key: &str| i64::from(*limits.get(key).unwrap_or(&DEFAULT_KEY_LIMIT));
            self.fit_where(&keys, kept_after, |held, key| held < max_running(key))?;
            match keys.into_iter().nth(KEYS_PER_PAGE - 1) {
                Some(last) => last_key = last,
                None => return Ok(()),
            }
        }
    }

    /// Same as [`Store::give_key_slots`], for the keys of runs that were just created.
    pub(crate) fn give_new_runs_slots(&mut self, kept_after: Option<i64>) -> StoreResult<()> {
        let Some(newest) = kept_after else { return Ok(()) };
        let keys: Vec<Option<ShownText>> = self.read(|conn| {
            let new = task_queue_runs.filter(id.gt(newest)).filter(waiting_key.is_not_null());
            Ok(new.order(id).select(waiting_key).load(conn)?)
        })?;
        let keys: BTreeSet<String> = keys.into_iter().flatten().map(String::from).collect();
        self.fit_keys(&Vec::from_iter(keys), kept_after)
    }

    /// Assigns a freed slot to the next run with this key, if one is waiting.
    pub(crate) fn pass_key_slot_on(&mut self, key: &str) -> StoreResult<()> {
        // A run that is created meanwhile is not missed: the process that creates it assigns free slots afterwards.
        let is_waited_for: bool = self.read(|conn| {
            let waiting = task_queue_runs.filter(waiting_key.eq(key));
            Ok(diesel::select(diesel::dsl::exists(waiting)).get_result(conn)?)
        })?;
        if is_waited_for { self.fit_keys(&[key.to_owned()], None) } else { Ok(()) }
    }

    /// Same as [`Store::pass_key_slot_on`], for the keys of these tasks, after a change that may have ended waiting runs of them.
    /// Errors are ignored: the change is made, and `create-runs` also assigns slots.
    pub(crate) fn pass_on_slots_of(&mut self, tasks: &[TaskId]) {
        use crate::base::schema::task_queue;
        let ids: Vec<i64> = tasks.iter().map(|task| task.0).collect();
        let keyed =
            || task_queue::table.filter(task_queue::id.eq_any(&ids)).filter(task_queue::limit_key.is_not_null());
        let keys: StoreResult<Vec<Option<ShownText>>> =
            self.read(|conn| Ok(keyed().select(task_queue::limit_key).load(conn)?));
        let keys: BTreeSet<String> = keys.into_iter().flatten().flatten().map(String::from).collect();
        for key in keys {
            let _ = self.pass_key_slot_on(&key);
        }
    }

    fn fit_where(
        &mut self,
        keys: &[String],
        kept_after: Option<i64>,
        must_fit: impl Fn(i64, &str) -> bool,
    ) -> StoreResult<()> {
        for page in keys.chunks(KEYS_PER_PAGE) {
            let held = self.read(|conn| Ok(count_held_by_key(conn, page)?))?;
            let must_fit = |key: &&String| must_fit(held.get(*key).copied().unwrap_or(0), key);
            let chosen: Vec<String> = page.iter().filter(must_fit).cloned().collect();
            self.fit_keys(&chosen, kept_after)?;
        }
        Ok(())
    }

    fn fit_keys(&mut self, keys: &[String], kept_after: Option<i64>) -> StoreResult<()> {
        for part in keys.chunks(KEYS_PER_TRANSACTION) {
            let mut left = part.to_vec();
            while !left.is_empty() {
                left = self.claim_write(false, |conn| {
                    let mut more = Vec::new();
                    for key in &left {
                        if fit_key(conn, key, kept_after)? {
                            more.push(key.clone());
                        }
                    }
                    fault_point!("key_slots.before_commit");
                    Ok(more)
                })?;
            }
        }
        Ok(())
    }
}

/// Adjusts the slots of a key to its limit, at most a part at a time. Returns true if there may be more to do. Requires the lock
/// of the claim.
pub(crate) fn fit_key(conn: &mut AnyConnection, key: &str, kept_after: Option<i64>) -> StoreResult<bool> {
    let room = i64::from(limit_of(conn, key)?) - count_held(conn, key)?;
    let count = if room > 0 { give_slots(conn, key, room, kept_after)? } else { take_slots(conn, key, -room)? };
    Ok(i64::try_from(count).is_ok_and(|count| count == SLOTS_PER_TRANSACTION))
}

/// Gives slots to the first runs that wait for one. Returns how many.
fn give_slots(conn: &mut AnyConnection, key: &str, room: i64, kept_after: Option<i64>) -> StoreResult<usize> {
    let waiting = task_queue_runs.filter(waiting_key.eq(key)).order((waiting_key, claim_order, id));
    let columns = (id, claim_order, lined_up_on);
    let runs: Vec<(i64, i32, Cell<SqlMoment>)> =
        waiting.limit(room.min(SLOTS_PER_TRANSACTION)).select(columns).load(conn)?;
    let runs: Vec<(i64, i32, Option<SqlMoment>)> =
        runs.into_iter().map(|(run_id, order, place)| (run_id, order, place.read("LinedUpOn").ok())).collect();
    let keeps_place = |run_id: i64| kept_after.is_some_and(|newest| run_id > newest);
    for of_priority in runs.chunk_by(|(_, order, _), (_, next, _)| order == next) {
        let Some((_, order, _)) = of_priority.first() else { continue };
        let may_move = of_priority.iter().any(|(run_id, ..)| !keeps_place(*run_id));
        let last = if may_move { last_place_of_holders(conn, *order)? } else { None };
        let is_behind = |place: Option<SqlMoment>| last.is_none_or(|last| place.is_some_and(|place| place > last));
        let (kept, moved): (Vec<_>, Vec<_>) =
            of_priority.iter().partition(|(run_id, _, place)| keeps_place(*run_id) || is_behind(*place));
        set_key_slot(conn, &ids_of(&kept), true)?;
        if let Some(last) = last {
            line_up_behind(conn, &ids_of(&moved), last)?;
        }
    }
    Ok(runs.len())
}

fn ids_of(runs: &[&(i64, i32, Option<SqlMoment>)]) -> Vec<i64> {
    runs.iter().map(|(run_id, ..)| *run_id).collect()
}

fn line_up_behind(conn: &mut AnyConnection, runs: &[i64], last: SqlMoment) -> QueryResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let place = DateTime::<Utc>::from(last).checked_add_signed(NEXT_PLACE).map_or(last, SqlMoment::from);
    diesel::update(task_queue_runs.filter(id.eq_any(runs)))
        .filter(status.eq(RunStatus::Scheduled.as_str()))
        .set((has_key_slot.eq(true), lined_up_on.eq(any_year(place)), updated_on.eq(db_now())))
        .execute(conn)?;
    Ok(())
}

/// Returns the last place of the runs of this priority that have a slot and wait to be claimed.
fn last_place_of_holders(conn: &mut AnyConnection, order: i32) -> QueryResult<Option<SqlMoment>> {
    let holders: Vec<(i32, String, Cell<SqlMoment>)> = task_queue_runs
        .filter(held_key.is_not_null())
        .order((held_key, claim_order, id))
        .limit(HOLDERS_LOOKED_AT + 1)
        .select((claim_order, status, lined_up_on))
        .load(conn)?;
    if i64::try_from(holders.len()).is_ok_and(|count| count > HOLDERS_LOOKED_AT) {
        let line = task_queue_runs.filter(waiting_order.eq(order));
        let last: Option<Cell<SqlMoment>> = line
            .order((waiting_order.desc(), lined_up_on.desc(), id.desc()))
            .select(lined_up_on)
            .first(conn)
            .optional()?;
        return Ok(last.and_then(|place| place.read("LinedUpOn").ok()));
    }
    let waits =
        |holder: &(i32, String, Cell<SqlMoment>)| holder.0 == order && holder.1 == RunStatus::Scheduled.as_str();
    Ok(holders.into_iter().filter(waits).filter_map(|(.., place)| place.read("LinedUpOn").ok()).max())
}

/// Takes the slots of the last runs in order that have one, unless they are being processed. Returns how many.
fn take_slots(conn: &mut AnyConnection, key: &str, excess: i64) -> StoreResult<usize> {
    let held = task_queue_runs.filter(held_key.eq(key)).filter(status.eq(RunStatus::Scheduled.as_str()));
    let runs: Vec<i64> = held
        .order((held_key.desc(), claim_order.desc(), id.desc()))
        .limit(excess.min(SLOTS_PER_TRANSACTION))
        .select(id)
        .load(conn)?;
    set_key_slot(conn, &runs, false)?;
    Ok(runs.len())
}

/// Gives a slot to this run, even if others wait for one. Returns `Err` with the limit if none is free. Requires the lock of the
/// claim.
pub(crate) fn take_key_slot(conn: &mut AnyConnection, run_id: i64, key: &str) -> StoreResult<Result<(), i32>> {
    let max_running = limit_of(conn, key)?;
    if count_held(conn, key)? >= i64::from(max_running) {
        return Ok(Err(max_running));
    }
    set_key_slot(conn, &[run_id], true)?;
    Ok(Ok(()))
}

fn set_key_slot(conn: &mut AnyConnection, runs: &[i64], has_slot: bool) -> StoreResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    diesel::update(task_queue_runs.filter(id.eq_any(runs)))
        .filter(status.eq(RunStatus::Scheduled.as_str()))
        .set((has_key_slot.eq(has_slot), updated_on.eq(db_now())))
        .execute(conn)?;
    Ok(())
}

/// The key of a run that waits for a slot. The first one: PostgreSQL may read the whole table to find out whether one exists.
#[auto_type]
fn first_waiting_key() -> _ {
    task_queue_runs.filter(waiting_key.is_not_null()).order(waiting_key).select(waiting_key).limit(1_i64).single_value()
}

/// Returns true if a run waits for a slot.
pub(crate) fn is_any_waiting_for_key(conn: &mut AnyConnection) -> QueryResult<bool> {
    diesel::select(first_waiting_key().is_not_null()).get_result(conn)
}

fn limit_of(conn: &mut AnyConnection, key: &str) -> QueryResult<i32> {
    use task_queue_key_limits::dsl;
    let limit = dsl::task_queue_key_limits.filter(dsl::limit_key.eq(key)).select(dsl::max_running).first(conn);
    Ok(limit.optional()?.unwrap_or(DEFAULT_KEY_LIMIT))
}

fn count_held(conn: &mut AnyConnection, key: &str) -> QueryResult<i64> {
    task_queue_runs.filter(held_key.eq(key)).count().get_result(conn)
}

fn count_held_by_key(conn: &mut AnyConnection, keys: &[String]) -> QueryResult<HashMap<String, i64>> {
    let counts: Vec<(Option<String>, i64)> =
        task_queue_runs.filter(held_key.eq_any(keys)).group_by(held_key).select((held_key, count_star())).load(conn)?;
    Ok(counts.into_iter().filter_map(|(key, count)| Some((key?, count))).collect())
}

diesel::alias!(crate::base::schema::task_queue_runs as other_runs: OtherRuns);

#[auto_type]
fn waiting_key_of(run: i64) -> _ {
    other_runs.filter(other_runs.field(id).eq(run)).select(other_runs.field(waiting_key)).single_value()
}

/// Returns the next keys for which runs wait, in order: one index probe per key, however many runs wait.
fn list_waiting_keys(conn: &mut AnyConnection, after: &str) -> QueryResult<Vec<String>> {
    let mut keys: Vec<String> = Vec::new();
    let mut unreadable: Option<i64> = None;
    while keys.len() < KEYS_PER_PAGE {
        let first = task_queue_runs.order((waiting_key, claim_order, id)).select((id, waiting_key)).into_boxed();
        let first = match unreadable {
            // Only the database can compare a key that cannot be read.
            Some(run) => first.filter(waiting_key.gt(waiting_key_of(run))),
            None => first.filter(waiting_key.gt(keys.last().map_or(after, String::as_str))),
        };
        let found = first.limit(1).get_result::<(i64, Option<Cell<ExactText>>)>(conn).optional()?;
        let Some((run, Some(key))) = found else { break };
        unreadable = match key.read("LimitKey") {
            Ok(key) => {
                keys.push(key.0);
                None
            }
            Err(_) => Some(run),
        };
    }
    Ok(keys)
}
