//! MySQL and MariaDB: a statement for all runs where they get the same values, and one for each where they do not. What
//! differs between the runs stands in the text, where it is a number or was checked to need no quoting.

use diesel::mysql::MysqlConnection;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

use super::super::super::prepared::prepared;
use super::{DueRow, EndedRow, Start, StartedRow, Starter, Success};

#[derive(QueryableByName)]
struct FoundRow {
    #[diesel(sql_type = Bool)]
    found: bool,
}

#[derive(QueryableByName)]
struct FirstId {
    #[diesel(sql_type = BigInt)]
    first: i64,
    #[diesel(sql_type = BigInt)]
    step: i64,
}

/// Numbers and nothing else.
fn list(ids: impl Iterator<Item = i64>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}

const START_RUN: &str = "
    UPDATE `TaskQueueRuns`
    SET `Status` = 'processing', `StartedOn` = UTC_TIMESTAMP(6), `ProcessId` = ?, `RunnerId` = ?, `Claimant` = NULL, `Token` = ?,
        `Host` = ?, `ProcessIdentity` = ?, `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL ? SECOND,
        `UpdatedOn` = UTC_TIMESTAMP(6)
    WHERE `Id` = ? AND `Status` = 'scheduled'";

/// The claim has locked both tables: what is read here is what is written to.
pub(super) fn start_runs(
    conn: &mut MysqlConnection,
    starter: &Starter<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    let startable: Vec<StartedRow> = diesel::sql_query(format!(
        "SELECT `TaskQueueRuns`.`Id` AS run_id, `TaskQueue`.`Id` AS task_id, `TaskQueueRuns`.`TaskClass` AS class,
             `TaskQueueRuns`.`Attempt` AS attempt, UTC_TIMESTAMP(6) AS started_on, '' AS token, `TaskQueue`.`TaskData` AS data,
             `TaskQueue`.`MaxRetries` AS max_retries, `TaskQueue`.`Timeout` AS timeout_secs,
             COALESCE(`TaskQueue`.`PlannedOn`, `TaskQueue`.`ScheduledOn`) AS planned_on
         FROM `TaskQueueRuns` STRAIGHT_JOIN `TaskQueue` ON `TaskQueue`.`Id` = `TaskQueueRuns`.`TaskQueueId`
         WHERE `TaskQueueRuns`.`Id` IN ({}) AND `TaskQueueRuns`.`Status` = 'scheduled' AND `TaskQueue`.`LastStatus` <> 'cancelled'",
        list(starts.iter().map(|start| start.run_id))
    ))
    .load(conn)?;
    let mut started = Vec::with_capacity(startable.len());
    for row in startable {
        let Some(start) = starts.iter().find(|start| start.run_id == row.run_id) else { continue };
        let statement = diesel::sql_query(START_RUN)
            .bind::<BigInt, _>(starter.process_id)
            .bind::<BigInt, _>(starter.runner_id)
            .bind::<Text, _>(start.token)
            .bind::<Text, _>(starter.host)
            .bind::<Text, _>(starter.process_identity)
            .bind::<BigInt, _>(starter.lease_secs)
            .bind::<BigInt, _>(start.run_id);
        prepared(statement).execute(conn)?;
        started.push(StartedRow { token: start.token.to_owned(), ..row });
    }
    mark_started(conn, started.iter().map(|row| (row.task_id, row.run_id)))?;
    Ok(started)
}

const MARK_STARTED: &str = "
    UPDATE `TaskQueue`
    SET `LastStatus` = CASE WHEN `LastStatus` IN ('scheduled', 'failed', 'timeout', 'success') THEN 'processing'
            ELSE `LastStatus` END,
        `CurrentRunId` = ?, `UpdatedOn` = UTC_TIMESTAMP(6)
    WHERE `Id` = ?";

fn mark_started(conn: &mut MysqlConnection, runs: impl Iterator<Item = (i64, i64)>) -> QueryResult<()> {
    for (task_id, run_id) in runs {
        let statement = diesel::sql_query(MARK_STARTED).bind::<BigInt, _>(run_id).bind::<BigInt, _>(task_id);
        prepared(statement).execute(conn)?;
    }
    Ok(())
}

/// Under LOCK TABLES a table can be named once in a statement, and by its own name only: open runs are asked for apart.
const LIST_DUE: &str = "
    SELECT `Id` AS task_id, `TaskClass` AS class, `Attempts` AS attempts, `TaskData` AS data, `MaxRetries` AS max_retries,
        `Timeout` AS timeout_secs, COALESCE(`PlannedOn`, `ScheduledOn`) AS planned_on,
        `Priority` <> 0 OR `LimitKey` IS NOT NULL
            OR EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `TaskQueueRuns`.`OpenTaskId` = `TaskQueue`.`Id`) AS is_special,
        UTC_TIMESTAMP(6) AS seen_on
    FROM `TaskQueue`
    WHERE `DueOn` <= UTC_TIMESTAMP(6)
    ORDER BY `DueOn`, `Id` LIMIT ?";

pub(super) fn list_due(conn: &mut MysqlConnection, limit: i64) -> QueryResult<Vec<DueRow>> {
    prepared(diesel::sql_query(LIST_DUE).bind::<BigInt, _>(limit)).load(conn)
}

pub(super) fn has_due_with_priority(conn: &mut MysqlConnection) -> QueryResult<bool> {
    const FIND: &str = "SELECT EXISTS (SELECT 1 FROM `TaskQueue` WHERE `PriorityDueOn` <= UTC_TIMESTAMP(6)) AS found";
    let row: FoundRow = prepared(diesel::sql_query(FIND)).get_result(conn)?;
    Ok(row.found)
}

pub(super) fn start_tasks(
    conn: &mut MysqlConnection,
    starter: &Starter<'_>,
    tasks: &[(&DueRow, &str)],
) -> QueryResult<Vec<i64>> {
    const ROW: &str = "(?, ?, ?, 'processing', UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? SECOND)";
    let text = format!(
        "INSERT INTO `TaskQueueRuns` (`TaskQueueId`, `TaskClass`, `Attempt`, `Status`, `StartedOn`, `Token`, `ProcessId`, `RunnerId`,
             `Host`, `ProcessIdentity`, `LeaseExpiresOn`)
         VALUES {}",
        vec![ROW; tasks.len()].join(", ")
    );
    let mut insert = diesel::sql_query(text).into_boxed();
    for (task, token) in tasks {
        insert = insert
            .bind::<BigInt, _>(task.task_id)
            .bind::<Text, _>(task.class.as_str())
            .bind::<Integer, _>(task.attempts.saturating_add(1))
            .bind::<Text, _>(*token)
            .bind::<BigInt, _>(starter.process_id)
            .bind::<BigInt, _>(starter.runner_id)
            .bind::<Text, _>(starter.host)
            .bind::<Text, _>(starter.process_identity)
            .bind::<BigInt, _>(starter.lease_secs);
    }
    insert.execute(conn)?;
    // An INSERT whose number of rows is known beforehand gets consecutive ids, and this is the first of them.
    let ids: FirstId = prepared(diesel::sql_query(
        "SELECT CAST(LAST_INSERT_ID() AS SIGNED) AS first, @@auto_increment_increment AS step",
    ))
    .get_result(conn)?;
    let step = usize::try_from(ids.step).unwrap_or(1);
    let runs: Vec<i64> = (ids.first..).step_by(step).take(tasks.len()).collect();
    mark_started(conn, tasks.iter().map(|(task, _)| task.task_id).zip(runs.iter().copied()))?;
    Ok(runs)
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(embed)]
    ended: EndedRow,
    #[diesel(sql_type = Nullable<Text>)]
    token: Option<String>,
}

const END_RUN: &str = "
    UPDATE `TaskQueueRuns`
    SET `Status` = 'success', `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL, `ErrorCode` = '', `ErrorMessage` = '',
        `Decision` = ?, `Results` = COALESCE(?, `Results`), `HandlerProcessId` = COALESCE(?, `HandlerProcessId`),
        `HandlerIdentity` = COALESCE(?, `HandlerIdentity`), `ProgressMessage` = COALESCE(?, `ProgressMessage`),
        `PercentsCompleted` = 100, `UpdatedOn` = UTC_TIMESTAMP(6)
    WHERE `Id` = ?";

