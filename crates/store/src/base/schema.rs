//! The tables as Diesel sees them, on every engine. Written by hand: one definition serves three schemas, and a test checks that
//! the schemas agree with this file.

diesel::table! {
    #[sql_name = "TaskQueue"]
    task_queue (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "QueuedOn"]
        queued_on -> Timestamp,
        #[sql_name = "QueuedById"]
        queued_by_id -> Text,
        #[sql_name = "ScheduledOn"]
        scheduled_on -> Timestamp,
        #[sql_name = "NextAttemptOn"]
        next_attempt_on -> Nullable<Timestamp>,
        #[sql_name = "StartBefore"]
        start_before -> Nullable<Timestamp>,
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "TaskData"]
        task_data -> Text,
        #[sql_name = "LastStatus"]
        last_status -> Text,
        #[sql_name = "MaxRetries"]
        max_retries -> Nullable<Integer>,
        #[sql_name = "RetryLimit"]
        retry_limit -> Nullable<Integer>,
        #[sql_name = "FailedRetries"]
        failed_retries -> Integer,
        #[sql_name = "Attempts"]
        attempts -> Integer,
        #[sql_name = "Priority"]
        priority -> Integer,
        #[sql_name = "Timeout"]
        timeout_secs -> Nullable<Integer>,
        #[sql_name = "WaitingFor"]
        waiting_for -> Integer,
        #[sql_name = "CurrentRunId"]
        current_run_id -> Nullable<BigInt>,
        #[sql_name = "Backoff"]
        backoff -> Nullable<Text>,
        #[sql_name = "Crashes"]
        crashes -> Integer,
        #[sql_name = "QuarantinedOn"]
        quarantined_on -> Nullable<Timestamp>,
        #[sql_name = "ParentId"]
        parent_id -> Nullable<BigInt>,
        #[sql_name = "Receipt"]
        receipt -> Nullable<Text>,
        #[sql_name = "Keep"]
        keep_secs -> Nullable<Integer>,
        #[sql_name = "ClassKeep"]
        class_keep_secs -> Nullable<Integer>,
        #[sql_name = "KeepResults"]
        keep_results_secs -> Nullable<Integer>,
        #[sql_name = "Meta"]
        meta -> Nullable<Text>,
        #[sql_name = "Recurrence"]
        recurrence -> Nullable<Text>,
        #[sql_name = "TimeZone"]
        time_zone -> Text,
        #[sql_name = "CatchUp"]
        catch_up -> Text,
        #[sql_name = "Overlap"]
        overlap -> Text,
        #[sql_name = "ScheduleId"]
        schedule_id -> Nullable<BigInt>,
        #[sql_name = "PlannedOn"]
        planned_on -> Nullable<Timestamp>,
        #[sql_name = "ScheduleStatus"]
        schedule_status -> Text,
        #[sql_name = "UpdatedOn"]
        updated_on -> Timestamp,
        #[sql_name = "DueOn"]
        due_on -> Nullable<Timestamp>,
        #[sql_name = "Finished"]
        finished -> Integer,
        #[sql_name = "StatusOn"]
        status_on -> Nullable<Timestamp>,
        #[sql_name = "ExpiresOn"]
        expires_on -> Nullable<Timestamp>,
        #[sql_name = "UniqueKey"]
        unique_key -> Nullable<Text>,
        #[sql_name = "UniqueUntil"]
        unique_until -> Nullable<Timestamp>,
        #[sql_name = "LimitKey"]
        limit_key -> Nullable<Text>,
        #[sql_name = "Tag"]
        tag -> Nullable<Text>,
        #[sql_name = "Name"]
        name -> Nullable<Text>,
        #[sql_name = "LiveUniqueKey"]
        live_unique_key -> Nullable<Text>,
        #[sql_name = "LiveStartBefore"]
        live_start_before -> Nullable<Timestamp>,
        #[sql_name = "ScheduleHead"]
        schedule_head -> Nullable<Text>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueDependencies"]
    task_queue_dependencies (task_id, depends_on_id) {
        #[sql_name = "TaskId"]
        task_id -> BigInt,
        #[sql_name = "DependsOnId"]
        depends_on_id -> BigInt,
        #[sql_name = "IsSatisfied"]
        is_satisfied -> Bool,
        #[sql_name = "NeedsSuccess"]
        needs_success -> Bool,
        #[sql_name = "AwaitedEnd"]
        awaited_end -> Nullable<BigInt>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueRuns"]
    task_queue_runs (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "TaskQueueId"]
        task_queue_id -> BigInt,
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "Priority"]
        priority -> Integer,
        #[sql_name = "Attempt"]
        attempt -> Integer,
        #[sql_name = "CreatedOn"]
        created_on -> Timestamp,
        #[sql_name = "StartedOn"]
        started_on -> Nullable<Timestamp>,
        #[sql_name = "PercentsCompleted"]
        percents_completed -> Integer,
        #[sql_name = "ProgressMessage"]
        progress_message -> Text,
        #[sql_name = "FinishedOn"]
        finished_on -> Nullable<Timestamp>,
        #[sql_name = "Results"]
        results -> Nullable<Text>,
        #[sql_name = "Status"]
        status -> Text,
        #[sql_name = "ErrorCode"]
        error_code -> Text,
        #[sql_name = "ErrorMessage"]
        error_message -> Text,
        #[sql_name = "Decision"]
        decision -> Text,
        #[sql_name = "ProcessId"]
        process_id -> Nullable<BigInt>,
        #[sql_name = "RunnerId"]
        runner_id -> Nullable<BigInt>,
        #[sql_name = "Claimant"]
        claimant -> Nullable<Text>,
        #[sql_name = "Token"]
        token -> Nullable<Text>,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "ProcessIdentity"]
        process_identity -> Text,
        #[sql_name = "LeaseExpiresOn"]
        lease_expires_on -> Nullable<Timestamp>,
        #[sql_name = "HandlerProcessId"]
        handler_process_id -> Nullable<BigInt>,
        #[sql_name = "HandlerIdentity"]
        handler_identity -> Text,
        #[sql_name = "CpuMsecs"]
        cpu_msecs -> Nullable<BigInt>,
        #[sql_name = "PeakMemoryBytes"]
        peak_memory_bytes -> Nullable<BigInt>,
        #[sql_name = "CancelRequestedOn"]
        cancel_requested_on -> Nullable<Timestamp>,
        #[sql_name = "CancelReason"]
        cancel_reason -> Text,
        #[sql_name = "FollowedOn"]
        followed_on -> Nullable<Timestamp>,
        #[sql_name = "LimitKey"]
        limit_key -> Nullable<Text>,
        #[sql_name = "Tag"]
        tag -> Nullable<Text>,
        #[sql_name = "HasKeySlot"]
        has_key_slot -> Bool,
        #[sql_name = "LinedUpOn"]
        lined_up_on -> Timestamp,
        #[sql_name = "KeepResults"]
        keep_results_secs -> Nullable<Integer>,
        #[sql_name = "UpdatedOn"]
        updated_on -> Timestamp,
        #[sql_name = "ResultsOn"]
        results_on -> Nullable<Timestamp>,
        #[sql_name = "ResultsExpireOn"]
        results_expire_on -> Nullable<Timestamp>,
        #[sql_name = "OpenTaskId"]
        open_task_id -> Nullable<BigInt>,
        #[sql_name = "ClaimClass"]
        claim_class -> Nullable<Text>,
        #[sql_name = "ClaimOrder"]
        claim_order -> Integer,
        #[sql_name = "WaitingOrder"]
        waiting_order -> Nullable<Integer>,
        #[sql_name = "RunningClass"]
        running_class -> Nullable<Text>,
        #[sql_name = "WaitingKey"]
        waiting_key -> Nullable<Text>,
        #[sql_name = "HeldKey"]
        held_key -> Nullable<Text>,
        #[sql_name = "WaitingTag"]
        waiting_tag -> Nullable<Text>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueRunners"]
    task_queue_runners (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "ProcessId"]
        process_id -> BigInt,
        #[sql_name = "StartedOn"]
        started_on -> Timestamp,
        #[sql_name = "FinishedOn"]
        finished_on -> Nullable<Timestamp>,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "ProcessIdentity"]
        process_identity -> Text,
        #[sql_name = "Slots"]
        slots -> Integer,
        #[sql_name = "HeartbeatOn"]
        heartbeat_on -> Timestamp,
        #[sql_name = "HeartbeatBootMs"]
        heartbeat_boot_ms -> Nullable<BigInt>,
        #[sql_name = "Version"]
        version -> Text,
        #[sql_name = "Name"]
        name -> Text,
        #[sql_name = "Classes"]
        classes -> Nullable<Text>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueRunOutputs"]
    task_queue_run_outputs (run_id, stream) {
        #[sql_name = "RunId"]
        run_id -> BigInt,
        #[sql_name = "Stream"]
        stream -> Text,
        #[sql_name = "Content"]
        content -> Text,
        #[sql_name = "TotalBytes"]
        total_bytes -> BigInt,
        #[sql_name = "IsLossy"]
        is_lossy -> Bool,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueRejections"]
    task_queue_rejections (task_id, claimant) {
        #[sql_name = "TaskId"]
        task_id -> BigInt,
        #[sql_name = "Claimant"]
        claimant -> Text,
        #[sql_name = "RejectedOn"]
        rejected_on -> Timestamp,
        #[sql_name = "Timeouts"]
        timeouts -> Integer,
        #[sql_name = "HeldUntil"]
        held_until -> Nullable<Timestamp>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueEvents"]
    task_queue_events (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "OccurredOn"]
        occurred_on -> Timestamp,
        #[sql_name = "Kind"]
        kind -> Text,
        #[sql_name = "TaskQueueId"]
        task_queue_id -> Nullable<BigInt>,
        #[sql_name = "RunId"]
        run_id -> Nullable<BigInt>,
        #[sql_name = "Actor"]
        actor -> Text,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "Details"]
        details -> Text,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueClassHolds"]
    task_queue_class_holds (task_class, host) {
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "Reason"]
        reason -> Text,
        #[sql_name = "HeldOn"]
        held_on -> Timestamp,
        #[sql_name = "HeldUntil"]
        held_until -> Timestamp,
    }
}

