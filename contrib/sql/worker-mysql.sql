-- A worker that speaks SQL to MySQL or MariaDB, in the place of `taskqueue claim` and the verbs after it (docs/workers.md).
-- In the isolation level READ COMMITTED. The row 0 is never there: asking for it takes the tables in the order in which the
-- claim does.
--
-- {claimant}: its name. {token}: 32 random hexadecimal digits, new for each claim. {class}: what it can do. {run}, {task}: what
-- the claim answered; 86400: the setting TaskQueueRunTimeout. A run is its own for as long as a heartbeat changes one row.

-- step: claim. First it takes back up to 20 runs of claimants whose time is over, and creates the runs of up to 1000 tasks that are
-- due. Runs of runners are left to the program, which ends what is left of their handlers
-- Read first, and without locks: only what is to be written is locked. While the server was away no claimant could renew.
SET @up = (SELECT VARIABLE_VALUE FROM /*!50708 performance_schema.global_status */ /*M! information_schema.GLOBAL_STATUS */
    WHERE VARIABLE_NAME = 'Uptime');
SET @retries = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetries');
SET @cap = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueMaxRetriesCap');
SET @hold = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueHoldTime');
SET @limit = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueClaimTimeoutLimit');
SET @lease = (SELECT `Value` FROM `TaskQueueSettings` WHERE `Name` = 'TaskQueueLeaseTime');
SET @expired = (SELECT JSON_ARRAYAGG(o.`Id`) FROM (SELECT r.`Id` FROM `TaskQueueRuns` AS r
    WHERE r.`RunningClass` IS NOT NULL AND r.`Claimant` IS NOT NULL AND r.`LeaseExpiresOn` < UTC_TIMESTAMP(6) AND @up + 0 >= @lease + 0
    ORDER BY r.`LeaseExpiresOn`, r.`Id` LIMIT 20) AS o);
