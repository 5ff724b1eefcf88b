-- Statements for a worker that uses SQL on PostgreSQL instead of `taskqueue worker claim` and the verbs after it (docs/workers.md).
--
-- Replace {claimant} with the name of the worker, {class} with its task class, and {secret} with 32 random hexadecimal digits,
-- new ones for each claim. {run}, {task} and {token} are the ids and the token that the claim returned. 86400 is the setting
-- TaskQueueRunTimeout. The worker has the run as long as the heartbeat changes one row.

-- step: claim. First it takes back up to 20 runs of claimants whose deadline has passed, and creates the runs of up to 1000 due
-- tasks. Only the program rescues runs of runners, because it must first end their surviving handlers. Only create-runs creates
-- the first run of a task of a schedule (ScheduleHead), because it first skips missed times
BEGIN;
WITH expired AS MATERIALIZED (
    SELECT r."Id" FROM "TaskQueueRuns" AS r
    WHERE r."RunningClass" IS NOT NULL AND r."Claimant" IS NOT NULL AND r."LeaseExpiresOn" < clock_timestamp()
        -- While the server was down, no claimant could renew.
        AND pg_postmaster_start_time() <= clock_timestamp() - interval '1 second'
            * (SELECT s."Value"::int FROM "TaskQueueSettings" AS s WHERE s."Name" = 'TaskQueueLeaseTime')
    ORDER BY r."LeaseExpiresOn", r."Id" LIMIT 20 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE "TaskQueueRuns" AS r SET "Status" = CASE WHEN r."CancelRequestedOn" IS NULL THEN 'timeout' ELSE 'cancelled' END,
        "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL,
        "ErrorCode" = 'lease-expired',
        "ErrorMessage" = 'the claimant ' || r."Claimant" || ' on ' || r."Host" || ' has not renewed its lease',
        "Decision" = CASE WHEN r."CancelRequestedOn" IS NULL THEN '' ELSE 'cancelled; ' END || 'lease-expired: retry',
        "UpdatedOn" = clock_timestamp()
    FROM expired AS e WHERE r."Id" = e."Id"
    RETURNING r."Id", r."TaskQueueId", r."Status", r."Claimant", r."Host", r."ErrorCode", r."ErrorMessage"
), judged AS (
    -- RetryLimit stores the number that applied, if it comes from the settings and not from the task.
    SELECT r.*, t."TaskClass", LEAST(COALESCE(t."MaxRetries", d."Value"::int), c."Value"::int) AS "Allowed",
        r."Status" = 'timeout' AND t."FailedRetries" + 1 >= LEAST(COALESCE(t."MaxRetries", d."Value"::int), c."Value"::int) AS "IsExhausted"
    FROM ended AS r JOIN "TaskQueue" AS t ON t."Id" = r."TaskQueueId" AND t."CurrentRunId" = r."Id"
        JOIN "TaskQueueSettings" AS d ON d."Name" = 'TaskQueueMaxRetries'
        JOIN "TaskQueueSettings" AS c ON c."Name" = 'TaskQueueMaxRetriesCap'
), told AS (
    INSERT INTO "TaskQueueNotices" ("Kind", "TaskQueueId", "RunId", "TaskClass", "Host", "ErrorCode", "ErrorMessage")
    SELECT 'exhausted', r."TaskQueueId", r."Id", r."TaskClass", r."Host", r."ErrorCode", r."ErrorMessage"
    FROM judged AS r WHERE r."IsExhausted"
), held AS (
    -- Other claimants get the task first. After TaskQueueClaimTimeoutLimit missed deadlines, the task counts as rejected.
    INSERT INTO "TaskQueueRejections" AS x ("TaskId", "Claimant", "Timeouts", "HeldUntil")
    SELECT r."TaskQueueId", r."Claimant", 1, CASE WHEN l."Value"::int > 1 THEN clock_timestamp() + interval '1 second' * h."Value"::int END
    FROM ended AS r JOIN "TaskQueueSettings" AS h ON h."Name" = 'TaskQueueHoldTime'
        JOIN "TaskQueueSettings" AS l ON l."Name" = 'TaskQueueClaimTimeoutLimit'
    WHERE r."Status" = 'timeout'
    ON CONFLICT ("TaskId", "Claimant") DO UPDATE SET "Timeouts" = x."Timeouts" + 1,
        "HeldUntil" = CASE WHEN x."HeldUntil" IS NOT NULL AND x."Timeouts" + 1 < (SELECT s."Value"::int FROM "TaskQueueSettings" AS s
            WHERE s."Name" = 'TaskQueueClaimTimeoutLimit') THEN excluded."HeldUntil" END
)
-- SQL does not compute backoffs: a task with a backoff waits for ten minutes, or until a later time that an edit has set.
UPDATE "TaskQueue" AS t SET "LastStatus" = r."Status",
    "RetryLimit" = CASE WHEN r."IsExhausted" THEN NULLIF(r."Allowed", t."MaxRetries"::int) END,
    "NextAttemptOn" = CASE WHEN t."Backoff" IS NULL OR r."Status" <> 'timeout' THEN t."NextAttemptOn"::timestamptz
        ELSE GREATEST(t."ScheduledOn"::timestamptz, clock_timestamp() + interval '600 seconds') END,
    "FailedRetries" = LEAST(t."FailedRetries" + CASE r."Status" WHEN 'timeout' THEN 1 ELSE 0 END, 1000000000), "Attempts" = LEAST(t."Attempts" + 1, 1000000000), "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
