//! Many runs in a few statements, each engine's own: what a runner with many slots does all the time. Every one of them does
//! the same to a run as the portable statements of `transitions` do to one; a test holds them equal.

mod mysql;
mod postgres;
mod sqlite;

use std::collections::HashMap;
use std::sync::LazyLock;

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

use super::AnyConnection;
use crate::base::content::ContentRow;
use crate::base::sql::Moment;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::{TaskEvent, statuses_for, unmarked_statuses};
use taskqueue_domain::task::task_class::TaskClass;

/// The statuses in which a task can be started, for `IN`.
static STARTABLE: LazyLock<String> = LazyLock::new(|| quoted_list(&statuses_for(TaskEvent::Start)));
/// The statuses of a task whose row may not say yet that it has started, for `IN`.
static UNMARKED: LazyLock<String> = LazyLock::new(|| quoted_list(&unmarked_statuses()));

fn quoted_list(statuses: &[TaskStatus]) -> String {
    statuses.iter().map(|status| format!("'{}'", status.as_str())).collect::<Vec<_>>().join(", ")
}

/// A statement with the statuses in place of the names of their lists.
fn with_statuses(text: &str) -> String {
    text.replace("STARTABLE", &STARTABLE).replace("UNMARKED", &UNMARKED)
}

/// The runner or claimant that takes runs, as the rows of the runs name it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Holder<'a> {
    pub(in super::super) runner_id: Option<i64>,
    /// Only for the event of a start.
    pub(in super::super) runner_name: &'a str,
    pub(in super::super) claimant: Option<&'a str>,
    pub(in super::super) process_id: Option<i64>,
    pub(in super::super) host: &'a str,
    pub(in super::super) process_identity: &'a str,
    pub(in super::super) lease_secs: i64,
}

/// A run that waits and is to start.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Start<'a> {
    pub(in super::super) run_id: i64,
    /// Its fence from now on.
    pub(in super::super) token: &'a str,
}

/// A run that has started, with what its handler needs.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct StartedRow {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Integer)]
    pub(in super::super) attempt: i32,
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) started_on: Moment,
    #[diesel(sql_type = Text)]
    pub(in super::super) token: String,
    #[diesel(embed)]
    pub(in super::super) content: ContentRow,
}

/// A task that is due.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct DueRow {
    #[diesel(embed)]
    pub(in super::super) facts: DueFacts,
    #[diesel(embed)]
    pub(in super::super) content: ContentRow,
}

/// What a claim must know of a due task besides what its handler needs.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(in super::super) struct DueFacts {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Integer)]
    pub(in super::super) attempts: i32,
    /// Whether it can have its turn only as a run among runs: it has a priority or a limit key.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_special: bool,
    /// Whether others look at its row to see that it runs: it recurs or has a unique key.
    #[diesel(sql_type = Bool)]
    pub(in super::super) is_watched: bool,
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) due_on: Moment,
    /// The database's clock.
    #[diesel(sql_type = Timestamp)]
    pub(in super::super) seen_on: Moment,
}

/// A task to start, and the fence of its run.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TaskStart<'a> {
    pub(in super::super) task_id: i64,
    pub(in super::super) class: &'a TaskClass,
    /// The number of the attempt.
    pub(in super::super) attempt: i32,
    pub(in super::super) token: &'a str,
}

/// A task that has started, and its run.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(in super::super) struct StartedTask {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
}

/// The id of a row that was written.
#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Whether what was asked for is there.
#[derive(QueryableByName)]
struct FoundRow {
    #[diesel(sql_type = Bool)]
    found: bool,
}

/// A run that has succeeded.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Success<'a> {
    pub(in super::super) run_id: i64,
    pub(in super::super) token: &'a str,
    /// `None` keeps what was saved before; so does every other `None`.
    pub(in super::super) handler: Option<(i64, &'a str)>,
    pub(in super::super) details: SuccessDetails<'a>,
}

/// What the end of a run writes besides that it has succeeded, and is the same for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct SuccessDetails<'a> {
    pub(in super::super) decision: &'a str,
    pub(in super::super) results: Option<&'a str>,
    pub(in super::super) message: Option<&'a str>,
}

/// Those that end alike together: most do.
fn by_details<'a, 'b>(successes: &'b [Success<'a>]) -> HashMap<SuccessDetails<'a>, Vec<&'b Success<'a>>> {
    let mut alike: HashMap<SuccessDetails<'_>, Vec<&Success<'_>>> = HashMap::new();
    for end in successes {
        alike.entry(end.details).or_default().push(end);
    }
    alike
}

