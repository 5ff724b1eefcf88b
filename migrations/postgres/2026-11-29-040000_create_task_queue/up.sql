-- The whole schema. docs/schema.md says what each column means; a test holds the three engines equal.
-- JSON is a domain over text: kept to the byte as it was given, and checked when it is written, not at every later change
-- of the row as a CHECK of the table would be. Names and statuses compare byte by byte (COLLATE "C").
-- clock_timestamp(), not now(): a transaction that waited for a lock must not write a time from before the wait.

CREATE DOMAIN "TaskQueueJson" AS text CONSTRAINT "is JSON" CHECK (VALUE IS NULL OR VALUE::json IS NOT NULL);

-- What a column may hold that is written often is said by a domain: PostgreSQL reads a CHECK of a table from its text again for
-- each statement that writes the table, and that of a domain once in a session.
-- Lengths are asked apart: a regular expression that counts takes 5 µs for each row, one that does not a quarter of one.

CREATE DOMAIN "TaskQueueQueuedOn" AS timestamptz CONSTRAINT "QueuedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueUpdatedOn" AS timestamptz CONSTRAINT "UpdatedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueScheduledOn" AS timestamptz CONSTRAINT "ScheduledOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueNextAttemptOn" AS timestamptz CONSTRAINT "NextAttemptOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueuePlannedOn" AS timestamptz CONSTRAINT "PlannedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueUniqueUntil" AS timestamptz CONSTRAINT "UniqueUntil lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueQuarantinedOn" AS timestamptz CONSTRAINT "QuarantinedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueStartBefore" AS timestamptz CONSTRAINT "StartBefore lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueCreatedOn" AS timestamptz CONSTRAINT "CreatedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueStartedOn" AS timestamptz CONSTRAINT "StartedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueFinishedOn" AS timestamptz CONSTRAINT "FinishedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueLeaseExpiresOn" AS timestamptz CONSTRAINT "LeaseExpiresOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueCancelRequestedOn" AS timestamptz CONSTRAINT "CancelRequestedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueFollowedOn" AS timestamptz CONSTRAINT "FollowedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueHeartbeatOn" AS timestamptz CONSTRAINT "HeartbeatOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueRejectedOn" AS timestamptz CONSTRAINT "RejectedOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueHeldUntil" AS timestamptz CONSTRAINT "HeldUntil lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueOccurredOn" AS timestamptz CONSTRAINT "OccurredOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueHeldOn" AS timestamptz CONSTRAINT "HeldOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueWrittenOn" AS timestamptz CONSTRAINT "WrittenOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueNextOn" AS timestamptz CONSTRAINT "NextOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueConfiguredOn" AS timestamptz CONSTRAINT "ConfiguredOn lies in the years 1000 to 9999"
    CHECK (VALUE >= '1000-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');
CREATE DOMAIN "TaskQueueClassName" AS text COLLATE "C"
    CONSTRAINT "TaskClass has 1 to 190 letters, digits and _ . : - or backslash"
    CHECK (VALUE ~ '^[A-Za-z0-9_.\\:][-A-Za-z0-9_.\\:]*$' AND length(VALUE) <= 190 AND strpos(VALUE, '..') = 0);
CREATE DOMAIN "TaskQueueTaskStatus" AS text COLLATE "C" CONSTRAINT "LastStatus is known"
    CHECK (VALUE IN ('scheduled', 'processing', 'success', 'failed', 'timeout', 'cancelled', 'expired'));
CREATE DOMAIN "TaskQueueMaxRetries" AS integer CONSTRAINT "MaxRetries lies in 1 to 1000000"
    CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN "TaskQueueRetryLimit" AS integer CONSTRAINT "RetryLimit lies in 1 to 1000000"
    CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN "TaskQueueFailedRetries" AS integer CONSTRAINT "FailedRetries lies in 0 to 1000000000"
    CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN "TaskQueueAttempts" AS integer CONSTRAINT "Attempts lies in 0 to 1000000000"
    CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN "TaskQueuePriority" AS integer CONSTRAINT "Priority lies in -1000 to 1000"
    CHECK (VALUE BETWEEN -1000 AND 1000);
CREATE DOMAIN "TaskQueueTimeout" AS integer CONSTRAINT "Timeout lies in 1 to 31536000 seconds"
    CHECK (VALUE BETWEEN 1 AND 31536000);
CREATE DOMAIN "TaskQueueWaitingFor" AS integer CONSTRAINT "WaitingFor lies in 0 to 1000000000"
    CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN "TaskQueueBackoff" AS text COLLATE "C" CONSTRAINT "Backoff has 1 to 250 printable ASCII characters"
    CHECK (VALUE ~ '^[ -~]+$' AND length(VALUE) <= 250);
