//! Parses the TOML of the configuration. Unknown keys are refused, because a typo must not silently mean the default.

use std::collections::BTreeMap;
use std::io::{Error, read_to_string};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::announcements::{Announcements, HooksTable, NotifyTable};
use super::checks::{MAX_LIMIT_BYTES, check_argv, check_user, check_variables, in_range};
use super::class::{ClassConfig, Classes};
use super::protocol::{CoprocessKeys, Protocol};
use super::schedules::Schedules;
use super::{Config, ConfigError};
use taskqueue_domain::limits::confinement::{Confinement, DEFAULT_UMASK, Limits};
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::exit_rules::{ExitCodes, ExitMeaning, ExitRules};
use taskqueue_domain::run::retention::{Keeping, MAX_KEEP_SECS, parse_keep};
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::new_task::MAX_TIMEOUT_SECS;
use taskqueue_domain::task::selection::ClassFilter;
use taskqueue_domain::task::task_class::MAX_CLASS_LENGTH;
use taskqueue_domain::text::parse_words::plain;
use taskqueue_host::files::trusted_path::{FileType, Trust, TrustedPath, Untrusted};
use taskqueue_host::machine::account::is_root;

const DEFAULT_KILL_GRACE_SECS: i64 = 10;
const MAX_KILL_GRACE_SECS: i64 = 3_600;
/// Together with the default grace of a handler, less than the 90 seconds after which systemd kills.
pub(super) const DEFAULT_STOP_WAIT: Duration = Duration::from_secs(60);
const MAX_STOP_WAIT_SECS: i64 = 86_400;
const MAX_CONNECT_WAIT_SECS: i64 = 86_400;
const DEFAULT_OUTPUT_LIMIT_BYTES: i64 = 128 << 10;
const MAX_OUTPUT_LIMIT_BYTES: i64 = 16 << 20;
/// Hardly any program starts with less address space, and a start that fails could be mistaken for a broken deployment.
const MIN_MEMORY_BYTES: i64 = 16 << 20;
/// A handler has four open files at the start, and opens its libraries one by one.
const MIN_OPEN_FILES: i64 = 8;
const MAX_OPEN_FILES: i64 = 1 << 20;
const MAX_PROCESSES: i64 = 1 << 22;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MainFile {
    database: Option<String>,
    spool: Option<PathBuf>,
    user: Option<String>,
    stop_wait_secs: Option<i64>,
    connect_wait_secs: Option<i64>,
    work_slots: Option<i64>,
    metrics: Option<String>,
    #[serde(default)]
    exec: ExecTable,
    notify: Option<NotifyTable>,
    #[serde(default)]
    hooks: HooksTable,
    #[serde(default)]
    class: BTreeMap<String, ClassTable>,
    #[serde(default)]
    schedule: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    #[serde(default)]
    class: BTreeMap<String, ClassTable>,
    #[serde(default)]
    schedule: BTreeMap<String, toml::Value>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecTable {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTable {
    argv: Vec<String>,
    protocol: Option<String>,
    start_timeout_secs: Option<i64>,
    max_runs: Option<i64>,
    max_age_secs: Option<i64>,
    max_rss_bytes: Option<i64>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    pass_env: Vec<String>,
    user: Option<String>,
    umask: Option<String>,
    no_new_privileges: Option<bool>,
    #[serde(default)]
    limits: LimitsTable,
    timeout_secs: Option<i64>,
    kill_grace_secs: Option<i64>,
    output_limit_bytes: Option<i64>,
    backoff: Option<String>,
    keep: Option<String>,
    keep_results: Option<String>,
    crash_limit: Option<i64>,
    exists: Option<Vec<String>>,
    #[serde(default)]
    may_queue: Vec<String>,
    #[serde(default)]
    exit: ExitTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    cpu_secs: Option<i64>,
    memory_bytes: Option<i64>,
    open_files: Option<i64>,
    processes: Option<i64>,
    file_size_bytes: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExitTable {
    #[serde(default)]
    success: Vec<ExitEntry>,
    #[serde(default)]
    retry: Vec<ExitEntry>,
    #[serde(default)]
    no_retry: Vec<ExitEntry>,
    #[serde(default)]
    hold: Vec<ExitEntry>,
    #[serde(default)]
    release: Vec<ExitEntry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExitEntry {
    Code(i64),
    Range(String),
}

/// Parses the text of a configuration file; the path is for messages.
///
/// # Errors
/// Returns what is wrong and the line of it.
pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let file: MainFile = parse(path, text)?;
    if file.spool.as_deref().is_some_and(|spool| !spool.is_absolute()) {
        return Err(ConfigError::new(path, "spool must be an absolute path"));
    }
    check_user(file.user.as_deref()).map_err(|message| ConfigError::new(path, message))?;
    let stop_wait_secs = in_range("stop_wait_secs", file.stop_wait_secs, 0, MAX_STOP_WAIT_SECS)
        .map_err(|message| ConfigError::new(path, message))?;
    let connect_wait_secs = in_range("connect_wait_secs", file.connect_wait_secs, 0, MAX_CONNECT_WAIT_SECS)
        .map_err(|message| ConfigError::new(path, message))?;
    let (low, high) = Setting::RunnerLimit.range();
    let work_slots =
        in_range("work_slots", file.work_slots, low, high).map_err(|message| ConfigError::new(path, message))?;
    let metrics = file.metrics.as_deref().map(str::parse::<ListenAddress>).transpose();
    let metrics = metrics.map_err(|message| ConfigError::new(path, format!("metrics: {message}")))?;
    let announcements = Announcements::from_tables(file.notify, file.hooks, file.user.as_deref())
        .map_err(|message| ConfigError::new(path, message))?;
    let mut classes = Classes::default();
    for class in to_classes(path, file.class)? {
        classes.add(class).map_err(|message| ConfigError::new(path, message))?;
    }
    let mut schedules = Schedules { path: Some(path.to_owned()), ..Schedules::default() };
    schedules.add(path, file.schedule)?;
    Ok(Config {
        path: path.to_owned(),
        exists: true,
        database: file.database,
        spool: file.spool,
        user: file.user,
        stop_wait: stop_wait_secs.map_or(DEFAULT_STOP_WAIT, seconds),
        connect_wait: connect_wait_secs.map(seconds),
        work_slots: work_slots.and_then(|slots| usize::try_from(slots).ok()),
        metrics,
        announcements,
        classes,
        schedules,
        exec_enabled: file.exec.enabled,
    })
}

/// Adds the classes and the schedules of a file of `conf.d`.
pub(super) fn add_part(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let file: PartFile = parse(path, &text_of(path)?)?;
    for class in to_classes(path, file.class)? {
        config.classes.add(class).map_err(|message| ConfigError::new(path, message))?;
    }
    config.schedules.add(path, file.schedule)
}

/// Returns the files of `conf.d` beside the main file, sorted by name.
pub(super) fn parts_beside(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let directory = path.parent().unwrap_or(Path::new(".")).join("conf.d");
    let is_missing = |error: Error| error.kind() == std::io::ErrorKind::NotFound;
    if directory.symlink_metadata().is_err_and(is_missing) || !find(&directory)?.exists() {
        return Ok(Vec::new());
    }
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ConfigError::new(&directory, error.to_string())),
    };
    let mut parts = Vec::new();
    for entry in entries {
        let part = entry.map_err(|error| ConfigError::new(&directory, error.to_string()))?.path();
        if part.extension().is_some_and(|extension| extension == "toml") {
            parts.push(part);
        }
    }
    parts.sort();
    Ok(parts)
}

/// Returns true for `/dev/null`, under any name: it means no configuration.
pub(super) fn is_null_device(path: &Path) -> bool {
    /// Major number 1, minor number 3, on every Linux.
    const NULL_DEVICE: u64 = 0x103;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == NULL_DEVICE)
}

