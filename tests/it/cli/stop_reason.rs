//! Handlers learn why they should end: one word on descriptor 4 before TERM, or the reason of the run in Rust.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;

use super::{shell_class, signal, wait_for_file, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::finish;

/// Returns the directory in which the handlers write, whatever their user is.
fn directory(db: &TestDb) -> PathBuf {
    db.home().join("open")
}

/// A class whose handler writes the reason to the file `reason` on TERM.
fn configure(db: &TestDb, more: &str) {
    std::fs::create_dir(directory(db)).unwrap();
    std::fs::set_permissions(directory(db), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(db.home(), Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        "cd {}; trap 'read -r reason <&4; echo \"$reason\" >reason.new; mv reason.new reason; exit 3' TERM; \
         read -r early <&4 || echo none >early; echo on >started; sleep 1000 & wait",
        directory(db).display()
    );
    db.configure(&format!("stop_wait_secs = 0\n{}{more}", shell_class(db, "work", &script)));
}

fn start(db: &TestDb, options: &[&str]) -> (String, std::process::Child) {
    let id = db.cli().run(&[&["queue", "work"], options].concat()).ok();
    db.cli().run(&["create-runs"]).ok();
    let runner = db.cli().spawn(&["process-run"]);
    wait_for_file(db, "open/started");
    (id, runner)
}

#[track_caller]
fn reason(db: &TestDb) -> String {
    assert_eq!(std::fs::read_to_string(directory(db).join("early")).unwrap(), "none\n", "a reason before the stop");
    std::fs::read_to_string(directory(db).join("reason")).unwrap()
}

each_engine! {
    fn a_cancelled_handler_reads_cancel_on_descriptor_4(db) {
        configure(db, "");
        let (id, runner) = start(db, &[]);
        db.cli().run(&["cancel", &id]).ok();
        finish(runner).ok();
        assert_eq!(reason(db), "cancel\n");
    }

    fn a_handler_that_times_out_reads_timeout_on_descriptor_4(db) {
        configure(db, "");
        let (_, runner) = start(db, &["--timeout", "1s"]);
        finish(runner).ok();
        assert_eq!(reason(db), "timeout\n");
    }

    fn a_handler_of_a_runner_that_stops_reads_shutdown_on_descriptor_4(db) {
        configure(db, "");
        let (_, runner) = start(db, &[]);
        signal(&runner, Signal::TERM);
        assert_eq!(finish(runner).code, Some(130));
        assert_eq!(reason(db), "shutdown\n");
    }

    fn a_handler_with_a_user_of_its_own_reads_the_reason(db) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        configure(db, "user = \"nobody\"\n");
        let (id, runner) = start(db, &[]);
        db.cli().run(&["cancel", &id]).ok();
        finish(runner).ok();
        assert_eq!(reason(db), "cancel\n");
    }

    fn a_coprocess_that_cannot_cancel_reads_the_reason_too(db) {
        let home = directory(db);
        std::fs::create_dir(&home).unwrap();
        let script = format!(
            "import json, os, signal, sys\n\
             def end(*_):\n open({:?}, 'w').write(os.pread(4, 64, 0).decode())\n os._exit(3)\n\
             signal.signal(signal.SIGTERM, end)\n\
             print(json.dumps({{'type': 'hello', 'version': 1}}), flush=True)\n\
             for line in sys.stdin:\n if json.loads(line)['type'] == 'run': open({:?}, 'w').write('on\\n'); signal.pause()\n",
            home.join("reason"),
            home.join("started"),
        );
        let path = write(db, "kept.py", script);
        db.configure(&format!("[class.work]\nargv = [\"/usr/bin/python3\", {path:?}]\nprotocol = \"coprocess\"\n"));
        let (id, runner) = start(db, &[]);
        db.cli().run(&["cancel", &id]).ok();
        finish(runner).ok();
        assert_eq!(std::fs::read_to_string(home.join("reason")).unwrap(), "cancel\n");
    }
}
