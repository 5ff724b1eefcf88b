//! A server that is one of several, that is read-only, that is restarted or killed, and one that fails over to its standby:
//! acknowledged data is kept, runs in progress continue, and no attempt is counted for it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use taskqueue_domain::settings::Setting;
use taskqueue_engine::DatabaseUrl;
use taskqueue_store::{NewEvent, Store};

use super::stage::{Stage, column, shorten_leases, start_runner, statuses, task, wait_dead};
use crate::each_server;
use crate::support::cli::finish;
use crate::support::own_server::{OwnServer, open_directory};
use crate::support::proxy::Proxy;
use crate::support::standby::Pair;
use crate::support::{Ended, EngineUnderTest, TestDb, wait_until};

const NOTE: &str = "[class.note]\nargv = [\"/bin/true\"]\n";

/// Returns the address of this database with another host before its own.
fn after(first: &str, db: &TestDb, options: &str) -> String {
    let (name, host) = db.name_and_host();
    db.url_text().replace(&format!("{host}/{name}"), &format!("{first},{host}/{name}{options}"))
}

fn ends_well(runner: Child, db: &TestDb) {
    let ended = finish(runner);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((statuses(db), task(db)), (vec!["success".to_owned()], ("success".to_owned(), 0, 1)));
}

/// Returns the event of a changed setting.
fn changed() -> NewEvent {
    let (actor, host) = (String::new(), String::new());
    NewEvent { kind: "setting-changed", task_id: None, run_id: None, actor, host, details: serde_json::json!({}) }
}

