//! Triggers with which the database itself records changes of its rows, and reading these records.

use std::collections::HashMap;

use super::database::{EngineUnderTest, Raw};
use super::records::{Change, RunRow, Table, TaskRow};

/// What a trigger records.
struct Watched {
    table: &'static str,
    kind: &'static str,
    /// Columns.
    task: &'static str,
    state: &'static str,
    detail: &'static str,
    /// An expression over NEW: the priority in the order of claims.
    rank: &'static str,
    /// An expression over NEW for a time: the place among runs of one priority.
    place: &'static str,
    /// An expression over NEW for a time.
    time: &'static str,
}

const WATCHED: [Watched; 3] = [
    Watched {
        table: "TaskQueue",
        kind: "task",
        task: "\"Id\"",
        state: "\"LastStatus\"",
        detail: "\"Attempts\"",
        rank: "NULL",
        place: "NEW.\"ScheduledOn\"",
        time: "COALESCE(NEW.\"NextAttemptOn\", NEW.\"ScheduledOn\")",
    },
    Watched {
        table: "TaskQueueRuns",
        kind: "run",
        task: "\"TaskQueueId\"",
        state: "\"Status\"",
        detail: "\"Token\"",
        rank: "CASE WHEN NEW.\"ClaimClass\" IS NOT NULL THEN NEW.\"ClaimOrder\" END",
        place: "NEW.\"LinedUpOn\"",
        time: "COALESCE(NEW.\"StartedOn\", NEW.\"CreatedOn\")",
    },
    Watched {
        table: "TaskQueueRunners",
        kind: "runner",
        task: "0",
        state: "\"FinishedOn\"",
        detail: "\"Slots\"",
        rank: "NULL",
        place: "NEW.\"StartedOn\"",
        time: "NEW.\"StartedOn\"",
    },
];

pub fn install(raw: &mut Raw, engine: EngineUnderTest) {
    raw.execute(&format!(
        "CREATE TABLE \"FaultAudit\" (\"At\" {}, \"Kind\" VARCHAR(8) NOT NULL, \"RowId\" BIGINT NOT NULL, \
         \"TaskId\" BIGINT NOT NULL, \"Old\" VARCHAR(20) NOT NULL, \"New\" VARCHAR(20) NOT NULL, \"Detail\" VARCHAR(80) NOT NULL, \
         \"ClaimRank\" BIGINT, \"ClaimPlace\" VARCHAR(40) NOT NULL, \"OnTime\" VARCHAR(40) NOT NULL)",
        match engine {
            EngineUnderTest::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
            EngineUnderTest::Postgres => "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "BIGINT AUTO_INCREMENT PRIMARY KEY",
        }
    ));
    for watched in &WATCHED {
        for event in ["INSERT", "UPDATE"] {
            raw.execute(&trigger(engine, watched, event));
        }
    }
}

fn trigger(engine: EngineUnderTest, watched: &Watched, event: &str) -> String {
    let Watched { table, kind, task, state, detail, rank, place, time } = watched;
    let of = |row: &str, column: &str| if column == "0" { "0".to_owned() } else { format!("{row}.{column}") };
    let state_of = |row: &str| match *kind {
        "runner" => format!("CASE WHEN {row}.{state} IS NULL THEN 'open' ELSE 'finished' END"),
        _ => format!("{row}.{state}"),
    };
    let old = if event == "INSERT" { "''".to_owned() } else { state_of("OLD") };
    let text = if matches!(engine, EngineUnderTest::Mariadb | EngineUnderTest::Mysql) { "CHAR" } else { "TEXT" };
    // A session may have its own time zone.
    let in_utc = |time: &str| match engine {
        EngineUnderTest::Postgres => format!("({time}) AT TIME ZONE 'UTC'"),
        _ => time.to_owned(),
    };
    let (place, time) = (in_utc(place), in_utc(time));
    let insert = format!(
        "INSERT INTO \"FaultAudit\" \
         (\"Kind\", \"RowId\", \"TaskId\", \"Old\", \"New\", \"Detail\", \"ClaimRank\", \"ClaimPlace\", \"OnTime\") VALUES \
         ('{kind}', NEW.\"Id\", {}, {old}, {}, COALESCE(CAST(NEW.{detail} AS {text}), ''), {rank}, \
         CAST({place} AS {text}), CAST({time} AS {text}));",
        of("NEW", task),
        state_of("NEW"),
    );
    let name = format!("FaultAudit{kind}{event}");
    match engine {
        EngineUnderTest::Postgres => format!(
            "CREATE FUNCTION \"{name}\"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert} RETURN NULL; END $$; \
             CREATE TRIGGER \"{name}\" AFTER {event} ON \"{table}\" FOR EACH ROW EXECUTE FUNCTION \"{name}\"();"
        ),
        _ => format!("CREATE TRIGGER \"{name}\" AFTER {event} ON \"{table}\" FOR EACH ROW BEGIN {insert} END"),
    }
}

