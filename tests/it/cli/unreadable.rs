//! Rows that other programs write by SQL: what the tables refuse, what reaches a handler, and unreadable rows.

use crate::conformance::schema::SCHEMA;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb};
use crate::{each_engine, test_on};

use super::{ECHO, count_tasks, shell_class, task};

/// Text that must not be part of a class name: options, paths, shell syntax, control characters, escapes, other scripts.
pub(crate) const FORBIDDEN: &[&str] = &[
    "",
    "-rf",
    "--help",
    "-la /etc",
    "a b",
    "a;id",
    "a|b",
    "a&b",
    "$(id)",
    "`id`",
    "a/b",
    "../x",
    "App\\..\\..\\x",
    "a..b",
    "a'b",
    "a\"b",
    "a>b",
    "a<b",
    "a*",
    "a?",
    "a[b]",
    "a{b}",
    "a~b",
    "a!b",
    "a#b",
    "a%b",
    "a=b",
    "a,b",
    "a@b",
    "a\nb",
    "a\rb",
    "a\tb",
    "a\u{1b}[31m",
    "a\u{7f}",
    "a\u{9b}",
    "ä",
    "a\u{202e}b",
    "a\u{200b}b",
    "a ",
    "a\n",
];

/// Returns an SQL literal with exactly these bytes.
pub(crate) fn literal(db: &TestDb, text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    match db.engine {
        EngineUnderTest::Sqlite => format!("CAST(X'{hex}' AS TEXT)"),
        EngineUnderTest::Postgres => format!("convert_from('\\x{hex}', 'UTF8')"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("CONVERT(X'{hex}' USING utf8mb4)"),
    }
}

/// Removes the checks of a column of TaskQueue, as in a restored or damaged store.
pub(crate) fn without_check(db: &TestDb, column: &str) {
    let name = match column {
        "TaskClass" => "TaskClass has 1 to 190 letters, digits and _ . : - or backslash".to_owned(),
        _ => format!("{column} lies in the years 1000 to 9999"),
    };
    match db.engine {
        EngineUnderTest::Sqlite => {}
        EngineUnderTest::Postgres => {
            let domain = if column == "TaskClass" { "ClassName" } else { column };
            db.execute(&format!("ALTER DOMAIN \"TaskQueue{domain}\" DROP CONSTRAINT \"{name}\""));
        }
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            db.execute(&format!("ALTER TABLE \"TaskQueue\" DROP CONSTRAINT \"{name}\""));
        }
    }
}

/// Inserts a due task that cannot be read, and returns the name of the column.
pub(crate) fn insert_unreadable(db: &TestDb) -> &'static str {
    match db.engine {
        EngineUnderTest::Sqlite => {
            db.execute(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('echo', CAST(X'224dfc6c6c657222' AS TEXT))",
            );
            "TaskData"
        }
        EngineUnderTest::Postgres => {
            without_check(db, "PlannedOn");
            db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"PlannedOn\") VALUES ('echo', 'infinity')");
            "PlannedOn"
        }
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            without_check(db, "PlannedOn");
            let mut raw = db.raw();
            raw.execute("SET SESSION sql_mode = 'ANSI_QUOTES'");
            raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"PlannedOn\") VALUES ('echo', '0000-00-00')");
            "PlannedOn"
        }
    }
}

/// A handler for every class that writes each of its arguments to a separate file.
fn configure_recorder(db: &TestDb) {
    let record = db.home().join("record.sh");
    std::fs::write(&record, format!("printf '%s' \"$1\" > {}/got.$TASKQUEUE_TASK_ID\n", db.home().display())).unwrap();
    db.configure(&format!("[class.\"*\"]\nargv = [\"/bin/sh\", \"{}\", \"{{class}}\"]\n", record.display()));
}