/// What of the end of a run concerns others.
#[derive(Clone, Debug, QueryableByName)]
pub(in super::super) struct EndedRow {
    #[diesel(sql_type = BigInt)]
    pub(in super::super) run_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(in super::super) task_id: i64,
    #[diesel(sql_type = Text)]
    pub(in super::super) host: String,
    /// The key of which a slot is free now.
    #[diesel(sql_type = Nullable<Text>)]
    pub(in super::super) freed_key: Option<String>,
    /// Whether the task itself has succeeded by it.
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

/// Starts those of these runs that wait, for a task that was not cancelled; under the lock of the claim. Those that are
/// missing from the answer have not changed. A status of a task that allows no start was written by a hand in the tables or a newer
/// version: the run goes ahead, the status is left alone (rule R9).
pub(in super::super) fn start_runs(
    conn: &mut AnyConnection,
    holder: &Holder<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::start_runs(conn, holder, starts),
        AnyConnection::Postgres(conn) => postgres::start_runs(conn, holder, starts),
        AnyConnection::Mysql(conn) => mysql::start_runs(conn, holder, starts),
    }
}

/// The first tasks that are due and have no open run, from this moment on, in their order, of which no other connection holds the
/// row; under the lock of the claim. Their rows are locked.
pub(in super::super) fn list_due(
    conn: &mut AnyConnection,
    from: Option<Moment>,
    limit: i64,
) -> QueryResult<Vec<DueRow>> {
    let from = from.unwrap_or_else(Moment::beginning);
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::list_due(conn, from, limit),
        AnyConnection::Postgres(conn) => postgres::list_due(conn, from, limit),
        AnyConnection::Mysql(conn) => mysql::list_due(conn, from, limit),
    }
}

/// Whether nothing is there that must be looked at before due tasks are started: no pause, no limit of a class, no run that
/// waits, no due task with a priority. One question in place of five.
pub(in super::super) fn nothing_restricts_claims(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::nothing_restricts_claims(conn),
        AnyConnection::Postgres(conn) => postgres::nothing_restricts_claims(conn),
        AnyConnection::Mysql(conn) => mysql::nothing_restricts_claims(conn),
    }
}

/// Whether a task is due that has a priority.
pub(in super::super) fn has_due_with_priority(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::has_due_with_priority(conn),
        AnyConnection::Postgres(conn) => postgres::has_due_with_priority(conn),
        AnyConnection::Mysql(conn) => mysql::has_due_with_priority(conn),
    }
}

/// Starts these due tasks, whose rows this transaction has locked: each gets a run that is being processed from its first moment.
/// The runs have ids in the order of the tasks. The rows of the tasks stay as they are, see [`mark_started`]. A task that is
/// missing from the answer has got a run from another claim since it was listed.
pub(in super::super) fn start_tasks(
    conn: &mut AnyConnection,
    holder: &Holder<'_>,
    tasks: &[TaskStart<'_>],
) -> QueryResult<Vec<StartedTask>> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::start_tasks(conn, holder, tasks),
        AnyConnection::Postgres(conn) => postgres::start_tasks(conn, holder, tasks),
        AnyConnection::Mysql(conn) => mysql::start_tasks(conn, holder, tasks),
    }
}

/// Writes into the rows of their tasks that these runs are being processed, where they do not say so yet; for a transaction that
/// holds the rows of the runs or of the tasks, so that none ends meanwhile. A start of many leaves that out: most runs are over
/// before anything looks at the row, and each version of a row costs as much as its index entries.
pub(in super::super) fn mark_started(conn: &mut AnyConnection, runs: &[i64]) -> QueryResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::mark_started(conn, runs),
        AnyConnection::Postgres(conn) => postgres::mark_started(conn, runs),
        AnyConnection::Mysql(conn) => mysql::mark_started(conn, runs),
    }
}

/// Ends those of these runs that are still being processed under their tokens, and writes what that means for their tasks
/// themselves. Those that are missing from the answer have not changed.
pub(in super::super) fn end_successes(
    conn: &mut AnyConnection,
    successes: &[Success<'_>],
) -> QueryResult<Vec<EndedRow>> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::end_successes(conn, successes),
        AnyConnection::Postgres(conn) => postgres::end_successes(conn, successes),
        AnyConnection::Mysql(conn) => mysql::end_successes(conn, successes),
    }
}
