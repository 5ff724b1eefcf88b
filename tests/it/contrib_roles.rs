//! The roles in contrib/sql allow each user their own work and nothing else.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use taskqueue::{NewTask, TaskId, TaskQueue};

use crate::cli::outside_text::{NASTY, PRINTING, harmful};
use crate::cli::unreadable::{FORBIDDEN, literal};
use crate::cli::{shell_class, task};
use crate::races::stage::{Stage, start_runner, statuses};
use crate::support::cli::finish;
use crate::support::db::{Raw, on};
use crate::support::{Cli, EngineUnderTest, TestDb};
use crate::{each_engine, each_server, test_on};

/// The password of every [`Person`]. Nothing else contains this text.
pub(crate) const PASSWORD: &str = "Zk9qWort";

/// A user of the server with only this role, and the program as that user.
pub(crate) struct Person<'a> {
    db: &'a TestDb,
    name: String,
}

impl<'a> Person<'a> {
    pub(crate) fn with_role(db: &'a TestDb, role: &str) -> Self {
        let database = db.url_text().rsplit_once('/').unwrap().1;
        // At most 32 characters, on MySQL.
        let name = format!("{}_{database}", &role["taskqueue_".len()..][..2]);
        match db.engine {
            EngineUnderTest::Sqlite => {}
            EngineUnderTest::Postgres => {
                db.execute(&format!("CREATE USER \"{name}\" PASSWORD '{PASSWORD}' IN ROLE {role}"));
            }
            EngineUnderTest::Mariadb => db.execute(&format!(
                "CREATE USER {name}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT {role} TO {name}@'%'; SET DEFAULT ROLE {role} FOR {name}@'%'"
            )),
            EngineUnderTest::Mysql => db.execute(&format!(
                "CREATE USER {name}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT {role} TO {name}@'%'; SET DEFAULT ROLE {role} TO {name}@'%'"
            )),
        }
        Self { db, name }
    }

    pub(crate) fn cli(&self) -> Cli {
        self.db.cli().env("TASKQUEUE_DATABASE_URL", &self.url())
    }

    pub(crate) fn url(&self) -> String {
        let (scheme, rest) = self.db.url_text().split_once("://").unwrap();
        let (_, place) = rest.split_once('@').unwrap();
        format!("{scheme}://{}:{PASSWORD}@{place}", self.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens a separate connection of this user.
    pub(crate) fn raw(&self) -> Raw {
        Raw::connect(self.db.engine, &self.url())
    }
}

impl Drop for Person<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        let _ = self.db.raw().try_execute(&match self.db.engine {
            EngineUnderTest::Postgres => format!("DROP USER \"{name}\""),
            _ => format!("DROP USER {name}@'%'"),
        });
    }
}

pub(crate) fn make_roles(db: &TestDb) {
    make_roles_in(db, &mut db.raw());
}

/// Creates the roles in the database of this connection. Roles belong to the server, so only one test at a time creates them.
pub(crate) fn make_roles_in(db: &TestDb, raw: &mut Raw) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let script = if db.is_mysql_like() { "roles-mysql.sql" } else { "roles-postgres.sql" };
    let path = std::path::Path::new(env!("REPOSITORY_DIR")).join("contrib/sql").join(script);
    raw.execute(&std::fs::read_to_string(path).unwrap());
}