/// A row of each table with times or with texts that the program reads. `$now` is a time, `$late` a later one.
const ROWS: &[(&str, &str, &str)] = &[
    ("TaskQueue", "TaskClass", "'echo'"),
    ("TaskQueue", "TaskClass", "'echo'"),
    ("TaskQueueRuns", "TaskQueueId TaskClass Status FinishedOn Host", "1, 'echo', 'success', $now, 'here'"),
    (
        "TaskQueueRuns",
        "TaskQueueId TaskClass Status StartedOn LeaseExpiresOn Token Claimant LimitKey HasKeySlot",
        "2, 'echo', 'processing', $now, $now, '2-t', 'bot', 'key', $true",
    ),
    ("TaskQueueRunners", "ProcessId Name", "1, 'there'"),
    ("TaskQueueRunOutputs", "RunId Stream Content TotalBytes", "1, 'stdout', 'x', 1"),
    ("TaskQueueRejections", "TaskId Claimant HeldUntil", "1, 'bot', $late"),
    ("TaskQueueEvents", "Kind", "'x'"),
    ("TaskQueueEvents", "Kind TaskQueueId", "'retried', 1"),
    ("TaskQueueClassHolds", "TaskClass Host Reason HeldUntil", "'other', 'there', 'broken', $late"),
    ("TaskQueuePauses", "Scope Name", "'class', 'other'"),
    ("TaskQueueClassLimits", "TaskClass RateCount RateSecs", "'other', 1, 1"),
    ("TaskQueueStarts", "TaskClass StartedOn RunId", "'other', $now, 1"),
    ("TaskQueueKeyLimits", "LimitKey MaxRunning", "'other', 1"),
    ("TaskQueueSchedules", "Name ConfiguredOn Host File", "'other', $now, 'there', '/etc/x'"),
    ("TaskQueueReceipts", "Token", "'x'"),
    ("TaskQueueNotices", "Kind", "'stuck'"),
];

fn insert_rows(db: &TestDb, raw: &mut Raw) {
    let yes = if db.engine == EngineUnderTest::Postgres { "true" } else { "1" };
    for (table, columns, values) in ROWS {
        let values = values
            .replace("$now", "'2026-01-01 00:00:00'")
            .replace("$late", "'2099-01-01 00:00:00'")
            .replace("$true", yes);
        let columns = columns.replace(' ', "\", \"");
        raw.execute(&format!("INSERT INTO \"{table}\" (\"{columns}\") VALUES ({values})"));
    }
}

/// Returns each table with its columns that are written and whose names pass.
fn written_columns(is_meant: fn(&str) -> bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEMA.iter().flat_map(move |(table, columns, ..)| {
        let written = columns.split_whitespace().filter(|column| !column.ends_with('*'));
        let meant = written.map(|column| column.trim_end_matches(['?', '='])).filter(move |column| is_meant(column));
        meant.map(move |column| (*table, column))
    })
}

fn is_time(column: &str) -> bool {
    column.ends_with("On") || column.ends_with("Until") || column == "StartBefore"
}

/// Checks that every verb reads the tables, and that another task runs.
fn check_verbs(db: &TestDb, what: &str) {
    let id = db.cli().run(&["queue", "echo"]).ok();
    for args in [
        &["tick"][..],
        &["create-runs"],
        &["status"],
        &["status", "--json"],
        &["status", "1"],
        &["failures"],
        &["export"],
        &["events"],
        &["metrics"],
        &["top", "--once"],
        &["explain"],
        &["explain", "1"],
        &["logs", "1"],
        &["schedule", "list"],
        &["limit"],
        &["runner"],
        &["class"],
        &["setting"],
        &["worker", "claim", "--claimant", "bot"],
        &["prune", "--yes"],
        &["check"],
        &["doctor"],
    ] {
        let ended = db.cli().run(args);
        // Nothing is left to claim, and problems are found.
        let allowed = if matches!(args[0], "check" | "doctor" | "worker") { 3 } else { 0 };
        assert!(ended.code.is_some_and(|code| code <= allowed), "{what}: {args:?}: {ended:?}");
    }
    assert_eq!(task(db, &id)["status"], "success", "{what}");
}

