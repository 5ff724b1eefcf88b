//! The problems that `doctor` finds, as sentences.

use chrono::{DateTime, TimeDelta, Utc};
use indicatif::HumanBytes;

use crate::human::{count, distance, plural};
use crate::words::hung::silent_words;
use crate::words::pause_words::pause_words;
use crate::words::standstill::standstill_words;
use crate::words::why::sentence;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::inspect::diagnosis::hung::HungRun;
use taskqueue_engine::inspect::doctor::{Symptom, Trouble};

/// Returns what is wrong, as a sentence without a full stop.
pub fn trouble_words(trouble: &Trouble, now: DateTime<Utc>) -> String {
    match trouble {
        Trouble::Store(symptom) => symptom_words(symptom),
        Trouble::StoreClosed { store, error } => format!("the store {store} cannot be opened: {error}"),
        Trouble::Unexamined { part, error } => format!("{part} could not be examined: {error}"),
        Trouble::NothingCreatesRuns { due, oldest_secs } => format!(
            "{} due without a run, the oldest for {}: no create-runs or tick has run, from cron, a timer or a worker",
            if due.count == 1 { "1 task is".to_owned() } else { format!("{} tasks are", count(*due)) },
            distance(TimeDelta::seconds(*oldest_secs))
        ),
        Trouble::Standstill { standstill } => standstill_words(standstill, now),
        Trouble::NothingRuns { task_id, class, why } => {
            format!("runs of class {class} are waiting, first that of task {task_id}: {}", sentence(why, None, now))
        }
        Trouble::LostRuns { count, task_id, why } => {
            format!("{} lost, first that of task {task_id}: {}", plural(*count, "run"), sentence(why, None, now))
        }
        Trouble::SilentRunner { runner, slots, silent_secs } => format!(
            "runner {runner} has not renewed its lease for {}, but its process is alive: it is suspended, or cannot reach the \
             database; it occupies {}",
            distance(TimeDelta::seconds(*silent_secs)),
            plural(usize::try_from(*slots).unwrap_or_default(), "slot")
        ),
        Trouble::ClockSet { runner, step_secs } => format!(
            "the database's clock was set {} by {} since runner {runner} renewed its lease",
            if *step_secs < 0 { "back" } else { "forward" },
            distance(TimeDelta::seconds(step_secs.saturating_abs()))
        ),
        Trouble::FutureTasks { tasks } => format!(
            "tasks failed while the clock of the database was ahead, and are not retried before that time: {}",
            ids(tasks)
        ),
        Trouble::FutureSchedules { tasks } => format!(
            "schedules were planned while the clock of the database was ahead, and skip the times until then: {}",
            ids(tasks)
        ),
        Trouble::FutureClaim { run_id, task_id, claimant } => format!(
            "run {run_id} of task {task_id} was claimed or renewed while the clock of the database was ahead; if its claimant \
             {claimant} is gone, it is not rescued before that time"
        ),
        Trouble::HungRuns { class, key, max_running, hung } => hung_words(class, key.as_deref(), *max_running, hung),
        Trouble::MissingScript { class, script } => {
            format!("class {class} executes {}, which does not exist on this host", script.display())
        }
        Trouble::ScheduleProblem { schedule, problem } => {
            format!("[schedule.{schedule}] cannot be applied: {problem}")
        }
        Trouble::ClassProblem { class, problem } => format!("class {class} cannot be executed here: {problem}"),
        Trouble::ClassHeld { class, host, reason } => format!("class {class} is held on {host}: {reason}"),
        Trouble::NoHandler { class } => format!("class {class} has tasks, but no handler on this host"),
        Trouble::OldPause { pause } => pause_words(pause, now),
        Trouble::BrokenSchedules { tasks } => format!("schedules that cannot be read: {}", ids(tasks)),
        Trouble::StrandedTasks { tasks } => {
            format!("tasks wait for others that were cancelled or have expired: {}", ids(tasks))
        }
        Trouble::Unreadable { task_id, column, found } => {
            format!("task {task_id} is set aside: its column {column} cannot be read: {found}")
        }
        Trouble::Quarantined { count: number } => {
            let is_one = number.count == 1 && !number.or_more;
            let tasks = if is_one { "1 task is".to_owned() } else { format!("{} tasks are", count(*number)) };
            format!("{tasks} quarantined: crashed too often, or cannot be read")
        }
        Trouble::UnreportedFailures { count: number } => {
            let is_one = number.count == 1 && !number.or_more;
            let tasks = if is_one { "1 task".to_owned() } else { format!("{} tasks", count(*number)) };
            format!("{tasks} will not be retried, and the failure was not reported yet")
        }
        Trouble::InvalidSettings { problem, .. } => format!("invalid setting: {problem}"),
        Trouble::KeptForEver { status } => {
            format!("tasks in the status {status} are kept forever, so the tables only grow")
        }
        Trouble::LittleRoom { path, free_bytes } => {
            format!("the disk of {} has only {} left", path.display(), HumanBytes(*free_bytes))
        }
        Trouble::FewInodes { path, free_inodes } => {
            format!(
                "the file system of {} has only {} left for new files",
                path.display(),
                plural(usize::try_from(*free_inodes).unwrap_or(usize::MAX), "inode")
            )
        }
        Trouble::ReadOnlyDisk { path } => format!("the file system of {} is mounted read-only", path.display()),
        Trouble::ChangeableByOthers { problem, .. } => {
            format!("another user can change what taskqueue relies on: {problem}")
        }
        Trouble::LargeLog { path, bytes } => {
            format!("{} has grown to {}: a process keeps a read transaction open", path.display(), HumanBytes(*bytes))
        }
        Trouble::OpenFile { path, mode } => {
            format!("users other than its owner may read or write {} (mode {mode:04o})", path.display())
        }
        Trouble::LeftOutcomes { count, directory } => {
            format!("{} contains {} not yet recorded in the database", directory.display(), plural(*count, "outcome"))
        }
        Trouble::OtherOutcomes { count, directory, database } => {
            format!("{} contains {} for another address, {database}", directory.display(), plural(*count, "outcome"))
        }
        Trouble::OtherVersion { runner, version } => {
            format!("runner {runner} has version {version}, this command has {}", env!("CARGO_PKG_VERSION"))
        }
    }
}

