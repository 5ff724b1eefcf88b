//! `taskqueue edit`

use chrono::{DateTime, Utc};
use clap::Args;

use crate::commands::options::attempt_options::AttemptOptions;
use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SelectedArgs};
use crate::commands::queueing::queue::read_data;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::run::retention::parse_keep;
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_engine::change::edit::{Edit, edit_tasks, editable, preview_edit};
use taskqueue_engine::queueing::queue::timeout_secs;

/// Removes a value, so that the class or the settings apply, if they have one.
const NONE: &str = "none";
const EXPIRES_HELP: &str = "Do not start the task at or after this time: a time like that of --at, or a duration after \
    its own time, or after now if that has passed; none: it does not expire";
const TIMEOUT_HELP: &str =
    "Time an attempt may run without reporting before it times out: 90s, 2h; none: that of the class";
const BACKOFF_HELP: &str =
    "Delays before retries: exponential:10s..1h, fixed:30s or list:10s,1m,10m; none: those of the class";

const KEEP_HELP: &str = "Keep the task for this time after it finishes: 12h, 7d, or forever; none: that of the class";
const KEEP_RESULTS_HELP: &str =
    "Keep the results of each run for this time after its end: 1d, or forever; none: that of the class";
const META_HELP: &str = "Metadata to set; KEY= removes that name; may be given more than once";

/// Change the data, time, priority and other values of tasks
///
/// If a task is being processed, the change applies to its next attempt. A waiting run gets the new priority, and is released if
/// the new time is in the future.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue edit 4711 '{\"to\":\"ann\"}'\n  taskqueue edit 4711 --priority 5 --in 2h\n  taskqueue edit class=mail.* status=waiting --timeout 10m --dry-run"
)]
#[command(mut_arg("expires", |arg| arg.help(EXPIRES_HELP)))]
#[command(mut_arg("max_retries", |arg| arg.help("Failed attempts after which the task is exhausted")))]
#[command(mut_arg("timeout", |arg| arg.help(TIMEOUT_HELP)))]
#[command(mut_arg("backoff", |arg| arg.help(BACKOFF_HELP)))]
#[command(mut_arg("keep", |arg| arg.help(KEEP_HELP)))]
#[command(mut_arg("keep_results", |arg| arg.help(KEEP_RESULTS_HELP)))]
#[command(mut_arg("meta", |arg| arg.help(META_HELP)))]
pub(crate) struct EditArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    /// New data: JSON text, `-` for standard input, or `@FILE`; an object or a list can also be the last argument
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    #[command(flatten)]
    attempts: AttemptOptions,
    /// Change the task only if this is still its updated_on, as `status --json` prints it
    #[arg(long, value_name = "TIME", value_parser = instant)]
    if_updated_on: Option<DateTime<Utc>>,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl EditArgs {
    /// Splits data off that stands after the selection, as after the class of `queue`. No word of a selection begins like it.
    fn selected_and_data(&self) -> (SelectedArgs, Option<&str>) {
        let mut selected = self.selected.clone();
        let is_data = |word: &&String| self.data.is_none() && word.starts_with(['{', '[']);
        let data = self.selected.selection.last().filter(is_data);
        selected.selection.truncate(selected.selection.len() - usize::from(data.is_some()));
        (selected, data.map(String::as_str))
    }
}

/// Parses a time exactly as printed, because it is a version and not a time to choose.
fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .map(|at| at.with_timezone(&Utc))
        .map_err(|_| "copy it from `taskqueue status --json`: 2026-11-21T10:00:00.123456Z".to_owned())
}

pub(crate) fn run(session: Session, args: &EditArgs, out: &mut Out) -> anyhow::Result<u8> {
    let (selected, positional) = args.selected_and_data();
    let data = args.data.as_deref().or(positional).map(read_data).transpose()?;
    let attempts = &args.attempts;
    let timeout = attempts.timeout(|text| or_none(text, timeout_secs))?;
    let (keep_secs, keep_results_secs) = attempts.keeping(|text| or_none(text, parse_keep))?;
    let meta = attempts.meta()?;
    let mut ctx = session.open()?;
    let change = ChangeRequest {
        data,
        scheduled_on: attempts.scheduled_on(&mut ctx)?,
        expires: match attempts.expires_is(NONE) {
            true => Some(None),
            false => attempts.expires(&mut ctx)?.map(Some),
        },
        max_retries: attempts.max_retries,
        timeout_secs: timeout,
        priority: attempts.priority,
        backoff: attempts.backoff.clone().map(|text| Some(text).filter(|text| text != NONE)),
        keep_secs,
        keep_results_secs,
        meta,
    };
    let edit = Edit { change, if_version: args.if_updated_on.map(Into::into) };
    let mut verb = BulkVerb {
        name: "edit",
        done: "edited",
        statuses: editable(),
        take: None,
        widen: None,
        may_be_nothing: false,
        can_continue: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| edit_tasks(ctx, ids, &edit, hear)),
        preview: &mut |ctx, ids, hear| preview_edit(ctx, ids, &edit, hear),
    };
    selected::run(&mut ctx, &selected, &mut verb, out)
}

fn or_none<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == NONE { Ok(None) } else { read(text).map(Some) }
}
