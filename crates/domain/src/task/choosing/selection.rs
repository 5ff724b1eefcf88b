//! Selections of tasks as users write them: ids, ranges, `last`, and filters. Every command uses this syntax.
//!
//! Ids, ranges and `last` add up. Filters with different keys must all match; of filters with the same key, one must match.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use wildmatch::WildMatch;

use crate::run::status::TaskStatus;
use crate::task::choosing::data_filter::{DataFilter, Since};
use crate::task::ids::TaskId;
use crate::task::name::check_name;
use crate::task::unique::check_key;
use crate::text::nearest::nearest_names;
use crate::time::when::parse_duration;

/// The filter keys.
pub const FILTER_KEYS: [&str; 14] = [
    "class", "status", "by", "error", "schedule", "key", "tag", "name", "parent", "older", "newer", "since", META_KEY,
    DATA_KEY,
];
/// The filter key for metadata, where NAME is the name of the value.
const META_KEY: &str = "meta.NAME";
/// The filter key for a value in the data.
const DATA_KEY: &str = "data.NAME";

/// A place in the order of a page: by id; or by the time since which tasks are over, and then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// The task.
    pub id: TaskId,
    /// Its time, if that determines the order.
    pub over_on: Option<DateTime<Utc>>,
}

impl PagePlace {
    /// Returns the place of a task in the order of the ids.
    #[must_use]
    pub const fn of(id: TaskId) -> Self {
        Self { id, over_on: None }
    }

    /// Returns the place of a task that is over since this time.
    #[must_use]
    pub const fn over(id: TaskId, on: DateTime<Utc>) -> Self {
        Self { id, over_on: Some(on) }
    }
}

/// Where a page of tasks begins, and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// Newest first: all tasks are before this place.
    Before(PagePlace),
    /// Oldest first: all tasks are after this place.
    After(PagePlace),
}

impl PageStart {
    /// Newest first, from the newest task on.
    pub const NEWEST: Self = Self::Before(PagePlace::of(TaskId(i64::MAX)));
    /// Oldest first, from the oldest task on.
    pub const OLDEST: Self = Self::After(PagePlace::of(TaskId(i64::MIN)));

    /// Returns the start of the page after one that ends with this task.
    #[must_use]
    pub const fn continued(self, last: PagePlace) -> Self {
        match self {
            Self::Before(_) => Self::Before(last),
            Self::After(_) => Self::After(last),
        }
    }

    /// Returns the place.
    #[must_use]
    pub const fn place(self) -> PagePlace {
        let (Self::Before(place) | Self::After(place)) = self;
        place
    }
}

/// A selection of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Single ids, in the given order.
    pub ids: Vec<TaskId>,
    /// Ranges, both ends included.
    pub ranges: Vec<(TaskId, TaskId)>,
    /// Whether it includes the task that was queued last.
    pub has_last: bool,
    /// One of these classes; empty means all.
    pub classes: Vec<ClassFilter>,
    /// One of these statuses; empty means all.
    pub statuses: Vec<StatusFilter>,
    /// Queued by one of these; empty means all.
    pub queued_by: Vec<String>,
    /// Failed, and the last failed attempt has one of these error codes; empty means all.
    pub errors: Vec<String>,
    /// Part of one of these schedules, each given by its first task; empty means all tasks, also those without a schedule.
    pub schedules: Vec<TaskId>,
    /// With one of these unique keys, taken or not; empty means all tasks, also those without a key.
    pub unique_keys: Vec<String>,
    /// With one of these tags; empty means all tasks, also those without a tag.
    pub tags: Vec<String>,
    /// With one of these names; empty means all tasks, also those without a name.
    pub names: Vec<String>,
    /// Queued by the handler of one of these tasks; empty means all tasks.
    pub parents: Vec<TaskId>,
    /// Names and values of metadata: for each name, one of its values must match; empty means all.
    pub meta: Vec<(String, String)>,
    /// The data of the task matches all of these; empty means all.
    pub data: Vec<DataFilter>,
    /// The row has changed since this time.
    pub since: Option<Since>,
    /// Queued more than this many seconds ago.
    pub older_secs: Option<i64>,
    /// Queued less than this many seconds ago.
    pub newer_secs: Option<i64>,
}

/// A class, or a pattern with `*` and `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFilter(String);

impl ClassFilter {
    /// Returns a filter for exactly this name, or for all names that match this pattern.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns true if it is a name without `*` and `?`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// Returns the name or pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the class matches.
    #[must_use]
    pub fn matches(&self, class: &str) -> bool {
        if self.is_exact() { self.0 == class } else { WildMatch::new(&self.0).matches(class) }
    }
}

