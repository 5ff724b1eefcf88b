-- Statements for a worker that uses SQL on MySQL or MariaDB instead of `taskqueue worker claim` and the verbs after it
-- (docs/workers.md). Use the isolation level READ COMMITTED. Row 0 never exists: selecting it locks the tables in the same order
-- as a claim.
--
-- Replace {claimant} with the name of the worker, {class} with its task class, and {secret} with 32 random hexadecimal digits,
-- new ones for each claim. {run}, {task} and {token} are the ids and the token that the claim returned. 86400 is the setting
-- TaskQueueRunTimeout. The worker has the run as long as the heartbeat changes one row.

-- step: claim. First it takes back up to 20 runs of claimants whose deadline has passed, and creates the runs of up to 1000 due
-- tasks. Only the program rescues runs of runners, because it must first end their surviving handlers. Only create-runs creates
-- the first run of a task of a schedule (ScheduleHead), because it first skips missed times
-- While the server was down, no claimant could renew.
SET @up = (SELECT VARIABLE_VALUE FROM /*!50708 performance_schema.global_status */ /*M! information_schema.GLOBAL_STATUS */
    WHERE VARIABLE_NAME = 'Uptime');
SET @retries = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetries');
SET @cap = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetriesCap');
SET @hold = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueHoldTime');
SET @limit = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueClaimTimeoutLimit');
SET @lease = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueLeaseTime');
-- Takes no locks, so that only rows that are written are locked; SET would lock the runs, unless the level is READ COMMITTED.
SELECT JSON_ARRAYAGG(o.`Id`) INTO @expired FROM (SELECT r.`Id` FROM `TaskQueueRuns` AS r
    WHERE r.`RunningClass` IS NOT NULL AND r.`Claimant` IS NOT NULL AND r.`LeaseExpiresOn` < UTC_TIMESTAMP(6) AND @up + 0 >= @lease + 0
    ORDER BY r.`LeaseExpiresOn`, r.`Id` LIMIT 20) AS o;
