//! More clients than a server accepts connections, and a server that restarts meanwhile: each client waits, and none fails.
//! `TASKQUEUE_TEST_CLIENTS` sets how many clients of each kind there are, and `TASKQUEUE_TEST_TASKS` how many tasks each of
//! them queues; the full campaign is 64 and 10.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::thread;

use rustix::process::Signal;

use super::stage::statuses;
use crate::cli::signal;
use crate::contrib_roles::{Person, make_roles};
use crate::support::cli::finish;
use crate::support::database::{Raw, sessions};
use crate::support::own_server::OwnServer;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_server, test_on};

/// More than the number of connections.
const CLIENTS: usize = 28;
const TASKS_OF_EACH: usize = 4;
/// The wait is longer than the default, so that the load of the machine does not matter.
const NOTE: &str = "connect_wait_secs = 600\n[class.note]\nargv = [\"/bin/true\"]\n";

fn from_environment(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Returns the number of clients of each kind, and of tasks of each client.
fn size() -> (usize, usize) {
    (from_environment("TASKQUEUE_TEST_CLIENTS", CLIENTS), from_environment("TASKQUEUE_TEST_TASKS", TASKS_OF_EACH))
}

/// Runs all clients and all ticks at the same time, and `meanwhile` with them.
fn crowd(db: &TestDb, meanwhile: impl FnOnce()) {
    let (clients, tasks_of_each) = size();
    let ended_well = |child: Child| {
        let ended = finish(child);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| (0..tasks_of_each).for_each(|_| ended_well(db.cli().spawn(&["queue", "note"]))));
            scope.spawn(|| ended_well(db.cli().spawn(&["tick"])));
        }
        meanwhile();
    });
    db.cli().run(&["tick", "--max-time", "10m"]).ok();
    // The server may still be closing the connections of clients that have ended.
    wait_until("a connection is free", || tasks(db) > 0);
    assert_eq!(statuses(db), vec!["success"; clients * tasks_of_each], "each task has one run");
}

/// Returns the number of tasks, as far as the server accepts a connection.
fn tasks(db: &TestDb) -> i64 {
    let count = || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"");
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(count)).unwrap_or(0)
}

each_server! {
    fn more_clients_than_connections_all_succeed(db) {
        let own = OwnServer::with_max_connections(db.engine, 20);
        let db = TestDb::on_server(db.engine, &own.url, "crowd");
        db.configure(NOTE);
        crowd(&db, || ());
    }

    fn clients_wait_for_a_server_that_restarts_twice(db) {
        let own = OwnServer::with_max_connections(db.engine, 20);
        let db = TestDb::on_server(db.engine, &own.url, "restarts");
        db.configure(NOTE);
        crowd(&db, || {
            let (clients, tasks_of_each) = size();
            for part in [12, 2] {
                let share = i64::try_from(clients * tasks_of_each / part).unwrap();
                wait_until("a part is queued", || tasks(&db) >= share);
                own.halt();
                own.again();
            }
        });
    }
}

test_on! { [postgres Postgres, mariadb Mariadb, mysql Mysql] a_user_whose_connections_are_all_in_use_waits_for_one db {
    make_roles(db);
    let shop = Person::with_role(db, "taskqueue_enqueue");
    db.execute(&match db.engine {
        EngineUnderTest::Postgres => format!("ALTER ROLE \"{}\" CONNECTION LIMIT 1", shop.name()),
        _ => format!("ALTER USER {}@'%' WITH MAX_USER_CONNECTIONS 1", shop.name()),
    });
    let only = shop.raw();
    db.configure(&NOTE.replace("600", "0"));
    let refused = shop.cli().run(&["queue", "note"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.stderr.contains("connections of this user") || refused.stderr.contains("CONNECTION LIMIT of this role"), "{refused:?}");
    db.configure(NOTE);
    let mut waiting = shop.cli().spawn(&["queue", "note"]);
    let mut line = String::new();
    BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("retrying for up to 600 seconds"), "{line}");
    drop(only);
    let ended = finish(waiting);
    assert_eq!((ended.code, tasks(db)), (Some(0), 1), "{ended:?}");
} }

/// Allows the user this many connections. MySQL and MariaDB count those that were opened under a limit.
fn allow_connections(db: &TestDb, user: &str, count: u32) {
    db.execute(&match db.engine {
        EngineUnderTest::Postgres => format!("ALTER ROLE \"{user}\" CONNECTION LIMIT {count}"),
        _ => format!("ALTER USER {user}@'%' WITH MAX_USER_CONNECTIONS {count}"),
    });
}

/// Ends the other sessions of the user of this one.
fn end_other_sessions(db: &TestDb, user: &str, only: &mut Raw) {
    if db.engine == EngineUnderTest::Postgres {
        let own = only.numbers("SELECT pg_backend_pid()::bigint AS value")[0].unwrap();
        let end = "SELECT pg_terminate_backend(pid)";
        return only.execute(&format!("{end} FROM pg_stat_activity WHERE usename = '{user}' AND pid <> {own}"));
    }
    let own = only.numbers("SELECT CONNECTION_ID() AS value")[0].unwrap();
    let others = format!("SELECT id AS value FROM {} WHERE user = '{user}' AND id <> {own}", sessions(db.engine));
    for id in db.raw().numbers(&others).into_iter().flatten() {
        // It may have ended.
        let _ = db.raw().try_execute(&format!("KILL {id}"));
    }
}

test_on! { [postgres Postgres, mariadb Mariadb, mysql Mysql] a_worker_whose_connections_are_refused_goes_on_when_one_is_free db {
    make_roles(db);
    db.configure(NOTE);
    let runner = Person::with_role(db, "taskqueue_runner");
    allow_connections(db, runner.name(), 100);
    let mut only = runner.raw();
    let mut worker = runner.cli().spawn(&["work"]);
    db.cli().run(&["queue", "note"]).ok();
    wait_until("the worker has processed it", || statuses(db) == ["success"]);
    allow_connections(db, runner.name(), 1);
    end_other_sessions(db, runner.name(), &mut only);
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("cannot reach the database") && line.ends_with("; retrying")), "it waits for a connection");
    db.cli().run(&["queue", "note"]).ok();
    allow_connections(db, runner.name(), 100);
    wait_until("the worker has processed the second", || statuses(db) == ["success", "success"]);
    signal(&worker, Signal::TERM);
    lines.for_each(drop);
    let ended = finish(worker);
    assert_eq!(ended.code, Some(0), "{ended:?}");
} }
