//! `taskqueue limit`

use std::convert::Infallible;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::commands::options::reason::ReasonArgs;
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::output::table::{Field, render};
use crate::session::Session;
use crate::views::unknown_class::{WarnOf, warn_of_unknown_class};
use taskqueue_domain::limits::limit::{ClassLimit, KeyLimit, Rate};
use taskqueue_engine::change::limits::{self, LimitLine};

/// Limit concurrent runs of a class or key, or starts in a period
///
/// A limit of a class applies to its tasks. A limit of a key applies to the tasks with that limit key, of any class.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue limit set import 2\n  taskqueue limit set mail.send --rate 100/1m\n  taskqueue limit set --key server-7 --running 3\n  taskqueue limit\n  taskqueue limit remove import"
)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    action: Option<LimitsVerb>,
    #[command(flatten)]
    list: ListOptions,
}

const LIMITS: ListKind =
    ListKind { columns: &["class", "key", "max_running", "rate", "running"], ids: &["class", "key"] };

#[derive(Debug, Subcommand)]
enum LimitsVerb {
    /// List all limits, and how many runs are in progress
    List(ListOptions),
    /// Set the limit of a key, or replace all limits of a class
    Set(SetArgs),
    /// Remove the limits of a class, or reset a key to one run at a time
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue limit set CLASS [N] [--running N] [--rate N/TIME]\n       taskqueue limit set --key KEY --running N"
)]
struct SetArgs {
    #[command(flatten)]
    target: LimitTarget,
    /// The same as --running
    #[arg(value_name = "N", conflicts_with_all = ["running", "key"])]
    number: Option<i32>,
    /// At most N runs at once, on all hosts together
    #[arg(long, value_name = "N")]
    running: Option<i32>,
    /// At most N starts of the class in any period of this length: 100/1m
    #[arg(long, value_name = "N/TIME", conflicts_with = "key")]
    rate: Option<Rate>,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    #[command(flatten)]
    target: LimitTarget,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// What is limited.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct LimitTarget {
    /// Task class
    #[arg(value_parser = class_word)]
    class: Option<String>,
    /// Limit key with which tasks of any class were queued (--limit-key)
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Accepts a class also as it is written in a selection.
fn class_word(word: &str) -> Result<String, Infallible> {
    Ok(word.strip_prefix("class=").unwrap_or(word).to_owned())
}

impl LimitTarget {
    /// Returns the name of what is limited; clap requires one.
    fn name(&self) -> String {
        self.class.as_ref().or(self.key.as_ref()).cloned().unwrap_or_default()
    }
}

pub(crate) fn run(session: Session, args: &LimitsArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        None => return list(session, &args.list, out),
        Some(LimitsVerb::List(options)) => return list(session, options.or(&args.list), out),
        Some(_) => args.list.refuse_without_list()?,
    }
    match &args.action {
        Some(LimitsVerb::Set(args)) => set(session, args, out),
        Some(LimitsVerb::Remove(args)) => remove(session, args, out),
        None | Some(LimitsVerb::List(_)) => Ok(DONE),
    }
}

fn set(session: Session, args: &SetArgs, out: &mut Out) -> anyhow::Result<u8> {
    let running = args.running.or(args.number);
    if running.is_none() && (args.rate.is_none() || args.target.key.is_some()) {
        let wanted = if args.target.key.is_some() { "--running N" } else { "--running N, --rate N/TIME or both" };
        return Err(CliError::usage(format!("no limit given: pass {wanted}")).into());
    }
    let ctx = &mut session.open_or_make()?;
    match (&args.target.key, running) {
        (Some(key), Some(max_running)) => {
            let limit = KeyLimit { key: key.clone(), max_running };
            ctx.because(args.reason.text(), |ctx| limits::set_key(ctx, &limit))?;
            out.json_if_asked(&json!({ "key": key, "max_running": max_running }))?;
            out.say(&format!("key {key}: at most {max_running} at once"));
        }
        _ => {
            let limit = ClassLimit { class: args.target.name(), max_running: running, rate: args.rate };
            ctx.because(args.reason.text(), |ctx| limits::set(ctx, &limit))?;
            out.json_if_asked(&limit)?;
            out.say(&format!("class {}: {}", limit.class, words(&limit)));
            // A limit is often set before its class is configured.
            warn_of_unknown_class(ctx, &limit.class, WarnOf::LikelyMistake, out)?;
        }
    }
    Ok(DONE)
}

fn remove(session: Session, args: &RemoveArgs, out: &mut Out) -> anyhow::Result<u8> {
    let ctx = &mut session.open()?;
    let (target, reason) = (&args.target, args.reason.text());
    let (is_removed, then) = match &target.key {
        Some(key) => {
            let is_removed = ctx.because(reason, |ctx| limits::remove_key(ctx, key))?;
            (is_removed, format!("key {key} {}", if is_removed { "is back to one at a time" } else { "had no limit" }))
        }
        None => {
            let class = target.name();
            let is_removed = ctx.because(reason, |ctx| limits::remove(ctx, &class))?;
            (is_removed, format!("class {class} {}", if is_removed { "no longer has limits" } else { "had no limits" }))
        }
    };
    if out.is_json() {
        let (kind, name) = target.key.as_ref().map_or_else(|| ("class", target.name()), |key| ("key", key.clone()));
        let mut said = json!({ "removed": is_removed });
        said[kind] = json!(name);
        out.json(&said)?;
    }
    out.say(&then);
    Ok(if is_removed { DONE } else { NOT_FOUND })
}

fn words(limit: &ClassLimit) -> String {
    let running = limit.max_running.map(|max| format!("at most {max} at once"));
    let rate = limit.rate.map(|rate| format!("at most {} starts in {} seconds", rate.count, rate.secs));
    [running, rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn list(session: Session, options: &ListOptions, out: &mut Out) -> anyhow::Result<u8> {
    let listing = Listing::of(options, &LIMITS, out)?;
    let ctx = &mut session.open_to_read(out)?;
    let (classes, keys) = (limits::list(ctx)?, limits::list_keys(ctx)?);
    let records = classes.iter().map(|line| json!(line)).chain(keys.iter().map(|line| json!(line)));
    if print_for_programs(listing, records, out)? {
        return Ok(DONE);
    }
    if classes.is_empty() && keys.is_empty() {
        out.data("No limits are set for classes or keys.")?;
    }
    if !classes.is_empty() {
        let rows = classes.iter().map(class_row).collect();
        out.data(render(out, &["CLASS", "RUNNING", "AT MOST", "RATE"], rows, &[]))?;
    }
    if !keys.is_empty() {
        let rows = keys.iter().map(key_row).collect();
        out.data(render(out, &["KEY", "RUNNING", "AT MOST"], rows, &[]))?;
    }
    Ok(DONE)
}

fn class_row(line: &LimitLine) -> Vec<Field> {
    vec![
        line.limit.class.as_str().into(),
        line.running.to_string().into(),
        line.limit.max_running.map(|max| max.to_string()).unwrap_or_default().into(),
        line.limit.rate.map(|rate| rate.to_string()).unwrap_or_default().into(),
    ]
}

fn key_row(line: &LimitLine<KeyLimit>) -> Vec<Field> {
    vec![line.limit.key.as_str().into(), line.running.to_string().into(), line.limit.max_running.to_string().into()]
}
