//! PostgreSQL: arrays in, one statement for any number of runs.

use std::sync::LazyLock;

use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamp};

use super::{
    DueRow, EndedRow, FoundRow, RunHolder, Start, StartedRow, StartedTask, Success, TaskStart, mark_awaited, with_rules,
};
use crate::base::prepared::prepared;
use crate::base::rows::IdRow;
use crate::base::sql::SqlMoment;

/// Locks the tasks first: after it has waited for a cancel, PostgreSQL reads only the rows that it locks again.
static START_RUNS: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    WITH found AS MATERIALIZED (
        SELECT r."Id" AS id, s.token
        FROM unnest(?, ?) AS s (id, token), "TaskQueueRuns" AS r, "TaskQueue" AS t
        WHERE r."Id" = ANY (ARRAY[s.id]) AND r."Status" = 'scheduled' AND t."Id" = ANY (ARRAY[r."TaskQueueId"])
            AND t."LastStatus" NOT IN ('cancelled', 'expired') AND (t."StartBefore" IS NULL OR t."StartBefore" > clock_timestamp())
        FOR NO KEY UPDATE OF t
    ), started AS (
        UPDATE "TaskQueueRuns" AS r
        SET "Status" = 'processing', "StartedOn" = clock_timestamp(), "ProcessId" = ?, "RunnerId" = ?, "Claimant" = ?,
            "Token" = f.token, "Host" = ?, "ProcessIdentity" = ?,
            "LeaseExpiresOn" = clock_timestamp() + ? * interval '1 second', "UpdatedOn" = clock_timestamp()
        FROM found AS f
        WHERE r."Id" = ANY (ARRAY[f.id]) AND r."Status" = 'scheduled'
        RETURNING r."Id", r."TaskQueueId", r."TaskClass", r."Attempt", r."StartedOn", r."Token"
    )
    UPDATE "TaskQueue" AS t
    SET "LastStatus" = CASE WHEN t."LastStatus" IN (STARTABLE) THEN 'processing'
            ELSE t."LastStatus" END,
        "CurrentRunId" = s."Id", "UpdatedOn" = clock_timestamp()
    FROM started AS s
    WHERE t."Id" = ANY (ARRAY[s."TaskQueueId"])
    RETURNING s."Id" AS run_id, t."Id" AS task_id, s."TaskClass" AS class, s."Attempt" AS attempt,
        s."StartedOn"::timestamp AS started_on, s."Token" AS token, t."TaskData"::text AS data, t."MaxRetries" AS max_retries,
        t."Timeout" AS timeout_secs, t."PlannedOn"::timestamp AS planned_on, t."ScheduledOn"::timestamp AS scheduled_on,
        t."NextAttemptOn"::timestamp AS next_attempt_on, t."Meta"::text AS meta"#,
    )
});

pub(super) fn start_runs(
    conn: &mut PgConnection,
    holder: &RunHolder<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    let ids: Vec<i64> = starts.iter().map(|start| start.run_id).collect();
    let tokens: Vec<&str> = starts.iter().map(|start| start.token).collect();
    let statement = prepared(&START_RUNS)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Array<Text>, _>(tokens)
        .bind::<Nullable<BigInt>, _>(holder.process_id)
        .bind::<Nullable<BigInt>, _>(holder.runner_id)
        .bind::<Nullable<Text>, _>(holder.claimant)
        .bind::<Text, _>(holder.host)
        .bind::<Text, _>(holder.process_identity)
        .bind::<BigInt, _>(holder.lease_secs);
    statement.load(conn)
}

