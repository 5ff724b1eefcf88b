//! A database that does not answer delays the end of a process by no more than its stop wait.

use std::process::Child;

use rustix::process::Signal;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};

use super::outage::{Outage, signal};
use super::tools::begin_write;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb, wait_until};

const RUNNERS: [&[&str]; 3] = [&["work", "--slots", "1"], &["tick"], &["process-run"]];

/// Creates a class whose handler works until it is ended, and a task of it for each runner.
fn prepare(db: &TestDb) {
    let work = "argv = [\"/bin/sh\", \"-c\", \"exec sleep 3600\"]\nkill_grace_secs = 1\n";
    db.configure(&format!("stop_wait_secs = 1\n[class.long]\n{work}"));
    db.cli().stdin("{\"class\":\"long\"}\n".repeat(RUNNERS.len())).run(&["queue", "--batch", "-"]).ok();
    db.cli().run(&["create-runs"]).ok();
}

/// From now on, the database sends nothing, and no connection ends. For SQLite, another process holds its only lock.
fn fall_silent(outage: &mut Outage, db: &TestDb) {
    match outage {
        Outage::Server(server) => server.hold(true, true),
        Outage::Locked(..) => outage.begin(db),
    }
}

fn speak_again(outage: &mut Outage) {
    match outage {
        Outage::Server(server) => server.hold(false, false),
        Outage::Locked(..) => outage.end(),
    }
}

/// Waits until it has ended on its own, and returns its exit status.
fn exit_status(mut child: Child, what: &str) -> i32 {
    wait_until(&format!("{what} ends"), || child.try_wait().unwrap().is_some());
    let ended = finish(child);
    ended.code.unwrap_or_else(|| panic!("{what} was killed: {ended:?}"))
}

fn catches(child: &Child, number: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap_or(0) >> (number.as_raw() - 1) & 1 == 1
}

/// Locks the table of runs against all others.
fn lock_runs(db: &TestDb, raw: &mut Raw) {
    match db.engine {
        EngineUnderTest::Sqlite => begin_write(raw),
        EngineUnderTest::Postgres => raw.execute("BEGIN; LOCK TABLE \"TaskQueueRuns\""),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => raw.execute("LOCK TABLES `TaskQueueRuns` WRITE"),
    }
}

each_engine! {
    fn a_runner_whose_database_is_silent_ends_its_run_and_leaves(db) {
        prepare(db);
        let mut outage = Outage::of(db);
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url());
        let runners: Vec<Child> = RUNNERS.iter().map(|runner| cli.spawn(runner)).collect();
        let mut handlers = Vec::new();
        wait_until("all handlers are recorded", || {
            let recorded = "SELECT \"HandlerIdentity\" AS value FROM \"TaskQueueRuns\" WHERE \"HandlerIdentity\" <> ''";
            handlers = db.raw().texts(recorded);
            handlers.len() == RUNNERS.len()
        });
        fall_silent(&mut outage, db);
        runners.iter().for_each(|runner| signal(runner, Signal::TERM));
        for (runner, name) in runners.into_iter().zip(RUNNERS) {
            let status = exit_status(runner, name[0]);
            assert!([69, 75].contains(&status), "{name:?}: {status}");
        }
        for handler in handlers.into_iter().flatten() {
            let handler: ProcessIdentity = handler.parse().unwrap();
            assert_eq!(handler.liveness(), Liveness::Dead);
        }
        speak_again(&mut outage);
        // Their outcomes are in the spool, and the next process sends them.
        cli.run(&["create-runs"]).ok();
        let released = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'released'";
        assert_eq!(db.number(released), 3);
        assert_eq!(db.number("SELECT SUM(\"FailedRetries\") AS value FROM \"TaskQueue\""), 0);
    }

    fn a_lock_of_another_session_keeps_no_process_that_was_told_to_stop(db) {
        prepare(db);
        let mut other = db.raw();
        lock_runs(db, &mut other);
        let verbs = RUNNERS.into_iter().chain([&["cancel", "1"][..], &["wait", "1"]]);
        let waiting: Vec<(&str, Child)> = verbs.map(|verb| (verb[0], db.cli().spawn(verb))).collect();
        for (name, child) in &waiting {
            let number = if RUNNERS.iter().any(|runner| runner[0] == *name) { Signal::TERM } else { Signal::INT };
            wait_until(&format!("{name} takes signals"), || catches(child, number));
            signal(child, number);
        }
        for (name, child) in waiting {
            let status = exit_status(child, name);
            let expected: &[i32] = if name == "work" { &[0, 69, 75] } else { &[130] };
            assert!(expected.contains(&status), "{name}: {status}");
        }
        drop(other);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'"), 3);
    }
}
