//! The sample workers and the SQL of contrib work like runners, and together with them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::process::Signal;

use crate::cli::signal;
use crate::each_engine;
use crate::races::stage::end_lease;
use crate::races::tools::make_fifo;
use crate::support::cli::finish;
use crate::support::{Cli, EngineUnderTest, TestDb, contrib, wait_until};

/// Returns the sample in this language, with the program in PATH.
fn worker(db: &TestDb, name: &str) -> Cli {
    let program_directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", program_directory.display(), std::env::var("PATH").unwrap());
    let cli = db.cli().program(&contrib("workers").join(name)).env("PATH", &path);
    cli.env("TASKQUEUE_CLAIMANT", name)
}

/// Creates files in a directory, each with a task.
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

/// Creates a pipe without a writer, and the task to read it.
fn queue_endless(db: &TestDb, place: &str) -> (PathBuf, String) {
    let directory = db.home().join(place);
    std::fs::create_dir(&directory).unwrap();
    let pipe = directory.join("pipe");
    make_fifo(&pipe);
    (pipe.clone(), queue_sum(db, &pipe))
}

fn queue_file(db: &TestDb, place: &str) -> String {
    let file = db.home().join(place).join("file");
    std::fs::write(&file, "hello\n").unwrap();
    queue_sum(db, &file)
}

fn queue_sum(db: &TestDb, file: &Path) -> String {
    let data = serde_json::json!({ "file": file }).to_string();
    let options = ["queue", "--any-class", "checksum", &data, "--timeout", "3s", "--max-retries", "1"];
    db.cli().run(&options).ok().trim().to_owned()
}

/// Queues a task about a file that no worker has.
fn queue_elsewhere(db: &TestDb) -> String {
    queue_sum(db, Path::new("/elsewhere/file"))
}

/// Starts a worker, and waits until it has begun to read.
fn worker_at_work(db: &TestDb, name: &str, place: &str) -> Child {
    let worker = worker(db, name).spawn(&[db.home().join(place).to_str().unwrap(), "1s"]);
    let at_work = format!(
        "\"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"PercentsCompleted\" = 50 AND \"Claimant\" = '{name}'"
    );
    wait_until("it reads", || count(db, &at_work) == 1);
    worker
}

/// Returns true if any process has the pipe open to read, or waits for it.
fn is_read(pipe: &Path) -> bool {
    let writer = File::options().write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(pipe);
    writer.is_ok()
}

pub(crate) fn count(db: &TestDb, what: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM {what}"))
}

/// The statements of contrib, with their parameters filled in.
pub(crate) struct SqlWorker<'a> {
    db: &'a TestDb,
    script: String,
}

impl<'a> SqlWorker<'a> {
    pub(crate) fn new(db: &'a TestDb) -> Self {
        let script = match db.engine {
            EngineUnderTest::Sqlite => "sql/worker-sqlite.sql",
            EngineUnderTest::Postgres => "sql/worker-postgres.sql",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "sql/worker-mysql.sql",
        };
        Self { db, script: std::fs::read_to_string(contrib(script)).unwrap() }
    }

    pub(crate) fn sql(&self, name: &str, claimant: &str, run: i64) -> String {
        let wanted = self.script.split("-- step: ").find(|step| step.starts_with(name)).unwrap();
        let (_, sql) = wanted.split_once('\n').unwrap();
        let task_of = format!("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueRuns\" WHERE \"Id\" = {run}");
        let task = if run == 0 { 0 } else { self.db.number(&task_of) };
        let (secret, token) = (format!("secret-of-{claimant}"), format!("{run}-secret-of-{claimant}"));
        let filled = [("{claimant}", claimant), ("{secret}", &secret), ("{token}", &token), ("{class}", "work")];
        let filled = filled.iter().fold(sql.to_owned(), |sql, (word, value)| sql.replace(word, value));
        filled.replace("{run}", &run.to_string()).replace("{task}", &task.to_string())
    }

    pub(crate) fn step(&self, name: &str, claimant: &str, run: i64) {
        self.db.raw().execute(&self.sql(name, claimant, run));
    }