CREATE DOMAIN "TaskQueueRecurrence" AS text COLLATE "C" CONSTRAINT "Recurrence has 1 to 190 printable ASCII characters"
    CHECK (VALUE ~ '^[ -~]+$' AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueTimeZone" AS text COLLATE "C" CONSTRAINT "TimeZone has 1 to 190 printable ASCII characters"
    CHECK (VALUE = 'UTC' OR VALUE ~ '^[ -~]+$' AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueReceipt" AS text COLLATE "C" CONSTRAINT "Receipt has 1 to 64 printable ASCII characters"
    CHECK (VALUE ~ '^[ -~]+$' AND length(VALUE) <= 64);
CREATE DOMAIN "TaskQueueQueuedById" AS text CONSTRAINT "QueuedById has at most 190 characters"
    CHECK (length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueCrashes" AS integer CONSTRAINT "Crashes lies in 0 to 1000000000"
    CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN "TaskQueueUniqueKey" AS text COLLATE "C"
    CONSTRAINT "UniqueKey has 1 to 190 printable ASCII characters"
    CHECK (VALUE ~ '^[!-~]([ -~]*[!-~])?$' AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueLimitKey" AS text COLLATE "C"
    CONSTRAINT "LimitKey has 1 to 190 printable ASCII characters"
    CHECK (VALUE ~ '^[!-~]([ -~]*[!-~])?$' AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueTag" AS text COLLATE "C"
    CONSTRAINT "Tag has 1 to 190 printable ASCII characters"
    CHECK (VALUE ~ '^[!-~]([ -~]*[!-~])?$' AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueName" AS text COLLATE "C"
    CONSTRAINT "Name has 1 to 190 characters and no control characters"
    CHECK (VALUE ~ '^[^\u0001-\u001f\u007f-\u009f]+$' AND VALUE = btrim(VALUE) AND length(VALUE) <= 190);
CREATE DOMAIN "TaskQueueParentId" AS bigint CONSTRAINT "ParentId is 1 or more"
    CHECK (VALUE >= 1);
CREATE DOMAIN "TaskQueueKeep" AS integer CONSTRAINT "Keep lies in 0 to 2000000000 seconds"
    CHECK (VALUE BETWEEN 0 AND 2000000000);
CREATE DOMAIN "TaskQueueClassKeep" AS integer CONSTRAINT "ClassKeep lies in 0 to 2000000000 seconds"
    CHECK (VALUE BETWEEN 0 AND 2000000000);
CREATE DOMAIN "TaskQueueKeepResults" AS integer CONSTRAINT "KeepResults lies in 0 to 2000000000 seconds"
    CHECK (VALUE BETWEEN 0 AND 2000000000);
CREATE DOMAIN "TaskQueueMeta" AS text CONSTRAINT "Meta is a JSON object"
    CHECK (json_typeof(VALUE::json) = 'object');
CREATE DOMAIN "TaskQueueCatchUp" AS text COLLATE "C" CONSTRAINT "CatchUp is known"
    CHECK (VALUE IN ('none', 'latest', 'all'));
CREATE DOMAIN "TaskQueueOverlap" AS text COLLATE "C" CONSTRAINT "Overlap is known"
    CHECK (VALUE IN ('wait', 'replace'));
CREATE DOMAIN "TaskQueueScheduleStatus" AS text COLLATE "C" CONSTRAINT "ScheduleStatus is known"
    CHECK (VALUE IN ('active', 'paused', 'broken', 'followed', 'ended'));
CREATE DOMAIN "TaskQueueAttempt" AS integer CONSTRAINT "Attempt lies in 1 to 2147483647"
    CHECK (VALUE >= 1);
CREATE DOMAIN "TaskQueuePercentsCompleted" AS integer CONSTRAINT "PercentsCompleted lies in 0 to 100"
    CHECK (VALUE BETWEEN 0 AND 100);
CREATE DOMAIN "TaskQueueRunStatus" AS text COLLATE "C" CONSTRAINT "Status is known"
    CHECK (VALUE IN ('scheduled', 'processing', 'success', 'error', 'timeout', 'cancelled', 'released'));
CREATE DOMAIN "TaskQueueClaimant" AS text COLLATE "C" CONSTRAINT "Claimant has 1 to 190 characters"
    CHECK (length(VALUE) BETWEEN 1 AND 190);

-- What few tasks need is computed by functions: of the expression of a computed column, too, the text is read for each statement.

CREATE FUNCTION "TaskQueueScheduleHead" (
    schedule_status "TaskQueueScheduleStatus", planned_on timestamptz, current_run_id bigint, last_status "TaskQueueTaskStatus",
    quarantined_on timestamptz, failed_retries "TaskQueueFailedRetries", retry_limit "TaskQueueRetryLimit", max_retries "TaskQueueMaxRetries", schedule_id bigint,
    attempts "TaskQueueAttempts"
) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN schedule_status IN ('followed', 'ended') THEN NULL
        WHEN schedule_status IN ('paused', 'broken') THEN schedule_status
        WHEN planned_on IS NULL THEN 'new'
        WHEN current_run_id IS NOT NULL OR last_status = 'processing' THEN 'open'
        WHEN last_status IN ('success', 'cancelled', 'expired') OR quarantined_on IS NOT NULL
            OR last_status IN ('failed', 'timeout') AND failed_retries >= COALESCE(retry_limit, max_retries, 1000001) THEN 'settled'
        WHEN schedule_id IS NULL THEN 'new'
        WHEN last_status = 'scheduled' AND attempts = 0 THEN 'waiting'
        ELSE 'open' END;
END $$;

CREATE FUNCTION "TaskQueueLiveUniqueKey" (
    unique_key "TaskQueueUniqueKey", unique_until timestamptz, current_run_id bigint, last_status "TaskQueueTaskStatus",
    quarantined_on timestamptz, failed_retries "TaskQueueFailedRetries", retry_limit "TaskQueueRetryLimit", max_retries "TaskQueueMaxRetries"
) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN unique_until IS NOT NULL OR last_status = 'processing'
        OR current_run_id IS NOT NULL AND last_status NOT IN ('cancelled', 'expired')
        OR quarantined_on IS NULL AND (last_status = 'scheduled'
            OR last_status IN ('failed', 'timeout') AND failed_retries < COALESCE(retry_limit, max_retries, 1000001)) THEN unique_key END;
END $$;

CREATE FUNCTION "TaskQueueLiveStartBefore" (
    start_before timestamptz, last_status "TaskQueueTaskStatus", quarantined_on timestamptz, failed_retries "TaskQueueFailedRetries",
    retry_limit "TaskQueueRetryLimit", max_retries "TaskQueueMaxRetries"
) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN quarantined_on IS NULL AND (last_status = 'scheduled'
        OR last_status IN ('failed', 'timeout') AND failed_retries < COALESCE(retry_limit, max_retries, 1000001)) THEN start_before END;
END $$;

-- An instant and an interval are not added in a computed column: an interval of days depends on the zone, one of seconds does not.
CREATE FUNCTION "TaskQueueLater" (instant timestamptz, secs integer)
RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN instant + make_interval(secs => secs);
END $$;

CREATE TABLE "TaskQueue" (
    "Id" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "QueuedOn" "TaskQueueQueuedOn" NOT NULL DEFAULT clock_timestamp(),
    "QueuedById" "TaskQueueQueuedById" NOT NULL DEFAULT CURRENT_USER,
    "ScheduledOn" "TaskQueueScheduledOn" NOT NULL DEFAULT clock_timestamp(),
    "NextAttemptOn" "TaskQueueNextAttemptOn",
    "StartBefore" "TaskQueueStartBefore",
    "TaskClass" "TaskQueueClassName" NOT NULL,
    "TaskData" "TaskQueueJson" NOT NULL DEFAULT '{}',
    "LastStatus" "TaskQueueTaskStatus" NOT NULL DEFAULT 'scheduled',
    "MaxRetries" "TaskQueueMaxRetries",
    "RetryLimit" "TaskQueueRetryLimit",
    "FailedRetries" "TaskQueueFailedRetries" NOT NULL DEFAULT 0,
    "Attempts" "TaskQueueAttempts" NOT NULL DEFAULT 0,
    "Priority" "TaskQueuePriority" NOT NULL DEFAULT 0,
    "Timeout" "TaskQueueTimeout",
    "WaitingFor" "TaskQueueWaitingFor" NOT NULL DEFAULT 0,
    "CurrentRunId" bigint,
    "Backoff" "TaskQueueBackoff",
    "Crashes" "TaskQueueCrashes" NOT NULL DEFAULT 0,
    "QuarantinedOn" "TaskQueueQuarantinedOn",
    "UniqueKey" "TaskQueueUniqueKey",
    "UniqueUntil" "TaskQueueUniqueUntil",
    "LimitKey" "TaskQueueLimitKey",
    "Tag" "TaskQueueTag",
    "Name" "TaskQueueName",
    "ParentId" "TaskQueueParentId",
    "Receipt" "TaskQueueReceipt",
    "Keep" "TaskQueueKeep",
    "ClassKeep" "TaskQueueClassKeep",
    "KeepResults" "TaskQueueKeepResults",
    "Meta" "TaskQueueMeta",
    "Recurrence" "TaskQueueRecurrence",
    "TimeZone" "TaskQueueTimeZone" NOT NULL DEFAULT 'UTC',
    "CatchUp" "TaskQueueCatchUp" NOT NULL DEFAULT 'latest',
    "Overlap" "TaskQueueOverlap" NOT NULL DEFAULT 'wait',
    "ScheduleId" bigint,
    "PlannedOn" "TaskQueuePlannedOn",
    "ScheduleStatus" "TaskQueueScheduleStatus" NOT NULL DEFAULT 'active',
    "UpdatedOn" "TaskQueueUpdatedOn" NOT NULL DEFAULT clock_timestamp(),
    "DueOn" timestamptz GENERATED ALWAYS AS (
        CASE WHEN "LastStatus" IN ('scheduled', 'failed', 'timeout') AND "CurrentRunId" IS NULL
            AND "FailedRetries" < COALESCE("RetryLimit", "MaxRetries", 1000001) AND "WaitingFor" = 0 AND "QuarantinedOn" IS NULL
            AND ("Recurrence" IS NULL OR "PlannedOn" IS NOT NULL AND "ScheduleStatus" <> 'paused')
            THEN COALESCE("NextAttemptOn"::timestamptz, "ScheduledOn"::timestamptz) END) STORED,
    "Finished" integer GENERATED ALWAYS AS (
        CASE WHEN "CurrentRunId" IS NULL
            AND ("LastStatus" IN ('success', 'cancelled', 'expired') OR "LastStatus" IN ('failed', 'timeout')
                AND ("FailedRetries" >= COALESCE("RetryLimit", "MaxRetries", 1000001) OR "QuarantinedOn" IS NOT NULL))
            AND ("Recurrence" IS NULL OR "ScheduleStatus" IN ('followed', 'ended'))
            THEN CASE WHEN "Keep" IS NULL AND "ClassKeep" IS NULL THEN 1 ELSE 2 END ELSE 0 END) STORED,
    "StatusOn" timestamptz GENERATED ALWAYS AS (
        CASE WHEN "CurrentRunId" IS NULL
            AND ("LastStatus" IN ('success', 'cancelled', 'expired') OR "LastStatus" IN ('failed', 'timeout')
                AND ("FailedRetries" >= COALESCE("RetryLimit", "MaxRetries", 1000001) OR "QuarantinedOn" IS NOT NULL))
            AND ("Recurrence" IS NULL OR "ScheduleStatus" IN ('followed', 'ended'))
            THEN GREATEST("UpdatedOn"::timestamptz, "UniqueUntil"::timestamptz) ELSE "ScheduledOn"::timestamptz END) STORED,
    "ExpiresOn" timestamptz GENERATED ALWAYS AS (
        CASE WHEN COALESCE("Keep"::integer, "ClassKeep"::integer) > 0 AND "CurrentRunId" IS NULL
            AND "LastStatus" IN ('success', 'cancelled', 'expired', 'failed', 'timeout')
            THEN "TaskQueueLater"(GREATEST("UpdatedOn", "UniqueUntil"), COALESCE("Keep"::integer, "ClassKeep"::integer)) END) STORED,
    "ScheduleHead" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "Recurrence" IS NOT NULL THEN "TaskQueueScheduleHead"("ScheduleStatus", "PlannedOn", "CurrentRunId",
            "LastStatus", "QuarantinedOn", "FailedRetries", "RetryLimit", "MaxRetries", "ScheduleId", "Attempts") END) STORED,
    "LiveUniqueKey" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "UniqueKey" IS NOT NULL THEN "TaskQueueLiveUniqueKey"("UniqueKey", "UniqueUntil", "CurrentRunId",
            "LastStatus", "QuarantinedOn", "FailedRetries", "RetryLimit", "MaxRetries") END) STORED,
    "LiveStartBefore" timestamptz GENERATED ALWAYS AS (
        CASE WHEN "StartBefore" IS NOT NULL THEN "TaskQueueLiveStartBefore"("StartBefore", "LastStatus", "QuarantinedOn",
            "FailedRetries", "RetryLimit", "MaxRetries") END) STORED,
    -- Of two columns, so no domain can check it.
    CONSTRAINT "Overlap is wait if CatchUp is all" CHECK ("Overlap" = 'wait' OR "CatchUp" <> 'all')
);

CREATE INDEX "TaskQueueDue" ON "TaskQueue" ("DueOn", "Id") WHERE "DueOn" IS NOT NULL;
CREATE INDEX "TaskQueuePriorityDue" ON "TaskQueue" ("DueOn", "Id") WHERE "DueOn" IS NOT NULL AND "Priority" <> 0;
CREATE INDEX "TaskQueueByStatus" ON "TaskQueue" ("LastStatus", "Finished", "StatusOn", "Id");
CREATE INDEX "TaskQueueByClass" ON "TaskQueue" ("TaskClass", "LastStatus", "ScheduledOn", "Id");
CREATE INDEX "TaskQueueStartBefore" ON "TaskQueue" ("LiveStartBefore", "Id") WHERE "LiveStartBefore" IS NOT NULL;
CREATE INDEX "TaskQueueQuarantined" ON "TaskQueue" ("QuarantinedOn", "Id") WHERE "QuarantinedOn" IS NOT NULL;
CREATE UNIQUE INDEX "TaskQueueUnique" ON "TaskQueue" ("TaskClass", "LiveUniqueKey") WHERE "LiveUniqueKey" IS NOT NULL;
CREATE UNIQUE INDEX "TaskQueueReceipt" ON "TaskQueue" ("Receipt") WHERE "Receipt" IS NOT NULL;
CREATE INDEX "TaskQueueByParent" ON "TaskQueue" ("ParentId", "Id") WHERE "ParentId" IS NOT NULL;
CREATE INDEX "TaskQueueByUniqueKey" ON "TaskQueue" ("UniqueKey", "Id") WHERE "UniqueKey" IS NOT NULL;
CREATE INDEX "TaskQueueByTag" ON "TaskQueue" ("Tag", "Id") WHERE "Tag" IS NOT NULL;
CREATE INDEX "TaskQueueByName" ON "TaskQueue" ("Name", "Id") WHERE "Name" IS NOT NULL;
CREATE INDEX "TaskQueueScheduleHead" ON "TaskQueue" ("ScheduleHead", "ScheduledOn", "Id") WHERE "ScheduleHead" IS NOT NULL;
CREATE INDEX "TaskQueueExpires" ON "TaskQueue" ("ExpiresOn", "Id") WHERE "ExpiresOn" IS NOT NULL;
CREATE UNIQUE INDEX "TaskQueuePlanned" ON "TaskQueue" ("ScheduleId", "PlannedOn") WHERE "ScheduleId" IS NOT NULL;

CREATE TABLE "TaskQueueDependencies" (
    "TaskId" bigint NOT NULL,
    "DependsOnId" bigint NOT NULL,
    "IsSatisfied" boolean NOT NULL DEFAULT false,
    "NeedsSuccess" boolean NOT NULL DEFAULT true,
    "AwaitedEnd" bigint GENERATED ALWAYS AS (
        CASE WHEN NOT "IsSatisfied" AND NOT "NeedsSuccess" THEN "DependsOnId" END) STORED,
    CONSTRAINT "A task does not wait for itself" CHECK ("TaskId" <> "DependsOnId"),
    PRIMARY KEY ("TaskId", "DependsOnId")
);

CREATE INDEX "TaskQueueDependants" ON "TaskQueueDependencies" ("DependsOnId", "TaskId");
CREATE INDEX "TaskQueueAwaitedEnds" ON "TaskQueueDependencies" ("AwaitedEnd") WHERE "AwaitedEnd" IS NOT NULL;

CREATE TABLE "TaskQueueRuns" (
    "Id" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "TaskQueueId" bigint NOT NULL,
    "TaskClass" "TaskQueueClassName" NOT NULL,
    "Priority" integer NOT NULL DEFAULT 0,
    "Attempt" "TaskQueueAttempt" NOT NULL DEFAULT 1,
    "CreatedOn" "TaskQueueCreatedOn" NOT NULL DEFAULT clock_timestamp(),
    "StartedOn" "TaskQueueStartedOn",
    "PercentsCompleted" "TaskQueuePercentsCompleted" NOT NULL DEFAULT 0,
    "ProgressMessage" text NOT NULL DEFAULT '',
    "FinishedOn" "TaskQueueFinishedOn",
    "Results" "TaskQueueJson",
    "Status" "TaskQueueRunStatus" NOT NULL DEFAULT 'scheduled',
    "ErrorCode" text NOT NULL DEFAULT '',
    "ErrorMessage" text NOT NULL DEFAULT '',
    "Decision" text NOT NULL DEFAULT '',
    "ProcessId" bigint,
    "RunnerId" bigint,
    "Claimant" "TaskQueueClaimant",
    "Token" text COLLATE "C",
    "Host" text COLLATE "C" NOT NULL DEFAULT '',
    "ProcessIdentity" text NOT NULL DEFAULT '',
    "LeaseExpiresOn" "TaskQueueLeaseExpiresOn",
    "HandlerProcessId" bigint,
    "HandlerIdentity" text NOT NULL DEFAULT '',
    "CpuMsecs" bigint,
    "PeakMemoryBytes" bigint,
    "CancelRequestedOn" "TaskQueueCancelRequestedOn",
    "CancelReason" text NOT NULL DEFAULT '',
    "FollowedOn" "TaskQueueFollowedOn",
    "LimitKey" "TaskQueueLimitKey",
    "Tag" "TaskQueueTag",
    "HasKeySlot" boolean NOT NULL DEFAULT false,
    "LinedUpOn" timestamptz NOT NULL DEFAULT statement_timestamp()
        CONSTRAINT "LinedUpOn lies in the years 1000 to 9999"
        CHECK ("LinedUpOn" >= '1000-01-01 00:00:00+00' AND "LinedUpOn" < '10000-01-01 00:00:00+00'),
    "KeepResults" "TaskQueueKeepResults",
    "UpdatedOn" "TaskQueueUpdatedOn" NOT NULL DEFAULT clock_timestamp(),
    "ResultsOn" timestamptz GENERATED ALWAYS AS (
        CASE WHEN "Results" IS NOT NULL AND "KeepResults" IS NULL THEN "FinishedOn" END) STORED,
    "ResultsExpireOn" timestamptz GENERATED ALWAYS AS (
        CASE WHEN "KeepResults" > 0 AND "Results" IS NOT NULL
            THEN "TaskQueueLater"("FinishedOn", "KeepResults"::integer) END) STORED,
    "OpenTaskId" bigint GENERATED ALWAYS AS (
        CASE WHEN "Status" IN ('scheduled', 'processing') THEN "TaskQueueId" END) STORED,
    "ClaimClass" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN "TaskClass" END) STORED,
    "ClaimOrder" integer GENERATED ALWAYS AS (-"Priority") STORED,
    "WaitingOrder" integer GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN -"Priority" END) STORED,
    "RunningClass" text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN "Status" = 'processing' THEN "TaskClass" END) STORED,
    "WaitingKey" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND NOT "HasKeySlot" THEN "LimitKey" END) STORED,
    "HeldKey" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "Status" IN ('scheduled', 'processing') AND "HasKeySlot" THEN "LimitKey" END) STORED,
    "WaitingTag" text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN "Tag" END) STORED,
    CONSTRAINT "A run is finished if and only if it has FinishedOn"
        CHECK (("Status" IN ('scheduled', 'processing')) = ("FinishedOn" IS NULL)),
    CONSTRAINT "A processing run has StartedOn, Token and LeaseExpiresOn"
        CHECK ("Status" <> 'processing' OR ("StartedOn" IS NOT NULL AND "Token" IS NOT NULL AND "LeaseExpiresOn" IS NOT NULL))
);

