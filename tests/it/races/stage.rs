//! A handler under the control of the test, a runner that executes it, and the content of the tables.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};

use super::tools::{make_fifo, open_fifo};
use crate::support::{TestDb, wait_until};

/// A handler that writes its PIDs, and then works until a process writes to `go`. With `escape`, two more processes leave its
/// group, and none of them reacts to TERM.
pub struct Stage {
    pub directory: PathBuf,
}

impl Stage {
    pub fn new(db: &TestDb, escapes: bool) -> Self {
        let directory = db.home().join("stage");
        fs::create_dir(&directory).unwrap();
        make_fifo(&directory.join("go"));
        let here = directory.display();
        let work = "mv $name.new $name; read x < go; echo $name >> done";
        // Both left the process group; the parent of the second one has ended, too.
        let escape = format!(
            "trap '' TERM\n\
             setsid sh -c 'name=session; echo $$ > $name.new; {work}' </dev/null >/dev/null 2>&1 3>&- &\n\
             (setsid sh -c 'name=daemon; echo $$ > $name.new; {work}' </dev/null >/dev/null 2>&1 3>&- &)\n"
        );
        let script = format!(
            "cd {here}\n{}name=handler; echo $$ > $name.new; {work}\n",
            if escapes { escape.as_str() } else { "" }
        );
        fs::write(directory.join("handler.sh"), script).unwrap();
        db.configure(&format!(
            "[class.stage]\nargv = [\"/bin/sh\", \"{here}/handler.sh\"]\nkill_grace_secs = 0\nbackoff = \"fixed:0s\"\n"
        ));
        Self { directory }
    }

    /// Does the same without processes that escape, queues a task, and creates its run.
    pub fn with_run(db: &TestDb) -> Self {
        let stage = Self::new(db, false);
        db.cli().run(&["queue", "stage"]).ok();
        db.cli().run(&["create-runs"]).ok();
        stage
    }

    /// Returns the process that wrote its PID under this name.
    pub fn actor(&self, name: &str) -> ProcessIdentity {
        let path = self.directory.join(name);
        wait_until(&format!("{name} has started"), || path.exists());
        let pid = fs::read_to_string(path).unwrap().trim().parse().unwrap();
        ProcessIdentity::of_pid(pid).unwrap().unwrap_or_else(|| panic!("{name} has gone"))
    }

    /// Removes the PIDs, so that the next attempt can be waited for.
    pub fn forget(&self) {
        for name in ["handler", "session", "daemon"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }

    pub fn done(&self) -> String {
        fs::read_to_string(self.directory.join("done")).unwrap_or_default()
    }

    /// Releases all handlers, current and later ones, until the result is dropped.
    pub fn go(&self) -> fs::File {
        use std::io::Write as _;
        let mut go = open_fifo(&self.directory.join("go"));
        go.write_all(b"\n\n\n\n\n\n").unwrap();
        go
    }
}

pub fn column(db: &TestDb, name: &str) -> Option<String> {
    let cast = if db.is_mysql_like() { "CHAR" } else { "TEXT" };
    db.text(&format!("SELECT CAST(\"{name}\" AS {cast}) AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\" DESC"))
}

/// Returns LastStatus, FailedRetries and Attempts of the only task.
pub fn task(db: &TestDb) -> (String, i64, i64) {
    let number = |name: &str| db.number(&format!("SELECT SUM(\"{name}\") AS value FROM \"TaskQueue\""));
    (db.text("SELECT \"LastStatus\" AS value FROM \"TaskQueue\"").unwrap(), number("FailedRetries"), number("Attempts"))
}

pub fn statuses(db: &TestDb) -> Vec<String> {
    db.raw()
        .texts("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"")
        .into_iter()
        .map(Option::unwrap)
        .collect()
}

pub fn wait_dead(who: &str, process: &ProcessIdentity) {
    wait_until(&format!("{who} is dead"), || process.liveness() == Liveness::Dead);
}

/// Starts a runner with the handler in progress and its identity recorded.
pub fn start_runner(db: &TestDb, stage: &Stage) -> (Child, ProcessIdentity) {
    let runner = db.cli().spawn(&["process-run"]);
    let handler = stage.actor("handler");
    wait_until("the handler is recorded", || column(db, "HandlerIdentity") == Some(handler.to_string()));
    (runner, handler)
}

/// Sets the shortest lease that the settings allow: 5 seconds, of which a runner trusts 4. Returns when the server has been up
/// for that time.
pub fn shorten_leases(db: &TestDb) {
    for (name, value) in [("Renewal", "1"), ("Margin", "1"), ("Time", "5")] {
        db.cli().run(&["setting", "set", &format!("TaskQueueLease{name}"), value]).ok();
    }
    wait_until("leases count", || db.store().leases_count(5).unwrap());
}

/// Ends the lease for later readers; current runners renew theirs as before.
pub fn end_lease(db: &TestDb) {
    shorten_leases(db);
    db.execute("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = '2020-01-01 00:00:00.000000' WHERE \"Status\" = 'processing'");
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").unwrap().uid() == 0
}
