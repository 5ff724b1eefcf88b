//! What a verb reports when it fails: one line that says what is wrong, one hint that can be pasted, an exit status.

use std::fmt;
use std::path::Path;

use super::output::human::shell_word;
use taskqueue_domain::run::limits::Obstacle;
use taskqueue_domain::run::status::{RunStatus, Stored};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_engine::config::{BadVariable, ConfigError};
use taskqueue_engine::{ConnectFailure, EngineError, NotRecorded, StoreError};

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
/// Exit status: busy, try again.
pub(crate) const BUSY: u8 = 75;
/// Exit status: the configuration or the schema is wrong.
pub(crate) const CONFIG: u8 = 78;
/// Exit status: waited too long.
pub(crate) const WAITED_TOO_LONG: u8 = 124;
/// Exit status: interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// A failure, ready to be shown.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    kind: &'static str,
    message: String,
    hint: Option<String>,
    /// The row that was found instead of what was expected.
    details: Option<Box<serde_json::Value>>,
}

impl CliError {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, kind: "usage", message: message.into(), hint: None, details: None }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, kind: "failed", message: message.into(), hint: None, details: None }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self { code: UNAVAILABLE, kind: "unreachable", message: message.into(), hint: None, details: None }
    }

    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self { code: CONFIG, kind: "config", message: message.into(), hint: None, details: None }
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, kind: "interrupted", message: message.into(), hint: None, details: None }
    }

    /// A claim of one task that got nothing, with the exit status of a claim that gets nothing.
    pub(crate) fn not_claimable(message: impl Into<String>, code: u8) -> Self {
        Self { code, kind: "not_claimable", ..Self::failed(message) }
    }

    /// A run that was named, and not processed because all slots are in use.
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

    pub(crate) const fn exit_code(&self) -> u8 {
        self.code
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn details(&self) -> Option<&serde_json::Value> {
        self.details.as_deref()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

/// Whatever a verb failed with. What is none of our own errors is the system's, and says in its contexts what it was about.
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

/// Returns the error of a verb that a signal has ended: as interrupted, where it was the database that did not answer.
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
        let hint = if error.is_unreadable {
            "is the path right, and may this user read it? --config or TASKQUEUE_CONFIG names another file"
        } else {
            "docs/configuration.md lists every key"
        };
        Self::configuration(message).with_hint(hint)
    }
}

impl From<BadVariable> for CliError {
    fn from(error: BadVariable) -> Self {
        Self::configuration(error.to_string())
            .with_hint(format!("`unset {}`, or set it to what can be written as text", error.name))
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::Input(_) => Self::usage(message),
            EngineError::ImportsExec { .. } => Self::usage(message)
                .with_hint("--allow-exec imports such tasks; look first at what they would run: grep '\"exec\"' FILE"),
            EngineError::Refused(_) => Self { kind: "refused", ..Self::failed(message) },
            EngineError::UnknownClass { nearest, .. } => {
                Self { kind: "class_unknown", ..Self::usage(message) }.with_hint(unknown_class_hint(&nearest))
            }
            EngineError::ExecIsOff => Self { kind: "exec_off", ..Self::usage(message) }.with_hint(
                "`enabled = true` under [exec] in the configuration switches it on; better, configure a class for the program",
            ),
            EngineError::KeyTaken(_) => Self { kind: "key_taken", ..Self::failed(message) },
            EngineError::NotWaiting { .. } => Self { kind: "not_waiting", ..Self::failed(message) },
            EngineError::NotRunnable { class, .. } => Self { kind: "not_runnable", ..Self::failed(message) }
                .with_hint(format!(
                    "`taskqueue classes` says why; `taskqueue classes release {}` tries a held class again",
                    shell_word(&class)
                )),
            EngineError::NotInProgress { task_id, is_settled, .. } => {
                Self { kind: "not_in_progress", ..Self::failed(message) }.with_hint(if is_settled {
                    format!("`taskqueue requeue {task_id}` runs it again")
                } else {
                    "--keep stores the message for the next attempt".to_owned()
                })
            }
            EngineError::NotHeld { run, .. } => Self {
                kind: "not_held",
                details: serde_json::to_value(&run).ok().map(Box::new),
                ..Self::failed(message)
            }
            .with_hint(format!("stop working for it; `taskqueue status {}` shows what became of the task", run.task_id)),
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
                "start it again; a handler should return soon once ActiveRun::stop_reason gives a reason",
            ),
            EngineError::RunnerOver => Self { kind: "lease_over", ..Self::unreachable(message) },
            EngineError::NotRecorded(ended) => from_store(&ended.source, message).with_hint(not_recorded_hint(&ended)),
            EngineError::Os { .. } => Self { kind: "os", ..Self::failed(message) },
            EngineError::Store(error) => from_store(&error, message),
        }
    }
}