/// Returns SQL that joins columns as text with the unit separator, in the syntax of each engine.
fn joined(raw: &Raw, columns: &[&str]) -> String {
    match raw {
        Raw::Mysql(_) => {
            let parts: Vec<String> =
                columns.iter().map(|column| format!("COALESCE(CAST({column} AS CHAR), '')")).collect();
            format!("CONCAT_WS(CHAR(31), {})", parts.join(", "))
        }
        Raw::Sqlite(_) | Raw::Postgres(_) => {
            let separator = if matches!(raw, Raw::Sqlite(_)) { " || char(31) || " } else { " || chr(31) || " };
            let parts: Vec<String> =
                columns.iter().map(|column| format!("COALESCE(CAST({column} AS TEXT), '')")).collect();
            parts.join(separator)
        }
    }
}

fn rows(raw: &mut Raw, columns: &[&str], rest: &str) -> Vec<Vec<String>> {
    let sql = format!("SELECT {} AS value FROM {rest}", joined(raw, columns));
    let split = |row: Option<String>| row.unwrap().split('\u{1f}').map(str::to_owned).collect();
    raw.texts(&sql).into_iter().map(split).collect()
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_default()
}

pub fn changes(raw: &mut Raw, after: i64) -> Vec<Change> {
    let columns = [
        "\"At\"",
        "\"Kind\"",
        "\"RowId\"",
        "\"TaskId\"",
        "\"Old\"",
        "\"New\"",
        "\"Detail\"",
        "\"ClaimRank\"",
        "\"ClaimPlace\"",
        "\"OnTime\"",
    ];
    let all = rows(raw, &columns, &format!("\"FaultAudit\" WHERE \"At\" > {after} ORDER BY \"At\""));
    all.into_iter()
        .map(|row| Change {
            at: number(&row[0]),
            table: match row[1].as_str() {
                "task" => Table::Task,
                "run" => Table::Run,
                _ => Table::Runner,
            },
            id: number(&row[2]),
            task_id: number(&row[3]),
            old: row[4].clone(),
            new: row[5].clone(),
            detail: row[6].clone(),
            rank: row[7].parse().ok().map(|order| (order, micros(&row[8]))),
            time: micros(&row[9]),
        })
        .collect()
}

/// Parses a time as the triggers write it, into microseconds since 1970.
fn micros(text: &str) -> i64 {
    let time = chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f");
    time.unwrap_or_else(|error| panic!("{text}: {error}")).and_utc().timestamp_micros()
}

pub fn tasks(raw: &mut Raw, after: i64) -> Vec<TaskRow> {
    let columns = [
        "\"Id\"",
        "\"TaskClass\"",
        "\"TaskData\"",
        "\"LastStatus\"",
        "COALESCE(\"RetryLimit\", \"MaxRetries\", 1000001)",
        "\"FailedRetries\"",
        "\"Attempts\"",
        "\"CurrentRunId\"",
        "\"ScheduleId\"",
        "\"ScheduleHead\"",
        "\"PlannedOn\"",
    ];
    let all = rows(raw, &columns, &format!("\"TaskQueue\" WHERE \"Id\" > {after} ORDER BY \"Id\""));
    all.into_iter()
        .map(|row| TaskRow {
            id: number(&row[0]),
            class: row[1].clone(),
            data: row[2].clone(),
            status: row[3].clone(),
            max_retries: number(&row[4]),
            failed_retries: number(&row[5]),
            attempts: number(&row[6]),
            current_run: row[7].parse().ok(),
            schedule: number(&row[8]),
            head: row[9].clone(),
            planned_on: row[10].clone(),
        })
        .collect()
}

