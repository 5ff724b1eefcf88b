//! The sample workers and the SQL of contrib do what runners do, beside them.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{Cli, EngineUnderTest, TestDb, wait_until};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(name)
}

/// The sample in this language, with the program in PATH.
fn worker(db: &TestDb, name: &str) -> Cli {
    let program_directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", program_directory.display(), std::env::var("PATH").unwrap());
    let cli = db.cli().program(&contrib("workers").join(name)).env("PATH", &path);
    cli.env("TASKQUEUE_CLAIMANT", name)
}

/// Files in a directory of their own, each with a task.
fn queue_files(db: &TestDb, directory: &str, count: usize) -> PathBuf {
    let directory = db.home().join(directory);
    std::fs::create_dir(&directory).unwrap();
    let mut lines = String::new();
    for number in 0..count {
        let file = directory.join(format!("file-{number}"));
        std::fs::write(&file, "hello\n").unwrap();
        lines.push_str(&format!("{}\n", serde_json::json!({"class": "checksum", "data": {"file": file}})));
    }
    let _ = db.cli().stdin(lines).run(&["queue", "--batch", "-"]).ok();
    directory
}

fn count(db: &TestDb, what: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM {what}"))
}

const REJECTED: &str = "\"TaskQueueRuns\" WHERE \"ErrorCode\" = 'rejected'";
const DONE: &str = "\"TaskQueue\" WHERE \"LastStatus\" = 'success'";

