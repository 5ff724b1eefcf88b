//! SQLite: one statement for all rows, passed as a JSON array: with a statement per row, starting and ending it would be most of
//! the cost. The clock is read once and bound, because SQLite would format it again for each column of each row.

use std::collections::HashMap;
use std::sync::LazyLock;

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};
use diesel::sqlite::SqliteConnection;
use serde_json::json;

use super::{
    DueRow, EndedRow, FoundRow, RunHolder, Start, StartedRow, StartedTask, Success, SuccessDetails, TaskStart,
    by_details, with_rules,
};
use crate::base::cells::{Maybe, ShownText};
use crate::base::prepared::prepared;
use crate::base::rows::IdRow;
use crate::base::sql::SqlMoment;

/// SQLite's clock, in the format of the columns.
#[derive(QueryableByName)]
struct Clock {
    #[diesel(sql_type = Text)]
    now: String,
    /// The time a given number of seconds later.
    #[diesel(sql_type = Text)]
    later: String,
}

fn read_clock(conn: &mut SqliteConnection, plus_secs: i64) -> QueryResult<Clock> {
    const READ: &str = "SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now') AS now,
        strftime('%Y-%m-%d %H:%M:%f000', 'now', ? || ' seconds') AS later";
    prepared(READ).bind::<BigInt, _>(plus_secs).get_result(conn)
}

/// The FROM of an UPDATE is read first, row by row, and each row of the table is found by its key.
const START_RUNS: &str = r#"
    UPDATE "TaskQueueRuns"
    SET "Status" = 'processing', "StartedOn" = ?, "ProcessId" = ?, "RunnerId" = ?, "Claimant" = ?, "Token" = n.value ->> 1,
        "Host" = ?, "ProcessIdentity" = ?, "LeaseExpiresOn" = ?, "UpdatedOn" = ?
    FROM json_each(?) AS n
    WHERE "TaskQueueRuns"."Id" = n.value ->> 0 AND "Status" = 'scheduled'
      AND EXISTS (SELECT 1 FROM "TaskQueue" AS t WHERE t."Id" = "TaskQueueRuns"."TaskQueueId"
                  AND t."LastStatus" NOT IN ('cancelled', 'expired')
                  AND (t."StartBefore" IS NULL OR t."StartBefore" > strftime('%Y-%m-%d %H:%M:%f000', 'now')))
    RETURNING "Id" AS id"#;

const LOAD_STARTED: &str = r#"
    SELECT r."Id" AS run_id, t."Id" AS task_id, r."TaskClass" AS class, r."Attempt" AS attempt, r."StartedOn" AS started_on,
        r."Token" AS token, t."TaskData" AS data, t."MaxRetries" AS max_retries, t."Timeout" AS timeout_secs,
        t."PlannedOn" AS planned_on, t."ScheduledOn" AS scheduled_on, t."NextAttemptOn" AS next_attempt_on, t."Meta" AS meta
    FROM json_each(?) AS n CROSS JOIN "TaskQueueRuns" AS r CROSS JOIN "TaskQueue" AS t
    WHERE r."Id" = n.value AND t."Id" = r."TaskQueueId""#;

pub(super) fn start_runs(
    conn: &mut SqliteConnection,
    holder: &RunHolder<'_>,
    starts: &[Start<'_>],
) -> QueryResult<Vec<StartedRow>> {
    let runs: Vec<_> = starts.iter().map(|start| json!([start.run_id, start.token])).collect();
    let clock = read_clock(conn, holder.lease_secs)?;
    let started: Vec<IdRow> = prepared(START_RUNS)
        .bind::<Text, _>(&clock.now)
        .bind::<Nullable<BigInt>, _>(holder.process_id)
        .bind::<Nullable<BigInt>, _>(holder.runner_id)
        .bind::<Nullable<Text>, _>(holder.claimant)
        .bind::<Text, _>(holder.host)
        .bind::<Text, _>(holder.process_identity)
        .bind::<Text, _>(&clock.later)
        .bind::<Text, _>(&clock.now)
        .bind::<Text, _>(json!(runs).to_string())
        .load(conn)?;
    let ids: Vec<i64> = started.into_iter().map(|row| row.id).collect();
    let rows: Vec<StartedRow> = prepared(LOAD_STARTED).bind::<Text, _>(json!(ids).to_string()).load(conn)?;
    let runs: Vec<(i64, i64)> = rows.iter().map(|row| (row.task_id, row.run_id)).collect();
    prepared(&MARK_CLAIMED).bind::<Text, _>(&clock.now).bind::<Text, _>(json!(runs).to_string()).execute(conn)?;
    Ok(rows)
}

static MARK_CLAIMED: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = CASE WHEN "LastStatus" IN (STARTABLE) THEN 'processing'
            ELSE "LastStatus" END,
        "CurrentRunId" = n.value ->> 1, "UpdatedOn" = ?
    FROM json_each(?) AS n
    WHERE "TaskQueue"."Id" = n.value ->> 0"#,
    )
});