each_engine! {
    fn the_roles_of_contrib_allow_what_each_person_has_to_do_and_nothing_else(db) {
        // A SQLite store has one user: the owner of the file.
        if db.engine != EngineUnderTest::Sqlite {
            make_roles(db);
            // A second time, as after an update.
            make_roles(db);
            db.configure("[class.work]\nargv = [\"/bin/sh\", \"-c\", \"echo '{\\\"result\\\":1}' >&3\"]\n");
            let shop = Person::with_role(db, "taskqueue_enqueue");
            let host = Person::with_role(db, "taskqueue_runner");
            let operator = Person::with_role(db, "taskqueue_admin");

            assert_eq!(shop.cli().run(&["queue", "work", "{\"secret\":1}"]).ok(), "1");
            assert_eq!(shop.cli().stdin("{\"class\":\"work\"}\n").run(&["queue", "--batch", "-"]).ok(), "2");
            assert_eq!(shop.cli().run(&["queue", "work", "--after", "1"]).ok(), "3");
            assert_eq!(shop.cli().run(&["queue", "work", "--every", "0 0 29 2 *"]).ok(), "4");
            for id in ["5", "5"] {
                assert_eq!(shop.cli().run(&["queue", "work", "--unique", "k", "--unique-for", "1h"]).ok(), id);
            }
            // It would change other users' tasks.
            let ended = shop.cli().run(&["queue", "work", "--unique", "k", "--on-conflict", "replace"]);
            assert_eq!(ended.code, Some(78), "{ended:?}");
            for refused in ["tick", "create-runs", "process-run", "status", "setting set TaskQueueRunnerLimit 9", "status 1"] {
                let ended = shop.cli().run(&refused.split(' ').collect::<Vec<_>>());
                assert_eq!(ended.code, Some(78), "{refused}: {ended:?}");
                assert!(!ended.stdout.contains("secret"), "{ended:?}");
            }

            assert_eq!(host.cli().run(&["tick"]).ok(), "");
            assert!(host.cli().run(&["status"]).ok().contains("success 4"));
            assert_eq!(shop.cli().run(&["queue", "work"]).ok(), "6");
            assert_eq!(shop.cli().run(&["worker", "claim", "--claimant", "bot"]).code, Some(78));
            let line: serde_json::Value = host.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
            let (run, token) = (line["run_id"].to_string(), line["token"].as_str().unwrap());
            for verb in ["heartbeat", "release"] {
                assert_eq!(host.cli().run(&["worker", verb, &run, "--token", token]).ok(), "", "{verb}");
            }
            let claim = || host.cli().run(&["worker", "claim", "--claimant", "bot-2"]).json();
            let line = claim();
            assert_eq!(shop.cli().run(&["worker", "release", &line["run_id"].to_string(), "--force"]).code, Some(78));
            assert_eq!(operator.cli().run(&["worker", "release", &line["run_id"].to_string(), "--force"]).code, Some(0));
            let task = claim()["task_id"].to_string();
            assert_eq!(operator.cli().run(&["retry", &task, "--force"]).code, Some(0));
            assert_eq!(host.cli().run(&["tick"]).ok(), "");
            let refused = host.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "9"]);
            assert_eq!(refused.code, Some(78), "{refused:?}");

            assert_eq!(operator.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "9"]).code, Some(0));
            assert!(operator.cli().run(&["status", "1"]).ok().contains("secret"));
            assert_eq!(operator.cli().run(&["queue", "work", "--run"]).code, Some(0));
            assert_eq!(operator.cli().run(&["db", "migrate"]).code, Some(0));

            // With stored transitions, the user stores them too, and may read none of them.
            let queued_events = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'task-queued'";
            assert_eq!(db.number(queued_events), 0);
            assert_eq!(operator.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).code, Some(0));
            assert_eq!(shop.cli().run(&["queue", "work"]).code, Some(0));
            assert_eq!(shop.cli().stdin("{\"class\":\"work\"}\n{\"class\":\"work\"}\n").run(&["queue", "--batch", "-"]).code, Some(0));
            assert_eq!(shop.cli().run(&["queue", "work", "--unique", "audited", "--after", "1"]).code, Some(0));
            assert_eq!(db.number(queued_events), 4);
            let refused = shop.cli().run(&["events"]);
            assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{refused:?}");
        }
    }
}

/// The columns of TaskQueue that the queueing role may not set, each with a valid value.
const NOT_GIVEN: &[(&str, &str)] = &[
    ("Id", "4711"),
    ("QueuedOn", "'2026-01-01 00:00:00'"),
    ("LastStatus", "'success'"),
    ("FailedRetries", "1"),
    ("Attempts", "1"),
    ("CurrentRunId", "1"),
    ("Crashes", "1"),
    ("QuarantinedOn", "'2026-01-01 00:00:00'"),
    ("ScheduleId", "1"),
    ("ScheduleStatus", "'ended'"),
    ("UpdatedOn", "'2026-01-01 00:00:00'"),
];

