//! `taskqueue schedule`

use chrono::{DateTime, Local, Utc};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected::selected_tasks;
use crate::commands::queueing::exec::{self, ExecArgs};
use crate::commands::queueing::schedule_file::{self, ApplyArgs, ImportCrontabArgs};
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::output::table::{Field, Tone, render_without_empty};
use crate::session::Session;
use taskqueue_domain::run::status::{ScheduleStatus, Stored};
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::unique::{OnConflict, check_key};
use taskqueue_domain::time::recurrence::Overlap;
use taskqueue_domain::time::when::parse_instant;
use taskqueue_engine::change::schedules::{self, Schedule, ScheduleDetail, ScheduleEdit};
use taskqueue_engine::queueing::queue::ClassCheck;
use taskqueue_engine::queueing::schedule_run;
use taskqueue_engine::{Context, EngineResult};
use taskqueue_views::human::{fitted_words, hanging, instant, relative};
use taskqueue_views::json::{Object, task_json};
use taskqueue_views::links::waits_for_key;
use taskqueue_views::words::what::what_of;

/// Manage recurring tasks
///
/// `taskqueue queue CLASS --every 'mon-fri 9:00' --tz ZONE` starts a schedule, and so does a table `[schedule.NAME]` of the
/// configuration. The id of its first task identifies the schedule. You can also give the id of any other of its tasks, or its name.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue schedule\n  taskqueue schedule add backup 'daily 3:00' -- /usr/local/bin/backup\n  taskqueue schedule pause 7 --for 7d\n  taskqueue schedule edit 7 --every 'mon-fri 7:00' --tz Europe/Berlin\n  taskqueue schedule run nightly\n  taskqueue schedule apply --dry-run"
)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    action: Option<ScheduleVerb>,
    #[command(flatten)]
    list: ListOptions,
}

const SCHEDULES: ListKind = ListKind {
    columns: &[
        "id",
        "class",
        "every",
        "time_zone",
        "catch_up",
        "overlap",
        "status",
        "task_id",
        "task_status",
        "planned_on",
        "problem",
    ],
    ids: &["id"],
};

#[derive(Debug, Subcommand)]
enum ScheduleVerb {
    /// List all schedules with their next times
    List(ListOptions),
    /// Start a schedule of a command, under a name that no schedule has
    Add(AddArgs),
    /// Show schedules with their next times and last tasks
    Show(NamedTarget),
    /// Pause schedules until they are resumed, or for a time; a run in progress continues
    Pause(PauseTarget),
    /// Resume schedules, and handle missed times as --catch-up states
    Resume(Target),
    /// Change the times of schedules
    Edit {
        #[command(flatten)]
        target: Target,
        /// New times: 15m, "mon-fri 9:00", "daily 3:00", @daily, or a cron expression
        #[arg(long, alias = "cron", value_name = "WHEN", required_unless_present_any = ["tz", "catch_up", "overlap"])]
        every: Option<String>,
        /// Time zone, like Europe/Berlin
        #[arg(long, value_name = "ZONE")]
        tz: Option<String>,
        /// How to handle missed times: none, latest, all
        #[arg(long, value_name = "WHICH")]
        catch_up: Option<String>,
        /// If a task has not finished when the next time comes: wait for it, or replace it
        #[arg(long, value_name = "WHAT")]
        overlap: Option<String>,
    },
    /// Remove schedules, and cancel their waiting tasks
    ///
    /// If a task of the schedule is in progress, it is the last one.
    Remove(Target),
    /// Queue the task of a schedule now, in addition to its planned times, and print its id
    ///
    /// The task is a copy that does not belong to the schedule. The next planned time does not change.
    Run {
        #[command(flatten)]
        named: NamedTarget,
        /// Accept a class that this host does not know; another host may know it
        #[arg(long)]
        any_class: bool,
    },
    /// Apply the tables `[schedule.NAME]` of the configuration now, even if another host has newer ones
    ///
    /// `tick`, `create-runs` and `work` apply them too, unless a file of another host was modified later.
    Apply(ApplyArgs),
    /// Show what the next `tick`, `create-runs` or `work` would change to match the configuration
    Diff,
    /// Print a crontab as tables `[schedule.NAME]` of the configuration
    ImportCrontab(ImportCrontabArgs),
}

