//! The tasks of a selection: one query for each status and each set of ids. A class, a status, an error, a schedule, a key, a
//! tag, a parent and ids each use an index. QueuedBy and the queueing time have no index and filter the remaining tasks, or all
//! tasks.

use std::collections::BTreeSet;

use chrono::{DateTime, Local, TimeDelta, Utc};
use diesel::connection::Connection;
use diesel::dsl::case_when;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable};

use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, allowed_retries, db_now};
use crate::base::unmarked::AllUnmarked;
use crate::reading::ended_pages::{length_of, load_ended};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::choosing::data_filter::DataFilter;
use taskqueue_domain::task::choosing::selection::{ClassFilter, PagePlace, PageStart, Selection, StatusFilter};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::records::Task;

/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 1_000;

/// Id, metadata and data of a task.
type TextsRow = (i64, Option<ShownText>, ShownText);
/// A query for ids of tasks.
type TaskIds<'a> = task_queue::BoxedQuery<'a, <AnyConnection as Connection>::Backend, BigInt>;
/// A condition of such a query.
type Condition<'a> = Box<
    dyn BoxableExpression<task_queue::table, <AnyConnection as Connection>::Backend, SqlType = Nullable<Bool>> + 'a,
>;

/// Rows whose data is read at once.
const DATA_ROWS: i64 = 5_000;
/// Fewer ids of a status are all read from its index and sorted here: for their order, an engine may read the whole table.
const FEW_IDS: i64 = 30_000;
/// The same for rows that have to be read, and the rows next to the start of a page that are read before others.
const FEW_ROWS: i64 = 2_000;

/// The ids among which tasks are searched.
#[derive(Clone, Copy)]
enum SelectionPlace<'a> {
    Everywhere,
    Ids(&'a [i64]),
    Range(i64, i64),
}

/// A page of ids.
#[derive(Clone, Copy)]
struct IdPage {
    start: PageStart,
    limit: i64,
}

impl IdPage {
    fn of<'a>(self, query: TaskIds<'a>) -> TaskIds<'a> {
        use task_queue::dsl;
        match self.start {
            PageStart::Before(place) => query.filter(dsl::id.lt(place.id.0)).order(dsl::id.desc()),
            PageStart::After(place) => query.filter(dsl::id.gt(place.id.0)).order(dsl::id),
        }
    }

    /// Returns those of these ids that are on the page, in its order.
    fn of_ids(self, mut ids: Vec<i64>) -> Vec<i64> {
        ids.sort_unstable();
        match self.start {
            PageStart::Before(place) => {
                ids.truncate(ids.partition_point(|known| *known < place.id.0));
                ids.reverse();
            }
            PageStart::After(place) => drop(ids.drain(..ids.partition_point(|known| *known <= place.id.0))),
        }
        ids.truncate(length_of(self.limit));
        ids
    }
}

/// How tasks of a schedule are found.
#[derive(Clone, Copy)]
enum Chain {
    /// They need not belong to a schedule.
    Any,
    /// By ScheduleId.
    Linked,
    /// By the id of the first task, which has no ScheduleId until `create-runs` has processed it.
    New,
}

