-- Creates three roles on PostgreSQL, for users that queue tasks, run tasks, or administer the queue. Run it as the owner of the
-- tables; if the database was created before PostgreSQL 15, as a superuser:
--
--   taskqueue db migrate
--   psql -f roles-postgres.sql DATABASE
--   psql -c "CREATE USER shop PASSWORD '…' IN ROLE taskqueue_enqueue" DATABASE
--
-- Repeat this after each update of taskqueue. A user who may queue can run every configured class with any data.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['taskqueue_enqueue', 'taskqueue_runner', 'taskqueue_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
END $$;

-- In a database that was created before PostgreSQL 15, every user has this right. An operator for the type of a column, in the
-- schema of the tables, would be executed by the statements of runners and administrators. The owner keeps the right, to migrate.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
DO $$
BEGIN
    EXECUTE format('GRANT CREATE ON SCHEMA public TO %I', (SELECT tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename = 'TaskQueue'));
END $$;
GRANT USAGE ON SCHEMA public TO taskqueue_enqueue, taskqueue_runner, taskqueue_admin;
GRANT SELECT ON "__diesel_schema_migrations", "TaskQueueSettings"
    TO taskqueue_enqueue, taskqueue_runner, taskqueue_admin;

-- Queues by INSERT or by `taskqueue queue`, and can read the status of a task, but no data and no results.
GRANT INSERT ("TaskClass", "TaskData", "QueuedById", "ScheduledOn", "MaxRetries", "Timeout", "Priority", "Backoff", "Receipt",
        "StartBefore", "WaitingFor", "UniqueKey", "UniqueUntil", "LimitKey", "Tag", "Name", "ParentId", "Keep", "KeepResults", "Meta", "Recurrence", "TimeZone", "CatchUp", "Overlap",
        "PlannedOn")
    ON "TaskQueue" TO taskqueue_enqueue;
GRANT SELECT ("Id", "QueuedOn", "QueuedById", "ScheduledOn", "TaskClass", "LastStatus", "FailedRetries", "MaxRetries", "RetryLimit", "QuarantinedOn", "CurrentRunId", "DueOn",
        "UniqueKey", "UniqueUntil", "LiveUniqueKey", "ScheduleHead", "Receipt")
    ON "TaskQueue" TO taskqueue_enqueue;
GRANT SELECT, INSERT ON "TaskQueueReceipts" TO taskqueue_enqueue;
GRANT INSERT ON "TaskQueueDependencies" TO taskqueue_enqueue;
-- With TaskQueueAuditTransitions, queueing a task records an event.
GRANT INSERT ("Kind", "TaskQueueId", "Actor", "Host") ON "TaskQueueEvents" TO taskqueue_enqueue;
-- Clears expired UniqueUntil times. Locking a row also needs the right to change it: queueing a task that waits for others locks
-- their rows.
GRANT UPDATE ("UniqueUntil") ON "TaskQueue" TO taskqueue_enqueue;

-- Creates runs, claims and ends them, and prunes finished tasks. Changes no settings.
GRANT SELECT, INSERT, UPDATE ON "TaskQueueLocks" TO taskqueue_runner;
GRANT SELECT, INSERT, DELETE ON "TaskQueueEvents" TO taskqueue_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON "TaskQueue", "TaskQueueRuns", "TaskQueueRunners", "TaskQueueRunOutputs",
    "TaskQueueDependencies", "TaskQueueClassHolds", "TaskQueueReceipts", "TaskQueueNotices",
    "TaskQueueRejections", "TaskQueueSchedules" TO taskqueue_runner;
GRANT SELECT, UPDATE ON "TaskQueueTimers" TO taskqueue_runner;
GRANT SELECT, DELETE ON "TaskQueuePauses" TO taskqueue_runner;
GRANT SELECT ON "TaskQueueClassLimits", "TaskQueueKeyLimits" TO taskqueue_runner;
GRANT SELECT, INSERT, DELETE ON "TaskQueueStarts" TO taskqueue_runner;

-- Reads and changes all rows, but not the tables: those belong to their owner, who migrates.
GRANT SELECT, INSERT, UPDATE, DELETE ON "TaskQueue", "TaskQueueRuns", "TaskQueueRunners", "TaskQueueRunOutputs",
    "TaskQueueEvents", "TaskQueueClassHolds", "TaskQueueSettings", "TaskQueueLocks", "TaskQueueReceipts",
    "TaskQueueNotices", "TaskQueueTimers", "TaskQueueDependencies", "TaskQueuePauses", "TaskQueueClassLimits",
    "TaskQueueKeyLimits", "TaskQueueRejections", "TaskQueueStarts", "TaskQueueSchedules"
    TO taskqueue_admin;
