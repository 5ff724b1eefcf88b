//! `taskqueue pause`, `drain`, `stop` and `resume`

use chrono::{DateTime, Utc};
use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use crate::views::unknown_class::{WarnOf, warn_of_unknown_class};
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_engine::change::pauses::{self, PauseRequest};
use taskqueue_views::human::{plural, relative};
use taskqueue_views::words::pause_words::{by, resume_command};

/// Stop claiming work for a class, a runner, or everything
///
/// The pause lasts until `resume`, or for the time of --for. Runs in progress continue. New runs are still created, and wait.
/// Without an option, `pause` lists what is paused.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue pause --class mail.send --reason 'the mail server is down' --for 2h\n  taskqueue pause --all\n  taskqueue pause\n  taskqueue resume --class mail.send"
)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// Stop claiming work, and let runners exit after their runs
///
/// With --class, no runner exits: it is the same as `pause`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue drain (--all | --class CLASS | --runner NAME) [OPTIONS]",
    after_help = "Examples:\n  taskqueue drain --all --reason 'upgrade' --for 1h\n  taskqueue drain --runner mail-1"
)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// Stop claiming work, and stop runners as a signal does
///
/// A run in progress may continue for `stop_wait_secs` of the configuration. It is then released.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue stop (--all | --class CLASS | --runner NAME) [OPTIONS]",
    after_help = "Examples:\n  taskqueue stop --all --reason 'the disk is full'\n  taskqueue stop --class 'mail.*' --for 1h"
)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    order: OrderArgs,
}

/// End a pause, a drain or a stop
///
/// `resume --all` ends only a `pause --all`, `drain --all` or `stop --all`. Pauses of single classes and runners stay, and `resume`
/// lists them.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue resume (--all | --class CLASS | --runner NAME) [OPTIONS]",
    after_help = "Examples:\n  taskqueue resume --all\n  taskqueue resume --class mail.send"
)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// The commands that list what a pause, a drain or a stop can be for.
const NAMES: &str = "`taskqueue class` lists the classes, `taskqueue runner` the runners";
/// The command that lists what can be resumed.
const PAUSES: &str = "taskqueue pause    # lists what is paused, and how to resume it";
/// How many other pauses `resume` names.
const OTHERS: usize = 5;

/// What an order is for.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct TargetArgs {
    /// Everything, on every host
    #[arg(long)]
    all: bool,
    /// This class; * matches anything
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Runners with this name, including those that start later
    #[arg(long, value_name = "NAME")]
    runner: Option<String>,
}

#[derive(Debug, Args)]
struct OrderArgs {
    /// Reason; `status` shows it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// End it automatically after this time: 30m, 2h
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
}

impl TargetArgs {
    fn scope(&self) -> Option<PauseScope> {
        match (self.all, &self.class, &self.runner) {
            (true, ..) => Some(PauseScope::All),
            (_, Some(class), _) => Some(PauseScope::Class(class.clone())),
            (_, _, Some(runner)) => Some(PauseScope::Runner(runner.clone())),
            _ => None,
        }
    }

    fn required(&self, hint: &str) -> Result<PauseScope, CliError> {
        self.scope()
            .ok_or_else(|| CliError::usage("one of --all, --class CLASS and --runner NAME is required").with_hint(hint))
    }
}

pub(crate) fn pause(session: Session, args: &PauseArgs, out: &mut Out) -> anyhow::Result<u8> {
    if args.target.scope().is_none() && args.order.reason.is_none() && args.order.duration.is_none() {
        return list(session, out);
    }
    order(session, &args.target.required(NAMES)?, PauseMode::Pause, &args.order, out)
}

pub(crate) fn drain(session: Session, args: &DrainArgs, out: &mut Out) -> anyhow::Result<u8> {
    order(session, &args.target.required(NAMES)?, PauseMode::Drain, &args.order, out)
}

pub(crate) fn stop(session: Session, args: &StopArgs, out: &mut Out) -> anyhow::Result<u8> {
    order(session, &args.target.required(NAMES)?, PauseMode::Stop, &args.order, out)
}

