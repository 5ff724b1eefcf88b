//! A database that is unreachable while a runner executes a handler.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use taskqueue_process::identities::identity::ProcessIdentity;

use super::stage::{Stage, column};
use super::tools::begin_write;
use crate::support::db::Raw;
use crate::support::proxy::Proxy;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// A database that becomes unreachable and returns: a server behind a proxy; for SQLite a process that holds its only lock.
pub enum Outage {
    Locked(Option<Raw>, String),
    Server(Proxy),
}

impl Outage {
    pub fn of(db: &TestDb) -> Self {
        match db.engine {
            EngineUnderTest::Sqlite => Self::Locked(None, db.url_text().to_owned()),
            _ => Self::Server(Proxy::start("127.0.0.1", db.url_text())),
        }
    }

    pub fn url(&self) -> &str {
        match self {
            Self::Locked(_, url) => url,
            Self::Server(server) => &server.url,
        }
    }

    pub fn begin(&mut self, db: &TestDb) {
        match self {
            Self::Locked(raw, _) => begin_write(raw.insert(db.raw())),
            Self::Server(server) => server.stop(),
        }
    }

    /// Returns whether a client has tried to connect meanwhile; with SQLite this is unknown, because its clients poll.
    pub fn was_felt(&self) -> bool {
        match self {
            Self::Locked(..) => true,
            Self::Server(server) => server.refused() > 0,
        }
    }

    pub fn end(&mut self) {
        match self {
            Self::Locked(raw, _) => raw.take().unwrap().execute("COMMIT"),
            Self::Server(server) => server.start_again(),
        }
    }
}

/// Starts a runner with a handler in progress; the runner reaches the database through the outage.
pub fn runner_behind(db: &TestDb, stage: &Stage, outage: &Outage) -> (Child, ProcessIdentity) {
    db.cli().run(&["queue", "stage"]).ok();
    db.cli().run(&["create-runs"]).ok();
    let runner = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).spawn(&["process-run"]);
    let handler = stage.actor("handler");
    wait_until("the handler is recorded", || column(db, "HandlerIdentity") == Some(handler.to_string()));
    (runner, handler)
}

pub fn signal(runner: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