each_engine! {
    fn every_time_of_every_table_is_a_time_that_can_be_read(db) {
        let mut raw = db.raw();
        let bad: &[&str] = match db.engine {
            EngineUnderTest::Sqlite => &["'gestern'", "date('now')", "''", "'2026-02-30 00:00:00'", "'0999-12-31 00:00:00'", "CAST(X'ff' AS TEXT)"],
            EngineUnderTest::Postgres => &["'infinity'", "'-infinity'", "'294000-01-01'", "'0999-12-31'"],
            // A session that is not strict stores what is no date as 0000-00-00.
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => &["'0000-00-00'", "'gestern'", "'0999-12-31 00:00:00'"],
        };
        if db.is_mysql_like() {
            raw.execute("SET SESSION sql_mode = 'ANSI_QUOTES'");
        }
        insert_rows(db, &mut raw);
        for (table, column) in written_columns(is_time) {
            assert!(raw.numbers(&format!("SELECT COUNT(*) AS value FROM \"{table}\"")) != [Some(0)], "no row of {table}");
            for value in bad {
                let update = format!("UPDATE \"{table}\" SET \"{column}\" = {value}");
                let message = raw.try_execute(&update).expect_err(&update).to_string();
                assert!(message.contains(column), "{update}: {message}");
            }
        }
    }

    fn the_tables_refuse_a_pause_or_a_limit_that_cannot_be_read(db) {
        let mut raw = db.raw();
        if matches!(db.engine, EngineUnderTest::Mariadb | EngineUnderTest::Mysql) {
            raw.execute("SET SESSION sql_mode = 'ANSI_QUOTES'");
        }
        let pause = |until: &str| {
            format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\", \"Until\") VALUES ('class', 'echo', {until})")
        };
        let no_time: &[&str] = match db.engine {
            EngineUnderTest::Sqlite => &["date('now', '+1 day')", "'tomorrow'", "'9999-12-31T10:00:00'"],
            EngineUnderTest::Postgres => &["'infinity'", "'10000-01-01 00:00:00+00'"],
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => &["'0000-00-00'", "'0999-12-31'"],
        };
        for until in no_time {
            assert!(raw.try_execute(&pause(until)).unwrap_err().to_string().contains("Until"), "{until}");
        }
        for (table, name, too_many) in
            [("ClassLimits", "TaskClass", [0, 1_000_001, i64::MAX]), ("KeyLimits", "LimitKey", [0, 1_001, i64::MAX])]
        {
            for max in too_many {
                let insert = format!("INSERT INTO \"TaskQueue{table}\" (\"{name}\", \"MaxRunning\") VALUES ('echo', {max})");
                raw.try_execute(&insert).expect_err(&insert);
            }
        }
        let hold = "\"Host\", \"Reason\", \"HeldUntil\") VALUES";
        let names = FORBIDDEN.iter().map(|class| literal(db, class));
        for class in names.chain((db.engine == EngineUnderTest::Sqlite).then(|| "CAST(X'4dfc6c6c6572' AS TEXT)".to_owned())) {
            for insert in [
                format!("INSERT INTO \"TaskQueueClassLimits\" (\"TaskClass\", \"MaxRunning\") VALUES ({class}, 1)"),
                format!("INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", {hold} ({class}, 'h', 'r', '2099-01-01 00:00:00')"),
            ] {
                assert!(raw.try_execute(&insert).expect_err(&insert).to_string().contains("TaskClass"), "{insert}");
            }
        }
        raw.execute(&pause("'2098-01-01 00:00:00'"));
        assert!(db.cli().run(&["status", "--json"]).ok().contains("2098-01-01"));
    }

    fn the_table_refuses_a_class_name_that_is_more_than_a_name(db) {
        let mut raw = db.raw();
        for class in FORBIDDEN {
            let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ({})", literal(db, class));
            let refused = raw.try_execute(&insert);
            let message = refused.expect_err(class).to_string();
            assert!(message.contains("TaskClass"), "{class:?}: {message}");
        }
        let long = "x".repeat(191);
        raw.try_execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('{long}')")).expect_err("191 characters");
        assert_eq!(count_tasks(db), 0);
    }

    fn a_handler_gets_the_class_name_as_one_argument_and_nothing_else(db) {
        configure_recorder(db);
        let names = ["php.x", "App\\Tasks\\Resize", "db:backup", "a-b_c", "A.9"];
        for name in names {
            db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ({})", literal(db, name)));
        }
        db.cli().run(&["tick"]).ok();
        for (name, id) in names.iter().zip(1..) {
            assert_eq!(std::fs::read_to_string(db.home().join(format!("got.{id}"))).unwrap(), *name);
        }
    }

    fn a_class_name_that_got_past_the_table_starts_nothing_and_is_named(db) {
        configure_recorder(db);
        without_check(db, "TaskClass");
        let mut raw = db.raw();
        if db.engine == EngineUnderTest::Sqlite {
            raw.execute("PRAGMA ignore_check_constraints = ON");
        }
        // On MySQL and MariaDB, a run also takes its class from the task.
        let bad: Vec<&&str> = FORBIDDEN.iter().filter(|class| !class.is_empty()).collect();
        for class in &bad {
            raw.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ({})", literal(db, class)));
        }
        raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('good')");
        let good = bad.len() + 1;
        db.cli().run(&["tick"]).ok();
        let started: Vec<String> = std::fs::read_dir(db.home())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("got."))
            .collect();
        assert_eq!(started, [format!("got.{good}")]);
        let rows = db.cli().run(&["status", "--json", "--full", "-n", "100", &format!("1-{}", bad.len())]).ok();
        assert_eq!(rows.lines().count(), bad.len());
        for (line, id) in rows.lines().zip(1..) {
            let row = &serde_json::from_str::<serde_json::Value>(line).unwrap()["task"];
            assert_eq!(row["id"], id);
            assert_eq!(row["unreadable"][0]["column"], "TaskClass", "{row}");
            assert!(!row["quarantined_on"].is_null(), "{row}");
        }
        let explained = db.cli().run(&["explain", "1"]).ok();
        assert!(explained.contains("its column TaskClass cannot be read"), "{explained}");
    }

    fn a_row_that_cannot_be_read_is_set_aside_and_all_others_run(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "1"]).ok();
        let column = insert_unreadable(db);
        db.cli().run(&["queue", "echo", "3"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "1")["status"], &task(db, "3")["status"]), (&"success".into(), &"success".into()));
        let bad = task(db, "2");
        assert_eq!((&bad["status"], &bad["unreadable"][0]["column"]), (&"failed".into(), &column.into()), "{bad}");
        let named = format!("the column {column} cannot be read");
        for args in [&["status"][..], &["status", "2"], &["explain", "2"], &["failures"], &["top", "--once"]] {
            let text = db.cli().run(args).ok();
            assert!(text.replace('\n', " ").contains(&named) || text.contains(column), "{args:?}: {text}");
        }
        let found = db.cli().run(&["doctor"]);
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(found.stdout.contains(&format!("task 2 is set aside: its column {column} cannot be read")), "{found:?}");
        for args in [&["export"][..], &["metrics"], &["logs", "2"], &["events"], &["wait", "1"], &["schedule", "list"], &["runner"]] {
            let ended = db.cli().run(args);
            assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        }
        let exported = db.cli().run(&["export"]).ok();
        assert!(exported.contains(&format!("\"unreadable\":{{\"id\":2,\"columns\":[{{\"column\":\"{column}\"")), "{exported}");
        let raw = if db.engine == EngineUnderTest::Sqlite { "\"224dfc6c6c657222\"" } else { "null" };
        assert!(exported.contains(&format!("\"raw_hex\":{raw}}}")), "{exported}");
        // It is finished: a second tick finds nothing to do.
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 2"), 1);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'quarantined'"), 1);
    }

    fn a_claimant_gets_no_row_that_cannot_be_read(db) {
        insert_unreadable(db);
        let id = db.cli().run(&["queue", "--any-class", "echo"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let claimed = db.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
        assert_eq!(claimed["task_id"].to_string(), id, "{claimed}");
        assert_eq!(db.cli().run(&["worker", "claim", "--claimant", "bot"]).stdout, "");
        assert_eq!(task(db, "1")["status"], "failed");
    }

    fn a_row_that_cannot_be_read_can_be_mended_cancelled_and_pruned(db) {
        db.configure(ECHO);
        let column = insert_unreadable(db);
        let mut raw = db.raw();
        if db.is_mysql_like() {
            raw.execute("SET SESSION sql_mode = 'ANSI_QUOTES'");
        }
        raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"PlannedOn\", \"ScheduledOn\")
                     SELECT \"TaskClass\", \"TaskData\", \"PlannedOn\", '2099-01-01 00:00:00' FROM \"TaskQueue\" WHERE \"Id\" = 1");
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, "1")["status"], "failed");
        if column == "TaskData" {
            db.cli().run(&["edit", "1", "--data", "\"mended\""]).ok();
        } else {
            db.execute("UPDATE \"TaskQueue\" SET \"PlannedOn\" = NULL WHERE \"Id\" = 1");
        }
        db.cli().run(&["retry", "1"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, "1")["status"], "success");

        assert_eq!(task(db, "2")["unreadable"][0]["column"], column);
        db.cli().run(&["cancel", "2"]).ok();
        assert_eq!(task(db, "2")["status"], "cancelled");
        db.cli().run(&["prune", "2", "--yes"]).ok();
        assert_eq!(count_tasks(db), 1);
    }

    fn no_value_of_another_width_or_form_gets_into_a_column_that_is_read(db) {
        db.configure(&shell_class(db, "echo", "cat"));
        let mut raw = db.raw();
        let is_sqlite = db.engine == EngineUnderTest::Sqlite;
        let refused = [
            ("Timeout", "4294967295"), ("Timeout", "0"), ("MaxRetries", "4294967296"), ("MaxRetries", "0"), ("RetryLimit", "0"), ("Attempts", "2147483647"),
            ("Attempts", "9223372036854775807"), ("FailedRetries", "-1"), ("Crashes", "1000000001"), ("WaitingFor", "-1"), ("Priority", "1001"),
            ("UniqueKey", "''"), ("UniqueKey", "'a '"), ("UniqueKey", "' a'"), ("LimitKey", "'\u{dc}'"), ("LimitKey", "'a\u{1b}b'"), ("Tag", "' a'"), ("Tag", "'\u{dc}'"),
            ("Recurrence", "''"), ("TimeZone", "'\u{dc}'"), ("Backoff", "''"), ("CatchUp", "'sometimes'"), ("Overlap", "'sometimes'"), ("TaskData", "'{'"),
            ("Keep", "-1"), ("Keep", "4294967297"), ("ClassKeep", "2000000001"), ("KeepResults", "9223372036854775807"), ("Meta", "'[]'"), ("Meta", "'{'"),
        ];
        let times = ["QueuedOn", "ScheduledOn", "NextAttemptOn", "StartBefore", "PlannedOn", "UniqueUntil", "QuarantinedOn", "UpdatedOn"];
        let bad_times = if db.is_mysql_like() {
            &["'0000-00-00'", "'0999-12-31 00:00:00'", "'2026-02-30 00:00:00'", "'garbage'"][..]
        } else if is_sqlite {
            &["'garbage'", "''", "'2026-02-30 00:00:00'", "'2026-13-01 00:00:00'", "'2026-01-01T00:00:00'", "'2026-01-01'",
              "'0999-12-31 00:00:00'", "'2026-01-01 00:00:00.12345678'", "'2026-01-01 00:00:00.x'", "CAST(X'ff' AS TEXT)"][..]
        } else {
            &["'infinity'", "'-infinity'", "'294000-01-01'", "'4713-01-01 BC'", "'0999-12-31'"][..]
        };
        let all_times = times.iter().flat_map(|column| bad_times.iter().map(move |value| (*column, *value)));
        for (column, value) in refused.into_iter().chain(all_times) {
            let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"{column}\") VALUES ('echo', {value})");
            assert!(raw.try_execute(&insert).is_err(), "{column} accepts {value}");
        }
        if is_sqlite {
            raw.try_execute("INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\") VALUES (9223372036854775807, 'echo')").unwrap_err();
            raw.try_execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES (CAST(X'6100623b' AS TEXT))").unwrap_err();
        }
        assert_eq!(db.cli().run(&["queue", "echo"]).ok(), if db.engine == EngineUnderTest::Sqlite { "1".to_owned() } else {
            db.text("SELECT CAST(MAX(\"Id\") AS CHAR(20)) AS value FROM \"TaskQueue\"").unwrap().trim().to_owned()
        });
    }
}