    /// Returns the answer to the heartbeat: `None` if the run is lost, otherwise the reason to end it, if any.
    fn is_to_end(&self, claimant: &str, run: i64) -> Option<Option<String>> {
        let step = self.sql("what the heartbeat answers", claimant, run);
        let select = &step[step.find("SELECT").unwrap()..];
        let answer = format!(
            "SELECT CASE WHEN \"CancelRequestedOn\" IS NULL THEN NULL ELSE \"CancelReason\" END AS value FROM ({}) AS answer",
            select.trim().trim_end_matches(';'),
        );
        self.db.raw().texts(&answer).into_iter().next()
    }

    /// Returns the run in progress of a claimant; 0 if it has none.
    pub(crate) fn held(&self, claimant: &str) -> i64 {
        self.db.number(&format!(
            "SELECT COALESCE(MAX(\"Id\"), 0) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"Claimant\" = '{claimant}'"
        ))
    }

    pub(crate) fn claim(&self, claimant: &str) -> i64 {
        self.step("claim", claimant, 0);
        let run = self.held(claimant);
        assert_ne!(run, 0, "nothing was claimed");
        run
    }

    /// Queues a task with these options, and claims its run.
    pub(crate) fn queue_and_claim(&self, options: &[&str], claimant: &str) -> (String, i64) {
        let task = self.db.cli().run(&[&["queue", "--any-class", "work"], options].concat()).ok();
        self.db.cli().run(&["create-runs"]).ok();
        (task.trim().to_owned(), self.claim(claimant))
    }

    pub(crate) fn task(&self, id: &str) -> serde_json::Value {
        self.db.cli().run(&["status", "--json", id]).json()["task"].clone()
    }
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
            let ended = finish(worker);
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        let (_, _) = (queue_files(db, "shell", 6), queue_files(db, "python", 6));
        assert_eq!(count(db, REJECTED), 8);
        // A task without a valid file, which no worker can process.
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

    fn a_worker_in_each_language_reads_no_file_outside_its_directory(db) {
        let home = db.home().canonicalize().unwrap();
        std::fs::write(home.join("secret"), "secret\n").unwrap();
        for (name, place) in [("worker.sh", "shell"), ("worker.py", "python")] {
            std::fs::create_dir(home.join(place)).unwrap();
            std::os::unix::fs::symlink("../secret", home.join(place).join("link")).unwrap();
            let outside = ["../secret", "../gone/secret", "..", "link"].map(|file| queue_sum(db, &home.join(place).join(file)));
            // However the directory is written.
            for (number, directory) in [place.to_owned(), format!("{place}/"), format!("{}/", home.join(place).display())].iter().enumerate() {
                let file = home.join(place).join(format!("file-{number}"));
                std::fs::write(&file, "hello\n").unwrap();
                let inside = queue_sum(db, &file);
                let ended = worker(db, name).run(&[directory, "0s"]);
                assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
                let status = db.cli().run(&["status", "--json", &inside]).json()["task"]["status"].clone();
                assert_eq!(status, "success", "{name} {directory}");
            }
            for task in outside {
                let detail = db.cli().run(&["status", "--json", &task]).json();
                assert_eq!(detail["rejected_by"], serde_json::json!([name]), "{detail}");
                db.cli().run(&["cancel", &task]).ok();
            }
        }
    }

