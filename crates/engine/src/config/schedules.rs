//! The tables `[schedule.NAME]`: recurring tasks that a file states. A table that cannot be read does not affect the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde::Deserialize;
use serde_json::{Map, json};
use toml::{Table, Value};

use super::ConfigError;
use super::document::Document;
use taskqueue_domain::run::retention::parse_keep;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::name::check_schedule_name;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_domain::text::parse_words::plain;
use taskqueue_domain::time::recurrence::{CatchUp, Overlap, Recurrence};

/// A file that has not changed for so long is written completely.
const COMPLETE_AFTER: Duration = Duration::from_secs(10);

/// Reads the schedules of the configuration, again each time.
pub type ScheduleReader = Arc<dyn Fn() -> Result<Schedules, ConfigError> + Send + Sync>;

/// The schedules of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Schedules {
    /// The path of the main file; `None` without a file.
    pub path: Option<PathBuf>,
    /// When the file that was modified last was modified, of all files of the configuration. `None` for a pipe.
    pub modified_on: Option<DateTime<Utc>>,
    /// Whether a file may still be written, so that a table is perhaps missing only for a moment.
    pub may_lack_tables: bool,
    /// One entry per table, by name.
    pub entries: BTreeMap<String, ScheduleEntry>,
}

/// A schedule of a file.
#[derive(Clone, Debug)]
pub struct ScheduleEntry {
    /// Its first task, or what is wrong with the table.
    pub request: Result<TaskRequest, String>,
    /// When its file was modified; `None` for a pipe.
    pub modified_on: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct ScheduleTable {
    class: String,
    every: String,
    tz: Option<String>,
    catch_up: Option<String>,
    overlap: Option<String>,
    data: Option<Value>,
    priority: Option<i64>,
    timeout_secs: Option<i64>,
    max_retries: Option<i64>,
    backoff: Option<String>,
    limit_key: Option<String>,
    tag: Option<String>,
    keep: Option<String>,
    keep_results: Option<String>,
    meta: Option<Table>,
}

/// The keys of a table.
const KEYS: [&str; 15] = [
    "class",
    "every",
    "tz",
    "catch_up",
    "overlap",
    "data",
    "priority",
    "timeout_secs",
    "max_retries",
    "backoff",
    "limit_key",
    "tag",
    "keep",
    "keep_results",
    "meta",
];

impl Schedules {
    /// Adds the tables of a file. A name that another file has is a mistake of this one.
    pub(super) fn add(&mut self, path: &Path, tables: BTreeMap<String, Value>, document: &mut Document<'_>) {
        let modified_on = self.look_at(path);
        for (name, table) in tables {
            if self.entries.contains_key(&name) {
                document.note_in(&["schedule", &name], &format!("schedule \"{name}\" is defined twice"));
                continue;
            }
            let request = request(&name, table);
            self.entries.insert(name, ScheduleEntry { request, modified_on });
        }
    }

    /// Counts a directory as one of the files: a file that was deleted changed it.
    pub(super) fn add_directory(&mut self, path: &Path) {
        self.look_at(path);
    }

    /// Returns when a file was modified, as precisely as the database stores it; `None` for a pipe.
    fn look_at(&mut self, path: &Path) -> Option<DateTime<Utc>> {
        let found = path.metadata().ok().filter(|found| found.is_file() || found.is_dir())?;
        let modified = found.modified().ok()?;
        // An editor may truncate a file before it writes it, and a full disk leaves it empty. A time in the future is none.
        let is_complete =
            modified.elapsed().is_ok_and(|age| age >= COMPLETE_AFTER) && (found.is_dir() || found.len() > 0);
        self.may_lack_tables |= !is_complete;
        let modified_on = Some(DateTime::<Utc>::from(modified).trunc_subsecs(6));
        self.modified_on = self.modified_on.max(modified_on);
        modified_on
    }
}

fn request(name: &str, table: Value) -> Result<TaskRequest, String> {
    check_schedule_name(name)?;
    let Value::Table(keys) = &table else { return Err("it must be a table".to_owned()) };
    if let Some(unknown) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let nearest = nearest_names(unknown, KEYS).first().map(|key| format!("; did you mean \"{key}\"?"));
        return Err(format!("unknown key \"{unknown}\"{}", nearest.unwrap_or_default()));
    }
    let table: ScheduleTable =
        table.try_into().map_err(|error| plain(&error.message().replace('\n', ", "), "a table"))?;
    let keep = |key: &str, text: Option<String>| {
        text.map(|text| parse_keep(&text)).transpose().map_err(|message| format!("{key}: {message}"))
    };
    // UTC, and not the zone of the host: hosts with the same file may be in different zones.
    let recurrence = Recurrence::from_phrase(
        &table.every,
        table.tz.as_deref().unwrap_or("UTC"),
        table.catch_up.as_deref().unwrap_or(CatchUp::default().as_str()),
    )?
    .with_overlap(table.overlap.as_deref().unwrap_or(Overlap::default().as_str()))?;
    Ok(TaskRequest {
        class: table.class,
        data: table.data.map(data).transpose().map_err(|message| format!("data: {message}"))?,
        priority: table.priority,
        timeout_secs: table.timeout_secs,
        max_retries: table.max_retries,
        backoff: table.backoff,
        limit_key: table.limit_key,
        tag: table.tag,
        name: Some(name.to_owned()),
        keep_secs: keep("keep", table.keep)?,
        keep_results_secs: keep("keep_results", table.keep_results)?,
        meta: table.meta.map(meta).transpose().map_err(|message| format!("meta: {message}"))?.unwrap_or_default(),
        every: Some(recurrence.every().to_owned()),
        time_zone: Some(recurrence.zone().to_owned()),
        catch_up: Some(recurrence.catch_up().to_string()),
        overlap: Some(recurrence.overlap()).filter(|overlap| *overlap != Overlap::default()).map(|it| it.to_string()),
        ..TaskRequest::default()
    })
}

