//! `taskqueue limits`

use clap::{Args, Subcommand};

use crate::cli::error::{DONE, NOT_FOUND};
use crate::cli::output::Out;
use crate::cli::output::table::render;
use crate::cli::session::Session;
use crate::domain::limits::{ClassLimit, Rate};
use crate::engine::limits;

/// List, set and remove the limits of classes: runs at once, starts in a time
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue limits set import --running 2\n  taskqueue limits set mail.send --rate 100/1m\n  taskqueue limits\n  taskqueue limits remove import"
)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// All limits, and how many runs are being processed
    List,
    /// Set the limits of a class, in place of those that it has
    Set(SetArgs),
    /// Remove the limits of a class
    Remove {
        /// The class
        class: String,
    },
}

#[derive(Debug, Args)]
struct SetArgs {
    /// The class
    class: String,
    /// At most N runs at once, all hosts together
    #[arg(long, value_name = "N", required_unless_present = "rate")]
    running: Option<i32>,
    /// At most so many starts in any stretch of so long: 100/1m
    #[arg(long, value_name = "N/TIME")]
    rate: Option<Rate>,
}

pub(crate) fn run(session: Session, args: &LimitsArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        None | Some(Action::List) => list(session, out),
        Some(Action::Set(args)) => {
            let limit = ClassLimit { class: args.class.clone(), max_running: args.running, rate: args.rate };
            limits::set(&mut session.open()?, &limit)?;
            out.say(&format!("class {}: {}", limit.class, words(&limit)));
            Ok(DONE)
        }
        Some(Action::Remove { class }) => {
            let is_removed = limits::remove(&mut session.open()?, class)?;
            let what = if is_removed { "has no limits any more" } else { "had no limits" };
            out.say(&format!("class {class} {what}"));
            Ok(if is_removed { DONE } else { NOT_FOUND })
        }
    }
}

fn words(limit: &ClassLimit) -> String {
    let running = limit.max_running.map(|max| format!("at most {max} at once"));
    let rate = limit.rate.map(|rate| format!("at most {} starts in {} seconds", rate.count, rate.secs));
    [running, rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn list(session: Session, out: &mut Out) -> anyhow::Result<u8> {
    let lines = limits::list(&mut session.open()?)?;
    if out.is_json() {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else if lines.is_empty() {
        out.data("No class has a limit.")?;
    } else {
        let number = |number: Option<i32>| number.map(|number| number.to_string()).unwrap_or_default();
        let rows = lines.iter().map(|line| {
            let rate = line.limit.rate.map(|rate| rate.to_string()).unwrap_or_default();
            vec![
                line.limit.class.as_str().into(),
                line.running.to_string().into(),
                number(line.limit.max_running).into(),
                rate.into(),
            ]
        });
        out.data(&render(out, &["CLASS", "RUNNING", "AT MOST", "RATE"], rows.collect(), &[]))?;
    }
    Ok(DONE)
}