START TRANSACTION;
-- Takes the metadata lock of the tasks before that of the runs, as every transaction does; there is no such row.
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE (SELECT j.`Id` FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS j) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id`
SET r.`Decision` = CONCAT(IF(r.`CancelRequestedOn` IS NULL, '', 'cancelled; '), 'lease-expired: retry'),
    r.`FinishedOn` = UTC_TIMESTAMP(6), r.`ErrorCode` = 'lease-expired',
    r.`ErrorMessage` = CONCAT('the claimant ', r.`Claimant`, ' on ', r.`Host`, ' has not renewed its lease'),
    r.`Status` = IF(r.`CancelRequestedOn` IS NULL, 'timeout', 'cancelled'), r.`LeaseExpiresOn` = NULL, r.`UpdatedOn` = UTC_TIMESTAMP(6)
WHERE r.`Status` = 'processing' AND r.`LeaseExpiresOn` < UTC_TIMESTAMP(6);
-- A task whose run has ended and which still has it: only inside of this transaction.
-- RetryLimit is the number that counted, where the settings and not the task say it.
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
-- Others get the task first; a claimant whose time with it ran out that often has rejected it.
INSERT INTO `TaskQueueRejections` (`TaskId`, `Claimant`, `Timeouts`, `HeldUntil`)
SELECT t.`Id`, r.`Claimant`, 1, IF(@limit + 0 > 1, UTC_TIMESTAMP(6) + INTERVAL @hold SECOND, NULL)
FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
WHERE r.`Status` = 'timeout' AND t.`CurrentRunId` = r.`Id`
ON DUPLICATE KEY UPDATE `HeldUntil` = IF(`TaskQueueRejections`.`HeldUntil` IS NOT NULL
        AND `TaskQueueRejections`.`Timeouts` + 1 < @limit + 0, UTC_TIMESTAMP(6) + INTERVAL @hold SECOND, NULL),
    `Timeouts` = `TaskQueueRejections`.`Timeouts` + 1;
-- A backoff is not computed in SQL: a task that states one waits for ten minutes.
UPDATE (SELECT j.`Id` FROM JSON_TABLE(@expired, '$[*]' COLUMNS (`Id` bigint PATH '$')) AS j) AS o
    STRAIGHT_JOIN `TaskQueueRuns` AS r ON r.`Id` = o.`Id` STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
SET t.`NextAttemptOn` = IF(t.`Backoff` IS NULL OR r.`Status` <> 'timeout', t.`NextAttemptOn`, UTC_TIMESTAMP(6) + INTERVAL 600 SECOND),
    t.`LastStatus` = r.`Status`, t.`FailedRetries` = t.`FailedRetries` + (r.`Status` = 'timeout'), t.`Attempts` = t.`Attempts` + 1,
    t.`CurrentRunId` = NULL, t.`UpdatedOn` = UTC_TIMESTAMP(6)
WHERE r.`Status` IN ('timeout', 'cancelled') AND t.`CurrentRunId` = r.`Id`;
COMMIT;
SET autocommit = 0;
LOCK TABLES `TaskQueueRuns` WRITE, `TaskQueue` WRITE, `TaskQueueRuns` AS r READ, `TaskQueue` AS t READ,
    `TaskQueueRejections` AS x READ, `TaskQueueClassLimits` AS l READ, `TaskQueueStarts` WRITE;
INSERT INTO `TaskQueueRuns` (`TaskQueueId`, `TaskClass`, `Priority`, `Attempt`, `LimitKey`, `Tag`)
SELECT d.`Id`, d.`TaskClass`, d.`Priority`, d.`Attempts` + 1, d.`LimitKey`, d.`Tag`
FROM (SELECT t.`Id`, t.`TaskClass`, t.`Priority`, t.`Attempts`, t.`LimitKey`, t.`Tag`, t.`DueOn` FROM `TaskQueue` AS t
    WHERE t.`DueOn` <= UTC_TIMESTAMP(6) ORDER BY t.`DueOn`, t.`Id` LIMIT 1000) AS d
LEFT JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id` WHERE r.`Id` IS NULL ORDER BY d.`DueOn`, d.`Id`;
UPDATE (SELECT t.`Id` FROM `TaskQueue` AS t WHERE t.`DueOn` <= UTC_TIMESTAMP(6) ORDER BY t.`DueOn`, t.`Id` LIMIT 1000) AS d
    JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id` AND r.`Status` = 'scheduled' JOIN `TaskQueue` ON `TaskQueue`.`Id` = d.`Id`
SET `TaskQueue`.`CurrentRunId` = r.`Id`, `TaskQueue`.`UpdatedOn` = UTC_TIMESTAMP(6);
SET @run = (SELECT r.`Id` FROM `TaskQueueRuns` AS r WHERE r.`ClaimClass` = '{class}'
    AND EXISTS (SELECT 1 FROM `TaskQueue` AS t WHERE t.`Id` = r.`TaskQueueId` AND t.`LastStatus` <> 'cancelled')
    AND (SELECT x.`TaskId` FROM `TaskQueueRejections` AS x WHERE x.`TaskId` = r.`TaskQueueId` AND x.`Claimant` = '{claimant}'
        AND (x.`HeldUntil` IS NULL OR x.`HeldUntil` > UTC_TIMESTAMP(6))) IS NULL
    ORDER BY r.`ClaimClass`, r.`ClaimOrder`, r.`Id` LIMIT 1);
SET @task = (SELECT r.`TaskQueueId` FROM `TaskQueueRuns` AS r WHERE r.`Id` = @run);
SET @timeout = (SELECT COALESCE(t.`Timeout`, 86400) FROM `TaskQueue` AS t WHERE t.`Id` = @task);
UPDATE `TaskQueueRuns` SET `Status` = 'processing', `Claimant` = '{claimant}', `Token` = '{token}',
    `StartedOn` = UTC_TIMESTAMP(6), `UpdatedOn` = UTC_TIMESTAMP(6),
    `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL @timeout SECOND WHERE `Id` = @run;
UPDATE `TaskQueue` SET `LastStatus` = 'processing', `UpdatedOn` = UTC_TIMESTAMP(6) WHERE `Id` = @task;
-- Where the class has a rate, the start counts. No rate looks further back than a day.
DELETE FROM `TaskQueueStarts` WHERE `TaskClass` = '{class}' AND `StartedOn` < UTC_TIMESTAMP(6) - INTERVAL 1 DAY;
INSERT INTO `TaskQueueStarts` (`TaskClass`, `StartedOn`, `RunId`)
SELECT r.`TaskClass`, r.`StartedOn`, r.`Id` FROM `TaskQueueRuns` AS r WHERE r.`Id` = @run
    AND EXISTS (SELECT 1 FROM `TaskQueueClassLimits` AS l WHERE l.`TaskClass` = '{class}' AND l.`RateCount` IS NOT NULL);
COMMIT;
UNLOCK TABLES;
SET autocommit = 1;

