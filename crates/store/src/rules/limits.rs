//! TaskQueueClassLimits, and what blocks the claim of a run although nothing is wrong with it: pauses and limits. Counts are
//! taken under the lock of the claim, so that no race exceeds a limit.

use std::collections::HashMap;
use std::ops::Bound;

use diesel::prelude::*;

use super::pauses::{Pauses, load_pauses};
use super::starts::{forget_starts, keep_starts, next_start, recall_starts, starts_left};
use crate::backend;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_class_limits::dsl::{
    max_running, rate_count, rate_secs, task_class, task_queue_class_limits,
};
use crate::base::schema::task_queue_runs;
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};
use taskqueue_domain::limits::limit::{ClassLimit, Obstacle, Rate};
use taskqueue_domain::task::choosing::class_set::after_prefix;
use taskqueue_domain::task::records::ClaimedRun;

impl Store {
    /// Returns all limits, by class.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_class_limits(&mut self) -> StoreResult<Vec<ClassLimit>> {
        self.read(load_limits)
    }

    /// Sets the limits of a class, replacing earlier ones, and records the event. Later claims obey them; runs in progress
    /// continue. A rate counts earlier starts as far as `recall_starts` finds them.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn set_class_limit(&mut self, limit: &ClassLimit, event: &NewEvent) -> StoreResult<()> {
        // If two transactions limit the same class at once, both find no row to remove; the second one is repeated.
        self.write_key_once(|conn| {
            backend::enter_both_tables(conn)?;
            if limit.rate.is_some() {
                // A claim in progress that does not know of a rate records no start, so it is waited for.
                backend::exclude_claims(conn)?;
            }
            diesel::delete(task_queue_class_limits.filter(task_class.eq(&limit.class))).execute(conn)?;
            diesel::insert_into(task_queue_class_limits)
                .values((
                    task_class.eq(&limit.class),
                    max_running.eq(limit.max_running),
                    rate_count.eq(limit.rate.map(|rate| rate.count)),
                    rate_secs.eq(limit.rate.map(|rate| rate.secs)),
                ))
                .execute(conn)?;
            match limit.rate {
                Some(rate) => recall_starts(conn, &limit.class, rate)?,
                None => forget_starts(conn, &limit.class)?,
            }
            insert_event(conn, event)?;
            fault_point!("limits.before_set_commit");
            Ok(())
        })
    }

    /// Removes the limits of a class, and records the event. Returns true if it had any.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn remove_class_limit(&mut self, class: &str, event: &NewEvent) -> StoreResult<bool> {
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let removed = diesel::delete(task_queue_class_limits.filter(task_class.eq(class))).execute(conn)?;
            if removed > 0 {
                forget_starts(conn, class)?;
                insert_event(conn, event)?;
            }
            fault_point!("limits.before_remove_commit");
            Ok(removed > 0)
        })
    }

    /// Returns how many runs of this class are being processed.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_running(&mut self, class: &str) -> StoreResult<i64> {
        self.read(|conn| Ok(count_running(conn, class)?))
    }

    /// Returns everything that blocks a runner of this name from claiming runs of this class now. Includes pauses of the runner,
    /// and has the order in which a claim checks.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_obstacles(&mut self, class: &str, runner_name: &str) -> StoreResult<Vec<Obstacle>> {
        self.read(|conn| Obstacles::load(conn, runner_name)?.list(conn, class))
    }
}

fn load_limits(conn: &mut AnyConnection) -> StoreResult<Vec<ClassLimit>> {
    type Row = (ShownText, Option<i32>, Option<i32>, Option<i32>);
    let rows: Vec<Row> = task_queue_class_limits
        .order(task_class)
        .select((task_class, max_running, rate_count, rate_secs))
        .load(conn)?;
    let limit = |(class, max, count, secs): Row| ClassLimit {
        class: class.0,
        max_running: max,
        rate: count.zip(secs).map(|(count, secs)| Rate { count, secs }),
    };
    Ok(rows.into_iter().map(limit).collect())
}

/// The current pauses and limits, and the results for classes checked so far: to be dropped with the lock.
pub(crate) struct Obstacles<'a> {
    pauses: Pauses,
    limits: Vec<ClassLimit>,
    runner_name: &'a str,
    known: HashMap<String, Option<Obstacle>>,
}

impl<'a> Obstacles<'a> {
    pub(crate) fn load(conn: &mut AnyConnection, runner_name: &'a str) -> StoreResult<Self> {
        Ok(Self { pauses: load_pauses(conn)?.into(), limits: load_limits(conn)?, runner_name, known: HashMap::new() })
    }

    /// Returns an empty set, for queries that ignore what blocks claims now.
    pub(crate) fn none() -> Self {
        Self { pauses: Pauses::default(), limits: Vec::new(), runner_name: "", known: HashMap::new() }
    }

