-- Creates three roles on MySQL and MariaDB, for users that queue tasks, run tasks, or administer the queue. Run it as an
-- administrator, in the database of the tables:
--
--   taskqueue db migrate
--   mysql DATABASE <roles-mysql.sql
--   CREATE USER 'shop'@'%' IDENTIFIED BY '…';
--   GRANT taskqueue_enqueue TO 'shop'@'%';
--   SET DEFAULT ROLE taskqueue_enqueue TO 'shop'@'%';      on MariaDB: … FOR 'shop'@'%'
--
-- Repeat this after each update of taskqueue. A user who may queue can run every configured class with any data. Roles belong
-- to the server: a user with a role has its rights in every database in which this script was run.

CREATE ROLE IF NOT EXISTS taskqueue_enqueue, taskqueue_runner, taskqueue_admin;

GRANT SELECT ON `__diesel_schema_migrations` TO taskqueue_enqueue, taskqueue_runner, taskqueue_admin;
GRANT SELECT ON `TaskQueueSettings` TO taskqueue_enqueue, taskqueue_runner;

-- Queues by INSERT or by `taskqueue queue`, and can read the status of a task, but no data and no results.
GRANT INSERT (`TaskClass`, `TaskData`, `QueuedById`, `ScheduledOn`, `MaxRetries`, `Timeout`, `Priority`, `Backoff`, `Receipt`,
        `StartBefore`, `WaitingFor`, `UniqueKey`, `UniqueUntil`, `LimitKey`, `Tag`, `Name`, `ParentId`, `Keep`, `KeepResults`, `Meta`, `Recurrence`, `TimeZone`, `CatchUp`, `Overlap`,
        `PlannedOn`),
    SELECT (`Id`, `QueuedOn`, `QueuedById`, `ScheduledOn`, `TaskClass`, `LastStatus`, `FailedRetries`, `MaxRetries`, `RetryLimit`, `QuarantinedOn`, `CurrentRunId`, `DueOn`,
        `UniqueKey`, `UniqueUntil`, `LiveUniqueKey`, `ScheduleHead`, `Receipt`),
    UPDATE (`UniqueUntil`)
    ON `TaskQueue` TO taskqueue_enqueue;
GRANT SELECT, INSERT ON `TaskQueueReceipts` TO taskqueue_enqueue;
GRANT INSERT ON `TaskQueueDependencies` TO taskqueue_enqueue;
-- With TaskQueueAuditTransitions, queueing a task records an event.
GRANT INSERT (`Kind`, `TaskQueueId`, `Actor`, `Host`) ON `TaskQueueEvents` TO taskqueue_enqueue;

-- Creates runs, claims and ends them, and prunes finished tasks. Changes no settings. A claim locks its tables.
GRANT LOCK TABLES ON * TO taskqueue_runner, taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueue` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRuns` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRunners` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRunOutputs` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE ON `TaskQueueLocks` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueDependencies` TO taskqueue_runner;
GRANT SELECT, INSERT, DELETE ON `TaskQueueEvents` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRejections` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueClassHolds` TO taskqueue_runner;
GRANT SELECT, DELETE ON `TaskQueuePauses` TO taskqueue_runner;
GRANT SELECT ON `TaskQueueClassLimits` TO taskqueue_runner;
GRANT SELECT ON `TaskQueueKeyLimits` TO taskqueue_runner;
GRANT SELECT, INSERT, DELETE ON `TaskQueueStarts` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueReceipts` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueSchedules` TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueNotices` TO taskqueue_runner;
GRANT SELECT, UPDATE ON `TaskQueueTimers` TO taskqueue_runner;

-- Reads and changes all rows, but not the tables: those belong to the user who migrates.
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueue` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueDependencies` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRuns` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRunners` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRunOutputs` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueEvents` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueRejections` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueClassHolds` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueuePauses` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueClassLimits` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueKeyLimits` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueStarts` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueSettings` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueLocks` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueReceipts` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueSchedules` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueNotices` TO taskqueue_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON `TaskQueueTimers` TO taskqueue_admin;
