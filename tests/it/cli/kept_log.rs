//! The write-ahead log of a SQLite store, which commands keep: what they sync, and that nothing is lost.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::ECHO;
use crate::support::cli::Ended;
use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, TestDb, wait_until};

const LONG_LOG_BYTES: u64 = 1 << 20;
const COUNT: &str = r#"SELECT COUNT(*) AS value FROM "TaskQueue""#;

/// The length and the modification time of a file.
type Written = (u64, i64, i64);

/// A store in its own directory, which the test process does not have open.
struct Alone<'a> {
    db: &'a TestDb,
    directory: PathBuf,
}

impl<'a> Alone<'a> {
    fn new(db: &'a TestDb) -> Self {
        db.configure(ECHO);
        let directory = db.home().join("there");
        fs::create_dir(&directory).unwrap();
        Self { db, directory }
    }

    /// Creates it with a task that is not due.
    fn with_task(db: &'a TestDb) -> Self {
        let alone = Self::new(db);
        let _ = alone.run(&["queue", "echo", "--in", "1h"]).ok();
        alone
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("tasks.db{suffix}"))
    }

    fn log_bytes(&self) -> u64 {
        fs::metadata(self.file("-wal")).unwrap().len()
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.db.cli().run(&[&["--database", self.file("").to_str().unwrap()], args].concat())
    }

    /// Returns how often a command syncs a file or a directory.
    fn syncs(&self, args: &[&str]) -> usize {
        let (trace, store) = (self.db.home().join("trace"), self.file(""));
        let strace = ["-f", "-qq", "-o", trace.to_str().unwrap(), "-e", "trace=fsync,fdatasync", "-e", "signal=none"];
        let program = [env!("CARGO_BIN_EXE_taskqueue"), "--database", store.to_str().unwrap()];
        let _ = self.db.cli().program(Path::new("/usr/bin/strace")).run(&[&strace, &program[..], args].concat()).ok();
        fs::read_to_string(trace).unwrap().lines().count()
    }

    /// Opens a connection like any other program.
    fn another_program(&self) -> Raw {
        Raw::connect(EngineUnderTest::Sqlite, self.file("").to_str().unwrap())
    }

    fn tasks(&self) -> usize {
        self.run(&["export"]).ok().matches("\"task_class\":\"echo\"").count()
    }

    fn make_log_long(&self) {
        let batch = self.db.home().join("batch");
        fs::write(&batch, "{\"class\":\"echo\",\"in\":\"1h\"}\n".repeat(3000)).unwrap();
        let _ = self.run(&["queue", "--batch", batch.to_str().unwrap()]).ok();
        assert!(self.log_bytes() > LONG_LOG_BYTES);
    }

    /// Returns the directory and its files. The time of the index is left out: opening it writes to it, because it is shared
    /// memory.
    fn listing(&self) -> Vec<(PathBuf, u64, Option<Written>)> {
        let written = |found: &Metadata| (found.len(), found.mtime(), found.mtime_nsec());
        let entry = |path: PathBuf| {
            let found = fs::metadata(&path).unwrap();
            let is_index = path == self.file("-shm");
            (path, found.ino(), (!is_index).then(|| written(&found)))
        };
        let files = fs::read_dir(&self.directory).unwrap().map(|file| file.unwrap().path());
        let mut entries: Vec<_> = files.chain([self.directory.clone()]).map(entry).collect();
        entries.sort();
        entries
    }
}

#[test]
fn queue_on_a_store_that_is_there_syncs_once() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::new(db);
        let _ = alone.run(&["db", "migrate"]).ok();
        for _ in 0..3 {
            assert_eq!(alone.syncs(&["queue", "echo"]), 1);
        }
        assert_eq!(alone.tasks(), 3);
    });
}

#[test]
fn queue_that_makes_the_log_syncs_three_times_at_most() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::with_task(db);
        assert_eq!(alone.another_program().numbers(COUNT), [Some(1)]);
        assert!(!alone.file("-wal").exists(), "the log was not removed by the last process");
        let syncs = alone.syncs(&["queue", "echo"]);
        assert!((1..=3).contains(&syncs), "{syncs}");
        assert_eq!(alone.syncs(&["queue", "echo"]), 1);
    });
}

#[test]
fn with_nothing_to_do_no_command_syncs_creates_or_removes_a_file() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::with_task(db);
        let before = alone.listing();
        assert_eq!(before.len(), 5, "the store, its log, index and lock file, and the directory: {before:?}");
        for args in [&["tick"][..], &["process-run"], &["status"], &["create-runs"], &["status", "1"]] {
            assert_eq!(alone.syncs(args), 0, "{args:?}");
            assert_eq!(alone.listing(), before, "{args:?}");
        }
    });
}

#[test]
fn a_long_log_is_emptied_by_the_first_command_that_is_alone() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::with_task(db);
        alone.make_log_long();
        let _ = alone.run(&["status", "1"]).ok();
        assert_eq!(alone.log_bytes(), 0);
        assert_eq!(alone.tasks(), 3001);
        alone.make_log_long();
        let mut somebody = alone.another_program();
        assert_eq!(somebody.numbers(COUNT), [Some(6001)]);
        let _ = alone.run(&["status", "1"]).ok();
        assert!(alone.log_bytes() > LONG_LOG_BYTES, "the log was removed although another process has the store open");
    });
}

#[test]
fn what_a_killed_command_has_committed_is_in_the_log_for_the_next_one() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::with_task(db);
        let address = alone.file("").to_str().unwrap().to_owned();
        let mut waiting = db.cli().spawn(&["--database", &address, "queue", "echo", "--in", "1h", "--wait"]);
        wait_until("the task is queued", || alone.tasks() == 2);
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        assert!(alone.log_bytes() > 0);
        assert_eq!(alone.syncs(&["queue", "echo"]), 1);
        assert_eq!(alone.tasks(), 3);
    });
}

#[test]
fn a_copy_of_a_store_with_its_log_has_all_tasks() {
    on(EngineUnderTest::Sqlite, |db| {
        let alone = Alone::with_task(db);
        let copy = db.home().join("copy.db");
        fs::copy(alone.file(""), &copy).unwrap();
        fs::copy(alone.file("-wal"), db.home().join("copy.db-wal")).unwrap();
        let shown = db.cli().run(&["--database", copy.to_str().unwrap(), "status", "1", "--json"]).json();
        assert_eq!(shown["task"]["class"], "echo");
    });
}
