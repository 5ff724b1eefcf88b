-- The whole schema. docs/schema.md says what each column means; a test holds the three engines equal.
-- Times are UTC text, YYYY-MM-DD HH:MM:SS.ffffff: text order is time order. SQLite's clock has milliseconds.
-- SQLite takes any bytes as text and a number of 64 bits for every INTEGER, so each column that an application may write has a CHECK
-- of what the program can read. length() and GLOB end at a NUL: what must be ASCII has as many bytes as characters. json_valid() does
-- so before 3.45.
-- The times of the tables that are written for each run have a check of half the cost, which a NUL after the seconds passes.

CREATE TABLE "TaskQueue" (
    "Id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT
        CONSTRAINT "Id lies in 1 to 4611686018427387903" CHECK ("Id" BETWEEN 1 AND 4611686018427387903),
    "QueuedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "QueuedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "QueuedOn") IS substr("QueuedOn", 1, 19)
            AND length("QueuedOn") <= 26 AND length(CAST("QueuedOn" AS BLOB)) = length("QueuedOn")
            AND (length("QueuedOn") = 19 OR substr("QueuedOn", 20) GLOB '.[0-9]*' AND substr("QueuedOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "QueuedOn lies in the years 1000 to 9999" CHECK ("QueuedOn" >= '1000'),
    "QueuedById" TEXT NOT NULL DEFAULT '',
    "ScheduledOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "ScheduledOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "ScheduledOn") IS substr("ScheduledOn", 1, 19)
            AND length("ScheduledOn") <= 26 AND length(CAST("ScheduledOn" AS BLOB)) = length("ScheduledOn")
            AND (length("ScheduledOn") = 19 OR substr("ScheduledOn", 20) GLOB '.[0-9]*' AND substr("ScheduledOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "ScheduledOn lies in the years 1000 to 9999" CHECK ("ScheduledOn" >= '1000'),
    "NextAttemptOn" TEXT
        CONSTRAINT "NextAttemptOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("NextAttemptOn" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "NextAttemptOn") IS substr("NextAttemptOn", 1, 19)
            AND length("NextAttemptOn") <= 26 AND length(CAST("NextAttemptOn" AS BLOB)) = length("NextAttemptOn")
            AND (length("NextAttemptOn") = 19 OR substr("NextAttemptOn", 20) GLOB '.[0-9]*' AND substr("NextAttemptOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "NextAttemptOn lies in the years 1000 to 9999" CHECK ("NextAttemptOn" IS NULL OR "NextAttemptOn" >= '1000'),
    "StartBefore" TEXT
        CONSTRAINT "StartBefore is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("StartBefore" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "StartBefore") IS substr("StartBefore", 1, 19)
            AND length("StartBefore") <= 26 AND length(CAST("StartBefore" AS BLOB)) = length("StartBefore")
            AND (length("StartBefore") = 19 OR substr("StartBefore", 20) GLOB '.[0-9]*' AND substr("StartBefore", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "StartBefore lies in the years 1000 to 9999" CHECK ("StartBefore" IS NULL OR "StartBefore" >= '1000'),
    "TaskClass" TEXT NOT NULL
        CONSTRAINT "TaskClass has 1 to 190 letters, digits and _ . : - or backslash"
        CHECK ("TaskClass" NOT GLOB '*[^-A-Za-z0-9_.\:]*' AND "TaskClass" NOT GLOB '-*' AND instr("TaskClass", '..') = 0
            AND length("TaskClass") BETWEEN 1 AND 190 AND length(CAST("TaskClass" AS BLOB)) = length("TaskClass")),
    "TaskData" TEXT NOT NULL DEFAULT '{}'
        CONSTRAINT "TaskData is JSON" CHECK (json_valid("TaskData") AND instr("TaskData", char(0)) = 0),
    "LastStatus" TEXT NOT NULL DEFAULT 'scheduled'
        CONSTRAINT "LastStatus is known"
        CHECK ("LastStatus" IN ('scheduled', 'processing', 'success', 'failed', 'timeout', 'cancelled', 'expired')),
    "MaxRetries" INTEGER
        CONSTRAINT "MaxRetries lies in 1 to 1000000" CHECK ("MaxRetries" IS NULL OR "MaxRetries" BETWEEN 1 AND 1000000),
    "RetryLimit" INTEGER
        CONSTRAINT "RetryLimit lies in 1 to 1000000" CHECK ("RetryLimit" IS NULL OR "RetryLimit" BETWEEN 1 AND 1000000),
    "FailedRetries" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "FailedRetries lies in 0 to 1000000000" CHECK ("FailedRetries" BETWEEN 0 AND 1000000000),
    "Attempts" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "Attempts lies in 0 to 1000000000" CHECK ("Attempts" BETWEEN 0 AND 1000000000),
    "Priority" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "Priority lies in -1000 to 1000" CHECK ("Priority" BETWEEN -1000 AND 1000),
    "Timeout" INTEGER
        CONSTRAINT "Timeout lies in 1 to 31536000 seconds" CHECK ("Timeout" IS NULL OR "Timeout" BETWEEN 1 AND 31536000),
    "WaitingFor" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "WaitingFor lies in 0 to 1000000000" CHECK ("WaitingFor" BETWEEN 0 AND 1000000000),
    "CurrentRunId" INTEGER,
    "Backoff" TEXT
        CONSTRAINT "Backoff has 1 to 250 printable ASCII characters"
        CHECK ("Backoff" IS NULL OR "Backoff" NOT GLOB '*[^ -~]*'
            AND length("Backoff") BETWEEN 1 AND 250 AND length(CAST("Backoff" AS BLOB)) = length("Backoff")),
    "Crashes" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "Crashes lies in 0 to 1000000000" CHECK ("Crashes" BETWEEN 0 AND 1000000000),
    "QuarantinedOn" TEXT
        CONSTRAINT "QuarantinedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("QuarantinedOn" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "QuarantinedOn") IS substr("QuarantinedOn", 1, 19)
            AND length("QuarantinedOn") <= 26 AND length(CAST("QuarantinedOn" AS BLOB)) = length("QuarantinedOn")
            AND (length("QuarantinedOn") = 19 OR substr("QuarantinedOn", 20) GLOB '.[0-9]*' AND substr("QuarantinedOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "QuarantinedOn lies in the years 1000 to 9999" CHECK ("QuarantinedOn" IS NULL OR "QuarantinedOn" >= '1000'),
    "UniqueKey" TEXT
        CONSTRAINT "UniqueKey has 1 to 190 printable ASCII characters"
        CHECK ("UniqueKey" IS NULL OR "UniqueKey" NOT GLOB '*[^ -~]*' AND trim("UniqueKey") = "UniqueKey"
            AND length("UniqueKey") BETWEEN 1 AND 190 AND length(CAST("UniqueKey" AS BLOB)) = length("UniqueKey")),
    "UniqueUntil" TEXT
        CONSTRAINT "UniqueUntil is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("UniqueUntil" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "UniqueUntil") IS substr("UniqueUntil", 1, 19)
            AND length("UniqueUntil") <= 26 AND length(CAST("UniqueUntil" AS BLOB)) = length("UniqueUntil")
            AND (length("UniqueUntil") = 19 OR substr("UniqueUntil", 20) GLOB '.[0-9]*' AND substr("UniqueUntil", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "UniqueUntil lies in the years 1000 to 9999" CHECK ("UniqueUntil" IS NULL OR "UniqueUntil" >= '1000'),
    "LimitKey" TEXT
        CONSTRAINT "LimitKey has 1 to 190 printable ASCII characters"
        CHECK ("LimitKey" IS NULL OR "LimitKey" NOT GLOB '*[^ -~]*' AND trim("LimitKey") = "LimitKey"
            AND length("LimitKey") BETWEEN 1 AND 190 AND length(CAST("LimitKey" AS BLOB)) = length("LimitKey")),
    "Tag" TEXT
        CONSTRAINT "Tag has 1 to 190 printable ASCII characters"
        CHECK ("Tag" IS NULL OR "Tag" NOT GLOB '*[^ -~]*' AND trim("Tag") = "Tag"
            AND length("Tag") BETWEEN 1 AND 190 AND length(CAST("Tag" AS BLOB)) = length("Tag")),
    "Name" TEXT
        CONSTRAINT "Name has 1 to 190 characters and no control characters"
        CHECK ("Name" IS NULL OR "Name" NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
            AND instr("Name", char(0)) = 0 AND trim("Name") = "Name" AND length("Name") BETWEEN 1 AND 190),
    "ParentId" INTEGER
        CONSTRAINT "ParentId is 1 or more" CHECK ("ParentId" IS NULL OR "ParentId" >= 1),
    "Receipt" TEXT
        CONSTRAINT "Receipt has 1 to 64 printable ASCII characters"
        CHECK ("Receipt" IS NULL OR "Receipt" NOT GLOB '*[^ -~]*'
            AND length("Receipt") BETWEEN 1 AND 64 AND length(CAST("Receipt" AS BLOB)) = length("Receipt")),
    "Keep" INTEGER
        CONSTRAINT "Keep lies in 0 to 2000000000 seconds" CHECK ("Keep" IS NULL OR "Keep" BETWEEN 0 AND 2000000000),
    "ClassKeep" INTEGER
        CONSTRAINT "ClassKeep lies in 0 to 2000000000 seconds" CHECK ("ClassKeep" IS NULL OR "ClassKeep" BETWEEN 0 AND 2000000000),
    "KeepResults" INTEGER
        CONSTRAINT "KeepResults lies in 0 to 2000000000 seconds" CHECK ("KeepResults" IS NULL OR "KeepResults" BETWEEN 0 AND 2000000000),
    "Meta" TEXT
        CONSTRAINT "Meta is a JSON object"
        CHECK ("Meta" IS NULL OR json_valid("Meta") AND json_type("Meta") = 'object' AND instr("Meta", char(0)) = 0),
    "Recurrence" TEXT
        CONSTRAINT "Recurrence has 1 to 190 printable ASCII characters"
        CHECK ("Recurrence" IS NULL OR "Recurrence" NOT GLOB '*[^ -~]*'
            AND length("Recurrence") BETWEEN 1 AND 190 AND length(CAST("Recurrence" AS BLOB)) = length("Recurrence")),
    "TimeZone" TEXT NOT NULL DEFAULT 'UTC'
        CONSTRAINT "TimeZone has 1 to 190 printable ASCII characters"
        CHECK ("TimeZone" NOT GLOB '*[^ -~]*'
            AND length("TimeZone") BETWEEN 1 AND 190 AND length(CAST("TimeZone" AS BLOB)) = length("TimeZone")),
    "CatchUp" TEXT NOT NULL DEFAULT 'latest'
        CONSTRAINT "CatchUp is known" CHECK ("CatchUp" IN ('none', 'latest', 'all')),
    "Overlap" TEXT NOT NULL DEFAULT 'wait'
        CONSTRAINT "Overlap is known" CHECK ("Overlap" IN ('wait', 'replace')),
    "ScheduleId" INTEGER,
    "PlannedOn" TEXT
        CONSTRAINT "PlannedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("PlannedOn" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "PlannedOn") IS substr("PlannedOn", 1, 19)
            AND length("PlannedOn") <= 26 AND length(CAST("PlannedOn" AS BLOB)) = length("PlannedOn")
            AND (length("PlannedOn") = 19 OR substr("PlannedOn", 20) GLOB '.[0-9]*' AND substr("PlannedOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "PlannedOn lies in the years 1000 to 9999" CHECK ("PlannedOn" IS NULL OR "PlannedOn" >= '1000'),
    "ScheduleStatus" TEXT NOT NULL DEFAULT 'active'
        CONSTRAINT "ScheduleStatus is known"
        CHECK ("ScheduleStatus" IN ('active', 'paused', 'broken', 'followed', 'ended')),
    "UpdatedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "UpdatedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "UpdatedOn") IS substr("UpdatedOn", 1, 19)
            AND length("UpdatedOn") <= 26 AND length(CAST("UpdatedOn" AS BLOB)) = length("UpdatedOn")
            AND (length("UpdatedOn") = 19 OR substr("UpdatedOn", 20) GLOB '.[0-9]*' AND substr("UpdatedOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "UpdatedOn lies in the years 1000 to 9999" CHECK ("UpdatedOn" >= '1000'),
    "DueOn" TEXT GENERATED ALWAYS AS (
        CASE WHEN "LastStatus" IN ('scheduled', 'failed', 'timeout') AND "CurrentRunId" IS NULL
            AND "FailedRetries" < COALESCE("RetryLimit", "MaxRetries", 1000001) AND "WaitingFor" = 0 AND "QuarantinedOn" IS NULL
            AND ("Recurrence" IS NULL OR "PlannedOn" IS NOT NULL AND "ScheduleStatus" <> 'paused')
            THEN coalesce("NextAttemptOn", "ScheduledOn") END) STORED,
    "Finished" INTEGER GENERATED ALWAYS AS (
        CASE WHEN "CurrentRunId" IS NULL
            AND ("LastStatus" IN ('success', 'cancelled', 'expired') OR "LastStatus" IN ('failed', 'timeout')
                AND ("FailedRetries" >= COALESCE("RetryLimit", "MaxRetries", 1000001) OR "QuarantinedOn" IS NOT NULL))
            AND ("Recurrence" IS NULL OR "ScheduleStatus" IN ('followed', 'ended'))
            THEN CASE WHEN "Keep" IS NULL AND "ClassKeep" IS NULL THEN 1 ELSE 2 END ELSE 0 END) STORED,
    "StatusOn" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Finished" = 0 THEN "ScheduledOn" WHEN "UniqueUntil" > "UpdatedOn" THEN "UniqueUntil" ELSE "UpdatedOn" END) STORED,
    "ExpiresOn" TEXT GENERATED ALWAYS AS (
        CASE WHEN coalesce("Keep", "ClassKeep") > 0 AND "CurrentRunId" IS NULL
            AND "LastStatus" IN ('success', 'cancelled', 'expired', 'failed', 'timeout')
            THEN strftime('%Y-%m-%d %H:%M:%f000', CASE WHEN "UniqueUntil" > "UpdatedOn" THEN "UniqueUntil" ELSE "UpdatedOn" END,
                coalesce("Keep", "ClassKeep") || ' seconds') END) STORED,
    "ScheduleHead" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Recurrence" IS NULL OR "ScheduleStatus" IN ('followed', 'ended') THEN NULL
            WHEN "ScheduleStatus" IN ('paused', 'broken') THEN "ScheduleStatus"
            WHEN "PlannedOn" IS NULL THEN 'new'
            WHEN "CurrentRunId" IS NOT NULL OR "LastStatus" = 'processing' THEN 'open'
            WHEN "LastStatus" IN ('success', 'cancelled', 'expired') OR "QuarantinedOn" IS NOT NULL
                OR "LastStatus" IN ('failed', 'timeout') AND "FailedRetries" >= COALESCE("RetryLimit", "MaxRetries", 1000001) THEN 'settled'
            WHEN "ScheduleId" IS NULL THEN 'new'
            WHEN "LastStatus" = 'scheduled' AND "Attempts" = 0 THEN 'waiting'
            ELSE 'open' END) STORED,
    "LiveUniqueKey" TEXT GENERATED ALWAYS AS (
        CASE WHEN "UniqueUntil" IS NOT NULL OR "LastStatus" = 'processing'
            OR "CurrentRunId" IS NOT NULL AND "LastStatus" NOT IN ('cancelled', 'expired')
            OR "QuarantinedOn" IS NULL AND ("LastStatus" = 'scheduled'
                OR "LastStatus" IN ('failed', 'timeout') AND "FailedRetries" < COALESCE("RetryLimit", "MaxRetries", 1000001)) THEN "UniqueKey" END) STORED,
    "LiveStartBefore" TEXT GENERATED ALWAYS AS (
        CASE WHEN "QuarantinedOn" IS NULL AND ("LastStatus" = 'scheduled'
            OR "LastStatus" IN ('failed', 'timeout') AND "FailedRetries" < COALESCE("RetryLimit", "MaxRetries", 1000001)) THEN "StartBefore" END) STORED,
    CONSTRAINT "Overlap is wait if CatchUp is all" CHECK ("Overlap" = 'wait' OR "CatchUp" <> 'all')
) STRICT;

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
    "TaskId" INTEGER NOT NULL,
    "DependsOnId" INTEGER NOT NULL,
    "IsSatisfied" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "IsSatisfied is 0 or 1" CHECK ("IsSatisfied" IN (0, 1)),
    "NeedsSuccess" INTEGER NOT NULL DEFAULT 1
        CONSTRAINT "NeedsSuccess is 0 or 1" CHECK ("NeedsSuccess" IN (0, 1)),
    "AwaitedEnd" INTEGER GENERATED ALWAYS AS (
        CASE WHEN "IsSatisfied" = 0 AND "NeedsSuccess" = 0 THEN "DependsOnId" END) STORED,
    CONSTRAINT "A task does not wait for itself" CHECK ("TaskId" <> "DependsOnId"),
    PRIMARY KEY ("TaskId", "DependsOnId")
) STRICT, WITHOUT ROWID;

CREATE INDEX "TaskQueueDependants" ON "TaskQueueDependencies" ("DependsOnId", "TaskId");
CREATE INDEX "TaskQueueAwaitedEnds" ON "TaskQueueDependencies" ("AwaitedEnd") WHERE "AwaitedEnd" IS NOT NULL;

CREATE TABLE "TaskQueueRuns" (
    "Id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT
        CONSTRAINT "Id lies in 1 to 4611686018427387903" CHECK ("Id" BETWEEN 1 AND 4611686018427387903),
    "TaskQueueId" INTEGER NOT NULL,
    "TaskClass" TEXT NOT NULL,
    "Priority" INTEGER NOT NULL DEFAULT 0,
    "Attempt" INTEGER NOT NULL DEFAULT 1
        CONSTRAINT "Attempt lies in 1 to 2147483647" CHECK ("Attempt" BETWEEN 1 AND 2147483647),
    "CreatedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "CreatedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("CreatedOn") IS substr("CreatedOn", 1, 19) AND length("CreatedOn") <= 26
            AND (length("CreatedOn") = 19 OR "CreatedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "CreatedOn lies in the years 1000 to 9999" CHECK ("CreatedOn" >= '1000'),
    "StartedOn" TEXT
        CONSTRAINT "StartedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("StartedOn" IS NULL OR datetime("StartedOn") IS substr("StartedOn", 1, 19) AND length("StartedOn") <= 26
            AND (length("StartedOn") = 19 OR "StartedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "StartedOn lies in the years 1000 to 9999" CHECK ("StartedOn" IS NULL OR "StartedOn" >= '1000'),
    "PercentsCompleted" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "PercentsCompleted lies in 0 to 100" CHECK ("PercentsCompleted" BETWEEN 0 AND 100),
    "ProgressMessage" TEXT NOT NULL DEFAULT '',
    "FinishedOn" TEXT
        CONSTRAINT "FinishedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("FinishedOn" IS NULL OR datetime("FinishedOn") IS substr("FinishedOn", 1, 19) AND length("FinishedOn") <= 26
            AND (length("FinishedOn") = 19 OR "FinishedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "FinishedOn lies in the years 1000 to 9999" CHECK ("FinishedOn" IS NULL OR "FinishedOn" >= '1000'),
    "Results" TEXT
        CONSTRAINT "Results is JSON" CHECK ("Results" IS NULL OR json_valid("Results") AND instr("Results", char(0)) = 0),
    "Status" TEXT NOT NULL DEFAULT 'scheduled'
        CONSTRAINT "Status is known"
        CHECK ("Status" IN ('scheduled', 'processing', 'success', 'error', 'timeout', 'cancelled', 'released')),
    "ErrorCode" TEXT NOT NULL DEFAULT '',
    "ErrorMessage" TEXT NOT NULL DEFAULT '',
    "Decision" TEXT NOT NULL DEFAULT '',
    "ProcessId" INTEGER,
    "RunnerId" INTEGER,
    "Claimant" TEXT
        CONSTRAINT "Claimant has 1 to 190 characters" CHECK ("Claimant" IS NULL OR length("Claimant") BETWEEN 1 AND 190),
    "Token" TEXT,
    "Host" TEXT NOT NULL DEFAULT '',
    "ProcessIdentity" TEXT NOT NULL DEFAULT '',
    "LeaseExpiresOn" TEXT
        CONSTRAINT "LeaseExpiresOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("LeaseExpiresOn" IS NULL OR datetime("LeaseExpiresOn") IS substr("LeaseExpiresOn", 1, 19) AND length("LeaseExpiresOn") <= 26
            AND (length("LeaseExpiresOn") = 19 OR "LeaseExpiresOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "LeaseExpiresOn lies in the years 1000 to 9999" CHECK ("LeaseExpiresOn" IS NULL OR "LeaseExpiresOn" >= '1000'),
    "HandlerProcessId" INTEGER,
    "HandlerIdentity" TEXT NOT NULL DEFAULT '',
    "CpuMsecs" INTEGER,
    "PeakMemoryBytes" INTEGER,
    "CancelRequestedOn" TEXT
        CONSTRAINT "CancelRequestedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("CancelRequestedOn" IS NULL OR datetime("CancelRequestedOn") IS substr("CancelRequestedOn", 1, 19) AND length("CancelRequestedOn") <= 26
            AND (length("CancelRequestedOn") = 19 OR "CancelRequestedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "CancelRequestedOn lies in the years 1000 to 9999" CHECK ("CancelRequestedOn" IS NULL OR "CancelRequestedOn" >= '1000'),
    "CancelReason" TEXT NOT NULL DEFAULT '',
    "FollowedOn" TEXT
        CONSTRAINT "FollowedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("FollowedOn" IS NULL OR datetime("FollowedOn") IS substr("FollowedOn", 1, 19) AND length("FollowedOn") <= 26
            AND (length("FollowedOn") = 19 OR "FollowedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "FollowedOn lies in the years 1000 to 9999" CHECK ("FollowedOn" IS NULL OR "FollowedOn" >= '1000'),
    "LimitKey" TEXT
        CONSTRAINT "LimitKey has 1 to 190 printable ASCII characters"
        CHECK ("LimitKey" IS NULL OR "LimitKey" NOT GLOB '*[^ -~]*' AND trim("LimitKey") = "LimitKey"
            AND length("LimitKey") BETWEEN 1 AND 190 AND length(CAST("LimitKey" AS BLOB)) = length("LimitKey")),
    "Tag" TEXT
        CONSTRAINT "Tag has 1 to 190 printable ASCII characters"
        CHECK ("Tag" IS NULL OR "Tag" NOT GLOB '*[^ -~]*' AND trim("Tag") = "Tag"
            AND length("Tag") BETWEEN 1 AND 190 AND length(CAST("Tag" AS BLOB)) = length("Tag")),
    "HasKeySlot" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "HasKeySlot is 0 or 1" CHECK ("HasKeySlot" IN (0, 1)),
    "LinedUpOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "LinedUpOn is UTC, written YYYY-MM-DD HH:MM:SS.ffffff"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "LinedUpOn") IS substr("LinedUpOn", 1, 19) AND "LinedUpOn" >= '1000'
            AND length("LinedUpOn") = 26 AND substr("LinedUpOn", 20) GLOB '.[0-9][0-9][0-9][0-9][0-9][0-9]'),
    "KeepResults" INTEGER
        CONSTRAINT "KeepResults lies in 0 to 2000000000 seconds" CHECK ("KeepResults" IS NULL OR "KeepResults" BETWEEN 0 AND 2000000000),
    "UpdatedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "UpdatedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("UpdatedOn") IS substr("UpdatedOn", 1, 19) AND length("UpdatedOn") <= 26
            AND (length("UpdatedOn") = 19 OR "UpdatedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "UpdatedOn lies in the years 1000 to 9999" CHECK ("UpdatedOn" >= '1000'),
    "ResultsOn" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Results" IS NOT NULL AND "KeepResults" IS NULL THEN "FinishedOn" END) STORED,
    "ResultsExpireOn" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Results" IS NOT NULL AND "KeepResults" > 0
            THEN strftime('%Y-%m-%d %H:%M:%f000', "FinishedOn", "KeepResults" || ' seconds') END) STORED,
    "OpenTaskId" INTEGER GENERATED ALWAYS AS (
        CASE WHEN "Status" IN ('scheduled', 'processing') THEN "TaskQueueId" END) STORED,
    "ClaimClass" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN "TaskClass" END) STORED,
    "ClaimOrder" INTEGER GENERATED ALWAYS AS (-"Priority") STORED,
    "WaitingOrder" INTEGER GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN -"Priority" END) STORED,
    "RunningClass" TEXT GENERATED ALWAYS AS (CASE WHEN "Status" = 'processing' THEN "TaskClass" END) STORED,
    "WaitingKey" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND NOT "HasKeySlot" THEN "LimitKey" END) STORED,
    "HeldKey" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Status" IN ('scheduled', 'processing') AND "HasKeySlot" THEN "LimitKey" END) STORED,
    "WaitingTag" TEXT GENERATED ALWAYS AS (
        CASE WHEN "Status" = 'scheduled' AND ("LimitKey" IS NULL OR "HasKeySlot") THEN "Tag" END) STORED,
    CONSTRAINT "A run is finished if and only if it has FinishedOn"
        CHECK (("Status" IN ('scheduled', 'processing')) = ("FinishedOn" IS NULL)),
    CONSTRAINT "A processing run has StartedOn, Token and LeaseExpiresOn"
        CHECK ("Status" <> 'processing' OR ("StartedOn" IS NOT NULL AND "Token" IS NOT NULL AND "LeaseExpiresOn" IS NOT NULL))
) STRICT;

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

CREATE TABLE "TaskQueueRunners" (
    "Id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT
        CONSTRAINT "Id lies in 1 to 4611686018427387903" CHECK ("Id" BETWEEN 1 AND 4611686018427387903),
    "ProcessId" INTEGER NOT NULL,
    "StartedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "StartedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("StartedOn") IS substr("StartedOn", 1, 19) AND length("StartedOn") <= 26
            AND (length("StartedOn") = 19 OR "StartedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "StartedOn lies in the years 1000 to 9999" CHECK ("StartedOn" >= '1000'),
    "FinishedOn" TEXT
        CONSTRAINT "FinishedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("FinishedOn" IS NULL OR datetime("FinishedOn") IS substr("FinishedOn", 1, 19) AND length("FinishedOn") <= 26
            AND (length("FinishedOn") = 19 OR "FinishedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "FinishedOn lies in the years 1000 to 9999" CHECK ("FinishedOn" IS NULL OR "FinishedOn" >= '1000'),
    "Host" TEXT NOT NULL DEFAULT '',
    "ProcessIdentity" TEXT NOT NULL DEFAULT '',
    "Slots" INTEGER NOT NULL DEFAULT 1
        CONSTRAINT "Slots lies in 1 to 2147483647" CHECK ("Slots" BETWEEN 1 AND 2147483647),
    "HeartbeatOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "HeartbeatOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("HeartbeatOn") IS substr("HeartbeatOn", 1, 19) AND length("HeartbeatOn") <= 26
            AND (length("HeartbeatOn") = 19 OR "HeartbeatOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "HeartbeatOn lies in the years 1000 to 9999" CHECK ("HeartbeatOn" >= '1000'),
    "HeartbeatBootMs" INTEGER,
    "Version" TEXT NOT NULL DEFAULT '',
    "Name" TEXT NOT NULL DEFAULT '',
    "Classes" TEXT
) STRICT;

CREATE INDEX "TaskQueueRunnersByEnd" ON "TaskQueueRunners" ("FinishedOn", "Id");

CREATE TABLE "TaskQueueRunOutputs" (
    "RunId" INTEGER NOT NULL,
    "Stream" TEXT NOT NULL
        CONSTRAINT "Stream is known" CHECK ("Stream" IN ('stdout', 'stderr')),
    "Content" TEXT NOT NULL,
    "TotalBytes" INTEGER NOT NULL,
    "IsLossy" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "IsLossy is 0 or 1" CHECK ("IsLossy" IN (0, 1)),
    PRIMARY KEY ("RunId", "Stream")
) STRICT;

CREATE TABLE "TaskQueueRejections" (
    "TaskId" INTEGER NOT NULL,
    "Claimant" TEXT NOT NULL,
    "RejectedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "RejectedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("RejectedOn") IS substr("RejectedOn", 1, 19) AND length("RejectedOn") <= 26
            AND (length("RejectedOn") = 19 OR "RejectedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "RejectedOn lies in the years 1000 to 9999" CHECK ("RejectedOn" >= '1000'),
    "Timeouts" INTEGER NOT NULL DEFAULT 0
        CONSTRAINT "Timeouts lies in 0 to 2147483647" CHECK ("Timeouts" BETWEEN 0 AND 2147483647),
    "HeldUntil" TEXT
        CONSTRAINT "HeldUntil is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("HeldUntil" IS NULL OR datetime("HeldUntil") IS substr("HeldUntil", 1, 19) AND length("HeldUntil") <= 26
            AND (length("HeldUntil") = 19 OR "HeldUntil" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "HeldUntil lies in the years 1000 to 9999" CHECK ("HeldUntil" IS NULL OR "HeldUntil" >= '1000'),
    PRIMARY KEY ("TaskId", "Claimant")
) STRICT;

CREATE TABLE "TaskQueueEvents" (
    "Id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT
        CONSTRAINT "Id lies in 1 to 4611686018427387903" CHECK ("Id" BETWEEN 1 AND 4611686018427387903),
    "OccurredOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "OccurredOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("OccurredOn") IS substr("OccurredOn", 1, 19) AND length("OccurredOn") <= 26
            AND (length("OccurredOn") = 19 OR "OccurredOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "OccurredOn lies in the years 1000 to 9999" CHECK ("OccurredOn" >= '1000'),
    "Kind" TEXT NOT NULL,
    "TaskQueueId" INTEGER,
    "RunId" INTEGER,
    "Actor" TEXT NOT NULL DEFAULT '',
    "Host" TEXT NOT NULL DEFAULT '',
    "Details" TEXT NOT NULL DEFAULT '{}'
        CONSTRAINT "Details is JSON" CHECK (json_valid("Details") AND instr("Details", char(0)) = 0)
) STRICT;

CREATE INDEX "TaskQueueEventsByTask" ON "TaskQueueEvents" ("TaskQueueId", "Id");
CREATE INDEX "TaskQueueEventsByKind" ON "TaskQueueEvents" ("Kind", "Id");

CREATE TABLE "TaskQueueClassHolds" (
    "TaskClass" TEXT NOT NULL
        CONSTRAINT "TaskClass has 1 to 190 letters, digits and _ . : - or backslash"
        CHECK ("TaskClass" NOT GLOB '*[^-A-Za-z0-9_.\:]*' AND "TaskClass" NOT GLOB '-*' AND instr("TaskClass", '..') = 0
            AND length("TaskClass") BETWEEN 1 AND 190 AND length(CAST("TaskClass" AS BLOB)) = length("TaskClass")),
    "Host" TEXT NOT NULL,
    "Reason" TEXT NOT NULL,
    "HeldOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "HeldOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("HeldOn") IS substr("HeldOn", 1, 19) AND length("HeldOn") <= 26
            AND (length("HeldOn") = 19 OR "HeldOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "HeldOn lies in the years 1000 to 9999" CHECK ("HeldOn" >= '1000'),
    "HeldUntil" TEXT NOT NULL
        CONSTRAINT "HeldUntil is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("HeldUntil") IS substr("HeldUntil", 1, 19) AND length("HeldUntil") <= 26
            AND (length("HeldUntil") = 19 OR "HeldUntil" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "HeldUntil lies in the years 1000 to 9999" CHECK ("HeldUntil" >= '1000'),
    PRIMARY KEY ("TaskClass", "Host")
) STRICT;

CREATE TABLE "TaskQueuePauses" (
    "Scope" TEXT NOT NULL
        CONSTRAINT "Scope is known" CHECK ("Scope" IN ('all', 'class', 'runner')),
    "Name" TEXT NOT NULL DEFAULT '',
    "Mode" TEXT NOT NULL DEFAULT 'pause'
        CONSTRAINT "Mode is known" CHECK ("Mode" IN ('pause', 'drain', 'stop')),
    "Reason" TEXT NOT NULL DEFAULT '',
    "Author" TEXT NOT NULL DEFAULT '',
    "Host" TEXT NOT NULL DEFAULT '',
    "CreatedOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "CreatedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "CreatedOn") IS substr("CreatedOn", 1, 19)
            AND length("CreatedOn") <= 26 AND length(CAST("CreatedOn" AS BLOB)) = length("CreatedOn")
            AND (length("CreatedOn") = 19 OR substr("CreatedOn", 20) GLOB '.[0-9]*' AND substr("CreatedOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "CreatedOn lies in the years 1000 to 9999" CHECK ("CreatedOn" >= '1000'),
    "Until" TEXT
        CONSTRAINT "Until is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK ("Until" IS NULL OR strftime('%Y-%m-%d %H:%M:%S', "Until") IS substr("Until", 1, 19)
            AND length("Until") <= 26 AND length(CAST("Until" AS BLOB)) = length("Until")
            AND (length("Until") = 19 OR substr("Until", 20) GLOB '.[0-9]*' AND substr("Until", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "Until lies in the years 1000 to 9999" CHECK ("Until" IS NULL OR "Until" >= '1000'),
    PRIMARY KEY ("Scope", "Name"),
    CONSTRAINT "A pause has a Name if and only if it is not of all" CHECK (("Scope" = 'all') = ("Name" = ''))
) STRICT;

CREATE TABLE "TaskQueueClassLimits" (
    "TaskClass" TEXT NOT NULL PRIMARY KEY
        CONSTRAINT "TaskClass has 1 to 190 letters, digits and _ . : - or backslash"
        CHECK ("TaskClass" NOT GLOB '*[^-A-Za-z0-9_.\:]*' AND "TaskClass" NOT GLOB '-*' AND instr("TaskClass", '..') = 0
            AND length("TaskClass") BETWEEN 1 AND 190 AND length(CAST("TaskClass" AS BLOB)) = length("TaskClass")),
    "MaxRunning" INTEGER
        CONSTRAINT "MaxRunning lies in 1 to 1000000" CHECK ("MaxRunning" IS NULL OR "MaxRunning" BETWEEN 1 AND 1000000),
    "RateCount" INTEGER
        CONSTRAINT "RateCount lies in 1 to 10000" CHECK ("RateCount" IS NULL OR "RateCount" BETWEEN 1 AND 10000),
    "RateSecs" INTEGER
        CONSTRAINT "RateSecs lies in 1 to 86400" CHECK ("RateSecs" IS NULL OR "RateSecs" BETWEEN 1 AND 86400),
    CONSTRAINT "A rate has RateCount and RateSecs" CHECK (("RateCount" IS NULL) = ("RateSecs" IS NULL))
) STRICT;

CREATE TABLE "TaskQueueStarts" (
    "TaskClass" TEXT NOT NULL,
    "StartedOn" TEXT NOT NULL
        CONSTRAINT "StartedOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("StartedOn") IS substr("StartedOn", 1, 19) AND length("StartedOn") <= 26
            AND (length("StartedOn") = 19 OR "StartedOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "StartedOn lies in the years 1000 to 9999" CHECK ("StartedOn" >= '1000'),
    "RunId" INTEGER NOT NULL,
    PRIMARY KEY ("TaskClass", "StartedOn", "RunId")
) STRICT, WITHOUT ROWID;

CREATE TABLE "TaskQueueKeyLimits" (
    "LimitKey" TEXT NOT NULL PRIMARY KEY
        CONSTRAINT "A limited key has 1 to 190 printable ASCII characters"
        CHECK ("LimitKey" NOT GLOB '*[^ -~]*' AND trim("LimitKey") = "LimitKey"
            AND length("LimitKey") BETWEEN 1 AND 190 AND length(CAST("LimitKey" AS BLOB)) = length("LimitKey")),
    "MaxRunning" INTEGER NOT NULL
        CONSTRAINT "A limited key has MaxRunning of 1 to 1000" CHECK ("MaxRunning" BETWEEN 1 AND 1000)
) STRICT;

CREATE TABLE "TaskQueueSettings" (
    "Name" TEXT NOT NULL PRIMARY KEY,
    "Value" TEXT NOT NULL,
    CONSTRAINT "Value is a whole number in the range of its setting" CHECK (
        length("Value") BETWEEN 1 AND 10 AND "Value" NOT GLOB '*[^0-9]*' AND CASE "Name"
            WHEN 'TaskQueueRunnerLimit' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 10000
            WHEN 'TaskQueueRunTimeout' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 31536000
            WHEN 'TaskQueueMaxRetries' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueMaxRetriesCap' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueRetryDelay' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 86400
            WHEN 'TaskQueueRetryDelayMax' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 2592000
            WHEN 'TaskQueueCrashLimit' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueClaimTimeoutLimit' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueHoldTime' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 86400
            WHEN 'TaskQueueLeaseTime' THEN CAST("Value" AS INTEGER) BETWEEN 5 AND 86400
            WHEN 'TaskQueueLeaseRenewal' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 3600
            WHEN 'TaskQueueLeaseMargin' THEN CAST("Value" AS INTEGER) BETWEEN 1 AND 3600
            WHEN 'TaskQueueMaxDataBytes' THEN CAST("Value" AS INTEGER) BETWEEN 2 AND 8388608
            WHEN 'TaskQueueScheduleGrace' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 604800
            WHEN 'TaskQueueAuditTransitions' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 1
            WHEN 'TaskQueueKeepSuccess' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepCancelled' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepFailed' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepOutputs' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepResults' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepRunners' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 36500
            WHEN 'TaskQueueMaxSuccess' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxCancelled' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxFailed' THEN CAST("Value" AS INTEGER) BETWEEN 0 AND 1000000000
            ELSE TRUE
        END)
) STRICT;

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
    "Name" TEXT NOT NULL PRIMARY KEY,
    "ScheduleId" INTEGER,
    "Definition" TEXT,
    "ConfiguredOn" TEXT NOT NULL
        CONSTRAINT "ConfiguredOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (strftime('%Y-%m-%d %H:%M:%S', "ConfiguredOn") IS substr("ConfiguredOn", 1, 19)
            AND length("ConfiguredOn") <= 26 AND length(CAST("ConfiguredOn" AS BLOB)) = length("ConfiguredOn")
            AND (length("ConfiguredOn") = 19 OR substr("ConfiguredOn", 20) GLOB '.[0-9]*' AND substr("ConfiguredOn", 21) NOT GLOB '*[^0-9]*'))
        CONSTRAINT "ConfiguredOn lies in the years 1000 to 9999" CHECK ("ConfiguredOn" >= '1000'),
    "Host" TEXT NOT NULL,
    "File" TEXT NOT NULL
) STRICT;

CREATE TABLE "TaskQueueReceipts" (
    "Token" TEXT NOT NULL PRIMARY KEY,
    "WrittenOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "WrittenOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("WrittenOn") IS substr("WrittenOn", 1, 19) AND length("WrittenOn") <= 26
            AND (length("WrittenOn") = 19 OR "WrittenOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "WrittenOn lies in the years 1000 to 9999" CHECK ("WrittenOn" >= '1000')
) STRICT;

CREATE INDEX "TaskQueueReceiptsByTime" ON "TaskQueueReceipts" ("WrittenOn");

CREATE TABLE "TaskQueueNotices" (
    "Id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT
        CONSTRAINT "Id lies in 1 to 4611686018427387903" CHECK ("Id" BETWEEN 1 AND 4611686018427387903),
    "OccurredOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "OccurredOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("OccurredOn") IS substr("OccurredOn", 1, 19) AND length("OccurredOn") <= 26
            AND (length("OccurredOn") = 19 OR "OccurredOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "OccurredOn lies in the years 1000 to 9999" CHECK ("OccurredOn" >= '1000'),
    "Kind" TEXT NOT NULL,
    "TaskQueueId" INTEGER,
    "RunId" INTEGER,
    "TaskClass" TEXT NOT NULL DEFAULT '',
    "Host" TEXT NOT NULL DEFAULT '',
    "ErrorCode" TEXT NOT NULL DEFAULT '',
    "ErrorMessage" TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE "TaskQueueTimers" (
    "Name" TEXT NOT NULL PRIMARY KEY,
    "NextOn" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT "NextOn is UTC, written YYYY-MM-DD HH:MM:SS[.ffffff]"
        CHECK (datetime("NextOn") IS substr("NextOn", 1, 19) AND length("NextOn") <= 26
            AND (length("NextOn") = 19 OR "NextOn" GLOB '???????????????????.*[0-9]'))
        CONSTRAINT "NextOn lies in the years 1000 to 9999" CHECK ("NextOn" >= '1000')
) STRICT;

INSERT INTO "TaskQueueTimers" ("Name") VALUES ('notify'), ('notify-host');

CREATE TABLE "TaskQueueLocks" (
    "Name" TEXT NOT NULL PRIMARY KEY
) STRICT;

INSERT INTO "TaskQueueLocks" ("Name") VALUES ('create-runs'), ('register'), ('notify');
