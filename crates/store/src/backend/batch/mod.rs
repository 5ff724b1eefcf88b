//! Batch statements for many runs, written for each engine; runners with many slots use them all the time. Each has the same
//! effect on a run as the portable statements of `transitions` have on one run; a test checks that they agree.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::HashMap;
use std::sync::LazyLock;

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

use crate::base::connection::{AnyConnection, by_engine};
use crate::base::content::ContentRow;
use crate::base::rows::IdRow;
use crate::base::sql::SqlMoment;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::{MAX_COUNT, TaskEvent, statuses_for, unmarked_statuses};
use taskqueue_domain::run::usage::Usage;
use taskqueue_domain::task::task_class::TaskClass;

/// The statuses in which a task can be started, as a list for `IN`.
static STARTABLE: LazyLock<String> = LazyLock::new(|| quoted_list(&statuses_for(TaskEvent::Start)));
/// The statuses that a started task can have before its row is marked, as a list for `IN`.
static UNMARKED: LazyLock<String> = LazyLock::new(|| quoted_list(&unmarked_statuses()));

fn quoted_list(statuses: &[TaskStatus]) -> String {
    statuses.iter().map(|status| format!("'{}'", status.as_str())).collect::<Vec<_>>().join(", ")
}

/// Replaces the names of status lists in a statement by the lists, and MAX_COUNT by the number.
fn with_rules(text: &str) -> String {
    text.replace("STARTABLE", &STARTABLE).replace("UNMARKED", &UNMARKED).replace("MAX_COUNT", &MAX_COUNT.to_string())
}

/// The runner or claimant that takes runs, as stored in the rows of the runs.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct RunHolder<'a> {
    pub(in super::super) runner_id: Option<i64>,
    /// Used only for the event of a start.
    pub(in super::super) runner_name: &'a str,
    pub(in super::super) claimant: Option<&'a str>,
    pub(in super::super) process_id: Option<i64>,
    pub(in super::super) host: &'a str,
    pub(in super::super) process_identity: &'a str,
    pub(in super::super) lease_secs: i64,
}

/// A waiting run to start.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Start<'a> {
    pub(in super::super) run_id: i64,
    /// Its new fencing token.
    pub(in super::super) token: &'a str,
}

/// A started run, with the data that its handler needs.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct StartedRow {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Integer)]
    pub(in super::super) attempt: i32,
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) started_on: SqlMoment,
    #[diesel(sql_type = Text)]
    pub(in super::super) token: String,
    #[diesel(embed)]
    pub(in super::super) content: ContentRow,
}

/// A task that is due.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct DueRow {
    #[diesel(embed)]
    pub(in super::super) facts: DueTaskFacts,
    #[diesel(embed)]
    pub(in super::super) content: ContentRow,
}

/// What a claim needs to know about a due task, besides the data for its handler.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(in super::super) struct DueTaskFacts {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Integer)]
    pub(in super::super) attempts: i32,
    /// Whether it can only be claimed through a run, in order with other runs: it has a priority or a limit key.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_special: bool,
    /// Whether its time to start has passed.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_expired: bool,
    /// Whether it has been due for more than a minute, and its schedule need not run each missed time: it may skip this one.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_late: bool,
    /// Whether others read from its row that it is running: it recurs or has a unique key.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_watched: bool,
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) due_on: SqlMoment,
    /// The time by the database's clock.
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) seen_on: SqlMoment,
}

/// A task to start, and the fencing token of its run.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TaskStart<'a> {
    pub(in super::super) task_id: i64,
    pub(in super::super) class: &'a TaskClass,
    /// The number of the attempt.
    pub(in super::super) attempt: i32,
    pub(in super::super) token: &'a str,
}

/// A started task, and its run.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(in super::super) struct StartedTask {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
}

/// Whether something was found.
#[derive(QueryableByName)]
pub(super) struct FoundRow {
    #[diesel(sql_type = Bool)]
    pub(super) found: bool,
}

/// A run that succeeded.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Success<'a> {
    pub(in super::super) run_id: i64,
    pub(in super::super) token: &'a str,
    /// `None` keeps the previously saved value; the same applies to every other `None`.
    pub(in super::super) handler: Option<(i64, &'a str)>,
    pub(in super::super) usage: Option<Usage>,
    pub(in super::super) details: SuccessDetails<'a>,
}

impl Success<'_> {
    fn cpu_msecs(&self) -> Option<i64> {
        self.usage.map(|usage| usage.cpu_msecs)
    }

    fn peak_memory_bytes(&self) -> Option<i64> {
        self.usage.and_then(|usage| usage.peak_memory_bytes)
    }
}