each_server! {
    fn the_next_host_is_taken_when_one_is_down_or_never_answers(db) {
        db.configure(NOTE);
        let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        for first in [down, silent.local_addr().unwrap().to_string()] {
            let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &after(&first, db, "?connect_timeout=1"));
            cli.run(&["queue", "note"]).ok();
            cli.run(&["tick"]).ok();
        }
        assert_eq!(statuses(db), ["success", "success"]);
    }

    fn a_read_only_server_is_passed_over_and_alone_good_enough_for_status(db) {
        db.configure(NOTE);
        let (name, host) = db.name_and_host();
        let own = OwnServer::start(db.engine);
        let standby = TestDb::on_server(db.engine, &own.url, name);
        if db.is_mysql_like() {
            standby.execute("SET GLOBAL read_only = 1");
        } else {
            standby.execute(&format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on"));
        }
        let address = after(standby.name_and_host().1, db, "");
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &address);
        cli.run(&["queue", "note"]).ok();
        cli.run(&["tick"]).ok();
        assert_eq!(statuses(db), ["success"]);

        // Without another server, a read-only one is enough for reading.
        let alone = address.replace(&format!(",{host}"), "");
        assert!(db.cli().env("TASKQUEUE_DATABASE_URL", &alone).run(&["status"]).ok().contains("No tasks"));
        let strict = format!("{alone}?target_session_attrs=read-write");
        let stderr = db.cli().env("TASKQUEUE_DATABASE_URL", &strict).run(&["status"]).fails(69);
        assert!(stderr.contains("cannot be written") && stderr.contains("session is read-only"), "{stderr}");
        assert!(stderr.contains("hint: connect to the primary server"), "{stderr}");
    }

    fn a_server_that_becomes_read_only_is_left_for_the_next_host(db) {
        if !db.is_mysql_like() {
            // PostgreSQL's roles are switched with their connections; SQLite has none.
            return;
        }
        let own = OwnServer::start(db.engine);
        let name = db.name_and_host().0;
        let first = TestDb::on_server(db.engine, &own.url, name);
        // A superuser may write even then.
        let user = format!("{name}_plain");
        for one in [db, &first] {
            one.execute(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'plain'; GRANT ALL ON \"{name}\".* TO {user}@'%'"));
        }
        let address = after(first.name_and_host().1, db, "").replace("taskqueue:taskqueue", &format!("{user}:plain"));
        let mut store = Store::open(&DatabaseUrl::parse(&address).unwrap()).unwrap();
        let limit = "SELECT CAST(\"Value\" AS SIGNED) AS value FROM \"TaskQueueSettings\" WHERE \"Name\" = 'TaskQueueRunnerLimit'";
        let limits = || (first.raw().numbers(limit), db.raw().numbers(limit));
        store.set_settings(&[(Setting::RunnerLimit, 5, changed())]).unwrap();
        let before = limits();
        assert_eq!(before.0, [Some(5)]);
        first.execute("SET GLOBAL read_only = 1");
        store.set_settings(&[(Setting::RunnerLimit, 6, changed())]).unwrap();
        db.execute(&format!("DROP USER {user}@'%'"));
        assert_eq!(limits(), (before.0, vec![Some(6)]));
    }

    fn a_server_that_is_read_only_for_a_moment_keeps_a_run_that_works_waiting(db) {
        if db.engine != EngineUnderTest::Postgres {
            // The users of the other tests may write everywhere; the text of the error above is MySQL's.
            return;
        }
        let stage = Stage::with_run(db);
        let outage = Proxy::start("127.0.0.1", db.url_text());
        let runner = db.cli().env("TASKQUEUE_DATABASE_URL", &outage.url).spawn(&["process-run"]);
        let handler = stage.actor("handler");
        wait_until("the handler is recorded", || column(db, "HandlerIdentity") == Some(handler.to_string()));
        let name = db.name_and_host().0;
        db.execute(&format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on"));
        // Its sessions are new ones.
        outage.stop();
        outage.start_again();
        let _go = stage.go();
        wait_dead("the handler", &handler);
        // More often than a lost connection is reopened.
        wait_until("it tries for long enough", || outage.accepted() > 10);
        let mut raw = db.raw();
        raw.execute("SET default_transaction_read_only = off");
        raw.execute(&format!("ALTER DATABASE \"{name}\" RESET default_transaction_read_only"));
        ends_well(runner, db);
    }

    fn a_server_that_is_stopped_or_killed_and_started_again_costs_no_attempt(db) {
        let own = OwnServer::start(db.engine);
        for (name, is_killed) in [("stopped", false), ("killed", true)] {
            let own_db = TestDb::on_server(db.engine, &own.url, name);
            let stage = Stage::with_run(&own_db);
            let (runner, handler) = start_runner(&own_db, &stage);
            if is_killed { own.kill() } else { own.halt() }
            // The handler ends while no server is available.
            let _go = stage.go();
            wait_dead("the handler", &handler);
            own.again();
            ends_well(runner, &own_db);
        }
    }

    fn a_lease_that_ended_while_the_server_was_away_causes_no_rescue_at_once(db) {
        // The server has not been up for the 90 seconds of a lease.
        let own = OwnServer::start(db.engine);
        let db = TestDb::on_server(db.engine, &own.url, "leases");
        db.configure(NOTE);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        db.cli().run(&["queue", "note"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Host\", \"HeartbeatOn\") VALUES (7, 'elsewhere', '2020-01-01 00:00:00')");
        db.execute(
            "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"StartedOn\" = '2020-01-01 00:00:00', \"Token\" = 'theirs', \
             \"LeaseExpiresOn\" = '2020-01-01 00:00:00', \"Host\" = 'elsewhere'",
        );
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(&db), ["processing"]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 1);
        shorten_leases(&db);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(&db), ["timeout", "scheduled"]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
    }

    fn a_run_whose_claim_was_never_answered_is_given_back(db) {
        db.configure(NOTE);
        let server = Proxy::start("127.0.0.1", db.url_text());
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &server.url);
        cli.run(&["queue", "note"]).ok();
        cli.run(&["create-runs"]).ok();
        // The first COMMIT is that of the registration.
        server.stop_after_commit(2);
        let runner = cli.spawn(&["process-run"]);
        wait_until("the claim is retried", || server.refused() > 0);
        assert_eq!(statuses(db), ["processing"]);
        // The next error is not retried for a minute.
        db.execute("ALTER TABLE \"TaskQueueRuns\" RENAME TO \"Away\"");
        server.start_again();
        assert_eq!(finish(runner).code, Some(1));
        db.execute("ALTER TABLE \"Away\" RENAME TO \"TaskQueueRuns\"");
        let _ = cli.run(&["create-runs"]).ok();
        assert_eq!((statuses(db), task(db)), (vec!["released".to_owned(), "scheduled".to_owned()], ("scheduled".to_owned(), 0, 0)));
        assert_eq!(db.text("SELECT \"ErrorCode\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"").unwrap(), "not-started");
    }
}

/// Starts a pair of servers, and creates a database that is reached through both.
fn pair_with_database(directory: &Path) -> Option<(Pair, TestDb)> {
    // The programs of PostgreSQL are installed if the shared server is.
    std::env::var_os("TASKQUEUE_TEST_POSTGRES_URL").or_else(|| {
        assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no PostgreSQL to test on");
        None
    })?;
    let pair = Pair::start(directory);
    let address = format!("{}?target_session_attrs=read-write", pair.url());
    let db = TestDb::on_server(EngineUnderTest::Postgres, &address, "tasks");
    Some((pair, db))
}

#[test]
fn a_promoted_standby_has_all_acknowledged_tasks_and_loses_no_attempt() {
    let directory = open_directory("pair-");
    let Some((mut pair, db)) = pair_with_database(directory.path()) else { return };
    let stage = Stage::new(&db, false);
    let config = db.home().join(".config/taskqueue/config.toml");
    let staged = std::fs::read_to_string(&config).unwrap();
    db.configure_exactly(&format!("{staged}{NOTE}"));
    db.cli().run(&["queue", "stage"]).ok();
    db.cli().run(&["create-runs"]).ok();
    let (runner, _) = start_runner(&db, &stage);
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let (db, is_over) = (&db, &is_over);
        let queues = scope.spawn(move || {
            let queue = || db.cli().run(&["queue", "note"]);
            let ids = std::iter::from_fn(|| (!is_over.load(Ordering::SeqCst)).then(queue));
            ids.filter(|ended| ended.code == Some(0)).map(Ended::ok).collect()
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let _ = db.cli().run(&["tick"]);
            }
        });
        for _ in 0..2 {
            pair.fail_over();
        }
        is_over.store(true, Ordering::SeqCst);
        queues.join().unwrap()
    });
    assert!(!acknowledged.is_empty());
    let _go = stage.go();
    assert_eq!(finish(runner).code, Some(0));
    db.cli().run(&["tick"]).ok();
    let ids = db.raw().texts("SELECT CAST(\"Id\" AS text) AS value FROM \"TaskQueue\"");
    assert!(acknowledged.iter().all(|id| ids.contains(&Some(id.clone()))), "{acknowledged:?} {ids:?}");
    let bad = "SELECT COUNT(*) AS value FROM \"TaskQueue\"
               WHERE \"LastStatus\" <> 'success' OR \"FailedRetries\" <> 0 OR \"Attempts\" <> 1";
    assert_eq!(db.number(bad), 0);
    let successes = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'";
    assert_eq!(db.number(successes), i64::try_from(ids.len()).unwrap());
}

#[test]
fn a_standby_alone_serves_status_and_refuses_writes_with_a_clear_error() {
    let directory = open_directory("pair-");
    let Some((pair, db)) = pair_with_database(directory.path()) else { return };
    let alone = format!("{}/tasks", pair.standby_url().rsplit_once('/').unwrap().0);
    let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &alone);
    wait_until("the standby has replayed the received changes", || cli.run(&["status"]).code == Some(0));
    // Without work it writes nothing.
    cli.run(&["create-runs"]).ok();
    db.cli().run(&["queue", "echo", "--any-class"]).ok();
    wait_until("the standby has the task", || cli.run(&["status", "1"]).code == Some(0));
    let stderr = cli.run(&["create-runs"]).fails(69);
    assert!(stderr.contains("cannot be written") && stderr.contains("hint: connect to the primary server"), "{stderr}");
}