impl Store {
    /// Returns the tasks of a selection, in the order of their ids, as of now. A caller that reports their number and then acts
    /// on them acts on exactly these. A selection that only names tasks returns them as named, whether they exist or not.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn select_tasks(&mut self, selection: &Selection) -> StoreResult<Vec<TaskId>> {
        self.select(selection, None)
    }

    /// Returns a page of the tasks of a selection: at most `limit`, in the order of the page. A start with a time counts for a
    /// selection with [`Selection::ended_statuses`].
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn select_page(&mut self, selection: &Selection, start: PageStart, limit: i64) -> StoreResult<Vec<PagePlace>> {
        let PagePlace { id, over_on } = start.place();
        if let Some((on, statuses)) = over_on.zip(selection.ended_statuses()) {
            return self.read(|conn| load_ended(&statuses, (on, id), start, limit, conn));
        }
        let ids = self.select(selection, Some(IdPage { start, limit }))?;
        Ok(ids.into_iter().map(PagePlace::of).collect())
    }

    /// Returns those of these tasks that exist, in the order of their ids.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn get_tasks(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Task>> {
        use task_queue::dsl;
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.read_each(Task::from, |conn| {
            let mut rows = Vec::with_capacity(ids.len());
            for chunk in ids.chunks(IDS_PER_STATEMENT) {
                let named = dsl::task_queue.filter(dsl::id.eq_any(chunk)).order(dsl::id);
                rows.extend(named.select(TaskRow::as_select()).load::<TaskRow>(conn)?);
            }
            Ok(rows)
        })
    }

    fn select(&mut self, selection: &Selection, page: Option<IdPage>) -> StoreResult<Vec<TaskId>> {
        let classes = self.classes_of(selection)?;
        self.read(|conn| {
            let mut ids: Vec<i64> = selection.ids.iter().map(|id| id.0).collect();
            if selection.has_last {
                ids.extend(newest_task(conn)?);
            }
            if selection.is_named() && page.is_none() {
                let mut seen = BTreeSet::new();
                return Ok(ids.into_iter().filter(|id| seen.insert(*id)).map(TaskId).collect());
            }
            let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
            let statuses = statuses_of(selection);
            let unmarked = AllUnmarked::load(conn, None)?.ids();
            // Those that are left out below must not shorten the page.
            let spare = if statuses == [None] { 0 } else { i64::try_from(unmarked.len()).unwrap_or(i64::MAX) };
            let asked = page.map(|page| IdPage { limit: page.limit.saturating_add(spare), ..page });
            let meant: Vec<i64> = unmarked.iter().copied().filter(|id| names(selection, &ids, *id)).collect();
            let mut found = BTreeSet::new();
            for status in statuses.iter().copied() {
                for chain in chains_of(selection).iter().copied() {
                    let classes = classes.as_deref();
                    let query = |place, status| Query { selection, classes, place, status, chain, now, page: asked };
                    for place in places(selection, &ids) {
                        let of_status = query(place, status).load(conn)?.into_iter();
                        found.extend(of_status.filter(|id| status.is_none() || !unmarked.contains(id)));
                    }
                    if status == Some(StatusFilter::Is(TaskStatus::Processing)) {
                        for part in meant.chunks(IDS_PER_STATEMENT) {
                            found.extend(query(SelectionPlace::Ids(part), None).load(conn)?);
                        }
                    }
                }
            }
            let mut found: Vec<i64> = found.into_iter().collect();
            if let Some(page) = page {
                found = page.of_ids(found);
            }
            Ok(found.into_iter().map(TaskId).collect())
        })
    }

    /// Returns the class names that match the patterns; `None` if all classes match.
    fn classes_of(&mut self, selection: &Selection) -> StoreResult<Option<Vec<String>>> {
        if selection.classes.is_empty() {
            return Ok(None);
        }
        if selection.classes.iter().all(ClassFilter::is_exact) {
            return Ok(Some(selection.classes.iter().map(|class| class.as_str().to_owned()).collect()));
        }
        let mut classes = self.list_task_classes("", usize::MAX)?;
        classes.retain(|name| selection.classes.iter().any(|class| class.matches(name)));
        Ok(Some(classes))
    }
}

fn newest_task(conn: &mut AnyConnection) -> StoreResult<Option<i64>> {
    use task_queue::dsl;
    Ok(dsl::task_queue.order(dsl::id.desc()).select(dsl::id).first(conn).optional()?)
}

/// Returns the statuses, with one query for each.
fn statuses_of(selection: &Selection) -> Vec<Option<StatusFilter>> {
    let filters = selection.status_filters();
    if filters.is_empty() { vec![None] } else { filters.into_iter().map(Some).collect() }
}

/// Returns two kinds of chains, with one query for each, because no index covers both kinds of rows.
fn chains_of(selection: &Selection) -> &'static [Chain] {
    if selection.schedules.is_empty() { &[Chain::Any] } else { &[Chain::Linked, Chain::New] }
}

