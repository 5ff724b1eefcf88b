DROP TABLE `TaskQueueLocks`;
DROP TABLE `TaskQueueSettings`;
DROP TABLE `TaskQueueClassHolds`;
DROP TABLE `TaskQueueEvents`;
DROP TABLE `TaskQueueRunOutputs`;
DROP TABLE `TaskQueueRunners`;
DROP TABLE `TaskQueueRuns`;
DROP TABLE `TaskQueue`;