/// What the end of a run writes besides its success, the same for many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct SuccessDetails<'a> {
    pub(in super::super) decision: &'a str,
    pub(in super::super) results: Option<&'a str>,
    pub(in super::super) message: Option<&'a str>,
}

/// Groups ends with equal details: most are equal.
fn by_details<'a, 'b>(successes: &'b [Success<'a>]) -> HashMap<SuccessDetails<'a>, Vec<&'b Success<'a>>> {
    let mut alike: HashMap<SuccessDetails<'_>, Vec<&Success<'_>>> = HashMap::new();
    for end in successes {
        alike.entry(end.details).or_default().push(end);
    }
    alike
}

/// What the end of a run means for other rows.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct EndedRow {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Text)]
    pub(in super::super) host: String,
    /// The limit key of which a slot is now free.
    #[diesel(sql_type = Nullable<Text>)]
    pub(in super::super) freed_key: Option<String>,
    /// Whether the task itself succeeded with this run.
    #[diesel(sql_type = Bool)]
    pub(in super::super) has_succeeded: bool,
    #[diesel(sql_type = Bool)]
    pub(in super::super) recurs: bool,
    #[diesel(sql_type = Bool)]
    pub(in super::super) has_dependants: bool,
    /// Whether the task states how long results are kept.
    #[diesel(sql_type = Bool)]
    pub(in super::super) keeps_results: bool,
}

/// Marks those whose task is one of these, for which others wait.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn mark_awaited(ended: &mut [EndedRow], awaited: &[IdRow]) {
    for row in ended {
        row.has_dependants = awaited.iter().any(|awaited| awaited.id == row.task_id);
    }
}

/// Starts the waiting ones of these runs whose task was not cancelled and has not expired; requires the lock of the claim. Runs missing from the
/// result were not changed. A status of a task that does not allow a start was written by hand or by a newer version. The run
/// then starts and the status is left unchanged (rule R9).
pub(in super::super) fn start_runs(
    conn: &mut AnyConnection,
    holder: &RunHolder<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    of_engine!(start_runs(conn, holder, starts))
}

/// Lists and locks the first due tasks from this moment on, in order, that have no open run. Skips rows that another connection
/// has locked. Requires the lock of the claim.
pub(in super::super) fn list_due(
    conn: &mut AnyConnection,
    from: Option<SqlMoment>,
    limit: i64,
) -> QueryResult<Vec<DueRow>> {
    let from = from.unwrap_or_else(SqlMoment::beginning);
    of_engine!(list_due(conn, from, limit))
}

/// Returns true if nothing has to be checked before due tasks are started. There is no pause, no limit of a class, no waiting
/// run, and no due task with a priority. One query instead of five.
pub(in super::super) fn nothing_restricts_claims(conn: &mut AnyConnection) -> QueryResult<bool> {
    of_engine!(nothing_restricts_claims(conn))
}

/// Returns true if a task with a priority is due.
pub(in super::super) fn has_due_with_priority(conn: &mut AnyConnection) -> QueryResult<bool> {
    of_engine!(has_due_with_priority(conn))
}

/// Starts these due tasks, whose rows this transaction has locked, by inserting runs that are already being processed. The ids of
/// the runs have the order of the tasks. The rows of the tasks are not changed, see [`mark_started`]. A task that is missing from
/// the result has got a run from another claim since it was listed.
pub(in super::super) fn start_tasks(
    conn: &mut AnyConnection,
    holder: &RunHolder<'_>,
    tasks: &[TaskStart<'_>],
) -> QueryResult<Vec<StartedTask>> {
    of_engine!(start_tasks(conn, holder, tasks))
}

/// Marks the tasks of these runs as being processed, if their rows do not show that yet. The transaction must hold the rows of
/// the runs or of the tasks, so that no run ends meanwhile. A batch start skips this: most runs end before another query reads
/// the row, and each row version also costs its index entries.
pub(in super::super) fn mark_started(conn: &mut AnyConnection, runs: &[i64]) -> QueryResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    of_engine!(mark_started(conn, runs))
}

/// Ends those of these runs that are still being processed with their tokens, and updates their tasks. Runs missing from the
/// result were not changed.
pub(in super::super) fn end_successes(
    conn: &mut AnyConnection,
    successes: &[Success<'_>],
) -> QueryResult<Vec<EndedRow>> {
    of_engine!(end_successes(conn, successes))
}
