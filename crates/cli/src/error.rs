//! The error of a verb: one line with the problem, a hint that can be pasted, and an exit status.

use std::fmt;
use std::path::Path;

use taskqueue_domain::limits::limit::Obstacle;
use taskqueue_domain::run::status::{RunStatus, Stored};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_engine::config::{BadVariable, ConfigError};
use taskqueue_engine::{ConnectFailure, EngineError, NotRecorded, StoreError};
use taskqueue_host::files::disk::room_at;
use taskqueue_host::machine::proc_files::is_proc_mounted;
use taskqueue_views::shell_word::shell_word;

/// Exit status: done.
pub(crate) const DONE: u8 = 0;
/// Exit status: the operation failed.
pub(crate) const FAILED: u8 = 1;
/// Exit status: the command line or the input is wrong.
pub(crate) const USAGE: u8 = 2;
/// Exit status: nothing matched.
pub(crate) const NOT_FOUND: u8 = 3;
/// Exit status: the database cannot be reached.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Exit status: busy; a retry may succeed.
pub(crate) const BUSY: u8 = 75;
/// Exit status: the configuration or the schema is wrong.
pub(crate) const CONFIG: u8 = 78;
/// Exit status: the time limit has passed.
pub(crate) const WAITED_TOO_LONG: u8 = 124;
/// Exit status: interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// A failure, ready to be shown.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) code: u8,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    report: Option<Box<Report>>,
    /// The current row, if it differs from what the caller expected.
    pub(crate) details: Option<Box<serde_json::Value>>,
}

/// More about an error, for people.
#[derive(Debug)]
struct Report {
    /// A shorter message, if the lines repeat the message.
    headline: Option<String>,
    /// Printed between the message and the hint.
    lines: Vec<String>,
}

impl CliError {
    fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Self {
        Self { code, kind, message: message.into(), hint: None, report: None, details: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, "failed", message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(UNAVAILABLE, "unreachable", message)
    }

    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(CONFIG, "config", message)
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new(INTERRUPTED, "interrupted", message)
    }

    /// Returns the error for a claim of one task that claimed nothing, with the exit status of an empty claim.
    pub(crate) fn not_claimable(message: impl Into<String>, code: u8) -> Self {
        Self { code, kind: "not_claimable", ..Self::failed(message) }
    }

    /// Returns the error for a named run that was not processed because all slots are in use.
    pub(crate) fn runner_limit_reached(message: impl Into<String>) -> Self {
        Self { code: BUSY, kind: "runner_limit_reached", ..Self::failed(message) }
    }

    pub(crate) fn no_store(message: impl Into<String>) -> Self {
        Self { kind: "no_store", ..Self::unreachable(message) }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message for people: the report may continue it.
    pub(crate) fn headline(&self) -> &str {
        self.report.as_ref().and_then(|report| report.headline.as_deref()).unwrap_or(&self.message)
    }

    pub(crate) fn report(&self) -> &[String] {
        self.report.as_ref().map_or(&[], |report| &report.lines)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

/// Converts any error of a verb. An error that is not our own is the system's, and its contexts describe the operation.
impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        error
            .downcast::<Self>()
            .or_else(|error| error.downcast::<EngineError>().map(Self::from))
            .or_else(|error| error.downcast::<ConfigError>().map(Self::from))
            .or_else(|error| error.downcast::<BadVariable>().map(Self::from))
            .unwrap_or_else(|error| Self::failed(format!("{error:#}")))
    }
}

/// Returns the error of a verb that a signal has ended: `interrupted` if it was waiting for the database.
pub(crate) fn interrupted_in_database(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(EngineError::Store(StoreError::Unreachable { .. } | StoreError::Busy(_))) => {
            CliError::interrupted(format!("stopped by a signal: {error}")).into()
        }
        _ => error,
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let message = format!("the configuration cannot be used: {error}");
        let hint = if error.is_unreadable && !is_proc_mounted() {
            "mount -t proc proc /proc"
        } else if error.is_unreadable {
            "check the path and its permissions; --config or TASKQUEUE_CONFIG sets another file"
        } else {
            "`taskqueue help configuration` lists every key"
        };
        let headline = error.headline.map(|headline| format!("the configuration cannot be used: {headline}"));
        let report = Some(Box::new(Report { headline, lines: error.report }));
        Self { report, ..Self::configuration(message).with_hint(hint) }
    }
}

