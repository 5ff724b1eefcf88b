//! Schedules of configuration files: which host applies its file, if several hosts have different ones.
//!
//! The file that was modified last wins. A host therefore applies its file only if it is newer than the file that was applied
//! last, or if it is the same file, which then was changed since. Hosts with different files do not undo each other's changes.

use chrono::{DateTime, Utc};

use super::ids::TaskId;

/// A row of TaskQueueSchedules: a schedule that a file configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredSchedule {
    /// Its name.
    pub name: String,
    /// The schedule.
    pub schedule_id: Option<TaskId>,
    /// The configured values as JSON; `None` once it is gone from its file.
    pub definition: Option<String>,
    /// When the file was modified.
    pub configured_on: DateTime<Utc>,
    /// The host of the file.
    pub host: String,
    /// The path of the file.
    pub file: String,
}

impl ConfiguredSchedule {
    /// Returns true if it comes from this file.
    #[must_use]
    pub fn is_of(&self, file: &ScheduleFile) -> bool {
        self.host == file.host && self.file == file.path
    }
}

/// A configuration file with schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleFile {
    /// The host that reads it.
    pub host: String,
    /// Its path.
    pub path: String,
    /// When it was modified.
    pub modified_on: DateTime<Utc>,
}

impl ScheduleFile {
    /// Returns true if it was modified after the file of the row. A time in the future proves nothing: two hosts with such files
    /// would overwrite each other until then.
    #[must_use]
    pub fn is_newer_than(&self, row: &ConfiguredSchedule, now: DateTime<Utc>) -> bool {
        self.modified_on <= now && self.modified_on > row.configured_on
    }
}

/// Who applies a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applier {
    /// `tick`, `create-runs` or a worker.
    Program,
    /// A person: the times of the files do not count.
    Person,
    /// A person who named this schedule: it is created again even if an operator removed it.
    PersonByName,
}

/// What is done with a schedule of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is created.
    Create,
    /// The existing schedule is changed.
    Change,
    /// It is as the file states.
    Unchanged,
    /// Another file, which was modified later, states something else.
    Older,
    /// An operator removed it; it stays removed until its table in the file changes.
    Removed,
}

/// Decides about a schedule of a file. `is_live` is whether the schedule of the row exists and was not removed.
#[must_use]
pub fn verdict(
    row: Option<&ConfiguredSchedule>,
    is_live: bool,
    definition: &str,
    file: &ScheduleFile,
    now: DateTime<Utc>,
    applier: Applier,
) -> Verdict {
    let Some(row) = row else { return if is_live { Verdict::Change } else { Verdict::Create } };
    let wins = applier != Applier::Program || row.is_of(file) || file.is_newer_than(row, now);
    match &row.definition {
        Some(known) if known == definition && is_live => Verdict::Unchanged,
        Some(known) if known == definition && applier != Applier::PersonByName => Verdict::Removed,
        _ if !wins => Verdict::Older,
        Some(_) if is_live => Verdict::Change,
        _ => Verdict::Create,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(minute: u32) -> DateTime<Utc> {
        format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap()
    }

    fn file(host: &str, minute: u32) -> ScheduleFile {
        ScheduleFile { host: host.to_owned(), path: "/etc/t.toml".to_owned(), modified_on: at(minute) }
    }

    fn row(host: &str, definition: Option<&str>, minute: u32) -> ConfiguredSchedule {
        ConfiguredSchedule {
            name: "n".to_owned(),
            schedule_id: None,
            definition: definition.map(str::to_owned),
            configured_on: at(minute),
            host: host.to_owned(),
            file: "/etc/t.toml".to_owned(),
        }
    }

    #[test]
    fn the_newer_file_wins_and_the_older_one_changes_nothing() {
        let of = |row: &ConfiguredSchedule, file: &ScheduleFile| {
            verdict(Some(row), true, "new", file, at(30), Applier::Program)
        };
        let known = row("a", Some("old"), 10);
        assert_eq!(of(&known, &file("b", 11)), Verdict::Change);
        assert_eq!(of(&known, &file("b", 10)), Verdict::Older);
        assert_eq!(of(&known, &file("b", 9)), Verdict::Older);
        assert_eq!(of(&known, &file("b", 31)), Verdict::Older, "a time in the future");
        assert_eq!(of(&known, &file("a", 9)), Verdict::Change, "the same file, put back");
        assert_eq!(of(&row("a", Some("new"), 10), &file("b", 9)), Verdict::Unchanged);
        assert_eq!(verdict(Some(&known), true, "new", &file("b", 9), at(30), Applier::Person), Verdict::Change);
    }

    #[test]
    fn a_removed_schedule_stays_removed_until_its_definition_changes() {
        let known = row("a", Some("old"), 10);
        let of = |definition, applier| verdict(Some(&known), false, definition, &file("a", 20), at(30), applier);
        assert_eq!(of("old", Applier::Program), Verdict::Removed);
        assert_eq!(of("old", Applier::Person), Verdict::Removed);
        assert_eq!(of("old", Applier::PersonByName), Verdict::Create);
        assert_eq!(of("new", Applier::Program), Verdict::Create);
    }

    #[test]
    fn what_is_gone_from_the_newer_file_does_not_come_back_from_the_older_one() {
        let gone = row("a", None, 10);
        let of = |file: &ScheduleFile| verdict(Some(&gone), false, "old", file, at(30), Applier::Program);
        assert_eq!(of(&file("b", 9)), Verdict::Older);
        assert_eq!(of(&file("b", 11)), Verdict::Create);
        assert_eq!(of(&file("a", 9)), Verdict::Create, "it is in the same file again");
        assert_eq!(verdict(None, false, "old", &file("b", 9), at(30), Applier::Program), Verdict::Create);
        assert_eq!(verdict(None, true, "old", &file("b", 9), at(30), Applier::Program), Verdict::Change, "adopted");
    }
}
