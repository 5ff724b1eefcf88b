//! A database that goes away while people watch.

use std::time::{Duration, Instant};

use super::WebServer;
use crate::cli::ECHO;
use crate::each_server;
use crate::races::tools::wait_blocked;
use crate::support::database::EngineUnderTest;
use crate::support::db::Raw;
use crate::support::own_server::OwnServer;
use crate::support::{TestDb, wait_until};

/// Returns how many seconds old these figures are, as the page shows it.
fn age(body: &str, figures: &str) -> Option<u64> {
    let (_, rest) = body.split_once(&format!("{figures} are "))?;
    Some(rest.split_once("s old.")?.0.parse().unwrap())
}

/// Locks the table of tasks against all others, and returns the statement that unlocks it.
fn lock_tasks(db: &TestDb, others: &mut Raw) -> &'static str {
    let (lock, unlock) = match db.engine {
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => ("LOCK TABLES \"TaskQueue\" WRITE", "UNLOCK TABLES"),
        _ => ("BEGIN; LOCK TABLE \"TaskQueue\" IN ACCESS EXCLUSIVE MODE", "COMMIT"),
    };
    others.execute(lock);
    unlock
}

each_server! {
    fn the_first_page_waits_for_a_slow_database(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let mut others = db.raw();
        let unlock = lock_tasks(db, &mut others);
        let page = std::thread::scope(|scope| {
            let page = scope.spawn(|| server.get("/"));
            wait_blocked(db);
            // Longer than the page waits for newer figures: without earlier ones, it must wait longer.
            let began = Instant::now();
            wait_until("four seconds have passed", || began.elapsed() > Duration::from_secs(4));
            others.execute(unlock);
            page.join().unwrap()
        });
        assert_eq!(page.status, 200, "{page:?}");
    }

    fn a_server_whose_statement_hangs_ends_when_it_is_told_to(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let mut others = db.raw();
        lock_tasks(db, &mut others);
        let _unanswered = server.stream("/tasks");
        wait_blocked(db);
        assert_eq!(server.end(), Some(0));
    }

    fn the_page_keeps_the_last_figures_while_the_database_is_away(shared) {
        let own = OwnServer::start(shared.engine);
        let db = TestDb::on_server(shared.engine, &own.url, "web_outage");
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "0"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo", "1"]).ok();
        let server = WebServer::start(&db, &[]);
        // All threads of the server have a connection.
        std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(|| server.get("/tasks")))));
        assert!(server.get("/").body.contains("<b>1</b>scheduled"));
        wait_until("the charts are read", || server.get("/").body.contains("success <b>1</b>"));
        own.kill();
        for figures in ["These figures", "The charts"] {
            wait_until("the page says so", || age(&server.get("/").body, figures).is_some());
            let first = age(&server.get("/").body, figures).unwrap();
            wait_until("their age grows", || age(&server.get("/").body, figures).unwrap() > first);
        }
        let page = server.get("/");
        assert!(page.status == 200 && page.body.contains("<b>1</b>scheduled"), "{page:?}");
        assert!(page.body.contains("success <b>1</b>"), "{page:?}");
        let answer = server.get("/api/v1/status");
        assert_eq!((answer.status, &answer.json()["code"]), (503, &"unreachable".into()), "{answer:?}");
        let [secret, address] = ["taskqueue:taskqueue", own.url.split(['@', '/']).nth(3).unwrap()];
        assert!(own.url.contains(secret) && address.starts_with("127.0.0.1:"), "{}", own.url);
        for reply in [page, answer, server.get("/tasks"), server.get("/api/v1/tasks"), server.get("/tasks/1")] {
            for hidden in [secret, address, "127.0.0.1", "taskqueue@", "web_outage"] {
                assert!(!reply.body.contains(hidden), "{hidden}: {reply:?}");
            }
        }
        own.again();
        wait_until("the page is up to date again", || {
            let page = server.get("/");
            page.status == 200 && !page.body.contains("These figures are") && !page.body.contains("The charts are")
        });
        assert_eq!(server.end(), Some(0));
    }
}