/// What the queueing role may not do with other rows and with the tables, besides the columns above.
const NOT_DONE: &[&str] = &[
    "SELECT \"TaskData\" FROM \"TaskQueue\"",
    "SELECT \"Token\" FROM \"TaskQueueRuns\"",
    "SELECT \"Content\" FROM \"TaskQueueRunOutputs\"",
    "SELECT \"Details\" FROM \"TaskQueueEvents\"",
    "UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'",
    "UPDATE \"TaskQueue\" SET \"TaskData\" = '[]'",
    "UPDATE \"TaskQueue\" SET \"TaskClass\" = 'exec'",
    "UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1",
    "UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '9999-01-01 00:00:00'",
    "UPDATE \"TaskQueueRuns\" SET \"HandlerProcessId\" = 1, \"HandlerIdentity\" = ''",
    "UPDATE \"TaskQueueRuns\" SET \"Token\" = 'mine'",
    "UPDATE \"TaskQueueRuns\" SET \"CancelRequestedOn\" = CURRENT_TIMESTAMP",
    "UPDATE \"TaskQueueDependencies\" SET \"IsSatisfied\" = TRUE",
    "UPDATE \"TaskQueueEvents\" SET \"Actor\" = 'nobody'",
    "UPDATE \"TaskQueueSettings\" SET \"Value\" = '0'",
    "UPDATE \"TaskQueueTimers\" SET \"NextOn\" = CURRENT_TIMESTAMP",
    "SELECT \"Name\" FROM \"TaskQueueLocks\" FOR UPDATE",
    "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES (1, 'work')",
    "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Slots\") VALUES (1, 1000)",
    "INSERT INTO \"TaskQueueRunOutputs\" (\"RunId\", \"Stream\", \"Content\", \"TotalBytes\") VALUES (1, 'stdout', '', 0)",
    "INSERT INTO \"TaskQueueRejections\" (\"TaskId\", \"Claimant\") VALUES (1, 'c')",
    "INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", \"Host\", \"Reason\", \"HeldUntil\") VALUES ('work', 'h', '', '9999-01-01 00:00:00')",
    "INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\") VALUES ('all', '')",
    "INSERT INTO \"TaskQueueClassLimits\" (\"TaskClass\", \"MaxRunning\") VALUES ('work', 1)",
    "INSERT INTO \"TaskQueueKeyLimits\" (\"LimitKey\", \"MaxRunning\") VALUES ('k', 1)",
    "INSERT INTO \"TaskQueueSettings\" (\"Name\", \"Value\") VALUES ('x', '1')",
    "INSERT INTO \"TaskQueueLocks\" (\"Name\") VALUES ('x')",
    "INSERT INTO \"TaskQueueNotices\" (\"Kind\") VALUES ('stuck')",
    "INSERT INTO \"TaskQueueTimers\" (\"Name\") VALUES ('x')",
    "INSERT INTO \"TaskQueueEvents\" (\"Id\", \"Kind\") VALUES (9223372036854775807, 'x')",
    "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"RunId\") VALUES ('x', 1)",
    "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"Details\") VALUES ('key-taken', '[]')",
    "DELETE FROM \"TaskQueue\"",
    "DELETE FROM \"TaskQueueRuns\"",
    "DELETE FROM \"TaskQueueEvents\"",
    "DELETE FROM \"TaskQueueReceipts\"",
    "DELETE FROM \"TaskQueueDependencies\"",
    "DELETE FROM \"TaskQueueLocks\"",
    "DROP TABLE \"TaskQueueRuns\"",
    "ALTER TABLE \"TaskQueue\" ADD COLUMN \"Mine\" integer",
    "TRUNCATE TABLE \"TaskQueueRuns\"",
    "CREATE INDEX \"Mine\" ON \"TaskQueue\" (\"TaskClass\")",
];

/// Inserts a row with this class and one more column as this user. The tables may refuse it.
fn insert_with(raw: &mut Raw, class: &str, column: &str, value: &str) -> bool {
    let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"{column}\") VALUES ('{class}', {value})");
    raw.try_execute(&insert).is_ok()
}

