//! The statements of each run: start, end, renewal, and the queries of a worker and of `create-runs` without work.

use super::{by_id, now};
use crate::conformance::explain::{is_looked_up_by, is_read_from};
use crate::support::{EngineUnderTest, TestDb};

pub(super) fn check(db: &TestDb) {
    let now = now(db.engine);
    // store::backend::batch::*::start_runs and end_successes, for the runs with these ids and then for their tasks.
    let (runs, tasks) = (by_id(db, "TaskQueueRuns"), by_id(db, "TaskQueue"));
    for (run, task) in starts(db.engine) {
        is_looked_up_by(db, &runs, run);
        is_looked_up_by(db, &tasks, task);
    }
    // store::rules::leases::renew_leases and store::rules::claimants::renew_outside
    is_looked_up_by(
        db,
        &runs,
        &format!(
            "UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {now}, \"UpdatedOn\" = {now}
         WHERE \"Id\" = 50 AND \"Status\" = 'processing' AND \"Token\" = 'mine'"
        ),
    );
    is_looked_up_by(
        db,
        &format!("{}|TaskQueueRunnersByEnd", by_id(db, "TaskQueueRunners")),
        &format!(
            "UPDATE \"TaskQueueRunners\" SET \"HeartbeatOn\" = {now} WHERE \"Id\" = 2001 AND \"FinishedOn\" IS NULL"
        ),
    );
    // store::backend::batch::*::list_due, which locks the rows on servers.
    let beginning = match db.engine {
        EngineUnderTest::Sqlite | EngineUnderTest::Postgres => "'2000-01-01 00:00:00.000000'",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "CAST('2000-01-01' AS DATETIME(6))",
    };
    is_read_from(
        db,
        "TaskQueueDue",
        300,
        &format!(
            "SELECT t.\"Id\" FROM \"TaskQueue\" AS t WHERE t.\"DueOn\" >= {beginning} AND t.\"DueOn\" <= {now}
             AND (SELECT r.\"Id\" FROM \"TaskQueueRuns\" AS r WHERE r.\"OpenTaskId\" = t.\"Id\" LIMIT 1) IS NULL
         ORDER BY t.\"DueOn\", t.\"Id\" LIMIT 100"
        ),
    );
    // store::backend::batch::*::nothing_restricts_claims and has_due_with_priority
    is_looked_up_by(
        db,
        "TaskQueueRunsClaim",
        "SELECT 1 FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" IS NOT NULL LIMIT 1",
    );
    let with_priority = match db.engine {
        EngineUnderTest::Sqlite | EngineUnderTest::Postgres => format!("\"Priority\" <> 0 AND \"DueOn\" <= {now}"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("\"PriorityDueOn\" <= {now}"),
    };
    is_looked_up_by(db, "TaskQueuePriorityDue", &format!("SELECT 1 FROM \"TaskQueue\" WHERE {with_priority} LIMIT 1"));
    // store::rules::runners::list_live_runners: for a rescue and the start of a runner.
    is_read_from(
        db,
        "TaskQueueRunnersByEnd",
        2,
        "SELECT \"Slots\" FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL",
    );
    // store::rules::claimants::list_overdue_runs and the rescue of dead runners' runs read TaskQueueRunsRunning: see `plans`.
}

/// The statements that write runs, and those that write their tasks.
fn starts(engine: EngineUnderTest) -> [(&'static str, &'static str); 2] {
    match engine {
        EngineUnderTest::Sqlite => [
            (
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"Token\" = n.value ->> 1 FROM json_each('[[60001, \"t\"]]') AS n
                 WHERE \"TaskQueueRuns\".\"Id\" = n.value ->> 0 AND \"Status\" = 'scheduled'
                     AND EXISTS (SELECT 1 FROM \"TaskQueue\" AS t WHERE t.\"Id\" = \"TaskQueueRuns\".\"TaskQueueId\" AND t.\"LastStatus\" NOT IN ('cancelled', 'expired')
                                 AND (t.\"StartBefore\" IS NULL OR t.\"StartBefore\" > strftime('%Y-%m-%d %H:%M:%f000', 'now')))",
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'processing', \"CurrentRunId\" = n.value ->> 1 FROM json_each('[[60001, 1]]') AS n
                 WHERE \"TaskQueue\".\"Id\" = n.value ->> 0",
            ),
            (
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = \"StartedOn\" FROM json_each('[[50050, \"mine\"]]') AS n
                 WHERE \"TaskQueueRuns\".\"Id\" = n.value ->> 0 AND \"Status\" = 'processing' AND \"Token\" = n.value ->> 1",
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL FROM json_each('[60001]') AS n
                 WHERE \"TaskQueue\".\"Id\" = n.value",
            ),
        ],
        EngineUnderTest::Postgres => [
            (
                "UPDATE \"TaskQueueRuns\" AS r SET \"Status\" = 'processing', \"Token\" = s.token
                 FROM unnest(ARRAY[60001::bigint, 60002], ARRAY['t', 'u']) AS s (id, token), \"TaskQueue\" AS t
                 WHERE r.\"Id\" = ANY (ARRAY[s.id]) AND r.\"Status\" = 'scheduled' AND t.\"Id\" = ANY (ARRAY[r.\"TaskQueueId\"]) AND t.\"LastStatus\" NOT IN ('cancelled', 'expired')
                     AND (t.\"StartBefore\" IS NULL OR t.\"StartBefore\" > clock_timestamp())",
                "UPDATE \"TaskQueue\" AS t SET \"LastStatus\" = 'processing' FROM unnest(ARRAY[60001::bigint, 60002]) AS s (id) WHERE t.\"Id\" = ANY (ARRAY[s.id])",
            ),
            (
                "UPDATE \"TaskQueueRuns\" AS r SET \"Status\" = 'success', \"FinishedOn\" = clock_timestamp()
                 FROM unnest(ARRAY[50050::bigint, 50100], ARRAY['mine', 'mine']) AS e (id, token)
                 WHERE r.\"Id\" = ANY (ARRAY[e.id]) AND r.\"Status\" = 'processing' AND r.\"Token\" = e.token",
                "UPDATE \"TaskQueue\" AS t SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL FROM unnest(ARRAY[60001::bigint, 60002]) AS e (id)
                 WHERE t.\"Id\" = ANY (ARRAY[e.id])",
            ),
        ],
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => [
            (
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"Token\" = CASE \"Id\" WHEN 60001 THEN 't' ELSE \"Token\" END WHERE \"Id\" IN (60001, 60002)",
                "UPDATE \"TaskQueueRuns\" STRAIGHT_JOIN \"TaskQueue\" ON \"TaskQueue\".\"Id\" = \"TaskQueueRuns\".\"TaskQueueId\"
                 SET \"TaskQueue\".\"LastStatus\" = 'processing', \"TaskQueue\".\"CurrentRunId\" = \"TaskQueueRuns\".\"Id\" WHERE \"TaskQueueRuns\".\"Id\" IN (60001, 60002)",
            ),
            (
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"FinishedOn\" = UTC_TIMESTAMP(6) WHERE \"Id\" IN (50050, 50100) AND \"Status\" = 'processing'",
                "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"CurrentRunId\" = NULL WHERE \"Id\" IN (60001, 60002)",
            ),
        ],
    }
}
