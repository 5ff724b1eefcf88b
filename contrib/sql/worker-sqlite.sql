-- Statements for a worker that uses SQL on a SQLite store instead of `taskqueue worker claim` and the verbs after it (docs/workers.md).
-- Use SQLite 3.51.3 or newer, and set a busy timeout.
--
-- Replace {claimant} with the name of the worker, {class} with its task class, and {secret} with 32 random hexadecimal digits,
-- new ones for each claim. {run}, {task} and {token} are the ids and the token that the claim returned. 86400 is the setting
-- TaskQueueRunTimeout. The worker has the run as long as the heartbeat changes one row.

-- step: claim. First it takes back up to 20 runs of claimants whose deadline has passed, and creates the runs of up to 1000 due
-- tasks. Only the program rescues runs of runners, because it must first end their surviving handlers. Only create-runs creates
-- the first run of a task of a schedule (ScheduleHead), because it first skips missed times
BEGIN IMMEDIATE;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'timeout' ELSE 'cancelled' END,
    "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'lease-expired', "ErrorMessage" = 'the claimant ' || "Claimant" || ' on ' || "Host" || ' has not renewed its lease',
    "Decision" = CASE WHEN "CancelRequestedOn" IS NULL THEN '' ELSE 'cancelled; ' END || 'lease-expired: retry',
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" IN (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."RunningClass" IS NOT NULL AND r."Claimant" IS NOT NULL
    AND r."LeaseExpiresOn" < strftime('%Y-%m-%d %H:%M:%f000', 'now') ORDER BY r."LeaseExpiresOn", r."Id" LIMIT 20);
-- Finds tasks that still have a run that has ended: they exist only inside this transaction. INDEXED BY is for stores after
-- ANALYZE: if nearly all tasks have one status, SQLite would otherwise read all tasks. RetryLimit stores the number that applied,
-- if it comes from the settings and not from the task.
UPDATE "TaskQueue" SET "RetryLimit" = s."Allowed"
FROM (SELECT t."Id", min(COALESCE(t."MaxRetries", CAST(d."Value" AS INTEGER)), CAST(c."Value" AS INTEGER)) AS "Allowed"
    FROM "TaskQueue" AS t INDEXED BY "TaskQueueByStatus" JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
        JOIN "TaskQueueSettings" AS d ON d."Name" = 'TaskQueueMaxRetries'
        JOIN "TaskQueueSettings" AS c ON c."Name" = 'TaskQueueMaxRetriesCap'
    WHERE t."LastStatus" = 'processing' AND r."Status" = 'timeout') AS s
WHERE "TaskQueue"."Id" = s."Id" AND "FailedRetries" + 1 >= s."Allowed" AND COALESCE("MaxRetries", 0) <> s."Allowed";
INSERT INTO "TaskQueueNotices" ("Kind", "TaskQueueId", "RunId", "TaskClass", "Host", "ErrorCode", "ErrorMessage")
SELECT 'exhausted', t."Id", r."Id", t."TaskClass", r."Host", r."ErrorCode", r."ErrorMessage"
FROM "TaskQueue" AS t INDEXED BY "TaskQueueByStatus" JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
WHERE t."LastStatus" = 'processing' AND r."Status" = 'timeout' AND t."FailedRetries" + 1 >= COALESCE(t."RetryLimit", t."MaxRetries", 1000001);
-- Other claimants get the task first. After TaskQueueClaimTimeoutLimit missed deadlines, the task counts as rejected.
INSERT INTO "TaskQueueRejections" ("TaskId", "Claimant", "Timeouts", "HeldUntil")
SELECT t."Id", r."Claimant", 1, CASE WHEN CAST(l."Value" AS INTEGER) > 1 THEN strftime('%Y-%m-%d %H:%M:%f000', 'now', h."Value" || ' seconds') END
FROM "TaskQueue" AS t INDEXED BY "TaskQueueByStatus" JOIN "TaskQueueRuns" AS r ON r."Id" = t."CurrentRunId"
    JOIN "TaskQueueSettings" AS h ON h."Name" = 'TaskQueueHoldTime'
    JOIN "TaskQueueSettings" AS l ON l."Name" = 'TaskQueueClaimTimeoutLimit'
WHERE t."LastStatus" = 'processing' AND r."Status" = 'timeout'
ON CONFLICT ("TaskId", "Claimant") DO UPDATE SET "Timeouts" = "Timeouts" + 1,
    "HeldUntil" = CASE WHEN "HeldUntil" IS NOT NULL AND "Timeouts" + 1 < (SELECT CAST(s."Value" AS INTEGER) FROM "TaskQueueSettings" AS s
        WHERE s."Name" = 'TaskQueueClaimTimeoutLimit') THEN excluded."HeldUntil" END;