fn places<'a>(selection: &Selection, ids: &'a [i64]) -> Vec<SelectionPlace<'a>> {
    if !selection.has_ids() {
        return vec![SelectionPlace::Everywhere];
    }
    let ranges = selection.ranges.iter().map(|(first, last)| SelectionPlace::Range(first.0, last.0));
    ids.chunks(IDS_PER_STATEMENT).map(SelectionPlace::Ids).chain(ranges).collect()
}

/// Returns true if the selection has no ids, or its ids include this task.
fn names(selection: &Selection, ids: &[i64], id: i64) -> bool {
    let is_in_range = || selection.ranges.iter().any(|(first, last)| (first.0..=last.0).contains(&id));
    !selection.has_ids() || ids.contains(&id) || is_in_range()
}

/// The parameters of one query.
struct Query<'a> {
    selection: &'a Selection,
    classes: Option<&'a [String]>,
    place: SelectionPlace<'a>,
    status: Option<StatusFilter>,
    chain: Chain,
    now: SqlMoment,
    page: Option<IdPage>,
}

impl<'a> Query<'a> {
    fn load(&self, conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
        use task_queue::dsl;
        let compares_texts = !self.selection.data.is_empty() || !self.selection.meta.is_empty();
        match self.page {
            Some(page) if compares_texts => self.load_page_by_texts(page, conn),
            Some(page) => self.load_page(page, conn),
            None if !self.selection.data.is_empty() => {
                self.load_page_by_texts(IdPage { start: PageStart::OLDEST, limit: i64::MAX }, conn)
            }
            None if compares_texts => {
                let query = self.of_columns().filter(dsl::meta.is_not_null());
                let found: Vec<(i64, ShownText)> = query.select((dsl::id, dsl::meta.assume_not_null())).load(conn)?;
                let is_meant = |meta: &ShownText| self.has_meta(String::from(meta.clone()));
                Ok(found.into_iter().filter(|(_, meta)| is_meant(meta)).map(|(id, _)| id).collect())
            }
            None => Ok(self.of_columns().load(conn)?),
        }
    }

    /// No index has the tasks of a class or a status in the order of their ids. For it, an engine may read and sort millions.
    fn load_page(&self, page: IdPage, conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
        use task_queue::dsl;
        if self.has_index_in_another_order() {
            let near: Vec<i64> = page.of(dsl::task_queue.select(dsl::id).into_boxed()).limit(FEW_ROWS).load(conn)?;
            let found = page.of_ids(self.load_among(&near, conn)?);
            if found.len() == length_of(page.limit) || near.len() < length_of(FEW_ROWS) {
                return Ok(found);
            }
            if !self.compares_rows()
                && let Some(few) = self.load_few(conn)?
            {
                return Ok(page.of_ids(few));
            }
        }
        Ok(page.of(self.of_columns()).limit(page.limit).load(conn)?)
    }

    /// Returns true if an engine may use an index that is in another order than the page.
    fn has_index_in_another_order(&self) -> bool {
        let Selection { statuses, classes, queued_by, older_secs, newer_secs, since, .. } = self.selection.clone();
        let rest = Selection { queued_by, older_secs, newer_secs, since, ..Selection::default() };
        let is_everywhere = matches!(self.place, SelectionPlace::Everywhere);
        let has_index = !statuses.is_empty() || !classes.is_empty();
        is_everywhere && has_index && *self.selection == Selection { statuses, classes, ..rest }
    }

    /// Returns true if rows must be read to compare columns that no index has.
    const fn compares_rows(&self) -> bool {
        let Selection { queued_by, older_secs, newer_secs, since, .. } = self.selection;
        !queued_by.is_empty() || older_secs.is_some() || newer_secs.is_some() || since.is_some()
    }

