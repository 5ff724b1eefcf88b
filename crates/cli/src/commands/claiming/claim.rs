//! `taskqueue worker claim`

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, INTERRUPTED, NOT_FOUND, WAITED_TOO_LONG};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_engine::claiming::claim::{
    ClaimOutcome, ClaimRequest, InDoubt, MAX_COUNT, NotClaimable, Offer, WhyNot, can_be_ended, claim_in_doubt,
    find_process, why_not_claimable,
};
use taskqueue_engine::claiming::claimants::give_back;
use taskqueue_engine::config::claimant_of_environment;
use taskqueue_engine::{Context, EngineResult, StopSignals};
use taskqueue_views::human::instant;
use taskqueue_views::words::claim_line::claim_line;
use taskqueue_views::words::why::sentence;

/// How long the database may take to answer after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Claim runs for your own worker, and print them as lines of JSON
///
/// Each line has run_id, task_id, token, class, data, attempt, max_retries, timeout_secs and deadline. The worker processes the
/// data, reports with `worker heartbeat` or `report progress` before the deadline, and ends the run with `worker resolve` or `worker release`. It passes the
/// token to each of these commands. If no run can be claimed, `worker claim` prints nothing and exits with 3, or with 124 after --wait.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue worker claim --claimant bot-1 --class 'mail.*' --wait 30s\n  taskqueue worker claim --claimant bot-1 --count 10\n  taskqueue worker claim --claimant bot-1 --task 4711\n  taskqueue worker claim --claimant bot-1 --tag account-17"
)]
pub(crate) struct ClaimArgs {
    /// Name of the claimant, under which rejected tasks are recorded [env: TASKQUEUE_CLAIMANT]
    #[arg(long, value_name = "ID")]
    claimant: Option<ClaimantId>,
    /// Claim only runs of these classes: names, or patterns with * and ? [default: all]
    #[arg(long, value_name = "PATTERN", num_args = 1.., value_parser = parse_pattern)]
    class: Vec<String>,
    /// Claim only the run of this task; if it cannot be claimed now, the error explains why
    #[arg(long, value_name = "TASK")]
    task: Option<TaskId>,
    /// Claim only runs of tasks with this unique key
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Claim only runs of tasks with this limit key
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Claim only runs of tasks with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Wait up to this time for a run to claim: 30s, 10m; does not wait for a --task that has finished or that you rejected
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// Claim up to N runs at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_COUNT)))]
    count: u16,
    /// Process of the worker on this host: if it dies, others can claim its runs at once; after the deadline it gets TERM
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
}

pub(crate) fn parse_pattern(text: &str) -> Result<String, String> {
    check_class_pattern(text).map(|()| text.to_owned())
}

pub(crate) fn run(session: Session, args: &ClaimArgs, out: &mut Out) -> anyhow::Result<u8> {
    let wait = duration_option("--wait", args.wait.as_deref())?;
    let request = request(args, wait.unwrap_or(Duration::ZERO))?;
    if let Some(process) = request.process.as_ref().filter(|process| !can_be_ended(process, &request.claimant)) {
        out.warn(&format!(
            "process {} was not started with TASKQUEUE_CLAIMANT={} in its environment; taskqueue will not send it TERM when \
             its claim times out",
            process.pid, request.claimant
        ));
    }
    let stop = Arc::new(StopSignals::install()?);
    let Some(answer) = claim_until_signal(session, request.clone(), &stop, out)? else { return Ok(INTERRUPTED) };
    let (mut ctx, claimed) = match answer {
        Err(error) if stop.is_stopping() => return Ok(interrupted(&error, out)),
        answer => answer?,
    };
    if let Some(problem) = ctx.spool_problem.take() {
        warn_of_spool(&problem, out);
    }
    if let Some(problem) = ctx.hook_problem.take() {
        out.warn(&problem);
    }
    match claimed {
        Err(error) if stop.is_stopping() => Ok(interrupted(&anyhow::Error::from(error), out)),
        Err(error) => Err(error.into()),
        Ok(ClaimOutcome::Runs(offers)) => print(&mut ctx, &offers, out),
        Ok(ClaimOutcome::Stopped) => Ok(INTERRUPTED),
        Ok(ClaimOutcome::Nothing) => {
            let task = why_not_claimable(&mut ctx, &request)?;
            let has_waited = wait.is_some() && !task.as_ref().is_some_and(NotClaimable::is_final);
            let status = if has_waited { WAITED_TOO_LONG } else { NOT_FOUND };
            if let Some(task) = task {
                bail!(not_claimable(&task, &request, status));
            }
            out.say_verbose("nothing to claim");
            Ok(status)
        }
    }
}