/// A class whose retention is read again at each end.
const KEEPING: &str = "[class.echo]\nargv = [\"/bin/cat\"]\nkeep = \"1d\"\nkeep_results = \"1d\"\n";

// Servers number rows without regard to the rows that were inserted with an id.
test_on! { [sqlite Sqlite] an_insert_after_the_largest_id_is_refused_with_a_hint db {
    db.configure(&shell_class(db, "echo", "cat"));
    db.cli().run(&["queue", "echo"]).ok();
    db.cli().run(&["tick"]).ok();
    for (table, columns, values) in [
        ("TaskQueue", "TaskClass", "'echo'"),
        ("TaskQueueRuns", "TaskQueueId, TaskClass, Status, FinishedOn", "1, 'echo', 'released', '2026-01-01 00:00:00'"),
        ("TaskQueueRunners", "ProcessId, FinishedOn", "1, '2026-01-01 00:00:00'"),
        ("TaskQueueEvents", "Kind", "'x'"),
        ("TaskQueueNotices", "Kind, TaskClass, Host, ErrorCode, ErrorMessage", "'stuck', 'echo', 'h', '', ''"),
    ] {
        let insert = |id: &str| format!("INSERT INTO {table} (Id, {columns}) VALUES ({id}, {values})");
        let refused = db.raw().try_execute(&insert("9223372036854775807")).expect_err(table).to_string();
        assert!(refused.contains("Id lies in 1 to 4611686018427387903"), "{table}: {refused}");
        db.execute(&insert("4611686018427387903"));
        let next = db.raw().try_execute(&format!("INSERT INTO {table} ({columns}) VALUES ({values})"));
        assert!(next.expect_err(table).to_string().contains("Id lies in"), "{table}");
        if table == "TaskQueue" {
            let ended = db.cli().run(&["queue", "echo"]);
            assert!(ended.code == Some(1) && ended.stderr.contains("DELETE FROM sqlite_sequence"), "{ended:?}");
        }
        db.execute(&format!("DELETE FROM {table} WHERE Id = 4611686018427387903; DELETE FROM sqlite_sequence"));
        db.execute(&format!("INSERT INTO {table} ({columns}) VALUES ({values})"));
    }
    db.cli().run(&["queue", "echo"]).ok();
    db.cli().run(&["tick"]).ok();
} }

