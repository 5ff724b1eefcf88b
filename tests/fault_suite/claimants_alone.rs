//! Claimants without any other process, no runner and no `create-runs`. Claimants that die or hang lose their tasks to the
//! others, after the backoff of the task. No attempt changes when a task was planned.

use std::time::{Duration, Instant};

use super::campaign::{Campaign, Job, panic_text};
use super::claimants_beside;
use super::options::ENGINES;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "claimants-alone",
    what: "claimants that die with a run or hang, beside which there are other claimants and nothing else",
    engines: &ENGINES,
    run,
};

/// Tasks in one trial.
const TASKS: usize = 6;
/// The backoff of the tasks with an odd id.
const BACKOFF_SECS: i64 = 1;
/// How long the others have to claim all lost tasks.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(job: &Job<'_>) {
    for trial in job.trials(1, 30) {
        let Some(stage) = job.stage() else { return job.note("no server".to_owned()) };
        stage.shorten_leases(5);
        let mut rng = job.rng(trial);
        let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lose_and_take(&stage, &mut rng)));
        job.count(*lost.as_ref().unwrap_or(&0));
        let found = lost.err().map(|panic| panic_text(&*panic));
        job.judge(trial, &stage, &found.into_iter().collect::<Vec<_>>());
    }
}

/// Returns how many claimants were lost.
fn lose_and_take(stage: &Stage, rng: &mut Rng) -> usize {
    for number in 0..TASKS {
        let backoff = format!("fixed:{BACKOFF_SECS}s");
        let options: &[&str] = if number % 2 == 0 { &["--backoff", &backoff] } else { &[] };
        stage.queue_with("note", options);
    }
    let planned =
        || stage.texts("SELECT CAST(\"ScheduledOn\" AS CHAR(40)) AS value FROM \"TaskQueue\" ORDER BY \"Id\"");
    let before = planned();
    for number in 0..TASKS {
        let answer = if rng.below(2) == 0 { "die" } else { "hang" };
        let call = claimants_beside::answering(stage, &format!("lost-{number}"), answer).run();
        assert!(call.stderr.is_empty(), "{call:?}");
    }
    assert!(stage.end_leases(), "a command holds a lock");
    let has_taken_all = take_all(stage);
    assert!(has_taken_all, "claimants alone did not get what others had lost");
    assert_eq!(planned(), before, "an attempt has changed when its task was planned");
    assert_eq!(early_attempts(stage), Vec::<i64>::new(), "tasks were retried before their backoff had passed");
    TASKS
}

fn take_all(stage: &Stage) -> bool {
    let left = || stage.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" <> 'success'");
    let started = Instant::now();
    while left() > 0 && started.elapsed() < PATIENCE {
        claimants_beside::answering(stage, "sound", "resolve").run();
    }
    left() == 0
}

/// Returns the tasks with a backoff whose second run came before it had passed.
fn early_attempts(stage: &Stage) -> Vec<i64> {
    let with_backoff = "SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"Backoff\" IS NOT NULL";
    let with_backoff = stage.connect().numbers(with_backoff);
    let runs = stage.records().runs;
    let instant = |text: &str| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap();
    let is_early = |task: &i64| {
        let of_task: Vec<_> = runs.iter().filter(|run| run.task_id == *task).collect();
        let [lost, next, ..] = of_task[..] else { return false };
        let text = |time: &str| time.split('+').next().unwrap().to_owned();
        let wait = instant(&text(&next.times[0])) - instant(&text(&lost.times[2]));
        wait < chrono::TimeDelta::seconds(BACKOFF_SECS)
    };
    with_backoff.into_iter().flatten().filter(is_early).collect()
}
