//! `schedule apply` and `schedule diff`, and what `tick`, `create-runs` and a worker do with the schedules of their configuration.

use std::collections::BTreeSet;
use std::path::absolute;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::config::{ScheduleEntry, Schedules, changed_keys, definition};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::queueing::queue::ClassCheck;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::configured::{Applier, ConfiguredSchedule, ScheduleFile, Verdict, verdict};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, TaskRequest};
use taskqueue_store::WantedSchedule;

/// What is done with a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleAction {
    /// It is created.
    Created,
    /// It is changed.
    Changed,
    /// It is removed, because it is gone from its file.
    Removed,
    /// It is as the file states.
    #[default]
    Unchanged,
    /// Another file, which was modified later, states something else.
    OtherFile,
    /// An operator removed it; it stays removed until its table in the file changes.
    StaysRemoved,
    /// It is not in this file, and comes from another one.
    NotInFile,
    /// Its table cannot be read, or its task cannot be queued.
    Invalid,
}

/// A schedule of a file, and what is done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AppliedSchedule {
    /// Its name.
    pub name: String,
    /// What is done.
    pub action: ScheduleAction,
    /// The schedule, if there is one.
    pub schedule_id: Option<TaskId>,
    /// The keys of its table that differ from what was applied last.
    pub changed: Vec<String>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// The host of the file that was applied last, if it is not this file.
    pub other_host: Option<String>,
    /// The path of that file.
    pub other_file: Option<String>,
    /// When that file was modified.
    pub other_modified_on: Option<DateTime<Utc>>,
}

impl AppliedSchedule {
    fn new(name: &str, action: ScheduleAction) -> Self {
        Self { name: name.to_owned(), action, ..Self::default() }
    }

    fn invalid(name: &str, problem: String) -> Self {
        Self { problem: Some(problem), ..Self::new(name, ScheduleAction::Invalid) }
    }

    /// Adds what the row states, and its file if that is not `file`.
    fn beside(mut self, row: Option<&ConfiguredSchedule>, file: &ScheduleFile, definition: &str) -> Self {
        let Some(row) = row else { return self };
        self.schedule_id = self.schedule_id.or(row.schedule_id);
        if let Some(before) = &row.definition {
            self.changed = changed_keys(before, definition);
        }
        if !row.is_of(file) {
            self.other_host = Some(row.host.clone());
            self.other_file = Some(row.file.clone());
            self.other_modified_on = Some(row.configured_on);
        }
        self
    }

    /// Returns true if something changed or has to be repaired.
    fn is_worth_telling(&self) -> bool {
        use ScheduleAction::{Changed, Created, Invalid, Removed};
        matches!(self.action, Created | Changed | Removed | Invalid)
    }
}

/// What a person applies.
#[derive(Clone, Debug, Default)]
pub struct ApplyChoice {
    /// Only these schedules; empty means all.
    pub names: Vec<String>,
    /// Whether schedules that are in no table of this file are removed, from whichever file they come.
    pub prunes: bool,
    /// Whether nothing is changed.
    pub is_dry_run: bool,
}

/// Applies the schedules of the configuration, whenever its files were modified. Returns one entry per schedule.
///
/// # Errors
/// Returns [`EngineError::Input`] if the configuration cannot be read or has no schedule of a given name, or an error if the
/// database fails.
pub fn apply(ctx: &mut Context, choice: &ApplyChoice) -> EngineResult<Vec<AppliedSchedule>> {
    let schedules = read(ctx)?;
    if let Some(unknown) = choice.names.iter().find(|name| !schedules.entries.contains_key(*name)) {
        return Err(EngineError::Input(format!("the configuration has no [schedule.{unknown}]")));
    }
    let applier = if choice.names.is_empty() { Applier::Person } else { Applier::PersonByName };
    let mut pass = Pass::begin(ctx, &schedules, applier)?;
    pass.is_dry_run = choice.is_dry_run;
    let mut applied =
        pass.entries(ctx, |name| choice.names.is_empty() || choice.names.iter().any(|known| known == name))?;
    if choice.names.is_empty() {
        applied.extend(pass.gone(ctx, choice.prunes)?);
    }
    Ok(applied)
}