test_on! { [sqlite Sqlite] json_before_a_nul_is_not_json db {
    db.configure(&shell_class(db, "echo", "cat"));
    let data = "'{\"x\":1}' || char(0) || 'more'";
    let insert = |column: &str| format!("INSERT INTO TaskQueue (TaskClass, {column}) VALUES ('echo', {data})");
    for column in ["TaskData", "Meta"] {
        assert!(db.raw().try_execute(&insert(column)).is_err(), "{column}");
    }
    db.execute(&format!("PRAGMA ignore_check_constraints = ON; {}", insert("TaskData")));
    db.cli().run(&["tick"]).ok();
    assert_eq!(task(db, "1")["unreadable"][0]["column"], "TaskData");
} }

// Servers store only times and text.
test_on! { [sqlite Sqlite] a_time_that_got_past_the_tables_stops_no_verb db {
    db.configure(KEEPING);
    let mut raw = db.raw();
    insert_rows(db, &mut raw);
    raw.execute("PRAGMA ignore_check_constraints = ON");
    for (table, column) in written_columns(is_time) {
        raw.execute(&format!("UPDATE \"{table}\" SET \"{column}\" = '0' WHERE \"{column}\" IS NOT NULL"));
    }
    check_verbs(db, "times");
} }

test_on! { [sqlite Sqlite] text_that_is_not_utf8_stops_no_verb_in_whatever_column_it_is db {
    db.configure(KEEPING);
    let mut raw = db.raw();
    insert_rows(db, &mut raw);
    let mut taken = Vec::new();
    // The program cannot do without the value of a setting.
    for (table, column) in written_columns(|column| column != "Value") {
        // Anyone can queue; the other tables are the program's own.
        raw.execute(&format!("PRAGMA ignore_check_constraints = {}", table == "TaskQueue"));
        let update = format!("UPDATE \"{table}\" SET \"{column}\" = CAST(X'4dfc6c6c6572' AS TEXT)");
        if raw.try_execute(&update).is_ok() {
            taken.push(format!("{table}.{column}"));
        }
    }
    for column in ["Runs.Host", "Runs.Claimant", "Runs.CancelReason", "Events.Kind", "ClassHolds.Host", "Notices.Kind", "Schedules.File"] {
        assert!(taken.contains(&format!("TaskQueue{column}")), "{column} of {taken:?}");
    }
    check_verbs(db, &format!("{taken:?}"));
} }