/// The rows are locked first, so that all that are found can be written without another look at them.
pub(super) fn end_successes(conn: &mut MysqlConnection, successes: &[Success<'_>]) -> QueryResult<Vec<EndedRow>> {
    let held: Vec<HeldRow> = diesel::sql_query(format!(
        "SELECT r.`Id` AS run_id, t.`Id` AS task_id, r.`Host` AS host, CASE WHEN r.`HasKeySlot` THEN r.`LimitKey` END AS freed_key,
             t.`LastStatus` = 'processing' AS has_succeeded, t.`Recurrence` IS NOT NULL AS recurs,
             EXISTS (SELECT 1 FROM `TaskQueueDependencies` AS d WHERE d.`DependsOnId` = t.`Id`) AS has_dependants,
             r.`Token` AS token
         FROM `TaskQueueRuns` AS r STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
         WHERE r.`Id` IN ({}) AND r.`Status` = 'processing' FOR UPDATE",
        list(successes.iter().map(|end| end.run_id))
    ))
    .load(conn)?;
    let mut ended = Vec::with_capacity(held.len());
    for HeldRow { ended: row, token } in held {
        let Some(end) = successes.iter().find(|end| end.run_id == row.run_id && token.as_deref() == Some(end.token))
        else {
            continue;
        };
        let statement = diesel::sql_query(END_RUN)
            .bind::<Text, _>(end.decision)
            .bind::<Nullable<Text>, _>(end.results)
            .bind::<Nullable<BigInt>, _>(end.handler.map(|(pid, _)| pid))
            .bind::<Nullable<Text>, _>(end.handler.map(|(_, identity)| identity))
            .bind::<Nullable<Text>, _>(end.message)
            .bind::<BigInt, _>(end.run_id);
        prepared(statement).execute(conn)?;
        ended.push(row);
    }
    if !ended.is_empty() {
        diesel::sql_query(format!(
            "UPDATE `TaskQueue`
             SET `LastStatus` = CASE WHEN `LastStatus` = 'processing' THEN 'success' ELSE `LastStatus` END, `FailedRetries` = 0,
                 `Attempts` = `Attempts` + 1, `CurrentRunId` = NULL, `Crashes` = 0, `UpdatedOn` = UTC_TIMESTAMP(6)
             WHERE `Id` IN ({})",
            list(ended.iter().map(|row| row.task_id))
        ))
        .execute(conn)?;
    }
    Ok(ended)
}