/// Returns what the next `tick`, `create-runs` or worker with this configuration would do, once its files are complete.
///
/// # Errors
/// Returns [`EngineError::Input`] if the configuration cannot be read, or an error if the database fails.
pub fn diff(ctx: &mut Context) -> EngineResult<Vec<AppliedSchedule>> {
    let schedules = read(ctx)?;
    let mut pass = Pass::begin(ctx, &schedules, Applier::Program)?;
    pass.is_dry_run = true;
    let mut found = pass.entries(ctx, |_| true)?;
    found.extend(pass.gone(ctx, false)?);
    Ok(found)
}

/// Applies the schedules of the configuration, as far as no newer file states something else. Removes none while a file may still
/// be written. Returns what changed and what is invalid. Executes no statement if `may_be_gone` is false and there are no
/// schedules; without a value, it asks the database.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn apply_configured(ctx: &mut Context, may_be_gone: Option<bool>) -> EngineResult<Vec<AppliedSchedule>> {
    let Some(reader) = ctx.schedule_reader.clone() else { return Ok(Vec::new()) };
    let schedules = match reader() {
        Ok(schedules) => schedules,
        Err(error) => return Ok(vec![AppliedSchedule::invalid("", error.to_string())]),
    };
    if schedules.entries.is_empty() && !may_be_gone.map_or_else(|| ctx.store.has_configured_schedules(), Ok)? {
        return Ok(Vec::new());
    }
    let mut pass = Pass::begin(ctx, &schedules, Applier::Program)?;
    let mut applied = pass.entries(ctx, |_| true)?;
    if !schedules.may_lack_tables {
        applied.extend(pass.gone(ctx, false)?);
    }
    applied.retain(AppliedSchedule::is_worth_telling);
    Ok(applied)
}

fn read(ctx: &Context) -> EngineResult<Schedules> {
    let Some(reader) = ctx.schedule_reader.clone() else { return Ok(Schedules::default()) };
    reader().map_err(|error| EngineError::Input(error.to_string()))
}

/// Turns the refusal of one statement by the database into a problem of this schedule: it must not stop the others.
fn or_invalid(name: &str, applied: EngineResult<AppliedSchedule>) -> EngineResult<AppliedSchedule> {
    match applied {
        Err(EngineError::Store(error)) if error.is_refusal() => Ok(AppliedSchedule::invalid(name, error.to_string())),
        applied => applied,
    }
}

/// One pass over the schedules of a file.
struct Pass<'a> {
    schedules: &'a Schedules,
    rows: Vec<ConfiguredSchedule>,
    /// The schedules that exist and were not removed; read only if they are shown.
    live: Option<BTreeSet<TaskId>>,
    settings: Settings,
    now: DateTime<Utc>,
    applier: Applier,
    is_dry_run: bool,
}

impl<'a> Pass<'a> {
    fn begin(ctx: &mut Context, schedules: &'a Schedules, applier: Applier) -> EngineResult<Self> {
        let rows = ctx.store.list_configured_schedules()?;
        let (settings, now) = (ctx.store.recent_settings()?, ctx.store.now()?);
        Ok(Self { schedules, rows, live: None, settings, now, applier, is_dry_run: false })
    }

    fn row(&self, name: &str) -> Option<&ConfiguredSchedule> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the file of an entry; a pipe counts as modified now.
    fn file(&self, ctx: &Context, modified_on: Option<DateTime<Utc>>) -> ScheduleFile {
        let path = self.schedules.path.as_deref().unwrap_or(std::path::Path::new(""));
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = path.to_string_lossy().into_owned();
        ScheduleFile { host: ctx.me.host.clone(), path, modified_on: modified_on.unwrap_or(self.now) }
    }

    fn entries(&mut self, ctx: &mut Context, is_chosen: impl Fn(&str) -> bool) -> EngineResult<Vec<AppliedSchedule>> {
        let schedules = self.schedules;
        let mut applied = Vec::new();
        for (name, entry) in schedules.entries.iter().filter(|(name, _)| is_chosen(name)) {
            applied.push(match &entry.request {
                Err(problem) => AppliedSchedule::invalid(name, problem.clone()),
                Ok(request) => or_invalid(name, self.entry(ctx, name, entry, request))?,
            });
        }
        Ok(applied)
    }

