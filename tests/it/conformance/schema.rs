//! The schema: the same on every engine, protected by CHECKs, usable with a plain INSERT.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{TimeDelta, Timelike as _};
use taskqueue_domain::run::due::is_due;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::upkeep::create_runs::due_facts;
use taskqueue_store::PruneVerdict;

use super::fixture::*;
use crate::support::{EngineUnderTest, TestDb};
use crate::{each_engine, test_on};

/// Each table with its columns in alphabetical order: `?` marks nullable columns, `=` columns with a default, `*` computed
/// columns. Then the columns of the primary key and of unique indexes.
pub const SCHEMA: &[(&str, &str, &str, &str)] = &[
    (
        "TaskQueue",
        "Attempts= Backoff? CatchUp= ClassKeep? Crashes= CurrentRunId? DueOn?* ExpiresOn?* FailedRetries= Finished?* Id Keep? KeepResults? LastStatus= \
         LimitKey? LiveStartBefore?* LiveUniqueKey?* MaxRetries? Meta? Name? NextAttemptOn? Overlap= ParentId? PlannedOn? \
         Priority= QuarantinedOn? QueuedById= QueuedOn= Receipt? Recurrence? RetryLimit? ScheduleHead?* ScheduleId? ScheduleStatus= ScheduledOn= StartBefore? StatusOn?* Tag? TaskClass \
         TaskData= TimeZone= Timeout? UniqueKey? UniqueUntil? UpdatedOn= WaitingFor=",
        "Id",
        "ScheduleId PlannedOn Receipt TaskClass LiveUniqueKey",
    ),
    ("TaskQueueClassHolds", "HeldOn= HeldUntil Host Reason TaskClass", "TaskClass Host", ""),
    ("TaskQueueClassLimits", "MaxRunning? RateCount? RateSecs? TaskClass", "TaskClass", ""),
    ("TaskQueueDependencies", "AwaitedEnd?* DependsOnId IsSatisfied= NeedsSuccess= TaskId", "TaskId DependsOnId", ""),
    ("TaskQueueEvents", "Actor= Details= Host= Id Kind OccurredOn= RunId? TaskQueueId?", "Id", ""),
    ("TaskQueueKeyLimits", "LimitKey MaxRunning", "LimitKey", ""),
    ("TaskQueueLocks", "Name", "Name", ""),
    ("TaskQueueNotices", "ErrorCode= ErrorMessage= Host= Id Kind OccurredOn= RunId? TaskClass= TaskQueueId?", "Id", ""),
    ("TaskQueuePauses", "Author= CreatedOn= Host= Mode= Name= Reason= Scope Until?", "Scope Name", ""),
    ("TaskQueueReceipts", "Token WrittenOn=", "Token", ""),
    ("TaskQueueRejections", "Claimant HeldUntil? RejectedOn= TaskId Timeouts=", "TaskId Claimant", ""),
    ("TaskQueueRunOutputs", "Content IsLossy= RunId Stream TotalBytes", "RunId Stream", ""),
    (
        "TaskQueueRunners",
        "Classes? FinishedOn? HeartbeatBootMs? HeartbeatOn= Host= Id Name= ProcessId ProcessIdentity= Slots= StartedOn= Version=",
        "Id",
        "",
    ),
    (
        "TaskQueueRuns",
        "Attempt= CancelReason= CancelRequestedOn? ClaimClass?* ClaimOrder* Claimant? CpuMsecs? CreatedOn= Decision= ErrorCode= ErrorMessage= FinishedOn? FollowedOn? HandlerIdentity= \
         HandlerProcessId? HasKeySlot= HeldKey?* Host= Id KeepResults? LeaseExpiresOn? LimitKey? LinedUpOn= OpenTaskId?* PeakMemoryBytes? PercentsCompleted= Priority= ProcessId? ProcessIdentity= \
         ProgressMessage= Results? ResultsExpireOn?* ResultsOn?* RunnerId? RunningClass?* StartedOn? Status= Tag? TaskClass TaskQueueId Token? UpdatedOn= WaitingKey?* WaitingOrder?* WaitingTag?*",
        "Id",
        "OpenTaskId",
    ),
    ("TaskQueueSchedules", "ConfiguredOn Definition? File Host Name ScheduleId?", "Name", ""),
    ("TaskQueueSettings", "Name Value", "Name", ""),
    ("TaskQueueStarts", "RunId StartedOn TaskClass", "TaskClass StartedOn RunId", ""),
    ("TaskQueueTimers", "Name NextOn=", "Name", ""),
];