START TRANSACTION;
-- Takes the metadata lock of the tasks before that of the runs, as every transaction does. The row does not exist.
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE (SELECT j.`Id` FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS j) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id`
SET r.`Decision` = CONCAT(IF(r.`CancelRequestedOn` IS NULL, '', 'cancelled; '), 'lease-expired: retry'),
    r.`FinishedOn` = UTC_TIMESTAMP(6), r.`ErrorCode` = 'lease-expired',
    r.`ErrorMessage` = CONCAT('the claimant ', r.`Claimant`, ' on ', r.`Host`, ' has not renewed its lease'),
    r.`Status` = IF(r.`CancelRequestedOn` IS NULL, 'timeout', 'cancelled'), r.`LeaseExpiresOn` = NULL, r.`UpdatedOn` = UTC_TIMESTAMP(6)
WHERE r.`Status` = 'processing' AND r.`LeaseExpiresOn` < UTC_TIMESTAMP(6);
-- Finds tasks that still have a run that has ended: they exist only inside this transaction.
-- RetryLimit stores the number that applied, if it comes from the settings and not from the task.
UPDATE (SELECT j.`Id` FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS j) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
SET t.`RetryLimit` = LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0)
WHERE r.`Status` = 'timeout' AND t.`CurrentRunId` = r.`Id`
    AND t.`FailedRetries` + 1 >= LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0) AND COALESCE(t.`MaxRetries`, 0) <> LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0);
INSERT INTO `TaskQueueNotices` (`Kind`, `TaskQueueId`, `RunId`, `TaskClass`, `Host`, `ErrorCode`, `ErrorMessage`)
SELECT 'exhausted', t.`Id`, r.`Id`, t.`TaskClass`, r.`Host`, r.`ErrorCode`, r.`ErrorMessage`
FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
WHERE r.`Status` = 'timeout' AND t.`CurrentRunId` = r.`Id` AND t.`FailedRetries` + 1 >= COALESCE(t.`RetryLimit`, t.`MaxRetries`, 1000001);
-- Other claimants get the task first. After TaskQueueClaimTimeoutLimit missed deadlines, the task counts as rejected.
INSERT INTO `TaskQueueRejections` (`TaskId`, `Claimant`, `Timeouts`, `HeldUntil`)
SELECT t.`Id`, r.`Claimant`, 1, IF(@limit + 0 > 1, UTC_TIMESTAMP(6) + INTERVAL @hold SECOND, NULL)
FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
WHERE r.`Status` = 'timeout' AND t.`CurrentRunId` = r.`Id`
ON DUPLICATE KEY UPDATE `HeldUntil` = IF(`TaskQueueRejections`.`HeldUntil` IS NOT NULL
        AND `TaskQueueRejections`.`Timeouts` + 1 < @limit + 0, UTC_TIMESTAMP(6) + INTERVAL @hold SECOND, NULL),
    `Timeouts` = `TaskQueueRejections`.`Timeouts` + 1;
-- SQL does not compute backoffs: a task with a backoff waits for ten minutes, or until a later time that an edit has set.
UPDATE (SELECT j.`Id` FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS j) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
SET t.`NextAttemptOn` = IF(t.`Backoff` IS NULL OR r.`Status` <> 'timeout', t.`NextAttemptOn`, GREATEST(t.`ScheduledOn`, UTC_TIMESTAMP(6) + INTERVAL 600 SECOND)),
    t.`LastStatus` = r.`Status`, t.`FailedRetries` = LEAST(t.`FailedRetries` + (r.`Status` = 'timeout'), 1000000000), t.`Attempts` = LEAST(t.`Attempts` + 1, 1000000000),
    t.`CurrentRunId` = NULL, t.`UpdatedOn` = UTC_TIMESTAMP(6)
WHERE r.`Status` IN ('timeout', 'cancelled') AND t.`CurrentRunId` = r.`Id`;
COMMIT;
SET autocommit = 0;
LOCK TABLES `TaskQueueRuns` WRITE, `TaskQueue` WRITE, `TaskQueueRuns` AS r READ, `TaskQueue` AS t READ,
    `TaskQueueRejections` AS x READ, `TaskQueueClassLimits` AS l READ, `TaskQueueStarts` WRITE;
INSERT INTO `TaskQueueRuns` (`TaskQueueId`, `TaskClass`, `Priority`, `Attempt`, `LimitKey`, `Tag`)
SELECT d.`Id`, d.`TaskClass`, d.`Priority`, d.`Attempts` + 1, d.`LimitKey`, d.`Tag`
FROM (SELECT t.`Id`, t.`TaskClass`, t.`Priority`, t.`Attempts`, t.`LimitKey`, t.`Tag`, t.`DueOn` FROM `TaskQueue` AS t
    WHERE t.`DueOn` <= UTC_TIMESTAMP(6) AND COALESCE(t.`ScheduleHead`, '') NOT IN ('new', 'waiting')
    ORDER BY t.`DueOn`, t.`Id` LIMIT 1000) AS d
LEFT JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id` WHERE r.`Id` IS NULL ORDER BY d.`DueOn`, d.`Id`;
UPDATE (SELECT t.`Id` FROM `TaskQueue` AS t
    WHERE t.`DueOn` <= UTC_TIMESTAMP(6) AND COALESCE(t.`ScheduleHead`, '') NOT IN ('new', 'waiting')
    ORDER BY t.`DueOn`, t.`Id` LIMIT 1000) AS d
    JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id` AND r.`Status` = 'scheduled' JOIN `TaskQueue` ON `TaskQueue`.`Id` = d.`Id`
SET `TaskQueue`.`CurrentRunId` = r.`Id`, `TaskQueue`.`UpdatedOn` = UTC_TIMESTAMP(6);
SET @run = (SELECT r.`Id` FROM `TaskQueueRuns` AS r WHERE r.`ClaimClass` = '{class}'
    AND EXISTS (SELECT 1 FROM `TaskQueue` AS t WHERE t.`Id` = r.`TaskQueueId` AND t.`LastStatus` NOT IN ('cancelled', 'expired')
        AND (t.`StartBefore` IS NULL OR t.`StartBefore` > UTC_TIMESTAMP(6)))
    AND (SELECT x.`TaskId` FROM `TaskQueueRejections` AS x WHERE x.`TaskId` = r.`TaskQueueId` AND x.`Claimant` = '{claimant}'
        AND (x.`HeldUntil` IS NULL OR x.`HeldUntil` > UTC_TIMESTAMP(6))) IS NULL
    ORDER BY r.`ClaimClass`, r.`ClaimOrder`, r.`LinedUpOn`, r.`Id` LIMIT 1);
SET @task = (SELECT r.`TaskQueueId` FROM `TaskQueueRuns` AS r WHERE r.`Id` = @run);
SET @timeout = (SELECT COALESCE(t.`Timeout`, 86400) FROM `TaskQueue` AS t WHERE t.`Id` = @task);
UPDATE `TaskQueueRuns` SET `Status` = 'processing', `Claimant` = '{claimant}', `Token` = CONCAT(@run, '-{secret}'),
    `StartedOn` = UTC_TIMESTAMP(6), `UpdatedOn` = UTC_TIMESTAMP(6),
    `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL @timeout SECOND WHERE `Id` = @run;