/// A status by which tasks are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// LastStatus has this value.
    Is(TaskStatus),
    /// Failed or timed out, and no retry is left.
    Exhausted,
    /// Crashed too often.
    Quarantined,
    /// Not finished and not being processed.
    Waiting,
    /// Due, without a run.
    Due,
}

impl StatusFilter {
    /// The values of `status=` other than the statuses of tasks.
    pub const OTHER_WORDS: [&str; 4] = ["exhausted", "quarantined", "waiting", "due"];

    fn allowed(&self) -> &[TaskStatus] {
        match self {
            Self::Is(status) => std::slice::from_ref(status),
            Self::Exhausted | Self::Quarantined => &[TaskStatus::Failed, TaskStatus::Timeout],
            Self::Waiting | Self::Due => &[TaskStatus::Scheduled, TaskStatus::Failed, TaskStatus::Timeout],
        }
    }
}

impl FromStr for StatusFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "exhausted" => Ok(Self::Exhausted),
            "quarantined" => Ok(Self::Quarantined),
            "waiting" => Ok(Self::Waiting),
            "due" => Ok(Self::Due),
            "running" => Ok(Self::Is(TaskStatus::Processing)),
            _ => TaskStatus::parse(text).map(Self::Is).ok_or_else(|| {
                let known = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
                format!("\"{text}\" is not a status; the statuses are {known}, exhausted, quarantined, waiting and due")
            }),
        }
    }
}

impl Selection {
    /// Parses the words of a selection.
    ///
    /// # Errors
    /// Which word cannot be parsed, as a sentence without a full stop.
    pub fn parse<Word: AsRef<str>>(words: &[Word]) -> Result<Self, String> {
        let mut selection = Self::default();
        for word in words {
            selection.add(word.as_ref())?;
        }
        if selection == Self::default() {
            return Err("the selection is empty".to_owned());
        }
        Ok(selection)
    }

    /// Returns a selection of exactly these tasks.
    #[must_use]
    pub fn of_ids(ids: &[TaskId]) -> Self {
        Self { ids: ids.to_vec(), ..Self::default() }
    }

