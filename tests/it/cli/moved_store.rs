//! The file of a SQLite store that is removed, replaced or emptied, or whose disk is read-only.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ECHO, error_and_hint, shell_class, wait_for_file};
use crate::support::cli::{Ended, finish};
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Another store, which the test process does not have open.
struct Other<'a> {
    db: &'a TestDb,
    path: PathBuf,
    address: String,
}

impl<'a> Other<'a> {
    fn new(db: &'a TestDb) -> Self {
        let path = db.home().join("other.db");
        let other = Self { db, address: format!("sqlite://{}", path.display()), path };
        let _ = other.run(&["db", "migrate"]).ok();
        other
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.db.cli().run(&[&["--database", &self.address], args].concat())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        format!("{}{suffix}", self.path.display()).into()
    }

    /// Starts a worker, and waits until it is registered.
    fn worker(&self) -> std::process::Child {
        let worker = self.db.cli().spawn(&["--database", &self.address, "work"]);
        wait_until("the worker is registered", || !self.run(&["runner", "--json"]).stdout.is_empty());
        worker
    }
}

#[track_caller]
fn says(ended: &Ended, what: &str) {
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains(what) && ended.stderr.contains("while this process had it open"), "{ended:?}");
}

#[test]
fn a_worker_ends_when_its_store_is_removed() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let other = Other::new(db);
        let worker = other.worker();
        fs::remove_file(&other.path).unwrap();
        says(&finish(worker), "was removed or moved away");
    });
}

#[test]
fn a_worker_ends_when_another_file_takes_the_place_of_its_store() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let other = Other::new(db);
        let backup = db.home().join("backup.db");
        fs::copy(&other.path, &backup).unwrap();
        let worker = other.worker();
        fs::rename(&backup, &other.path).unwrap();
        says(&finish(worker), "was replaced by another file");
    });
}

#[test]
fn the_end_of_a_run_is_not_recorded_in_a_store_that_was_removed() {
    on(EngineUnderTest::Sqlite, |db| {
        let script = format!("cd {}; echo > begun; until [ -e go ]; do :; done", db.home().display());
        db.configure(&shell_class(db, "work", &script));
        let other = Other::new(db);
        let _ = other.run(&["queue", "work"]).ok();
        let runner = db.cli().spawn(&["--database", &other.address, "tick"]);
        wait_for_file(db, "begun");
        fs::rename(&other.path, db.home().join("away.db")).unwrap();
        fs::write(db.home().join("go"), "").unwrap();
        says(&finish(runner), "was removed or moved away");
        assert!(!other.path.exists(), "a new file was created");
    });
}

#[test]
fn no_store_is_made_beside_the_log_of_one_that_was_removed() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let other = Other::new(db);
        let mut worker = other.worker();
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert!(other.beside("-wal").exists());
        fs::remove_file(&other.path).unwrap();
        for args in [&["queue", "echo"][..], &["tick"], &["db", "migrate"], &["work", "--idle-exit", "0s"]] {
            let (error, hint) = error_and_hint(&other.run(args).fails(69));
            assert!(error.contains("the store was removed or emptied, but not") && error.contains("-wal"), "{error}");
            assert!(hint.contains("stop every process"), "{hint}");
            assert!(!other.path.exists(), "{args:?}");
        }
        fs::write(&other.path, "").unwrap();
        let _ = other.run(&["queue", "echo"]).fails(69);
        fs::remove_file(&other.path).unwrap();
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(other.beside(suffix));
        }
        let _ = other.run(&["queue", "echo"]).ok();
    });
}

#[test]
fn a_verb_that_only_reads_makes_no_store_of_an_empty_file() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let path = db.home().join("empty.db");
        fs::write(&path, "").unwrap();
        let address = format!("sqlite://{}", path.display());
        for verb in [&["status"][..], &["status", "1"], &["explain", "1"], &["export"], &["prune"], &["failures"]] {
            let ended = db.cli().run(&[&["--database", &address], verb].concat());
            assert_eq!(ended.code, Some(69), "{ended:?}");
            assert!(ended.stderr.contains("is empty"), "{ended:?}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 0, "{verb:?}");
        }
        // It examines what it can, and lists the rest.
        assert!(db.cli().run(&["--database", &address, "doctor"]).stdout.contains("is empty"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let _ = db.cli().run(&["--database", &address, "queue", "echo"]).ok();
        let _ = db.cli().run(&["--database", &address, "status"]).ok();
    });
}