UPDATE `TaskQueue` SET `LastStatus` = 'processing', `CurrentRunId` = @run, `UpdatedOn` = UTC_TIMESTAMP(6) WHERE `Id` = @task;
-- If the class has a rate, the start counts. No rate covers more than a day.
DELETE FROM `TaskQueueStarts` WHERE `TaskClass` = '{class}'
    AND (`StartedOn` < UTC_TIMESTAMP(6) - INTERVAL 1 DAY OR `StartedOn` > UTC_TIMESTAMP(6));
INSERT INTO `TaskQueueStarts` (`TaskClass`, `StartedOn`, `RunId`)
SELECT r.`TaskClass`, r.`StartedOn`, r.`Id` FROM `TaskQueueRuns` AS r WHERE r.`Id` = @run
    AND EXISTS (SELECT 1 FROM `TaskQueueClassLimits` AS l WHERE l.`TaskClass` = '{class}' AND l.`RateCount` IS NOT NULL);
COMMIT;
UNLOCK TABLES;
SET autocommit = 1;

-- step: what was claimed; no row if nothing was claimed
SELECT r.`Id`, r.`TaskQueueId`, r.`Token`, r.`Attempt`, r.`LeaseExpiresOn`, t.`TaskData`
FROM `TaskQueueRuns` AS r JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
WHERE r.`RunningClass` IS NOT NULL AND r.`Token` = CONCAT(r.`Id`, '-{secret}');

-- step: heartbeat, with progress; it changes no row if the run is lost
UPDATE `TaskQueueRuns` SET `PercentsCompleted` = 40, `ProgressMessage` = 'nearly half',
    `UpdatedOn` = UTC_TIMESTAMP(6),
    `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL (SELECT COALESCE(t.`Timeout`, 86400) FROM `TaskQueue` AS t
        WHERE t.`Id` = `TaskQueueRuns`.`TaskQueueId`) SECOND
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';

-- step: what the heartbeat answers. No row if the run is lost: stop the work, and end nothing. If CancelRequestedOn is set, a
-- cancel was requested: stop the work, and execute the step error. Every end except a success then becomes "cancelled"
SELECT `LeaseExpiresOn`, `CancelRequestedOn`, `CancelReason` FROM `TaskQueueRuns`
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';

-- step: success; the second UPDATE changes no row if the run is lost. The rest is for the tasks that
-- wait for this one. Every process locks them in the order of their ids
START TRANSACTION;
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE `TaskQueueRuns` SET `Status` = 'success', `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL,
    `Results` = '[3]', `KeepResults` = (SELECT t.`KeepResults` FROM `TaskQueue` AS t WHERE t.`Id` = {task}),
    `PercentsCompleted` = 100, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';
