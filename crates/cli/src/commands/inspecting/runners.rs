//! `taskqueue runner`

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Subcommand};
use indicatif::HumanBytes;

use crate::error::DONE;
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use taskqueue_engine::inspect::status::{self, RunnerLine, WorkLine};
use taskqueue_views::human::{distance, fitted_words, relative};
use taskqueue_views::words::pause_words::pause_words;

/// Show live runners and their current runs
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue runner\n  taskqueue drain --runner mail-1\n  taskqueue status --runners     # also those that have ended"
)]
pub(crate) struct RunnersArgs {
    #[command(subcommand)]
    verb: Option<RunnersVerb>,
    /// Show at most N runners
    #[arg(global = true, short = 'n', long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Subcommand)]
enum RunnersVerb {
    /// Show live runners and their current runs; the default
    List(ListOptions),
}

const RUNNERS: ListKind = ListKind {
    columns: &["id", "name", "process_id", "host", "state", "started_on", "heartbeat_on", "slots", "version"],
    ids: &["id"],
};

pub(crate) fn run(session: Session, args: &RunnersArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open_to_read(out)?;
    let lines = status::list_runners(&mut ctx, args.limit, true)?;
    let list = match &args.verb {
        Some(RunnersVerb::List(list)) => list.or(&args.list),
        None => &args.list,
    };
    show(&lines, ctx.now()?, list, out)?;
    Ok(DONE)
}

pub(crate) fn show(lines: &[RunnerLine], now: DateTime<Utc>, list: &ListOptions, out: &mut Out) -> anyhow::Result<()> {
    if print_for_programs(Listing::of(list, &RUNNERS, out)?, lines, out)? {
        return Ok(());
    }
    if lines.is_empty() {
        let none = "No runners. Start one: `taskqueue work`, or `taskqueue tick` from cron.";
        return out.data(fitted_words(none, out.width()));
    }
    let rows = lines.iter().map(|line| row(line, now)).collect();
    let header = ["RUNNER", "NAME", "PROCESS", "HOST", "STATE", "STARTED", "LAST SEEN", "TASKS", "MEMORY", "VERSION"];
    out.data(render(out, &header, rows, &[9, 8, 6, 2, 5, 3]))
}

fn row(line: &RunnerLine, now: DateTime<Utc>) -> Vec<Field> {
    let runner = &line.runner;
    let memory = line.memory_bytes.map(|bytes| HumanBytes(bytes).to_string()).unwrap_or_default();
    vec![
        runner.id.to_string().into(),
        runner.name.as_str().into(),
        runner.process_id.to_string().into(),
        runner.host.as_str().into(),
        state(line, now),
        relative(runner.started_on, now).into(),
        relative(runner.heartbeat_on, now).into(),
        line.works_on.iter().map(|work| work_words(work, now)).collect::<Vec<_>>().join(", ").into(),
        memory.into(),
        runner.version.as_str().into(),
    ]
}

fn state(line: &RunnerLine, now: DateTime<Utc>) -> Field {
    let silence = line.silent_secs.map(|secs| format!("silent for {}", distance(TimeDelta::seconds(secs))));
    match (line.state, line.runner.finished_on, &line.pause) {
        (_, Some(on), _) => Field::toned(format!("ended {}", relative(on, now)), Tone::Quiet),
        ("dead", None, _) => Field::toned("dead; create-runs or the next runner frees its slot", Tone::Bad),
        ("silent", None, _) => {
            let why = "suspended, or cannot reach the database; it keeps its slots";
            Field::toned(format!("{}: {why}", silence.unwrap_or_default()), Tone::Bad)
        }
        (_, None, Some(pause)) => Field::toned(pause_words(pause, now), Tone::Waiting),
        ("alive", None, None) => Field::toned("alive", Tone::Good),
        (_, None, None) => {
            let silence = silence.map(|silence| format!(", {silence}")).unwrap_or_default();
            Field::toned(format!("not visible from this host{silence}"), Tone::Waiting)
        }
    }
}

fn work_words(work: &WorkLine, now: DateTime<Utc>) -> String {
    let since = work.started_on.map(|on| format!(", started {}", relative(on, now))).unwrap_or_default();
    let percents = if work.percents_completed > 0 { format!(" {}%", work.percents_completed) } else { String::new() };
    format!("task {} ({}{percents}){since}", work.task_id, work.class)
}