/// The result of a claim with its context; an error if the database could not be opened.
type ClaimAnswer = anyhow::Result<(Context, EngineResult<ClaimOutcome>)>;

/// Claims in a thread, and returns `None` if a signal came first and the database does not answer: a thread that waits for a
/// lock or a silent server does not notice signals.
fn claim_until_signal(
    session: Session,
    request: ClaimRequest,
    stop: &Arc<StopSignals>,
    out: &mut Out,
) -> anyhow::Result<Option<ClaimAnswer>> {
    let in_doubt = InDoubt::default();
    let (signals, doubt) = (Arc::clone(stop), in_doubt.clone());
    let answer = stop.wait_for_work(GRACE, move || -> ClaimAnswer {
        let mut ctx = session.open()?;
        let claimed = claim_in_doubt(&mut ctx, &request, &signals, &doubt);
        Ok((ctx, claimed))
    })?;
    if answer.is_none()
        && let Some(problem) = in_doubt.leave()
    {
        warn_of_spool(&problem, out);
    }
    Ok(answer)
}

/// Reports an interruption. The error of the claim is printed only with `-v`, because the user has ended it.
fn interrupted(error: &anyhow::Error, out: &mut Out) -> u8 {
    out.say_verbose(&format!("interrupted: {error:#}"));
    INTERRUPTED
}

fn warn_of_spool(problem: &str, out: &mut Out) {
    out.warn(&format!("runs that this claim may have taken stay claimed until their deadline: {problem}"));
}

fn request(args: &ClaimArgs, wait: Duration) -> anyhow::Result<ClaimRequest> {
    let claimant = match (&args.claimant, claimant_of_environment()?) {
        (Some(claimant), _) => claimant.clone(),
        (None, Some(text)) => text.parse().map_err(|why| CliError::usage(format!("TASKQUEUE_CLAIMANT: {why}")))?,
        (None, None) => bail!(
            CliError::usage("--claimant NAME is required, or set TASKQUEUE_CLAIMANT")
                .with_hint("taskqueue worker claim --claimant bot-1")
        ),
    };
    let process = args.process.map(find_process).transpose()?;
    let choice = TaskChoice {
        task: args.task,
        unique_key: args.unique.clone(),
        limit_key: args.limit_key.clone(),
        tag: args.tag.clone(),
    };
    choice.check().map_err(CliError::usage)?;
    Ok(ClaimRequest { claimant, classes: args.class.clone(), choice, count: args.count.into(), wait, process })
}

/// Returns the error for a requested task that could not be claimed.
fn not_claimable(found: &NotClaimable, request: &ClaimRequest, status: u8) -> CliError {
    let NotClaimable { task, last_run, why, now } = found;
    let why = match why {
        WhyNot::OtherClass => format!("its class is {}", task.class),
        WhyNot::OtherUniqueKey => format!("its unique key is {}", key_words(task.unique_key.as_deref())),
        WhyNot::OtherLimitKey => format!("its limit key is {}", key_words(task.limit_key.as_deref())),
        WhyNot::OtherTag => format!("its tag is {}", key_words(task.tag.as_deref())),
        WhyNot::Rejected => format!("{} has rejected it", request.claimant),
        WhyNot::HeldBack(until) => {
            format!(
                "{} timed out with it; only other claimants can claim it until {}",
                request.claimant,
                instant(*until)
            )
        }
        WhyNot::Unmet(reason) => sentence(reason, last_run.as_ref(), *now),
        WhyNot::NothingNow => "it has just become free; claim it again".to_owned(),
    };
    CliError::not_claimable(format!("task {} cannot be claimed now: {why}", task.id), status)
        .with_hint(format!("`taskqueue explain {}` shows every condition", task.id))
}

fn key_words(key: Option<&str>) -> String {
    key.map_or_else(|| "not set".to_owned(), |key| format!("{key:?}"))
}

/// Prints the claimed runs. Runs that could not be printed are released one by one; otherwise they would stay claimed until
/// their deadline.
fn print(ctx: &mut Context, offers: &[Offer], out: &mut Out) -> anyhow::Result<u8> {
    for (at, offer) in offers.iter().enumerate() {
        let printed = out.json(&claim_line(offer));
        if printed.is_err() || out.is_unread() {
            let given_back: Vec<EngineResult<()>> =
                offers[at..].iter().map(|unread| give_back(ctx, &unread.run)).collect();
            given_back.into_iter().collect::<EngineResult<()>>()?;
            printed?;
            bail!(CliError::failed(
                "standard output was closed before every claimed run was printed; the rest were released"
            ));
        }
    }
    Ok(DONE)
}