    /// Returns true if it names each task individually, so that their number is no surprise.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.ranges.is_empty() && !self.has_filter()
    }

    /// Returns true if it has a filter.
    #[must_use]
    pub fn has_filter(&self) -> bool {
        let (ids, ranges) = (self.ids.clone(), self.ranges.clone());
        *self != Self { ids, ranges, has_last: self.has_last, ..Self::default() }
    }

    /// Returns true if it selects by id, so that only these tasks can match.
    #[must_use]
    pub fn has_ids(&self) -> bool {
        self.has_last || !self.ids.is_empty() || !self.ranges.is_empty()
    }

    /// Restricts the selection to these statuses, unless it has ids or statuses already. Most tasks of a store are finished; with
    /// statuses, an index skips them.
    pub fn narrow_to(&mut self, statuses: &[TaskStatus]) {
        if self.has_ids() || !self.statuses.is_empty() {
            return;
        }
        // A task that has not failed has no error, even if an earlier attempt failed.
        let is_failure = |status: &TaskStatus| matches!(status, TaskStatus::Failed | TaskStatus::Timeout);
        let may_be = |status: &TaskStatus| self.errors.is_empty() || is_failure(status);
        self.statuses = statuses.iter().copied().filter(may_be).map(StatusFilter::Is).collect();
    }

    /// Returns the statuses to which the selection is restricted; empty if it is not.
    #[must_use]
    pub fn allowed_statuses(&self) -> Vec<TaskStatus> {
        self.status_filters().iter().flat_map(StatusFilter::allowed).copied().collect()
    }

    /// Returns the statuses, or those of failed tasks if there are error codes only: other tasks have none. Empty if tasks of
    /// every status can match.
    #[must_use]
    pub fn status_filters(&self) -> Vec<StatusFilter> {
        if self.statuses.is_empty() && !self.errors.is_empty() {
            return [TaskStatus::Failed, TaskStatus::Timeout].map(StatusFilter::Is).to_vec();
        }
        self.statuses.clone()
    }

    /// Returns the statuses if nothing else selects, and all of them mean that a task is over: an index has such tasks in the order
    /// of that time.
    #[must_use]
    pub fn ended_statuses(&self) -> Option<Vec<TaskStatus>> {
        let end = |filter: &StatusFilter| match filter {
            StatusFilter::Is(end @ (TaskStatus::Success | TaskStatus::Cancelled | TaskStatus::Expired)) => Some(*end),
            _ => None,
        };
        let ends: Option<Vec<TaskStatus>> = self.statuses.iter().map(end).collect();
        ends.filter(|_| self.has_only_statuses())
    }

    /// Returns true if it has statuses, and nothing else selects.
    #[must_use]
    pub fn has_only_statuses(&self) -> bool {
        !self.statuses.is_empty() && *self == Self { statuses: self.statuses.clone(), ..Self::default() }
    }

    fn add(&mut self, word: &str) -> Result<(), String> {
        if word.contains('\0') {
            return Err("a selection cannot contain the character U+0000, which PostgreSQL cannot store".to_owned());
        }
        if let Some(text) = word.strip_prefix("data~").filter(|text| !text.is_empty()) {
            self.data.push(DataFilter::Contains(text.to_owned()));
            return Ok(());
        }
        if let Some((key, value)) = word.split_once('=') {
            return self.add_filter(key, value);
        }
        if word == "last" {
            self.has_last = true;
        } else if let Ok(status) = word.parse() {
            self.statuses.push(status);
        } else if let Some((first, last)) = word.split_once('-').filter(|(first, _)| !first.is_empty()) {
            let range = (first.parse::<TaskId>(), last.parse::<TaskId>());
            match range {
                (Ok(first), Ok(last)) if first <= last => self.ranges.push((first, last)),
                (Ok(_), Ok(_)) => return Err(format!("the range \"{word}\" ends before it begins")),
                _ => return Err(not_understood(word)),
            }
        } else {
            self.ids.push(word.parse().map_err(|_| not_understood(word))?);
        }
        Ok(())
    }

    fn add_filter(&mut self, key: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err(format!("\"{key}=\" has no value"));
        }
        if let Some(name) = key.strip_prefix("meta.") {
            if name.is_empty() {
                return Err(format!("\"{key}=\" names no metadata; write meta.order=17"));
            }
            self.meta.push((name.to_owned(), value.to_owned()));
            return Ok(());
        }
        if let Some(path) = key.strip_prefix("data.") {
            self.data.push(DataFilter::value(path, value)?);
            return Ok(());
        }
        match key {
            "class" => self.classes.push(ClassFilter::new(value)),
            "status" => self.statuses.push(value.parse()?),
            "by" => self.queued_by.push(value.to_owned()),
            "error" => self.errors.push(value.to_owned()),
            "schedule" => self.schedules.push(value.parse()?),
            "key" => {
                check_key("unique key", value)?;
                self.unique_keys.push(value.to_owned());
            }
            "tag" => {
                check_key("tag", value)?;
                self.tags.push(value.to_owned());
            }
            "name" => {
                check_name(value)?;
                self.names.push(value.to_owned());
            }
            "parent" => self.parents.push(value.parse()?),
            "since" => self.since = Some(value.parse()?),
            "older" => {
                let secs = whole_secs(value)?;
                self.older_secs = Some(self.older_secs.map_or(secs, |other| other.min(secs)));
            }
            "newer" => {
                let secs = whole_secs(value)?;
                self.newer_secs = Some(self.newer_secs.map_or(secs, |other| other.max(secs)));
            }
            "data" => {
                return Err("write data.NAME=VALUE for a value in the data, or data~TEXT for any text in it".to_owned());
            }
            _ => return Err(unknown_key(key, value)),
        }
        Ok(())
    }
}

fn whole_secs(text: &str) -> Result<i64, String> {
    i64::try_from(parse_duration(text)?.as_secs()).map_err(|_| format!("\"{text}\" is too long"))
}

/// A key may be misspelt, or be a name in the data.
fn unknown_key(key: &str, value: &str) -> String {
    let of_data = format!("data.{key}={value} selects by the data");
    let meant = match nearest_names(key, FILTER_KEYS).first() {
        Some(nearest) => format!("did you mean {nearest}={value}? {of_data}"),
        None => of_data,
    };
    format!("\"{key}\" is not a key of a filter; {meant}, and the keys are {}, and data~TEXT", FILTER_KEYS.join(", "))
}