/// Inserts all kinds of bad values into the columns that the role may write.
fn insert_bad_values(db: &TestDb, raw: &mut Raw) {
    for class in FORBIDDEN {
        let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ({})", literal(db, class));
        assert!(raw.try_execute(&insert).is_err(), "{class:?}");
    }
    let times = ["'infinity'", "'-infinity'", "'0000-00-00'", "'294000-01-01'", "'0999-12-31 00:00:00'", "'x'"];
    for column in ["ScheduledOn", "StartBefore", "UniqueUntil", "PlannedOn"] {
        for time in times {
            assert!(!insert_with(raw, "work", column, time), "{column} {time}");
        }
        insert_with(raw, "work", column, "'9999-12-31 23:59:59'");
    }
    let numbers = ["-1", "0", "4294967296", "2147483647", "9223372036854775807", "1e300"];
    for column in ["MaxRetries", "Timeout", "Priority", "WaitingFor", "ParentId", "Keep", "KeepResults"] {
        for number in numbers {
            insert_with(raw, "work", column, number);
        }
    }
    for column in [
        "QueuedById",
        "Backoff",
        "Receipt",
        "UniqueKey",
        "LimitKey",
        "Tag",
        "Name",
        "Recurrence",
        "TimeZone",
        "CatchUp",
        "Overlap",
    ] {
        for text in [NASTY, "", "$(id)", "0 0 30 2 *", "*/1 * * * *", "fixed:99999999999s"] {
            insert_with(raw, "work", column, &literal(db, text));
        }
    }
    let large = format!("'\"{}\"'", "x".repeat(2 << 20));
    for data in [large.as_str(), "'1e999'", "'\"\\\\ud800\"'", "'{\"argv\":[\"/usr/bin/id\"]}'", "'{'", "''"] {
        insert_with(raw, "work", "TaskData", data);
        insert_with(raw, "work", "Meta", data);
    }
}

/// Inserts events, receipts and dependencies for other users' tasks, and for tasks that do not exist.
fn insert_beside_tasks(raw: &mut Raw, other: &str) {
    for kind in [NASTY, "retried", "quarantined", "task-queued", "run-created", "message", ""] {
        for task in [other, "NULL", "-1", "9223372036854775807"] {
            let event = format!(
                "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"Actor\", \"Host\") \
                 VALUES ('{kind}', {task}, '{NASTY}', '{NASTY}')"
            );
            raw.execute(&event);
        }
    }
    for (token, written_on) in [("x", "'9999-12-31 00:00:00'"), ("y", "'1000-01-01 00:00:00'")] {
        let receipt = "INSERT INTO \"TaskQueueReceipts\" (\"Token\", \"WrittenOn\") VALUES";
        raw.execute(&format!("{receipt} ('{token}', {written_on})"));
    }
    let pairs = [(other, "9000001"), ("9000001", other), ("9000001", "9000002"), ("9000002", "9000001"), ("-1", "0")];
    for (task, on) in pairs {
        let dependency = "INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\", \"IsSatisfied\") VALUES";
        raw.execute(&format!("{dependency} ({task}, {on}, FALSE)"));
    }
}

