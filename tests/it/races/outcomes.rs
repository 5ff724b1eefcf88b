//! Outcomes in the spool.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use taskqueue_host::files::lock::FileLock;

use super::outage::{Outage, runner_behind, signal};
use super::stage::{Stage, end_lease, statuses, task, wait_dead};
use crate::support::cli::finish;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

/// Returns the files of the spool that have records.
pub(super) fn spooled(db: &TestDb) -> Vec<PathBuf> {
    let directory = db.home().join(".local/state/taskqueue/spool");
    let files = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|path| fs::metadata(path).unwrap().len() > 0).collect()
}

/// Starts a runner whose handler succeeds while the database is unreachable, and kills it before it can send that. Returns its
/// spool.
fn die_with_an_outcome(db: &TestDb, stage: &Stage, outage: &mut Outage) -> PathBuf {
    let (runner, handler) = runner_behind(db, stage, outage);
    outage.begin(db);
    let go = stage.go();
    wait_dead("the handler", &handler);
    wait_until("the outcome is on the disk", || spooled(db).len() == 1);
    drop(go);
    signal(&runner, Signal::KILL);
    let _ = finish(runner);
    outage.end();
    assert_eq!((statuses(db), stage.done()), (vec!["processing".to_owned()], "handler\n".to_owned()));
    spooled(db).remove(0)
}