/// Verbs that only read; each exits with 0 after two tasks have succeeded.
const READ: &str = r#"
    for verb in status "status 1" "explain 1" "logs 1" export failures events runner setting limit schedule \
        pause metrics "top --once" doctor; do
        "$program" $verb >"$home/out" 2>"$home/err"
        code=$?
        echo "$verb: $code $(grep -c '^warning: the disk of ' "$home/err") $(grep -v '^warning: the disk of ' "$home/err")"
    done
"#;

fn reads_on_small_disk(db: &TestDb, then: &str) -> Vec<String> {
    db.configure(ECHO);
    let disk = db.home().join("disk");
    fs::create_dir(&disk).unwrap();
    let disk = disk.to_str().unwrap();
    let script = format!(
        "program=$1 disk=$2 home=$3 TASKQUEUE_DATABASE_URL=sqlite://$2/tasks.db\n\
         export TASKQUEUE_DATABASE_URL\n\
         mount -t tmpfs -o size=4m,mode=700 tmpfs \"$disk\" || exit 90\n\
         for i in 1 2; do \"$program\" queue echo >/dev/null || exit 91; done\n\
         \"$program\" tick || exit 92\n{then}\n{READ}"
    );
    let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
    let shell = db.cli().program(Path::new("/usr/bin/unshare"));
    let home = db.home().to_str().unwrap();
    let ended = shell.run(&[namespaces, "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_taskqueue"), disk, home]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.lines().map(str::to_owned).collect()
}

/// Another program that closes the store last, and so removes the log and its index.
const CLOSED_BY_ANOTHER_PROGRAM: &str = r#"
    python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("SELECT * FROM TaskQueue").fetchall()' "$disk/tasks.db"
    [ ! -e "$disk/tasks.db-wal" ] || exit 93
"#;
const READ_ONLY: &str = "mount -o remount,ro \"$disk\"";
const FULL: &str = "cat /dev/zero >\"$disk/ballast\" 2>/dev/null";

#[track_caller]
fn all_read(lines: &[String], warnings: usize) {
    assert_eq!(lines.len(), 15, "{lines:?}");
    for line in lines {
        let code = if line.starts_with("doctor") { 2 } else { 0 };
        assert!(line.contains(&format!(": {code} {warnings} ")), "{line}: {lines:?}");
    }
}

#[test]
fn a_store_without_its_log_on_a_disk_that_cannot_be_written_can_be_read() {
    on(EngineUnderTest::Sqlite, |db| {
        all_read(&reads_on_small_disk(db, &format!("{CLOSED_BY_ANOTHER_PROGRAM}{READ_ONLY}")), 1);
    });
}

#[test]
fn on_a_disk_full_to_the_last_byte_a_store_without_log_can_be_read() {
    on(EngineUnderTest::Sqlite, |db| {
        all_read(&reads_on_small_disk(db, &format!("{CLOSED_BY_ANOTHER_PROGRAM}{FULL}")), 1);
    });
}

#[test]
fn a_store_with_its_log_on_a_disk_that_cannot_be_written_is_read_whole() {
    on(EngineUnderTest::Sqlite, |db| all_read(&reads_on_small_disk(db, READ_ONLY), 0));
}

#[test]
fn a_store_with_its_log_on_a_disk_that_is_full_is_read_whole() {
    on(EngineUnderTest::Sqlite, |db| all_read(&reads_on_small_disk(db, FULL), 0));
}

#[test]
fn the_hint_names_a_disk_that_is_mounted_read_only() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let disk = db.home().join("disk");
        fs::create_dir(&disk).unwrap();
        let disk = disk.to_str().unwrap();
        let script = r#"
            mount -t tmpfs -o size=4m,mode=700 tmpfs "$2" || exit 90
            "$1" --database "sqlite://$2/tasks.db" queue echo >/dev/null || exit 91
            mount -o remount,ro "$2" || exit 92
            for store in tasks.db new.db; do
                for verb in tick 'work --idle-exit 0s' 'queue echo'; do
                    "$1" --database "sqlite://$2/$store" $verb 2>&1 | grep ^hint
                done
            done
        "#;
        let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
        let shell = db.cli().program(Path::new("/usr/bin/unshare"));
        let hints = shell.run(&[namespaces, "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_taskqueue"), disk]).ok();
        let hint = |place: &str| format!("hint: the file system is mounted read-only: `findmnt -T {place}` shows it");
        let expected = [hint(&format!("{disk}/tasks.db")), hint(disk)];
        assert_eq!(hints.lines().collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1].map(|place: usize| &expected[place]));
    });
}
