//! SQLite: prepared statements, row by row; nothing is faster inside a process.

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use super::super::super::prepared::prepared;
use super::{DueRow, EndedRow, Start, StartedRow, Starter, Success};

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

#[derive(QueryableByName)]
struct FoundRow {
    #[diesel(sql_type = Bool)]
    found: bool,
}

const START_RUN: &str = r#"
    UPDATE "TaskQueueRuns"
    SET "Status" = 'processing', "StartedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "ProcessId" = ?, "RunnerId" = ?,
        "Claimant" = NULL, "Token" = ?, "Host" = ?, "ProcessIdentity" = ?,
        "LeaseExpiresOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ? || ' seconds'),
        "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE "Id" = ? AND "Status" = 'scheduled'
      AND EXISTS (SELECT 1 FROM "TaskQueue" AS t WHERE t."Id" = "TaskQueueId" AND t."LastStatus" <> 'cancelled')"#;

const MARK_STARTED: &str = r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = CASE WHEN "LastStatus" IN ('scheduled', 'failed', 'timeout', 'success') THEN 'processing'
            ELSE "LastStatus" END,
        "CurrentRunId" = ?, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE "Id" = (SELECT r."TaskQueueId" FROM "TaskQueueRuns" AS r WHERE r."Id" = ?)"#;

const LOAD_STARTED: &str = r#"
    SELECT r."Id" AS run_id, t."Id" AS task_id, r."TaskClass" AS class, r."Attempt" AS attempt, r."StartedOn" AS started_on,
        r."Token" AS token, t."TaskData" AS data, t."MaxRetries" AS max_retries, t."Timeout" AS timeout_secs,
        COALESCE(t."PlannedOn", t."ScheduledOn") AS planned_on
    FROM "TaskQueueRuns" AS r JOIN "TaskQueue" AS t ON t."Id" = r."TaskQueueId"
    WHERE r."Id" = ?"#;

pub(super) fn start_runs(
    conn: &mut SqliteConnection,
    starter: &Starter<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    let mut started = Vec::with_capacity(starts.len());
    for start in starts {
        let statement = diesel::sql_query(START_RUN)
            .bind::<BigInt, _>(starter.process_id)
            .bind::<BigInt, _>(starter.runner_id)
            .bind::<Text, _>(start.token)
            .bind::<Text, _>(starter.host)
            .bind::<Text, _>(starter.process_identity)
            .bind::<BigInt, _>(starter.lease_secs)
            .bind::<BigInt, _>(start.run_id);
        if prepared(statement).execute(conn)? == 1 {
            let mark = diesel::sql_query(MARK_STARTED).bind::<BigInt, _>(start.run_id).bind::<BigInt, _>(start.run_id);
            prepared(mark).execute(conn)?;
            started.push(prepared(diesel::sql_query(LOAD_STARTED).bind::<BigInt, _>(start.run_id)).get_result(conn)?);
        }
    }
    Ok(started)
}