FROM judged AS r WHERE t."Id" = r."TaskQueueId";
COMMIT;
BEGIN;
-- Without these settings, the planner reads both tables in full just after a batch was queued.
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off;
-- One transaction at a time creates the runs of due tasks. If no task is due, the row is not locked.
SELECT 1 FROM "TaskQueueLocks" WHERE "Name" = 'create-runs'
    AND EXISTS (SELECT 1 FROM "TaskQueue" WHERE "DueOn" <= (SELECT clock_timestamp())
        AND COALESCE("ScheduleHead", '') NOT IN ('new', 'waiting')) FOR UPDATE;
WITH due AS MATERIALIZED (
    SELECT t."Id", t."TaskClass", t."Priority", t."Attempts", t."LimitKey", t."Tag", t."DueOn",
        (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id") AS "OpenRunId"
    FROM "TaskQueue" AS t WHERE t."DueOn" <= (SELECT clock_timestamp()) AND COALESCE(t."ScheduleHead", '') NOT IN ('new', 'waiting')
        AND NOT EXISTS (SELECT 1 FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id" AND r."Status" = 'processing')
    ORDER BY t."DueOn", t."Id" LIMIT 1000 FOR UPDATE OF t
), created AS (
    INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Priority", "Attempt", "LimitKey", "Tag")
    SELECT d."Id", d."TaskClass", d."Priority", d."Attempts" + 1, d."LimitKey", d."Tag"
    FROM due AS d WHERE d."OpenRunId" IS NULL ORDER BY d."DueOn", d."Id"
    ON CONFLICT DO NOTHING
    RETURNING "Id", "TaskQueueId"
), opened AS (
    SELECT c."Id", c."TaskQueueId" FROM created AS c
    UNION ALL SELECT d."OpenRunId", d."Id" FROM due AS d WHERE d."OpenRunId" IS NOT NULL
)
UPDATE "TaskQueue" AS t SET "CurrentRunId" = o."Id", "UpdatedOn" = clock_timestamp() FROM opened AS o WHERE t."Id" = o."TaskQueueId";
COMMIT;
BEGIN;
LOCK TABLE "TaskQueueRuns" IN SHARE ROW EXCLUSIVE MODE;
-- Locks the task before it checks its status, so that it starts no run of a task whose cancel is being committed. It skips
-- tasks that others have locked: a transaction that cancels one may wait for this claim.
UPDATE "TaskQueueRuns" SET "Status" = 'processing', "Claimant" = '{claimant}', "Token" = "Id" || '-{secret}',
    "StartedOn" = clock_timestamp(), "UpdatedOn" = clock_timestamp(),
    "LeaseExpiresOn" = clock_timestamp() + (SELECT COALESCE(t."Timeout", 86400) FROM "TaskQueue" AS t
        WHERE t."Id" = "TaskQueueRuns"."TaskQueueId") * interval '1 second'
WHERE "Id" = (SELECT r."Id" FROM "TaskQueueRuns" AS r JOIN "TaskQueue" AS t ON t."Id" = r."TaskQueueId"
    WHERE r."ClaimClass" = '{class}'
        AND t."LastStatus" NOT IN ('cancelled', 'expired')
        AND (t."StartBefore" IS NULL OR t."StartBefore" > clock_timestamp())
        AND NOT EXISTS (SELECT 1 FROM "TaskQueueRejections" AS x WHERE x."TaskId" = r."TaskQueueId" AND x."Claimant" = '{claimant}'
            AND (x."HeldUntil" IS NULL OR x."HeldUntil" > clock_timestamp()))
    ORDER BY r."ClaimClass", r."ClaimOrder", r."LinedUpOn", r."Id" LIMIT 1 FOR NO KEY UPDATE OF t SKIP LOCKED);
UPDATE "TaskQueue" SET "LastStatus" = 'processing', "CurrentRunId" = r."Id", "UpdatedOn" = clock_timestamp()
FROM "TaskQueueRuns" AS r
WHERE r."RunningClass" IS NOT NULL AND r."Token" = r."Id" || '-{secret}' AND "TaskQueue"."Id" = r."TaskQueueId";
-- If the class has a rate, the start counts. No rate covers more than a day.
DELETE FROM "TaskQueueStarts" WHERE "TaskClass" = '{class}'
    AND ("StartedOn" < clock_timestamp() - interval '24 hours' OR "StartedOn" > clock_timestamp());
INSERT INTO "TaskQueueStarts" ("TaskClass", "StartedOn", "RunId")
SELECT r."TaskClass", r."StartedOn", r."Id" FROM "TaskQueueRuns" AS r
WHERE r."RunningClass" = '{class}' AND r."Token" = r."Id" || '-{secret}'
    AND EXISTS (SELECT 1 FROM "TaskQueueClassLimits" AS l WHERE l."TaskClass" = '{class}' AND l."RateCount" IS NOT NULL);
COMMIT;

-- step: what was claimed; no row if nothing was claimed
SELECT r."Id", r."TaskQueueId", r."Token", r."Attempt", r."LeaseExpiresOn", t."TaskData"
FROM "TaskQueueRuns" AS r JOIN "TaskQueue" AS t ON t."Id" = r."TaskQueueId"
WHERE r."RunningClass" IS NOT NULL AND r."Token" = r."Id" || '-{secret}';

-- step: heartbeat, with progress; it changes no row if the run is lost
UPDATE "TaskQueueRuns" SET "PercentsCompleted" = 40, "ProgressMessage" = 'nearly half',
    "UpdatedOn" = clock_timestamp(),
    "LeaseExpiresOn" = clock_timestamp() + (SELECT COALESCE(t."Timeout", 86400) FROM "TaskQueue" AS t
        WHERE t."Id" = "TaskQueueRuns"."TaskQueueId") * interval '1 second'
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';

-- step: what the heartbeat answers. No row if the run is lost: stop the work, and end nothing. If CancelRequestedOn is set, a
-- cancel was requested: stop the work, and execute the step error. Every end except a success then becomes "cancelled"
SELECT "LeaseExpiresOn", "CancelRequestedOn", "CancelReason" FROM "TaskQueueRuns"
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';

-- step: success; the second UPDATE changes no row if the run is lost. The rest is for the tasks that
-- wait for this one. Every process locks them in the order of their ids
BEGIN;
UPDATE "TaskQueueRuns" SET "Status" = 'success', "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL,
    "Results" = '[3]', "KeepResults" = (SELECT t."KeepResults" FROM "TaskQueue" AS t WHERE t."Id" = {task}),
    "PercentsCompleted" = 100, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = 'success', "FailedRetries" = 0, "Crashes" = 0, "Attempts" = LEAST("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'success' AND "Token" = '{token}');
SELECT 1 FROM "TaskQueue" WHERE "Id" IN (SELECT d."TaskId" FROM "TaskQueueDependencies" AS d
    WHERE d."DependsOnId" = {task} AND NOT d."IsSatisfied") ORDER BY "Id" FOR NO KEY UPDATE;
UPDATE "TaskQueue" SET "WaitingFor" = "WaitingFor" - 1, "UpdatedOn" = clock_timestamp()
WHERE "WaitingFor" > 0 AND "Id" IN (SELECT d."TaskId" FROM "TaskQueueDependencies" AS d
    JOIN "TaskQueue" AS p ON p."Id" = d."DependsOnId"
    WHERE d."DependsOnId" = {task} AND NOT d."IsSatisfied" AND p."LastStatus" = 'success');
UPDATE "TaskQueueDependencies" SET "IsSatisfied" = TRUE WHERE "DependsOnId" = {task} AND NOT "IsSatisfied"
    AND EXISTS (SELECT 1 FROM "TaskQueue" AS p WHERE p."Id" = {task} AND p."LastStatus" = 'success');
COMMIT;

-- step: error; the next attempt is due in ten minutes. A task without a retry left causes a notice
BEGIN;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'error' ELSE 'cancelled' END,
    "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'smtp', "ErrorMessage" = '451 greylisted', "UpdatedOn" = clock_timestamp()
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "RetryLimit" = s."Allowed"
FROM (SELECT t."Id", LEAST(COALESCE(t."MaxRetries", d."Value"::int), c."Value"::int) AS "Allowed"
    FROM "TaskQueue" AS t JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
        JOIN "TaskQueueSettings" AS d ON d."Name" = 'TaskQueueMaxRetries'
        JOIN "TaskQueueSettings" AS c ON c."Name" = 'TaskQueueMaxRetriesCap'
    WHERE t."Id" = {task} AND r."Id" = {run} AND r."Status" = 'error' AND r."Token" = '{token}') AS s
WHERE "TaskQueue"."Id" = s."Id" AND "FailedRetries" + 1 >= s."Allowed" AND COALESCE("MaxRetries", 0) <> s."Allowed";
INSERT INTO "TaskQueueNotices" ("Kind", "TaskQueueId", "RunId", "TaskClass", "Host", "ErrorCode", "ErrorMessage")
SELECT 'exhausted', t."Id", r."Id", t."TaskClass", r."Host", r."ErrorCode", r."ErrorMessage"
FROM "TaskQueue" AS t JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
WHERE t."Id" = {task} AND t."FailedRetries" + 1 >= COALESCE(t."RetryLimit", t."MaxRetries", 1000001)
    AND r."Id" = {run} AND r."Status" = 'error' AND r."Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = 'failed', "FailedRetries" = LEAST("FailedRetries" + 1, 1000000000), "Attempts" = LEAST("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "NextAttemptOn" = GREATEST("ScheduledOn"::timestamptz, clock_timestamp() + interval '600 seconds'),
    "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'error' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = LEAST("Attempts" + 1, 1000000000), "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
COMMIT;

-- step: rejection
BEGIN;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'error' ELSE 'cancelled' END,
    "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'rejected', "ErrorMessage" = 'no such disk', "UpdatedOn" = clock_timestamp()
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "RetryLimit" = s."Allowed"
FROM (SELECT t."Id", LEAST(COALESCE(t."MaxRetries", d."Value"::int), c."Value"::int) AS "Allowed"
    FROM "TaskQueue" AS t JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
        JOIN "TaskQueueSettings" AS d ON d."Name" = 'TaskQueueMaxRetries'
        JOIN "TaskQueueSettings" AS c ON c."Name" = 'TaskQueueMaxRetriesCap'
    WHERE t."Id" = {task} AND r."Id" = {run} AND r."Status" = 'error' AND r."Token" = '{token}') AS s
WHERE "TaskQueue"."Id" = s."Id" AND "FailedRetries" + 1 >= s."Allowed" AND COALESCE("MaxRetries", 0) <> s."Allowed";
INSERT INTO "TaskQueueNotices" ("Kind", "TaskQueueId", "RunId", "TaskClass", "Host", "ErrorCode", "ErrorMessage")
SELECT 'exhausted', t."Id", r."Id", t."TaskClass", r."Host", r."ErrorCode", r."ErrorMessage"
FROM "TaskQueue" AS t JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
WHERE t."Id" = {task} AND t."FailedRetries" + 1 >= COALESCE(t."RetryLimit", t."MaxRetries", 1000001)
    AND r."Id" = {run} AND r."Status" = 'error' AND r."Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = 'failed', "FailedRetries" = LEAST("FailedRetries" + 1, 1000000000), "Attempts" = LEAST("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'error' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = LEAST("Attempts" + 1, 1000000000), "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
INSERT INTO "TaskQueueRejections" ("TaskId", "Claimant")
SELECT r."TaskQueueId", r."Claimant" FROM "TaskQueueRuns" AS r
WHERE r."Id" = {run} AND r."ErrorCode" = 'rejected' AND r."Token" = '{token}'
ON CONFLICT ("TaskId", "Claimant") DO UPDATE SET "HeldUntil" = NULL;
COMMIT;

-- step: release, at no cost, for a worker that shuts down. The task gets the status of its last counted attempt again
BEGIN;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'released' ELSE 'cancelled' END,
    "FinishedOn" = clock_timestamp(), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'claimant-released', "ErrorMessage" = 'its claimant released it', "UpdatedOn" = clock_timestamp()
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = COALESCE((SELECT CASE r."Status" WHEN 'error' THEN 'failed' WHEN 'timeout' THEN 'timeout' ELSE 'scheduled' END
        FROM "TaskQueueRuns" AS r WHERE r."TaskQueueId" = {task} AND r."Status" IN ('success', 'error', 'timeout', 'cancelled')
        ORDER BY r."TaskQueueId" DESC, r."Id" DESC LIMIT 1), 'scheduled'),
    "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'released' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = LEAST("Attempts" + 1, 1000000000), "CurrentRunId" = NULL, "UpdatedOn" = clock_timestamp()
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
COMMIT;