each_engine! {
    fn workers_in_two_languages_and_two_runners_share_one_queue(db) {
        let handler = contrib("handlers").join("checksum.sh");
        db.configure(&format!("[class.checksum]\nargv = [\"/usr/bin/env\", \"sh\", {handler:?}]\n"));
        // Neither worker has these files: each rejects every task once, and is never offered it again.
        let _ = queue_files(db, "elsewhere", 4);
        let (shell, python) = (db.home().join("shell"), db.home().join("python"));
        let work = |wait: &str| -> [Child; 2] {
            [("worker.sh", &shell), ("worker.py", &python)]
                .map(|(name, directory)| worker(db, name).spawn(&[directory.to_str().unwrap(), wait]))
        };
        for worker in work("500ms") {
            assert_eq!(finish(worker).code, Some(0));
        }
        let (_, _) = (queue_files(db, "shell", 6), queue_files(db, "python", 6));
        assert_eq!(count(db, REJECTED), 8);
        // A task that is not a file, which nobody can do.
        let broken = db.cli().run(&["queue", "checksum", "[7]"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let workers = work("1s");
        wait_until("all is done", || {
            let runners = [(); 2].map(|()| db.cli().spawn(&["tick", "--max-runs", "3"]));
            for runner in runners {
                assert_eq!(finish(runner).code, Some(0));
            }
            count(db, DONE) == 16
        });
        for worker in workers {
            let ended = finish(worker);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        }
        assert_eq!(count(db, "\"TaskQueueRuns\" WHERE \"Status\" = 'success'"), 16, "every task once");
        assert_eq!(count(db, "\"TaskQueueRuns\" WHERE \"Status\" NOT IN ('success', 'error')"), 0);
        let back = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" AS r JOIN \"TaskQueueRuns\" AS later
            ON later.\"TaskQueueId\" = r.\"TaskQueueId\" AND later.\"Claimant\" = r.\"Claimant\" AND later.\"Id\" > r.\"Id\"
            WHERE r.\"ErrorCode\" = 'rejected'";
        assert_eq!(db.number(back), 0, "a rejected task came back");
        assert!(count(db, REJECTED) <= 8 + 12);
        assert_eq!(db.cli().run(&["status", "--json", &broken]).json()["task"]["is_exhausted"], true);
    }

    fn a_worker_that_is_told_no_directory_says_how_it_is_called(db) {
        let stderr = worker(db, "worker.py").run(&[]).fails(2);
        assert_eq!(stderr, "usage: worker.py DIRECTORY [WAIT]\n");
    }

    fn a_worker_in_each_language_does_its_own_tasks_alone(db) {
        for (name, place) in [("worker.sh", "shell"), ("worker.py", "python")] {
            let directory = db.home().join(place);
            db.configure("[class.checksum]\nargv = [\"/bin/false\"]\n");
            queue_files(db, place, 3);
            let ended = worker(db, name).run(&[directory.to_str().unwrap(), "300ms"]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
            assert_eq!(count(db, &format!("\"TaskQueueRuns\" WHERE \"Status\" = 'success' AND \"Claimant\" = '{name}'")), 3);
        }
        let results = db.raw().texts("SELECT \"Results\" AS value FROM \"TaskQueueRuns\"");
        let expected = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert!(results.iter().flatten().all(|text| text.contains(expected)), "{results:?}");
    }

    fn a_worker_that_speaks_sql_does_the_same(db) {
        let script = match db.engine {
            EngineUnderTest::Sqlite => "sql/worker-sqlite.sql",
            EngineUnderTest::Postgres => "sql/worker-postgres.sql",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "sql/worker-mysql.sql",
        };
        let script = std::fs::read_to_string(contrib(script)).unwrap();
        let step = |name: &str, claimant: &str, run: i64| {
            let wanted = script.split("-- step: ").find(|step| step.starts_with(name)).unwrap();
            let (_, sql) = wanted.split_once('\n').unwrap();
            let task = if run == 0 { 0 } else { db.number(&format!("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueRuns\" WHERE \"Id\" = {run}")) };
            let filled = [("{claimant}", claimant), ("{token}", &format!("token-of-{claimant}")), ("{class}", "work")];
            let filled = filled.iter().fold(sql.to_owned(), |sql, (word, value)| sql.replace(word, value));
            db.execute(&filled.replace("{run}", &run.to_string()).replace("{task}", &task.to_string()));
        };
        let held = |claimant: &str| db.number(&format!(
            "SELECT COALESCE(MAX(\"Id\"), 0) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"Claimant\" = '{claimant}'"));
        let status = |task: &str| db.cli().run(&["status", "--json", task]).json()["task"].clone();
        for _ in 0..3 {
            let _ = db.cli().run(&["queue", "--any-class", "work"]).ok();
        }
        let _ = db.cli().run(&["queue", "--any-class", "other", "--priority", "9"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        for claimant in ["a", "b", "c", "d"] {
            step("claim", claimant, 0);
        }
        assert_eq!(["a", "b", "c", "d"].map(held).iter().filter(|run| **run == 0).count(), 1);
        let [a, b, c] = ["a", "b", "c"].map(held);
        assert!(a < b && b < c);
        step("what was claimed", "a", a);
        // The program and the worker understand each other.
        step("heartbeat", "a", a);
        let heard = db.cli().run(&["heartbeat", &a.to_string(), "--token", "token-of-a"]);
        assert_eq!(heard.ok(), "");
        assert!(db.cli().run(&["status", "1"]).ok().contains("claimant a: nearly half"));
        // Twice, as after a lost answer; and by somebody who does not have it.
        for _ in 0..2 {
            step("success", "a", a);
            step("error", "b", b);
            step("rejection", "c", c);
            for run in [a, b, c] {
                for name in ["success", "error", "rejection"] {
                    step(name, "d", run);
                }
            }
        }
        let (done, failed, rejected) = (status("1"), status("2"), status("3"));
        assert_eq!((&done["status"], &done["attempts"], &done["current_run_id"]), (&"success".into(), &1.into(), &serde_json::Value::Null));
        assert_eq!((&failed["status"], &failed["failed_retries"], &failed["attempts"]), (&"failed".into(), &1.into(), &1.into()));
        assert_eq!((&rejected["status"], &rejected["failed_retries"]), (&"failed".into(), &1.into()));
        assert_eq!(count(db, "\"TaskQueueRejections\" WHERE \"TaskId\" = 3 AND \"Claimant\" = 'c'"), 1);
        assert_eq!(count(db, "\"TaskQueueRejections\""), 1);
        let _ = db.cli().run(&["create-runs"]).ok();
        step("claim", "c", 0);
        assert_eq!(held("c"), 0);
        assert_eq!(db.cli().run(&["claim", "--claimant", "c", "--class", "work"]).code, Some(3));
        step("claim", "e", 0);
        assert!(held("e") > c);
    }
}
