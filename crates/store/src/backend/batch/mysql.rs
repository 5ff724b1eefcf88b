//! MySQL and MariaDB: one statement for all runs, whose differing values are part of its text.

use std::collections::{HashMap, HashSet};

use diesel::mysql::MysqlConnection;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

use super::{
    DueRow, EndedRow, FoundRow, RunHolder, STARTABLE, Start, StartedRow, StartedTask, Success, SuccessDetails,
    TaskStart, UNMARKED, by_details, mark_awaited,
};
use crate::backend::mysql::{as_text, inserted_ids};
use crate::base::prepared::{prepared, prepared_once};
use crate::base::rows::IdRow;
use crate::base::sql::SqlMoment;
use taskqueue_domain::run::transition::MAX_COUNT;

/// Returns a list of numbers; it contains nothing else.
fn list(ids: impl Iterator<Item = i64>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns an expression with a separate value for some runs, which leaves the column of other runs unchanged.
fn by_run(column: &str, values: impl Iterator<Item = (i64, Option<String>)>) -> String {
    let cases: String = values.filter_map(|(run_id, value)| Some(format!(" WHEN {run_id} THEN {}", value?))).collect();
    if cases.is_empty() { column.to_owned() } else { format!("CASE `Id`{cases} ELSE {column} END") }
}

/// Returns a text as hexadecimal digits, which need no quoting.
fn quoted(text: &str) -> String {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("CONVERT(X'{digits}' USING utf8mb4)")
}

/// Starts these runs. The claim has locked both tables, so rows cannot change between the read and the write.
pub(super) fn start_runs(
    conn: &mut MysqlConnection,
    holder: &RunHolder<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    let startable: Vec<StartedRow> = diesel::sql_query(format!(
        "SELECT `TaskQueueRuns`.`Id` AS run_id, `TaskQueue`.`Id` AS task_id, `TaskQueueRuns`.`TaskClass` AS class,
             `TaskQueueRuns`.`Attempt` AS attempt, UTC_TIMESTAMP(6) AS started_on, '' AS token, `TaskQueue`.`TaskData` AS data,
             `TaskQueue`.`MaxRetries` AS max_retries, `TaskQueue`.`Timeout` AS timeout_secs,
             `TaskQueue`.`PlannedOn` AS planned_on, `TaskQueue`.`ScheduledOn` AS scheduled_on,
             `TaskQueue`.`NextAttemptOn` AS next_attempt_on, `TaskQueue`.`Meta` AS meta
         FROM `TaskQueueRuns` STRAIGHT_JOIN `TaskQueue` ON `TaskQueue`.`Id` = `TaskQueueRuns`.`TaskQueueId`
         WHERE `TaskQueueRuns`.`Id` IN ({}) AND `TaskQueueRuns`.`Status` = 'scheduled'
             AND `TaskQueue`.`LastStatus` NOT IN ('cancelled', 'expired')
             AND (`TaskQueue`.`StartBefore` IS NULL OR `TaskQueue`.`StartBefore` > UTC_TIMESTAMP(6))",
        list(starts.iter().map(|start| start.run_id))
    ))
    .load(conn)?;
    let tokens: HashMap<i64, &str> = starts.iter().map(|start| (start.run_id, start.token)).collect();
    let token = |row: &StartedRow| tokens.get(&row.run_id).copied().unwrap_or_default().to_owned();
    let started: Vec<StartedRow> = startable.into_iter().map(|row| StartedRow { token: token(&row), ..row }).collect();
    // The same moment for all: the handler gets the value that is in the row.
    let Some(started_on) = started.first().map(|row| as_text(row.started_on)) else { return Ok(started) };
    let text = format!(
        "UPDATE `TaskQueueRuns`
         SET `Status` = 'processing', `StartedOn` = CAST(? AS DATETIME(6)), `ProcessId` = ?, `RunnerId` = ?, `Claimant` = ?,
             `Token` = {}, `Host` = ?, `ProcessIdentity` = ?, `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL ? SECOND,
             `UpdatedOn` = UTC_TIMESTAMP(6)
         WHERE `Id` IN ({})",
        by_run("`Token`", started.iter().map(|row| (row.run_id, Some(quoted(&row.token))))),
        list(started.iter().map(|row| row.run_id))
    );
    prepared_once(&text)
        .bind::<Text, _>(started_on)
        .bind::<Nullable<BigInt>, _>(holder.process_id)
        .bind::<Nullable<BigInt>, _>(holder.runner_id)
        .bind::<Nullable<Text>, _>(holder.claimant)
        .bind::<Text, _>(holder.host)
        .bind::<Text, _>(holder.process_identity)
        .bind::<BigInt, _>(holder.lease_secs)
        .execute(conn)?;
    mark(conn, started.iter().map(|row| row.run_id), &STARTABLE, "TRUE")?;
    Ok(started)
}

pub(super) fn mark_started(conn: &mut MysqlConnection, runs: &[i64]) -> QueryResult<()> {
    const NOT_MARKED: &str = "`TaskQueueRuns`.`Status` = 'processing' AND `TaskQueue`.`CurrentRunId` IS NULL";
    mark(conn, runs.iter().copied(), &UNMARKED, NOT_MARKED)
}

/// Updates the tasks of these started runs: tasks in these statuses become `processing`. Under LOCK TABLES, each table must be
/// referred to by its own name.
fn mark(
    conn: &mut MysqlConnection,
    runs: impl Iterator<Item = i64>,
    statuses: &str,
    condition: &str,
) -> QueryResult<()> {
    diesel::sql_query(format!(
        "UPDATE `TaskQueueRuns` STRAIGHT_JOIN `TaskQueue` ON `TaskQueue`.`Id` = `TaskQueueRuns`.`TaskQueueId`
         SET `TaskQueue`.`LastStatus` = CASE WHEN `TaskQueue`.`LastStatus` IN ({statuses})
                 THEN 'processing' ELSE `TaskQueue`.`LastStatus` END,
             `TaskQueue`.`CurrentRunId` = `TaskQueueRuns`.`Id`, `TaskQueue`.`UpdatedOn` = UTC_TIMESTAMP(6)
         WHERE `TaskQueueRuns`.`Id` IN ({}) AND {condition}",
        list(runs)
    ))
    .execute(conn)
    .map(drop)
}

/// Under LOCK TABLES, a statement can refer to a table only once, and only by its own name. SKIP LOCKED skips tasks that another
/// claim is about to start. A scalar subquery, because with NOT EXISTS, MariaDB would read all open runs of all tasks first.
const LIST_DUE: &str = "
    SELECT `Id` AS task_id, `TaskClass` AS class, `Attempts` AS attempts, `TaskData` AS data, `MaxRetries` AS max_retries,
        `Timeout` AS timeout_secs, `PlannedOn` AS planned_on, `ScheduledOn` AS scheduled_on,
        `NextAttemptOn` AS next_attempt_on, `Meta` AS meta,
        `Priority` <> 0 OR `LimitKey` IS NOT NULL AS is_special,
        `StartBefore` IS NOT NULL AND `StartBefore` <= UTC_TIMESTAMP(6) AS is_expired,
        `ScheduleHead` <=> 'waiting' AND `CatchUp` <> 'all' AND `DueOn` < UTC_TIMESTAMP(6) - INTERVAL 60 SECOND AS is_late,
        `Recurrence` IS NOT NULL OR `UniqueKey` IS NOT NULL AS is_watched,
        `DueOn` AS due_on, UTC_TIMESTAMP(6) AS seen_on
    FROM `TaskQueue`
    WHERE `DueOn` >= CAST(? AS DATETIME(6)) AND `DueOn` <= UTC_TIMESTAMP(6)
      AND (SELECT `TaskQueueRuns`.`Id` FROM `TaskQueueRuns`
           WHERE `TaskQueueRuns`.`OpenTaskId` = `TaskQueue`.`Id` LIMIT 1) IS NULL
    ORDER BY `DueOn`, `Id` LIMIT ?
    FOR UPDATE SKIP LOCKED";

pub(super) fn list_due(conn: &mut MysqlConnection, from: SqlMoment, limit: i64) -> QueryResult<Vec<DueRow>> {
    prepared(LIST_DUE).bind::<Text, _>(as_text(from)).bind::<BigInt, _>(limit).load(conn)
}

// Differs: there are no partial indexes, so a separate column marks due tasks with a priority.
pub(super) fn nothing_restricts_claims(conn: &mut MysqlConnection) -> QueryResult<bool> {
    const FIND: &str = "
        SELECT NOT (EXISTS (SELECT 1 FROM `TaskQueuePauses`) OR EXISTS (SELECT 1 FROM `TaskQueueClassLimits`)
            OR EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `ClaimClass` IS NOT NULL)
            OR EXISTS (SELECT 1 FROM `TaskQueue` WHERE `PriorityDueOn` <= UTC_TIMESTAMP(6))) AS found";
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

pub(super) fn has_due_with_priority(conn: &mut MysqlConnection) -> QueryResult<bool> {
    const FIND: &str = "SELECT EXISTS (SELECT 1 FROM `TaskQueue` WHERE `PriorityDueOn` <= UTC_TIMESTAMP(6)) AS found";
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

/// Returns those of these tasks that have an open run. The list of due tasks may be stale, because a start changes no row of a
/// task. Only now that their rows are locked is the answer certain.
fn with_open_run(conn: &mut MysqlConnection, tasks: &[TaskStart<'_>]) -> QueryResult<HashSet<i64>> {
    let rows: Vec<IdRow> = diesel::sql_query(format!(
        "SELECT `OpenTaskId` AS id FROM `TaskQueueRuns` WHERE `OpenTaskId` IN ({})",
        list(tasks.iter().map(|task| task.task_id))
    ))
    .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

pub(super) fn start_tasks(
    conn: &mut MysqlConnection,
    holder: &RunHolder<'_>,
    tasks: &[TaskStart<'_>],
) -> QueryResult<Vec<StartedTask>> {
    let started = with_open_run(conn, tasks)?;
    let tasks: Vec<&TaskStart<'_>> = tasks.iter().filter(|task| !started.contains(&task.task_id)).collect();
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    const ROW: &str = "(?, ?, ?, 'processing', UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? SECOND)";
    let text = format!(
        "INSERT INTO `TaskQueueRuns` (`TaskQueueId`, `TaskClass`, `Attempt`, `Status`, `StartedOn`, `Token`, `ProcessId`, `RunnerId`,
             `Host`, `ProcessIdentity`, `LeaseExpiresOn`)
         VALUES {}",
        vec![ROW; tasks.len()].join(", ")
    );
    let mut insert = diesel::sql_query(text).into_boxed();
    for task in &tasks {
        insert = insert
            .bind::<BigInt, _>(task.task_id)
            .bind::<Text, _>(task.class.as_str())
            .bind::<Integer, _>(task.attempt)
            .bind::<Text, _>(task.token)
            .bind::<Nullable<BigInt>, _>(holder.process_id)
            .bind::<Nullable<BigInt>, _>(holder.runner_id)
            .bind::<Text, _>(holder.host)
            .bind::<Text, _>(holder.process_identity)
            .bind::<BigInt, _>(holder.lease_secs);
    }
    insert.execute(conn)?;
    let runs = inserted_ids(conn, tasks.len())?.into_iter().zip(tasks);
    Ok(runs.map(|(run_id, task)| StartedTask { run_id, task_id: task.task_id }).collect())
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(embed)]
    ended: EndedRow,
    #[diesel(sql_type = Nullable<Text>)]
    token: Option<String>,
}

/// Ends these runs, all with the same details.
fn end_alike(conn: &mut MysqlConnection, details: &SuccessDetails<'_>, ends: &[&Success<'_>]) -> QueryResult<()> {
    let pid = |end: &Success<'_>| end.handler.map(|(pid, _)| pid.to_string());
    let identity = |end: &Success<'_>| end.handler.map(|(_, identity)| quoted(identity));
    let text = format!(
        "UPDATE `TaskQueueRuns`
         SET `Status` = 'success', `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL, `ErrorCode` = '', `ErrorMessage` = '',
             `Decision` = ?, `Results` = COALESCE(?, `Results`), `ProgressMessage` = COALESCE(?, `ProgressMessage`),
             `HandlerProcessId` = {}, `HandlerIdentity` = {}, `CpuMsecs` = {}, `PeakMemoryBytes` = {},
             `PercentsCompleted` = 100, `UpdatedOn` = UTC_TIMESTAMP(6)
         WHERE `Id` IN ({})",
        by_run("`HandlerProcessId`", ends.iter().map(|end| (end.run_id, pid(end)))),
        by_run("`HandlerIdentity`", ends.iter().map(|end| (end.run_id, identity(end)))),
        by_run("`CpuMsecs`", ends.iter().map(|end| (end.run_id, end.cpu_msecs().map(|number| number.to_string())))),
        by_run("`PeakMemoryBytes`", ends.iter().map(|end| (end.run_id, end.peak_memory_bytes().map(|number| number.to_string())))),
        list(ends.iter().map(|end| end.run_id))
    );
    prepared_once(&text)
        .bind::<Text, _>(details.decision)
        .bind::<Nullable<Text>, _>(details.results)
        .bind::<Nullable<Text>, _>(details.message)
        .execute(conn)
        .map(drop)
}

/// Locks the rows first, so that all rows found can be written without another check.
pub(super) fn end_successes(conn: &mut MysqlConnection, successes: &[Success<'_>]) -> QueryResult<Vec<EndedRow>> {
    let tokens: HashMap<i64, &str> = successes.iter().map(|end| (end.run_id, end.token)).collect();
    let unmarked = UNMARKED.as_str();
    let held: Vec<HeldRow> = diesel::sql_query(format!(
        "SELECT r.`Id` AS run_id, t.`Id` AS task_id, r.`Host` AS host, CASE WHEN r.`HasKeySlot` THEN r.`LimitKey` END AS freed_key,
             t.`LastStatus` = 'processing'
                 OR t.`CurrentRunId` IS NULL AND t.`LastStatus` IN ({unmarked}) AS has_succeeded,
             t.`Recurrence` IS NOT NULL AS recurs,
             FALSE AS has_dependants,
             t.`KeepResults` IS NOT NULL AS keeps_results,
             r.`Token` AS token
         FROM `TaskQueueRuns` AS r STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
         WHERE r.`Id` IN ({}) AND r.`Status` = 'processing' FOR UPDATE",
        list(successes.iter().map(|end| end.run_id))
    ))
    .load(conn)?;
    let mut held: HashMap<i64, HeldRow> = held.into_iter().map(|row| (row.ended.run_id, row)).collect();
    held.retain(|run_id, row| tokens.get(run_id).copied() == row.token.as_deref());
    let ours: Vec<Success<'_>> = successes.iter().filter(|end| held.contains_key(&end.run_id)).copied().collect();
    for (details, ends) in by_details(&ours) {
        end_alike(conn, &details, &ends)?;
    }
    let mut ended: Vec<EndedRow> = held.into_values().map(|row| row.ended).collect();
    if !ended.is_empty() {
        // By a statement of its own: a transaction that queues a dependant holds the row of its prerequisite. The statement that
        // locked the rows may have waited for it, but read the other tables as they were before.
        let awaited: Vec<IdRow> = diesel::sql_query(format!(
            "SELECT t.`Id` AS id FROM `TaskQueue` AS t
             WHERE t.`Id` IN ({}) AND (SELECT d.`TaskId` FROM `TaskQueueDependencies` AS d
                 WHERE d.`DependsOnId` = t.`Id` AND NOT d.`IsSatisfied` LIMIT 1) IS NOT NULL",
            list(ended.iter().map(|row| row.task_id))
        ))
        .load(conn)?;
        mark_awaited(&mut ended, &awaited);
        diesel::sql_query(format!(
            "UPDATE `TaskQueue`
             SET `LastStatus` = CASE WHEN `LastStatus` = 'processing'
                         OR `CurrentRunId` IS NULL AND `LastStatus` IN ({unmarked}) THEN 'success'
                     ELSE `LastStatus` END, `FailedRetries` = 0,
                 `Attempts` = LEAST(`Attempts` + 1, {MAX_COUNT}), `CurrentRunId` = NULL, `Crashes` = 0, `ClassKeep` = NULL,
                 `UpdatedOn` = UTC_TIMESTAMP(6)
             WHERE `Id` IN ({})",
            list(ended.iter().map(|row| row.task_id))
        ))
        .execute(conn)?;
    }
    Ok(ended)
}
