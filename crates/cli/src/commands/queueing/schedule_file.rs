//! `taskqueue schedule apply`, `diff` and `import-crontab`: schedules as configuration.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::commands::options::local_zone::local_zone;
use crate::commands::options::reason::ReasonArgs;
use crate::error::{DONE, FAILED};
use crate::output::Out;
use taskqueue_engine::Context;
use taskqueue_engine::config::{CrontabContext, from_crontab, with_home};
use taskqueue_engine::queueing::configured::{self, AppliedSchedule, ApplyChoice, ScheduleAction};
use taskqueue_views::human::instant;

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Apply only these schedules, and create them again if an operator removed them
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Also remove schedules that came from a configuration file, but are in no file of this host
    #[arg(long, conflicts_with = "names")]
    prune: bool,
    /// Only print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportCrontabArgs {
    /// The crontab, `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Each line names a user between times and command [default: only in files below /etc]
    #[arg(long)]
    system: bool,
}

pub(crate) fn apply_file(ctx: &mut Context, args: &ApplyArgs, out: &mut Out) -> anyhow::Result<u8> {
    let choice = ApplyChoice { names: args.names.clone(), prunes: args.prune, is_dry_run: args.dry_run };
    let applied = ctx.because(args.reason.text(), |ctx| configured::apply(ctx, &choice))?;
    print(&applied, args.dry_run, out)
}

pub(crate) fn diff_file(ctx: &mut Context, out: &mut Out) -> anyhow::Result<u8> {
    let found = configured::diff(ctx)?;
    print(&found, true, out)
}

/// Prints one line per schedule. Schedules that cannot be applied are a failure.
fn print(applied: &[AppliedSchedule], would: bool, out: &mut Out) -> anyhow::Result<u8> {
    for schedule in applied {
        out.json_or(schedule, applied_words(schedule, would))?;
    }
    if applied.is_empty() {
        out.say("the configuration has no [schedule.NAME]");
    }
    let has_invalid = applied.iter().any(|schedule| schedule.action == ScheduleAction::Invalid);
    Ok(if has_invalid { FAILED } else { DONE })
}

/// Describes what is done with a schedule; `would`: what would be done.
pub(crate) fn applied_words(schedule: &AppliedSchedule, would: bool) -> String {
    let is = if would { "would be" } else { "is" };
    let id = schedule.schedule_id.map(|id| format!(" (schedule {id})")).unwrap_or_default();
    let changed = match schedule.changed.is_empty() {
        true => String::new(),
        false => format!(": {}", schedule.changed.join(", ")),
    };
    let other = || {
        let host = schedule.other_host.as_deref().unwrap_or("this host");
        let on = schedule.other_modified_on.map(|on| format!(", modified {}", instant(on))).unwrap_or_default();
        format!("{} of {host}{on}", schedule.other_file.as_deref().unwrap_or("its file"))
    };
    let what = match schedule.action {
        ScheduleAction::Created => format!("{is} created{id}"),
        ScheduleAction::Changed => format!("{is} changed{id}{changed}"),
        ScheduleAction::Removed => format!("{is} removed{id}: it is gone from the configuration"),
        ScheduleAction::Unchanged => format!("is as configured{id}"),
        ScheduleAction::OtherFile => format!("stays as in {}, which is newer than the file here{changed}", other()),
        ScheduleAction::StaysRemoved => {
            format!(
                "stays removed: an operator removed it; `taskqueue schedule apply {}` creates it again",
                schedule.name
            )
        }
        ScheduleAction::NotInFile => format!("comes from {}, and is not in the file here{id}", other()),
        ScheduleAction::Invalid => format!("is invalid: {}", schedule.problem.as_deref().unwrap_or_default()),
    };
    if schedule.name.is_empty() { format!("the configuration {what}") } else { format!("{} {what}", schedule.name) }
}

pub(crate) fn import_crontab(args: &ImportCrontabArgs, out: &mut Out) -> anyhow::Result<()> {
    let mut text = Vec::new();
    if args.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut text)?;
    } else {
        let mut file =
            std::fs::File::open(&args.file).with_context(|| format!("cannot open {}", args.file.display()))?;
        file.read_to_end(&mut text).with_context(|| format!("cannot read {}", args.file.display()))?;
    }
    let has_users = args.system || args.file.starts_with("/etc");
    let home = with_home("~/");
    let home = Some(home.trim_end_matches('/')).filter(|home| home.starts_with('/') && !has_users);
    let context = CrontabContext { zone: local_zone(), home: home.map(str::to_owned), has_users };
    out.data(from_crontab(&String::from_utf8_lossy(&text), &context).trim_end())
}