fn create_runs(db: &TestDb, outage: &Outage) -> String {
    let ended = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).run(&["create-runs"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stderr
}

fn late_results(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'")
}

each_engine! {
    fn an_outcome_of_a_dead_runner_is_recorded_and_its_task_is_not_run_again(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let path = die_with_an_outcome(db, &stage, &mut outage);
        let left = fs::read(&path).unwrap();
        let said = create_runs(db, &outage);
        assert!(said.contains("recorded 1 outcome that a dead runner of this host had saved on the local disk"), "{said}");
        assert_eq!((statuses(db), task(db)), (vec!["success".to_owned()], ("success".to_owned(), 0, 1)));
        // It died after the database had the outcome, before it was removed from the spool.
        fs::write(&path, left).unwrap();
        create_runs(db, &outage);
        assert_eq!((spooled(db).len(), late_results(db)), (0, 0));
        assert_eq!(statuses(db), ["success"]);
    }

    fn doctor_finds_outcomes_that_wait_on_the_disk(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        die_with_an_outcome(db, &stage, &mut outage);
        let doctor = || db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).run(&["doctor"]).stdout;
        let words = "spool contains 1 outcome not yet recorded in the database";
        let found = doctor();
        assert!(found.contains(words) && found.contains("taskqueue create-runs"), "{found}");
        create_runs(db, &outage);
        assert!(!doctor().contains(words));
    }

    fn an_outcome_that_comes_after_the_rescue_is_refused_and_kept(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let path = die_with_an_outcome(db, &stage, &mut outage);
        let (hidden, left) = (db.home().join("hidden"), fs::read(&path).unwrap());
        fs::rename(&path, &hidden).unwrap();
        create_runs(db, &outage);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        fs::rename(&hidden, &path).unwrap();
        create_runs(db, &outage);
        assert_eq!((statuses(db), late_results(db)), (vec!["timeout".to_owned(), "scheduled".to_owned()], 1));
        assert_eq!(spooled(db).len(), 0);
        // It died after the event was stored, before its record was removed from the spool.
        fs::write(&path, left).unwrap();
        create_runs(db, &outage);
        assert_eq!((spooled(db).len(), late_results(db)), (0, 1));
    }

    fn a_run_whose_outcome_somebody_else_is_sending_is_left_to_them(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let path = die_with_an_outcome(db, &stage, &mut outage);
        let sender = FileLock::acquire(&path, Duration::ZERO).unwrap();
        create_runs(db, &outage);
        assert_eq!(statuses(db), ["processing"], "the runner is dead, but the outcome is known");
        drop(sender);
        create_runs(db, &outage);
        assert_eq!((statuses(db), late_results(db)), (vec!["success".to_owned()], 0));
    }

    fn a_sender_that_hangs_holds_the_run_no_longer_than_its_lease(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let path = die_with_an_outcome(db, &stage, &mut outage);
        let _sender = FileLock::acquire(&path, Duration::ZERO).unwrap();
        end_lease(db);
        create_runs(db, &outage);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
    }

    fn an_outcome_that_the_database_refuses_stops_nothing_else(db) {
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let path = die_with_an_outcome(db, &stage, &mut outage);
        let good = fs::read_to_string(&path).unwrap();
        // The schema does not allow such a stream.
        let stream = "\"outputs\":[{\"stream\":\"x\",\"content\":\"\",\"total_bytes\":0,\"is_lossy\":false}]";
        let bad = good.replace("\"outputs\":[]", stream);
        assert_ne!(good, bad);
        fs::write(&path, bad).unwrap();
        create_runs(db, &outage);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        create_runs(db, &outage);
        assert_eq!((spooled(db).len(), late_results(db)), (0, 1));
    }

    fn a_spool_that_cannot_be_used_is_told_and_keeps_nobody_from_working(db) {
        db.configure("spool = \"/dev/null/spool\"\n[class.work]\nargv = [\"/bin/true\"]\n");
        db.cli().run(&["queue", "work"]).ok();
        let ended = db.cli().run(&["tick"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("outcomes cannot be saved on the local disk"), "{}", ended.stderr);
        assert!(ended.stderr.contains("/dev/null/spool: Not a directory"), "{}", ended.stderr);
        assert_eq!(statuses(db), ["success"]);
    }
}

each_server! {
    fn a_spool_without_room_is_told_and_keeps_nobody_from_working(db) {
        // Every write to it fails like on a full disk; a SQLite store could not be written either.
        let limited = "ulimit -f 0; trap '' XFSZ; exec \"$@\"";
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        db.cli().run(&["queue", "work"]).ok();
        let cli = db.cli().program(Path::new("/bin/sh"));
        let ended = cli.run(&["-c", limited, "sh", env!("CARGO_BIN_EXE_taskqueue"), "tick"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("outcomes cannot be saved on the local disk"), "{}", ended.stderr);
        assert_eq!(statuses(db), ["success"]);
    }
}

#[test]
fn an_outcome_belongs_to_a_file_however_its_path_is_written() {
    on(EngineUnderTest::Sqlite, |db| {
        let stage = Stage::new(db, false);
        // From the home directory, where the program is started.
        let mut outage = Outage::Locked(None, "tasks.db".to_owned());
        die_with_an_outcome(db, &stage, &mut outage);
        let elsewhere = db.home().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        for verb in [&["db", "migrate"][..], &["create-runs"]] {
            let from = ["-C", "elsewhere", env!("CARGO_BIN_EXE_taskqueue"), "--database", "tasks.db"];
            let _ = db.cli().program(Path::new("/usr/bin/env")).run(&[&from, verb].concat()).ok();
        }
        assert_eq!((spooled(db).len(), statuses(db)), (1, vec!["processing".to_owned()]), "that is another file");
        let from = ["-C", "elsewhere", env!("CARGO_BIN_EXE_taskqueue"), "--database", "tasks.db", "doctor"];
        let found = db.cli().program(Path::new("/usr/bin/env")).run(&from).stdout;
        let words = format!("spool contains 1 outcome for another address, {}", db.url_text());
        assert!(found.contains(&words) && found.contains("tasks.db create-runs"), "{found}");
        std::os::unix::fs::symlink(db.home(), elsewhere.join("link")).unwrap();
        let linked = Outage::Locked(None, elsewhere.join("link/tasks.db").display().to_string());
        create_runs(db, &linked);
        assert_eq!((spooled(db).len(), statuses(db)), (0, vec!["success".to_owned()]));
    });
}