const LIST_DUE: &str = r#"
    SELECT t."Id" AS task_id, t."TaskClass" AS class, t."Attempts" AS attempts, t."TaskData" AS data, t."MaxRetries" AS max_retries,
        t."Timeout" AS timeout_secs, COALESCE(t."PlannedOn", t."ScheduledOn") AS planned_on,
        t."Priority" <> 0 OR t."LimitKey" IS NOT NULL
            OR EXISTS (SELECT 1 FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id") AS is_special,
        strftime('%Y-%m-%d %H:%M:%f000', 'now') AS seen_on
    FROM "TaskQueue" AS t
    WHERE t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
    ORDER BY t."DueOn", t."Id" LIMIT ?"#;

pub(super) fn list_due(conn: &mut SqliteConnection, limit: i64) -> QueryResult<Vec<DueRow>> {
    prepared(diesel::sql_query(LIST_DUE).bind::<BigInt, _>(limit)).load(conn)
}

pub(super) fn has_due_with_priority(conn: &mut SqliteConnection) -> QueryResult<bool> {
    const FIND: &str = r#"
        SELECT EXISTS (SELECT 1 FROM "TaskQueue"
                       WHERE "PriorityDueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')) AS found"#;
    let row: FoundRow = prepared(diesel::sql_query(FIND)).get_result(conn)?;
    Ok(row.found)
}

const START_TASK: &str = r#"
    INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Attempt", "Status", "StartedOn", "Token", "ProcessId", "RunnerId", "Host",
        "ProcessIdentity", "LeaseExpiresOn")
    VALUES (?, ?, ?, 'processing', strftime('%Y-%m-%d %H:%M:%f000', 'now'), ?, ?, ?, ?, ?,
        strftime('%Y-%m-%d %H:%M:%f000', 'now', ? || ' seconds'))
    RETURNING "Id" AS id"#;

const MARK_TASK: &str = r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = 'processing', "CurrentRunId" = ?, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE "Id" = ?"#;

pub(super) fn start_tasks(
    conn: &mut SqliteConnection,
    starter: &Starter<'_>,
    tasks: &[(&DueRow, &str)],
) -> QueryResult<Vec<i64>> {
    let mut runs = Vec::with_capacity(tasks.len());
    for (task, token) in tasks {
        let insert = diesel::sql_query(START_TASK)
            .bind::<BigInt, _>(task.task_id)
            .bind::<Text, _>(task.class.as_str())
            .bind::<Integer, _>(task.attempts.saturating_add(1))
            .bind::<Text, _>(*token)
            .bind::<BigInt, _>(starter.process_id)
            .bind::<BigInt, _>(starter.runner_id)
            .bind::<Text, _>(starter.host)
            .bind::<Text, _>(starter.process_identity)
            .bind::<BigInt, _>(starter.lease_secs);
        let run: IdRow = prepared(insert).get_result(conn)?;
        let mark = diesel::sql_query(MARK_TASK).bind::<BigInt, _>(run.id).bind::<BigInt, _>(task.task_id);
        prepared(mark).execute(conn)?;
        runs.push(run.id);
    }
    Ok(runs)
}

const END_RUN: &str = r#"
    UPDATE "TaskQueueRuns"
    SET "Status" = 'success', "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL, "ErrorCode" = '',
        "ErrorMessage" = '', "Decision" = ?, "Results" = COALESCE(?, "Results"),
        "HandlerProcessId" = COALESCE(?, "HandlerProcessId"), "HandlerIdentity" = COALESCE(?, "HandlerIdentity"),
        "ProgressMessage" = COALESCE(?, "ProgressMessage"), "PercentsCompleted" = 100,
        "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE "Id" = ? AND "Status" = 'processing' AND "Token" = ?"#;

const MARK_ENDED: &str = r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = CASE WHEN "LastStatus" = 'processing' THEN 'success' ELSE "LastStatus" END, "FailedRetries" = 0,
        "Attempts" = "Attempts" + 1, "CurrentRunId" = NULL, "Crashes" = 0,
        "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE "Id" = (SELECT r."TaskQueueId" FROM "TaskQueueRuns" AS r WHERE r."Id" = ?)"#;

const LOAD_ENDED: &str = r#"
    SELECT r."Id" AS run_id, t."Id" AS task_id, r."Host" AS host, CASE WHEN r."HasKeySlot" THEN r."LimitKey" END AS freed_key,
        t."LastStatus" = 'success' AS has_succeeded, t."Recurrence" IS NOT NULL AS recurs,
        EXISTS (SELECT 1 FROM "TaskQueueDependencies" AS d WHERE d."DependsOnId" = t."Id") AS has_dependants
    FROM "TaskQueueRuns" AS r JOIN "TaskQueue" AS t ON t."Id" = r."TaskQueueId"
    WHERE r."Id" = ?"#;

pub(super) fn end_successes(conn: &mut SqliteConnection, successes: &[Success<'_>]) -> QueryResult<Vec<EndedRow>> {
    let mut ended = Vec::with_capacity(successes.len());
    for end in successes {
        let statement = diesel::sql_query(END_RUN)
            .bind::<Text, _>(end.decision)
            .bind::<Nullable<Text>, _>(end.results)
            .bind::<Nullable<BigInt>, _>(end.handler.map(|(pid, _)| pid))
            .bind::<Nullable<Text>, _>(end.handler.map(|(_, identity)| identity))
            .bind::<Nullable<Text>, _>(end.message)
            .bind::<BigInt, _>(end.run_id)
            .bind::<Text, _>(end.token);
        if prepared(statement).execute(conn)? == 1 {
            prepared(diesel::sql_query(MARK_ENDED).bind::<BigInt, _>(end.run_id)).execute(conn)?;
            let row = prepared(diesel::sql_query(LOAD_ENDED).bind::<BigInt, _>(end.run_id)).get_result(conn);
            ended.extend(row.optional()?);
        }
    }
    Ok(ended)
}
