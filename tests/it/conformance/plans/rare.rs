//! The statements of small indexes, and of indexes that are read rarely.

use chrono::{TimeDelta, Utc};

use super::{by_id, now};
use crate::conformance::explain::{is_found_by, is_read_from};
use crate::support::{EngineUnderTest, TestDb};

pub(super) fn check(db: &TestDb) {
    // store::reading::status::count_quarantined
    is_read_from(
        db,
        "TaskQueueQuarantined",
        2,
        "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"QuarantinedOn\" IS NOT NULL LIMIT 50001",
    );
    is_read_from(
        db,
        "TaskQueueQuarantined",
        2,
        "SELECT \"TaskClass\" FROM \"TaskQueue\" WHERE \"QuarantinedOn\" IS NOT NULL LIMIT 50001",
    );
    // store::reading::schedules::list_tasks_before_heads, once for each schedule.
    is_read_from(
        db,
        "TaskQueuePlanned",
        1,
        "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ScheduleId\" = 500 AND \"PlannedOn\" < '2100-01-01 00:00:00.000000'
         ORDER BY \"ScheduleId\" DESC, \"PlannedOn\" DESC LIMIT 1",
    );
    // store::transitions::expire::end_expired_tasks
    is_read_from(
        db,
        "TaskQueueStartBefore",
        2,
        &format!(
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"LiveStartBefore\" <= {} ORDER BY \"LiveStartBefore\", \"Id\"",
            now(db.engine)
        ),
    );
    // store::insert::queue_one::insert_once, after the answer was lost.
    is_read_from(db, "TaskQueueReceipt", 1, "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Receipt\" = 'key7'");
    // store::upkeep::cleanup, store::session::receipts::remove_old_receipts
    is_read_from(
        db,
        "TaskQueueReceiptsByTime",
        1,
        "SELECT 1 FROM \"TaskQueueReceipts\" WHERE \"WrittenOn\" < '2010-01-01 00:00:00.000000' LIMIT 1",
    );
    // store::upkeep::prune::prune_runners
    is_read_from(
        db,
        "TaskQueueRunnersByEnd",
        500,
        &format!(
            "SELECT \"Id\" FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" < {} ORDER BY \"FinishedOn\", \"Id\" LIMIT 500",
            now(db.engine)
        ),
    );
    // store::reading::failed_attempts, store::reading::event_log: the events of a task. store::upkeep::prune::prune_events:
    // those without a task.
    is_read_from(
        db,
        "TaskQueueEventsByTask",
        1,
        "SELECT \"OccurredOn\" FROM \"TaskQueueEvents\" WHERE \"TaskQueueId\" = 40000
         ORDER BY \"TaskQueueId\" DESC, \"Id\" DESC LIMIT 1",
    );
    // MariaDB plans a sort if there are none.
    let _ = is_found_by(
        db,
        "TaskQueueEventsByTask",
        0,
        "SELECT \"Id\", \"OccurredOn\" FROM \"TaskQueueEvents\" WHERE \"TaskQueueId\" IS NULL
         ORDER BY \"TaskQueueId\", \"Id\" LIMIT 500",
    );
    // store::reading::status::count_status of a class
    is_read_from(
        db,
        "TaskQueueByClass",
        50_001,
        &format!(
            "SELECT \"Id\" FROM \"TaskQueue\"{} WHERE \"TaskClass\" = 'class3' AND \"LastStatus\" = 'success'
             ORDER BY \"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"Id\" LIMIT 50001",
            match db.engine {
                EngineUnderTest::Mysql | EngineUnderTest::Mariadb => " FORCE INDEX (\"TaskQueueByClass\")",
                EngineUnderTest::Sqlite | EngineUnderTest::Postgres => "",
            }
        ),
    );
    // store::reading::run_times: the newest tasks of a class, their runs, and when their retries were due.
    is_read_from(
        db,
        "TaskQueueByClass",
        1_000,
        "SELECT \"ScheduledOn\", \"Id\" FROM \"TaskQueue\" WHERE \"TaskClass\" = 'class3' AND \"LastStatus\" = 'success'
         ORDER BY \"TaskClass\" DESC, \"LastStatus\" DESC, \"ScheduledOn\" DESC, \"Id\" DESC LIMIT 1000",
    );
    let tasks = (0..250).map(|number| (number * 200 + 1).to_string()).collect::<Vec<_>>().join(", ");
    let _ = is_found_by(
        db,
        "TaskQueueRunsByTask",
        500,
        &format!(
            "SELECT \"TaskQueueId\", \"Id\", \"Attempt\", \"Status\", \"StartedOn\", \"FinishedOn\" FROM \"TaskQueueRuns\"
             WHERE \"TaskQueueId\" IN ({tasks}) AND \"StartedOn\" IS NOT NULL AND \"FinishedOn\" IS NOT NULL
             ORDER BY \"TaskQueueId\" DESC, \"Id\" DESC LIMIT 1000"
        ),
    );
    let _ = is_found_by(
        db,
        &by_id(db, "TaskQueue"),
        500,
        &format!("SELECT \"Id\", \"NextAttemptOn\" FROM \"TaskQueue\" WHERE \"Id\" IN ({tasks})"),
    );
    // store::reading::selections::load_among: also on SQLite, which would rather read the whole class.
    let _ = is_found_by(
        db,
        &by_id(db, "TaskQueue"),
        500,
        &format!(
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Id\" IN ({tasks}) AND CASE WHEN \"TaskClass\" IN ('class3') THEN TRUE ELSE FALSE END
             AND CASE WHEN \"LastStatus\" = 'success' THEN TRUE ELSE FALSE END"
        ),
    );
    // store::reading::ended_pages::load_ended, in both directions.
    let now = now(db.engine);
    for (least, greatest, order) in [("<=", "<", " DESC"), (">=", ">", "")] {
        is_read_from(
            db,
            "TaskQueueByStatus",
            51,
            &format!(
                "SELECT \"StatusOn\", \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1
                 AND \"StatusOn\" {least} {now} AND (\"StatusOn\" {greatest} {now} OR \"Id\" {greatest} 40000)
                 ORDER BY \"LastStatus\"{order}, \"Finished\"{order}, \"StatusOn\"{order}, \"Id\"{order} LIMIT 51"
            ),
        );
    }
    // store::reading::ends::count_ends: of 50,000 successful tasks, the key of 2,000 is kept until within these two hours. The
    // others were updated before. The index is entered ten times: five statuses with two values of Finished.
    let is_postgres = db.engine == EngineUnderTest::Postgres;
    let time = |secs| (Utc::now() + TimeDelta::seconds(secs)).format("%F %T%.6f").to_string();
    let [from, until] = [1, 7_200].map(|secs| format!("'{}{}'", time(secs), if is_postgres { "+00" } else { "" }));
    let _ = is_found_by(
        db,
        "TaskQueueByStatus",
        2_010,
        &format!(
            "SELECT \"LastStatus\", COUNT(*) FROM \"TaskQueue\" WHERE \"LastStatus\" {} AND \"Finished\" {}
             AND \"StatusOn\" >= {from} AND \"StatusOn\" < {until} GROUP BY \"LastStatus\"",
            if is_postgres {
                "= ANY('{success,cancelled,expired,failed,timeout}'::text[])"
            } else {
                "IN ('success', 'cancelled', 'expired', 'failed', 'timeout')"
            },
            if is_postgres { "= ANY('{1,2}'::int[])" } else { "IN (1, 2)" }
        ),
    );
}
