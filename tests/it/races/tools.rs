//! Shared by the races: starts many programs or threads at the same time, and reads intervals.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Barrier;

use rustix::process::Signal;
use taskqueue_store::Store;

use super::outage::signal;
use crate::support::cli::finish;
use crate::support::database::sessions;
use crate::support::db::Raw;
use crate::support::{Ended, EngineUnderTest, TestDb, wait_until};

const TASKQUEUE: &str = env!("CARGO_BIN_EXE_taskqueue");

/// Creates a named pipe: a reader is blocked until a process opens it to write.
pub fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Opens a FIFO at both ends, which never blocks: its readers continue, and wait for bytes until it is dropped.
pub fn open_fifo(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Freezes a runner that has no transaction open: its locks would block others.
pub fn freeze(db: &TestDb, runner: &Child) {
    wait_until("it is frozen outside of a transaction", || {
        signal(runner, Signal::STOP);
        wait_until("it is frozen", || is_frozen(runner));
        let is_idle = !is_in_transaction(db);
        if !is_idle {
            signal(runner, Signal::CONT);
        }
        is_idle
    });
}

fn is_frozen(process: &Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    threads.map_while(Result::ok).all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Returns true if any session has a transaction open in this database. On SQLite, only one that writes counts.
fn is_in_transaction(db: &TestDb) -> bool {
    let open = match db.engine {
        EngineUnderTest::Sqlite => {
            let mut raw = db.raw();
            raw.execute("PRAGMA busy_timeout = 0");
            return raw.try_execute("BEGIN IMMEDIATE; ROLLBACK").is_err();
        }
        EngineUnderTest::Postgres => "pg_stat_activity WHERE datname = current_database() AND state <> 'idle' \
             AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            .to_owned(),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!(
            "information_schema.innodb_trx JOIN {} ON id = trx_mysql_thread_id WHERE db = DATABASE()",
            sessions(db.engine)
        ),
    };
    db.number(&format!("SELECT COUNT(*) AS value FROM {open}")) > 0
}

/// Starts all commands behind a gate, opens it, and waits for all. The scheduler determines their order.
pub fn run_at_once(db: &TestDb, commands: &[&[&str]]) -> Vec<Ended> {
    let gate = fresh_path(db, "gate");
    make_fifo(&gate);
    let cli = db.cli().program(Path::new("/bin/sh"));
    let script = format!(": <'{}'; exec \"$@\"", gate.display());
    let children: Vec<Child> =
        commands.iter().map(|command| cli.spawn(&[&["-c", &script, "sh", TASKQUEUE], *command].concat())).collect();
    // Stays open until all have ended, so that late commands are not blocked.
    let _open = open_fifo(&gate);
    children.into_iter().map(finish).collect()
}

/// Runs both closures at the same time, each with its own store or context.
pub fn both_at_once<T: Send, A: Send, B: Send>(
    [one, other]: &mut [T; 2],
    first: impl FnOnce(&mut T) -> A + Send,
    second: impl FnOnce(&mut T) -> B + Send,
) -> (A, B) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            barrier.wait();
            second(other)
        });
        barrier.wait();
        let first = first(one);
        (first, second.join().unwrap())
    })
}

/// Does the same in this many threads, each with its own connection and number, all released at the same time.
pub fn many_at_once<T: Send>(db: &TestDb, count: usize, work: impl Fn(&mut Store, usize) -> T + Sync) -> Vec<T> {
    let (barrier, work) = (&Barrier::new(count), &work);
    // All connections before the first thread: otherwise threads would wait at the barrier for one that cannot connect.
    let mut stores = db.lend(count);
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = stores
            .iter_mut()
            .enumerate()
            .map(|(number, store)| {
                scope.spawn(move || {
                    barrier.wait();
                    work(store, number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    db.take_back(stores);
    answers
}

/// Returns an unused name in the home of the test.
fn fresh_path(db: &TestDb, name: &str) -> PathBuf {
    let free = (0..).map(|number| db.home().join(format!("{name}.{number}"))).find(|path| !path.exists());
    free.unwrap()
}

/// Returns the largest number of simultaneous intervals. If one ends and another starts at the same time, the end came first,
/// because it enabled the start.
pub fn most_at_once(intervals: &[(String, String)]) -> usize {
    // Intervals that begin and end at the same time, on a clock with milliseconds on SQLite, overlap nothing visible.
    let lasting = intervals.iter().filter(|(start, end)| start != end);
    let mut edges: Vec<(&str, bool)> =
        lasting.flat_map(|(start, end)| [(start.as_str(), true), (end.as_str(), false)]).collect();
    edges.sort_unstable();
    let (mut open, mut most) = (0_usize, 0);
    for (_, is_start) in edges {
        if is_start {
            open += 1;
            most = most.max(open);
        } else {
            open = open.saturating_sub(1);
        }
    }
    most
}

/// Returns StartedOn and FinishedOn of all rows of a table, as strings that sort like the times.
pub fn intervals(db: &TestDb, table: &str) -> Vec<(String, String)> {
    let mut raw = db.raw();
    let started = raw.texts(&format!("SELECT {} AS value FROM \"{table}\" ORDER BY \"Id\"", sortable(db, "StartedOn")));
    let finished =
        raw.texts(&format!("SELECT {} AS value FROM \"{table}\" ORDER BY \"Id\"", sortable(db, "FinishedOn")));
    assert_eq!(started.len(), finished.len());
    started.into_iter().zip(finished).map(|(start, end)| (start.unwrap(), end.unwrap())).collect()
}

/// Returns a time column as a string of fixed width.
fn sortable(db: &TestDb, column: &str) -> String {
    use EngineUnderTest::{Mariadb, Mysql, Postgres, Sqlite};
    match db.engine {
        Sqlite => format!("\"{column}\""),
        Postgres => format!("to_char(\"{column}\" AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"),
        Mariadb | Mysql => format!("DATE_FORMAT(\"{column}\", '%Y-%m-%d %H:%i:%s.%f')"),
    }
}

/// Begins a transaction that may write at once.
pub fn begin_write(raw: &mut Raw) {
    let is_sqlite = matches!(raw, Raw::Sqlite(_));
    raw.execute(if is_sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" });
}

/// Waits until another connection to this database waits for a lock, or, if that cannot be queried, has executed its statement
/// during three polls. SQLite's waiters are invisible, because they poll. The other connection may also come too late to wait;
/// the assertions of the test still hold.
pub fn wait_blocked(db: &TestDb) {
    let sql = match db.engine {
        EngineUnderTest::Sqlite => return,
        EngineUnderTest::Postgres => "SELECT COUNT(*) AS value FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
            .to_owned(),
        // Not innodb_trx, which returns cached data if any client has read it in the last 100 ms.
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            format!(
                "SELECT COUNT(*) AS value FROM {} WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep'",
                sessions(db.engine)
            )
        }
    };
    // A separate connection, because one that has locked tables may read no others.
    let mut raw = db.raw();
    let mut looks = 0;
    wait_until("a connection waits for a lock", || {
        looks = if raw.numbers(&sql)[0] > Some(0) { looks + 1 } else { 0 };
        looks == 3
    });
}

#[test]
fn intervals_that_only_touch_do_not_overlap() {
    let interval = |start: &str, end: &str| (start.to_owned(), end.to_owned());
    assert_eq!(most_at_once(&[interval("1", "2"), interval("2", "3")]), 1);
    assert_eq!(most_at_once(&[interval("1", "3"), interval("2", "3"), interval("2", "4")]), 3);
    assert_eq!(most_at_once(&[interval("1", "1"), interval("1", "1"), interval("1", "2")]), 1);
}
