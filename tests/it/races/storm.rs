//! Everything at the same time, as when cron starts on many machines (rules R1 to R6).

use std::sync::atomic::{AtomicBool, Ordering};

use super::tools::{intervals, most_at_once, run_at_once};
use crate::each_engine;
use crate::support::{Ended, TestDb};

/// 75 for each slot of the limit: enough that all slots are in use before the tasks run out.
const TASKS: usize = 600;
const RUNNERS: usize = 64;
const LIMIT: usize = 8;

each_engine! {
    fn a_storm_of_runners_executes_every_task_once_in_order_within_the_limit(db) {
        let effects = db.home().join("effects");
        // One line for each execution; such a short line is appended in one write.
        let script = format!("echo $TASKQUEUE_TASK_ID >> '{}'", effects.display());
        db.configure(&format!("[class.note]\nargv = [\"/bin/sh\", \"-c\", \"{script}\"]\n"));
        let ids = queue_tasks(db);
        let most_seen = while_sampling(db, || storm_until_drained(db));
        assert!(most_seen.samples > 0);
        assert!(most_seen.runners <= LIMIT, "{} runners at once", most_seen.runners);
        assert!(most_seen.runs <= LIMIT, "{} runs at once", most_seen.runs);
        every_task_succeeded_in_one_run(db);
        let mut executed: Vec<String> = std::fs::read_to_string(&effects).unwrap().lines().map(str::to_owned).collect();
        executed.sort_by_key(|id| id.parse::<i64>().unwrap());
        assert_eq!(executed, ids, "a task was not executed exactly once");
        // 64 processes ask, and each registered one stays while tasks are left: the limit is reached, and never exceeded.
        assert_eq!(most_at_once(&intervals(db, "TaskQueueRunners")), LIMIT);
        let runs = intervals(db, "TaskQueueRuns");
        assert!(most_at_once(&runs) <= LIMIT);
        claims_were_first_in_first_out(db, &runs);
    }
}

/// Half of the tasks have runs already, because a process without a run requests no slot.
fn queue_tasks(db: &TestDb) -> Vec<String> {
    let batch = "{\"class\":\"note\"}\n".repeat(TASKS / 2);
    let queue_half = || db.cli().stdin(batch.clone()).run(&["queue", "--batch", "-"]).ok();
    let first = queue_half();
    db.cli().run(&["create-runs"]).ok();
    first.lines().chain(queue_half().lines()).map(str::to_owned).collect()
}

/// Repeats the storm, like cron, until every task has ended.
fn storm_until_drained(db: &TestDb) {
    let create: &[&str] = &["create-runs"];
    let process: &[&str] = &["process-run", "--drain"];
    // Few that create runs, because they do not ask for a slot.
    let commands = [create, process, process, process, process].repeat(RUNNERS / 4);
    loop {
        for (command, ended) in commands.iter().zip(run_at_once(db, &commands)) {
            nothing_went_wrong(command, &ended);
        }
        if db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" <> 'success'") == 0 {
            return;
        }
    }
}

#[track_caller]
fn nothing_went_wrong(command: &[&str], ended: &Ended) {
    // On a slow machine, another process may hold the lock for longer than a second.
    let is_wait = |line: &str| line.starts_with("warning: waiting for the store");
    let is_news = |line: &str| line.ends_with(" created") || line.ends_with(" marked finished") || is_wait(line);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{command:?}: {ended:?}");
    assert!(ended.stderr.lines().all(is_news), "{command:?}: {ended:?}");
}

struct MostSeen {
    samples: usize,
    runners: usize,
    runs: usize,
}

/// Reads the tables like an operator, repeatedly, during `work`.
fn while_sampling(db: &TestDb, work: impl FnOnce()) -> MostSeen {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut raw = db.raw();
            let mut count = |sql: &str| usize::try_from(raw.numbers(sql)[0].unwrap()).unwrap();
            let mut most = MostSeen { samples: 0, runners: 0, runs: 0 };
            while !done.load(Ordering::Relaxed) {
                let runners = count("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL");
                let runs = count("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'");
                most.samples += 1;
                most.runners = most.runners.max(runners);
                most.runs = most.runs.max(runs);
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
            most
        });
        // Also if it fails: otherwise the scope would wait for the sampler forever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        let most = sampler.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        most
    })
}

fn every_task_succeeded_in_one_run(db: &TestDb) {
    let count = |sql: &str| usize::try_from(db.number(&format!("SELECT COUNT(*) AS value FROM {sql}"))).unwrap();
    assert_eq!(count("\"TaskQueue\""), TASKS);
    assert_eq!(
        count(
            "\"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Attempts\" = 1 AND \"FailedRetries\" = 0 AND \"CurrentRunId\" IS NULL"
        ),
        TASKS
    );
    assert_eq!(count("\"TaskQueueRuns\""), TASKS);
    assert_eq!(count("\"TaskQueueRuns\" WHERE \"Status\" = 'success' AND \"ErrorCode\" = ''"), TASKS);
    assert_eq!(db.number("SELECT COUNT(DISTINCT \"TaskQueueId\") AS value FROM \"TaskQueueRuns\""), TASKS as i64);
    assert_eq!(count("\"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
    assert_eq!(count("\"TaskQueueEvents\""), 0);
}

/// Checks the order. One transaction created all runs, so every claim saw all remaining ones. StartedOn is read from the
/// database's clock under the lock: a later claim cannot have an earlier time, but it may have the same one (SQLite's clock
/// counts milliseconds).
fn claims_were_first_in_first_out(db: &TestDb, runs_by_id: &[(String, String)]) {
    let created = db.raw().texts(&format!(
        "SELECT CAST(\"TaskQueueId\" AS {}) AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"",
        if db.is_mysql_like() { "CHAR" } else { "TEXT" }
    ));
    let created: Vec<i64> = created.into_iter().map(|id| id.unwrap().parse().unwrap()).collect();
    assert!(created.is_sorted(), "tasks queued by one batch get their runs in its order");
    let late = runs_by_id.windows(2).find(|pair| pair[1].0 < pair[0].0);
    assert_eq!(late, None, "a run started before one with a smaller id");
}