static MARK_STARTED: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = CASE WHEN "LastStatus" IN (UNMARKED) THEN 'processing' ELSE "LastStatus" END,
        "CurrentRunId" = r."Id", "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    FROM json_each(?) AS n CROSS JOIN "TaskQueueRuns" AS r
    WHERE r."Id" = n.value AND r."Status" = 'processing' AND "TaskQueue"."Id" = r."TaskQueueId" AND "CurrentRunId" IS NULL"#,
    )
});

pub(super) fn mark_started(conn: &mut SqliteConnection, runs: &[i64]) -> QueryResult<()> {
    prepared(&MARK_STARTED).bind::<Text, _>(json!(runs).to_string()).execute(conn).map(drop)
}

const LIST_DUE: &str = r#"
    SELECT t."Id" AS task_id, t."TaskClass" AS class, t."Attempts" AS attempts, t."TaskData" AS data, t."MaxRetries" AS max_retries,
        t."Timeout" AS timeout_secs, t."PlannedOn" AS planned_on, t."ScheduledOn" AS scheduled_on,
        t."NextAttemptOn" AS next_attempt_on, t."Meta" AS meta,
        t."Priority" <> 0 OR t."LimitKey" IS NOT NULL AS is_special,
        t."StartBefore" IS NOT NULL AND t."StartBefore" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') AS is_expired,
        t."ScheduleHead" IS 'waiting' AND t."CatchUp" <> 'all'
            AND t."DueOn" < strftime('%Y-%m-%d %H:%M:%f000', 'now', '-60 seconds') AS is_late,
        t."Recurrence" IS NOT NULL OR t."UniqueKey" IS NOT NULL AS is_watched,
        t."DueOn" AS due_on, strftime('%Y-%m-%d %H:%M:%f000', 'now') AS seen_on
    FROM "TaskQueue" AS t
    WHERE t."DueOn" >= ? AND t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
      AND NOT EXISTS (SELECT 1 FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id")
    ORDER BY t."DueOn", t."Id" LIMIT ?"#;

pub(super) fn list_due(conn: &mut SqliteConnection, from: SqlMoment, limit: i64) -> QueryResult<Vec<DueRow>> {
    prepared(LIST_DUE).bind::<Timestamp, _>(from).bind::<BigInt, _>(limit).load(conn)
}

pub(super) fn nothing_restricts_claims(conn: &mut SqliteConnection) -> QueryResult<bool> {
    const FIND: &str = r#"
        SELECT NOT (EXISTS (SELECT 1 FROM "TaskQueuePauses") OR EXISTS (SELECT 1 FROM "TaskQueueClassLimits")
            OR EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "ClaimClass" IS NOT NULL)
            OR EXISTS (SELECT 1 FROM "TaskQueue"
                       WHERE "Priority" <> 0 AND "DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now'))) AS found"#;
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

pub(super) fn has_due_with_priority(conn: &mut SqliteConnection) -> QueryResult<bool> {
    const FIND: &str = r#"
        SELECT EXISTS (SELECT 1 FROM "TaskQueue"
                       WHERE "Priority" <> 0 AND "DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')) AS found"#;
    let row: FoundRow = prepared(FIND).get_result(conn)?;
    Ok(row.found)
}

const START_TASKS: &str = r#"
    INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Attempt", "Status", "CreatedOn", "StartedOn", "UpdatedOn", "Token",
        "ProcessId", "RunnerId", "Host", "ProcessIdentity", "LeaseExpiresOn")
    SELECT t."Id", t."TaskClass", n.value ->> 1, 'processing', ?, ?, ?, n.value ->> 2, ?, ?, ?, ?, ?
    FROM json_each(?) AS n CROSS JOIN "TaskQueue" AS t
    WHERE t."Id" = n.value ->> 0
    ORDER BY n.key
    RETURNING "Id" AS run_id, "TaskQueueId" AS task_id"#;

pub(super) fn start_tasks(
    conn: &mut SqliteConnection,
    holder: &RunHolder<'_>,
    tasks: &[TaskStart<'_>],
) -> QueryResult<Vec<StartedTask>> {
    let rows: Vec<_> = tasks.iter().map(|task| json!([task.task_id, task.attempt, task.token])).collect();
    let clock = read_clock(conn, holder.lease_secs)?;
    let mut started: Vec<StartedTask> = prepared(START_TASKS)
        .bind::<Text, _>(&clock.now)
        .bind::<Text, _>(&clock.now)
        .bind::<Text, _>(&clock.now)
        .bind::<Nullable<BigInt>, _>(holder.process_id)
        .bind::<Nullable<BigInt>, _>(holder.runner_id)
        .bind::<Text, _>(holder.host)
        .bind::<Text, _>(holder.process_identity)
        .bind::<Text, _>(&clock.later)
        .bind::<Text, _>(json!(rows).to_string())
        .load(conn)?;
    // They were inserted in the order of the tasks, but RETURNING guarantees no order.
    started.sort_unstable_by_key(|task| task.run_id);
    Ok(started)
}

#[derive(QueryableByName)]
struct EndedRunRow {
    #[diesel(sql_type = BigInt)]
    run_id: i64,
    #[diesel(sql_type = BigInt)]
    task_id: i64,
    #[diesel(sql_type = Text, deserialize_as = ShownText)]
    host: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = Maybe<ShownText>)]
    freed_key: Option<String>,
}

#[derive(QueryableByName)]
struct EndedTaskRow {
    #[diesel(sql_type = BigInt)]
    task_id: i64,
    #[diesel(sql_type = Bool)]
    has_succeeded: bool,
    #[diesel(sql_type = Bool)]
    recurs: bool,
    #[diesel(sql_type = Bool)]
    has_dependants: bool,
    #[diesel(sql_type = Bool)]
    keeps_results: bool,
}

const END_RUNS: &str = r#"
    UPDATE "TaskQueueRuns"
    SET "Status" = 'success', "FinishedOn" = ?, "LeaseExpiresOn" = NULL, "ErrorCode" = '', "ErrorMessage" = '',
        "Decision" = ?, "Results" = COALESCE(?, "Results"),
        "HandlerProcessId" = COALESCE(n.value ->> 2, "HandlerProcessId"),
        "HandlerIdentity" = COALESCE(n.value ->> 3, "HandlerIdentity"), "CpuMsecs" = n.value ->> 4,
        "PeakMemoryBytes" = n.value ->> 5, "ProgressMessage" = COALESCE(?, "ProgressMessage"),
        "PercentsCompleted" = 100, "UpdatedOn" = ?
    FROM json_each(?) AS n
    WHERE "TaskQueueRuns"."Id" = n.value ->> 0 AND "Status" = 'processing' AND "Token" = n.value ->> 1
    RETURNING "Id" AS run_id, "TaskQueueId" AS task_id, "Host" AS host, CASE WHEN "HasKeySlot" THEN "LimitKey" END AS freed_key"#;

static MARK_ENDED: LazyLock<String> = LazyLock::new(|| {
    with_rules(
        r#"
    UPDATE "TaskQueue"
    SET "LastStatus" = CASE WHEN "LastStatus" = 'processing'
                OR "CurrentRunId" IS NULL AND "LastStatus" IN (UNMARKED) THEN 'success'
            ELSE "LastStatus" END, "FailedRetries" = 0,
        "Attempts" = MIN("Attempts" + 1, MAX_COUNT), "CurrentRunId" = NULL, "Crashes" = 0, "ClassKeep" = NULL, "UpdatedOn" = ?
    WHERE "Id" IN (SELECT value FROM json_each(?))
    RETURNING "Id" AS task_id, "LastStatus" = 'success' AS has_succeeded, "Recurrence" IS NOT NULL AS recurs,
        EXISTS (SELECT 1 FROM "TaskQueueDependencies" AS d WHERE d."DependsOnId" = "TaskQueue"."Id") AS has_dependants,
        "KeepResults" IS NOT NULL AS keeps_results"#,
    )
});

pub(super) fn end_successes(conn: &mut SqliteConnection, successes: &[Success<'_>]) -> QueryResult<Vec<EndedRow>> {
    let mut ended = Vec::with_capacity(successes.len());
    let Clock { now, .. } = read_clock(conn, 0)?;
    for (details, ends) in by_details(successes) {
        ended.extend(end_alike(conn, &details, &ends, &now)?);
    }
    let tasks: Vec<i64> = ended.iter().map(|run| run.task_id).collect();
    let marked: Vec<EndedTaskRow> =
        prepared(&MARK_ENDED).bind::<Text, _>(&now).bind::<Text, _>(json!(tasks).to_string()).load(conn)?;
    // A task has at most one open run, so these are all different.
    let mut marked: HashMap<i64, EndedTaskRow> = marked.into_iter().map(|task| (task.task_id, task)).collect();
    let row = |run: EndedRunRow| {
        let EndedTaskRow { task_id, has_succeeded, recurs, has_dependants, keeps_results } =
            marked.remove(&run.task_id)?;
        let EndedRunRow { run_id, host, freed_key, .. } = run;
        Some(EndedRow { run_id, task_id, host, freed_key, has_succeeded, recurs, has_dependants, keeps_results })
    };
    Ok(ended.into_iter().filter_map(row).collect())
}

fn end_alike(
    conn: &mut SqliteConnection,
    details: &SuccessDetails<'_>,
    ends: &[&Success<'_>],
    now: &str,
) -> QueryResult<Vec<EndedRunRow>> {
    let runs: Vec<_> = ends
        .iter()
        .map(|end| {
            let (pid, identity) = end.handler.unzip();
            json!([end.run_id, end.token, pid, identity, end.cpu_msecs(), end.peak_memory_bytes()])
        })
        .collect();
    prepared(END_RUNS)
        .bind::<Text, _>(now)
        .bind::<Text, _>(details.decision)
        .bind::<Nullable<Text>, _>(details.results)
        .bind::<Nullable<Text>, _>(details.message)
        .bind::<Text, _>(now)
        .bind::<Text, _>(json!(runs).to_string())
        .load(conn)
}
