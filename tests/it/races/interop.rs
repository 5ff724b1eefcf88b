//! New stores, broken connections, restarted servers.

use super::stage::{Stage, column, start_runner, statuses, task, wait_dead};
use super::tools::{begin_write, run_at_once};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::database::sessions;
use crate::support::db::on;
use crate::support::proxy::Proxy;
use crate::support::{EngineUnderTest, TestDb, wait_until};

#[test]
fn sixty_four_processes_make_one_new_sqlite_store_at_once_and_all_succeed() {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    const PROCESSES: usize = 64;
    on(EngineUnderTest::Sqlite, |db| {
        for round in 0..4 {
            let path = db.home().join(format!("new{round}.db"));
            // An empty file is a new store too; here no process has created it.
            if round % 2 == 1 {
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            }
            let url = format!("sqlite://{}", path.display());
            let queue: &[&str] = &["--database", &url, "queue", "--any-class", "new"];
            let mut ids: Vec<usize> =
                run_at_once(db, &[queue; PROCESSES]).into_iter().map(|ended| ended.ok().parse().unwrap()).collect();
            ids.sort_unstable();
            assert_eq!(ids, (1..=PROCESSES).collect::<Vec<_>>());
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let mut raw = crate::support::db::Raw::connect(EngineUnderTest::Sqlite, &url);
            assert_eq!(raw.texts("SELECT journal_mode AS value FROM pragma_journal_mode"), [Some("wal".to_owned())]);
            assert_eq!(
                raw.texts("SELECT * FROM (SELECT integrity_check AS value FROM pragma_integrity_check)"),
                [Some("ok".to_owned())]
            );
            assert_eq!(
                raw.numbers("SELECT COUNT(*) AS value FROM __diesel_schema_migrations"),
                raw.numbers("SELECT COUNT(DISTINCT version) AS value FROM __diesel_schema_migrations")
            );
        }
    });
}

/// Ends every other connection to the database, like an administrator. SQLite has none: the store is locked instead, until the
/// result is dropped.
fn break_connections(db: &TestDb) {
    db.disconnect();
    let mut raw = db.raw();
    match db.engine {
        EngineUnderTest::Sqlite => {}
        EngineUnderTest::Postgres => {
            raw.texts(
                "SELECT CAST(pg_terminate_backend(pid) AS TEXT) AS value FROM pg_stat_activity
                 WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()",
            );
        }
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            let others = format!(
                "SELECT CAST(id AS SIGNED) AS value FROM {} WHERE db = DATABASE() AND id <> CONNECTION_ID()",
                sessions(db.engine)
            );
            for id in raw.numbers(&others).into_iter().flatten() {
                // It may have ended on its own.
                let _ = raw.try_execute(&format!("KILL {id}"));
            }
        }
    }
}

fn successes_of(db: &TestDb, count: i64) {
    assert_eq!(
        db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Attempts\" = 1"),
        count
    );
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), count);
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'"), count);
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\""), 0);
}

each_engine! {
    fn a_connection_cut_while_the_handler_works_is_remade_and_records_once(db) {
        let stage = Stage::with_run(db);
        let (runner, _) = start_runner(db, &stage);
        break_connections(db);
        let _go = stage.go();
        let ended = finish(runner);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(statuses(db), ["success"]);
        assert_eq!(task(db), ("success".to_owned(), 0, 1));
        successes_of(db, 1);
        assert_eq!(stage.done(), "handler\n");
    }

    fn a_drain_with_connections_cut_repeatedly_executes_every_task_once(db) {
        const TASKS: usize = 30;
        let effects = db.home().join("effects");
        let script = format!("echo $TASKQUEUE_TASK_ID >> '{}'", effects.display());
        db.configure(&format!("[class.note]\nargv = [\"/bin/sh\", \"-c\", \"{script}\"]\n"));
        let _ = db.cli().stdin("{\"class\":\"note\"}\n".repeat(TASKS)).run(&["queue", "--batch", "-"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let done = || std::fs::read_to_string(&effects).unwrap_or_default().lines().count();
        let runner = db.cli().spawn(&["process-run", "--drain"]);
        // At any point: claiming, recording the handler, recording the end.
        for executed in 1..TASKS {
            wait_until("the next task is executed", || done() >= executed);
            break_connections(db);
        }
        let ended = finish(runner);
        // A connection that is cut in the first milliseconds, before Diesel has silenced libpq, prints this message.
        let stderr = ended.stderr.replace("FATAL:  terminating connection due to administrator command\n", "");
        assert_eq!((ended.code, stderr.as_str()), (Some(0), ""));
        successes_of(db, i64::try_from(TASKS).unwrap());
        assert_eq!(done(), TASKS);
    }

    fn a_server_that_restarts_while_a_handler_works_gets_the_result_later(db) {
        let stage = Stage::with_run(db);
        if db.engine == EngineUnderTest::Sqlite {
            // SQLite cannot restart; another process holds its only lock meanwhile.
            let (runner, handler) = start_runner(db, &stage);
            let mut other = db.raw();
            begin_write(&mut other);
            let _go = stage.go();
            wait_dead("the handler", &handler);
            other.execute("COMMIT");
            let _ = finish(runner).ok();
        } else {
            let server = Proxy::start("127.0.0.1", db.url_text());
            let runner = db.cli().env("TASKQUEUE_DATABASE_URL", &server.url).env("TASKQUEUE_DATABASE", &server.url).spawn(&["process-run"]);
            let _ = stage.actor("handler");
            wait_until("the handler is recorded", || column(db, "HandlerIdentity").is_some_and(|it| !it.is_empty()));
            server.stop();
            let _go = stage.go();
            // For longer than a few quick attempts.
            wait_until("it tries to connect again", || server.refused() >= 14);
            assert_eq!(statuses(db), ["processing"]);
            server.start_again();
            let ended = finish(runner);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            // After a second, it tells why it waits.
            assert!(ended.stderr.lines().all(|line| line.ends_with("; retrying")), "{ended:?}");
        }
        assert_eq!(stage.done(), "handler\n");
        successes_of(db, 1);
    }
}