-- SQL does not compute backoffs: a task with a backoff waits for ten minutes, or until a later time that an edit has set.
UPDATE "TaskQueue" INDEXED BY "TaskQueueByStatus" SET "LastStatus" = r."Status",
    "NextAttemptOn" = CASE WHEN "Backoff" IS NULL OR r."Status" <> 'timeout' THEN "NextAttemptOn"
        ELSE max("ScheduledOn", strftime('%Y-%m-%d %H:%M:%f000', 'now', '600 seconds')) END,
    "FailedRetries" = MIN("FailedRetries" + (r."Status" = 'timeout'), 1000000000), "Attempts" = MIN("Attempts" + 1, 1000000000), "CurrentRunId" = NULL, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
FROM "TaskQueueRuns" AS r
WHERE r."Id" = "TaskQueue"."CurrentRunId" AND "TaskQueue"."LastStatus" = 'processing' AND r."Status" IN ('timeout', 'cancelled');
INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Priority", "Attempt", "LimitKey", "Tag")
SELECT t."Id", t."TaskClass", t."Priority", t."Attempts" + 1, t."LimitKey", t."Tag" FROM "TaskQueue" AS t
WHERE t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') AND COALESCE(t."ScheduleHead", '') NOT IN ('new', 'waiting')
    AND NOT EXISTS (SELECT 1 FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id") ORDER BY t."DueOn", t."Id" LIMIT 1000;
UPDATE "TaskQueue" SET "CurrentRunId" = r."Id", "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
FROM (SELECT t."Id" FROM "TaskQueue" AS t
        WHERE t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') AND COALESCE(t."ScheduleHead", '') NOT IN ('new', 'waiting')
        ORDER BY t."DueOn", t."Id" LIMIT 1000) AS d
    JOIN "TaskQueueRuns" AS r ON r."OpenTaskId" = d."Id" AND r."Status" = 'scheduled'
WHERE "TaskQueue"."Id" = d."Id";
UPDATE "TaskQueueRuns" SET "Status" = 'processing', "Claimant" = '{claimant}', "Token" = "Id" || '-{secret}',
    "StartedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "LeaseExpiresOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now', (SELECT COALESCE(t."Timeout", 86400) FROM "TaskQueue" AS t
        WHERE t."Id" = "TaskQueueRuns"."TaskQueueId") || ' seconds')
WHERE "Id" = (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."ClaimClass" = '{class}'
    AND EXISTS (SELECT 1 FROM "TaskQueue" AS t WHERE t."Id" = r."TaskQueueId" AND t."LastStatus" NOT IN ('cancelled', 'expired')
        AND (t."StartBefore" IS NULL OR t."StartBefore" > strftime('%Y-%m-%d %H:%M:%f000', 'now')))
    AND NOT EXISTS (SELECT 1 FROM "TaskQueueRejections" AS x WHERE x."TaskId" = r."TaskQueueId" AND x."Claimant" = '{claimant}'
        AND (x."HeldUntil" IS NULL OR x."HeldUntil" > strftime('%Y-%m-%d %H:%M:%f000', 'now')))
    ORDER BY r."ClaimClass", r."ClaimOrder", r."LinedUpOn", r."Id" LIMIT 1);
UPDATE "TaskQueue" SET "LastStatus" = 'processing', "CurrentRunId" = r."Id", "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
FROM "TaskQueueRuns" AS r
WHERE r."RunningClass" IS NOT NULL AND r."Token" = r."Id" || '-{secret}' AND "TaskQueue"."Id" = r."TaskQueueId";
-- If the class has a rate, the start counts. No rate covers more than a day.
DELETE FROM "TaskQueueStarts" WHERE "TaskClass" = '{class}'
    AND ("StartedOn" < strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 day') OR "StartedOn" > strftime('%Y-%m-%d %H:%M:%f000', 'now'));
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
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "LeaseExpiresOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now', (SELECT COALESCE(t."Timeout", 86400) FROM "TaskQueue" AS t
        WHERE t."Id" = "TaskQueueRuns"."TaskQueueId") || ' seconds')
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';

-- step: what the heartbeat answers. No row if the run is lost: stop the work, and end nothing. If CancelRequestedOn is set, a
-- cancel was requested: stop the work, and execute the step error. Every end except a success then becomes "cancelled"
SELECT "LeaseExpiresOn", "CancelRequestedOn", "CancelReason" FROM "TaskQueueRuns"
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';