pub(crate) fn resume(session: Session, args: &ResumeArgs, out: &mut Out) -> anyhow::Result<u8> {
    let scope = args.target.required(PAUSES)?;
    let mut ctx = session.open()?;
    let is_ended = ctx.because(args.reason.text(), |ctx| pauses::resume(ctx, &scope))?;
    out.json_if_asked(&serde_json::json!({ "scope": scope.kind(), "name": scope.name(), "resumed": is_ended }))?;
    let others = pauses::list(&mut ctx)?;
    out.say(&match (&scope, is_ended) {
        (PauseScope::All, false) => "no pause of --all is active".to_owned(),
        (_, false) => format!("{scope} was not paused"),
        // The others would contradict "everything is resumed".
        (PauseScope::All, true) if !others.is_empty() => "the pause of everything has ended".to_owned(),
        (_, true) => format!("{scope} is resumed"),
    });
    for pause in others.iter().take(OTHERS) {
        out.say(&format!("still paused: {}; `{}` ends it", pause.scope, resume_command(&pause.scope)));
    }
    if others.len() > OTHERS {
        out.say(&format!("{} left; `taskqueue pause` lists them", plural(others.len() - OTHERS, "other pause")));
    }
    Ok(if is_ended { DONE } else { NOT_FOUND })
}

fn order(session: Session, scope: &PauseScope, mode: PauseMode, args: &OrderArgs, out: &mut Out) -> anyhow::Result<u8> {
    let duration = duration_option("--for", args.duration.as_deref())?;
    let mut ctx = session.open_or_make()?;
    let reason = args.reason.clone().unwrap_or_default();
    let request = PauseRequest { scope: scope.clone(), mode, reason, duration };
    let runners = pauses::pause(&mut ctx, request)?;
    if let PauseScope::Runner(name) = scope
        && runners.is_empty()
        && pauses::names_claimant(&mut ctx, name)?
    {
        out.warn(&format!("{name} is a claimant, and --runner does not apply to claimants"));
        out.say("hint: `--all` and `--class CLASS` apply to claimants too");
    }
    if let PauseScope::Class(class) = scope {
        warn_of_unknown_class(&mut ctx, class, WarnOf::Any, out)?;
    }
    let names: Vec<&str> = runners.iter().map(|runner| runner.name.as_str()).collect();
    out.json_if_asked(&serde_json::json!({
        "scope": scope.kind(), "name": scope.name(), "mode": mode, "runners": names,
    }))?;
    let until = args
        .duration
        .as_ref()
        .map_or_else(|| format!("until `{}`", resume_command(scope)), |time| format!("for {time}"));
    let more = if mode == PauseMode::Pause { "; runs in progress continue" } else { "" };
    out.say(&format!("{scope} is {} {until}{more}", mode.participle()));
    if matches!(scope, PauseScope::Runner(_)) && runners.is_empty() {
        out.say("no runner with this name is alive; one that starts will claim nothing");
    } else if mode != PauseMode::Pause && !matches!(scope, PauseScope::Class(_)) {
        let more = if runners.is_empty() { "" } else { "; `taskqueue runner` lists them until they have ended" };
        out.say(&format!("{} notified{more}", plural(runners.len(), "runner")));
    }
    Ok(DONE)
}

fn list(session: Session, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open_to_read(out)?;
    let (all, now) = (pauses::list(&mut ctx)?, ctx.now()?);
    if out.is_json() {
        all.iter().try_for_each(|pause| out.json(pause))?;
    } else if all.is_empty() {
        out.data("Nothing is paused. Pause everything: taskqueue pause --all")?;
    } else {
        let rows = all.iter().map(|pause| row(pause, now)).collect();
        out.data(render(out, &["WHAT", "MODE", "SINCE", "UNTIL", "BY", "REASON"], rows, &[2]))?;
    }
    Ok(DONE)
}

fn row(pause: &Pause, now: DateTime<Utc>) -> Vec<Field> {
    vec![
        pause.scope.to_string().into(),
        Field::toned(pause.mode.to_string(), Tone::Waiting),
        relative(pause.created_on, now).into(),
        pause.until.map_or_else(|| "resume".to_owned(), |until| relative(until, now)).into(),
        by(pause).into(),
        pause.reason.as_str().into(),
    ]
}
