//! A node of a Galera cluster: what it is warned of, and what happens while it is not ready.

use std::io::{BufRead as _, BufReader};

use rustix::process::Signal;

use super::stage::statuses;
use crate::cli::signal;
use crate::support::cli::finish;
use crate::support::own_server::OwnServer;
use crate::support::{TestDb, wait_until};
use crate::test_on;

const NOTE: &str = "[class.note]\nargv = [\"/bin/true\"]\n";

/// Makes the node answer as one that is not in its cluster, except to SET, SHOW and queries without a table.
fn set_ready(node: &TestDb, is_ready: bool) {
    node.raw().execute(&format!("SET GLOBAL wsrep_reject_queries = {}", if is_ready { "NONE" } else { "ALL" }));
}

test_on! { [mariadb Mariadb] db_migrate_and_doctor_warn_of_a_galera_cluster db {
    let own = OwnServer::galera();
    let node = TestDb::on_server(db.engine, &own.url, "warned");
    node.configure(NOTE);
    let warning = "the database is a Galera cluster (1 node): all programs that write the tables of taskqueue must connect to the same";
    let ended = node.cli().run(&["db", "migrate"]);
    assert!(ended.code == Some(0) && ended.stderr.starts_with(&format!("warning: {warning}")), "{ended:?}");
    let doctor = node.cli().run(&["doctor"]);
    assert!(doctor.stdout.contains(warning), "{doctor:?}");
    let doctor = db.cli().run(&["doctor"]);
    assert!(!doctor.stdout.contains("Galera"), "{doctor:?}");
} }

test_on! { [mariadb Mariadb] a_galera_node_that_is_not_ready_is_passed_over_or_waited_for db {
    let own = OwnServer::galera();
    let (name, host) = db.name_and_host();
    let node = TestDb::on_server(db.engine, &own.url, name);
    let patient = format!("connect_wait_secs = 600\n{NOTE}");
    node.configure(&patient);
    let worker = node.cli().spawn(&["work"]);
    node.cli().run(&["queue", "note"]).ok();
    wait_until("the worker has processed it", || statuses(&node) == ["success"]);
    set_ready(&node, false);

    db.configure(NOTE);
    let both = db.url_text().replace(host, &format!("{},{host}", node.name_and_host().1));
    let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &both);
    cli.run(&["queue", "note"]).ok();
    cli.run(&["tick"]).ok();
    assert_eq!(statuses(db), ["success"], "the next host was taken");

    node.configure(&format!("connect_wait_secs = 0\n{NOTE}"));
    node.cli().run(&["queue", "note"]).fails(75);
    node.configure(&patient);
    let mut waiting = node.cli().spawn(&["queue", "note"]);
    let mut line = String::new();
    BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("WSREP has not yet prepared node") && line.contains("retrying for up to 600 seconds"), "{line}");
    set_ready(&node, true);
    assert_eq!(finish(waiting).ok(), "2");
    wait_until("the worker goes on", || statuses(&node) == ["success", "success"]);
    signal(&worker, Signal::TERM);
    let ended = finish(worker);
    assert_eq!(ended.code, Some(0), "{ended:?}");
} }