/// Returns the text of a regular file. Other kinds are not opened, because opening them may block forever.
pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
    text_if(path, |kind| kind == FileType::RegularFile)
}

/// Returns the text of a regular file or a pipe.
pub(super) fn text_of_file_or_pipe(path: &Path) -> Result<String, ConfigError> {
    text_if(path, |kind| matches!(kind, FileType::RegularFile | FileType::Fifo))
}

fn text_if(path: &Path, is_taken: impl Fn(FileType) -> bool) -> Result<String, ConfigError> {
    let unreadable = |error: &Error| ConfigError::unreadable(path, error);
    let found = find(path)?;
    if found.file_type().is_some_and(|kind| !is_taken(kind)) {
        return Err(unreadable(&Error::other("it is not a regular file")));
    }
    found.open().and_then(read_to_string).map_err(|error| unreadable(&error))
}

/// Checks who can write a configuration file or a directory above it, because they decide what is executed. Root accepts no
/// other user.
fn find(path: &Path) -> Result<TrustedPath, ConfigError> {
    let trust = if is_root() { Trust::OursAlone } else { Trust::NotEverybody };
    TrustedPath::find(path, trust).map_err(|problem| match problem {
        Untrusted::Unreadable { error, .. } => ConfigError::unreadable(path, &error),
        _ => ConfigError::new(path, format!("this file decides what is executed, and {problem}")),
    })
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::new(path, one_line(text, &error)))
}