#[derive(Debug, Args)]
struct NamedTarget {
    /// For each schedule: its name, the id of any of its tasks, or `last` for the task that was queued last
    #[arg(required = true, value_name = "SCHEDULE")]
    schedules: Vec<String>,
}

/// A command and its times.
#[derive(Debug, Args)]
struct AddArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    name: String,
    /// When it runs: "mon-fri 9:00", "daily 3:00", 15m, @daily, or a cron expression like "0 3 * * *"
    #[arg(value_name = "WHEN", required_unless_present = "every")]
    when: Option<String>,
    /// The same as WHEN
    #[arg(long, alias = "cron", value_name = "WHEN", conflicts_with = "when")]
    every: Option<String>,
    /// Time zone, like Europe/Berlin [default: your own, else UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// How to handle missed times: none, latest, all [default: latest]
    #[arg(long, value_name = "WHICH")]
    catch_up: Option<String>,
    /// If a task has not finished when the next time comes: wait for it, or replace it [default: wait]
    #[arg(long, value_name = "WHAT")]
    overlap: Option<String>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

impl AddArgs {
    fn exec_args(&self) -> anyhow::Result<ExecArgs> {
        let when = self.when.as_ref().or(self.every.as_ref());
        // The key also refuses a second schedule that is added at the same moment. Not every name can be a key.
        let key = Some(&self.name).filter(|name| check_key("unique key", name).is_ok());
        let on_conflict = OnConflict::Fail.to_string();
        let mut words: Vec<String> = Vec::new();
        let options = [
            ("--name", Some(&self.name)),
            ("--unique", key),
            ("--on-conflict", key.map(|_| &on_conflict)),
            ("--every", when),
            ("--tz", self.tz.as_ref()),
            ("--catch-up", self.catch_up.as_ref()),
            ("--overlap", self.overlap.as_ref()),
        ];
        words.extend(options.into_iter().filter_map(|(option, value)| Some(format!("{option}={}", value?))));
        words.push("--".to_owned());
        words.extend(self.argv.iter().cloned());
        Ok(ExecArgs::of(&words)?)
    }
}

/// Which schedules are paused, and for how long.
#[derive(Debug, Args)]
struct PauseTarget {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    time: PauseTime,
}