    fn a_worker_in_each_language_stops_its_work_when_somebody_cancels_it(db) {
        for (name, place) in [("worker.sh", "shell"), ("worker.py", "python")] {
            let (pipe, task) = queue_endless(db, place);
            let worker = worker_at_work(db, name, place);
            db.cli().run(&["cancel", &task, "--reason", "order withdrawn"]).ok();
            let ended = finish(worker);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name} went on: {ended:?}");
            assert!(!is_read(&pipe), "{name}: the work goes on");
            let detail = db.cli().run(&["status", "--json", &task]).json();
            let (task, run) = (&detail["task"], &detail["runs"][0]);
            assert_eq!((&task["status"], &task["failed_retries"], &run["status"]), (&"cancelled".into(), &0.into(), &"cancelled".into()), "{name}");
        }
    }

    fn a_worker_in_each_language_stops_its_work_when_its_run_is_taken_away(db) {
        for (name, place) in [("worker.sh", "shell"), ("worker.py", "python")] {
            let (pipe, task) = queue_endless(db, place);
            let worker = worker_at_work(db, name, place);
            // Like `create-runs` on another host, which cannot end a process here.
            db.execute(
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'timeout', \"FinishedOn\" = '2020-01-01 00:00:00.000000', \"LeaseExpiresOn\" = NULL,
                     \"ErrorCode\" = 'lease-expired' WHERE \"Status\" = 'processing';
                 UPDATE \"TaskQueue\" SET \"LastStatus\" = 'timeout', \"FailedRetries\" = 1, \"Attempts\" = 1, \"CurrentRunId\" = NULL
                     WHERE \"LastStatus\" = 'processing'",
            );
            // And it processes the next task.
            let next = queue_file(db, place);
            let ended = finish(worker);
            assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
            assert!(!is_read(&pipe), "{name}: the work goes on");
            let status = |task: &str| db.cli().run(&["status", "--json", task]).json()["task"]["status"].clone();
            assert_eq!((status(&task), status(&next)), ("timeout".into(), "success".into()), "{name}");
            assert_eq!(count(db, "\"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'"), 0, "{name} had nothing to say");
        }
    }

    fn a_worker_in_each_language_releases_its_run_at_no_cost_at_term(db) {
        for (name, place) in [("worker.sh", "shell"), ("worker.py", "python")] {
            let (pipe, task) = queue_endless(db, place);
            for end in ["a signal", "an operator"] {
                let worker = worker_at_work(db, name, place);
                if end == "a signal" {
                    signal(&worker, Signal::TERM);
                } else {
                    let run = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRuns\"").to_string();
                    assert_eq!(db.cli().run(&["worker", "release", &run, "--force"]).code, Some(0));
                }
                let ended = finish(worker);
                assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name}, {end}: {ended:?}");
                assert!(!is_read(&pipe), "{name}: the work goes on");
                let detail = db.cli().run(&["status", "--json", &task]).json();
                let (task, run) = (&detail["task"], &detail["runs"][0]);
                assert_eq!((&task["status"], &task["attempts"], &run["status"]), (&"scheduled".into(), &0.into(), &"released".into()), "{name}, {end}");
                let code = run["error_code"].as_str().unwrap();
                assert!(code == "claimant-released" || (code == "taken-back" && end == "an operator"), "{name}, {end}: {code}");
            }
            assert_eq!(count(db, &format!("\"TaskQueueEvents\" WHERE \"Kind\" = 'taken-back' AND \"TaskQueueId\" = {task}")), 1, "{name}");
            db.cli().run(&["cancel", &task]).ok();
        }
    }

    fn a_worker_that_waits_for_a_task_ends_at_term(db) {
        std::fs::create_dir(db.home().join("place")).unwrap();
        for name in ["worker.sh", "worker.py"] {
            // It waits because the task has not finished, and the first claim of each has rejected the task.
            let task = queue_elsewhere(db);
            let worker = worker(db, name).spawn(&[db.home().join("place").to_str().unwrap(), "600s"]);
            let rejected = format!("\"TaskQueueRejections\" WHERE \"TaskId\" = {task}");
            wait_until("it has rejected the task", || count(db, &rejected) == 1);
            signal(&worker, Signal::TERM);
            let ended = finish(worker);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name}: {ended:?}");
            db.cli().run(&["cancel", &task]).ok();
        }
    }

    fn a_worker_that_speaks_sql_releases_a_run_at_no_cost(db) {
        let worker = SqlWorker::new(db);
        let found = |task: &str| {
            let task = worker.task(task);
            (task["status"].as_str().unwrap().to_owned(), task["failed_retries"].as_i64().unwrap(), task["attempts"].as_i64().unwrap())
        };
        let (task, run) = worker.queue_and_claim(&[], "a");
        for claimant in ["b", "a", "a"] {
            worker.step("release", claimant, run);
        }
        assert_eq!(found(&task), ("scheduled".to_owned(), 0, 0));
        let run = worker.claim("a");
        assert_eq!(worker.task(&task)["current_run_id"], run, "it is due at once, for the same worker");
        worker.step("error", "a", run);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = {task}"));
        let run = worker.claim("a");
        worker.step("release", "a", run);
        assert_eq!(found(&task), ("failed".to_owned(), 1, 1));
        let run = worker.claim("a");
        db.cli().run(&["cancel", &task]).ok();
        worker.step("release", "a", run);
        assert_eq!(found(&task).0, "cancelled");
        assert_eq!(count(db, "\"TaskQueueRejections\""), 0);
    }

    fn a_worker_that_speaks_sql_does_the_same(db) {
        let worker = SqlWorker::new(db);
        let step = |name: &str, claimant: &str, run: i64| worker.step(name, claimant, run);
        let held = |claimant: &str| worker.held(claimant);
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
        assert_eq!(worker.is_to_end("a", a), Some(None));
        assert_eq!(worker.is_to_end("b", a), None, "another claimant has it");
        // The program and the worker work on the same run.
        step("heartbeat", "a", a);
        let heard = db.cli().run(&["worker", "heartbeat", &a.to_string(), "--token", &format!("{a}-secret-of-a")]);
        assert_eq!(heard.ok(), "");
        assert!(db.cli().run(&["status", "1"]).ok().contains("claimant a: nearly half"));
        // Twice, as after a lost answer, and by a claimant that does not have it.
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
        assert_eq!(db.cli().run(&["worker", "claim", "--claimant", "c", "--class", "work"]).code, Some(3));
        step("claim", "e", 0);
        assert!(held("e") > c);
    }

    fn a_worker_in_sql_sees_a_cancel_and_ends_its_run_as_cancelled_or_success(db) {
        let worker = SqlWorker::new(db);
        for (step, status) in [("error", "cancelled"), ("rejection", "cancelled"), ("success", "success")] {
            let (task, run) = worker.queue_and_claim(&["--max-retries", "1"], "a");
            worker.step("heartbeat", "a", run);
            assert_eq!(worker.is_to_end("a", run), Some(None));
            db.cli().run(&["cancel", &task, "--reason", "order withdrawn"]).ok();
            worker.step("heartbeat", "a", run);
            assert_eq!(worker.is_to_end("a", run), Some(Some("order withdrawn".to_owned())));
            for _ in 0..2 {
                worker.step(step, "a", run);
            }
            assert_eq!(worker.is_to_end("a", run), None, "it has ended");
            let found = worker.task(&task);
            assert_eq!((&found["status"], &found["failed_retries"], &found["attempts"]), (&status.into(), &0.into(), &1.into()), "{step}");
            assert_eq!(found["current_run_id"], serde_json::Value::Null);
            assert_eq!(db.text(&format!("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" WHERE \"Id\" = {run}")).unwrap(), status);
        }
        assert_eq!(count(db, "\"TaskQueueRejections\""), 1);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(count(db, "\"TaskQueueRuns\""), 3, "one of them was retried");
        assert_eq!(count(db, "\"TaskQueueNotices\""), 0, "a cancel left a notice");
    }

    fn a_time_that_is_set_during_an_attempt_holds_after_an_end_by_sql(db) {
        let worker = SqlWorker::new(db);
        for is_lost in [false, true] {
            let (task, run) = worker.queue_and_claim(&["--backoff", "fixed:60s", "--timeout", "1h"], "a");
            db.cli().run(&["edit", &task, "--at", "2090-01-01T00:00:00Z"]).ok();
            if is_lost {
                end_lease(db);
                worker.step("claim", "b", 0);
            } else {
                worker.step("error", "a", run);
            }
            let after = worker.task(&task);
            assert_eq!((&after["failed_retries"], &after["next_attempt_on"]), (&1.into(), &"2090-01-01T00:00:00Z".into()), "{after}");
        }
    }

    fn who_is_to_be_told_hears_of_a_task_that_a_worker_exhausts_by_sql(db) {
        let log = db.home().join("notices.log");
        db.configure(&format!("[notify]\nlog = {log:?}\nevery_secs = 0\n"));
        let worker = SqlWorker::new(db);
        for (step, code) in [("error", "smtp"), ("rejection", "rejected")] {
            let (task, run) = worker.queue_and_claim(&["--max-retries", "2"], "a");
            worker.step(step, "a", run);
            assert_eq!(count(db, "\"TaskQueueNotices\""), 0, "a retried task left a notice");
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = {task}"));
            db.cli().run(&["create-runs"]).ok();
            let run = worker.claim("b");
            for _ in 0..2 {
                worker.step(step, "somebody-else", run);
                worker.step(step, "b", run);
            }
            assert_eq!(worker.task(&task)["is_exhausted"], true);
            let _ = std::fs::remove_file(&log);
            db.cli().run(&["create-runs"]).ok();
            let told = std::fs::read_to_string(&log).unwrap();
            assert_eq!(told.lines().count(), 1, "{told}");
            let notice: serde_json::Value = serde_json::from_str(&told).unwrap();
            assert_eq!((notice["kind"].as_str(), notice["error_code"].as_str(), notice["class"].as_str()), (Some("exhausted"), Some(code), Some("work")), "{told}");
            assert_eq!((notice["task_id"].to_string(), notice["run_id"].as_i64()), (task, Some(run)));
        }
    }

    fn what_waits_for_a_task_goes_on_after_a_success_by_sql(db) {
        let worker = SqlWorker::new(db);
        let queue = |options: &[&str]| db.cli().run(&[&["queue", "--any-class", "later"], options].concat()).ok().trim().to_owned();
        let (first, run) = worker.queue_and_claim(&[], "a");
        let (second, other) = worker.queue_and_claim(&[], "b");
        let (one, both) = (queue(&["--after", &first]), queue(&["--after", &format!("{first},{second}")]));
        let waiting = |task: &str| worker.task(task)["waiting_for"].as_i64().unwrap();
        worker.step("error", "b", other);
        worker.step("success", "somebody-else", run);
        assert_eq!((waiting(&one), waiting(&both)), (1, 2), "nothing has succeeded");
        for _ in 0..2 {
            worker.step("success", "a", run);
        }
        assert_eq!((waiting(&one), waiting(&both)), (0, 1));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = {second}"));
        db.cli().run(&["create-runs"]).ok();
        let open = |task: &str| count(db, &format!("\"TaskQueueRuns\" WHERE \"OpenTaskId\" = {task}"));
        assert_eq!((open(&one), open(&both)), (1, 0));
        worker.step("success", "b", worker.claim("b"));
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((waiting(&both), open(&both)), (0, 1));
        assert_eq!(count(db, "\"TaskQueueDependencies\" WHERE NOT \"IsSatisfied\""), 0);
        // After the retry, a late result of its first run must not start tasks that wait for the new one.
        db.cli().run(&["retry", &first]).ok();
        let again = queue(&["--after", &first]);
        worker.step("success", "a", run);
        assert_eq!(waiting(&again), 1);
    }

    fn create_runs_does_what_else_an_end_by_sql_brings(db) {
        let worker = SqlWorker::new(db);
        for step in ["success", "error", "rejection"] {
            let options = ["--every", "0 3 * * *", "--max-retries", "1", "--limit-key", step];
            let head = db.cli().run(&[&["queue", "--any-class", "work"], &options[..]].concat()).ok().trim().to_owned();
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2020-01-01 03:00:00.000000', \"ScheduledOn\" = '2020-01-01 03:00:00.000000', \"CatchUp\" = 'all' WHERE \"Id\" = {head}"
            ));
            db.cli().run(&["create-runs"]).ok();
            let run = worker.claim("a");
            let next = db.cli().run(&["queue", "--any-class", "waiting", "--limit-key", step]).ok();
            db.cli().run(&["create-runs"]).ok();
            let slot = format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"HeldKey\" = '{step}' AND \"TaskQueueId\" = {next}");
            assert_eq!(db.number(&slot), 0, "one at a time");
            worker.step(step, "a", run);
            db.cli().run(&["create-runs"]).ok();
            assert_eq!(db.number(&slot), 1, "{step}");
            let followed = format!("\"TaskQueue\" WHERE \"ScheduleId\" = {head} AND \"Id\" > {head} AND \"TaskClass\" = 'work'");
            assert_eq!(count(db, &followed), 1, "{step}: the schedule goes on");
            db.cli().run(&["schedule", "remove", &head]).ok();
        }
    }
}
