DROP TABLE "TaskQueueLocks";
DROP TABLE "TaskQueueTimers";
DROP TABLE "TaskQueueNotices";
DROP TABLE "TaskQueueReceipts";
DROP TABLE "TaskQueueSchedules";
DROP TABLE "TaskQueueSettings";
DROP TABLE "TaskQueueKeyLimits";
DROP TABLE "TaskQueueStarts";
DROP TABLE "TaskQueueClassLimits";
DROP TABLE "TaskQueuePauses";
DROP TABLE "TaskQueueClassHolds";
DROP TABLE "TaskQueueEvents";
DROP TABLE "TaskQueueRejections";
DROP TABLE "TaskQueueRunOutputs";
DROP TABLE "TaskQueueRunners";
DROP TABLE "TaskQueueRuns";
DROP TABLE "TaskQueueDependencies";
DROP TABLE "TaskQueue";
DROP FUNCTION "TaskQueueScheduleHead", "TaskQueueLiveUniqueKey", "TaskQueueLiveStartBefore", "TaskQueueLater";
DROP DOMAIN "TaskQueueJson", "TaskQueueScheduledOn", "TaskQueueNextAttemptOn", "TaskQueueStartBefore", "TaskQueueClassName", "TaskQueueTaskStatus", "TaskQueueMaxRetries", "TaskQueueRetryLimit", "TaskQueueFailedRetries",
    "TaskQueueQueuedOn", "TaskQueueUpdatedOn", "TaskQueuePlannedOn", "TaskQueueUniqueUntil", "TaskQueueQuarantinedOn", "TaskQueueRecurrence",
    "TaskQueueTimeZone", "TaskQueueReceipt", "TaskQueueKeep", "TaskQueueClassKeep", "TaskQueueKeepResults", "TaskQueueMeta", "TaskQueueParentId", "TaskQueueQueuedById", "TaskQueueAttempts", "TaskQueuePriority", "TaskQueueTimeout", "TaskQueueWaitingFor", "TaskQueueBackoff",
    "TaskQueueCrashes", "TaskQueueUniqueKey", "TaskQueueLimitKey", "TaskQueueTag", "TaskQueueName", "TaskQueueCatchUp", "TaskQueueOverlap", "TaskQueueScheduleStatus",
    "TaskQueueAttempt", "TaskQueuePercentsCompleted", "TaskQueueRunStatus", "TaskQueueClaimant",
    "TaskQueueCreatedOn", "TaskQueueStartedOn", "TaskQueueFinishedOn", "TaskQueueLeaseExpiresOn", "TaskQueueCancelRequestedOn", "TaskQueueFollowedOn", "TaskQueueHeartbeatOn", "TaskQueueRejectedOn", "TaskQueueHeldUntil", "TaskQueueOccurredOn", "TaskQueueHeldOn", "TaskQueueWrittenOn", "TaskQueueNextOn", "TaskQueueConfiguredOn";