/// ClaimOrder is never NULL, but only SQLite and the MySQL family could declare a computed column so with a portable
/// definition. No program writes it.
const COMPUTED_WITHOUT_NULL: &str = "ClaimOrder";
/// A column that MySQL and MariaDB need instead of a partial index. Only their statements use it.
const IN_PLACE_OF_PARTIAL_INDEX: &str = "PriorityDueOn?*";

fn tables(db: &TestDb) -> BTreeSet<String> {
    let sql = match db.engine {
        EngineUnderTest::Sqlite => {
            "SELECT name AS value FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        }
        EngineUnderTest::Postgres => {
            "SELECT table_name::text AS value FROM information_schema.tables WHERE table_schema = 'public'"
        }
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            "SELECT CONVERT(TABLE_NAME USING utf8mb4) AS value FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        }
    };
    let all = db.raw().texts(sql).into_iter().flatten();
    all.filter(|name| name != "__diesel_schema_migrations").collect()
}

/// Returns the columns in the format of [`SCHEMA`]. Auto-increment is not marked, because engines report it differently.
fn columns(db: &TestDb, table: &str) -> String {
    let sql = match db.engine {
        EngineUnderTest::Sqlite => format!(
            "SELECT name || CASE WHEN \"notnull\" = 0 THEN '?' ELSE '' END
                 || CASE WHEN hidden > 0 THEN '*' WHEN dflt_value IS NOT NULL THEN '=' ELSE '' END AS value
             FROM pragma_table_xinfo('{table}')"
        ),
        EngineUnderTest::Postgres => format!(
            "SELECT column_name || CASE WHEN is_nullable = 'YES' THEN '?' ELSE '' END
                 || CASE WHEN is_generated = 'ALWAYS' THEN '*' WHEN column_default IS NOT NULL THEN '=' ELSE '' END AS value
             FROM information_schema.columns WHERE table_schema = 'public' AND table_name = '{table}'"
        ),
        // MariaDB reports the text NULL for a nullable column without a default.
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!(
            "SELECT CONVERT(CONCAT(COLUMN_NAME, IF(IS_NULLABLE = 'YES', '?', ''),
                 CASE WHEN GENERATION_EXPRESSION <> '' THEN '*'
                      WHEN COALESCE(COLUMN_DEFAULT, 'NULL') <> 'NULL' THEN '=' ELSE '' END) USING utf8mb4) AS value
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
        ),
    };
    let mut all: BTreeSet<String> = db
        .raw()
        .texts(&sql)
        .into_iter()
        .flatten()
        .map(|column| if column.starts_with(COMPUTED_WITHOUT_NULL) { column.replace('?', "") } else { column })
        .collect();
    let is_needed = table == "TaskQueue" && db.is_mysql_like();
    assert_eq!(all.remove(IN_PLACE_OF_PARTIAL_INDEX), is_needed, "{IN_PLACE_OF_PARTIAL_INDEX} in {table}");
    all.into_iter().collect::<Vec<_>>().join(" ")
}

