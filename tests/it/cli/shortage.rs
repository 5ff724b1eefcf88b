//! A runner without free descriptors or processes: it is not the task's fault, and what the runner does then.

use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, getrlimit, prlimit};

use super::{ECHO, detail, printed, shell_class, signal, task, write};
use crate::each_engine;
use crate::support::cli::{Ended, finish};
use crate::support::{EngineUnderTest, TestDb, wait_until};
use taskqueue_host::machine::host;

/// Runs `work` under limits that a shell sets. The script is not a file: another test that starts a program at that moment
/// would have it open for writing, and it could not be executed.
fn work_under_limits(db: &TestDb, limits: &str) -> Ended {
    let line = format!("{limits}; exec \"$0\" work --slots 50 --idle-exit 0s");
    db.cli().program("/bin/sh".as_ref()).run(&["-c", &line, env!("CARGO_BIN_EXE_taskqueue")])
}

/// Allows the process no more descriptors than it has open now, or had at an earlier call. Returns its previous limits.
fn take_descriptors(child: &Child) -> Rlimit {
    let free = (0..).find(|number| !PathBuf::from(format!("/proc/{}/fd/{number}", child.id())).exists());
    let before = set_limit(child, Rlimit { current: free, ..getrlimit(Resource::Nofile) });
    if before.current.zip(free).is_some_and(|(had, free)| had < free) {
        set_limit(child, before);
    }
    before
}

fn set_limit(child: &Child, limit: Rlimit) -> Rlimit {
    prlimit(Pid::from_raw(child.id().try_into().unwrap()), Resource::Nofile, limit).unwrap()
}

/// Runs a command as a user of its own, who may have this number of processes and threads.
fn run_with_processes(db: &TestDb, limit: u32, args: &[&str]) -> Ended {
    let user = 61_000 + db.engine as u32;
    let home = db.home().display().to_string();
    assert!(Command::new("chown").args(["-R", &user.to_string(), &home]).status().unwrap().success());
    let ids = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()];
    let limit = format!("--nproc={limit}");
    let limited = ["prlimit", &limit, env!("CARGO_BIN_EXE_taskqueue")];
    let line = [&ids.each_ref().map(String::as_str)[..], &limited, args].concat();
    db.cli().program("/usr/bin/setpriv".as_ref()).run(&line)
}

fn count(db: &TestDb, table: &str, condition: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"{table}\" WHERE {condition}"))
}