    fn entry(
        &mut self,
        ctx: &mut Context,
        name: &str,
        entry: &ScheduleEntry,
        request: &TaskRequest,
    ) -> EngineResult<AppliedSchedule> {
        let file = self.file(ctx, entry.modified_on);
        let definition = definition(request);
        // What was applied already needs no statement, unless its details are to be shown.
        let is_known = self.row(name).is_some_and(|row| row.definition.as_deref() == Some(&definition));
        if is_known && self.applier == Applier::Program && !self.is_dry_run {
            return Ok(AppliedSchedule::new(name, ScheduleAction::Unchanged));
        }
        let task = match self.task(ctx, request) {
            Err(error) => return Ok(AppliedSchedule::invalid(name, error.to_string())),
            Ok(task) => task,
        };
        let (what, schedule_id) = if self.is_dry_run {
            let is_live = self.is_live(ctx, name, &task)?;
            (verdict(self.row(name), is_live, &definition, &file, self.now, self.applier), None)
        } else {
            let event = ctx.operator_event("schedule-edited", serde_json::json!({ "name": name, "file": file.path }));
            let wanted =
                WantedSchedule { name, definition: &definition, task: &task, file: &file, applier: self.applier };
            let done = ctx.store.configure_schedule(&wanted, &event)?;
            fault_point!("configure.committed");
            done
        };
        let action = match what {
            Verdict::Create => ScheduleAction::Created,
            Verdict::Change => ScheduleAction::Changed,
            Verdict::Unchanged => ScheduleAction::Unchanged,
            Verdict::Older => ScheduleAction::OtherFile,
            Verdict::Removed => ScheduleAction::StaysRemoved,
        };
        let applied = AppliedSchedule { schedule_id, ..AppliedSchedule::new(name, action) };
        Ok(applied.beside(self.row(name), &file, &definition))
    }

    /// Returns the first task of a schedule, with its first planned time.
    fn task(&self, ctx: &Context, request: &TaskRequest) -> EngineResult<NewTask> {
        let request = TaskRequest { queued_by: ctx.me.user.clone(), ..request.clone() };
        let task = ctx.admission(ClassCheck::KnownHere).check(request, &self.settings)?;
        task.planned(self.now).map_err(EngineError::Input)
    }

    fn is_live(&mut self, ctx: &mut Context, name: &str, task: &NewTask) -> EngineResult<bool> {
        let Some(row) = self.row(name).cloned() else {
            let named = ctx.store.list_schedules_named(name)?;
            return Ok(named.iter().filter(|head| head.class.as_str() == task.class.as_str()).count() == 1);
        };
        if self.live.is_none() {
            let heads = ctx.store.list_schedules()?;
            self.live = Some(heads.into_iter().filter_map(|head| head.schedule).map(|schedule| schedule.id).collect());
        }
        Ok(row.schedule_id.is_some_and(|id| self.live.as_ref().is_some_and(|live| live.contains(&id))))
    }

    /// Removes what is gone from this file, or, with `prunes`, whatever is not in it.
    fn gone(&mut self, ctx: &mut Context, prunes: bool) -> EngineResult<Vec<AppliedSchedule>> {
        let file = self.file(ctx, self.schedules.modified_on);
        let mut gone = Vec::new();
        for row in &self.rows {
            if row.definition.is_none() || self.schedules.entries.contains_key(&row.name) {
                continue;
            }
            let is_removed = match prunes || row.is_of(&file) && self.schedules.path.is_some() {
                false => false,
                true if self.is_dry_run => true,
                true => {
                    let details = serde_json::json!({ "name": row.name, "file": file.path });
                    let event = ctx.operator_event("schedule-removed", details);
                    match ctx.store.unconfigure_schedule(&row.name, &file, prunes, &event) {
                        Err(error) if error.is_refusal() => {
                            gone.push(AppliedSchedule::invalid(&row.name, error.to_string()));
                            continue;
                        }
                        removed => removed?,
                    }
                }
            };
            let action = if is_removed { ScheduleAction::Removed } else { ScheduleAction::NotInFile };
            let entry = AppliedSchedule { schedule_id: row.schedule_id, ..AppliedSchedule::new(&row.name, action) };
            gone.push(AppliedSchedule { changed: Vec::new(), ..entry.beside(Some(row), &file, "") });
        }
        Ok(gone)
    }
}