/// Returns the line and the reason, without the quoted line: it may contain a password.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let reason = plain(&error.message().replace('\n', ", "), "a table");
    line.map_or_else(|| reason.clone(), |line| format!("line {line}: {reason}"))
}

/// Returns the reason for a part of a file whose line is not known.
pub(super) fn one_line_of_value(error: &toml::de::Error) -> String {
    plain(&error.message().replace('\n', ", "), "a table")
}

fn to_classes(path: &Path, tables: BTreeMap<String, ClassTable>) -> Result<Vec<ClassConfig>, ConfigError> {
    tables
        .into_iter()
        .map(|(name, table)| {
            let shown = name.clone();
            to_class(path, name, table)
                .map_err(|message| ConfigError::new(path, format!("class \"{shown}\": {message}")))
        })
        .collect()
}

fn to_class(path: &Path, name: String, table: ClassTable) -> Result<ClassConfig, String> {
    check_name(&name)?;
    check_argv(&table.argv)?;
    table.exists.as_deref().map_or(Ok(()), check_argv).map_err(|message| format!("exists: {message}"))?;
    if table.cwd.as_deref().is_some_and(|cwd| !cwd.is_absolute()) {
        return Err("cwd must be an absolute path".to_owned());
    }
    check_variables(table.env.keys().chain(&table.pass_env))?;
    check_user(table.user.as_deref())?;
    let confinement = Confinement {
        user: table.user,
        limits: to_limits(&table.limits)?,
        umask: table.umask.as_deref().map_or(Ok(DEFAULT_UMASK), to_umask)?,
        no_new_privileges: table.no_new_privileges.unwrap_or(true),
    };
    let coprocess = CoprocessKeys {
        start_timeout_secs: table.start_timeout_secs,
        max_runs: table.max_runs,
        max_age_secs: table.max_age_secs,
        max_rss_bytes: table.max_rss_bytes,
    };
    let timeout_secs = in_range("timeout_secs", table.timeout_secs, 1, MAX_TIMEOUT_SECS)?;
    let kill_grace_secs = in_range("kill_grace_secs", table.kill_grace_secs, 0, MAX_KILL_GRACE_SECS)?;
    let output_limit_bytes = in_range("output_limit_bytes", table.output_limit_bytes, 0, MAX_OUTPUT_LIMIT_BYTES)?;
    let backoff = table.backoff.map(|text| text.parse::<Backoff>()).transpose()?;
    let (low, high) = Setting::CrashLimit.range();
    let crash_limit = in_range("crash_limit", table.crash_limit, low, high)?;
    for pattern in &table.may_queue {
        check_characters(pattern).map_err(|message| format!("may_queue, \"{pattern}\": {message}"))?;
    }
    Ok(ClassConfig {
        name,
        argv: table.argv,
        protocol: Protocol::of_keys(table.protocol.as_deref(), &coprocess)?,
        cwd: table.cwd,
        env: table.env.into_iter().collect(),
        pass_env: table.pass_env,
        confinement,
        timeout: timeout_secs.map(seconds),
        kill_grace: seconds(kill_grace_secs.unwrap_or(DEFAULT_KILL_GRACE_SECS)),
        output_limit_bytes: usize::try_from(output_limit_bytes.unwrap_or(DEFAULT_OUTPUT_LIMIT_BYTES))
            .map_err(|error| error.to_string())?,
        exit_rules: to_exit_rules(table.exit)?,
        backoff,
        keeping: Keeping {
            task_secs: to_keep("keep", table.keep.as_deref())?,
            results_secs: to_keep("keep_results", table.keep_results.as_deref())?,
        },
        crash_limit: crash_limit.and_then(|limit| i32::try_from(limit).ok()),
        exists: table.exists,
        may_queue: table.may_queue.into_iter().map(ClassFilter::new).collect(),
        defined_in: path.to_owned(),
    })
}