    /// Returns the tasks in any order if they are few.
    fn load_few(&self, conn: &mut AnyConnection) -> StoreResult<Option<Vec<i64>>> {
        let is_due = self.status == Some(StatusFilter::Due);
        let has_only_statuses = self.selection.has_only_statuses();
        if is_due && !has_only_statuses {
            let of_all = Query { selection: &Selection::default(), classes: None, ..*self };
            let due: Vec<i64> = of_all.of_columns().limit(FEW_ROWS).load(conn)?;
            if due.len() < length_of(FEW_ROWS) {
                return self.load_among(&due, conn).map(Some);
            }
        }
        let is_covered = has_only_statuses && (is_due || matches!(self.status, Some(StatusFilter::Is(_))));
        let few = if is_covered { FEW_IDS } else { FEW_ROWS };
        let found: Vec<i64> = self.of_columns().limit(few).load(conn)?;
        Ok((found.len() < length_of(few)).then_some(found))
    }

    /// Returns those of these tasks that match, in any order: with one, MySQL needed seconds.
    fn load_among(&self, ids: &[i64], conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
        let mut found = Vec::new();
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            found.extend(Query { place: SelectionPlace::Ids(ids), ..*self }.of_columns().load::<i64>(conn)?);
        }
        Ok(found)
    }

    /// Reads the data part by part, in the order of the page, until it is full: a client may hold a whole result in memory.
    fn load_page_by_texts(&self, page: IdPage, conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
        use task_queue::dsl;
        let wanted = length_of(page.limit);
        let (mut matching, mut rest) = (Vec::new(), page);
        loop {
            let mut query = self.with_contained_data(rest.of(self.of_columns()));
            if !self.selection.meta.is_empty() {
                query = query.filter(dsl::meta.is_not_null());
            }
            let part = query.limit(DATA_ROWS).select((dsl::id, dsl::meta, dsl::task_data));
            let rows: Vec<TextsRow> = part.load(conn)?;
            let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < DATA_ROWS;
            rest.start = rows.last().map_or(rest.start, |(id, ..)| page.start.continued(PagePlace::of(TaskId(*id))));
            matching.extend(rows.into_iter().filter_map(|(id, meta, data)| self.has_texts(meta, data).then_some(id)));
            if is_last || matching.len() >= wanted {
                matching.truncate(wanted);
                return Ok(matching);
            }
        }
    }

    /// Leaves out rows whose data cannot match, so that they are not sent.
    fn with_contained_data<'b>(&self, mut query: TaskIds<'b>) -> TaskIds<'b> {
        for text in self.selection.data.iter().filter_map(DataFilter::contained) {
            query = query.filter(task_queue::task_data.like(format!("%{text}%")));
        }
        query
    }

    /// Returns the ids of the tasks whose columns match; data and metadata are not compared yet.
    fn of_columns(&self) -> TaskIds<'a> {
        use task_queue::dsl;
        let mut query = dsl::task_queue.select(dsl::id).into_boxed();
        query = match self.place {
            SelectionPlace::Everywhere => query,
            SelectionPlace::Ids(ids) => query.filter(dsl::id.eq_any(ids.iter().copied())),
            SelectionPlace::Range(first, last) => query.filter(dsl::id.between(first, last)),
        };
        for condition in self.conditions() {
            query = match self.place {
                // Hidden from the planner of SQLite, which would rather read all tasks of a class than a thousand named ones.
                SelectionPlace::Ids(_) => query.filter(case_when(condition, true.into_sql::<Bool>()).otherwise(false)),
                _ => query.filter(condition),
            };
        }
        let schedules = || self.selection.schedules.iter().map(|id| id.0);
        query = match self.chain {
            Chain::Any => query,
            Chain::Linked => query.filter(dsl::schedule_id.eq_any(schedules().map(Some))),
            Chain::New => query
                .filter(dsl::id.eq_any(schedules()))
                .filter(dsl::schedule_id.is_null())
                .filter(dsl::recurrence.is_not_null()),
        };
        if !self.selection.unique_keys.is_empty() {
            query = query.filter(dsl::unique_key.eq_any(&self.selection.unique_keys));
        }
        if !self.selection.tags.is_empty() {
            query = query.filter(dsl::tag.eq_any(&self.selection.tags));
        }
        if !self.selection.names.is_empty() {
            query = query.filter(dsl::name.eq_any(&self.selection.names));
        }
        if !self.selection.parents.is_empty() {
            query = query.filter(dsl::parent_id.eq_any(self.selection.parents.iter().map(|id| id.0)));
        }
        if !self.selection.queued_by.is_empty() {
            query = query.filter(dsl::queued_by_id.eq_any(&self.selection.queued_by));
        }
        if let Some(secs) = self.selection.older_secs {
            query = query.filter(dsl::queued_on.lt(self.ago(secs)));
        }
        if let Some(secs) = self.selection.newer_secs {
            query = query.filter(dsl::queued_on.gt(self.ago(secs)));
        }
        if !self.selection.errors.is_empty() {
            let failures = [RunStatus::Error, RunStatus::Timeout].map(RunStatus::as_str);
            let code_of_last_failure = task_queue_runs::table
                .filter(task_queue_runs::task_queue_id.eq(dsl::id))
                .filter(task_queue_runs::status.eq_any(failures))
                .order((task_queue_runs::task_queue_id.desc(), task_queue_runs::id.desc()))
                .select(task_queue_runs::error_code)
                .limit(1)
                .single_value();
            query = query.filter(code_of_last_failure.eq_any(&self.selection.errors).assume_not_null());
        }
        if let Some(since) = &self.selection.since {
            let now = DateTime::<Utc>::from(self.now).with_timezone(&Local);
            query = query.filter(dsl::updated_on.ge(SqlMoment::from(since.instant(&now))));
        }
        query
    }

    /// Returns the conditions of the class and the status.
    fn conditions(&self) -> Vec<Condition<'a>> {
        use task_queue::dsl;
        let mut conditions: Vec<Condition<'a>> = Vec::new();
        if let Some(classes) = self.classes {
            conditions.push(Box::new(dsl::task_class.eq_any(classes).nullable()));
        }
        let failed = [TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
        let waiting = [TaskStatus::Scheduled, TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
        match self.status {
            None => {}
            Some(StatusFilter::Is(status)) => {
                conditions.push(Box::new(dsl::last_status.eq(status.as_str()).nullable()));
            }
            Some(StatusFilter::Exhausted) => {
                conditions.push(Box::new(dsl::last_status.eq_any(failed).nullable()));
                conditions.push(Box::new(dsl::failed_retries.ge(allowed_retries()).nullable()));
            }
            Some(StatusFilter::Quarantined) => conditions.push(Box::new(dsl::quarantined_on.is_not_null().nullable())),
            Some(StatusFilter::Waiting) => {
                conditions.push(Box::new(dsl::last_status.eq_any(waiting).nullable()));
                conditions.push(Box::new(dsl::failed_retries.lt(allowed_retries()).nullable()));
                conditions.push(Box::new(dsl::quarantined_on.is_null().nullable()));
            }
            Some(StatusFilter::Due) => conditions.push(Box::new(dsl::due_on.le(self.now))),
        }
        conditions
    }

    fn has_texts(&self, meta: Option<ShownText>, data: ShownText) -> bool {
        let data = String::from(data);
        self.selection.data.iter().all(|filter| filter.matches(&data))
            && (self.selection.meta.is_empty() || meta.is_some_and(|meta| self.has_meta(String::from(meta))))
    }

    /// Compared here, because engines write numbers in JSON differently.
    fn has_meta(&self, text: String) -> bool {
        let Ok(meta) = Meta::try_from(text) else { return false };
        let wanted = &self.selection.meta;
        wanted.iter().all(|(name, _)| wanted.iter().any(|(other, value)| other == name && meta.has(name, value)))
    }

    fn ago(&self, secs: i64) -> SqlMoment {
        let distance = TimeDelta::try_seconds(secs).unwrap_or(TimeDelta::MAX);
        let now = DateTime::<Utc>::from(self.now);
        SqlMoment::from(now.checked_sub_signed(distance).unwrap_or(DateTime::UNIX_EPOCH))
    }
}