fn not_understood(word: &str) -> String {
    format!(
        "\"{word}\" is not a selection; write an id (12), a range (5-9), last, a status (failed), or a filter (class=mail.*, \
         since=1d, data~TEXT)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Selection, String> {
        Selection::parse(&words.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn ids_ranges_and_last_add_up() {
        let selection = parse("12 5-9 last 3").unwrap();
        assert_eq!(selection.ids, [TaskId(12), TaskId(3)]);
        assert_eq!(selection.ranges, [(TaskId(5), TaskId(9))]);
        assert!(selection.has_last && selection.has_ids() && !selection.is_named() && !selection.has_filter());
        assert!(parse("12 last").unwrap().is_named());
    }

    #[test]
    fn a_key_that_stands_there_twice_means_either() {
        let selection =
            parse("class=mail.* class=a status=failed status=due older=2d older=1d newer=1h newer=2h").unwrap();
        assert_eq!(selection.classes, [ClassFilter::new("mail.*"), ClassFilter::new("a")]);
        assert_eq!(selection.statuses, [StatusFilter::Is(TaskStatus::Failed), StatusFilter::Due]);
        assert_eq!((selection.older_secs, selection.newer_secs), (Some(86_400), Some(7_200)));
        assert!(selection.has_filter() && !selection.has_ids() && !selection.is_named());
    }

    #[test]
    fn a_schedule_is_named_by_its_first_task_and_a_key_to_the_byte() {
        let selection =
            parse("schedule=7 schedule=12 key=order-17 key=a=b tag=account-17 name=nightly parent=3").unwrap();
        assert_eq!(selection.schedules, [TaskId(7), TaskId(12)]);
        assert_eq!(selection.unique_keys, ["order-17", "a=b"]);
        assert_eq!(selection.tags, ["account-17"]);
        assert_eq!(selection.names, ["nightly"]);
        assert_eq!(selection.parents, [TaskId(3)]);
        for words in ["schedule=7", "key=order-17", "tag=account-17", "name=nightly", "parent=3"] {
            let selection = parse(words).unwrap();
            assert!(selection.has_filter() && !selection.has_ids() && !selection.is_named(), "{words}");
        }
    }

    #[test]
    fn what_a_verb_cannot_act_on_is_left_out_where_nobody_has_named_it() {
        let of = |words: &str, statuses: &[TaskStatus]| {
            let mut selection = parse(words).unwrap();
            selection.narrow_to(statuses);
            selection.statuses
        };
        let (scheduled, failed) = (TaskStatus::Scheduled, TaskStatus::Failed);
        assert_eq!(of("by=ann", &[scheduled, failed]), [StatusFilter::Is(scheduled), StatusFilter::Is(failed)]);
        assert_eq!(of("by=ann error=exit:1", &[scheduled, failed]), [StatusFilter::Is(failed)]);
        assert_eq!(of("by=ann status=due", &[scheduled]), [StatusFilter::Due]);
        assert!(of("older=1h", &[]).is_empty());
        for named in ["7", "1-9 by=ann", "last class=a"] {
            assert!(of(named, &[scheduled]).is_empty(), "{named}");
            assert!(parse(named).unwrap().allowed_statuses().is_empty(), "{named}");
        }
        let allowed = parse("status=exhausted status=success").unwrap().allowed_statuses();
        assert_eq!(allowed, [failed, TaskStatus::Timeout, TaskStatus::Success]);
        // A task that has succeeded since has no error any more.
        for words in ["1-9 error=exit:1", "7 error=exit:1", "error=exit:1"] {
            assert_eq!(parse(words).unwrap().allowed_statuses(), [failed, TaskStatus::Timeout], "{words}");
        }
    }

    #[test]
    fn metadata_is_named_with_its_value() {
        let selection = parse("meta.order=17 meta.a.b=x=y").unwrap();
        let named = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(selection.meta, [named("order", "17"), named("a.b", "x=y")]);
        assert!(selection.has_filter() && !selection.has_ids() && !selection.is_named());
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        assert!(ClassFilter::new("mail.*").matches("mail.send") && !ClassFilter::new("mail.*").matches("email.send"));
        assert!(ClassFilter::new("a").matches("a") && !ClassFilter::new("a").matches("ab"));
    }

    #[test]
    fn what_selects_nothing_is_refused_by_name() {
        for (words, part) in [
            ("", "is empty"),
            ("by=a\0", "U+0000"),
            ("data~\0", "U+0000"),
            ("data.a=\0", "U+0000"),
            ("class=\0 error=a", "U+0000"),
            ("meta.a\0=7", "U+0000"),
            ("0", "\"0\" is not a selection"),
            ("-5", "\"-5\" is not a selection"),
            ("5-", "\"5-\" is not a selection"),
            ("9-5", "ends before it begins"),
            ("newest", "\"newest\" is not a selection"),
            ("status=done", "\"done\" is not a status"),
            ("class=", "has no value"),
            ("colour=red", "\"colour\" is not a key"),
            ("clas=mail", "did you mean class=mail? data.clas=mail selects by the data"),
            ("order=17", "data.order=17 selects by the data"),
            ("older=5", "\"5\" has no unit; write 5s"),
            ("schedule=daily", "\"daily\" is not an id"),
            ("schedule=0", "\"0\" is not an id"),
            ("key=", "has no value"),
            ("tag=Zo\u{eb}", "printable ASCII"),
            ("meta.=7", "names no metadata"),
            ("meta=7", "\"meta\" is not a key"),
            ("parent=0", "\"0\" is not an id"),
            (format!("key={}", "x".repeat(191)).as_str(), "191 characters"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