UPDATE `TaskQueue` SET `LastStatus` = 'success', `FailedRetries` = 0, `Crashes` = 0, `Attempts` = LEAST(`Attempts` + 1, 1000000000),
    `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'success' AND `Token` = '{token}');
SELECT 1 FROM (SELECT d.`TaskId` FROM `TaskQueueDependencies` AS d WHERE d.`DependsOnId` = {task} AND NOT d.`IsSatisfied`
    ORDER BY d.`TaskId` LIMIT 1000000000) AS w STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = w.`TaskId` FOR UPDATE;
UPDATE `TaskQueueDependencies` AS d JOIN `TaskQueue` AS p ON p.`Id` = d.`DependsOnId` JOIN `TaskQueue` AS t ON t.`Id` = d.`TaskId`
SET t.`WaitingFor` = GREATEST(t.`WaitingFor`, 1) - 1, t.`UpdatedOn` = UTC_TIMESTAMP(6), d.`IsSatisfied` = TRUE
WHERE d.`DependsOnId` = {task} AND NOT d.`IsSatisfied` AND p.`LastStatus` = 'success';
COMMIT;

-- step: error; the next attempt is due in ten minutes. A task without a retry left causes a notice
SET @retries = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetries');
SET @cap = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetriesCap');
START TRANSACTION;
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE `TaskQueueRuns` SET `Status` = CASE WHEN `CancelRequestedOn` IS NULL THEN 'error' ELSE 'cancelled' END,
    `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL,
    `ErrorCode` = 'smtp', `ErrorMessage` = '451 greylisted', `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';
UPDATE `TaskQueue` AS t JOIN `TaskQueueRuns` AS r ON r.`Id` = t.`CurrentRunId` SET t.`RetryLimit` = LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0)
WHERE t.`Id` = {task} AND r.`Id` = {run} AND r.`Status` = 'error' AND r.`Token` = '{token}'
    AND t.`FailedRetries` + 1 >= LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0) AND COALESCE(t.`MaxRetries`, 0) <> LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0);
INSERT INTO `TaskQueueNotices` (`Kind`, `TaskQueueId`, `RunId`, `TaskClass`, `Host`, `ErrorCode`, `ErrorMessage`)
SELECT 'exhausted', t.`Id`, r.`Id`, t.`TaskClass`, r.`Host`, r.`ErrorCode`, r.`ErrorMessage`
FROM `TaskQueue` AS t JOIN `TaskQueueRuns` AS r ON r.`Id` = t.`CurrentRunId`
WHERE t.`Id` = {task} AND t.`FailedRetries` + 1 >= COALESCE(t.`RetryLimit`, t.`MaxRetries`, 1000001)
    AND r.`Id` = {run} AND r.`Status` = 'error' AND r.`Token` = '{token}';
UPDATE `TaskQueue` SET `LastStatus` = 'failed', `FailedRetries` = LEAST(`FailedRetries` + 1, 1000000000), `Attempts` = LEAST(`Attempts` + 1, 1000000000),
    `CurrentRunId` = NULL, `NextAttemptOn` = GREATEST(`ScheduledOn`, UTC_TIMESTAMP(6) + INTERVAL 600 SECOND), `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'error' AND `Token` = '{token}');
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = LEAST(`Attempts` + 1, 1000000000), `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'cancelled' AND `Token` = '{token}');
COMMIT;

-- step: rejection
SET @retries = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetries');
SET @cap = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetriesCap');
START TRANSACTION;
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE `TaskQueueRuns` SET `Status` = CASE WHEN `CancelRequestedOn` IS NULL THEN 'error' ELSE 'cancelled' END,
    `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL,
    `ErrorCode` = 'rejected', `ErrorMessage` = 'no such disk', `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';
UPDATE `TaskQueue` AS t JOIN `TaskQueueRuns` AS r ON r.`Id` = t.`CurrentRunId` SET t.`RetryLimit` = LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0)
WHERE t.`Id` = {task} AND r.`Id` = {run} AND r.`Status` = 'error' AND r.`Token` = '{token}'
    AND t.`FailedRetries` + 1 >= LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0) AND COALESCE(t.`MaxRetries`, 0) <> LEAST(COALESCE(t.`MaxRetries`, @retries + 0), @cap + 0);
INSERT INTO `TaskQueueNotices` (`Kind`, `TaskQueueId`, `RunId`, `TaskClass`, `Host`, `ErrorCode`, `ErrorMessage`)
SELECT 'exhausted', t.`Id`, r.`Id`, t.`TaskClass`, r.`Host`, r.`ErrorCode`, r.`ErrorMessage`
FROM `TaskQueue` AS t JOIN `TaskQueueRuns` AS r ON r.`Id` = t.`CurrentRunId`
WHERE t.`Id` = {task} AND t.`FailedRetries` + 1 >= COALESCE(t.`RetryLimit`, t.`MaxRetries`, 1000001)
    AND r.`Id` = {run} AND r.`Status` = 'error' AND r.`Token` = '{token}';
UPDATE `TaskQueue` SET `LastStatus` = 'failed', `FailedRetries` = LEAST(`FailedRetries` + 1, 1000000000), `Attempts` = LEAST(`Attempts` + 1, 1000000000),
    `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'error' AND `Token` = '{token}');
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = LEAST(`Attempts` + 1, 1000000000), `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'cancelled' AND `Token` = '{token}');
INSERT INTO `TaskQueueRejections` (`TaskId`, `Claimant`)
SELECT r.`TaskQueueId`, r.`Claimant` FROM `TaskQueueRuns` AS r
WHERE r.`Id` = {run} AND r.`ErrorCode` = 'rejected' AND r.`Token` = '{token}'
ON DUPLICATE KEY UPDATE `HeldUntil` = NULL;
COMMIT;

-- step: release, at no cost, for a worker that shuts down. The task gets the status of its last counted attempt again
START TRANSACTION;
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE `TaskQueueRuns` SET `Status` = CASE WHEN `CancelRequestedOn` IS NULL THEN 'released' ELSE 'cancelled' END,
    `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL,
    `ErrorCode` = 'claimant-released', `ErrorMessage` = 'its claimant released it', `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';
UPDATE `TaskQueue` SET `LastStatus` = COALESCE((SELECT CASE r.`Status` WHEN 'error' THEN 'failed' WHEN 'timeout' THEN 'timeout' ELSE 'scheduled' END
        FROM `TaskQueueRuns` AS r WHERE r.`TaskQueueId` = {task} AND r.`Status` IN ('success', 'error', 'timeout', 'cancelled')
        ORDER BY r.`TaskQueueId` DESC, r.`Id` DESC LIMIT 1), 'scheduled'),
    `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'released' AND `Token` = '{token}');
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = LEAST(`Attempts` + 1, 1000000000), `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'cancelled' AND `Token` = '{token}');
COMMIT;