fn keys(db: &TestDb, table: &str, is_primary: bool) -> String {
    let sql = match (db.engine, is_primary) {
        (EngineUnderTest::Sqlite, true) => format!("SELECT name AS value FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk"),
        (EngineUnderTest::Sqlite, false) => format!(
            "SELECT c.name AS value FROM pragma_index_list('{table}') AS i JOIN pragma_index_info(i.name) AS c
             WHERE i.\"unique\" AND i.origin <> 'pk' ORDER BY i.name, c.seqno"
        ),
        (EngineUnderTest::Postgres, _) => format!(
            "SELECT a.attname::text AS value FROM pg_index AS i
             JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place) ON true
             JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE i.indrelid = '\"{table}\"'::regclass AND i.indisunique AND i.indisprimary = {is_primary} ORDER BY i.indexrelid::regclass::text, k.place"
        ),
        (EngineUnderTest::Mariadb | EngineUnderTest::Mysql, _) => format!(
            "SELECT CONVERT(COLUMN_NAME USING utf8mb4) AS value FROM information_schema.STATISTICS
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}' AND NON_UNIQUE = 0
                 AND (INDEX_NAME = 'PRIMARY') = {is_primary} ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ),
    };
    db.raw().texts(&sql).into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the tables and columns in the program's own declaration.
fn declared() -> BTreeMap<String, BTreeSet<String>> {
    let source = std::fs::read_to_string(concat!(env!("REPOSITORY_DIR"), "/crates/store/src/base/schema.rs")).unwrap();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut table = String::new();
    for line in source.lines() {
        // After the macro, only names of the database are quoted.
        let Some(name) = line.split('"').nth(1) else { continue };
        if line.ends_with('{') {
            name.clone_into(&mut table);
            all.entry(table.clone()).or_default();
        } else {
            assert!(all.get_mut(&table).unwrap().insert(name.to_owned()), "{line}");
        }
    }
    all
}

/// Returns an INSERT with the required columns and the columns of the case.
fn insert(table: &str, columns: &str, values: &str) -> String {
    let (needed, given) = match table {
        "TaskQueue" => ("\"TaskClass\"", "'x'"),
        "TaskQueueRuns" => ("\"TaskQueueId\", \"TaskClass\"", "1, 'x'"),
        "TaskQueueRunners" => ("\"ProcessId\"", "1"),
        "TaskQueueRunOutputs" => ("\"RunId\", \"Content\", \"TotalBytes\"", "1, 'x', 1"),
        "TaskQueueEvents" => ("\"Kind\"", "'x'"),
        "TaskQueueDependencies" => ("\"TaskId\"", "1"),
        "TaskQueuePauses" => ("\"Scope\"", "'all'"),
        "TaskQueueClassLimits" => ("\"TaskClass\"", "'x'"),
        "TaskQueueKeyLimits" => ("\"LimitKey\"", "'x'"),
        _ => ("\"Name\"", "'x'"),
    };
    let columns: Vec<String> = columns.split(' ').map(|column| format!("\"{column}\"")).collect();
    let known: Vec<&str> = needed.split(", ").filter(|column| columns.iter().all(|other| other != column)).collect();
    if known.len() < needed.split(", ").count() {
        return format!("INSERT INTO \"{table}\" ({}) VALUES ({values})", columns.join(", "));
    }
    format!("INSERT INTO \"{table}\" ({needed}, {}) VALUES ({given}, {values})", columns.join(", "))
}

// The other engines always clean up automatically.
test_on! { [postgres Postgres] the_tables_of_claims_are_vacuumed_once_a_twentieth_has_changed db {
    let cleaned = "SELECT COUNT(*) AS value FROM pg_class WHERE relname IN ('TaskQueue', 'TaskQueueRuns')
                   AND relnamespace = current_schema()::regnamespace
                   AND 'autovacuum_vacuum_scale_factor=0.05' = ANY (reloptions)";
    assert_eq!(db.number(cleaned), 2);
} }