/// SKIP LOCKED: a task that is about to be cancelled or changed is found by the next poll. The clock is in a subquery because it
/// is volatile: compared directly, it could not limit the index scan to due tasks. A scalar subquery instead of NOT EXISTS: if
/// that was planned while there were no runs, it would read the whole index of open runs, with all dead entries.
const LIST_DUE: &str = r#"
    SELECT t."Id" AS task_id, t."TaskClass" AS class, t."Attempts" AS attempts, t."TaskData"::text AS data,
        t."MaxRetries" AS max_retries, t."Timeout" AS timeout_secs,
        t."PlannedOn"::timestamp AS planned_on, t."ScheduledOn"::timestamp AS scheduled_on,
        t."NextAttemptOn"::timestamp AS next_attempt_on, t."Meta"::text AS meta,
        t."Priority" <> 0 OR t."LimitKey" IS NOT NULL AS is_special,
        t."StartBefore" IS NOT NULL AND t."StartBefore" <= clock_timestamp() AS is_expired,
        t."ScheduleHead" IS NOT DISTINCT FROM 'waiting' AND t."CatchUp" <> 'all'
            AND t."DueOn" < clock_timestamp() - interval '60 seconds' AS is_late,
        t."Recurrence" IS NOT NULL OR t."UniqueKey" IS NOT NULL AS is_watched,
        t."DueOn"::timestamp AS due_on, clock_timestamp()::timestamp AS seen_on
    FROM "TaskQueue" AS t
    WHERE t."DueOn" >= ? AND t."DueOn" <= (SELECT clock_timestamp())
      AND (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id" LIMIT 1) IS NULL
    ORDER BY t."DueOn", t."Id" LIMIT ?
    FOR UPDATE SKIP LOCKED"#;

pub(super) fn list_due(conn: &mut PgConnection, from: SqlMoment, limit: i64) -> QueryResult<Vec<DueRow>> {
    prepared(LIST_DUE).bind::<Timestamp, _>(from).bind::<BigInt, _>(limit).load(conn)
}

pub(super) fn nothing_restricts_claims(conn: &mut PgConnection) -> QueryResult<bool> {
    const FIND: &str = r#"
        SELECT NOT (EXISTS (SELECT 1 FROM "TaskQueuePauses") OR EXISTS (SELECT 1 FROM "TaskQueueClassLimits")
            OR EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "ClaimClass" IS NOT NULL)
            OR EXISTS (SELECT 1 FROM "TaskQueue"
                       WHERE "Priority" <> 0 AND "DueOn" <= (SELECT clock_timestamp()))) AS found"#;
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

pub(super) fn has_due_with_priority(conn: &mut PgConnection) -> QueryResult<bool> {
    const FIND: &str = r#"
        SELECT EXISTS (SELECT 1 FROM "TaskQueue" WHERE "Priority" <> 0 AND "DueOn" <= (SELECT clock_timestamp())) AS found"#;
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

/// The same time for all: a run is not started before it is created. The list of due tasks may be stale, because a start changes
/// no row of a task. Only now that their rows are locked is it certain which of them have an open run. If another transaction
/// creates a run at this moment without the lock of its task, the unique index reports it and everything is repeated. ON CONFLICT
/// would write one more record per run.
const START_TASKS: &str = r#"
    WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), started AS (
        INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Attempt", "Status", "CreatedOn", "StartedOn", "Token",
            "ProcessId", "RunnerId", "Host", "ProcessIdentity", "LeaseExpiresOn")
        SELECT n.task_id, n.class, n.attempt, 'processing', clock.now, clock.now, n.token, ?, ?, ?, ?,
            clock.now + ? * interval '1 second'
        FROM unnest(?, ?, ?, ?) WITH ORDINALITY AS n (task_id, class, attempt, token, place), clock
        WHERE (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = n.task_id LIMIT 1) IS NULL
        ORDER BY n.place
        RETURNING "Id", "TaskQueueId"
    )
    SELECT "Id" AS run_id, "TaskQueueId" AS task_id FROM started ORDER BY "Id""#;

pub(super) fn start_tasks(
    conn: &mut PgConnection,
    holder: &RunHolder<'_>,
    tasks: &[TaskStart<'_>],
) -> QueryResult<Vec<StartedTask>> {
    let ids: Vec<i64> = tasks.iter().map(|task| task.task_id).collect();
    let classes: Vec<&str> = tasks.iter().map(|task| task.class.as_str()).collect();
    let attempts: Vec<i32> = tasks.iter().map(|task| task.attempt).collect();
    let tokens: Vec<&str> = tasks.iter().map(|task| task.token).collect();
    let statement = prepared(START_TASKS)
        .bind::<Nullable<BigInt>, _>(holder.process_id)
        .bind::<Nullable<BigInt>, _>(holder.runner_id)
        .bind::<Text, _>(holder.host)
        .bind::<Text, _>(holder.process_identity)
        .bind::<BigInt, _>(holder.lease_secs)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Array<Text>, _>(classes)
        .bind::<Array<Integer>, _>(attempts)
        .bind::<Array<Text>, _>(tokens);
    statement.load(conn)
}

static MARK_STARTED: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    UPDATE "TaskQueue" AS t
    SET "LastStatus" = CASE WHEN t."LastStatus" IN (UNMARKED) THEN 'processing' ELSE t."LastStatus" END,
        "CurrentRunId" = r."Id", "UpdatedOn" = clock_timestamp()
    FROM "TaskQueueRuns" AS r
    WHERE r."Id" = ANY (?) AND r."Status" = 'processing' AND t."Id" = ANY (ARRAY[r."TaskQueueId"]) AND t."CurrentRunId" IS NULL"#,
    )
});