each_server! {
    fn the_queueing_role_reads_and_writes_nothing_but_what_it_queues(db) {
        make_roles(db);
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let id = db.cli().run(&["queue", "--any-class", "work", "[1]"]).ok();
        let before = db.cli().run(&["export"]).ok();
        let mut raw = shop.raw();
        let given = NOT_GIVEN.iter().map(|(column, value)| {
            format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"{column}\") VALUES ('work', {value})")
        });
        for statement in given.chain(NOT_DONE.iter().map(|text| (*text).to_owned())) {
            let refused = raw.try_execute(&statement).expect_err(&statement).to_string();
            let is_for_want_of_a_right = ["denied", "must be owner"].iter().any(|words| refused.contains(words));
            assert!(is_for_want_of_a_right, "{statement}: {refused}");
        }
        // Allowed statements still work.
        raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('work')");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
        assert_eq!(task(db, &id)["data"], serde_json::json!([1]));
        let after = db.cli().run(&["export", &id]).ok();
        let of_task = |text: &str| text.lines().find(|line| line.contains("\"task\"")).map(str::to_owned);
        assert_eq!(of_task(&after), of_task(&before));
    }

    fn a_program_with_the_queueing_role_queues_and_reads_no_data_of_others(db) {
        make_roles(db);
        let other = db.cli().run(&["queue", "--any-class", "work", "[1]"]).ok();
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let queue = TaskQueue::connect(&shop.url()).unwrap();
        let queued = queue.queue(NewTask::new("work").json("[2]")).unwrap();
        let unique = || queue.queue(NewTask::new("work").unique("k").after([queued.id])).unwrap();
        assert_eq!(unique().id, unique().id);
        assert_eq!(queue.queue_many([NewTask::new("work"), NewTask::new("work")]).unwrap().len(), 2);
        let read = queue.task(TaskId(other.parse().unwrap())).unwrap_err();
        assert!(read.to_string().contains("denied"), "{read}");
        assert_eq!(task(db, "2")["data"], serde_json::json!([2]));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 5);
    }

    fn no_row_of_the_queueing_role_runs_a_program_or_stops_others(db) {
        make_roles(db);
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let ran = db.home().join("ran");
        let wanted = format!("{{\"argv\":[\"/bin/sh\",\"-c\",\"echo >{}\"]}}", ran.display());
        db.configure(&format!("{}{}timeout_secs = 60\n", shell_class(db, "others", "cat"), shell_class(db, "work", "cat >/dev/null")));
        let first = db.cli().run(&["queue", "others", "1"]).ok();
        let late = db.cli().run(&["queue", "others", "2", "--in", "1d"]).ok();
        let mut raw = shop.raw();
        insert_bad_values(db, &mut raw);
        insert_beside_tasks(&mut raw, &late);
        for class in ["exec", "Exec", "EXEC", "exec.", ":exec"] {
            assert!(insert_with(&mut raw, class, "TaskData", &literal(db, &wanted)), "{class}");
        }
        let then = db.cli().run(&["queue", "others", "3"]).ok();
        let worked = db.cli().run(&["work", "--idle-exit", "0s", "--slots", "4", "-v"]);
        assert_eq!((worked.code, harmful(&worked.stderr)), (Some(0), None), "{worked:?}");
        for id in [&first, &then] {
            assert_eq!(task(db, id)["status"], "success", "{id}");
        }
        assert_eq!(task(db, &late)["status"], "scheduled");
        db.cli().run(&["edit", &late, "--in", "0s"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(task(db, &late)["status"], "success");
        assert!(!ran.exists(), "the program in the data of a task was run");
        for args in PRINTING {
            let ended = db.cli().run(&args.split(' ').collect::<Vec<_>>());
            // Findings of doctor and check, and an expired wait, are not failures.
            assert!(matches!(ended.code, Some(0..=3 | 124)) && !ended.stderr.contains("database error"), "{args}: {ended:?}");
            assert_eq!((harmful(&ended.stdout), harmful(&ended.stderr)), (None, None), "{args}: {ended:?}");
        }
    }

    fn the_queueing_role_takes_no_planned_time_of_a_schedule_of_others(db) {
        make_roles(db);
        db.configure(&shell_class(db, "others", "cat"));
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let id = db.cli().run(&["queue", "others", "--every", "0 0 1 1 *"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2026-01-01 00:00:00', \"PlannedOn\" = '2026-01-01 00:00:00'");
        let now = db.cli().run(&["schedule", "show", &id, "--json"]).json()["now"].as_str().unwrap().to_owned();
        let next = format!("{}-01-01 00:00:00", now[..4].parse::<i32>().unwrap() + 1);
        let mut raw = shop.raw();
        // Inserts a task at the next planned time, once in the schedule of the other user and once in its own.
        let insert = |column: &str, value: &str| {
            format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"PlannedOn\", \"ScheduledOn\"{column}) \
                 VALUES ('others', '0 0 1 1 *', '{next}', '{next}'{value})"
            )
        };
        let refused = raw.try_execute(&insert(", \"ScheduleId\"", &format!(", {id}"))).unwrap_err().to_string();
        assert!(refused.contains("denied"), "{refused}");
        raw.execute(&insert("", ""));
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run", "--drain"]).ok();
        let shown = db.cli().run(&["schedule", "show", &id, "--json"]).json();
        let planned = format!("{}Z", next.replace(' ', "T"));
        assert_eq!((&shown["schedule"]["status"], &shown["schedule"]["planned_on"]), (&"active".into(), &planned.into()), "{shown}");
        assert_eq!(shown["tasks"][1]["status"], "success", "{shown}");
        // A user with that role may still create a schedule, and the tasks of that schedule belong to it.
        let own = shop.cli().run(&["queue", "others", "--every", "0 3 * * *"]).ok();
        assert_eq!(db.cli().run(&["schedule", "show", &own, "--json"]).json()["tasks"].as_array().unwrap().len(), 1);
        assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ScheduleId\" = {id}")), 2);
    }
}

