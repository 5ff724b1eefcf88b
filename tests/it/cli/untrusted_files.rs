//! Files that another user can change, and what is refused because of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde_json::json;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_host::files::spool::Spool;
use taskqueue_store::RunEnd;

use super::claimants::{Held, queue_and_claim};
use super::{ECHO, error_and_hint, task};
use crate::each_engine;
use crate::support::cli::Ended;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb};

const NOBODY: u32 = 65_534;

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), None).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs the program as the user `nobody`, who then owns the home of the test.
pub(super) fn as_nobody(db: &TestDb, args: &[&str]) -> Ended {
    let home = db.home().display().to_string();
    assert!(std::process::Command::new("chown").args(["-R", "nobody", &home]).status().unwrap().success());
    let user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups", env!("CARGO_BIN_EXE_taskqueue")];
    db.cli().program(Path::new("/usr/bin/setpriv")).run(&[&user, args].concat())
}

/// Creates another store in the directory `there` of the home.
fn store_in_directory(db: &TestDb) -> (PathBuf, String) {
    let directory = db.home().join("there");
    fs::create_dir(&directory).unwrap();
    set_mode(&directory, 0o755);
    let address = format!("sqlite://{}", directory.join("tasks.db").display());
    let _ = db.cli().run(&["--database", &address, "db", "migrate"]).ok();
    (directory, address)
}

/// Writes two records to the first file of a spool: a success of this run, with its token, and a failure without one. Returns the
/// file.
fn plant_records(db: &TestDb, spool: &Path, held: &Held) -> PathBuf {
    let store = db.store();
    let success = RunEnd { results: Some("1".to_owned()), ..RunEnd::of(RunEvent::Succeed, "", "", "planted") };
    let failure = RunEnd::of(RunEvent::Fail, "planted", "planted", "planted");
    let number = |id: &str| id.parse::<i64>().unwrap();
    let mut file = Spool::new(spool, store.url().identity()).take().unwrap();
    for (token, end) in [(held.token.as_str(), success), ("1-unknown", failure)] {
        let record = json!({
            "database": store.url().identity(), "run_id": number(&held.run), "task_id": number(&held.task), "token": token,
            "end": end,
        });
        file.append(&record.to_string()).unwrap();
    }
    let is_used = |path: &PathBuf| fs::metadata(path).unwrap().len() > 0;
    fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path()).find(is_used).unwrap()
}

/// Runs every kind of command that sends what dead processes have left in the spool. Returns the messages of `tick`.
fn run_senders(db: &TestDb) -> String {
    for verb in [&["create-runs"][..], &["process-run", "--drain"], &["work", "--idle-exit", "0s"]] {
        let _ = db.cli().run(verb).ok();
    }
    assert_eq!(db.cli().run(&["worker", "claim", "--claimant", "other"]).code, Some(3));
    // Only a runner with a run needs the spool.
    db.cli().run(&["queue", "echo"]).ok();
    let tick = db.cli().run(&["tick"]);
    assert_eq!(tick.code, Some(0), "{tick:?}");
    tick.stderr
}

each_engine! {
    fn a_spool_record_that_another_user_may_have_written_is_not_sent(db) {
        let spool = db.home().join("spool");
        db.configure(&format!("spool = {spool:?}\n{ECHO}"));
        let held = queue_and_claim(db, &["--timeout", "1h"]);
        let file = plant_records(db, &spool, &held);
        let planted = fs::read(&file).unwrap();
        let senders = |what: &str| {
            let said = run_senders(db);
            assert_eq!(task(db, &held.task)["status"], "processing", "{what}");
            let late = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'";
            assert_eq!((db.number(late), fs::read(&file).unwrap() == planted), (0, true), "{what}");
            said
        };
        let ignored = |what: &str, why: &str| {
            let said = senders(what);
            assert!(said.contains("outcomes cannot be saved on the local disk") && said.contains(why), "{what}: {said}");
            assert!(!db.cli().run(&["doctor"]).stdout.contains("not yet recorded"), "{what}");
        };
        for mode in [0o777, 0o1777] {
            set_mode(&spool, mode);
            ignored(&format!("a directory with the mode {mode:o}"), "can be written by everybody");
        }
        set_mode(&spool, 0o700);
        if geteuid().is_root() {
            give_to_nobody(&spool);
            ignored("the directory of another user", "belongs to the user with the id 65534");
            chown(&spool, Some(0), None).unwrap();
            chown(&spool, None, Some(NOBODY)).unwrap();
            set_mode(&spool, 0o1770);
            ignored("a directory in which a group can create files", "other users can create files in");
            set_mode(&spool, 0o700);
            give_to_nobody(&file);
            let _ = senders("the file of another user");
            chown(&file, Some(0), None).unwrap();
        }
        // The same records count in a file of this user, in a directory that no other user can change.
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("that a dead runner of this host had saved on the local disk"), "{ended:?}");
        assert_eq!(task(db, &held.task)["status"], "success");
    }
}

