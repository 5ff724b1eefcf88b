//! The tables as Diesel sees them, on every engine. Written by hand: one definition serves three schemas, and a test checks that
//! the schemas agree with this file.

/// Declares tables: the name of each table and column in the database, before its name in the code.
macro_rules! tables {
    ($($sql:tt $table:ident ($($key:ident),+) {
        $($column_sql:tt $column:ident -> $kind:ident $(<$inner:ident>)?,)+
    })+) => { $(
        diesel::table! {
            #[sql_name = $sql]
            $table ($($key),+) {
                $(
                    #[sql_name = $column_sql]
                    $column -> $kind $(<$inner>)?,
                )+
            }
        }
    )+ };
}

tables! {
    "TaskQueue" task_queue (id) {
        "Id" id -> BigInt,
        "QueuedOn" queued_on -> Timestamp,
        "QueuedById" queued_by_id -> Text,
        "ScheduledOn" scheduled_on -> Timestamp,
        "NextAttemptOn" next_attempt_on -> Nullable<Timestamp>,
        "StartBefore" start_before -> Nullable<Timestamp>,
        "TaskClass" task_class -> Text,
        "TaskData" task_data -> Text,
        "LastStatus" last_status -> Text,
        "MaxRetries" max_retries -> Nullable<Integer>,
        "RetryLimit" retry_limit -> Nullable<Integer>,
        "FailedRetries" failed_retries -> Integer,
        "Attempts" attempts -> Integer,
        "Priority" priority -> Integer,
        "Timeout" timeout_secs -> Nullable<Integer>,
        "WaitingFor" waiting_for -> Integer,
        "CurrentRunId" current_run_id -> Nullable<BigInt>,
        "Backoff" backoff -> Nullable<Text>,
        "Crashes" crashes -> Integer,
        "QuarantinedOn" quarantined_on -> Nullable<Timestamp>,
        "ParentId" parent_id -> Nullable<BigInt>,
        "Receipt" receipt -> Nullable<Text>,
        "Keep" keep_secs -> Nullable<Integer>,
        "ClassKeep" class_keep_secs -> Nullable<Integer>,
        "KeepResults" keep_results_secs -> Nullable<Integer>,
        "Meta" meta -> Nullable<Text>,
        "Recurrence" recurrence -> Nullable<Text>,
        "TimeZone" time_zone -> Text,
        "CatchUp" catch_up -> Text,
        "Overlap" overlap -> Text,
        "ScheduleId" schedule_id -> Nullable<BigInt>,
        "PlannedOn" planned_on -> Nullable<Timestamp>,
        "ScheduleStatus" schedule_status -> Text,
        "UpdatedOn" updated_on -> Timestamp,
        "DueOn" due_on -> Nullable<Timestamp>,
        "Finished" finished -> Integer,
        "StatusOn" status_on -> Nullable<Timestamp>,
        "ExpiresOn" expires_on -> Nullable<Timestamp>,
        "UniqueKey" unique_key -> Nullable<Text>,
        "UniqueUntil" unique_until -> Nullable<Timestamp>,
        "LimitKey" limit_key -> Nullable<Text>,
        "Tag" tag -> Nullable<Text>,
        "Name" name -> Nullable<Text>,
        "LiveUniqueKey" live_unique_key -> Nullable<Text>,
        "LiveStartBefore" live_start_before -> Nullable<Timestamp>,
        "ScheduleHead" schedule_head -> Nullable<Text>,
    }

    "TaskQueueDependencies" task_queue_dependencies (task_id, depends_on_id) {
        "TaskId" task_id -> BigInt,
        "DependsOnId" depends_on_id -> BigInt,
        "IsSatisfied" is_satisfied -> Bool,
        "NeedsSuccess" needs_success -> Bool,
        "AwaitedEnd" awaited_end -> Nullable<BigInt>,
    }

    "TaskQueueRuns" task_queue_runs (id) {
        "Id" id -> BigInt,
        "TaskQueueId" task_queue_id -> BigInt,
        "TaskClass" task_class -> Text,
        "Priority" priority -> Integer,
        "Attempt" attempt -> Integer,
        "CreatedOn" created_on -> Timestamp,
        "StartedOn" started_on -> Nullable<Timestamp>,
        "PercentsCompleted" percents_completed -> Integer,
        "ProgressMessage" progress_message -> Text,
        "FinishedOn" finished_on -> Nullable<Timestamp>,
        "Results" results -> Nullable<Text>,
        "Status" status -> Text,
        "ErrorCode" error_code -> Text,
        "ErrorMessage" error_message -> Text,
        "Decision" decision -> Text,
        "ProcessId" process_id -> Nullable<BigInt>,
        "RunnerId" runner_id -> Nullable<BigInt>,
        "Claimant" claimant -> Nullable<Text>,
        "Token" token -> Nullable<Text>,
        "Host" host -> Text,
        "ProcessIdentity" process_identity -> Text,
        "LeaseExpiresOn" lease_expires_on -> Nullable<Timestamp>,
        "HandlerProcessId" handler_process_id -> Nullable<BigInt>,
        "HandlerIdentity" handler_identity -> Text,
        "CpuMsecs" cpu_msecs -> Nullable<BigInt>,
        "PeakMemoryBytes" peak_memory_bytes -> Nullable<BigInt>,
        "CancelRequestedOn" cancel_requested_on -> Nullable<Timestamp>,
        "CancelReason" cancel_reason -> Text,
        "FollowedOn" followed_on -> Nullable<Timestamp>,
        "LimitKey" limit_key -> Nullable<Text>,
        "Tag" tag -> Nullable<Text>,
        "HasKeySlot" has_key_slot -> Bool,
        "LinedUpOn" lined_up_on -> Timestamp,
        "KeepResults" keep_results_secs -> Nullable<Integer>,
        "UpdatedOn" updated_on -> Timestamp,
        "ResultsOn" results_on -> Nullable<Timestamp>,
        "ResultsExpireOn" results_expire_on -> Nullable<Timestamp>,
        "OpenTaskId" open_task_id -> Nullable<BigInt>,
        "ClaimClass" claim_class -> Nullable<Text>,
        "ClaimOrder" claim_order -> Integer,
        "WaitingOrder" waiting_order -> Nullable<Integer>,
        "RunningClass" running_class -> Nullable<Text>,
        "WaitingKey" waiting_key -> Nullable<Text>,
        "HeldKey" held_key -> Nullable<Text>,
        "WaitingTag" waiting_tag -> Nullable<Text>,
    }

    "TaskQueueRunners" task_queue_runners (id) {
        "Id" id -> BigInt,
        "ProcessId" process_id -> BigInt,
        "StartedOn" started_on -> Timestamp,
        "FinishedOn" finished_on -> Nullable<Timestamp>,
        "Host" host -> Text,
        "ProcessIdentity" process_identity -> Text,
        "Slots" slots -> Integer,
        "HeartbeatOn" heartbeat_on -> Timestamp,
        "HeartbeatBootMs" heartbeat_boot_ms -> Nullable<BigInt>,
        "Version" version -> Text,
        "Name" name -> Text,
        "Classes" classes -> Nullable<Text>,
    }

    "TaskQueueRunOutputs" task_queue_run_outputs (run_id, stream) {
        "RunId" run_id -> BigInt,
        "Stream" stream -> Text,
        "Content" content -> Text,
        "TotalBytes" total_bytes -> BigInt,
        "IsLossy" is_lossy -> Bool,
    }

    "TaskQueueRejections" task_queue_rejections (task_id, claimant) {
        "TaskId" task_id -> BigInt,
        "Claimant" claimant -> Text,
        "RejectedOn" rejected_on -> Timestamp,
        "Timeouts" timeouts -> Integer,
        "HeldUntil" held_until -> Nullable<Timestamp>,
    }

    "TaskQueueEvents" task_queue_events (id) {
        "Id" id -> BigInt,
        "OccurredOn" occurred_on -> Timestamp,
        "Kind" kind -> Text,
        "TaskQueueId" task_queue_id -> Nullable<BigInt>,
        "RunId" run_id -> Nullable<BigInt>,
        "Actor" actor -> Text,
        "Host" host -> Text,
        "Details" details -> Text,
    }

    "TaskQueueClassHolds" task_queue_class_holds (task_class, host) {
        "TaskClass" task_class -> Text,
        "Host" host -> Text,
        "Reason" reason -> Text,
        "HeldOn" held_on -> Timestamp,
        "HeldUntil" held_until -> Timestamp,
    }

    "TaskQueuePauses" task_queue_pauses (scope, name) {
        "Scope" scope -> Text,
        "Name" name -> Text,
        "Mode" mode -> Text,
        "Reason" reason -> Text,
        "Author" author -> Text,
        "Host" host -> Text,
        "CreatedOn" created_on -> Timestamp,
        "Until" until -> Nullable<Timestamp>,
    }

    "TaskQueueClassLimits" task_queue_class_limits (task_class) {
        "TaskClass" task_class -> Text,
        "MaxRunning" max_running -> Nullable<Integer>,
        "RateCount" rate_count -> Nullable<Integer>,
        "RateSecs" rate_secs -> Nullable<Integer>,
    }

    "TaskQueueStarts" task_queue_starts (task_class, started_on, run_id) {
        "TaskClass" task_class -> Text,
        "StartedOn" started_on -> Timestamp,
        "RunId" run_id -> BigInt,
    }

    "TaskQueueKeyLimits" task_queue_key_limits (limit_key) {
        "LimitKey" limit_key -> Text,
        "MaxRunning" max_running -> Integer,
    }

    "TaskQueueSettings" task_queue_settings (name) {
        "Name" name -> Text,
        "Value" value -> Text,
    }

    "TaskQueueNotices" task_queue_notices (id) {
        "Id" id -> BigInt,
        "OccurredOn" occurred_on -> Timestamp,
        "Kind" kind -> Text,
        "TaskQueueId" task_queue_id -> Nullable<BigInt>,
        "RunId" run_id -> Nullable<BigInt>,
        "TaskClass" task_class -> Text,
        "Host" host -> Text,
        "ErrorCode" error_code -> Text,
        "ErrorMessage" error_message -> Text,
    }

    "TaskQueueTimers" task_queue_timers (name) {
        "Name" name -> Text,
        "NextOn" next_on -> Timestamp,
    }

    "TaskQueueLocks" task_queue_locks (name) {
        "Name" name -> Text,
    }

    "TaskQueueSchedules" task_queue_schedules (name) {
        "Name" name -> Text,
        "ScheduleId" schedule_id -> Nullable<BigInt>,
        "Definition" definition -> Nullable<Text>,
        "ConfiguredOn" configured_on -> Timestamp,
        "Host" host -> Text,
        "File" file -> Text,
    }

    "TaskQueueReceipts" task_queue_receipts (token) {
        "Token" token -> Text,
        "WrittenOn" written_on -> Timestamp,
    }
}

diesel::allow_tables_to_appear_in_same_query!(task_queue, task_queue_dependencies, task_queue_runs);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_run_outputs);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_rejections);
diesel::allow_tables_to_appear_in_same_query!(task_queue, task_queue_rejections);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_events);
