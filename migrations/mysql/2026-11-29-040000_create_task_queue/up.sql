-- The whole schema. docs/schema.md says what each column means; a test holds the three engines equal.
-- One file for MySQL 8.4 to 9.7 and MariaDB 10.6 to 11.8. Names and statuses compare byte by byte (utf8mb4_bin).
-- There are no partial indexes here: generated columns that are NULL when a row is out of question take their place.
-- DDL commits at once here, so that every statement can be repeated after a failure in the middle.
-- UTC_TIMESTAMP(6), never NOW(): what is stored is UTC whatever the zone of the session.
-- DueOn asks for a ScheduledOn that is a date, and OverOn for such an UpdatedOn, because MySQL computes them once before it
-- fills in the defaults, from 0000-00-00, which strict mode refuses to store; no date that DATETIME supports lies before
-- the year 1000.

CREATE TABLE IF NOT EXISTS `TaskQueue` (
    `Id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `QueuedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `QueuedById` varchar(190) NOT NULL DEFAULT (CURRENT_USER()),
    `ScheduledOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `NextAttemptOn` datetime(6),
    `StartBefore` datetime(6),
    `TaskClass` varchar(190) NOT NULL,
    `TaskData` longtext NOT NULL DEFAULT ('{}'),
    `LastStatus` varchar(16) NOT NULL DEFAULT 'scheduled',
    `MaxRetries` int,
    `RetryLimit` int,
    `FailedRetries` int NOT NULL DEFAULT 0,
    `Attempts` int NOT NULL DEFAULT 0,
    `Priority` int NOT NULL DEFAULT 0,
    `Timeout` int,
    `WaitingFor` int NOT NULL DEFAULT 0,
    `CurrentRunId` bigint,
    `Backoff` varchar(250),
    `Crashes` int NOT NULL DEFAULT 0,
    `QuarantinedOn` datetime(6),
    `UniqueKey` varchar(190),
    `UniqueUntil` datetime(6),
    `LimitKey` varchar(190),
    `Tag` varchar(190),
    `Name` varchar(190),
    `ParentId` bigint,
    `Receipt` varchar(64),
    `Keep` int,
    `ClassKeep` int,
    `KeepResults` int,
    `Meta` longtext,
    `Recurrence` varchar(190),
    `TimeZone` varchar(190) NOT NULL DEFAULT 'UTC',
    `CatchUp` varchar(16) NOT NULL DEFAULT 'latest',
    `Overlap` varchar(16) NOT NULL DEFAULT 'wait',
    `ScheduleId` bigint,
    `PlannedOn` datetime(6),
    `ScheduleStatus` varchar(16) NOT NULL DEFAULT 'active',
    `UpdatedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `DueOn` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN `LastStatus` IN ('scheduled', 'failed', 'timeout') AND `CurrentRunId` IS NULL
            AND `FailedRetries` < COALESCE(`RetryLimit`, `MaxRetries`, 1000001) AND `WaitingFor` = 0 AND `QuarantinedOn` IS NULL
            AND (`Recurrence` IS NULL OR `PlannedOn` IS NOT NULL AND `ScheduleStatus` <> 'paused')
            AND `ScheduledOn` >= '1000-01-01' THEN COALESCE(`NextAttemptOn`, `ScheduledOn`) END) STORED,
    `PriorityDueOn` datetime(6) GENERATED ALWAYS AS (CASE WHEN `Priority` <> 0 THEN `DueOn` END) STORED,
    `Finished` int GENERATED ALWAYS AS (
        CASE WHEN `CurrentRunId` IS NULL
            AND (`LastStatus` IN ('success', 'cancelled', 'expired') OR `LastStatus` IN ('failed', 'timeout')
                AND (`FailedRetries` >= COALESCE(`RetryLimit`, `MaxRetries`, 1000001) OR `QuarantinedOn` IS NOT NULL))
            AND (`Recurrence` IS NULL OR `ScheduleStatus` IN ('followed', 'ended'))
            AND `UpdatedOn` >= '1000-01-01'
            THEN CASE WHEN `Keep` IS NULL AND `ClassKeep` IS NULL THEN 1 ELSE 2 END ELSE 0 END) STORED,
    `StatusOn` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN `Finished` = 0 THEN CASE WHEN `ScheduledOn` >= '1000-01-01' THEN `ScheduledOn` END
            WHEN `UniqueUntil` > `UpdatedOn` THEN `UniqueUntil` ELSE `UpdatedOn` END) STORED,
    `ExpiresOn` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN COALESCE(`Keep`, `ClassKeep`) > 0 AND `CurrentRunId` IS NULL
            AND `LastStatus` IN ('success', 'cancelled', 'expired', 'failed', 'timeout')
            AND `UpdatedOn` >= '1000-01-01' AND `UpdatedOn` < '9900-01-01'
            THEN CASE WHEN `UniqueUntil` > `UpdatedOn` AND `UniqueUntil` < '9900-01-01' THEN `UniqueUntil` ELSE `UpdatedOn` END
                + INTERVAL COALESCE(`Keep`, `ClassKeep`) SECOND END) STORED,
    `LiveUniqueKey` varchar(190) GENERATED ALWAYS AS (
        CASE WHEN `UniqueUntil` IS NOT NULL OR `LastStatus` = 'processing'
            OR `CurrentRunId` IS NOT NULL AND `LastStatus` NOT IN ('cancelled', 'expired')
            OR `QuarantinedOn` IS NULL AND (`LastStatus` = 'scheduled'
                OR `LastStatus` IN ('failed', 'timeout') AND `FailedRetries` < COALESCE(`RetryLimit`, `MaxRetries`, 1000001)) THEN `UniqueKey` END) STORED,
    `LiveStartBefore` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN `QuarantinedOn` IS NULL AND (`LastStatus` = 'scheduled'
            OR `LastStatus` IN ('failed', 'timeout') AND `FailedRetries` < COALESCE(`RetryLimit`, `MaxRetries`, 1000001)) THEN `StartBefore` END) STORED,
    UNIQUE KEY `TaskQueueReceipt` (`Receipt`),
    UNIQUE KEY `TaskQueueUnique` (`TaskClass`, `LiveUniqueKey`),
    KEY `TaskQueueByUniqueKey` (`UniqueKey`, `Id`),
    KEY `TaskQueueByTag` (`Tag`, `Id`),
    KEY `TaskQueueByName` (`Name`, `Id`),
    KEY `TaskQueueByParent` (`ParentId`, `Id`),
    `ScheduleHead` varchar(16) GENERATED ALWAYS AS (
        CASE WHEN `Recurrence` IS NULL OR `ScheduleStatus` IN ('followed', 'ended') THEN NULL
            WHEN `ScheduleStatus` IN ('paused', 'broken') THEN `ScheduleStatus`
            WHEN `PlannedOn` IS NULL THEN 'new'
            WHEN `CurrentRunId` IS NOT NULL OR `LastStatus` = 'processing' THEN 'open'
            WHEN `LastStatus` IN ('success', 'cancelled', 'expired') OR `QuarantinedOn` IS NOT NULL
                OR `LastStatus` IN ('failed', 'timeout') AND `FailedRetries` >= COALESCE(`RetryLimit`, `MaxRetries`, 1000001) THEN 'settled'
            WHEN `ScheduleId` IS NULL THEN 'new'
            WHEN `LastStatus` = 'scheduled' AND `Attempts` = 0 THEN 'waiting'
            ELSE 'open' END) STORED,
    KEY `TaskQueueDue` (`DueOn`, `Id`),
    KEY `TaskQueuePriorityDue` (`PriorityDueOn`, `Id`),
    KEY `TaskQueueByStatus` (`LastStatus`, `Finished`, `StatusOn`, `Id`),
    KEY `TaskQueueByClass` (`TaskClass`, `LastStatus`, `ScheduledOn`, `Id`),
    KEY `TaskQueueStartBefore` (`LiveStartBefore`, `Id`),
    KEY `TaskQueueQuarantined` (`QuarantinedOn`, `Id`),
    KEY `TaskQueueScheduleHead` (`ScheduleHead`, `ScheduledOn`, `Id`),
    KEY `TaskQueueExpires` (`ExpiresOn`, `Id`),
    UNIQUE KEY `TaskQueuePlanned` (`ScheduleId`, `PlannedOn`),
    CONSTRAINT `QueuedOn lies in the years 1000 to 9999`
        CHECK (`QueuedOn` >= '1000-01-01'),
    CONSTRAINT `UpdatedOn lies in the years 1000 to 9999`
        CHECK (`UpdatedOn` >= '1000-01-01'),
    CONSTRAINT `ScheduledOn lies in the years 1000 to 9999`
        CHECK (`ScheduledOn` >= '1000-01-01'),
    CONSTRAINT `NextAttemptOn lies in the years 1000 to 9999`
        CHECK (`NextAttemptOn` IS NULL OR `NextAttemptOn` >= '1000-01-01'),
    CONSTRAINT `StartBefore lies in the years 1000 to 9999`
        CHECK (`StartBefore` IS NULL OR `StartBefore` >= '1000-01-01'),
    CONSTRAINT `PlannedOn lies in the years 1000 to 9999`
        CHECK (`PlannedOn` IS NULL OR `PlannedOn` >= '1000-01-01'),
    CONSTRAINT `UniqueUntil lies in the years 1000 to 9999`
        CHECK (`UniqueUntil` IS NULL OR `UniqueUntil` >= '1000-01-01'),
    CONSTRAINT `QuarantinedOn lies in the years 1000 to 9999`
        CHECK (`QuarantinedOn` IS NULL OR `QuarantinedOn` >= '1000-01-01'),
    CONSTRAINT `TaskClass has 1 to 190 letters, digits and _ . : - or backslash`
        CHECK (char_length(`TaskClass`) BETWEEN 1 AND 190
            AND `TaskClass` NOT REGEXP '[^-A-Za-z0-9_.:\\\\]'
            AND LEFT(`TaskClass`, 1) <> '-' AND LOCATE('..', `TaskClass`) = 0),
    CONSTRAINT `TaskData is JSON`
        CHECK (json_valid(`TaskData`)),
    CONSTRAINT `LastStatus is known`
        CHECK (`LastStatus` IN ('scheduled', 'processing', 'success', 'failed', 'timeout', 'cancelled', 'expired')),
    CONSTRAINT `MaxRetries lies in 1 to 1000000`
        CHECK (`MaxRetries` IS NULL OR `MaxRetries` BETWEEN 1 AND 1000000),
    CONSTRAINT `RetryLimit lies in 1 to 1000000`
        CHECK (`RetryLimit` IS NULL OR `RetryLimit` BETWEEN 1 AND 1000000),
    CONSTRAINT `FailedRetries lies in 0 to 1000000000`
        CHECK (`FailedRetries` BETWEEN 0 AND 1000000000),
    CONSTRAINT `Attempts lies in 0 to 1000000000`
        CHECK (`Attempts` BETWEEN 0 AND 1000000000),
    CONSTRAINT `Priority lies in -1000 to 1000`
        CHECK (`Priority` BETWEEN -1000 AND 1000),
    CONSTRAINT `Timeout lies in 1 to 31536000 seconds`
        CHECK (`Timeout` IS NULL OR `Timeout` BETWEEN 1 AND 31536000),
    CONSTRAINT `WaitingFor lies in 0 to 1000000000`
        CHECK (`WaitingFor` BETWEEN 0 AND 1000000000),
    CONSTRAINT `Backoff has 1 to 250 printable ASCII characters`
        CHECK (`Backoff` IS NULL OR char_length(`Backoff`) BETWEEN 1 AND 250 AND `Backoff` NOT REGEXP '[^ -~]'),
    CONSTRAINT `ParentId is 1 or more`
        CHECK (`ParentId` IS NULL OR `ParentId` >= 1),
    CONSTRAINT `Receipt has 1 to 64 printable ASCII characters`
        CHECK (`Receipt` IS NULL OR char_length(`Receipt`) BETWEEN 1 AND 64 AND `Receipt` NOT REGEXP '[^ -~]'),
    CONSTRAINT `Keep lies in 0 to 2000000000 seconds`
        CHECK (`Keep` IS NULL OR `Keep` BETWEEN 0 AND 2000000000),
    CONSTRAINT `ClassKeep lies in 0 to 2000000000 seconds`
        CHECK (`ClassKeep` IS NULL OR `ClassKeep` BETWEEN 0 AND 2000000000),
    CONSTRAINT `KeepResults lies in 0 to 2000000000 seconds`
        CHECK (`KeepResults` IS NULL OR `KeepResults` BETWEEN 0 AND 2000000000),
    CONSTRAINT `Meta is a JSON object`
        CHECK (`Meta` IS NULL OR json_valid(`Meta`) AND `Meta` REGEXP '^[[:space:]]*[{]'),
    CONSTRAINT `Recurrence has 1 to 190 printable ASCII characters`
        CHECK (`Recurrence` IS NULL OR char_length(`Recurrence`) BETWEEN 1 AND 190 AND `Recurrence` NOT REGEXP '[^ -~]'),
    CONSTRAINT `TimeZone has 1 to 190 printable ASCII characters`
        CHECK (char_length(`TimeZone`) BETWEEN 1 AND 190 AND `TimeZone` NOT REGEXP '[^ -~]'),
    CONSTRAINT `Crashes lies in 0 to 1000000000`
        CHECK (`Crashes` BETWEEN 0 AND 1000000000),
    CONSTRAINT `UniqueKey has 1 to 190 printable ASCII characters`
        CHECK (`UniqueKey` IS NULL OR char_length(`UniqueKey`) BETWEEN 1 AND 190 AND `UniqueKey` NOT REGEXP '[^ -~]'
            AND LEFT(`UniqueKey`, 1) <> ' ' AND RIGHT(`UniqueKey`, 1) <> ' '),
    CONSTRAINT `LimitKey has 1 to 190 printable ASCII characters`
        CHECK (`LimitKey` IS NULL OR char_length(`LimitKey`) BETWEEN 1 AND 190 AND `LimitKey` NOT REGEXP '[^ -~]'
            AND LEFT(`LimitKey`, 1) <> ' ' AND RIGHT(`LimitKey`, 1) <> ' '),
    CONSTRAINT `Tag has 1 to 190 printable ASCII characters`
        CHECK (`Tag` IS NULL OR char_length(`Tag`) BETWEEN 1 AND 190 AND `Tag` NOT REGEXP '[^ -~]'
            AND LEFT(`Tag`, 1) <> ' ' AND RIGHT(`Tag`, 1) <> ' '),
    CONSTRAINT `Name has 1 to 190 characters and no control characters`
        CHECK (`Name` IS NULL OR char_length(`Name`) BETWEEN 1 AND 190 AND `Name` NOT REGEXP '[[:cntrl:]]'
            AND LEFT(`Name`, 1) <> ' ' AND RIGHT(`Name`, 1) <> ' '),
    CONSTRAINT `CatchUp is known`
        CHECK (`CatchUp` IN ('none', 'latest', 'all')),
    CONSTRAINT `Overlap is known`
        CHECK (`Overlap` IN ('wait', 'replace')),
    CONSTRAINT `Overlap is wait if CatchUp is all`
        CHECK (`Overlap` = 'wait' OR `CatchUp` <> 'all'),
    CONSTRAINT `ScheduleStatus is known`
        CHECK (`ScheduleStatus` IN ('active', 'paused', 'broken', 'followed', 'ended'))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueDependencies` (
    `TaskId` bigint NOT NULL,
    `DependsOnId` bigint NOT NULL,
    `IsSatisfied` boolean NOT NULL DEFAULT 0,
    `NeedsSuccess` boolean NOT NULL DEFAULT 1,
    `AwaitedEnd` bigint GENERATED ALWAYS AS (
        CASE WHEN `IsSatisfied` = 0 AND `NeedsSuccess` = 0 THEN `DependsOnId` END) STORED,
    PRIMARY KEY (`TaskId`, `DependsOnId`),
    KEY `TaskQueueDependants` (`DependsOnId`, `TaskId`),
    KEY `TaskQueueAwaitedEnds` (`AwaitedEnd`),
    CONSTRAINT `A task does not wait for itself`
        CHECK (`TaskId` <> `DependsOnId`),
    CONSTRAINT `IsSatisfied is 0 or 1`
        CHECK (`IsSatisfied` IN (0, 1)),
    CONSTRAINT `NeedsSuccess is 0 or 1`
        CHECK (`NeedsSuccess` IN (0, 1))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueRuns` (
    `Id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `TaskQueueId` bigint NOT NULL,
    `TaskClass` varchar(190) NOT NULL,
    `Priority` int NOT NULL DEFAULT 0,
    `Attempt` int NOT NULL DEFAULT 1,
    `CreatedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `StartedOn` datetime(6),
    `PercentsCompleted` int NOT NULL DEFAULT 0,
    `ProgressMessage` varchar(1000) NOT NULL DEFAULT '',
    `FinishedOn` datetime(6),
    `Results` longtext,
    `Status` varchar(16) NOT NULL DEFAULT 'scheduled',
    `ErrorCode` varchar(190) NOT NULL DEFAULT '',
    `ErrorMessage` mediumtext NOT NULL DEFAULT (''),
    `Decision` varchar(190) NOT NULL DEFAULT '',
    `ProcessId` bigint,
    `RunnerId` bigint,
    `Claimant` varchar(190),
    `Token` varchar(64),
    `Host` varchar(190) NOT NULL DEFAULT '',
    `ProcessIdentity` varchar(190) NOT NULL DEFAULT '',
    `LeaseExpiresOn` datetime(6),
    `HandlerProcessId` bigint,
    `HandlerIdentity` varchar(190) NOT NULL DEFAULT '',
    `CpuMsecs` bigint,
    `PeakMemoryBytes` bigint,
    `CancelRequestedOn` datetime(6),
    `CancelReason` varchar(1000) NOT NULL DEFAULT '',
    `FollowedOn` datetime(6),
    `LimitKey` varchar(190),
    `Tag` varchar(190),
    `HasKeySlot` boolean NOT NULL DEFAULT 0,
    `LinedUpOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `KeepResults` int,
    `UpdatedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `ResultsOn` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN `Results` IS NOT NULL AND `KeepResults` IS NULL THEN `FinishedOn` END) STORED,
    `ResultsExpireOn` datetime(6) GENERATED ALWAYS AS (
        CASE WHEN `Results` IS NOT NULL AND `KeepResults` > 0 AND `FinishedOn` < '9900-01-01'
            THEN `FinishedOn` + INTERVAL `KeepResults` SECOND END) STORED,
    `OpenTaskId` bigint GENERATED ALWAYS AS (
        CASE WHEN `Status` IN ('scheduled', 'processing') THEN `TaskQueueId` END) STORED,
    `ClaimClass` varchar(190) GENERATED ALWAYS AS (
        CASE WHEN `Status` = 'scheduled' AND (`LimitKey` IS NULL OR `HasKeySlot`) THEN `TaskClass` END) STORED,
    `ClaimOrder` int GENERATED ALWAYS AS (-`Priority`) STORED,
    `WaitingOrder` int GENERATED ALWAYS AS (
        CASE WHEN `Status` = 'scheduled' AND (`LimitKey` IS NULL OR `HasKeySlot`) THEN -`Priority` END) STORED,
    `RunningClass` varchar(190) GENERATED ALWAYS AS (CASE WHEN `Status` = 'processing' THEN `TaskClass` END) STORED,
    `WaitingKey` varchar(190) GENERATED ALWAYS AS (
        CASE WHEN `Status` = 'scheduled' AND NOT `HasKeySlot` THEN `LimitKey` END) STORED,
    `HeldKey` varchar(190) GENERATED ALWAYS AS (
        CASE WHEN `Status` IN ('scheduled', 'processing') AND `HasKeySlot` THEN `LimitKey` END) STORED,
    `WaitingTag` varchar(190) GENERATED ALWAYS AS (
        CASE WHEN `Status` = 'scheduled' AND (`LimitKey` IS NULL OR `HasKeySlot`) THEN `Tag` END) STORED,
    CONSTRAINT `A run is finished if and only if it has FinishedOn`
        CHECK ((`Status` IN ('scheduled', 'processing')) = (`FinishedOn` IS NULL)),
    CONSTRAINT `A processing run has StartedOn, Token and LeaseExpiresOn`
        CHECK (`Status` <> 'processing' OR (`StartedOn` IS NOT NULL AND `Token` IS NOT NULL AND `LeaseExpiresOn` IS NOT NULL)),
    UNIQUE KEY `TaskQueueRunsOpen` (`OpenTaskId`),
    KEY `TaskQueueRunsClaim` (`ClaimClass`, `ClaimOrder`, `LinedUpOn`, `Id`),
    KEY `TaskQueueRunsWaiting` (`WaitingOrder`, `LinedUpOn`, `Id`),
    KEY `TaskQueueRunsByTask` (`TaskQueueId`, `Id`),
    KEY `TaskQueueRunsRunning` (`RunningClass`, `Id`),
    KEY `TaskQueueRunsWaitingKey` (`WaitingKey`, `ClaimOrder`, `Id`),
    KEY `TaskQueueRunsHeldKey` (`HeldKey`, `ClaimOrder`, `Id`),
    KEY `TaskQueueRunsWaitingTag` (`WaitingTag`, `ClaimClass`, `ClaimOrder`, `LinedUpOn`, `Id`),
    KEY `TaskQueueRunsResults` (`ResultsOn`, `Id`),
    KEY `TaskQueueRunsResultsExpire` (`ResultsExpireOn`, `Id`),
    CONSTRAINT `Attempt lies in 1 to 2147483647`
        CHECK (`Attempt` >= 1),
    CONSTRAINT `Claimant has 1 to 190 characters`
        CHECK (`Claimant` IS NULL OR char_length(`Claimant`) BETWEEN 1 AND 190),
    CONSTRAINT `LinedUpOn lies in the years 1000 to 9999`
        CHECK (`LinedUpOn` >= '1000-01-01'),
    CONSTRAINT `KeepResults of a run lies in 0 to 2000000000 seconds`
        CHECK (`KeepResults` IS NULL OR `KeepResults` BETWEEN 0 AND 2000000000),
    CONSTRAINT `PercentsCompleted lies in 0 to 100`
        CHECK (`PercentsCompleted` BETWEEN 0 AND 100),
    CONSTRAINT `Results is JSON`
        CHECK (`Results` IS NULL OR json_valid(`Results`)),
    CONSTRAINT `Status is known`
        CHECK (`Status` IN ('scheduled', 'processing', 'success', 'error', 'timeout', 'cancelled', 'released')),
    CONSTRAINT `CreatedOn of a run lies in the years 1000 to 9999`
        CHECK (`CreatedOn` >= '1000-01-01'),
    CONSTRAINT `StartedOn of a run lies in the years 1000 to 9999`
        CHECK (`StartedOn` IS NULL OR `StartedOn` >= '1000-01-01'),
    CONSTRAINT `FinishedOn of a run lies in the years 1000 to 9999`
        CHECK (`FinishedOn` IS NULL OR `FinishedOn` >= '1000-01-01'),
    CONSTRAINT `LeaseExpiresOn of a run lies in the years 1000 to 9999`
        CHECK (`LeaseExpiresOn` IS NULL OR `LeaseExpiresOn` >= '1000-01-01'),
    CONSTRAINT `CancelRequestedOn of a run lies in the years 1000 to 9999`
        CHECK (`CancelRequestedOn` IS NULL OR `CancelRequestedOn` >= '1000-01-01'),
    CONSTRAINT `FollowedOn of a run lies in the years 1000 to 9999`
        CHECK (`FollowedOn` IS NULL OR `FollowedOn` >= '1000-01-01'),
    CONSTRAINT `UpdatedOn of a run lies in the years 1000 to 9999`
        CHECK (`UpdatedOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueRunners` (
    `Id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `ProcessId` bigint NOT NULL,
    `StartedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `FinishedOn` datetime(6),
    `Host` varchar(190) NOT NULL DEFAULT '',
    `ProcessIdentity` varchar(190) NOT NULL DEFAULT '',
    `Slots` int NOT NULL DEFAULT 1,
    `HeartbeatOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `HeartbeatBootMs` bigint NULL,
    `Version` varchar(190) NOT NULL DEFAULT '',
    `Name` varchar(190) NOT NULL DEFAULT '',
    `Classes` mediumtext,
    KEY `TaskQueueRunnersByEnd` (`FinishedOn`, `Id`),
    CONSTRAINT `Slots lies in 1 to 2147483647`
        CHECK (`Slots` >= 1),
    CONSTRAINT `StartedOn of a runner lies in the years 1000 to 9999`
        CHECK (`StartedOn` >= '1000-01-01'),
    CONSTRAINT `FinishedOn of a runner lies in the years 1000 to 9999`
        CHECK (`FinishedOn` IS NULL OR `FinishedOn` >= '1000-01-01'),
    CONSTRAINT `HeartbeatOn of a runner lies in the years 1000 to 9999`
        CHECK (`HeartbeatOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueRunOutputs` (
    `RunId` bigint NOT NULL,
    `Stream` varchar(16) NOT NULL,
    `Content` longtext NOT NULL,
    `TotalBytes` bigint NOT NULL,
    `IsLossy` boolean NOT NULL DEFAULT 0,
    PRIMARY KEY (`RunId`, `Stream`),
    CONSTRAINT `Stream is known`
        CHECK (`Stream` IN ('stdout', 'stderr')),
    CONSTRAINT `IsLossy is 0 or 1`
        CHECK (`IsLossy` IN (0, 1))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueRejections` (
    `TaskId` bigint NOT NULL,
    `Claimant` varchar(190) NOT NULL,
    `RejectedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `Timeouts` int NOT NULL DEFAULT 0,
    `HeldUntil` datetime(6),
    PRIMARY KEY (`TaskId`, `Claimant`),
    CONSTRAINT `Timeouts lies in 0 to 2147483647`
        CHECK (`Timeouts` >= 0),
    CONSTRAINT `RejectedOn of a rejection lies in the years 1000 to 9999`
        CHECK (`RejectedOn` >= '1000-01-01'),
    CONSTRAINT `HeldUntil of a rejection lies in the years 1000 to 9999`
        CHECK (`HeldUntil` IS NULL OR `HeldUntil` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueEvents` (
    `Id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `OccurredOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `Kind` varchar(190) NOT NULL,
    `TaskQueueId` bigint,
    `RunId` bigint,
    `Actor` varchar(190) NOT NULL DEFAULT '',
    `Host` varchar(190) NOT NULL DEFAULT '',
    `Details` longtext NOT NULL DEFAULT ('{}'),
    KEY `TaskQueueEventsByTask` (`TaskQueueId`, `Id`),
    KEY `TaskQueueEventsByKind` (`Kind`, `Id`),
    CONSTRAINT `Details is JSON`
        CHECK (json_valid(`Details`)),
    CONSTRAINT `OccurredOn of an event lies in the years 1000 to 9999`
        CHECK (`OccurredOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueClassHolds` (
    `TaskClass` varchar(190) NOT NULL,
    `Host` varchar(190) NOT NULL,
    `Reason` mediumtext NOT NULL,
    `HeldOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `HeldUntil` datetime(6) NOT NULL,
    PRIMARY KEY (`TaskClass`, `Host`),
    CONSTRAINT `HeldOn of a hold lies in the years 1000 to 9999`
        CHECK (`HeldOn` >= '1000-01-01'),
    CONSTRAINT `HeldUntil of a hold lies in the years 1000 to 9999`
        CHECK (`HeldUntil` >= '1000-01-01'),
    CONSTRAINT `TaskClass of a hold is the name of a class`
        CHECK (char_length(`TaskClass`) BETWEEN 1 AND 190
            AND `TaskClass` NOT REGEXP '[^-A-Za-z0-9_.:\\\\]'
            AND LEFT(`TaskClass`, 1) <> '-' AND LOCATE('..', `TaskClass`) = 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueuePauses` (
    `Scope` varchar(16) NOT NULL,
    `Name` varchar(190) NOT NULL DEFAULT '',
    `Mode` varchar(16) NOT NULL DEFAULT 'pause',
    `Reason` mediumtext NOT NULL DEFAULT (''),
    `Author` varchar(190) NOT NULL DEFAULT '',
    `Host` varchar(190) NOT NULL DEFAULT '',
    `CreatedOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `Until` datetime(6),
    PRIMARY KEY (`Scope`, `Name`),
    CONSTRAINT `Scope is known`
        CHECK (`Scope` IN ('all', 'class', 'runner')),
    CONSTRAINT `Mode is known`
        CHECK (`Mode` IN ('pause', 'drain', 'stop')),
    CONSTRAINT `CreatedOn lies in the years 1000 to 9999`
        CHECK (`CreatedOn` >= '1000-01-01'),
    CONSTRAINT `Until lies in the years 1000 to 9999`
        CHECK (`Until` IS NULL OR `Until` >= '1000-01-01'),
    CONSTRAINT `A pause has a Name if and only if it is not of all`
        CHECK ((`Scope` = 'all') = (`Name` = ''))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueClassLimits` (
    `TaskClass` varchar(190) NOT NULL PRIMARY KEY,
    `MaxRunning` int,
    `RateCount` int,
    `RateSecs` int,
    CONSTRAINT `MaxRunning lies in 1 to 1000000`
        CHECK (`MaxRunning` IS NULL OR `MaxRunning` BETWEEN 1 AND 1000000),
    CONSTRAINT `RateCount lies in 1 to 10000`
        CHECK (`RateCount` IS NULL OR `RateCount` BETWEEN 1 AND 10000),
    CONSTRAINT `RateSecs lies in 1 to 86400`
        CHECK (`RateSecs` IS NULL OR `RateSecs` BETWEEN 1 AND 86400),
    CONSTRAINT `A rate has RateCount and RateSecs`
        CHECK ((`RateCount` IS NULL) = (`RateSecs` IS NULL)),
    CONSTRAINT `TaskClass of a limit is the name of a class`
        CHECK (char_length(`TaskClass`) BETWEEN 1 AND 190
            AND `TaskClass` NOT REGEXP '[^-A-Za-z0-9_.:\\\\]'
            AND LEFT(`TaskClass`, 1) <> '-' AND LOCATE('..', `TaskClass`) = 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueStarts` (
    `TaskClass` varchar(190) NOT NULL,
    `StartedOn` datetime(6) NOT NULL,
    `RunId` bigint NOT NULL,
    PRIMARY KEY (`TaskClass`, `StartedOn`, `RunId`),
    CONSTRAINT `StartedOn of a start lies in the years 1000 to 9999`
        CHECK (`StartedOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueKeyLimits` (
    `LimitKey` varchar(190) NOT NULL PRIMARY KEY,
    `MaxRunning` int NOT NULL,
    CONSTRAINT `A limited key has 1 to 190 printable ASCII characters`
        CHECK (char_length(`LimitKey`) BETWEEN 1 AND 190 AND `LimitKey` NOT REGEXP '[^ -~]'
            AND LEFT(`LimitKey`, 1) <> ' ' AND RIGHT(`LimitKey`, 1) <> ' '),
    CONSTRAINT `A limited key has MaxRunning of 1 to 1000`
        CHECK (`MaxRunning` BETWEEN 1 AND 1000)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueSettings` (
    `Name` varchar(190) NOT NULL PRIMARY KEY,
    `Value` varchar(190) NOT NULL,
    CONSTRAINT `Value is a whole number in the range of its setting` CHECK (
        `Value` REGEXP '^[0-9]{1,10}$' AND CASE `Name`
            WHEN 'TaskQueueRunnerLimit' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 10000
            WHEN 'TaskQueueRunTimeout' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 31536000
            WHEN 'TaskQueueMaxRetries' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueMaxRetriesCap' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueRetryDelay' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 86400
            WHEN 'TaskQueueRetryDelayMax' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 2592000
            WHEN 'TaskQueueCrashLimit' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueClaimTimeoutLimit' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 1000000
            WHEN 'TaskQueueHoldTime' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 86400
            WHEN 'TaskQueueLeaseTime' THEN CAST(`Value` AS SIGNED) BETWEEN 5 AND 86400
            WHEN 'TaskQueueLeaseRenewal' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 3600
            WHEN 'TaskQueueLeaseMargin' THEN CAST(`Value` AS SIGNED) BETWEEN 1 AND 3600
            WHEN 'TaskQueueMaxDataBytes' THEN CAST(`Value` AS SIGNED) BETWEEN 2 AND 8388608
            WHEN 'TaskQueueScheduleGrace' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 604800
            WHEN 'TaskQueueAuditTransitions' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 1
            WHEN 'TaskQueueKeepSuccess' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepCancelled' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepFailed' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepOutputs' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepResults' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueKeepRunners' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 36500
            WHEN 'TaskQueueMaxSuccess' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxCancelled' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 1000000000
            WHEN 'TaskQueueMaxFailed' THEN CAST(`Value` AS SIGNED) BETWEEN 0 AND 1000000000
            ELSE TRUE
        END)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO `TaskQueueSettings` (`Name`, `Value`) VALUES
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

CREATE TABLE IF NOT EXISTS `TaskQueueSchedules` (
    `Name` varchar(190) NOT NULL PRIMARY KEY,
    `ScheduleId` bigint,
    `Definition` longtext,
    `ConfiguredOn` datetime(6) NOT NULL,
    `Host` varchar(190) NOT NULL,
    `File` varchar(4096) NOT NULL,
    CONSTRAINT `ConfiguredOn of a schedule lies in the years 1000 to 9999`
        CHECK (`ConfiguredOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueReceipts` (
    `Token` varchar(64) NOT NULL PRIMARY KEY,
    `WrittenOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY `TaskQueueReceiptsByTime` (`WrittenOn`),
    CONSTRAINT `WrittenOn of a receipt lies in the years 1000 to 9999`
        CHECK (`WrittenOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueNotices` (
    `Id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `OccurredOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `Kind` varchar(190) NOT NULL,
    `TaskQueueId` bigint,
    `RunId` bigint,
    `TaskClass` varchar(190) NOT NULL DEFAULT '',
    `Host` varchar(190) NOT NULL DEFAULT '',
    `ErrorCode` varchar(190) NOT NULL DEFAULT '',
    `ErrorMessage` mediumtext NOT NULL DEFAULT (''),
    CONSTRAINT `OccurredOn of a notice lies in the years 1000 to 9999`
        CHECK (`OccurredOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `TaskQueueTimers` (
    `Name` varchar(190) NOT NULL PRIMARY KEY,
    `NextOn` datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    CONSTRAINT `NextOn of a timer lies in the years 1000 to 9999`
        CHECK (`NextOn` >= '1000-01-01')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO `TaskQueueTimers` (`Name`) VALUES ('notify'), ('notify-host');

CREATE TABLE IF NOT EXISTS `TaskQueueLocks` (
    `Name` varchar(190) NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO `TaskQueueLocks` (`Name`) VALUES ('create-runs'), ('register'), ('notify');