CREATE UNIQUE INDEX "TaskQueueRunsOpen" ON "TaskQueueRuns" ("OpenTaskId") WHERE "OpenTaskId" IS NOT NULL;
CREATE INDEX "TaskQueueRunsClaim" ON "TaskQueueRuns" ("ClaimClass", "ClaimOrder", "LinedUpOn", "Id") WHERE "ClaimClass" IS NOT NULL;
CREATE INDEX "TaskQueueRunsWaiting" ON "TaskQueueRuns" ("WaitingOrder", "LinedUpOn", "Id") WHERE "WaitingOrder" IS NOT NULL;
CREATE INDEX "TaskQueueRunsByTask" ON "TaskQueueRuns" ("TaskQueueId", "Id");
CREATE INDEX "TaskQueueRunsRunning" ON "TaskQueueRuns" ("RunningClass", "Id") WHERE "RunningClass" IS NOT NULL;
CREATE INDEX "TaskQueueRunsWaitingKey" ON "TaskQueueRuns" ("WaitingKey", "ClaimOrder", "Id") WHERE "WaitingKey" IS NOT NULL;
CREATE INDEX "TaskQueueRunsHeldKey" ON "TaskQueueRuns" ("HeldKey", "ClaimOrder", "Id") WHERE "HeldKey" IS NOT NULL;
CREATE INDEX "TaskQueueRunsWaitingTag" ON "TaskQueueRuns" ("WaitingTag", "ClaimClass", "ClaimOrder", "LinedUpOn", "Id")
    WHERE "WaitingTag" IS NOT NULL;