each_engine! {
    fn the_schema_is_the_same_on_every_engine(db) {
        let expected: BTreeSet<String> = SCHEMA.iter().map(|(table, ..)| (*table).to_owned()).collect();
        assert_eq!(tables(db), expected);
        for (table, expected, primary, unique) in SCHEMA {
            assert_eq!(columns(db, table), *expected, "columns of {table}");
            assert_eq!(keys(db, table, true), *primary, "primary key of {table}");
            assert_eq!(keys(db, table, false), *unique, "unique columns of {table}");
        }
    }

    fn the_schema_is_the_one_that_the_program_declares(db) {
        let in_database: BTreeMap<String, BTreeSet<String>> = tables(db)
            .into_iter()
            .map(|table| {
                let names = columns(db, &table);
                (table, names.split(' ').map(|column| column.trim_end_matches(['?', '=', '*']).to_owned()).collect())
            })
            .collect();
        assert_eq!(in_database, declared());
    }

    fn what_the_code_assumes_is_defended_by_checks(db) {
        let mut raw = db.raw();
        let processing = "'processing', '2026-01-01 00:00:00', '2026-01-01 00:00:00', 't'";
        // Table, columns, accepted values, refused values.
        let cases = [
            ("TaskQueue", "TaskClass", "'x'", "''"),
            ("TaskQueue", "TaskData", "'[1]'", "'{'"),
            ("TaskQueue", "TaskData", "'null'", "''"),
            ("TaskQueue", "LastStatus", "'cancelled'", "'error'"),
            ("TaskQueue", "LastStatus", "'expired'", "'Expired'"),
            ("TaskQueue", "StartBefore", "NULL", "'soon'"),
            ("TaskQueue", "StartBefore", "'1000-01-01 00:00:00'", "'0999-12-31 00:00:00'"),
            ("TaskQueue", "LastStatus", "'scheduled'", "'Scheduled'"),
            ("TaskQueue", "MaxRetries", "1", "0"),
            ("TaskQueue", "MaxRetries", "NULL", "1000001"),
            ("TaskQueue", "RetryLimit", "NULL", "0"),
            ("TaskQueue", "FailedRetries", "7", "-1"),
            ("TaskQueue", "Attempts", "7", "-1"),
            ("TaskQueue", "Priority", "1000", "1001"),
            ("TaskQueue", "Priority", "-1000", "-1001"),
            ("TaskQueue", "Timeout", "NULL", "0"),
            ("TaskQueue", "WaitingFor", "0", "-1"),
            ("TaskQueue", "UniqueKey", "'k'", "'k'"),
            ("TaskQueue", "TaskClass UniqueKey", "'y', 'k'", "'z', ''"),
            ("TaskQueue", "UniqueKey LastStatus", "'k', 'success'", "'k', 'processing'"),
            ("TaskQueue", "UniqueKey LastStatus", "'k', 'cancelled'", "'k', 'scheduled'"),
            ("TaskQueue", "LimitKey", "'k'", "''"),
            ("TaskQueue", "Tag", "'account 17'", "''"),
            ("TaskQueue", "Tag", "NULL", "' account-17'"),
            ("TaskQueue", "Tag", "'~'", "'caf\u{e9}'"),
            ("TaskQueue", "Name", "'caf\u{e9} 7'", "''"),
            ("TaskQueue", "Name", "NULL", "' nightly'"),
            ("TaskQueue", "Name", "'~'", "'a\u{1b}b'"),
            ("TaskQueue", "ParentId", "7", "0"),
            ("TaskQueue", "Keep", "0", "-1"),
            ("TaskQueue", "Keep", "2000000000", "2000000001"),
            ("TaskQueue", "ClassKeep", "NULL", "-1"),
            ("TaskQueue", "KeepResults", "0", "2000000001"),
            ("TaskQueue", "Meta", "'{}'", "'[1]'"),
            ("TaskQueue", "Meta", "' {}'", "'{'"),
            ("TaskQueue", "Meta", "NULL", "'1'"),
            ("TaskQueueRuns", "TaskQueueId TaskClass KeepResults", "20, 'x', 0", "21, 'x', -1"),
            ("TaskQueue", "CatchUp", "'none'", "'some'"),
            ("TaskQueue", "Overlap", "'replace'", "'skip'"),
            ("TaskQueue", "Overlap CatchUp", "'replace', 'none'", "'replace', 'all'"),
            ("TaskQueue", "ScheduleStatus", "'paused'", "'off'"),
            ("TaskQueue", "ScheduledOn", "'2026-01-01 00:00:00'", "NULL"),
            ("TaskQueue", "NextAttemptOn", "NULL", "'someday'"),
            ("TaskQueue", "NextAttemptOn", "'1000-01-01 00:00:00'", "'0999-12-31 00:00:00'"),
            ("TaskQueue", "ScheduledOn", "'2026-01-01 00:00:00.123456'", "'someday'"),
            ("TaskQueue", "ScheduledOn", "'1000-01-01 00:00:00'", "'0999-12-31 00:00:00'"),
            ("TaskQueue", "ScheduledOn", "'9999-12-31 23:59:59'", "'infinity'"),
            ("TaskQueueRuns", "Attempt", "1", "0"),
            ("TaskQueueRuns", "TaskQueueId TaskClass PercentsCompleted", "2, 'x', 100", "3, 'x', 101"),
            ("TaskQueueRuns", "TaskQueueId TaskClass PercentsCompleted", "4, 'x', 0", "5, 'x', -1"),
            ("TaskQueueRuns", "TaskQueueId TaskClass Results", "6, 'x', '{}'", "7, 'x', 'x'"),
            ("TaskQueueRuns", "TaskQueueId TaskClass Status", "8, 'x', 'scheduled'", "9, 'x', 'failed'"),
            ("TaskQueueRuns", "Status FinishedOn", "'success', '2026-01-01 00:00:00'", "'success', NULL"),
            ("TaskQueueRuns", "Status FinishedOn", "'released', '2026-01-01 00:00:00'", "'timeout', NULL"),
            ("TaskQueueRuns", "TaskQueueId TaskClass FinishedOn", "10, 'x', NULL", "11, 'x', '2026-01-01 00:00:00'"),
            (
                "TaskQueueRuns",
                "TaskQueueId TaskClass Status StartedOn LeaseExpiresOn Token",
                &format!("12, 'x', {processing}"),
                &format!("13, 'x', {}", processing.replace("'t'", "NULL")),
            ),
            (
                "TaskQueueRuns",
                "TaskQueueId TaskClass Status Token LeaseExpiresOn",
                "14, 'x', 'scheduled', NULL, NULL",
                "15, 'x', 'processing', 't', '2026-01-01 00:00:00'",
            ),
            (
                "TaskQueueRuns",
                "TaskQueueId TaskClass Status Token StartedOn",
                "16, 'x', 'scheduled', NULL, NULL",
                "17, 'x', 'processing', 't', '2026-01-01 00:00:00'",
            ),
            ("TaskQueueRuns", "TaskQueueId TaskClass", "18, 'x'", "18, 'x'"),
            ("TaskQueueRunners", "Slots", "1", "0"),
            ("TaskQueueRunOutputs", "Stream", "'stderr'", "'stdin'"),
            ("TaskQueueDependencies", "DependsOnId", "2", "1"),
            ("TaskQueueDependencies", "TaskId DependsOnId", "3, 2", "1, 2"),
            ("TaskQueueEvents", "Details", "'{}'", "'{'"),
            ("TaskQueuePauses", "Scope Name", "'runner', 'a'", "'host', 'b'"),
            ("TaskQueuePauses", "Scope Name", "'all', ''", "'all', 'a'"),
            ("TaskQueuePauses", "Scope Name Mode", "'class', 'a', 'stop'", "'class', 'b', 'halt'"),
            ("TaskQueuePauses", "Scope Name", "'class', 'c'", "'class', ''"),
            ("TaskQueueClassLimits", "TaskClass MaxRunning", "'a', 1", "'b', 0"),
            ("TaskQueueKeyLimits", "LimitKey MaxRunning", "'a', 1", "'b', 0"),
            ("TaskQueueKeyLimits", "LimitKey MaxRunning", "'c', 1", "'', 1"),
            ("TaskQueueKeyLimits", "LimitKey MaxRunning", "'d', 1", "'a', 2"),
            ("TaskQueueClassLimits", "TaskClass RateCount RateSecs", "'c', 10000, 86400", "'d', 10001, 1"),
            ("TaskQueueClassLimits", "TaskClass RateCount RateSecs", "'e', 1, 1", "'f', 1, NULL"),
            ("TaskQueueClassLimits", "TaskClass RateCount RateSecs", "'g', NULL, NULL", "'h', 1, 0"),
            ("TaskQueueSettings", "Value", "'1'", "''"),
        ];
        for (table, columns, good, bad) in cases {
            let (good, bad) = (insert(table, columns, good), insert(table, columns, bad));
            raw.try_execute(&good).unwrap_or_else(|error| panic!("{good}: {error}"));
            assert!(raw.try_execute(&bad).is_err(), "taken: {bad}");
        }
    }

    fn the_table_takes_no_value_outside_the_range_of_its_setting(db) {
        willing(db);
        let mut raw = db.raw();
        let mut set = |setting: Setting, value: &str| {
            raw.try_execute(&format!("UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = '{setting}'"))
        };
        for setting in Setting::ALL {
            let (low, high) = setting.range();
            for allowed in [low, high] {
                set(setting, &allowed.to_string()).unwrap_or_else(|error| panic!("{setting} = {allowed}: {error}"));
            }
            for bad in [(low - 1).to_string(), (high + 1).to_string(), format!("{low}x"), format!("{low}.5"), "x".into(), String::new()] {
                assert!(set(setting, &bad).is_err(), "taken: {setting} = {bad}");
            }
        }
    }

    fn ids_are_never_reused(db) {
        let id = queue(&mut willing(db), "work");
        db.execute("DELETE FROM \"TaskQueue\"");
        assert!(queue(&mut willing(db), "work") > id);
    }

    fn a_plain_insert_of_class_and_data_queues_a_task(db) {
        let mut ctx = willing(db);
        let before = ctx.now().unwrap();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('work', '[1, 2]')");
        let after = ctx.now().unwrap();
        let queued = task(db, TaskId(1));
        assert!(
            [before, queued.queued_on, after].is_sorted() && [before, queued.scheduled_on, after].is_sorted(),
            "{queued:?}"
        );
        assert_eq!((queued.data.as_str(), queued.max_retries, queued.priority), ("[1, 2]", None, 0));
        // SQLite has no users.
        let by = if db.engine == EngineUnderTest::Sqlite { "" } else { "taskqueue" };
        assert!(queued.queued_by == by || queued.queued_by.starts_with("taskqueue@"), "{}", queued.queued_by);
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
    }

    fn an_insert_in_a_transaction_of_another_time_zone_is_all_or_nothing(db) {
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let mut application = db.raw();
        let insert = "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('work', '{}')";
        application.execute(match db.engine {
            // SQLite has no session time zone; the other half of the test applies anyway.
            EngineUnderTest::Sqlite => "SELECT 1",
            EngineUnderTest::Postgres => "SET TIME ZONE 'Pacific/Kiritimati'",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "SET time_zone = '+13:00'",
        });
        application.execute("BEGIN");
        application.execute(insert);
        application.execute("ROLLBACK");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
        let before = db.store().now().unwrap();
        application.execute("BEGIN");
        application.execute(insert);
        application.execute("COMMIT");
        let after = db.store().now().unwrap();
        let id = TaskId(db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\""));
        let queued = task(db, id);
        assert!([before, queued.scheduled_on, after].is_sorted(), "{before} {} {after}", queued.scheduled_on);
        assert!([before, queued.updated_on, after].is_sorted(), "{before} {} {after}", queued.updated_on);
        let _ = db.cli().run(&["tick"]).ok();
        assert!(task(db, id).status.is(TaskStatus::Success));
    }

    fn an_insert_with_a_time_of_its_own_is_due_at_that_instant(db) {
        let mut application = db.raw();
        let in_an_hour = match db.engine {
            EngineUnderTest::Postgres => {
                application.execute("SET TIME ZONE 'America/New_York'");
                "now() + interval '1 hour'".to_owned()
            }
            EngineUnderTest::Sqlite => "strftime('%Y-%m-%d %H:%M:%S', 'now', '1 hour')".to_owned(),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
                application.execute("SET time_zone = '-05:00'");
                "UTC_TIMESTAMP() + INTERVAL 1 HOUR".to_owned()
            }
        };
        application.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") VALUES ('work', {in_an_hour})"
        ));
        let mut ctx = willing(db);
        let wait = task(db, TaskId(1)).scheduled_on - ctx.now().unwrap();
        assert!(wait > TimeDelta::minutes(59) && wait <= TimeDelta::hours(1), "{wait}");
        assert_eq!(create(&mut ctx).created, 0);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = {}", sql_now(db.engine, 0)));
        assert_eq!(create(&mut ctx).created, 1);
    }

    fn times_keep_their_microseconds(db) {
        let mut ctx = willing(db);
        for text in [
            "2026-08-01T10:00:00.000001Z",
            "2026-08-01T10:00:00.999999Z",
            "2000-01-01T00:00:00Z",
            "2037-06-01T00:00:00.5Z",
            "2038-02-01T00:00:00.000001Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            let mut request = request("work");
            request.scheduled_on = Some(text.parse().unwrap());
            let wanted = request.scheduled_on.unwrap();
            let id = queue_task(&mut ctx, request, ClassCheck::KnownHere).unwrap();
            assert_eq!(task(db, id).scheduled_on, wanted);
            assert_eq!(task(db, id).scheduled_on.nanosecond() % 1_000, 0);
        }
    }

    fn live_columns_say_the_same_as_the_rules_of_live_tasks(db) {
        let past = sql_now(db.engine, -60);
        let mut rows = Vec::new();
        for status in TaskStatus::ALL {
            for open_run in ["NULL", "7"] {
                for failed in [0, 5] {
                    for quarantined in ["NULL", past.as_str()] {
                        for until in ["NULL", past.as_str()] {
                            let key = rows.len();
                            rows.push(format!("('work', 5, '{status}', {open_run}, {failed}, {quarantined}, {until}, 'k{key}', {past})"));
                        }
                    }
                }
            }
        }
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"MaxRetries\", \"LastStatus\", \"CurrentRunId\", \"FailedRetries\", \"QuarantinedOn\", \"UniqueUntil\", \"UniqueKey\", \"StartBefore\") VALUES {}",
            rows.join(", ")
        ));
        let taken = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" = \"UniqueKey\"");
        let live = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"LiveStartBefore\" = \"StartBefore\"");
        let ids = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\"");
        assert_eq!(ids.len(), 7 * 16);
        let mut store = db.store();
        for id in ids.into_iter().flatten() {
            let task = store.get_task(TaskId(id)).unwrap();
            assert_eq!(taken.contains(&Some(id)), task.has_its_key(), "{task:?}");
            let may_start = !task.is_settled() && !task.status.is(TaskStatus::Processing);
            assert_eq!(live.contains(&Some(id)), may_start, "{task:?}");
        }
    }

    fn finished_says_the_same_as_the_rule_of_what_may_be_deleted(db) {
        let (past, future) = (sql_now(db.engine, -60), sql_now(db.engine, 3_600));
        let mut rows = Vec::new();
        for status in TaskStatus::ALL {
            for open_run in ["NULL", "7"] {
                for failed in [0, 5] {
                    for quarantined in ["NULL", past.as_str()] {
                        for until in ["NULL", past.as_str(), future.as_str()] {
                            for schedule in
                                ["NULL, 'active'", "'@daily', 'active'", "'@daily', 'followed'", "'@daily', 'ended'"]
                            {
                                rows.push(format!(
                                    "('work', 5, '{status}', {open_run}, {failed}, {quarantined}, {until}, {schedule})"
                                ));
                            }
                        }
                    }
                }
            }
        }
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"MaxRetries\", \"LastStatus\", \"CurrentRunId\", \"FailedRetries\", \"QuarantinedOn\", \"UniqueUntil\",
                \"Recurrence\", \"ScheduleStatus\") VALUES {}",
            rows.join(", ")
        ));
        let over = format!("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"Finished\" > 0 AND \"StatusOn\" <= {}", sql_now(db.engine, 0));
        let over: BTreeSet<i64> = db.raw().numbers(&over).into_iter().flatten().collect();
        let ids = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"");
        let ids: Vec<TaskId> = ids.into_iter().flatten().map(TaskId).collect();
        assert_eq!(ids.len(), 7 * 96);
        for (id, verdict) in ids.iter().zip(db.store().judge_tasks(&ids).unwrap()) {
            assert_eq!(over.contains(&id.0), verdict == PruneVerdict::Goes, "{:?}", task(db, *id));
        }
        assert_eq!(over.len(), 108);
        // Its age counts from its last change or from the expiry of its key, whichever is later.
        let key_was_last = format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Finished\" > 0 AND \"StatusOn\" > {}", sql_now(db.engine, 60));
        assert_eq!(db.number(&key_was_last), 54);
    }

    fn the_retry_limit_goes_before_max_retries(db) {
        let limits = [("NULL", "NULL", false), ("6", "NULL", true), ("NULL", "6", true), ("6", "9", true), ("7", "6", false)];
        for (limit, max, _) in limits {
            db.execute(&format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"FailedRetries\", \"RetryLimit\", \"MaxRetries\", \"UniqueKey\")
                 VALUES ('work', 'failed', 6, {limit}, {max}, 'of {limit} and {max}')"
            ));
        }
        let ids = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"");
        for (id, (limit, max, is_exhausted)) in ids.into_iter().flatten().zip(limits) {
            let is = |condition: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id} AND {condition}")) == 1;
            assert_eq!(task(db, TaskId(id)).is_exhausted(), is_exhausted, "{limit} {max}");
            let found = [is("\"DueOn\" IS NULL"), is("\"Finished\" > 0"), is("\"LiveUniqueKey\" IS NULL")];
            assert_eq!(found, [is_exhausted; 3], "{limit} {max}");
        }
    }

    fn due_on_says_the_same_as_the_due_rule(db) {
        let (past, future) = (sql_now(db.engine, -60), sql_now(db.engine, 3_600));
        let mut rows = Vec::new();
        for status in TaskStatus::ALL {
            for open_run in ["NULL", "7"] {
                for failed in [0, 4, 5, 6] {
                    for waiting in [0, 2] {
                        for on in [&past, &future] {
                            for quarantined in ["NULL", past.as_str()] {
                                for schedule in ["NULL, NULL, 'active'", &format!("'@daily', {past}, 'paused'")] {
                                    rows.push(format!(
                                        "('work', 5, '{status}', {open_run}, {failed}, {waiting}, {on}, {quarantined}, {schedule}, NULL)"
                                    ));
                                }
                            }
                        }
                    }
                }
            }
        }
        for schedule in ["'@daily', NULL, 'active'", &format!("'@daily', {past}, 'active'")] {
            rows.push(format!("('work', 5, 'scheduled', NULL, 0, 0, {past}, NULL, {schedule}, NULL)"));
        }
        for (on, next) in [(&past, &past), (&past, &future), (&future, &past), (&future, &future)] {
            rows.push(format!("('work', 5, 'failed', NULL, 1, 0, {on}, NULL, NULL, NULL, 'active', {next})"));
        }
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"MaxRetries\", \"LastStatus\", \"CurrentRunId\", \"FailedRetries\", \"WaitingFor\", \"ScheduledOn\", \"QuarantinedOn\",
                \"Recurrence\", \"PlannedOn\", \"ScheduleStatus\", \"NextAttemptOn\") VALUES {}",
            rows.join(", ")
        ));
        let due: BTreeSet<i64> = db
            .raw()
            .numbers(&format!("SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"DueOn\" <= {}", sql_now(db.engine, 0)))
            .into_iter()
            .flatten()
            .collect();
        let mut store = db.store();
        let now = store.now().unwrap();
        let ids = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\"");
        assert_eq!(ids.len(), 7 * 128 + 6);
        for id in ids.into_iter().flatten() {
            let task = store.get_task(TaskId(id)).unwrap();
            assert_eq!(due.contains(&id), is_due(&due_facts(&task), now).is_ok(), "{task:?}");
        }
        assert_eq!(due.len(), 9);
    }
}