pub(super) fn mark_started(conn: &mut PgConnection, runs: &[i64]) -> QueryResult<()> {
    prepared(&MARK_STARTED).bind::<Array<BigInt>, _>(runs).execute(conn).map(drop)
}

/// `has_dependants` is read afterwards, by [`AWAITED`].
static END_SUCCESSES: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    WITH ended AS (
        UPDATE "TaskQueueRuns" AS r
        SET "Status" = 'success', "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL, "ErrorCode" = '', "ErrorMessage" = '',
            "Decision" = e.decision, "Results" = COALESCE(e.results, r."Results"),
            "HandlerProcessId" = COALESCE(e.pid, r."HandlerProcessId"),
            "HandlerIdentity" = COALESCE(e.identity, r."HandlerIdentity"),
            "CpuMsecs" = e.cpu, "PeakMemoryBytes" = e.memory,
            "ProgressMessage" = COALESCE(e.message, r."ProgressMessage"), "PercentsCompleted" = 100,
            "UpdatedOn" = clock_timestamp()
        FROM unnest(?, ?, ?, ?, ?, ?, ?, ?, ?) AS e (id, token, decision, results, pid, identity, cpu, memory, message)
        WHERE r."Id" = ANY (ARRAY[e.id]) AND r."Status" = 'processing' AND r."Token" = e.token
        RETURNING r."Id", r."TaskQueueId", r."Host", r."LimitKey", r."HasKeySlot"
    )
    UPDATE "TaskQueue" AS t
    SET "LastStatus" = CASE WHEN t."LastStatus" = 'processing'
                OR t."CurrentRunId" IS NULL AND t."LastStatus" IN (UNMARKED) THEN 'success'
            ELSE t."LastStatus" END, "FailedRetries" = 0,
        "Attempts" = LEAST(t."Attempts" + 1, MAX_COUNT), "CurrentRunId" = NULL, "Crashes" = 0, "ClassKeep" = NULL, "UpdatedOn" = clock_timestamp()
    FROM ended AS e
    WHERE t."Id" = ANY (ARRAY[e."TaskQueueId"])
    RETURNING e."Id" AS run_id, t."Id" AS task_id, e."Host" AS host,
        CASE WHEN e."HasKeySlot" THEN e."LimitKey" END AS freed_key, t."LastStatus" = 'success' AS has_succeeded,
        t."Recurrence" IS NOT NULL AS recurs,
        FALSE AS has_dependants,
        t."KeepResults" IS NOT NULL AS keeps_results"#,
    )
});

pub(super) fn end_successes(conn: &mut PgConnection, successes: &[Success<'_>]) -> QueryResult<Vec<EndedRow>> {
    fn column<'a, T>(successes: &'a [Success<'a>], of: impl Fn(&Success<'a>) -> T) -> Vec<T> {
        successes.iter().map(of).collect()
    }
    let statement = prepared(&END_SUCCESSES)
        .bind::<Array<BigInt>, _>(column(successes, |end| end.run_id))
        .bind::<Array<Text>, _>(column(successes, |end| end.token))
        .bind::<Array<Text>, _>(column(successes, |end| end.details.decision))
        .bind::<Array<Nullable<Text>>, _>(column(successes, |end| end.details.results))
        .bind::<Array<Nullable<BigInt>>, _>(column(successes, |end| end.handler.map(|(pid, _)| pid)))
        .bind::<Array<Nullable<Text>>, _>(column(successes, |end| end.handler.map(|(_, identity)| identity)))
        .bind::<Array<Nullable<BigInt>>, _>(column(successes, Success::cpu_msecs))
        .bind::<Array<Nullable<BigInt>>, _>(column(successes, Success::peak_memory_bytes))
        .bind::<Array<Nullable<Text>>, _>(column(successes, |end| end.details.message));
    let mut ended: Vec<EndedRow> = statement.load(conn)?;
    if ended.is_empty() {
        return Ok(ended);
    }
    let tasks: Vec<i64> = ended.iter().map(|row| row.task_id).collect();
    let awaited: Vec<IdRow> = prepared(AWAITED).bind::<Array<BigInt>, _>(tasks).load(conn)?;
    mark_awaited(&mut ended, &awaited);
    Ok(ended)
}

/// Executed once the rows of the tasks are locked, by a statement of its own: a transaction that queues a dependant holds the row
/// of its prerequisite, so the statement above may have waited for it, but its snapshot is older.
const AWAITED: &str = r#"
    SELECT DISTINCT d."DependsOnId" AS id FROM "TaskQueueDependencies" AS d
    WHERE d."DependsOnId" = ANY (?) AND NOT d."IsSatisfied""#;
