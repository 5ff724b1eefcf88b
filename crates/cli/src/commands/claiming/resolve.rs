//! `taskqueue worker resolve`: a claimant ends a run.

use anyhow::bail;
use clap::Args;

use crate::commands::claiming::heartbeat::HeldArgs;
use crate::commands::options::attempt_options::meta_option;
use crate::commands::options::task_options::duration_option;
use crate::commands::queueing::queue::read_data;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::claiming::claimants::{Held, Resolution, resolve_with};

/// End a run you claimed, with results or with an error
///
/// If the run is no longer yours, the exit status is 1, and the result is only kept as an event. Repeating the same command is no
/// error, so you can retry it after a broken connection.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue worker resolve RUN --token TOKEN [--results RESULTS]\n       taskqueue worker resolve RUN --token TOKEN --error CODE [--message TEXT] [--no-retry | --delay DURATION]",
    after_help = "Examples:\n  taskqueue worker resolve 7 --token \"$token\" --results '{\"sent\":3}'\n  taskqueue worker resolve 7 --token \"$token\" --error smtp:451 --delay 5m"
)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// The run succeeded, with these results: JSON text, `-` for standard input, or `@FILE`
    #[arg(long, value_name = "RESULTS", conflicts_with = "error", allow_hyphen_values = true)]
    results: Option<String>,
    /// The run failed, with this error code
    #[arg(long, value_name = "CODE")]
    error: Option<String>,
    /// Error message for people
    #[arg(long, value_name = "TEXT", requires = "error")]
    message: Option<String>,
    /// Do not retry the task: another attempt would fail the same way
    #[arg(long, requires = "error")]
    no_retry: bool,
    /// Retry the task after this time instead of its backoff: 30s, 5m
    #[arg(long, value_name = "DURATION", requires = "error", conflicts_with = "no_retry")]
    delay: Option<String>,
    /// Add to the metadata of the task, whatever the outcome; KEY= removes a name; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
}

pub(crate) fn run(session: Session, args: &ResolveArgs, out: &mut Out) -> anyhow::Result<u8> {
    let delay = duration_option("--delay", args.delay.as_deref())?;
    let resolution = match &args.error {
        Some(code) if code.trim().is_empty() => bail!(CliError::usage("--error: the code is empty")),
        Some(code) => Resolution::Error(ReportedError {
            code: code.clone(),
            message: args.message.clone().unwrap_or_default(),
            retry: Some(!args.no_retry),
            delay_secs: delay.map(|delay| i64::try_from(delay.as_secs()).unwrap_or(i64::MAX)).map(possible_delay_secs),
        }),
        None => Resolution::Success(args.results.as_deref().map(results).transpose()?),
    };
    let meta = meta_option(&args.meta)?;
    let held = args.held.held("resolve")?;
    end(session, &held, &resolution, Some(&meta).filter(|meta| !meta.is_empty()), out)
}

fn results(argument: &str) -> Result<String, CliError> {
    let text = read_data(argument)?;
    check_storable(&text).map_err(|what| CliError::usage(format!("the result {what}")))?;
    Ok(text.trim_end().to_owned())
}

pub(crate) fn end(
    session: Session,
    held: &Held,
    resolution: &Resolution,
    meta: Option<&Meta>,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let resolved = resolve_with(&mut ctx, held, resolution, meta)?;
    if let Some(problem) = &ctx.hook_problem {
        out.warn(problem);
    }
    if out.is_json() {
        out.json(&resolved)?;
    } else if resolved.was_recorded_before {
        out.say(&format!("run {} was already recorded as {}", resolved.run_id, resolved.status));
    } else {
        out.say_verbose(&format!("run {} of task {}: {}", resolved.run_id, resolved.task_id, resolved.status));
    }
    Ok(DONE)
}