#[derive(Debug, Args)]
struct PauseTime {
    /// Skip the times of this period: 7d, 12h
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    duration: Option<String>,
    /// Skip the times before this one: "2026-12-01 08:00", "next monday"
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl PauseTime {
    fn until(&self, ctx: &mut Context) -> anyhow::Result<Option<DateTime<Utc>>> {
        let now = ctx.now()?.with_timezone(&Local);
        let of_duration = self.duration.as_deref().map(|text| ("--for", format!("+{text}")));
        let Some((option, text)) = of_duration.or_else(|| self.until.clone().map(|text| ("--until", text))) else {
            return Ok(None);
        };
        let until = parse_instant(&text, &now).map_err(|message| CliError::usage(format!("{option}: {message}")))?;
        if until <= now {
            return Err(CliError::usage(format!("{option}: this time has passed")).into());
        }
        Ok(Some(until))
    }
}

/// Which schedules are changed, and why.
#[derive(Debug, Args)]
struct Target {
    #[command(flatten)]
    named: NamedTarget,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &ScheduleArgs, out: &mut Out) -> anyhow::Result<u8> {
    let action = match &args.action {
        Some(ScheduleVerb::Add(args)) => return add(session, args, out),
        None => return list(&mut session.open_to_read(out)?, &args.list, out),
        Some(ScheduleVerb::List(options)) => {
            return list(&mut session.open_to_read(out)?, options.or(&args.list), out);
        }
        Some(action) => action,
    };
    args.list.refuse_without_list()?;
    let mut ctx = match action {
        ScheduleVerb::ImportCrontab(args) => return schedule_file::import_crontab(args, out).map(|()| DONE),
        ScheduleVerb::Apply(args) if !args.dry_run => session.open_or_make()?,
        ScheduleVerb::Show(_) | ScheduleVerb::Diff | ScheduleVerb::Apply(_) => session.open_to_read(out)?,
        _ => session.open()?,
    };
    let ctx = &mut ctx;
    match action {
        ScheduleVerb::List(_) | ScheduleVerb::Add(_) => Ok(DONE),
        ScheduleVerb::Show(named) => {
            let Some(ids) = named.ids(ctx, out)? else { return Ok(NOT_FOUND) };
            ids.iter().try_for_each(|id| show(ctx, *id, out)).map(|()| DONE)
        }
        ScheduleVerb::Pause(PauseTarget { target, time }) => match time.until(ctx)? {
            None => change(ctx, target, &schedules::pause, ("is paused", false), out),
            Some(until) => {
                let words = format!("skips its times until {}", instant(until));
                change(ctx, target, &|ctx, id| schedules::skip_until(ctx, id, until), (&words, true), out)
            }
        },
        ScheduleVerb::Resume(target) => change(ctx, target, &schedules::resume, ("is resumed", true), out),
        ScheduleVerb::Edit { target, every, tz, catch_up, overlap } => {
            let (catch_up, overlap) = (catch_up.clone(), overlap.clone());
            let edit = ScheduleEdit { every: every.clone(), time_zone: tz.clone(), catch_up, overlap };
            change(ctx, target, &|ctx, id| schedules::edit(ctx, id, &edit), ("is changed", true), out)
        }
        ScheduleVerb::Remove(target) => change(ctx, target, &schedules::remove, ("is removed", false), out),
        ScheduleVerb::Run { named, any_class } => run_now(ctx, named, *any_class, out),
        ScheduleVerb::Apply(args) => schedule_file::apply_file(ctx, args, out),
        ScheduleVerb::Diff => schedule_file::diff_file(ctx, out),
        ScheduleVerb::ImportCrontab(_) => Ok(DONE),
    }
}

fn add(session: Session, args: &AddArgs, out: &mut Out) -> anyhow::Result<u8> {
    let exec_args = args.exec_args()?;
    let mut ctx = session.open_or_make()?;
    if let Some(id) = live_schedule(&mut ctx, &args.name)? {
        let error = CliError::failed(format!("schedule {id} already has the name \"{}\"", args.name));
        return Err(error.with_hint(format!("taskqueue schedule show {id}")).into());
    }
    exec::queue_exec(&mut ctx, &exec_args, out)
}

/// Returns the schedule with this name that has not ended.
fn live_schedule(ctx: &mut Context, name: &str) -> EngineResult<Option<TaskId>> {
    let is_live = |schedule: &Schedule| {
        use ScheduleStatus::{Active, Broken, Paused};
        matches!(schedule.status, Stored::Known(Active | Paused | Broken))
    };
    let all = schedules::list(ctx)?;
    let found = all.iter().find(|schedule| schedule.name.as_deref() == Some(name) && is_live(schedule));
    Ok(found.map(|schedule| schedule.id))
}

fn run_now(ctx: &mut Context, named: &NamedTarget, any_class: bool, out: &mut Out) -> anyhow::Result<u8> {
    let Some(ids) = named.ids(ctx, out)? else { return Ok(NOT_FOUND) };
    let check = if any_class { ClassCheck::AnyName } else { ClassCheck::KnownHere };
    for id in ids {
        let task = schedule_run::run_now(ctx, id, check, None)?;
        if out.is_json() {
            out.json(&serde_json::json!({ "schema": "taskqueue.schedule-run/1", "schedule_id": id, "task_id": task }))?;
        } else {
            out.data(task.to_string())?;
            out.say(&format!("queued task {task}; the next planned time of schedule {id} does not change"));
        }
    }
    Ok(DONE)
}

impl NamedTarget {
    /// Returns the selected schedules; `None` if there are none, which only `last` allows.
    fn ids(&self, ctx: &mut Context, out: &mut Out) -> anyhow::Result<Option<Vec<TaskId>>> {
        let mut words = self.schedules.clone();
        for word in &mut words {
            // Anything else than an id, a range, a filter and `last` is a name, also the word for a status.
            let is_name = Selection::parse(&[word.as_str()]).map_or(true, |selection| !selection.statuses.is_empty());
            if is_name && !word.contains('=') {
                *word = schedules::named(ctx, word)?.to_string();
            }
        }
        let selection = Selection::parse(&words).map_err(CliError::usage)?;
        if !selection.is_named() {
            let error = CliError::usage("give the name of a schedule, the id of one of its tasks, or last");
            return Err(error.with_hint("taskqueue schedule list").into());
        }
        selected_tasks(ctx, &selection, out)
    }
}

/// Applies a change to one schedule after the other until one is refused. Reports each, and optionally the next time.
fn change(
    ctx: &mut Context,
    target: &Target,
    act: &dyn Fn(&mut Context, TaskId) -> EngineResult<Schedule>,
    (what, has_next): (&str, bool),
    out: &mut Out,
) -> anyhow::Result<u8> {
    let Some(ids) = target.named.ids(ctx, out)? else { return Ok(NOT_FOUND) };
    for id in &ids {
        let schedule = ctx.because(target.reason.text(), |ctx| act(ctx, *id))?;
        let now = has_next.then(|| ctx.now()).transpose()?;
        tell(&schedule, what, now, out)?;
        if let Some(words) = file_words(&schedule, what).filter(|_| !out.is_json()) {
            out.say(&words);
        }
    }
    Ok(DONE)
}

fn tell(schedule: &Schedule, what: &str, now: Option<DateTime<Utc>>, out: &mut Out) -> anyhow::Result<()> {
    out.json_if_asked(schedule)?;
    let next = match (now, schedule.planned_on) {
        (Some(_), _) if schedule.key_holder.is_some() => format!(", {}", note(schedule)),
        (Some(now), Some(on)) => format!(", next {} ({})", instant(on), relative(on, now)),
        _ => String::new(),
    };
    out.say(&format!("schedule {} {what}{next}", schedule.id));
    Ok(())
}

/// Returns a note for a schedule that comes from a file.
fn file_words(schedule: &Schedule, what: &str) -> Option<String> {
    let (file, name) = (schedule.file.as_ref()?, schedule.name.as_deref().unwrap_or_default());
    match what {
        "is changed" => {
            Some(format!("[schedule.{name}] in {file} has other values; taskqueue applies them when the file changes"))
        }
        "is removed" => Some(format!("it stays removed until [schedule.{name}] in {file} changes")),
        _ => None,
    }
}

fn list(ctx: &mut Context, options: &ListOptions, out: &mut Out) -> anyhow::Result<u8> {
    let listing = Listing::of(options, &SCHEDULES, out)?;
    let all = schedules::list(ctx)?;
    if !print_for_programs(listing, &all, out)? {
        show_list(ctx, &all, out)?;
    }
    Ok(DONE)
}

fn show_list(ctx: &mut Context, all: &[Schedule], out: &mut Out) -> anyhow::Result<()> {
    if all.is_empty() {
        let none = "No schedules. Create one: taskqueue queue CLASS --every 'daily 3:00' --tz Europe/Berlin";
        return out.data(fitted_words(none, out.width()));
    }
    let now = ctx.now()?;
    let rows = all.iter().map(|schedule| row(schedule, now)).collect();
    let header = ["SCHEDULE", "CLASS", "WHAT", "EVERY", "ZONE", "CATCH-UP", "STATUS", "TASK", "PLANNED", "NOTE"];
    out.data(render_without_empty(out, &header, rows, &[5, 7, 4], 2))
}

fn row(schedule: &Schedule, now: DateTime<Utc>) -> Vec<Field> {
    let tone = match schedule.status {
        Stored::Known(ScheduleStatus::Active) => Tone::Good,
        Stored::Known(ScheduleStatus::Paused) => Tone::Waiting,
        Stored::Known(ScheduleStatus::Broken) | Stored::Unknown(_) => Tone::Bad,
        Stored::Known(ScheduleStatus::Followed | ScheduleStatus::Ended) => Tone::Quiet,
    };
    vec![
        schedule.id.to_string().into(),
        schedule.class.as_str().into(),
        what(schedule).into(),
        schedule.every.as_str().into(),
        schedule.time_zone.as_str().into(),
        schedule.catch_up.as_str().into(),
        Field::toned(schedule.status.to_string(), tone),
        format!("{} {}", schedule.task_id, schedule.task_status).into(),
        schedule.planned_on.map_or_else(|| "-".to_owned(), |on| planned(on, now)).into(),
        note(schedule).into(),
    ]
}

/// Returns its overlap, unless that is the default.
fn unless_default(schedule: &Schedule) -> Option<&str> {
    Some(schedule.overlap.as_str()).filter(|overlap| *overlap != Overlap::default().as_str())
}

fn what(schedule: &Schedule) -> String {
    what_of(schedule.name.as_deref(), &schedule.class, &schedule.data)
}

/// Returns what prevents its next task.
fn note(schedule: &Schedule) -> String {
    schedule.problem.clone().or_else(|| schedule.key_holder.map(waits_for_key)).unwrap_or_default()
}

fn planned(on: DateTime<Utc>, now: DateTime<Utc>) -> String {
    format!("{} ({})", instant(on), relative(on, now))
}

fn show(ctx: &mut Context, id: TaskId, out: &mut Out) -> anyhow::Result<()> {
    let Some(detail) = schedules::show(ctx, id)? else {
        return Err(schedules::no_schedule(id).into());
    };
    let now = ctx.now()?;
    if out.is_json() {
        let tasks: Vec<Object> = detail.tasks.iter().map(task_json).collect();
        let shown = json!({
            "schema": "taskqueue.schedule/1", "now": now, "schedule": detail.schedule, "next_times": detail.next_times,
        });
        return out.json(&Object::of(&shown).with("tasks", &tasks));
    }
    out.data(block(&detail, now, out.width()))
}

fn block(detail: &ScheduleDetail, now: DateTime<Utc>, width: Option<u16>) -> String {
    let schedule = &detail.schedule;
    let whole = |line: String| fitted_words(&clean_line(&line), width);
    let told = |label: &str, what: &str| hanging(&format!("  {label:<13}"), &clean_line(what), width);
    let mut lines = vec![
        whole(format!("schedule {}   {}   {}", schedule.id, schedule.class, schedule.status)),
        told("does", &what(schedule)),
        told("every", &format!("{} in {}", schedule.every, schedule.time_zone)),
        told("catch-up", &schedule.catch_up.to_string()),
    ];
    lines.extend(unless_default(schedule).map(|overlap| told("overlap", overlap)));
    lines.extend(schedule.file.iter().map(|file| told("file", file)));
    if schedule.problem.is_some() || schedule.key_holder.is_some() {
        lines.push(told("problem", &note(schedule)));
    }
    lines.extend(detail.next_times.iter().map(|on| told("next", &planned(*on, now))));
    lines.extend(detail.tasks.iter().map(|task| whole(task_line(task, now))));
    lines.join("\n")
}

fn task_line(task: &Task, now: DateTime<Utc>) -> String {
    let on = task.schedule.as_ref().and_then(|schedule| schedule.planned_on);
    let planned = on.map_or_else(|| "not planned".to_owned(), |on| planned(on, now));
    format!("task {}   {}   {planned}", task.id, task.status)
}