/// Returns a note about a Galera cluster.
pub fn cluster_words(nodes: i64) -> String {
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    format!(
        "the database is a Galera cluster ({nodes}): all programs that write the tables of taskqueue must connect to the same \
         node, or the cluster stalls"
    )
}

fn symptom_words(symptom: &Symptom) -> String {
    match symptom {
        Symptom::Setting { name, value, wanted } => {
            format!("the database has {name} = {value}; it should be {wanted}")
        }
        Symptom::MissingIndex { name, .. } => format!("the index {name} is missing: queries that use it become slow"),
        Symptom::LongTransaction { secs, who } => {
            format!("a transaction has been open for {}: {who}", distance(TimeDelta::seconds(*secs)))
        }
        Symptom::DeadRows { table, dead, live } => {
            format!("{table} has {dead} dead rows and {live} live rows, and was not vacuumed")
        }
        Symptom::Locked { who, .. } => {
            format!(
                "{who} has locked the store for a second: until it unlocks it, nothing can be queued, claimed or recorded"
            )
        }
        Symptom::Full { error } => {
            format!("the server has no space left, so that nothing can be queued, claimed or recorded: {error}")
        }
        Symptom::Cluster { nodes } => cluster_words(*nodes),
    }
}

/// Formats the runs that occupy all slots of a limit.
fn hung_words(class: &str, key: Option<&str>, max_running: i32, hung: &[HungRun]) -> String {
    let limit = match key {
        Some(key) => format!("the key {key} allows {max_running} at once"),
        None => format!("its limit is {max_running} running"),
    };
    format!("runs of class {class} are waiting: {limit}; {}", silent_words(hung))
}

/// Returns the ids with spaces between them.
pub fn ids(tasks: &[TaskId]) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