-- step: what was claimed; no row when there was nothing
SELECT r.`Id`, r.`TaskQueueId`, r.`Attempt`, r.`LeaseExpiresOn`, t.`TaskData`
FROM `TaskQueueRuns` AS r JOIN `TaskQueue` AS t ON t.`Id` = r.`TaskQueueId`
WHERE r.`RunningClass` IS NOT NULL AND r.`Token` = '{token}';

-- step: heartbeat, with progress; no row changes when the run is lost
UPDATE `TaskQueueRuns` SET `PercentsCompleted` = 40, `ProgressMessage` = 'nearly half',
    `UpdatedOn` = UTC_TIMESTAMP(6),
    `LeaseExpiresOn` = UTC_TIMESTAMP(6) + INTERVAL (SELECT COALESCE(t.`Timeout`, 86400) FROM `TaskQueue` AS t
        WHERE t.`Id` = `TaskQueueRuns`.`TaskQueueId`) SECOND
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';

-- step: what the heartbeat answers. No row when the run is lost: stop the work, and end nothing. With CancelRequestedOn somebody
-- wants the run to end: stop the work, and take the step error; whatever end but a success becomes "cancelled"
SELECT `LeaseExpiresOn`, `CancelRequestedOn`, `CancelReason` FROM `TaskQueueRuns`
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';

-- step: success; the second UPDATE changes no row when the run is lost. The rest is for the tasks
-- that wait for this one, which everybody locks in the order of their ids
START TRANSACTION;
SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE;
UPDATE `TaskQueueRuns` SET `Status` = 'success', `FinishedOn` = UTC_TIMESTAMP(6), `LeaseExpiresOn` = NULL,
    `Results` = '[3]', `KeepResults` = (SELECT t.`KeepResults` FROM `TaskQueue` AS t WHERE t.`Id` = {task}),
    `PercentsCompleted` = 100, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {run} AND `Status` = 'processing' AND `Token` = '{token}';
UPDATE `TaskQueue` SET `LastStatus` = 'success', `FailedRetries` = 0, `Crashes` = 0, `Attempts` = `Attempts` + 1,
    `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'success' AND `Token` = '{token}');
SELECT 1 FROM (SELECT d.`TaskId` FROM `TaskQueueDependencies` AS d WHERE d.`DependsOnId` = {task} AND NOT d.`IsSatisfied`
    ORDER BY d.`TaskId` LIMIT 1000000000) AS w STRAIGHT_JOIN `TaskQueue` AS t ON t.`Id` = w.`TaskId` FOR UPDATE;
UPDATE `TaskQueueDependencies` AS d JOIN `TaskQueue` AS p ON p.`Id` = d.`DependsOnId` JOIN `TaskQueue` AS t ON t.`Id` = d.`TaskId`
SET t.`WaitingFor` = GREATEST(t.`WaitingFor`, 1) - 1, t.`UpdatedOn` = UTC_TIMESTAMP(6), d.`IsSatisfied` = TRUE
WHERE d.`DependsOnId` = {task} AND NOT d.`IsSatisfied` AND p.`LastStatus` = 'success';
COMMIT;

-- step: error; the next attempt in ten minutes. One that cannot be tried again is told of
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
UPDATE `TaskQueue` SET `LastStatus` = 'failed', `FailedRetries` = `FailedRetries` + 1, `Attempts` = `Attempts` + 1,
    `CurrentRunId` = NULL, `NextAttemptOn` = UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'error' AND `Token` = '{token}');
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = `Attempts` + 1, `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
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
UPDATE `TaskQueue` SET `LastStatus` = 'failed', `FailedRetries` = `FailedRetries` + 1, `Attempts` = `Attempts` + 1,
    `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'error' AND `Token` = '{token}');
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = `Attempts` + 1, `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'cancelled' AND `Token` = '{token}');
INSERT INTO `TaskQueueRejections` (`TaskId`, `Claimant`)
SELECT r.`TaskQueueId`, r.`Claimant` FROM `TaskQueueRuns` AS r
WHERE r.`Id` = {run} AND r.`ErrorCode` = 'rejected' AND r.`Token` = '{token}'
ON DUPLICATE KEY UPDATE `HeldUntil` = NULL;
COMMIT;

-- step: release, at no cost, of a worker that shuts down. The task has the status of its last attempt that counted
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
UPDATE `TaskQueue` SET `LastStatus` = 'cancelled', `Attempts` = `Attempts` + 1, `CurrentRunId` = NULL, `UpdatedOn` = UTC_TIMESTAMP(6)
WHERE `Id` = {task} AND `CurrentRunId` = {run}
    AND EXISTS (SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = {run} AND `Status` = 'cancelled' AND `Token` = '{token}');
COMMIT;