#[test]
fn exec_is_off_for_a_store_that_another_user_can_change_or_replace() {
    if !geteuid().is_root() {
        return;
    }
    on(EngineUnderTest::Sqlite, |db| {
        let (directory, address) = store_in_directory(db);
        let exec = || db.cli().run(&["--database", &address, "exec", "--", "true"]);
        let refused = |what: &str| {
            let (error, _) = error_and_hint(&exec().fails(2));
            assert!(error.contains("\"exec\" is off"), "{what}: {error}");
        };
        let _ = exec().ok();
        give_to_nobody(&directory);
        refused("the directory of another user");
        chown(&directory, Some(0), None).unwrap();
        set_mode(&directory, 0o1777);
        refused("a directory with the sticky bit, in which everybody can make the log");
        set_mode(&directory, 0o755);
        set_mode(db.home(), 0o777);
        refused("a directory above it");
        set_mode(db.home(), 0o755);
        for suffix in ["-wal", "-shm", "-journal"] {
            let planted = directory.join(format!("tasks.db{suffix}"));
            fs::write(&planted, "").unwrap();
            give_to_nobody(&planted);
            refused(suffix);
            // Another verb may have removed it.
            let _ = fs::remove_file(planted);
        }
        let _ = exec().ok();
    });
}

#[test]
fn root_runs_nothing_as_root_from_a_store_below_another_users_directory() {
    if !geteuid().is_root() {
        return;
    }
    on(EngineUnderTest::Sqlite, |db| {
        let (directory, address) = store_in_directory(db);
        db.configure_exactly(ECHO);
        let run = |args: &[&str]| db.cli().run(&[&["--database", &address], args].concat());
        give_to_nobody(&directory);
        let _ = run(&["queue", "echo"]).ok();
        let _ = run(&["tick"]).ok();
        let after = run(&["status", "--json", "1"]).json();
        assert_eq!(after["runs"][0]["status"], "released", "{after}");
        assert!(
            after["runs"][0]["error_message"].as_str().unwrap().contains("must set the user of handlers"),
            "{after}"
        );
    });
}

#[test]
fn root_refuses_a_configuration_that_another_user_can_change() {
    if !geteuid().is_root() {
        return;
    }
    on(EngineUnderTest::Sqlite, |db| {
        let directory = db.home().join("etc");
        fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o755);
        let file = directory.join("config.toml");
        fs::write(&file, ECHO).unwrap();
        let classes = || db.cli().run(&["--config", &file.display().to_string(), "class"]);
        let refused = |what: &str, path: &Path| {
            let (error, _) = error_and_hint(&classes().fails(78));
            assert!(error.contains(&format!("{} {what}", path.display())), "{what}: {error}");
        };
        let _ = classes().ok();
        let foreign = format!("belongs to the user with the id {NOBODY}");
        for path in [&file, &directory] {
            give_to_nobody(path);
            refused(&foreign, path);
            chown(path, Some(0), None).unwrap();
        }
        chown(&file, None, Some(NOBODY)).unwrap();
        set_mode(&file, 0o620);
        refused("can be written by its group", &file);
        set_mode(&file, 0o600);
        set_mode(&directory, 0o1777);
        let _ = classes().ok();
        let parts = directory.join("conf.d");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("planted.toml"), "[class.planted]\nargv = [\"/usr/bin/id\"]\n").unwrap();
        give_to_nobody(&parts);
        refused(&foreign, &parts);
        chown(&parts, Some(0), None).unwrap();
        give_to_nobody(&parts.join("planted.toml"));
        refused(&foreign, &parts.join("planted.toml"));
    });
}

#[test]
fn a_user_takes_the_configuration_of_another_but_none_that_was_planted() {
    if !geteuid().is_root() {
        return;
    }
    on(EngineUnderTest::Sqlite, |db| {
        let _ = as_nobody(db, &["class"]).ok();
        let directory = db.home().join("shared");
        fs::create_dir(&directory).unwrap();
        let file = directory.join("config.toml");
        fs::write(&file, ECHO).unwrap();
        set_mode(&file, 0o644);
        let classes = |owner: u32| {
            // The helper gives all files to `nobody`.
            let user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups", env!("CARGO_BIN_EXE_taskqueue")];
            chown(&file, Some(owner), None).unwrap();
            let path = file.display().to_string();
            db.cli().program(Path::new("/usr/bin/setpriv")).run(&[&user[..], &["--config", &path, "class"]].concat())
        };
        set_mode(&directory, 0o755);
        let _ = classes(1).ok();
        set_mode(&directory, 0o1777);
        let _ = classes(0).ok();
        let (error, _) = error_and_hint(&classes(1).fails(78));
        assert!(error.contains("belongs to the user with the id 1"), "{error}");
    });
}

#[test]
fn without_proc_the_error_names_it_and_not_the_configuration() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
        let script = "mount -t tmpfs none /proc || exit 90; exec \"$0\" tick";
        let shell = db.cli().program(Path::new("/usr/bin/unshare"));
        let ended = shell.run(&[namespaces, "sh", "-c", script, env!("CARGO_BIN_EXE_taskqueue")]);
        let (error, hint) = error_and_hint(&ended.fails(78));
        assert!(error.ends_with("/config.toml: it cannot be opened, because /proc is not mounted"), "{error}");
        assert_eq!(hint, "hint: mount -t proc proc /proc");
    });
}