/// Returns the data of a task. A text is JSON, as on a command line; other values become JSON.
fn data(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Ok(to_json(other)?.to_string()),
    }
}

fn meta(table: Table) -> Result<Meta, String> {
    Meta::parse(&to_json(Value::Table(table))?.to_string())
}

fn to_json(value: Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        Value::String(text) => json!(text),
        Value::Integer(number) => json!(number),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Boolean(flag) => json!(flag),
        Value::Array(items) => items.into_iter().map(to_json).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| Ok((key, to_json(value)?)));
            entries.collect::<Result<Map<_, _>, String>>()?.into()
        }
        Value::Float(number) => return Err(format!("JSON has no number {number}")),
        // JSON has no times.
        Value::Datetime(time) => json!(time.to_string()),
    })
}

/// Returns the values of a schedule as JSON, to compare them with those that were applied last.
pub(crate) fn definition(request: &TaskRequest) -> String {
    let all = [
        ("class", json!(request.class)),
        ("every", json!(request.every)),
        ("tz", json!(request.time_zone)),
        ("catch_up", json!(request.catch_up)),
        ("overlap", json!(request.overlap)),
        ("data", json!(request.data)),
        ("priority", json!(request.priority)),
        ("timeout_secs", json!(request.timeout_secs)),
        ("max_retries", json!(request.max_retries)),
        ("backoff", json!(request.backoff)),
        ("limit_key", json!(request.limit_key)),
        ("tag", json!(request.tag)),
        ("keep_secs", json!(request.keep_secs)),
        ("keep_results_secs", json!(request.keep_results_secs)),
        ("meta", if request.meta.is_empty() { serde_json::Value::Null } else { json!(request.meta.to_string()) }),
    ];
    let set = all.into_iter().filter(|(_, value)| !value.is_null());
    let sorted: BTreeMap<&str, serde_json::Value> = set.collect();
    json!(sorted).to_string()
}

/// Returns the keys whose values differ between two definitions.
pub(crate) fn changed_keys(before: &str, after: &str) -> Vec<String> {
    let read = |text: &str| serde_json::from_str::<Map<String, serde_json::Value>>(text).unwrap_or_default();
    let (before, after) = (read(before), read(after));
    let mut keys: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| before.get(key) != after.get(key));
    keys
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TaskRequest, String> {
        request("nightly", Value::Table(text.parse().unwrap()))
    }

    #[test]
    fn a_table_states_a_task_and_its_times() {
        let request = read(
            "class = \"mail\"\nevery = \"0  3 * * *\"\ndata = { to = \"ann\" }\nkeep = \"7d\"\nmeta = { order = 17 }",
        )
        .unwrap();
        assert_eq!((request.data.as_deref(), request.time_zone.as_deref()), (Some("{\"to\":\"ann\"}"), Some("UTC")));
        assert_eq!((request.every.as_deref(), request.keep_secs), (Some("0 3 * * *"), Some(604_800)));
        assert_eq!((request.name.as_deref(), request.meta.to_string().as_str()), (Some("nightly"), "{\"order\":17}"));
        assert_eq!(read("class = \"a\"\nevery = \"@daily\"\ndata = '[1]'").unwrap().data.as_deref(), Some("[1]"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, why) in [
            ("class = \"a\"\nevry = \"@daily\"", "unknown key \"evry\"; did you mean \"every\"?"),
            ("class = \"a\"", "missing field `every`"),
            ("class = \"a\"\nevery = \"someday\"", "someday"),
            ("class = \"a\"\nevery = \"@daily\"\ntz = \"Berlin\"", "not a time zone"),
            ("class = \"a\"\nevery = \"@daily\"\noverlap = \"skip\"", "write wait or replace"),
            ("class = \"a\"\nevery = \"@daily\"\noverlap = \"replace\"\ncatch_up = \"all\"", "exclude each other"),
            ("class = \"a\"\nevery = \"@daily\"\ndata = { most = inf }", "JSON has no number inf"),
            ("class = \"a\"\nevery = \"@daily\"\npriority = \"high\"", "expected a whole number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
        assert!(request(" a", Value::Table(Table::new())).is_err());
    }

    #[test]
    fn a_definition_has_what_is_set_and_tells_what_changed() {
        let before = definition(&read("class = \"a\"\nevery = \"@daily\"").unwrap());
        assert_eq!(before, "{\"catch_up\":\"latest\",\"class\":\"a\",\"every\":\"@daily\",\"tz\":\"UTC\"}");
        let after = definition(&read("class = \"a\"\nevery = \"@hourly\"\npriority = 5").unwrap());
        assert_eq!(changed_keys(&before, &after), ["every", "priority"]);
    }
}
