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
use super::document::Document;
use super::protocol::{Protocol, ProtocolKeys};
use super::schedules::Schedules;
use super::web::{WebTable, hidden_data, web_tokens, web_users};
use super::{Config, ConfigError};
use crate::handler::command::{CommandHandler, CommandSource};
use taskqueue_domain::limits::confinement::{Confinement, DEFAULT_UMASK, Limits};
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::exit_rules::{ExitCodes, ExitMeaning, ExitRules};
use taskqueue_domain::run::retention::{Keeping, MAX_KEEP_SECS, parse_keep};
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::new_task::MAX_TIMEOUT_SECS;
use taskqueue_domain::task::task_class::{EXEC_CLASS, check_class_pattern};
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

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MainFile {
    database: Option<String>,
    spool: Option<PathBuf>,
    user: Option<String>,
    stop_wait_secs: Option<i64>,
    connect_wait_secs: Option<i64>,
    work_slots: Option<i64>,
    metrics: Option<String>,
    exec: ExecTable,
    notify: Option<NotifyTable>,
    hooks: HooksTable,
    class: BTreeMap<String, ClassTable>,
    schedule: BTreeMap<String, toml::Value>,
    web: WebTable,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartFile {
    class: BTreeMap<String, ClassTable>,
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
#[serde(default, deny_unknown_fields)]
struct ExitTable {
    success: Vec<ExitEntry>,
    retry: Vec<ExitEntry>,
    no_retry: Vec<ExitEntry>,
    hold: Vec<ExitEntry>,
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
/// Returns everything that is wrong, with the line and the column of each.
pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let mut document = Document::parse(text);
    let config = document.read().map(|file| to_config(path, file, &mut document));
    document.finish(path, config)
}

fn to_config(path: &Path, file: MainFile, document: &mut Document<'_>) -> Config {
    if file.spool.as_deref().is_some_and(|spool| !spool.is_absolute()) {
        document.note(&["spool"], "spool must be an absolute path");
    }
    document.check(&["user"], check_user(file.user.as_deref()));
    let mut number = |key: &'static str, value, low, high| document.check(&[key], in_range(key, value, low, high));
    let stop_wait_secs = number("stop_wait_secs", file.stop_wait_secs, 0, MAX_STOP_WAIT_SECS);
    let connect_wait_secs = number("connect_wait_secs", file.connect_wait_secs, 0, MAX_CONNECT_WAIT_SECS);
    let (low, high) = Setting::RunnerLimit.range();
    let work_slots = number("work_slots", file.work_slots, low, high);
    let metrics = file.metrics.as_deref().map(str::parse::<ListenAddress>).transpose();
    let metrics = document.check(&["metrics"], metrics.map_err(|message| format!("metrics: {message}")));
    let announcements = document.check(&[], Announcements::from_tables(file.notify, file.hooks, file.user.as_deref()));
    let mut classes = Classes::default();
    add_classes(path, file.class, &mut classes, document);
    let mut schedules = Schedules { path: Some(path.to_owned()), ..Schedules::default() };
    schedules.add(path, file.schedule, document);
    Config {
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
        web_hidden_data: hidden_data(&file.web, document),
        web_users: web_users(&file.web, document),
        web_tokens: web_tokens(file.web, document),
    }
}

/// Adds the classes and the schedules of a file of `conf.d`.
pub(super) fn add_part(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let text = text_of(path)?;
    let mut document = Document::parse(&text);
    let read = document.read().map(|file: PartFile| {
        add_classes(path, file.class, &mut config.classes, &mut document);
        config.schedules.add(path, file.schedule, &mut document);
    });
    document.finish(path, read)
}

fn add_classes(path: &Path, tables: BTreeMap<String, ClassTable>, classes: &mut Classes, document: &mut Document<'_>) {
    for (name, table) in tables {
        let class = to_class(path, &name, table, document);
        // Its own name is in the message.
        if let Err(message) = classes.add(class) {
            document.note_in(&["class", &name], &message);
        }
    }
}

/// Returns the directory `conf.d` beside the main file, which may not exist.
pub(super) fn parts_directory(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).join("conf.d")
}

/// Returns the files of `conf.d` beside the main file, sorted by name.
pub(super) fn parts_beside(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let directory = parts_directory(path);
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

fn to_class(path: &Path, name: &str, table: ClassTable, document: &mut Document<'_>) -> ClassConfig {
    let class = ["class", name];
    let protocol = Protocol::of(&ProtocolKeys {
        protocol: table.protocol.as_deref(),
        start_timeout_secs: table.start_timeout_secs,
        max_runs: table.max_runs,
        max_age_secs: table.max_age_secs,
        max_rss_bytes: table.max_rss_bytes,
    });
    document.check(&class, check_name(name));
    document.check(&["class", name, "argv"], check_argv(&table.argv));
    let exists = table.exists.as_deref().map_or(Ok(()), check_argv);
    document.check(&class, exists.map_err(|message| format!("exists: {message}")));
    if table.cwd.as_deref().is_some_and(|cwd| !cwd.is_absolute()) {
        document.note(&class, "cwd must be an absolute path");
    }
    document.check(&["class", name, "env"], check_variables(table.env.keys()));
    document.check(&["class", name, "pass_env"], check_variables(&table.pass_env));
    document.check(&["class", name, "user"], check_user(table.user.as_deref()));
    let confinement = Confinement {
        user: table.user,
        limits: to_limits(&table.limits, |checked| document.check(&class, checked)),
        umask: document.check(&class, table.umask.as_deref().map_or(Ok(DEFAULT_UMASK), to_umask)),
        no_new_privileges: table.no_new_privileges.unwrap_or(true),
    };
    let mut number = |key: &str, value, low, high| document.check(&class, in_range(key, value, low, high));
    let timeout_secs = number("timeout_secs", table.timeout_secs, 1, MAX_TIMEOUT_SECS);
    let kill_grace_secs = number("kill_grace_secs", table.kill_grace_secs, 0, MAX_KILL_GRACE_SECS);
    let output_limit_bytes = number("output_limit_bytes", table.output_limit_bytes, 0, MAX_OUTPUT_LIMIT_BYTES);
    let (low, high) = Setting::CrashLimit.range();
    let crash_limit = number("crash_limit", table.crash_limit, low, high);
    for pattern in &table.may_queue {
        let checked = check_class_pattern(pattern).map_err(|message| format!("may_queue, \"{pattern}\": {message}"));
        document.check(&class, checked);
    }
    let backoff = table.backoff.map(|text| text.parse::<Backoff>()).transpose();
    ClassConfig {
        name: name.to_owned(),
        command: CommandHandler {
            argv: table.argv,
            source: CommandSource::Configuration,
            // The result must not depend on the directory in which cron or a user started this program.
            cwd: Some(table.cwd.unwrap_or_else(|| "/".into())),
            env: table.env.into_iter().collect(),
            pass_env: table.pass_env,
            confinement,
            kill_grace: seconds(kill_grace_secs.unwrap_or(DEFAULT_KILL_GRACE_SECS)),
            // The range was checked.
            output_limit_bytes: usize::try_from(output_limit_bytes.unwrap_or(DEFAULT_OUTPUT_LIMIT_BYTES))
                .unwrap_or_default(),
        },
        protocol: document.check(&class, protocol),
        timeout: timeout_secs.map(seconds),
        exit_rules: document.check(&["class", name, "exit"], to_exit_rules(table.exit)),
        backoff: document.check(&["class", name, "backoff"], backoff),
        keeping: Keeping {
            task_secs: document.check(&class, to_keep("keep", table.keep.as_deref())),
            results_secs: document.check(&class, to_keep("keep_results", table.keep_results.as_deref())),
        },
        crash_limit: crash_limit.and_then(|limit| i32::try_from(limit).ok()),
        exists: table.exists,
        may_queue: table.may_queue.into_iter().map(ClassFilter::new).collect(),
        defined_in: path.to_owned(),
    }
}

fn to_keep(key: &str, text: Option<&str>) -> Result<Option<i32>, String> {
    let secs = text.map(parse_keep).transpose().map_err(|message| format!("{key}: {message}"))?;
    Ok(in_range(key, secs, 0, MAX_KEEP_SECS)?.and_then(|secs| i32::try_from(secs).ok()))
}

fn to_limits(table: &LimitsTable, mut check: impl FnMut(Result<Option<i64>, String>) -> Option<i64>) -> Limits {
    let mut limit = |key: &str, value, low, high| {
        check(in_range(key, value, low, high).map_err(|message| format!("limits: {message}"))).map(i64::unsigned_abs)
    };
    Limits {
        cpu_secs: limit("cpu_secs", table.cpu_secs, 1, MAX_TIMEOUT_SECS),
        memory_bytes: limit("memory_bytes", table.memory_bytes, MIN_MEMORY_BYTES, MAX_LIMIT_BYTES),
        open_files: limit("open_files", table.open_files, MIN_OPEN_FILES, MAX_OPEN_FILES),
        processes: limit("processes", table.processes, 1, MAX_PROCESSES),
        file_size_bytes: limit("file_size_bytes", table.file_size_bytes, 0, MAX_LIMIT_BYTES),
    }
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
    check_class_pattern(name)?;
    if name == EXEC_CLASS {
        return Err("this name is built in; [exec] enabled = true enables it".to_owned());
    }
    Ok(())
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
