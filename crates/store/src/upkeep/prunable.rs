//! Which tasks may be deleted. One rule applies to expired tasks and to tasks named by an operator. They must be finished,
//! without an open run, and not the head of a schedule. No task that is kept may wait for them, and they must not keep a unique
//! key.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::{Maybe, ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_dependencies, task_queue_runs};
use crate::base::sql::{AllowedRetries, SqlMoment, allowed_retries, db_now};
use taskqueue_domain::run::retention::{Kept, Retention};
use taskqueue_domain::run::status::TaskStatus;

/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 1_000;

/// Whether a task is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PruneVerdict {
    /// It may be deleted, or was deleted.
    Goes,
    /// It is kept.
    Stays {
        /// LastStatus
        status: String,
        /// The reason.
        why: Kept,
    },
    /// The task does not exist.
    NoSuchTask,
}

/// The row of a task, and its sort keys. The column Finished computes in the database what `kept` computes here.
#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue)]
pub(crate) struct PruneCandidate {
    pub(crate) id: i64,
    #[diesel(deserialize_as = ShownText)]
    pub(crate) task_class: String,
    #[diesel(deserialize_as = ShownText)]
    pub(crate) last_status: String,
    #[diesel(deserialize_as = TimeOrPast)]
    pub(crate) scheduled_on: SqlMoment,
    #[diesel(deserialize_as = TimeOrPast)]
    pub(crate) updated_on: SqlMoment,
    pub(crate) finished: i32,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    pub(crate) status_on: Option<SqlMoment>,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    pub(crate) expires_on: Option<SqlMoment>,
    failed_retries: i32,
    #[diesel(select_expression = allowed_retries(), select_expression_type = AllowedRetries)]
    allowed_retries: i32,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    quarantined_on: Option<SqlMoment>,
    current_run_id: Option<i64>,
    #[diesel(deserialize_as = Maybe<ShownText>)]
    schedule_head: Option<String>,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    unique_until: Option<SqlMoment>,
}

impl PruneCandidate {
    /// Returns why it is kept, as far as its own row shows.
    fn kept(&self, now: SqlMoment) -> Option<Kept> {
        let status = TaskStatus::parse(&self.last_status);
        let has_failed = matches!(status, Some(TaskStatus::Failed | TaskStatus::Timeout));
        if self.current_run_id.is_some() {
            Some(Kept::OpenRun)
        } else if !status.is_some_and(|status| Retention::FINISHED.contains(&status)) {
            Some(Kept::NotOver)
        } else if has_failed && self.failed_retries < self.allowed_retries && self.quarantined_on.is_none() {
            Some(Kept::TriedAgain)
        } else if self.schedule_head.is_some() {
            Some(Kept::ScheduleHead)
        } else if self.unique_until.is_some_and(|until| until > now) {
            Some(Kept::KeyTaken)
        } else {
            None
        }
    }
}

/// Returns those of these tasks that exist, in the order of their ids.
pub(crate) fn load_by_id(conn: &mut AnyConnection, ids: &[i64]) -> StoreResult<Vec<PruneCandidate>> {
    use task_queue::dsl;
    let mut rows = Vec::with_capacity(ids.len());
    for part in ids.chunks(IDS_PER_STATEMENT) {
        let named = dsl::task_queue.filter(dsl::id.eq_any(part)).order(dsl::id);
        rows.extend(named.select(PruneCandidate::as_select()).load::<PruneCandidate>(conn)?);
    }
    Ok(rows)
}

/// Returns those of these tasks that are kept, and why. Tasks that only wait for each other may be deleted together.
pub(crate) fn find_kept(conn: &mut AnyConnection, rows: &[PruneCandidate]) -> StoreResult<BTreeMap<i64, Kept>> {
    if rows.is_empty() {
        return Ok(BTreeMap::new());
    }
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let mut kept: BTreeMap<i64, Kept> = rows.iter().filter_map(|row| Some((row.id, row.kept(now)?))).collect();
    let mut going: BTreeSet<i64> = rows.iter().map(|row| row.id).filter(|id| !kept.contains_key(id)).collect();
    for id in with_open_run(conn, &going)? {
        going.remove(&id);
        kept.insert(id, Kept::OpenRun);
    }
    for id in awaited(conn, &going)? {
        kept.insert(id, Kept::Awaited);
    }
    Ok(kept)
}

/// Returns the verdict for those of these tasks that exist.
pub(crate) fn judge(conn: &mut AnyConnection, ids: &[i64]) -> StoreResult<BTreeMap<i64, PruneVerdict>> {
    let rows = load_by_id(conn, ids)?;
    let kept = find_kept(conn, &rows)?;
    let verdict = |row: PruneCandidate| {
        let why = kept.get(&row.id).copied();
        (row.id, why.map_or(PruneVerdict::Goes, |why| PruneVerdict::Stays { status: row.last_status, why }))
    };
    Ok(rows.into_iter().map(verdict).collect())
}

/// Returns those of these tasks that have an open run. The rows of the tasks may not show it.
fn with_open_run(conn: &mut AnyConnection, ids: &BTreeSet<i64>) -> StoreResult<Vec<i64>> {
    use task_queue_runs::dsl;
    let ids: Vec<Option<i64>> = ids.iter().copied().map(Some).collect();
    let mut found = Vec::new();
    for part in ids.chunks(IDS_PER_STATEMENT) {
        let open =
            dsl::task_queue_runs.filter(dsl::open_task_id.eq_any(part.iter().copied())).select(dsl::open_task_id);
        found.extend(open.load::<Option<i64>>(conn)?.into_iter().flatten());
    }
    Ok(found)
}

/// Returns those of these tasks for which tasks outside this set wait, directly or indirectly.
fn awaited(conn: &mut AnyConnection, ids: &BTreeSet<i64>) -> StoreResult<BTreeSet<i64>> {
    use task_queue_dependencies::dsl;
    let named: Vec<i64> = ids.iter().copied().collect();
    let mut prerequisites: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for part in named.chunks(IDS_PER_STATEMENT) {
        let open = dsl::task_queue_dependencies.filter(dsl::depends_on_id.eq_any(part));
        let open = open.filter(dsl::is_satisfied.eq(false)).select((dsl::task_id, dsl::depends_on_id));
        for (waiting, prerequisite) in open.load::<(i64, i64)>(conn)? {
            prerequisites.entry(waiting).or_default().push(prerequisite);
        }
    }
    let mut staying: Vec<i64> = prerequisites.keys().copied().filter(|waiting| !ids.contains(waiting)).collect();
    let mut found = BTreeSet::new();
    while let Some(waiting) = staying.pop() {
        let of_it = prerequisites.remove(&waiting).unwrap_or_default();
        staying.extend(of_it.into_iter().filter(|id| found.insert(*id)));
    }
    Ok(found)
}