-- step: success; the second UPDATE changes no row if the run is lost. The rest is for the tasks that wait for this one
BEGIN IMMEDIATE;
UPDATE "TaskQueueRuns" SET "Status" = 'success', "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL,
    "Results" = '[3]', "KeepResults" = (SELECT t."KeepResults" FROM "TaskQueue" AS t WHERE t."Id" = {task}),
    "PercentsCompleted" = 100, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = 'success', "FailedRetries" = 0, "Crashes" = 0, "Attempts" = MIN("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'success' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "WaitingFor" = "WaitingFor" - 1, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "WaitingFor" > 0 AND "Id" IN (SELECT d."TaskId" FROM "TaskQueueDependencies" AS d
    JOIN "TaskQueue" AS p ON p."Id" = d."DependsOnId"
    WHERE d."DependsOnId" = {task} AND NOT d."IsSatisfied" AND p."LastStatus" = 'success');
UPDATE "TaskQueueDependencies" SET "IsSatisfied" = TRUE WHERE "DependsOnId" = {task} AND NOT "IsSatisfied"
    AND EXISTS (SELECT 1 FROM "TaskQueue" AS p WHERE p."Id" = {task} AND p."LastStatus" = 'success');
COMMIT;

-- step: error; the next attempt is due in ten minutes. A task without a retry left causes a notice
BEGIN IMMEDIATE;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'error' ELSE 'cancelled' END,
    "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'smtp', "ErrorMessage" = '451 greylisted', "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "RetryLimit" = s."Allowed"
FROM (SELECT t."Id", min(COALESCE(t."MaxRetries", CAST(d."Value" AS INTEGER)), CAST(c."Value" AS INTEGER)) AS "Allowed"
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
UPDATE "TaskQueue" SET "LastStatus" = 'failed', "FailedRetries" = MIN("FailedRetries" + 1, 1000000000), "Attempts" = MIN("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "NextAttemptOn" = max("ScheduledOn", strftime('%Y-%m-%d %H:%M:%f000', 'now', '600 seconds')),
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'error' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = MIN("Attempts" + 1, 1000000000), "CurrentRunId" = NULL,
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
COMMIT;

-- step: rejection
BEGIN IMMEDIATE;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'error' ELSE 'cancelled' END,
    "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'rejected', "ErrorMessage" = 'no such disk', "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "RetryLimit" = s."Allowed"
FROM (SELECT t."Id", min(COALESCE(t."MaxRetries", CAST(d."Value" AS INTEGER)), CAST(c."Value" AS INTEGER)) AS "Allowed"
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
UPDATE "TaskQueue" SET "LastStatus" = 'failed', "FailedRetries" = MIN("FailedRetries" + 1, 1000000000), "Attempts" = MIN("Attempts" + 1, 1000000000),
    "CurrentRunId" = NULL, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'error' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = MIN("Attempts" + 1, 1000000000), "CurrentRunId" = NULL,
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
INSERT INTO "TaskQueueRejections" ("TaskId", "Claimant")
SELECT r."TaskQueueId", r."Claimant" FROM "TaskQueueRuns" AS r
WHERE r."Id" = {run} AND r."ErrorCode" = 'rejected' AND r."Token" = '{token}'
ON CONFLICT ("TaskId", "Claimant") DO UPDATE SET "HeldUntil" = NULL;
COMMIT;

-- step: release, at no cost, for a worker that shuts down. The task gets the status of its last counted attempt again
BEGIN IMMEDIATE;
UPDATE "TaskQueueRuns" SET "Status" = CASE WHEN "CancelRequestedOn" IS NULL THEN 'released' ELSE 'cancelled' END,
    "FinishedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now'), "LeaseExpiresOn" = NULL,
    "ErrorCode" = 'claimant-released', "ErrorMessage" = 'its claimant released it', "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {run} AND "Status" = 'processing' AND "Token" = '{token}';
UPDATE "TaskQueue" SET "LastStatus" = COALESCE((SELECT CASE r."Status" WHEN 'error' THEN 'failed' WHEN 'timeout' THEN 'timeout' ELSE 'scheduled' END
        FROM "TaskQueueRuns" AS r WHERE r."TaskQueueId" = {task} AND r."Status" IN ('success', 'error', 'timeout', 'cancelled')
        ORDER BY r."TaskQueueId" DESC, r."Id" DESC LIMIT 1), 'scheduled'),
    "CurrentRunId" = NULL, "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'released' AND "Token" = '{token}');
UPDATE "TaskQueue" SET "LastStatus" = 'cancelled', "Attempts" = MIN("Attempts" + 1, 1000000000), "CurrentRunId" = NULL,
    "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "Id" = {task} AND "CurrentRunId" = {run}
    AND EXISTS (SELECT 1 FROM "TaskQueueRuns" WHERE "Id" = {run} AND "Status" = 'cancelled' AND "Token" = '{token}');
COMMIT;