each_engine! {
    fn a_worker_without_descriptors_releases_its_runs_and_holds_no_class(db) {
        db.configure(ECHO);
        let worker = db.cli().spawn(&["work", "--slots", "2"]);
        wait_until("it is registered", || count(db, "TaskQueueRunners", "\"FinishedOn\" IS NULL") == 1);
        let first = db.cli().run(&["queue", "echo"]).ok();
        wait_until("the first has ended", || task(db, &first)["status"] == "success");
        let before = take_descriptors(&worker);
        wait_until("a run was released", || {
            // While it executes nothing, its open descriptors stay open.
            if count(db, "TaskQueue", "\"LastStatus\" <> 'success'") == 0 {
                take_descriptors(&worker);
                db.cli().run(&["queue", "echo"]).ok();
            }
            count(db, "TaskQueueRuns", "\"ErrorCode\" = 'no-room'") > 0
        });
        assert_eq!(count(db, "TaskQueueClassHolds", "1 = 1"), 0);
        // A healthy runner gets the run while the other one pauses.
        wait_until("another runner has done all", || {
            db.cli().run(&["tick"]).ok();
            count(db, "TaskQueue", "\"LastStatus\" <> 'success'") == 0
        });
        assert_eq!(count(db, "TaskQueueRuns", "\"Status\" NOT IN ('success', 'released')"), 0);
        set_limit(&worker, before);
        let third = db.cli().run(&["queue", "echo"]).ok();
        wait_until("it works again", || task(db, &third)["status"] == "success");
        signal(&worker, Signal::TERM);
        let ended = finish(worker);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("Too many open files (os error 24): the run was released, which counts no attempt"), "{ended:?}");
    }

    fn a_run_is_released_whatever_step_of_its_start_lacks_a_descriptor(db) {
        db.configure_exactly(&format!("user = \"{}\"\n{ECHO}", host::user_name()));
        db.cli().run(&["queue", "echo"]).ok();
        let enough = (8..100).find(|limit| {
            let line = format!("ulimit -n {limit}; exec \"$0\" tick");
            // With too few, a tick cannot even begin.
            let ended = db.cli().program("/bin/sh".as_ref()).run(&["-c", &line, env!("CARGO_BIN_EXE_taskqueue")]);
            assert!(!ended.stderr.contains("panicked"), "{limit}: {ended:?}");
            count(db, "TaskQueue", "\"LastStatus\" = 'success'") == 1
        });
        assert!(enough.is_some());
        assert_eq!(count(db, "TaskQueueRuns", "\"Status\" NOT IN ('success', 'released')"), 0);
        assert_eq!(count(db, "TaskQueueClassHolds", "1 = 1"), 0);
    }

    fn a_run_is_released_if_its_runner_may_start_no_more_processes(db) {
        if !geteuid().is_root() {
            return;
        }
        db.configure_exactly(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let enough = (1..100).find(|limit| {
            let ended = run_with_processes(db, *limit, &["tick"]);
            assert!(!ended.stderr.contains("panicked"), "{limit}: {ended:?}");
            count(db, "TaskQueue", "\"LastStatus\" = 'success'") == 1
        });
        assert!(enough.is_some());
        assert!(count(db, "TaskQueueRuns", "\"ErrorCode\" = 'no-room'") > 0, "it was never short of processes");
        assert_eq!(count(db, "TaskQueueRuns", "\"Status\" NOT IN ('success', 'released')"), 0);
        assert_eq!(count(db, "TaskQueueClassHolds", "1 = 1"), 0);
    }

    fn a_batch_is_queued_without_a_thread_that_only_prints(db) {
        if !geteuid().is_root() {
            return;
        }
        db.configure_exactly(ECHO);
        let file = write(db, "batch", "{\"class\":\"echo\"}\n{\"class\":\"echo\"}\n").display().to_string();
        // The clients of servers need a thread to connect.
        let enough = (1..100).find(|limit| {
            let ended = run_with_processes(db, *limit, &["queue", "--batch", &file]);
            assert!(!ended.stderr.contains("panicked"), "{limit}: {ended:?}");
            ended.code == Some(0)
        });
        assert!(enough == Some(1) || db.engine != EngineUnderTest::Sqlite && enough.is_some(), "{enough:?}");
        assert_eq!(count(db, "TaskQueue", "1 = 1"), 2);
    }

    fn a_tick_without_descriptors_releases_its_run_and_ends(db) {
        db.configure(&shell_class(db, "work", "sleep 0.1"));
        db.cli().stdin("{\"class\":\"work\"}\n".repeat(100)).run(&["queue", "--batch", "-"]).ok();
        let tick = db.cli().spawn(&["tick"]);
        wait_until("it executes runs", || count(db, "TaskQueueRuns", "\"Status\" = 'success'") > 0);
        wait_until("a run was released", || {
            take_descriptors(&tick);
            count(db, "TaskQueueRuns", "\"ErrorCode\" = 'no-room'") == 1
        });
        let ended = finish(tick);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("this runner starts no more runs for now"), "{ended:?}");
        assert_eq!(count(db, "TaskQueueRuns", "\"ErrorCode\" = 'no-room'"), 1);
        assert_eq!(count(db, "TaskQueueClassHolds", "1 = 1"), 0);
        assert_eq!(count(db, "TaskQueue", "\"FailedRetries\" > 0 OR \"Attempts\" > 1"), 0);
    }

    fn work_has_no_more_slots_than_its_hard_limit_of_files_allows(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let ended = work_under_limits(db, "ulimit -n 100");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let expected = "warning: working with 5 of 50 slots: the limit of open files is 100 (`ulimit -n`, LimitNOFILE=), and 50 slots need 548\n";
        assert_eq!(ended.stderr, expected);
        assert_eq!(task(db, "1")["status"], "success");
    }

    fn work_raises_its_soft_limit_of_files_and_handlers_keep_the_old_one(db) {
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "100"]).ok();
        let script = "ulimit -Sn; ulimit -Hn; sed -n 's/^Max open files *//p' /proc/$PPID/limits";
        db.configure(&shell_class(db, "work", script));
        let id = db.cli().run(&["queue", "work"]).ok();
        let ended = work_under_limits(db, "ulimit -Sn 90; ulimit -Hn 900");
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let after = detail(db, &id);
        let words: Vec<&str> = printed(&after, "stdout").split_whitespace().collect();
        assert_eq!(words, ["90", "900", "548", "900", "files"]);
    }
}
