//! More clients than a server takes connections, and a server that restarts while they come: each waits, and none fails.

use std::process::Child;
use std::thread;

use super::stage::statuses;
use crate::each_server;
use crate::support::cli::finish;
use crate::support::own_server::OwnServer;
use crate::support::{TestDb, wait_until};

const CLIENTS: usize = 64;
const TASKS_OF_EACH: usize = 10;
/// The wait is longer than by default: how busy the machine is decides nothing.
const NOTE: &str = "connect_wait_secs = 600\n[class.note]\nargv = [\"/bin/true\"]\n";

/// All clients and all ticks at once, and `meanwhile` beside them.
fn crowd(db: &TestDb, meanwhile: impl FnOnce()) {
    let ended_well = |child: Child| {
        let ended = finish(child);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| (0..TASKS_OF_EACH).for_each(|_| ended_well(db.cli().spawn(&["queue", "note"]))));
            scope.spawn(|| ended_well(db.cli().spawn(&["tick"])));
        }
        meanwhile();
    });
    db.cli().run(&["tick", "--max-time", "10m"]).ok();
    assert_eq!(statuses(db), vec!["success"; CLIENTS * TASKS_OF_EACH], "each task has one run");
}

fn tasks(db: &TestDb) -> i64 {
    // While it restarts there is no answer.
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
            for share in [50, 300] {
                wait_until("a part is queued", || tasks(&db) >= share);
                own.halt();
                own.again();
            }
        });
    }
}