fn to_keep(key: &str, text: Option<&str>) -> Result<Option<i32>, String> {
    let secs = text.map(parse_keep).transpose().map_err(|message| format!("{key}: {message}"))?;
    Ok(in_range(key, secs, 0, MAX_KEEP_SECS)?.and_then(|secs| i32::try_from(secs).ok()))
}

fn to_limits(table: &LimitsTable) -> Result<Limits, String> {
    let limit = |key: &str, value, low, high| {
        let value = in_range(key, value, low, high).map_err(|message| format!("limits: {message}"))?;
        Ok::<_, String>(value.map(i64::unsigned_abs))
    };
    Ok(Limits {
        cpu_secs: limit("cpu_secs", table.cpu_secs, 1, MAX_TIMEOUT_SECS)?,
        memory_bytes: limit("memory_bytes", table.memory_bytes, MIN_MEMORY_BYTES, MAX_LIMIT_BYTES)?,
        open_files: limit("open_files", table.open_files, MIN_OPEN_FILES, MAX_OPEN_FILES)?,
        processes: limit("processes", table.processes, 1, MAX_PROCESSES)?,
        file_size_bytes: limit("file_size_bytes", table.file_size_bytes, 0, MAX_LIMIT_BYTES)?,
    })
}

/// Parses an umask as chmod does: octal digits in a string. TOML rejects the number 077 and would read 77 as decimal.
fn to_umask(text: &str) -> Result<u32, String> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let umask = u32::from_str_radix(text, 8).ok().filter(|umask| is_octal && *umask <= 0o777);
    umask.ok_or_else(|| format!("umask is \"{text}\"; it must be three octal digits, \"000\" to \"777\""))
}

/// Converts a number of seconds whose range was checked before.
fn seconds(secs: i64) -> Duration {
    Duration::from_secs(secs.unsigned_abs())
}

fn check_name(name: &str) -> Result<(), String> {
    check_characters(name)?;
    if name == taskqueue_domain::task::task_class::EXEC_CLASS {
        return Err("this name is built in; [exec] enabled = true enables it".to_owned());
    }
    Ok(())
}

/// Checks the characters of a name or of a pattern.
fn check_characters(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_CLASS_LENGTH {
        return Err(format!("a name has 1 to {MAX_CLASS_LENGTH} characters"));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_.\\:-*?".contains(*c))) {
        Some(bad) => Err(format!("the character {bad:?} is not allowed in a name")),
        None => Ok(()),
    }
}

fn to_exit_rules(table: ExitTable) -> Result<ExitRules, String> {
    let mut rules = ExitRules::default();
    let meanings = [
        (table.success, ExitMeaning::Success),
        (table.retry, ExitMeaning::Retry),
        (table.no_retry, ExitMeaning::NoRetry),
        (table.hold, ExitMeaning::Hold),
        (table.release, ExitMeaning::Release),
    ];
    for (entries, meaning) in meanings {
        for entry in entries {
            let codes = match entry {
                ExitEntry::Code(code) => ExitCodes::new(code, code)?,
                ExitEntry::Range(range) => range.parse()?,
            };
            rules.add(codes, meaning)?;
        }
    }
    Ok(rules)
}