impl From<BadVariable> for CliError {
    fn from(error: BadVariable) -> Self {
        Self::configuration(error.to_string()).with_hint(format!("`unset {}`, or set it to UTF-8 text", error.name))
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::Input(_) => Self::usage(message),
            EngineError::ImportsExec { .. } => Self::usage(message)
                .with_hint("--allow-exec imports such tasks; first check what they would run: grep '\"exec\"' FILE"),
            EngineError::ImportedBefore { .. } => Self { kind: "refused", ..Self::failed(message) }
                .with_hint("--again imports its tasks once more, with new ids"),
            EngineError::Refused(_) | EngineError::Forbidden(_) => Self { kind: "refused", ..Self::failed(message) },
            EngineError::UnknownClass { class, nearest } => {
                Self { kind: "class_unknown", ..Self::usage(message) }.with_hint(unknown_class_hint(&class, &nearest))
            }
            EngineError::ExecIsOff => Self { kind: "exec_off", ..Self::usage(message) }.with_hint(
                "`enabled = true` under [exec] in the configuration enables it; it is safer to configure a class for the program",
            ),
            EngineError::KeyTaken(_) => Self { kind: "key_taken", ..Self::failed(message) },
            EngineError::NotWaiting { .. } => Self { kind: "not_waiting", ..Self::failed(message) },
            EngineError::NotRunnable { class, .. } => Self { kind: "not_runnable", ..Self::failed(message) }
                .with_hint(format!(
                    "`taskqueue class` shows why; `taskqueue class release {}` releases a held class",
                    shell_word(&class)
                )),
            EngineError::NotInProgress { task_id, is_settled, .. } => {
                Self { kind: "not_in_progress", ..Self::failed(message) }.with_hint(if is_settled {
                    format!("`taskqueue retry {task_id}` runs it again")
                } else {
                    "--keep stores the message for the next attempt".to_owned()
                })
            }
            EngineError::NotHeld { run, .. } => Self {
                kind: "not_held",
                details: serde_json::to_value(&run).ok().map(Box::new),
                ..Self::failed(message)
            }
            .with_hint(format!("stop working on it; `taskqueue status {}` shows the task", run.task_id)),
            EngineError::NotTakenBack { run, .. } => Self {
                kind: "not_taken_back",
                hint: Some(not_taken_back_hint(&run)),
                details: serde_json::to_value(&run).ok().map(Box::new),
                ..Self::failed(message)
            },
            EngineError::Obstructed { obstacle, holders, .. } => {
                Self { kind: "obstructed", ..Self::failed(message) }.with_hint(obstructed_hint(&obstacle, &holders))
            }
            EngineError::LeaseOver { task_id, found, .. } => Self { kind: "lease_over", ..Self::unreachable(message) }
                .with_hint(lease_over_hint(task_id, found.as_deref())),
            EngineError::TooManyLeftBehind { .. } => Self { kind: "left_behind", ..Self::failed(message) }.with_hint(
                "restart it; a handler must return soon after ActiveRun::stop_reason returns a reason",
            ),
            EngineError::RunnerOver => Self { kind: "lease_over", ..Self::unreachable(message) },
            EngineError::NotRecorded(ended) => from_store(&ended.source, message).with_hint(not_recorded_hint(&ended)),
            EngineError::Os { .. } => Self { kind: "os", ..Self::failed(message) },
            EngineError::Store(error) => from_store(&error, message),
        }
    }
}

/// Returns the hint for a run that cannot be taken from a claimant.
fn not_taken_back_hint(run: &Run) -> String {
    let task = run.task_id;
    match &run.status {
        Stored::Known(RunStatus::Processing) => format!(
            "`taskqueue cancel {task}` asks its runner to end it; if the runner is dead, `taskqueue create-runs` rescues the run"
        ),
        Stored::Known(RunStatus::Scheduled) => format!("`taskqueue explain {task}` shows what it waits for"),
        _ => format!("`taskqueue status {task}` shows the task"),
    }
}

/// Returns what the row of the run shows, and what follows. The next process on this host releases the run.
fn lease_over_hint(task_id: i64, found: Option<&str>) -> String {
    let show = format!("`taskqueue status {task_id}` shows the task");
    let rescued = |status: &str| format!("another process has ended the run since then, with the status {status}");
    match found {
        Some("processing") => {
            format!("the next taskqueue process on this host releases the run, which counts no attempt; {show}")
        }
        Some("timeout") => format!("{}, which counts as a failed attempt; {show}", rescued("timeout")),
        Some(status) => format!("{}; {show}", rescued(status)),
        None => format!(
            "the database was unreachable or too slow, or this process was suspended; the next taskqueue process on this host \
             releases the run, which counts no attempt, unless another process has rescued it, which counts one; {show}"
        ),
    }
}

