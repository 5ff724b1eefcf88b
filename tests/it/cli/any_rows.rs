//! Random rows of TaskQueue with all kinds of values that the tables accept: afterwards every verb works, every other task
//! runs, and an unreadable row is reported. `TASKQUEUE_TEST_ROWS` sets the number of rows on each engine, and
//! `TASKQUEUE_TEST_SEED` repeats a run.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

use super::task;

/// The number of rows, unless the environment sets it.
const ROWS: u64 = 600;

/// A random number generator with a seed (xorshift).
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("TASKQUEUE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            u64::from(std::process::id()) << 20 | u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_micros())
        });
        println!("TASKQUEUE_TEST_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Handlers that succeed, fail and crash, because each end counts differently.
const HANDLERS: &str = "[class.echo]\nargv = [\"/bin/cat\"]\n[class.fails]\nargv = [\"/bin/false\"]\n\
                        [class.crashes]\nargv = [\"/bin/sh\", \"-c\", \"kill -KILL $$\"]\n";
const CLASSES: &[&str] = &["'echo'", "'echo'", "'fails'", "'crashes'"];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "1000",
    "1000000",
    "2147483647",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "NULL",
    "'x'",
];
const TEXTS: &[&str] = &[
    "'plain'",
    "''",
    "'\u{e4}\u{f6}'",
    "' space '",
    "'a\u{1b}[31mb'",
    "'\u{202e}'",
    "'a/b'",
    "'../x'",
    "'UTC'",
    "NULL",
    "7",
];
const TIMES: &[&str] = &[
    "'2026-01-01 00:00:00'",
    "'2026-01-01 00:00:00.123456'",
    "'1000-01-01 00:00:00'",
    "'9999-12-31 23:59:59'",
    "'garbage'",
    "''",
    "'2026-02-30 00:00:00'",
    "'0000-00-00'",
    "'infinity'",
    "'-infinity'",
    "'294000-01-01'",
    "'2026-01-01T00:00:00Z'",
    "NULL",
    "0",
];
const JSON: &[&str] = &[
    "'{}'",
    "'1e999'",
    "'\"\\u0000\"'",
    "'\"\\ud800\"'",
    "'{\"a\":1,\"a\":2}'",
    "'  [1] '",
    "'12345678901234567890123456789'",
    "'{'",
    "''",
    "'-0'",
    "'[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]'",
    "'\"\u{1f600}\"'",
];
/// Bytes that are not UTF-8, as SQLite accepts them; among them bytes that its own functions read as a character.
const BYTES: &[&str] = &[
    "ff",
    "224dfc6c6c657222",
    "22e4b822",
    "22c0af22",
    "22eda08022",
    "61006222",
    "80",
    "22f4908080ff22",
    "227f1b5b333122",
];

/// The least and the greatest number that the tables accept in each column, by the names of their checks.
type Edges = HashMap<String, [String; 2]>;

fn edges(db: &TestDb) -> Edges {
    let folder = Path::new(env!("REPOSITORY_DIR")).join("migrations").join(match db.engine {
        EngineUnderTest::Sqlite => "sqlite",
        EngineUnderTest::Postgres => "postgres",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "mysql",
    });
    let migrations = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("up.sql"));
    let text: String = migrations.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let names = text.split(['"', '`']).filter_map(|name| name.split_once(" lies in "));
    let edges: Edges = names
        .filter_map(|(column, range)| {
            let (least, rest) = range.split_once(" to ")?;
            let greatest = rest.split_whitespace().next()?;
            let is_number = least.parse::<i64>().is_ok() && greatest.parse::<i64>().is_ok();
            is_number.then(|| (column.to_owned(), [least.to_owned(), greatest.to_owned()]))
        })
        .collect();
    assert!(["Attempts", "Crashes", "FailedRetries", "Timeout"].iter().all(|column| edges.contains_key(*column)));
    edges
}

/// Returns a value for a column, as an SQL literal.
fn value(db: &TestDb, random: &mut Random, edges: &Edges, column: &str) -> String {
    if let Some(edges) = edges.get(column)
        && random.below(2) == 0
    {
        return edges[random.below(2)].clone();
    }
    if db.engine == EngineUnderTest::Sqlite && random.below(3) == 0 {
        return format!("CAST(X'{}' AS TEXT)", random.one(BYTES));
    }
    let pool = match column {
        "TaskData" | "Meta" => JSON,
        "QueuedOn" | "ScheduledOn" | "NextAttemptOn" | "StartBefore" | "QuarantinedOn" | "UniqueUntil"
        | "PlannedOn" | "UpdatedOn" => TIMES,
        "TaskClass" | "QueuedById" | "UniqueKey" | "LimitKey" | "Tag" | "Name" | "TimeZone" => TEXTS,
        // Rare times, so that a schedule that catches up from long ago ends.
        "Recurrence" => &["'0 0 1 1 *'", "'0 0 29 2 *'", "'nonsense'", "NULL", "''"],
        "Backoff" => &["'fixed:30s'", "'nonsense'", "''", "NULL"],
        "CatchUp" => &["'all'", "'latest'", "'none'", "'x'"],
        "Overlap" => &["'wait'", "'replace'", "'x'"],
        "ScheduleStatus" => &["'active'", "'paused'", "'broken'", "'followed'", "'ended'", "'x'"],
        "LastStatus" => &["'scheduled'", "'failed'", "'timeout'", "'success'", "'cancelled'", "'expired'", "'x'"],
        _ => NUMBERS,
    };
    random.one(pool).to_owned()
}

