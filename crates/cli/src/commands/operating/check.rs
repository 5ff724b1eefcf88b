//! `taskqueue check`

use clap::Args;
use serde_json::json;

use crate::error::CliError;
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::session::Session;
use taskqueue_domain::monitoring::thresholds::{AtMost, Level};
use taskqueue_engine::inspect::monitoring::check::{Measures, measure};
use taskqueue_views::human::folded;

/// Exit status of a monitoring plugin that could not check.
const UNKNOWN: u8 = 3;

/// Check the store for monitoring, as a Nagios plugin
///
/// Prints one line (wrapped on a narrow terminal) and exits with status 0, 1, 2 or 3, or with 78 if the configuration cannot be
/// read. A limit is one number, above which the result is critical, or two: WARNING,CRITICAL. Without options, three things are
/// critical: a due task without a run for ten minutes, a run whose runner is dead or silent, and a live runner that has not
/// renewed its lease in time. Two things are then a warning with exit status 1: due tasks that nothing processes
/// (--stalled), for example while everything is paused, and schedules that did not run at their time (--late-schedules). An option
/// replaces all of these limits; --late-schedules replaces only its own.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue check\n  taskqueue check --due-age 5m,15m --failed 10,100 --min-runners 1\n  taskqueue check --late-schedules 0,3"
)]
pub(crate) struct CheckArgs {
    /// How long a due task may have no run
    #[arg(long, value_name = "DURATION", value_parser = AtMost::parse_secs)]
    due_age: Option<AtMost>,
    /// Number of due tasks without a run
    #[arg(long, value_name = "N")]
    due: Option<AtMost>,
    /// Number of runs that wait for a runner
    #[arg(long, value_name = "N")]
    waiting: Option<AtMost>,
    /// Number of tasks whose last attempt failed or timed out
    #[arg(long, value_name = "N")]
    failed: Option<AtMost>,
    /// Number of tasks that crashed too often
    #[arg(long, value_name = "N")]
    quarantined: Option<AtMost>,
    /// Number of runs whose runner is dead or silent
    #[arg(long, value_name = "N")]
    lost: Option<AtMost>,
    /// Number of due tasks and waiting runs that nothing processes: paused, no runner for longer than usual, or all slots in use
    /// for long
    #[arg(long, value_name = "N")]
    stalled: Option<AtMost>,
    /// Number of schedules whose time passed more than a minute ago without a run
    #[arg(long, value_name = "N")]
    late_schedules: Option<AtMost>,
    /// Number of live runners that have not renewed their lease in time
    #[arg(long, value_name = "N")]
    silent_runners: Option<AtMost>,
    /// Minimum number of live runners; fewer are critical
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    min_runners: Option<i64>,
}

/// The limits if the command line sets none.
const DEFAULT_DUE_AGE: AtMost = AtMost { warning: None, critical: 600 };
const DEFAULT_LOST: AtMost = AtMost { warning: None, critical: 0 };
/// Only warnings, because a pause may be intended.
const DEFAULT_STALLED: AtMost = AtMost { warning: Some(0), critical: i64::MAX };
const DEFAULT_LATE: AtMost = DEFAULT_STALLED;
const DEFAULT_SILENT: AtMost = AtMost { warning: None, critical: 0 };

/// A number with its limits.
struct Watched {
    name: &'static str,
    value: i64,
    unit: &'static str,
    at_most: Option<AtMost>,
    level: Level,
}

pub(crate) fn run(session: Session, args: &CheckArgs, out: &mut Out) -> anyhow::Result<u8> {
    let measured = session.open_to_read(out).and_then(|mut ctx| Ok(measure(&mut ctx)?));
    let measures = match measured {
        Ok(measures) => measures,
        // A monitoring system reads only standard output.
        Err(error) => {
            let error = CliError::from(error);
            let value = json!({ "schema": "taskqueue.check/1", "level": "unknown", "problem": error.message });
            // What follows a bar would be parsed as numbers.
            let message = clean_line(&error.message).replace('|', "/");
            out.json_or(&value, folded(&format!("TASKQUEUE UNKNOWN - {message}"), out.width()))?;
            return Ok(UNKNOWN);
        }
    };
    let watched = watched(args, measures);
    let level = watched.iter().map(|watched| watched.level).max().unwrap_or_default();
    let value = json!({ "schema": "taskqueue.check/1", "level": level, "measures": measures });
    out.json_or(&value, folded(&line(level, &watched), out.width()))?;
    Ok(match level {
        Level::Ok => 0,
        Level::Warning => 1,
        Level::Critical => 2,
    })
}

fn watched(args: &CheckArgs, measures: Measures) -> Vec<Watched> {
    let limits = [
        args.due_age,
        args.due,
        args.waiting,
        args.failed,
        args.quarantined,
        args.lost,
        args.stalled,
        args.silent_runners,
    ];
    let asks_nothing = limits.iter().all(Option::is_none) && args.min_runners.is_none();
    let or_default = |limit: Option<AtMost>, default| limit.or_else(|| asks_nothing.then_some(default));
    let watch = |name, value, unit, at_most: Option<AtMost>| {
        let level = at_most.map_or(Level::Ok, |limit| limit.level(value));
        Watched { name, value, unit, at_most, level }
    };
    let runners = measures.runners;
    let is_short = args.min_runners.is_some_and(|least| runners < least);
    vec![
        watch("oldest_due", measures.oldest_due_secs, "s", or_default(args.due_age, DEFAULT_DUE_AGE)),
        watch("due", measures.due, "", args.due),
        watch("waiting", measures.waiting, "", args.waiting),
        watch("failed", measures.failed, "", args.failed),
        watch("quarantined", measures.quarantined, "", args.quarantined),
        watch("lost", measures.lost, "", or_default(args.lost, DEFAULT_LOST)),
        watch("stalled", measures.stalled, "", or_default(args.stalled, DEFAULT_STALLED)),
        watch("silent_runners", measures.silent_runners, "", or_default(args.silent_runners, DEFAULT_SILENT)),
        watch("late_schedules", measures.late_schedules, "", or_default(args.late_schedules, DEFAULT_LATE)),
        Watched { level: if is_short { Level::Critical } else { Level::Ok }, ..watch("runners", runners, "", None) },
    ]
}

/// Formats the output: `TASKQUEUE CRITICAL - oldest_due 1200s, failed 12 | oldest_due=1200s;300;900 …`.
fn line(level: Level, watched: &[Watched]) -> String {
    let words = |watched: &Watched| format!("{} {}{}", watched.name, watched.value, watched.unit);
    let is_bad = |watched: &&Watched| watched.level > Level::Ok;
    let bad: Vec<String> = watched.iter().filter(is_bad).map(words).collect();
    let shown = if bad.is_empty() { watched.iter().map(words).collect() } else { bad };
    let numbers: Vec<String> = watched.iter().map(performance_data).collect();
    format!("TASKQUEUE {level} - {} | {}", shown.join(", "), numbers.join(" "))
}

fn performance_data(watched: &Watched) -> String {
    let limits = watched.at_most.map(|limit| {
        let warning = limit.warning.map(|warning| warning.to_string()).unwrap_or_default();
        let critical = if limit.critical == i64::MAX { String::new() } else { limit.critical.to_string() };
        format!(";{warning};{critical}")
    });
    format!("{}={}{}{}", watched.name, watched.value, watched.unit, limits.unwrap_or_default())
}
