//! `taskqueue edit`

use chrono::{DateTime, Utc};
use clap::Args;

use super::queue::read_data;
use super::selected::{self, BulkVerb, SelectedArgs};
use super::task_options::resolve_time;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::task_change::ChangeRequest;
use crate::engine::edit::{Edit, edit_tasks, preview_edit};
use crate::engine::queue::timeout_secs;

/// Takes a value away, so that the class or the settings count.
const NONE: &str = "none";

/// Change tasks that are there already: their data, their time, their numbers
///
/// Of a task that is processed the next attempt sees it. A run that waits gets the new priority, and is given back if the
/// new time lies ahead.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    /// JSON text, `-` for standard input, or `@FILE`
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    /// Process it at this time: 2026-11-21T10:00:00Z, "2026-11-21 10:00", "tomorrow 03:00", +30m
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    at: Option<String>,
    /// Process it after this time: 30m, 2h30m, 1d
    #[arg(long = "in", id = "delay", value_name = "DURATION")]
    delay: Option<String>,
    /// Failed attempts before it is exhausted
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_retries: Option<i64>,
    /// Time without end or report after which an attempt times out: 90s, 2h; none: that of the class
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Higher first, -1000 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Waits before retries: exponential:10s..1h, fixed:30s or list:10s,1m,10m; none: those of the class
    #[arg(long, value_name = "BACKOFF")]
    backoff: Option<String>,
    /// Only if nobody has changed it since: its updated_on, as `status --json` shows it
    #[arg(long, value_name = "TIME", value_parser = instant)]
    if_updated_on: Option<DateTime<Utc>>,
}

/// Exactly as it is printed: a version, not a time that somebody means.
fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .map(|at| at.with_timezone(&Utc))
        .map_err(|_| "write it as `status --json` does: 2026-11-21T10:00:00.123456Z".to_owned())
}

pub(crate) fn run(session: Session, args: &EditArgs, out: &mut Out) -> anyhow::Result<u8> {
    let data = args.data.as_deref().map(read_data).transpose()?;
    let timeout = or_none(args.timeout.as_deref(), timeout_secs)
        .map_err(|message| CliError::usage(format!("--timeout: {message}")))?;
    let backoff = or_none(args.backoff.as_deref(), |text| Ok(text.to_owned())).map_err(CliError::usage)?;
    let mut ctx = session.open()?;
    let change = ChangeRequest {
        data,
        scheduled_on: resolve_time(&mut ctx, args.at.as_deref(), args.delay.as_deref())?,
        max_retries: args.max_retries,
        timeout_secs: timeout,
        priority: args.priority,
        backoff,
    };
    let edit = Edit { change, if_updated_on: args.if_updated_on };
    let mut verb = BulkVerb {
        name: "edit",
        done: "edited",
        act: &mut |ctx, ids, hear| edit_tasks(ctx, ids, &edit, hear),
        preview: &mut |ctx, ids, hear| preview_edit(ctx, ids, &edit, hear),
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}

fn or_none<T>(text: Option<&str>, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<Option<T>>, String> {
    match text {
        None => Ok(None),
        Some(NONE) => Ok(Some(None)),
        Some(text) => read(text).map(|value| Some(Some(value))),
    }
}