const COLUMNS: &[&str] = &[
    "TaskClass",
    "TaskData",
    "QueuedById",
    "QueuedOn",
    "ScheduledOn",
    "NextAttemptOn",
    "StartBefore",
    "LastStatus",
    "MaxRetries",
    "RetryLimit",
    "FailedRetries",
    "Attempts",
    "Priority",
    "Timeout",
    "WaitingFor",
    "Backoff",
    "Crashes",
    "QuarantinedOn",
    "UniqueKey",
    "UniqueUntil",
    "LimitKey",
    "Tag",
    "Name",
    "Keep",
    "ClassKeep",
    "KeepResults",
    "Meta",
    "Recurrence",
    "TimeZone",
    "CatchUp",
    "Overlap",
    "PlannedOn",
    "ScheduleStatus",
    "UpdatedOn",
];

/// Tries to insert a row with random columns.
fn insert_any(db: &TestDb, random: &mut Random, edges: &Edges) -> String {
    let mut columns: Vec<&str> = vec!["TaskClass"];
    for _ in 0..=random.below(3) {
        let column = random.one(COLUMNS);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let is_any = random.below(8) == 0;
    let class = if is_any { value(db, random, edges, "TaskClass") } else { random.one(CLASSES).to_owned() };
    let values: Vec<String> = columns.iter().skip(1).map(|column| value(db, random, edges, column)).collect();
    let names: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    format!("INSERT INTO \"TaskQueue\" ({}) VALUES ({})", names.join(", "), [vec![class], values].concat().join(", "))
}

each_engine! {
    fn no_row_that_the_tables_accept_stops_a_verb_or_another_task(db) {
        db.configure(HANDLERS);
        let edges = edges(db);
        let mut random = Random::new();
        let wanted = std::env::var("TASKQUEUE_TEST_ROWS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROWS);
        let mut raw = db.raw();
        let (mut accepted, mut tried) = (0_u64, Vec::new());
        for _ in 0..wanted {
            let insert = insert_any(db, &mut random, &edges);
            if raw.try_execute(&insert).is_ok() {
                accepted += 1;
                tried.push(insert);
            }
        }
        drop(raw);
        assert!(accepted > wanted / 20, "only {accepted} of {wanted} rows were accepted");
        let good: Vec<String> = (0..3).map(|number| db.cli().run(&["queue", "echo", &number.to_string()]).ok()).collect();
        let until_idle = ["work", "--idle-exit", "0s", "--slots", "4"];
        let worked = db.cli().run(&until_idle);
        assert_eq!(worked.code, Some(0), "{worked:?}");
        for id in &good {
            assert_eq!(task(db, id)["status"], "success", "{tried:#?}");
        }
        let unrecorded = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'";
        assert_eq!(db.number(unrecorded), 0, "an end was not recorded: {tried:#?}");
        for args in [
            &["status"][..], &["status", "--json"], &["failures"], &["export"], &["events"], &["metrics"], &["top", "--once"], &["explain"],
            &["schedule", "list"], &["limit"], &["runner"], &["class"], &["tick", "--max-runs", "1"], &["create-runs"],
            &["prune", "--dry-run"],
        ] {
            let ended = db.cli().run(args);
            assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}\n{tried:#?}");
        }
        let doctor = db.cli().run(&["doctor"]);
        assert!(doctor.code.is_some_and(|code| code <= 2) && doctor.stderr.is_empty(), "{doctor:?}");
        let listed = db.cli().run(&["status", "--full", "--json", "1-100000"]);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        check_each(db, &tried);
    }
}

/// Checks that every row can be shown and cancelled, and that a row that was set aside names its column.
fn check_each(db: &TestDb, tried: &[String]) {
    let count = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"ErrorCode\" = 'unreadable'");
    let listed = db.cli().run(&["status", "--json", "status=quarantined", "-n", "100000"]);
    // 3: there is no task.
    assert!(matches!(listed.code, Some(0 | 3)), "{listed:?}");
    let page: Value = serde_json::from_str(&listed.stdout).unwrap();
    let lines: Vec<&Value> = page["tasks"].as_array().unwrap().iter().collect();
    let named = lines
        .iter()
        .filter(|line| line["reason"]["reason"] == "unreadable" || line["task"]["unreadable"][0]["column"].is_string());
    let named = i64::try_from(named.count()).unwrap();
    assert!(named >= count, "{named} of {count} rows that were set aside are named\n{tried:#?}");
    for line in lines.iter().take(8) {
        let id = line["task"]["id"].to_string();
        for args in [&["status", &id][..], &["explain", &id], &["logs", &id], &["wait", &id, "--timeout", "30s"]] {
            let ended = db.cli().run(args);
            assert!(
                ended.code.is_some_and(|code| code < 64) && !ended.stderr.contains("database error"),
                "{args:?}: {ended:?}"
            );
        }
    }
    for verb in ["cancel", "retry", "edit"] {
        let mut args = vec![verb, "status=quarantined", "--yes"];
        if verb == "edit" {
            args.extend(["--priority", "1"]);
        }
        let ended = db.cli().run(&args);
        assert!(
            matches!(ended.code, Some(0 | 1 | 3)) && !ended.stderr.contains("database error"),
            "{args:?}: {ended:?}"
        );
    }
}