/// Every user of a PostgreSQL server can notify every channel of a database to which the user may connect.
#[test]
fn forged_notifications_of_postgresql_end_and_start_nothing() {
    on(EngineUnderTest::Postgres, |db| {
        make_roles(db);
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let stage = Stage::new(db, false);
        let id = db.cli().run(&["queue", "stage"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let (runner, _) = start_runner(db, &stage);
        let waiting = db.cli().spawn(&["wait", &id]);
        let listening =
            "SELECT COUNT(*) AS value FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted";
        crate::support::wait_until("the wait listens", || db.number(listening) > 0);
        let run = db.number("SELECT \"Id\" AS value FROM \"TaskQueueRuns\"").to_string();
        let mut raw = shop.raw();
        for channel in ["taskqueue_cancel", "taskqueue_work", "taskqueue_end"] {
            for payload in [run.as_str(), "", "0", "-1", "99999999999999999999", "\u{1b}[2J", "{}", &id] {
                raw.execute(&format!("NOTIFY {channel}, '{payload}'"));
            }
        }
        // Read from the same connections in this order: a real notification comes after all forged ones.
        assert_eq!(statuses(db), ["processing"]);
        let _go = stage.go();
        let (ended, waited) = (finish(runner), finish(waiting));
        assert_eq!((ended.code, waited.code), (Some(0), Some(0)), "{ended:?} {waited:?}");
        assert_eq!((statuses(db), stage.done().as_str()), (vec!["success".to_owned()], "handler\n"));
    });
}

/// Every user of a PostgreSQL database can take every advisory lock in it.
#[test]
fn advisory_locks_of_other_sessions_stop_no_wait() {
    on(EngineUnderTest::Postgres, |db| {
        make_roles(db);
        db.configure(&shell_class(db, "echo", "cat"));
        let shop = Person::with_role(db, "taskqueue_enqueue");
        let mut raw = shop.raw();
        raw.execute(&format!("SELECT pg_advisory_lock({})", i64::from_be_bytes(*b"taskends")));
        let id = db.cli().run(&["queue", "echo"]).ok();
        let waiting = db.cli().spawn(&["wait", &id]);
        db.cli().run(&["work", "--idle-exit", "0s"]).ok();
        let waited = finish(waiting);
        assert_eq!((task(db, &id)["status"].as_str(), waited.code), (Some("success"), Some(0)), "{waited:?}");
    });
}

/// Before PostgreSQL 15, every user may create functions and operators in the schema of the tables. Those for a type of a column
/// would replace the built-in ones in the statements of runners.
#[test]
fn the_script_of_the_roles_revokes_create_on_the_schema_of_the_tables() {
    on(EngineUnderTest::Postgres, |db| {
        db.execute("GRANT CREATE ON SCHEMA public TO PUBLIC");
        make_roles(db);
        let shop = Person::with_role(db, "taskqueue_enqueue");
        for statement in [
            "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE TABLE public.t (c int)",
            "CREATE OPERATOR public.= (LEFTARG = \"TaskQueueTaskStatus\", RIGHTARG = text, FUNCTION = texteq)",
        ] {
            let refused = shop.raw().try_execute(statement).expect_err(statement).to_string();
            assert!(refused.contains("permission denied for schema public"), "{statement}: {refused}");
        }
    });
}

/// The owner of the tables may own neither the database nor the schema.
#[test]
fn the_script_of_the_roles_leaves_create_to_the_owner_of_the_tables() {
    on(EngineUnderTest::Postgres, |db| {
        make_roles(db);
        let owner = Person::with_role(db, "taskqueue_admin");
        let name = owner.name();
        db.execute(&format!(
            "GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT \"{name}\" TO CURRENT_USER; ALTER TABLE \"TaskQueue\" OWNER TO \"{name}\""
        ));
        make_roles(db);
        owner.raw().execute("CREATE TABLE public.t (c int); DROP TABLE public.t");
        db.execute(&format!("REASSIGN OWNED BY \"{name}\" TO CURRENT_USER; DROP OWNED BY \"{name}\""));
    });
}

test_on! { [mariadb Mariadb, mysql Mysql] the_queueing_role_executes_the_documented_sql_of_unique_tasks db {
    make_roles(db);
    let shop = Person::with_role(db, "taskqueue_enqueue");
    // In these statements, double quotes are those of names.
    let page = include_str!("../../docs/tasks.md").replace("'\"sql\"'", "'1'");
    let blocks = page.split("```sql mysql\n").filter_map(|rest| rest.split("```").next());
    let [queue, find]: [&str; 2] = blocks.filter(|block| block.contains("LiveUniqueKey = 'sql'")).collect::<Vec<_>>().try_into().unwrap();
    let [free, insert, last]: [&str; 3] = queue.trim().trim_end_matches(';').split(';').collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(last.trim(), "SELECT LAST_INSERT_ID()");
    let mut raw = shop.raw();
    if db.engine == EngineUnderTest::Mariadb {
        raw.execute("SET SESSION innodb_snapshot_isolation = OFF");
    }
    raw.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION");
    assert_eq!(raw.numbers("SELECT COUNT(\"Id\") AS value FROM \"TaskQueue\""), [Some(0)]);
    let id: i64 = db.cli().run(&["queue", "--any-class", "report", "--unique", "sql", "--unique-for", "1h"]).ok().trim().parse().unwrap();
    raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('other')");
    raw.execute(free);
    if db.engine == EngineUnderTest::Mysql {
        raw.execute(insert);
        assert_eq!(raw.numbers("SELECT CAST(LAST_INSERT_ID() AS SIGNED) AS value"), [Some(id)]);
    }
    let (plain, _) = insert.split_once("ON DUPLICATE").unwrap();
    let taken = raw.try_execute(plain).unwrap_err().to_string();
    assert!(taken.contains("Duplicate entry"), "{taken}");
    let find = find.trim().trim_end_matches(';').replace("SELECT Id ", "SELECT Id AS value ");
    assert_eq!(raw.numbers(&find), [Some(id)]);
    raw.execute("COMMIT");
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"UniqueUntil\" IS NOT NULL"), 1);
    // Without a task that has the key.
    raw.execute(&plain.replace("'sql'", "'other'"));
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LiveUniqueKey\" IS NOT NULL"), 2);
} }

#[test]
fn the_queueing_role_writes_each_column_that_applications_write() {
    let page = include_str!("../../docs/schema.md");
    let (_, table) = page.split_once("\n## TaskQueue\n").unwrap();
    let rows = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let written = rows.filter(|row| row.split('|').nth(4).unwrap().contains("application"));
    let documented: BTreeSet<&str> = written.map(|row| row.split('`').nth(1).unwrap()).collect();
    let of_role = |script: &'static str, quote: char| {
        let (_, columns) = script.split_once("GRANT INSERT (").unwrap();
        columns.split(')').next().unwrap().split(quote).skip(1).step_by(2).collect::<BTreeSet<&str>>()
    };
    // Of these users, only `queue` writes the last two.
    let expected = documented.into_iter().chain(["Receipt", "ParentId"]).collect::<BTreeSet<_>>();
    assert_eq!(of_role(include_str!("../../contrib/sql/roles-mysql.sql"), '`'), expected);
    assert_eq!(of_role(include_str!("../../contrib/sql/roles-postgres.sql"), '"'), expected);
}
