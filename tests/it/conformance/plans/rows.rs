//! The rows for the plans.

use crate::conformance::fixture::{numbers, sql_now};
use crate::support::{EngineUnderTest, TestDb};

const MANY: u32 = 50_000;

/// Inserts 50,000 due tasks, 50,000 successful tasks, as many runs in either state, in five classes, and a thousand runs in
/// progress.
pub(super) fn fill(db: &TestDb) {
    let mut raw = db.raw();
    let numbers = numbers(db.engine, MANY);
    let class = match db.engine {
        EngineUnderTest::Sqlite | EngineUnderTest::Postgres => "'class' || (i % 5)",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "CONCAT('class', i % 5)",
    };
    let key_of = |number: &str| match db.engine {
        EngineUnderTest::Sqlite | EngineUnderTest::Postgres => format!("'key' || ({number})"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("CONCAT('key', {number})"),
    };
    let past = sql_now(db.engine, -3_600);
    // Different times, as for tasks that were queued one after the other.
    let each_time = match db.engine {
        EngineUnderTest::Sqlite => "strftime('%Y-%m-%d %H:%M:%f000', 'now', -i || ' seconds')",
        EngineUnderTest::Postgres => "clock_timestamp() - i * interval '1 second'",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "UTC_TIMESTAMP(6) - INTERVAL i SECOND",
    };
    // Finished tasks first, so that a scan of the primary key reads all of them.
    // Their keys at once: an update of so many rows takes longer than their insert.
    raw.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UniqueKey\")
         SELECT {class}, 'success', {each_time}, CASE WHEN i % 2 = 1 THEN {} END FROM {numbers}",
        key_of("i")
    ));
    raw.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\")
         SELECT \"Id\", \"TaskClass\", 'success', {past}, {past}, 'done' FROM \"TaskQueue\""
    ));
    raw.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\", \"UniqueKey\")
         SELECT {class}, {each_time}, CASE WHEN i % 2 = 1 THEN {} END FROM {numbers}",
        key_of(&format!("i + {MANY}"))
    ));
    raw.execute(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Priority\")
         SELECT \"Id\" + 1000000, \"TaskClass\", \"Id\" % 3 FROM \"TaskQueue\" WHERE \"LastStatus\" = 'scheduled'",
    );
    raw.execute(&format!(
        "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"StartedOn\" = {past}, \"Token\" = 'mine', \"LeaseExpiresOn\" = {}
         WHERE \"Status\" = 'scheduled' AND \"Id\" % 50 = 0",
        sql_now(db.engine, 3_600)
    ));
    // Finished long ago, before their time, and kept for their keys.
    raw.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2010-01-01 00:00:00.000000', \"ScheduledOn\" = '2098-01-01 00:00:00.000000',
             \"UniqueUntil\" = {}
         WHERE \"LastStatus\" = 'success' AND \"Id\" > 2000 AND \"Id\" <= 4000",
        sql_now(db.engine, 3_600)
    ));
    // Ten schedules, as far as an index needs them.
    raw.execute(
        "UPDATE \"TaskQueue\" SET \"ScheduleId\" = \"Id\" - \"Id\" % 100, \"PlannedOn\" = \"ScheduledOn\"
         WHERE \"Id\" >= 100 AND \"Id\" < 1100",
    );
    raw.execute("UPDATE \"TaskQueue\" SET \"QuarantinedOn\" = \"UpdatedOn\" WHERE \"Id\" <= 2");
    // Of the tasks that had to start before a time that has passed, two have not finished.
    for (on, condition) in [("2010", "\"Id\" <= 2000 OR \"Id\" IN (99991, 99992)"), ("2098", "\"Id\" = 99993")] {
        raw.execute(&format!("UPDATE \"TaskQueue\" SET \"StartBefore\" = '{on}-01-01 00:00:00' WHERE {condition}"));
    }
    let key = key_of("\"Id\"");
    raw.execute(&format!("UPDATE \"TaskQueue\" SET \"Receipt\" = {key} WHERE \"Id\" <= 2000"));
    raw.execute(&format!(
        "INSERT INTO \"TaskQueueReceipts\" (\"Token\") SELECT {key} FROM \"TaskQueue\" WHERE \"Id\" <= 2000"
    ));
    raw.execute(&format!(
        "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"FinishedOn\") SELECT \"Id\", {past} FROM \"TaskQueue\" WHERE \"Id\" <= 2000"
    ));
    raw.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\") VALUES (1), (2)");
    // Two recent starts of each class, and two thousand old ones.
    for (count, on) in [(10, past.as_str()), (2_000, "'2010-01-01 00:00:00.000000'")] {
        raw.execute(&format!(
            "INSERT INTO \"TaskQueueStarts\" (\"TaskClass\", \"StartedOn\", \"RunId\")
             SELECT \"TaskClass\", {on}, \"Id\" FROM \"TaskQueueRuns\" WHERE \"Id\" <= {count}"
        ));
    }
    // The results of the others have expired.
    raw.execute("UPDATE \"TaskQueueRuns\" SET \"Results\" = '{}' WHERE \"Status\" = 'success' AND \"Id\" % 100 = 0");
    // Up to beyond the highest id that is asked for.
    raw.execute(
        "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"RunId\")
         SELECT CASE WHEN \"Id\" <= 100 THEN 'message' ELSE 'run-ended' END, \"TaskQueueId\", \"Id\" FROM \"TaskQueueRuns\"
         ORDER BY \"Id\" LIMIT 75000",
    );
    raw.execute(
        "INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\")
         SELECT \"Id\" + 1000000, \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'scheduled' AND \"Id\" <> 40000",
    );
    match db.engine {
        EngineUnderTest::Sqlite => {}
        EngineUnderTest::Postgres => raw.execute("VACUUM ANALYZE"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            raw.execute(
                "ANALYZE TABLE \"TaskQueue\", \"TaskQueueRuns\", \"TaskQueueDependencies\", \"TaskQueueEvents\", \"TaskQueueStarts\",
                     \"TaskQueueReceipts\", \"TaskQueueRunners\"",
            );
        }
    }
}

/// Does nothing on SQLite: the program never analyses a store there, so its plans are made without statistics.
pub(super) fn analyze(db: &TestDb, table: &str) {
    match db.engine {
        EngineUnderTest::Sqlite => {}
        EngineUnderTest::Postgres => db.execute(&format!("ANALYZE \"{table}\"")),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => db.execute(&format!("ANALYZE TABLE \"{table}\"")),
    }
}