CREATE INDEX "TaskQueueRunsResults" ON "TaskQueueRuns" ("ResultsOn", "Id") WHERE "ResultsOn" IS NOT NULL;
CREATE INDEX "TaskQueueRunsResultsExpire" ON "TaskQueueRuns" ("ResultsExpireOn", "Id") WHERE "ResultsExpireOn" IS NOT NULL;

-- What is no longer due, or waits no longer, stays at the head of the indexes that every claim looks at until it is cleaned up. That
-- is begun by default when a fifth of a table has changed: of millions of rows, much too late.
ALTER TABLE "TaskQueue" SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE "TaskQueueRuns" SET (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE "TaskQueueRunners" (
    "Id" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "ProcessId" bigint NOT NULL,
    "StartedOn" "TaskQueueStartedOn" NOT NULL DEFAULT clock_timestamp(),
    "FinishedOn" "TaskQueueFinishedOn",
    "Host" text COLLATE "C" NOT NULL DEFAULT '',
    "ProcessIdentity" text NOT NULL DEFAULT '',
    "Slots" integer NOT NULL DEFAULT 1
        CONSTRAINT "Slots lies in 1 to 2147483647" CHECK ("Slots" >= 1),
    "HeartbeatOn" "TaskQueueHeartbeatOn" NOT NULL DEFAULT clock_timestamp(),
    "HeartbeatBootMs" bigint,
    "Version" text NOT NULL DEFAULT '',
    "Name" text COLLATE "C" NOT NULL DEFAULT '',
    "Classes" text
);

CREATE INDEX "TaskQueueRunnersByEnd" ON "TaskQueueRunners" ("FinishedOn", "Id");

CREATE TABLE "TaskQueueRunOutputs" (
    "RunId" bigint NOT NULL,
    "Stream" text COLLATE "C" NOT NULL
        CONSTRAINT "Stream is known" CHECK ("Stream" IN ('stdout', 'stderr')),
    "Content" text NOT NULL,
    "TotalBytes" bigint NOT NULL,
    "IsLossy" boolean NOT NULL DEFAULT false,
    PRIMARY KEY ("RunId", "Stream")
);

CREATE TABLE "TaskQueueRejections" (
    "TaskId" bigint NOT NULL,
    "Claimant" text COLLATE "C" NOT NULL,
    "RejectedOn" "TaskQueueRejectedOn" NOT NULL DEFAULT clock_timestamp(),
    "Timeouts" integer NOT NULL DEFAULT 0
        CONSTRAINT "Timeouts lies in 0 to 2147483647" CHECK ("Timeouts" >= 0),
    "HeldUntil" "TaskQueueHeldUntil",
    PRIMARY KEY ("TaskId", "Claimant")
);

CREATE TABLE "TaskQueueEvents" (
    "Id" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "OccurredOn" "TaskQueueOccurredOn" NOT NULL DEFAULT clock_timestamp(),
    "Kind" text COLLATE "C" NOT NULL,
    "TaskQueueId" bigint,
    "RunId" bigint,
    "Actor" text NOT NULL DEFAULT '',
    "Host" text COLLATE "C" NOT NULL DEFAULT '',
    "Details" "TaskQueueJson" NOT NULL DEFAULT '{}'
);

CREATE INDEX "TaskQueueEventsByTask" ON "TaskQueueEvents" ("TaskQueueId", "Id");
CREATE INDEX "TaskQueueEventsByKind" ON "TaskQueueEvents" ("Kind", "Id");

CREATE TABLE "TaskQueueClassHolds" (
    "TaskClass" "TaskQueueClassName" NOT NULL,
    "Host" text COLLATE "C" NOT NULL,
    "Reason" text NOT NULL,
    "HeldOn" "TaskQueueHeldOn" NOT NULL DEFAULT clock_timestamp(),
    "HeldUntil" "TaskQueueHeldUntil" NOT NULL,
    PRIMARY KEY ("TaskClass", "Host")
);

CREATE TABLE "TaskQueuePauses" (
    "Scope" text COLLATE "C" NOT NULL
        CONSTRAINT "Scope is known" CHECK ("Scope" IN ('all', 'class', 'runner')),
    "Name" text COLLATE "C" NOT NULL DEFAULT '',
    "Mode" text COLLATE "C" NOT NULL DEFAULT 'pause'
        CONSTRAINT "Mode is known" CHECK ("Mode" IN ('pause', 'drain', 'stop')),
    "Reason" text NOT NULL DEFAULT '',
    "Author" text NOT NULL DEFAULT '',
    "Host" text COLLATE "C" NOT NULL DEFAULT '',
    "CreatedOn" timestamptz NOT NULL DEFAULT clock_timestamp()
        CONSTRAINT "CreatedOn lies in the years 1000 to 9999"
        CHECK ("CreatedOn" >= '1000-01-01 00:00:00+00' AND "CreatedOn" < '10000-01-01 00:00:00+00'),
    "Until" timestamptz
        CONSTRAINT "Until lies in the years 1000 to 9999"
        CHECK ("Until" IS NULL OR "Until" >= '1000-01-01 00:00:00+00' AND "Until" < '10000-01-01 00:00:00+00'),
    PRIMARY KEY ("Scope", "Name"),
    CONSTRAINT "A pause has a Name if and only if it is not of all" CHECK (("Scope" = 'all') = ("Name" = ''))
);

CREATE TABLE "TaskQueueClassLimits" (
    "TaskClass" "TaskQueueClassName" NOT NULL PRIMARY KEY,
    "MaxRunning" integer
        CONSTRAINT "MaxRunning lies in 1 to 1000000" CHECK ("MaxRunning" IS NULL OR "MaxRunning" BETWEEN 1 AND 1000000),
    "RateCount" integer
        CONSTRAINT "RateCount lies in 1 to 10000" CHECK ("RateCount" IS NULL OR "RateCount" BETWEEN 1 AND 10000),
    "RateSecs" integer
        CONSTRAINT "RateSecs lies in 1 to 86400" CHECK ("RateSecs" IS NULL OR "RateSecs" BETWEEN 1 AND 86400),
    CONSTRAINT "A rate has RateCount and RateSecs" CHECK (("RateCount" IS NULL) = ("RateSecs" IS NULL))
);

CREATE TABLE "TaskQueueStarts" (
    "TaskClass" text COLLATE "C" NOT NULL,
    "StartedOn" "TaskQueueStartedOn" NOT NULL,
    "RunId" bigint NOT NULL,
    PRIMARY KEY ("TaskClass", "StartedOn", "RunId")
);

CREATE TABLE "TaskQueueKeyLimits" (
    "LimitKey" "TaskQueueLimitKey" NOT NULL PRIMARY KEY,
    "MaxRunning" integer NOT NULL
        CONSTRAINT "A limited key has MaxRunning of 1 to 1000" CHECK ("MaxRunning" BETWEEN 1 AND 1000)
);

CREATE TABLE "TaskQueueSettings" (
    "Name" text COLLATE "C" NOT NULL PRIMARY KEY,
    "Value" text NOT NULL,
    CONSTRAINT "Value is a whole number in the range of its setting" CHECK (
        "Value" ~ '^[0-9]{1,10}$' AND CASE "Name"
            WHEN 'TaskQueueRunnerLimit' THEN "Value"::bigint BETWEEN 1 AND 10000
            WHEN 'TaskQueueRunTimeout' THEN "Value"::bigint BETWEEN 1 AND 31536000
            WHEN 'TaskQueueMaxRetries' THEN "Value"::bigint BETWEEN 1 AND 1000000
            WHEN 'TaskQueueMaxRetriesCap' THEN "Value"::bigint BETWEEN 1 AND 1000000
            WHEN 'TaskQueueRetryDelay' THEN "Value"::bigint BETWEEN 0 AND 86400
            WHEN 'TaskQueueRetryDelayMax' THEN "Value"::bigint BETWEEN 0 AND 2592000
            WHEN 'TaskQueueCrashLimit' THEN "Value"::bigint BETWEEN 1 AND 1000000
            WHEN 'TaskQueueClaimTimeoutLimit' THEN "Value"::bigint BETWEEN 1 AND 1000000
            WHEN 'TaskQueueHoldTime' THEN "Value"::bigint BETWEEN 1 AND 86400
            WHEN 'TaskQueueLeaseTime' THEN "Value"::bigint BETWEEN 5 AND 86400
            WHEN 'TaskQueueLeaseRenewal' THEN "Value"::bigint BETWEEN 1 AND 3600
            WHEN 'TaskQueueLeaseMargin' THEN "Value"::bigint BETWEEN 1 AND 3600
            WHEN 'TaskQueueMaxDataBytes' THEN "Value"::bigint BETWEEN 2 AND 8388608
            WHEN 'TaskQueueScheduleGrace' THEN "Value"::bigint BETWEEN 0 AND 604800
            WHEN 'TaskQueueAuditTransitions' THEN "Value"::bigint BETWEEN 0 AND 1
            WHEN 'TaskQueueKeepSuccess' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepCancelled' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepFailed' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepOutputs' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepResults' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepRunners' THEN "Value"::bigint BETWEEN 0 AND 36500
            WHEN 'TaskQueueMaxSuccess' THEN "Value"::bigint BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxCancelled' THEN "Value"::bigint BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxFailed' THEN "Value"::bigint BETWEEN 0 AND 1000000000
            ELSE TRUE
        END)
);

INSERT INTO "TaskQueueSettings" ("Name", "Value") VALUES
    ('TaskQueueRunnerLimit', '8'),
    ('TaskQueueRunTimeout', '86400'),
    ('TaskQueueMaxRetries', '5'),
    ('TaskQueueMaxRetriesCap', '1000000'),
    ('TaskQueueRetryDelay', '10'),
    ('TaskQueueRetryDelayMax', '3600'),
    ('TaskQueueCrashLimit', '3'),
    ('TaskQueueClaimTimeoutLimit', '3'),
    ('TaskQueueHoldTime', '300'),
    ('TaskQueueLeaseTime', '90'),
    ('TaskQueueLeaseRenewal', '20'),
    ('TaskQueueLeaseMargin', '15'),
    ('TaskQueueMaxDataBytes', '1048576'),
    ('TaskQueueScheduleGrace', '900'),
    ('TaskQueueAuditTransitions', '0'),
    ('TaskQueueKeepSuccess', '30'),
    ('TaskQueueKeepCancelled', '30'),
    ('TaskQueueKeepFailed', '90'),
    ('TaskQueueKeepOutputs', '14'),
    ('TaskQueueKeepResults', '30'),
    ('TaskQueueKeepRunners', '30'),
    ('TaskQueueMaxSuccess', '0'),
    ('TaskQueueMaxCancelled', '0'),
    ('TaskQueueMaxFailed', '0');

CREATE TABLE "TaskQueueSchedules" (
    "Name" text COLLATE "C" NOT NULL PRIMARY KEY,
    "ScheduleId" bigint,
    "Definition" text COLLATE "C",
    "ConfiguredOn" "TaskQueueConfiguredOn" NOT NULL,
    "Host" text COLLATE "C" NOT NULL,
    "File" text COLLATE "C" NOT NULL
);

CREATE TABLE "TaskQueueReceipts" (
    "Token" text COLLATE "C" NOT NULL PRIMARY KEY,
    "WrittenOn" "TaskQueueWrittenOn" NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX "TaskQueueReceiptsByTime" ON "TaskQueueReceipts" ("WrittenOn");

CREATE TABLE "TaskQueueNotices" (
    "Id" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    "OccurredOn" "TaskQueueOccurredOn" NOT NULL DEFAULT clock_timestamp(),
    "Kind" text COLLATE "C" NOT NULL,
    "TaskQueueId" bigint,
    "RunId" bigint,
    "TaskClass" text COLLATE "C" NOT NULL DEFAULT '',
    "Host" text COLLATE "C" NOT NULL DEFAULT '',
    "ErrorCode" text NOT NULL DEFAULT '',
    "ErrorMessage" text NOT NULL DEFAULT ''
);

CREATE TABLE "TaskQueueTimers" (
    "Name" text COLLATE "C" NOT NULL PRIMARY KEY,
    "NextOn" "TaskQueueNextOn" NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO "TaskQueueTimers" ("Name") VALUES ('notify'), ('notify-host');

CREATE TABLE "TaskQueueLocks" (
    "Name" text COLLATE "C" NOT NULL PRIMARY KEY
);

INSERT INTO "TaskQueueLocks" ("Name") VALUES ('create-runs'), ('register'), ('notify'),
    ('claim-1'), ('claim-2'), ('claim-3'), ('claim-4');