/// What helps where a run cannot be taken from a claimant.
fn not_taken_back_hint(run: &Run) -> String {
    let task = run.task_id;
    match &run.status {
        Stored::Known(RunStatus::Processing) => format!(
            "`taskqueue cancel {task}` asks its runner to end it; if the runner is dead, `taskqueue create-runs` takes the run back"
        ),
        Stored::Known(RunStatus::Scheduled) => format!("`taskqueue explain {task}` shows what it waits for"),
        _ => format!("`taskqueue status {task}` shows the task"),
    }
}

/// What the row of the run says, and what follows from it. It is the next process on this host that releases the run.
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

/// `; did you mean "a" or "b"?`, or nothing.
pub(crate) fn did_you_mean(nearest: &[impl AsRef<str>]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = nearest.iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

fn unknown_class_hint(nearest: &[String]) -> String {
    let known_elsewhere =
        "`taskqueue classes` lists all and names the file to configure them in; --any-class queues for another host";
    match nearest {
        [] => known_elsewhere.to_owned(),
        names => {
            let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            format!("did you mean {}? {known_elsewhere}", quoted.join(" or "))
        }
    }
}

/// What shows that obstacle. Of keys `taskqueue limits` lists only those that were given a limit.
fn obstructed_hint(obstacle: &Obstacle, holders: &[TaskId]) -> String {
    match (obstacle, holders) {
        (Obstacle::Paused(_), _) => "`taskqueue pause` lists what is paused, by whom and until when".to_owned(),
        (Obstacle::MaxRunning(_) | Obstacle::Rate(..), _) => {
            "`taskqueue limits` lists the limits of classes, `taskqueue status --runs` the newest runs".to_owned()
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
        StoreError::BadAddress(_) => (CONFIG, "bad_address", None),
        StoreError::Unreachable { url, failure: ConnectFailure::TooMany, .. } => {
            (BUSY, "too_many_connections", Some(too_many_hint(url)))
        }
        StoreError::Unreachable { failure: ConnectFailure::NotReady, .. } => (
            BUSY,
            "not_ready",
            Some("the server is starting, ending or joining its cluster: try again; `connect_wait_secs` in the configuration waits longer".to_owned()),
        ),
        StoreError::Unreachable { url, message: cause, .. } => {
            (UNAVAILABLE, "unreachable", Some(unreachable_hint(url, cause)))
        }
        StoreError::NotMigrated { .. } => (CONFIG, "not_migrated", Some("taskqueue migrate".to_owned())),
        StoreError::Foreign { .. } => (
            CONFIG,
            "foreign",
            Some("`taskqueue migrate` adds the tables of taskqueue to it, if it is the right file".to_owned()),
        ),
        StoreError::NewerSchema { .. } => {
            (CONFIG, "newer_schema", Some("install the newer taskqueue on this host too".to_owned()))
        }
        StoreError::OlderSchema { .. } => (
            CONFIG,
            "older_schema",
            Some("`export` of that taskqueue writes what `taskqueue import` reads into a new database".to_owned()),
        ),
        StoreError::Moved { .. } => (
            UNAVAILABLE,
            "store_moved",
            Some(
                "what was recorded since then is lost with the old file; stop every process that uses it before a store is \
                 removed or restored, and remove the -wal and -shm beside it too"
                    .to_owned(),
            ),
        ),
        StoreError::ReadOnly { .. } => (UNAVAILABLE, "read_only", Some(read_only_hint(&message))),
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
        StoreError::Setting(_) => (CONFIG, "setting", Some("taskqueue settings set NAME VALUE".to_owned())),
        StoreError::Migration(_) => (CONFIG, "migration", None),
        StoreError::NoRandomness(_) => (FAILED, "os", None),
        StoreError::Database(_) => (FAILED, "database", None),
    };
    CliError { code, kind, message, hint, details: None }
}

/// What becomes of the end of a run that the database was not told of.
fn not_recorded_hint(ended: &NotRecorded) -> String {
    match &ended.kept {
        // A refusal that the store did not explain is met again, most likely.
        Ok(directory) if matches!(ended.source, StoreError::Database(_)) => format!(
            "it is kept in {}, and the next `taskqueue create-runs` or `tick` on this host sends it once more; if it is refused \
             again its runner is taken for dead and the task is tried again; `taskqueue cancel {}` prevents that",
            directory.display(),
            ended.task_id
        ),
        Ok(directory) => format!(
            "nothing is lost: it is kept in {}, and the next `taskqueue create-runs` or `tick` on this host sends it",
            directory.display()
        ),
        Err(why) => format!(
            "it could not be kept on the local disk either ({why}), so that the next create-runs takes its runner for dead \
             and the task is tried again; `taskqueue cancel {}` prevents that",
            ended.task_id
        ),
    }
}

fn too_many_hint(url: &str) -> String {
    let (setting, pooler) = if url.starts_with("mysql") {
        ("max_connections, or max_user_connections of this user", "ProxySQL")
    } else {
        ("max_connections", "PgBouncer")
    };
    format!(
        "every connection of the server is in use: raise {setting}, put {pooler} before it, or try again; `connect_wait_secs` in \
         the configuration waits longer"
    )
}

/// The section of the documents for a disk on which nothing can be written, not even by `prune`.
const WAY_OUT: &str =
    "`prune` needs room too: docs/operators.md, \"A disk that is full\", prunes a copy on another disk";

fn full_hint(url: &str, message: &str) -> String {
    let rest = "what was done before stays done, the same command does the rest once there is room";
    let Some(path) = url.strip_prefix("sqlite://") else { return format!("is the disk of the server full? {rest}") };
    let failing = if message.contains("disk I/O error") { ", or failing" } else { "" };
    format!("is the disk full{failing}? `{}` tells; {rest}; {WAY_OUT}", df_of(path))
}

fn df_of(path: &str) -> String {
    format!("df -h {}", shell_word(path))
}

fn read_only_hint(message: &str) -> String {
    let hint = if message.contains("sqlite://") {
        "check the permissions of the file and its directory, or run this as the user who owns them"
    } else {
        "connect to the primary server"
    };
    hint.to_owned()
}

/// `cause` is what the client library or the kernel says; the name of the file does not count.
fn unreachable_hint(url: &str, cause: &str) -> String {
    let says = |words: &str| cause.contains(words);
    let Some(path) = url.strip_prefix("sqlite://") else {
        return "is the server running, and are address, user and password right? (--database, TASKQUEUE_DATABASE_URL or `database` in the configuration)"
            .to_owned();
    };
    let hint = if says("disk I/O error") {
        let df = df_of(path);
        return format!(
            "is the disk full, or failing? `{df}` and the kernel's log tell; the same command works once it can be read and \
             written; {WAY_OUT}"
        );
    } else if says("which belongs to it") {
        "stop every process that uses the old store; then restore its file, or remove that file and the others with its name too"
    } else if says("disk is full") {
        let df = df_of(path);
        return format!(
            "is the disk full? `{df}` tells; nothing was lost, the same command works once there is room; {WAY_OUT}"
        );
    } else if says("not a database") || says("no regular file") {
        "name another file with --database, TASKQUEUE_DATABASE_URL or `database` in the configuration"
    } else if says("disk image is malformed") {
        "the file is damaged: take a backup of it, or save what `sqlite3 FILE .recover` still reads"
    } else if says("leads to a file that does not exist") {
        "make the file that the link names, or name another file with --database"
    } else if says("No such file or directory") {
        return format!("`{}` makes its directory", mkdir_of(path));
    } else {
        "check the permissions of the file and its directory"
    };
    hint.to_owned()
}

fn mkdir_of(path: &str) -> String {
    let directory = Path::new(path).parent().unwrap_or(Path::new("."));
    format!("mkdir -p {}", shell_word(&directory.to_string_lossy()))
}