pub fn runs(raw: &mut Raw, after: i64) -> Vec<RunRow> {
    let columns = [
        "\"Id\"",
        "\"TaskQueueId\"",
        "\"Attempt\"",
        "\"Status\"",
        "\"Token\"",
        "\"ProcessId\"",
        "\"ErrorCode\"",
        "\"CreatedOn\"",
        "\"StartedOn\"",
        "\"FinishedOn\"",
        "\"Claimant\"",
        "\"CancelRequestedOn\"",
        "\"ProcessIdentity\"",
        "\"Results\"",
        "\"Decision\"",
    ];
    let all = rows(raw, &columns, &format!("\"TaskQueueRuns\" WHERE \"Id\" > {after} ORDER BY \"Id\""));
    all.into_iter()
        .map(|row| RunRow {
            id: number(&row[0]),
            task_id: number(&row[1]),
            attempt: number(&row[2]),
            status: row[3].clone(),
            token: row[4].clone(),
            process_id: number(&row[5]),
            process_identity: row[12].clone(),
            results: row[13].clone(),
            decision: row[14].clone(),
            error_code: row[6].clone(),
            claimant: row[10].clone(),
            is_to_end: !row[11].is_empty(),
            times: [row[7].clone(), row[8].clone(), row[9].clone()],
        })
        .collect()
}

/// Returns the tasks that have a key, each with its class and the key.
pub fn keys(raw: &mut Raw, after: i64) -> Vec<(i64, String)> {
    let from = format!("\"TaskQueue\" WHERE \"Id\" > {after} AND \"UniqueKey\" IS NOT NULL ORDER BY \"Id\"");
    let all = rows(raw, &["\"Id\"", "\"TaskClass\"", "\"UniqueKey\""], &from);
    all.into_iter().map(|row| (number(&row[0]), format!("{} of class {}", row[2], row[1]))).collect()
}

/// Returns each task with each of its prerequisites.
pub fn dependencies(raw: &mut Raw, after: i64) -> Vec<(i64, i64)> {
    let all = rows(
        raw,
        &["\"TaskId\"", "\"DependsOnId\""],
        &format!("\"TaskQueueDependencies\" WHERE \"TaskId\" > {after} ORDER BY \"TaskId\", \"DependsOnId\""),
    );
    all.into_iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

/// Returns the limit of runs at once, for the classes that have one.
pub fn class_limits(raw: &mut Raw) -> HashMap<String, i64> {
    let columns = ["\"TaskClass\"", "\"MaxRunning\""];
    let all = rows(raw, &columns, "\"TaskQueueClassLimits\" WHERE \"MaxRunning\" IS NOT NULL");
    all.into_iter().map(|row| (row[0].clone(), number(&row[1]))).collect()
}

/// Returns the limit of starts in a number of seconds, for the classes that have a rate.
pub fn class_rates(raw: &mut Raw) -> HashMap<String, (usize, i64)> {
    let columns = ["\"TaskClass\"", "\"RateCount\"", "\"RateSecs\""];
    let all = rows(raw, &columns, "\"TaskQueueClassLimits\" WHERE \"RateCount\" IS NOT NULL");
    all.into_iter().map(|row| (row[0].clone(), (row[1].parse().unwrap(), number(&row[2])))).collect()
}

/// Returns the transitions that the program itself has stored: kind, task and run.
pub fn transitions(raw: &mut Raw, after: i64) -> Vec<(String, i64, i64)> {
    let columns = ["\"Kind\"", "\"TaskQueueId\"", "\"RunId\""];
    let from = format!(
        "\"TaskQueueEvents\" WHERE \"Id\" > {after} AND \"Kind\" IN ('task-queued', 'run-created', 'run-started', 'run-ended')"
    );
    rows(raw, &columns, &from).into_iter().map(|row| (row[0].clone(), number(&row[1]), number(&row[2]))).collect()
}

/// Returns the limit keys of the tasks that have one.
pub fn limit_keys(raw: &mut Raw, after: i64) -> HashMap<i64, String> {
    let from = format!("\"TaskQueue\" WHERE \"Id\" > {after} AND \"LimitKey\" IS NOT NULL ORDER BY \"Id\"");
    rows(raw, &["\"Id\"", "\"LimitKey\""], &from).into_iter().map(|row| (number(&row[0]), row[1].clone())).collect()
}

/// Returns the tasks with one of these events: `retried`, `cancelled`.
pub fn with_events(raw: &mut Raw, kinds: &[&str], after: i64) -> Vec<i64> {
    let kinds = kinds.iter().map(|kind| format!("'{kind}'")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT \"TaskQueueId\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" IN ({kinds}) AND \"TaskQueueId\" > {after}"
    );
    raw.numbers(&sql).into_iter().flatten().collect()
}

/// Returns the largest value of the column; 0 if the table is empty.
pub fn newest(raw: &mut Raw, table: &str, column: &str) -> i64 {
    let found = raw.numbers(&format!("SELECT MAX(\"{column}\") AS value FROM \"{table}\""));
    found.into_iter().next().flatten().unwrap_or(0)
}