    /// Returns true if this runner may not claim anything.
    pub(crate) fn is_closed(&self) -> bool {
        self.pauses.others().any(|pause| pause.scope.covers_runner(self.runner_name))
    }

    /// Returns what blocks the claim of runs of this class, if anything.
    pub(crate) fn of_class(&mut self, conn: &mut AnyConnection, class: &str) -> StoreResult<Option<Obstacle>> {
        if let Some(obstacle) = self.known.get(class) {
            return Ok(obstacle.clone());
        }
        let obstacle = self.find(conn, class)?;
        self.known.insert(class.to_owned(), obstacle.clone());
        Ok(obstacle)
    }

    /// Returns true if runs of this class are neither blocked nor limited.
    pub(crate) fn is_free(&self, class: &str) -> bool {
        self.pauses.covering(class, self.runner_name).next().is_none()
            && !self.limits.iter().any(|limit| limit.class == class)
    }

    /// Returns the position in name order after this class and all others that the same pause covers; `None` if no name can
    /// follow.
    pub(crate) fn place_after(&self, class: &str) -> Option<Bound<String>> {
        let prefixes = self.pauses.others().filter_map(|pause| pause.scope.class_prefix());
        match prefixes.filter(|prefix| class.starts_with(prefix)).min_by_key(|prefix| prefix.len()) {
            Some(prefix) => after_prefix(prefix),
            None => Some(Bound::Excluded(class.to_owned())),
        }
    }

    /// Returns how many runs of this class may be claimed now, at most `wanted`.
    pub(crate) fn room_for(&mut self, conn: &mut AnyConnection, class: &str, wanted: usize) -> StoreResult<usize> {
        if self.is_free(class) {
            return Ok(wanted);
        }
        if self.of_class(conn, class)?.is_some() {
            return Ok(0);
        }
        // There is room for one, which was just checked.
        let limit = self.limits.iter().find(|limit| limit.class == class).filter(|_| wanted > 1);
        let Some(limit) = limit else { return Ok(wanted) };
        let mut room = wanted;
        if let Some(max) = limit.max_running {
            let free = i64::from(max) - count_running(conn, class)?;
            room = room.min(usize::try_from(free).unwrap_or(0));
        }
        if let Some(rate) = limit.rate {
            room = room.min(starts_left(conn, class, rate)?);
        }
        Ok(room)
    }

    /// Records the claims of these runs for rates.
    pub(crate) fn count_starts(&self, conn: &mut AnyConnection, claimed: &[ClaimedRun]) -> StoreResult<()> {
        for limit in &self.limits {
            let Some(rate) = limit.rate else { continue };
            let of_class = claimed.iter().filter(|run| run.class.as_str() == limit.class);
            let runs: Vec<i64> = of_class.map(|run| run.run_id.0).collect();
            keep_starts(conn, &limit.class, rate, &runs)?;
        }
        Ok(())
    }

    fn find(&self, conn: &mut AnyConnection, class: &str) -> StoreResult<Option<Obstacle>> {
        if let Some(obstacle) = self.pauses_of(class).next() {
            return Ok(Some(obstacle));
        }
        let Some(limit) = self.limits.iter().find(|limit| limit.class == class) else { return Ok(None) };
        match full(conn, limit)? {
            Some(obstacle) => Ok(Some(obstacle)),
            None => rate_reached(conn, limit),
        }
    }

    /// Returns everything that blocks the claim of runs of this class.
    fn list(&self, conn: &mut AnyConnection, class: &str) -> StoreResult<Vec<Obstacle>> {
        let mut obstacles: Vec<Obstacle> = self.pauses_of(class).collect();
        if let Some(limit) = self.limits.iter().find(|limit| limit.class == class) {
            obstacles.extend(full(conn, limit)?);
            obstacles.extend(rate_reached(conn, limit)?);
        }
        Ok(obstacles)
    }

    fn pauses_of(&self, class: &str) -> impl Iterator<Item = Obstacle> {
        self.pauses.covering(class, self.runner_name).map(|pause| Obstacle::Paused(Box::new(pause.clone())))
    }
}

fn full(conn: &mut AnyConnection, limit: &ClassLimit) -> StoreResult<Option<Obstacle>> {
    let Some(max) = limit.max_running else { return Ok(None) };
    Ok((count_running(conn, &limit.class)? >= i64::from(max)).then_some(Obstacle::MaxRunning(max)))
}

fn rate_reached(conn: &mut AnyConnection, limit: &ClassLimit) -> StoreResult<Option<Obstacle>> {
    let Some(rate) = limit.rate else { return Ok(None) };
    Ok(next_start(conn, &limit.class, rate)?.map(|on| Obstacle::Rate(rate, on)))
}

fn count_running(conn: &mut AnyConnection, class: &str) -> QueryResult<i64> {
    task_queue_runs::table.filter(task_queue_runs::running_class.eq(class)).count().get_result(conn)
}
