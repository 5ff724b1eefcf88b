//! The cost of the statements that must stay fast, with 50,000 waiting and 50,000 finished rows: which index they use, that
//! they do not sort, and on servers how many rows they read.
//!
//! The store does not expose its statements, so they are repeated here, each with the name of its function. Change both
//! together.

mod keys;
mod life;
mod rare;
mod rows;

use self::rows::{analyze, fill};
use super::explain::{is_buffered_from, is_found_by, is_read_from};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

/// The clock as in the statements of the store.
fn now(engine: EngineUnderTest) -> &'static str {
    match engine {
        EngineUnderTest::Sqlite => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
        EngineUnderTest::Postgres => "(SELECT clock_timestamp())",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "UTC_TIMESTAMP(6)",
    }
}

/// Returns the name of the index in the plan of a statement that finds rows by `Id`.
fn by_id(db: &TestDb, table: &str) -> String {
    if db.engine == EngineUnderTest::Sqlite { "INTEGER PRIMARY KEY".to_owned() } else { primary_key(db, table) }
}

/// Returns the name of a primary key with several columns.
fn primary_key(db: &TestDb, table: &str) -> String {
    match db.engine {
        EngineUnderTest::Sqlite => "PRIMARY KEY".to_owned(),
        EngineUnderTest::Postgres => format!("{table}_pkey"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "PRIMARY".to_owned(),
    }
}

each_engine! {
    fn the_statements_that_must_stay_fast_read_an_index_in_its_order(db) {
        fill(db);
        let now = now(db.engine);
        life::check(db);
        rare::check(db);
        // store::reading::heads::read_in_order: the first runs of all.
        is_read_from(db, "TaskQueueRunsWaiting", 32, "SELECT \"ClaimClass\", \"Id\", \"ClaimOrder\", \"LinedUpOn\" FROM \"TaskQueueRuns\"
             WHERE \"WaitingOrder\" IS NOT NULL ORDER BY \"WaitingOrder\", \"LinedUpOn\", \"Id\" LIMIT 32");
        // store::reading::heads::next_head: once for each accepted class with waiting runs, from a name on or after one.
        for place in ["> ''", "> 'class2'", ">= 'class2'"] {
            is_read_from(db, "TaskQueueRunsClaim", 1, &format!(
                "SELECT \"ClaimClass\", \"Id\", \"ClaimOrder\", \"LinedUpOn\" FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" {place}
                 ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1"));
        }
        // Both for a claimant: skip the runs that it has rejected.
        db.execute(
            "INSERT INTO \"TaskQueueRejections\" (\"TaskId\", \"Claimant\")
             SELECT \"TaskQueueId\", CASE WHEN \"Priority\" = 2 AND \"Id\" < 50100 THEN 'bot' ELSE 'other' END FROM \"TaskQueueRuns\"
             WHERE \"ClaimClass\" IS NOT NULL",
        );
        analyze(db, "TaskQueueRejections");
        is_read_from(db, "TaskQueueRunsWaiting", 200, "SELECT \"ClaimClass\", \"Id\", \"ClaimOrder\", \"LinedUpOn\" FROM \"TaskQueueRuns\"
             WHERE \"WaitingOrder\" IS NOT NULL AND (SELECT \"TaskId\" FROM \"TaskQueueRejections\"
                 WHERE \"TaskId\" = \"TaskQueueId\" AND \"Claimant\" = 'bot' LIMIT 1) IS NULL
             ORDER BY \"WaitingOrder\", \"LinedUpOn\", \"Id\" LIMIT 32");
        is_read_from(db, "TaskQueueRunsClaim", 200, "SELECT \"ClaimClass\", \"Id\", \"ClaimOrder\", \"LinedUpOn\" FROM \"TaskQueueRuns\"
             WHERE \"ClaimClass\" > 'class2' AND (SELECT \"TaskId\" FROM \"TaskQueueRejections\"
                 WHERE \"TaskId\" = \"TaskQueueId\" AND \"Claimant\" = 'bot' LIMIT 1) IS NULL
             ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1");
        // The same for a claimant that requests a tag, and for a SQL worker: few runs have the tag, or nearly all.
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Tag\" = CASE WHEN \"Id\" % 997 = 1 THEN 'few' ELSE 'nearly-all' END WHERE \"Status\" = 'scheduled'");
        analyze(db, "TaskQueueRuns");
        for tag in ["few", "nearly-all", "none"] {
            let not_rejected = "(SELECT \"TaskId\" FROM \"TaskQueueRejections\"
                 WHERE \"TaskId\" = \"TaskQueueId\" AND \"Claimant\" = 'bot' LIMIT 1) IS NULL";
            is_read_from(db, "TaskQueueRunsWaitingTag", 200, &format!("SELECT \"ClaimClass\", \"Id\", \"ClaimOrder\", \"LinedUpOn\" FROM \"TaskQueueRuns\"
                 WHERE \"ClaimClass\" > 'class2' AND \"WaitingTag\" = '{tag}' AND {not_rejected}
                 ORDER BY \"WaitingTag\", \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1"));
            let by_class = if tag == "few" { "TaskQueueRunsWaitingTag" } else { "TaskQueueRunsWaitingTag|TaskQueueRunsClaim" };
            let _ = is_found_by(db, by_class, 200, &format!("SELECT \"Id\" FROM \"TaskQueueRuns\"
                 WHERE \"ClaimClass\" = 'class3' AND \"WaitingTag\" = '{tag}' AND {not_rejected}
                 ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1"));
        }
        // store::rules::claimants::list_silent_runs: leases have no index, because they change all the time.
        // A thousand runs are in progress, and MySQL and MariaDB count the returned rows twice because they sort.
        let _ = is_found_by(db, "TaskQueueRunsRunning", 1_000 + 2 * 20, &format!(
            "SELECT * FROM \"TaskQueueRuns\" WHERE \"RunningClass\" IS NOT NULL AND \"UpdatedOn\" < {now}
             ORDER BY \"LeaseExpiresOn\", \"Id\" LIMIT 20"));
        // store::transitions::claiming::start::held_with
        is_read_from(
            db,
            "TaskQueueRunsRunning",
            1_000,
            "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"RunningClass\" IS NOT NULL AND \"Token\" = 'none' LIMIT 1",
        );
        // store::rules::limits::count_running: reads the counted runs, not the waiting ones.
        is_read_from(
            db,
            "TaskQueueRunsRunning",
            201,
            "SELECT COUNT(*) FROM \"TaskQueueRuns\" WHERE \"RunningClass\" = 'class3'",
        );
        keys::check(db);
        // store::transitions::claiming::choose::list_chosen: of one task, of a unique key, of a limit key, each optionally with a tag.
        db.execute(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"LimitKey\", \"HasKeySlot\", \"Tag\") VALUES (90001, 'class1', 'three', TRUE, 'few')",
        );
        for (index, condition) in [
            ("TaskQueueRunsOpen", "\"OpenTaskId\" = 90001"),
            ("TaskQueueByUniqueKey", "\"UniqueKey\" = 'key90001'"),
            ("TaskQueueRunsHeldKey", "\"HeldKey\" = 'three'"),
            ("TaskQueueRunsOpen", "\"OpenTaskId\" = 90001 AND \"TaskQueueRuns\".\"Tag\" = 'few'"),
        ] {
            let _ = is_found_by(db, index, 100, &format!(
                "SELECT \"ClaimClass\", \"TaskQueueRuns\".\"Id\", \"ClaimOrder\" FROM \"TaskQueueRuns\"
                 INNER JOIN \"TaskQueue\" ON \"TaskQueue\".\"Id\" = \"OpenTaskId\"
                 WHERE \"ClaimClass\" IS NOT NULL AND (SELECT \"TaskId\" FROM \"TaskQueueRejections\"
                     WHERE \"TaskId\" = \"TaskQueueId\" AND \"Claimant\" = 'bot' LIMIT 1) IS NULL AND {condition}"));
        }
        // store::rules::starts::next_start: as many as the rate allows. Then starts_left and keep_starts.
        let starts = primary_key(db, "TaskQueueStarts");
        is_read_from(
            db,
            &starts,
            100,
            "SELECT \"StartedOn\" FROM \"TaskQueueStarts\" WHERE \"TaskClass\" = 'class3' AND \"StartedOn\" <= '2100-01-01 00:00:00.000000'
             ORDER BY \"TaskClass\" DESC, \"StartedOn\" DESC, \"RunId\" DESC LIMIT 1 OFFSET 99",
        );
        is_read_from(
            db,
            &starts,
            2,
            "SELECT COUNT(*) FROM \"TaskQueueStarts\" WHERE \"TaskClass\" = 'class3' AND \"StartedOn\" > '2020-01-01 00:00:00.000000'
                 AND \"StartedOn\" <= '2100-01-01 00:00:00.000000'",
        );
        // store::reading::event_log::newest_events, for a kind that is rare and old: for a frequent one, either index is as
        // good.
        is_read_from(
            db,
            "TaskQueueEventsByKind",
            20,
            "SELECT * FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'message' AND \"Id\" + 0 < 9223372036854775807
             ORDER BY \"Kind\" DESC, \"Id\" DESC LIMIT 20",
        );
        // store::reading::event_log::events_within: narrow ranges by their ids, and each wide range separately.
        let events = by_id(db, "TaskQueueEvents");
        let ids: Vec<String> = (0..50).map(|number| (1 + 1_500 * number).to_string()).collect();
        let among_them = match db.engine {
            EngineUnderTest::Postgres => format!("= ANY('{{{}}}'::bigint[])", ids.join(",")),
            _ => format!("IN ({})", ids.join(", ")),
        };
        is_read_from(
            db,
            &events,
            100,
            &format!("SELECT * FROM \"TaskQueueEvents\" WHERE \"Id\" {among_them}"),
        );
        is_read_from(
            db,
            &events,
            201,
            "SELECT * FROM \"TaskQueueEvents\" WHERE \"Id\" BETWEEN 40001 AND 40200 ORDER BY \"Id\"",
        );
        // store::backend::*::find_due and create_due_runs: the due tasks from a position in their order.
        let due = match db.engine {
            EngineUnderTest::Sqlite => format!("t.\"DueOn\" <= {now}"),
            EngineUnderTest::Postgres => {
                format!("(t.\"DueOn\", t.\"Id\") >= ('2000-01-01'::timestamptz, 7) AND t.\"DueOn\" <= {now}")
            }
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!(
                "(t.\"DueOn\" > CAST('2000-01-01' AS DATETIME(6)) OR (t.\"DueOn\" = CAST('2000-01-01' AS DATETIME(6)) AND t.\"Id\" >= 7))
                 AND t.\"DueOn\" <= {now}"
            ),
        };
        is_read_from(
            db,
            "TaskQueueDue",
            100,
            &format!(
                "SELECT t.\"Id\", t.\"TaskClass\", t.\"Priority\", t.\"Attempts\" FROM \"TaskQueue\" AS t
                 WHERE {due} ORDER BY t.\"DueOn\", t.\"Id\" LIMIT 100"
            ),
        );
        // The same with the open run of each, one entry of the other index for each row.
        match db.engine {
            EngineUnderTest::Sqlite => is_read_from(
                db,
                "TaskQueueRunsOpen",
                200,
                &format!(
                    "SELECT t.\"Id\" FROM \"TaskQueue\" AS t WHERE {due}
                     AND NOT EXISTS (SELECT 1 FROM \"TaskQueueRuns\" AS r WHERE r.\"OpenTaskId\" = t.\"Id\")
                     ORDER BY t.\"DueOn\", t.\"Id\" LIMIT 100"
                ),
            ),
            EngineUnderTest::Postgres => is_read_from(
                db,
                "TaskQueueRunsOpen",
                200,
                &format!(
                    "SELECT t.\"Id\", (SELECT r.\"Id\" FROM \"TaskQueueRuns\" AS r WHERE r.\"OpenTaskId\" = t.\"Id\")
                     FROM \"TaskQueue\" AS t WHERE {due} ORDER BY t.\"DueOn\", t.\"Id\" LIMIT 100"
                ),
            ),
            // The part of the backlog is buffered, and read again for its open runs.
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => is_buffered_from(
                db,
                "TaskQueueRunsOpen",
                300,
                &format!(
                    "SELECT d.\"Id\" FROM (SELECT t.\"Id\" FROM \"TaskQueue\" AS t WHERE {due}
                         ORDER BY t.\"DueOn\", t.\"Id\" LIMIT 100 FOR UPDATE) AS d
                     LEFT JOIN \"TaskQueueRuns\" AS r ON r.\"OpenTaskId\" = d.\"Id\" WHERE r.\"Id\" IS NULL"
                ),
            ),
        }
        // store::records::runs::list_processing_runs
        is_read_from(
            db,
            "TaskQueueRunsRunning",
            500,
            "SELECT * FROM \"TaskQueueRuns\" WHERE \"RunningClass\" IS NOT NULL
             ORDER BY \"RunningClass\", \"Id\" LIMIT 500",
        );
        let key = db.text("SELECT \"LiveUniqueKey\" AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'class3' AND \"LiveUniqueKey\" IS NOT NULL");
        // store::rules::unique::find_holder: once for each unique task that is queued.
        is_read_from(
            db,
            "TaskQueueUnique",
            1,
            &format!(
                "SELECT \"Id\", \"LastStatus\" FROM \"TaskQueue\" WHERE \"TaskClass\" = 'class3' AND \"LiveUniqueKey\" = '{}' LIMIT 1",
                key.unwrap()
            ),
        );
        // store::rules::dependencies::satisfy_dependants: once at the end of each run that finishes its task.
        is_read_from(
            db,
            "TaskQueueDependants",
            1,
            "SELECT \"TaskId\" FROM \"TaskQueueDependencies\" WHERE \"DependsOnId\" = 40000 AND \"IsSatisfied\" = false
             AND (\"NeedsSuccess\" = false OR true)
             ORDER BY \"DependsOnId\", \"TaskId\"",
        );
        // The tasks of a batch of ended runs for which others wait: store::backend::batch.
        let _ = is_found_by(
            db,
            "TaskQueueDependants",
            1,
            "SELECT t.\"Id\" FROM \"TaskQueue\" AS t WHERE t.\"Id\" IN (39999)
             AND (SELECT d.\"TaskId\" FROM \"TaskQueueDependencies\" AS d
                 WHERE d.\"DependsOnId\" = t.\"Id\" AND d.\"IsSatisfied\" = false LIMIT 1) IS NOT NULL",
        );
        // store::transitions::awaited_ends::missed_ends, where no task waits for any end.
        is_read_from(
            db,
            "TaskQueueAwaitedEnds",
            1,
            "SELECT d.\"AwaitedEnd\" FROM \"TaskQueueDependencies\" AS d INNER JOIN \"TaskQueue\" AS t ON t.\"Id\" = d.\"AwaitedEnd\"
             WHERE d.\"AwaitedEnd\" IS NOT NULL AND (t.\"LastStatus\" IN ('success', 'cancelled', 'expired')
                 OR t.\"QuarantinedOn\" IS NOT NULL) LIMIT 1",
        );
        // store::reading::status::load_part; with other columns, store::reading::candidates::list_recent_tasks and
        // store::reading::failures::load_failed.
        for status in ["success", "scheduled", "failed"] {
            for part in 0..=2 {
                is_read_from(
                    db,
                    "TaskQueueByStatus",
                    21,
                    &format!(
                        "SELECT * FROM \"TaskQueue\" WHERE \"LastStatus\" = '{status}' AND \"Finished\" = {part}
                     ORDER BY \"LastStatus\" DESC, \"Finished\" DESC, \"StatusOn\" DESC, \"Id\" DESC LIMIT 21"
                    ),
                );
            }
        }
        // store::reading::status::list_passed_tasks, if none has passed
        is_read_from(
            db,
            "TaskQueueByStatus",
            0,
            &format!(
                "SELECT * FROM \"TaskQueue\" WHERE \"LastStatus\" = 'processing' AND \"Finished\" = 0 AND \"StatusOn\" <= {now}
                     AND \"ScheduledOn\" <= {now} AND \"DueOn\" IS NULL
                 ORDER BY \"LastStatus\" DESC, \"Finished\" DESC, \"StatusOn\" DESC, \"Id\" DESC LIMIT 5"
            ),
        );
        // Without tasks in this status, either index is as good.
        for status in ["success", "scheduled"] {
            is_read_from(
                db,
                "TaskQueueByClass",
                21,
                &format!(
                    "SELECT * FROM \"TaskQueue\" WHERE \"LastStatus\" = '{status}' AND \"TaskClass\" = 'class3'
                 ORDER BY \"TaskClass\" DESC, \"LastStatus\" DESC, \"ScheduledOn\" DESC, \"Id\" DESC LIMIT 21"
                ),
            );
        }
        // store::reading::status::list_unknown
        is_read_from(
            db,
            "TaskQueueByStatus",
            1,
            "SELECT \"LastStatus\" FROM \"TaskQueue\" WHERE \"LastStatus\" > 'scheduled' ORDER BY \"LastStatus\" LIMIT 1",
        );
        // store::reading::status::last_run and store::records::runs::list_runs_of_task
        is_read_from(
            db,
            "TaskQueueRunsByTask",
            1,
            "SELECT * FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 40000 ORDER BY \"TaskQueueId\" DESC, \"Id\" DESC LIMIT 1",
        );
        // store::reading::status::count_due
        is_read_from(
            db,
            "TaskQueueDue",
            1,
            &format!("SELECT \"DueOn\" FROM \"TaskQueue\" WHERE \"DueOn\" <= {now} ORDER BY \"DueOn\", \"Id\" LIMIT 1"),
        );
        // store::upkeep::prune::load_candidates: if only tasks with a kept key are old, then from a position on, and of a
        // class.
        let long_ago = "'2020-01-01 00:00:00.000000'";
        is_read_from(
            db,
            "TaskQueueByStatus",
            1,
            &format!(
                "SELECT \"Id\", \"UpdatedOn\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1 AND \"StatusOn\" <= {long_ago}
                 ORDER BY \"LastStatus\", \"Finished\", \"StatusOn\", \"Id\" LIMIT 500"
            ),
        );
        let as_time = |text: &str| match db.engine {
            EngineUnderTest::Sqlite | EngineUnderTest::Postgres => text.to_owned(),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("CAST({text} AS DATETIME(6))"),
        };
        let (place, beginning) = (as_time(long_ago), as_time("'1000-01-01 00:00:00.000000'"));
        is_read_from(
            db,
            "TaskQueueByStatus",
            500,
            &format!(
                "SELECT \"Id\", \"UpdatedOn\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1 AND \"StatusOn\" <= {now}
                     AND \"StatusOn\" >= {place} AND (\"StatusOn\" > {place} OR (\"StatusOn\" = {place} AND \"Id\" > 7))
                 ORDER BY \"LastStatus\", \"Finished\", \"StatusOn\", \"Id\" LIMIT 500"
            ),
        );
        is_read_from(
            db,
            "TaskQueueByClass",
            500,
            &format!(
                "SELECT \"Id\", \"UpdatedOn\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'
                     AND \"TaskClass\" = 'class3' AND \"ScheduledOn\" >= {beginning}
                     AND (\"ScheduledOn\" > {beginning} OR (\"ScheduledOn\" = {beginning} AND \"Id\" > 0))
                 ORDER BY \"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"Id\" LIMIT 500"
            ),
        );
        // store::upkeep::prune::first_in_excess
        is_read_from(
            db,
            "TaskQueueByStatus",
            101,
            &format!(
                "SELECT \"StatusOn\", \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1 AND \"StatusOn\" <= {now}
                 ORDER BY \"LastStatus\" DESC, \"Finished\" DESC, \"StatusOn\" DESC, \"Id\" DESC LIMIT 1 OFFSET 100"
            ),
        );
        // store::reading::queues::list_newest_ended
        is_read_from(
            db,
            "TaskQueueByStatus",
            2_000,
            &format!(
                "SELECT \"StatusOn\", \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1 AND \"StatusOn\" > {place} AND \"StatusOn\" <= {now}
                 ORDER BY \"LastStatus\" DESC, \"Finished\" DESC, \"StatusOn\" DESC, \"Id\" DESC LIMIT 2000"
            ),
        );
        // store::reading::queues::first_due, store::reading::due::count_due_of_class
        is_read_from(
            db,
            "TaskQueueDue",
            1_001,
            &format!("SELECT \"TaskClass\" FROM \"TaskQueue\" WHERE \"DueOn\" <= {now} ORDER BY \"DueOn\", \"Id\" LIMIT 1001"),
        );
        // store::reading::queues::count_running, count_waiting and count_failed
        is_read_from(
            db,
            "TaskQueueRunsRunning",
            1_001,
            "SELECT \"RunningClass\", COUNT(*) FROM \"TaskQueueRuns\" WHERE \"RunningClass\" IS NOT NULL GROUP BY \"RunningClass\"",
        );
        is_read_from(
            db,
            "TaskQueueRunsClaim",
            1_001,
            "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" = 'class3'
             ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1001",
        );
        is_read_from(
            db,
            "TaskQueueByClass",
            1_001,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"TaskClass\" = 'class3' AND \"LastStatus\" = 'success'
             ORDER BY \"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"Id\" LIMIT 1001",
        );
        // store::reading::metrics: capped counts, and the position at the cap.
        is_read_from(
            db,
            "TaskQueueByStatus",
            1_001,
            &format!(
                "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Finished\" = 1 AND \"StatusOn\" > {place}
                 ORDER BY \"LastStatus\", \"Finished\", \"StatusOn\", \"Id\" LIMIT 1 OFFSET 1000"
            ),
        );
        is_read_from(
            db,
            "TaskQueueByStatus",
            1,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'failed'
             ORDER BY \"LastStatus\", \"Finished\", \"StatusOn\", \"Id\" LIMIT 1 OFFSET 1000",
        );
        is_read_from(
            db,
            "TaskQueueRunsClaim",
            1_001,
            "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" = 'class3'
             ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 1 OFFSET 1000",
        );
        // store::upkeep::prune::prune_results, if nothing is old, and if everything is: never reads runs whose results were
        // removed.
        for (until, most_rows) in [(long_ago, 1), (now, 500)] {
            is_read_from(
                db,
                "TaskQueueRunsResults",
                most_rows,
                &format!(
                    "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"ResultsOn\" < {until} ORDER BY \"ResultsOn\", \"Id\" LIMIT 500"
                ),
            );
        }
        // store::upkeep::prune::prune_expired_results and load_expired: most tasks and runs have no retention period.
        is_read_from(
            db,
            "TaskQueueRunsResultsExpire",
            1,
            &format!(
                "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"ResultsExpireOn\" <= {now} ORDER BY \"ResultsExpireOn\", \"Id\" LIMIT 500"
            ),
        );
        is_read_from(
            db,
            "TaskQueueExpires",
            1,
            &format!(
                "SELECT \"Id\", \"UpdatedOn\" FROM \"TaskQueue\" WHERE \"ExpiresOn\" <= {now} AND \"ExpiresOn\" >= {beginning}
                     AND (\"ExpiresOn\" > {beginning} OR (\"ExpiresOn\" = {beginning} AND \"Id\" > 0)) AND \"LastStatus\" LIKE 'success'
                 ORDER BY \"ExpiresOn\", \"Id\" LIMIT 500"
            ),
        );
        // store::transitions::recur::heads_to_advance, without a schedule, and among the planned tasks of one.
        is_read_from(
            db,
            "TaskQueueScheduleHead",
            1,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ScheduleHead\" IS NOT NULL ORDER BY \"ScheduleHead\", \"ScheduledOn\", \"Id\" LIMIT 1",
        );
        is_read_from(
            db,
            "TaskQueueScheduleHead",
            1,
            &format!("SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ScheduleHead\" = 'waiting' AND \"ScheduledOn\" <= {now}"),
        );
        // store::transitions::overlap::overdue_heads
        is_read_from(
            db,
            "TaskQueueScheduleHead",
            1,
            &format!(
                "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ScheduleHead\" = 'open' AND \"ScheduledOn\" <= {now} AND \"Overlap\" = 'replace'
                 ORDER BY \"ScheduleHead\", \"ScheduledOn\", \"Id\""
            ),
        );
        // store::reading::selections: tasks by status, by class and status, and failed tasks with an error code.
        is_read_from(
            db,
            "TaskQueueByStatus",
            0,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'failed'",
        );
        is_read_from(
            db,
            "TaskQueueByClass",
            0,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"TaskClass\" IN ('class7') AND \"LastStatus\" = 'success'",
        );
        // The same: who queued them and when, for the tasks that a verb can change.
        is_read_from(
            db,
            "TaskQueueByStatus",
            0,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"LastStatus\" = 'failed' AND \"QueuedById\" IN ('ann') AND \"QueuedOn\" < '2020-01-01 00:00:00.000000'",
        );
        // The same: the tasks of a schedule, the first one of a new schedule, and the tasks with a key.
        is_read_from(db, "TaskQueuePlanned", 100, "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ScheduleId\" IN (500)");
        is_read_from(
            db,
            &by_id(db, "TaskQueue"),
            2,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Id\" IN (500, 40000) AND \"ScheduleId\" IS NULL AND \"Recurrence\" IS NOT NULL",
        );
        is_read_from(
            db,
            "TaskQueueByUniqueKey",
            2,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"UniqueKey\" IN ('key40001', 'key501')",
        );
        db.execute("UPDATE \"TaskQueue\" SET \"Tag\" = CASE WHEN \"Id\" % 2 = 0 THEN 'a' ELSE 'b' END WHERE \"Id\" <= 400");
        analyze(db, "TaskQueue");
        is_read_from(db, "TaskQueueByTag", 200, "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Tag\" IN ('a')");
        db.execute("UPDATE \"TaskQueue\" SET \"Name\" = \"Tag\" WHERE \"Id\" <= 400");
        analyze(db, "TaskQueue");
        is_read_from(db, "TaskQueueByName", 200, "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Name\" IN ('a')");
        is_read_from(
            db,
            "TaskQueueByParent",
            2,
            "SELECT \"Id\" FROM \"TaskQueue\" WHERE \"ParentId\" IN (40001, 501)",
        );
        // store::rules::classes::list_task_classes
        is_read_from(
            db,
            "TaskQueueByClass",
            1,
            "SELECT \"TaskClass\" FROM \"TaskQueue\" WHERE \"TaskClass\" > 'class1' ORDER BY \"TaskClass\" LIMIT 1",
        );
        // store::reading::candidates::list_run_names, list_limit_key_names, list_unique_keys_from and list_tags_from
        is_read_from(
            db,
            "TaskQueueRunsClaim",
            100,
            "SELECT \"Id\", \"TaskClass\", \"Status\" FROM \"TaskQueueRuns\" WHERE \"ClaimClass\" IS NOT NULL
             ORDER BY \"ClaimClass\", \"ClaimOrder\", \"LinedUpOn\", \"Id\" LIMIT 100",
        );
        is_read_from(
            db,
            "TaskQueueRunsHeldKey",
            100,
            "SELECT \"HeldKey\" FROM \"TaskQueueRuns\" WHERE \"HeldKey\" IS NOT NULL
             ORDER BY \"HeldKey\", \"ClaimOrder\", \"Id\" LIMIT 100",
        );
        is_read_from(
            db,
            "TaskQueueByUniqueKey",
            100,
            "SELECT \"UniqueKey\" FROM \"TaskQueue\" WHERE \"UniqueKey\" >= 'key4' ORDER BY \"UniqueKey\", \"Id\" LIMIT 100",
        );
        is_read_from(
            db,
            "TaskQueueByTag",
            1,
            "SELECT \"Tag\" FROM \"TaskQueue\" WHERE \"Tag\" > 'a' ORDER BY \"Tag\", \"Id\" LIMIT 1",
        );
    }

    fn the_indexes_of_claims_and_due_tasks_hold_only_the_rows_in_question(db) {
        let made = |index: &str, column: &str| -> Option<String> {
            db.text(&match db.engine {
                EngineUnderTest::Sqlite => format!("SELECT sql AS value FROM sqlite_schema WHERE name = '{index}'"),
                EngineUnderTest::Postgres => {
                    format!("SELECT indexdef AS value FROM pg_indexes WHERE indexname = '{index}'")
                }
                // These engines have no partial indexes: the first column of the index is NULL for all other rows.
                EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!(
                    "SELECT CONVERT(CONCAT(COLUMN_NAME, IF(NULLABLE = 'YES', ' WHERE IS NOT NULL', '')) USING utf8mb4) AS value
                     FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME = '{index}'
                         AND SEQ_IN_INDEX = 1 AND COLUMN_NAME = '{column}'"
                ),
            })
        };
        for (index, column) in
            [("TaskQueueDue", "DueOn"), ("TaskQueueRunsClaim", "ClaimClass"), ("TaskQueueRunsWaiting", "WaitingOrder"), ("TaskQueueRunsOpen", "OpenTaskId"),
             ("TaskQueueRunsWaitingTag", "WaitingTag"), ("TaskQueueByTag", "Tag"), ("TaskQueueByName", "Name")]
        {
            let made = made(index, column).unwrap();
            assert!(made.contains("WHERE") && made.contains(column) && made.contains("IS NOT NULL"), "{index}: {made}");
        }
    }
}