diesel::table! {
    #[sql_name = "TaskQueuePauses"]
    task_queue_pauses (scope, name) {
        #[sql_name = "Scope"]
        scope -> Text,
        #[sql_name = "Name"]
        name -> Text,
        #[sql_name = "Mode"]
        mode -> Text,
        #[sql_name = "Reason"]
        reason -> Text,
        #[sql_name = "Author"]
        author -> Text,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "CreatedOn"]
        created_on -> Timestamp,
        #[sql_name = "Until"]
        until -> Nullable<Timestamp>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueClassLimits"]
    task_queue_class_limits (task_class) {
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "MaxRunning"]
        max_running -> Nullable<Integer>,
        #[sql_name = "RateCount"]
        rate_count -> Nullable<Integer>,
        #[sql_name = "RateSecs"]
        rate_secs -> Nullable<Integer>,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueStarts"]
    task_queue_starts (task_class, started_on, run_id) {
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "StartedOn"]
        started_on -> Timestamp,
        #[sql_name = "RunId"]
        run_id -> BigInt,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueKeyLimits"]
    task_queue_key_limits (limit_key) {
        #[sql_name = "LimitKey"]
        limit_key -> Text,
        #[sql_name = "MaxRunning"]
        max_running -> Integer,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueSettings"]
    task_queue_settings (name) {
        #[sql_name = "Name"]
        name -> Text,
        #[sql_name = "Value"]
        value -> Text,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueNotices"]
    task_queue_notices (id) {
        #[sql_name = "Id"]
        id -> BigInt,
        #[sql_name = "OccurredOn"]
        occurred_on -> Timestamp,
        #[sql_name = "Kind"]
        kind -> Text,
        #[sql_name = "TaskQueueId"]
        task_queue_id -> Nullable<BigInt>,
        #[sql_name = "RunId"]
        run_id -> Nullable<BigInt>,
        #[sql_name = "TaskClass"]
        task_class -> Text,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "ErrorCode"]
        error_code -> Text,
        #[sql_name = "ErrorMessage"]
        error_message -> Text,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueTimers"]
    task_queue_timers (name) {
        #[sql_name = "Name"]
        name -> Text,
        #[sql_name = "NextOn"]
        next_on -> Timestamp,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueLocks"]
    task_queue_locks (name) {
        #[sql_name = "Name"]
        name -> Text,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueSchedules"]
    task_queue_schedules (name) {
        #[sql_name = "Name"]
        name -> Text,
        #[sql_name = "ScheduleId"]
        schedule_id -> Nullable<BigInt>,
        #[sql_name = "Definition"]
        definition -> Nullable<Text>,
        #[sql_name = "ConfiguredOn"]
        configured_on -> Timestamp,
        #[sql_name = "Host"]
        host -> Text,
        #[sql_name = "File"]
        file -> Text,
    }
}

diesel::table! {
    #[sql_name = "TaskQueueReceipts"]
    task_queue_receipts (token) {
        #[sql_name = "Token"]
        token -> Text,
        #[sql_name = "WrittenOn"]
        written_on -> Timestamp,
    }
}

diesel::allow_tables_to_appear_in_same_query!(task_queue, task_queue_dependencies, task_queue_runs);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_run_outputs);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_rejections);
diesel::allow_tables_to_appear_in_same_query!(task_queue, task_queue_rejections);
diesel::allow_tables_to_appear_in_same_query!(task_queue_runs, task_queue_events);