/// Returns `; did you mean "a" or "b"?`, or nothing.
pub(crate) fn did_you_mean(nearest: &[impl AsRef<str>]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = nearest.iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

fn unknown_class_hint(class: &str, nearest: &[String]) -> String {
    let known_elsewhere =
        "`taskqueue class` lists all classes and the file that configures them; --any-class queues for another host";
    match did_you_mean(nearest).strip_prefix("; ") {
        None => format!(
            "`taskqueue class add {} -- PROGRAM` adds it; {known_elsewhere}; `taskqueue exec PROGRAM` queues a command",
            shell_word(class)
        ),
        Some(meant) => format!("{meant} {known_elsewhere}"),
    }
}

/// Returns the command that shows what blocks a run. `taskqueue limit` lists only keys that were given a limit.
fn obstructed_hint(obstacle: &Obstacle, holders: &[TaskId]) -> String {
    match (obstacle, holders) {
        (Obstacle::Paused(_), _) => "`taskqueue pause` lists what is paused, by whom and until when".to_owned(),
        (Obstacle::MaxRunning(_) | Obstacle::Rate(..), _) => {
            "`taskqueue limit` lists the limits of classes, `taskqueue status --runs` the newest runs".to_owned()
        }
        (Obstacle::KeyIsFull(_), []) => "the slot has just become free: try again".to_owned(),
        (Obstacle::KeyIsFull(_), holders) => {
            let ids: Vec<String> = holders.iter().map(ToString::to_string).collect();
            let whose = if holders.len() == 1 { "the task that has the slot" } else { "tasks that have a slot" };
            format!("`taskqueue status {}` shows {whose}", ids.join(" "))
        }
    }
}

fn from_store(error: &StoreError, message: String) -> CliError {
    let (code, kind, hint) = match error {
        StoreError::BadAddress(_) => (
            CONFIG,
            "bad_address",
            Some("--database, TASKQUEUE_DATABASE_URL or `database` in the configuration sets the address".to_owned()),
        ),
        StoreError::Unreachable { url, failure: ConnectFailure::TooMany, .. } => {
            (BUSY, "too_many_connections", Some(too_many_hint(url)))
        }
        StoreError::Unreachable { failure: ConnectFailure::NotReady, .. } => (
            BUSY,
            "not_ready",
            Some("the server is starting, stopping or joining its cluster: try again, or raise `connect_wait_secs` in the configuration".to_owned()),
        ),
        StoreError::Unreachable { url, message: cause, .. } => {
            (UNAVAILABLE, "unreachable", Some(unreachable_hint(url, cause)))
        }
        StoreError::NotMigrated { .. } => (CONFIG, "not_migrated", Some("taskqueue db migrate".to_owned())),
        StoreError::Foreign { .. } => (
            CONFIG,
            "foreign",
            Some("`taskqueue db migrate` adds the tables of taskqueue to it, if it is the right file".to_owned()),
        ),
        StoreError::NewerSchema { .. } => {
            (CONFIG, "newer_schema", Some("install the newer taskqueue on this host too".to_owned()))
        }
        StoreError::OlderSchema { .. } => (
            CONFIG,
            "older_schema",
            Some("run `taskqueue export` of that older version, then `taskqueue import` into a new database".to_owned()),
        ),
        StoreError::Moved { .. } => (
            UNAVAILABLE,
            "store_moved",
            Some(
                "everything recorded since then is lost with the old file; before you remove or restore a store, stop every \
                 process that uses it, and remove its -wal and -shm files too"
                    .to_owned(),
            ),
        ),
        StoreError::ReadOnly { url, .. } => (UNAVAILABLE, "read_only", Some(read_only_hint(url))),
        StoreError::Full { url, message: cause } => (UNAVAILABLE, "full", Some(full_hint(url, cause))),
        StoreError::Forbidden { .. } => (
            CONFIG,
            "forbidden",
            Some(
                "GRANT SELECT, INSERT, UPDATE, DELETE on every table of taskqueue to that user, or connect as another"
                    .to_owned(),
            ),
        ),
        StoreError::Busy(_) => (BUSY, "busy", Some("try again".to_owned())),
        StoreError::NotFound(_) => (NOT_FOUND, "not_found", None),
        StoreError::NotQueued { .. } => (FAILED, "not_queued", None),
        StoreError::NotImported { .. } => (USAGE, "usage", None),
        StoreError::NotReadAgain(_) => (FAILED, "os", None),
        StoreError::Migration(_) => (CONFIG, "migration", None),
        StoreError::NoRandomness(_) => (FAILED, "os", None),
        // Only SQLite has this check.
        StoreError::Database(_) if message.contains("Id lies in") => (
            FAILED,
            "database",
            Some("a row with the largest id leaves none: delete it by SQL, and run DELETE FROM sqlite_sequence".to_owned()),
        ),
        StoreError::Database(_) => (FAILED, "database", None),
    };
    CliError { hint, ..CliError::new(code, kind, message) }
}

/// Returns what happens to the end of a run that could not be recorded.
fn not_recorded_hint(ended: &NotRecorded) -> String {
    match &ended.kept {
        // A refusal that the store cannot explain will probably repeat.
        Ok(directory) if matches!(ended.source, StoreError::Database(_)) => format!(
            "the outcome is saved in {}, and the next `taskqueue create-runs` or `tick` on this host records it; if that fails \
             again, its runner counts as dead and the task is retried; `taskqueue cancel {}` prevents that",
            directory.display(),
            ended.task_id
        ),
        Ok(directory) => format!(
            "nothing is lost: the outcome is saved in {}, and the next `taskqueue create-runs` or `tick` on this host records it",
            directory.display()
        ),
        Err(why) => format!(
            "the outcome could not be saved on the local disk either ({why}), so the next create-runs treats its runner as dead \
             and the task is retried; `taskqueue cancel {}` prevents that",
            ended.task_id
        ),
    }
}

fn too_many_hint(url: &str) -> String {
    let (setting, pooler) = if url.starts_with("mysql") {
        ("max_connections, or max_user_connections of this user", "ProxySQL")
    } else {
        ("max_connections, or CONNECTION LIMIT of this role", "PgBouncer")
    };
    format!(
        "every connection of the server is in use: raise {setting}, put {pooler} in front of it, try again, or raise \
         `connect_wait_secs` in the configuration"
    )
}

/// The section of the documentation about a disk without space, on which even `prune` fails.
const WAY_OUT: &str =
    "`prune` needs space too: `taskqueue help operators`, \"A disk that is full\", prunes a copy on another disk";

fn full_hint(url: &str, message: &str) -> String {
    let rest = "completed work is kept; run the same command again when there is space";
    let Some(path) = url.strip_prefix("sqlite://") else { return format!("is the disk of the server full? {rest}") };
    let failing = if message.contains("disk I/O error") { ", or failing" } else { "" };
    format!("is the disk full{failing}? `{}` shows it; {rest}; {WAY_OUT}", df_of(path))
}

fn df_of(path: &str) -> String {
    format!("df -h {}", shell_word(path))
}

fn read_only_hint(url: &str) -> String {
    let Some(path) = url.strip_prefix("sqlite://") else { return "connect to the primary server".to_owned() };
    mounted_read_only_hint(path).unwrap_or_else(|| {
        "check the permissions of the file and its directory, or run this as the user who owns them".to_owned()
    })
}

/// Returns the hint if the file, or the directory in which it would be created, is on a disk that is mounted read-only.
fn mounted_read_only_hint(path: &str) -> Option<String> {
    let path = Path::new(path);
    let place = [path, path.parent()?].into_iter().find(|place| place.exists())?;
    let is_read_only = room_at(place).is_ok_and(|room| room.is_read_only);
    is_read_only.then(|| {
        let place = shell_word(&place.to_string_lossy());
        format!("the file system is mounted read-only: `findmnt -T {place}` shows it")
    })
}

/// Returns the hint; `cause` is the message of the client library or the kernel, without the name of the file.
fn unreachable_hint(url: &str, cause: &str) -> String {
    let says = |words: &str| cause.contains(words);
    let Some(path) = url.strip_prefix("sqlite://") else {
        return "check that the server is running, and check the address, user and password (--database, TASKQUEUE_DATABASE_URL or `database` in the configuration)"
            .to_owned();
    };
    let hint = if says("disk I/O error") {
        let df = df_of(path);
        return format!(
            "is the disk full, or failing? check `{df}` and the kernel's log; run the same command again when it can be read and \
             written; {WAY_OUT}"
        );
    } else if says("which belongs to it") {
        "stop every process that uses the old store; then restore its file, or remove that file and the others with its name"
    } else if says("disk is full") {
        let df = df_of(path);
        return format!(
            "is the disk full? `{df}` shows it; nothing was lost, run the same command again when there is space; {WAY_OUT}"
        );
    } else if says("not a database") || says("not a regular file") {
        "name another file with --database, TASKQUEUE_DATABASE_URL or `database` in the configuration"
    } else if says("disk image is malformed") {
        "the file is damaged: restore a backup, or save what `sqlite3 FILE .recover` can still read"
    } else if says("leads to a file that does not exist") {
        "create the file that the link points to, or name another file with --database"
    } else if says("No such file or directory") {
        return format!("`{}` creates its directory", mkdir_of(path));
    } else if says("Read-only file system")
        && let Some(hint) = mounted_read_only_hint(path)
    {
        return hint;
    } else {
        "check the permissions of the file and its directory"
    };
    hint.to_owned()
}

fn mkdir_of(path: &str) -> String {
    let directory = Path::new(path).parent().unwrap_or(Path::new("."));
    format!("mkdir -p {}", shell_word(&directory.to_string_lossy()))
}
