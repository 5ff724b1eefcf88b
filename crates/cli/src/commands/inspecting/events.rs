//! `taskqueue events`

use anyhow::Result;
use chrono::Local;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::error::{CliError, DONE, INTERRUPTED};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::output::listing::{ListKind, ListOptions, Listing};
use crate::session::Session;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::time::when;
use taskqueue_engine::inspect::events::{self, Event, EventFilter};
use taskqueue_engine::{Context, output_has_no_reader};
use taskqueue_views::human::{folded, instant};
use taskqueue_views::json::event_json;
use taskqueue_views::words::event_words::event_words;

/// Show or follow events: what operators, rescues and handlers did
///
/// If the setting TaskQueueAuditTransitions is 1, every change of a status is an event, too.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue events\n  taskqueue events --task 4711\n  taskqueue events --kind message --kind retried --since 2h\n  taskqueue events --follow --json"
)]
pub(crate) struct EventsArgs {
    /// Show only events of this task
    #[arg(long, value_name = "TASK")]
    task: Option<TaskId>,
    /// Show only events of this run, and messages that are kept for all attempts of its task
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
    /// Show only events of this kind; may be given more than once
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(events::KINDS), hide_possible_values = true)]
    kind: Vec<String>,
    /// Show only events that this user caused
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Show only events since this time, or within this duration: "2026-11-21 10:00", 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show the newest N events; 0 with --follow shows only new ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(0..=100_000))]
    limit: i64,
    /// Then print new events until a signal
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    list: ListOptions,
}

const EVENTS: ListKind =
    ListKind { columns: &["id", "occurred_on", "kind", "task_id", "run_id", "actor", "host", "details"], ids: &["id"] };

pub(crate) fn run(session: Session, args: &EventsArgs, out: &mut Out) -> Result<u8> {
    if args.follow && args.list.needs_end() {
        return Err(CliError::usage("--follow never ends, so it cannot print an array or a table")
            .with_hint("--output jsonl, csv or id")
            .into());
    }
    let mut listing = Listing::of(&args.list, &EVENTS, out)?;
    let stop = args.follow.then(|| session.stop_at_once()).transpose()?;
    let mut ctx = if args.follow { session.open_to_follow(out)? } else { session.open_to_read(out)? };
    let filter = filter(&mut ctx, args)?;
    let Some(stop) = stop else {
        // One more than is shown tells whether there are more.
        let found = events::list(&mut ctx, &filter, args.limit.saturating_add(1))?;
        if found.is_empty() {
            events::expect_subject(&mut ctx, &filter)?;
        }
        let earlier = found.len().saturating_sub(usize::try_from(args.limit).unwrap_or(usize::MAX));
        show(&found[earlier..], &mut listing, out)?;
        if earlier > 0 && listing.is_none() && !out.is_json() {
            out.say_if_watched("There are earlier events; -n shows more.");
        }
        return Ok(DONE);
    };
    // Starts to follow before the list is read, so that no event is missed in between.
    let mut follower = events::Follower::from_now(&mut ctx, filter.clone())?;
    let newest = events::list(&mut ctx, &filter, args.limit)?;
    show(&newest, &mut listing, out)?;
    let shown = newest.last().map_or(0, |event| event.id);
    // Also checked without new events, because the reader of a pipe may have exited.
    while !out.is_unread() && !output_has_no_reader() {
        for event in follower.next(&mut ctx)? {
            if event.id > shown || newest.iter().all(|other| other.id != event.id) {
                show(&[event], &mut listing, out)?;
            }
        }
        if stop.wait(events::POLL_INTERVAL) {
            break;
        }
    }
    Ok(if stop.is_stopping() { INTERRUPTED } else { DONE })
}

fn filter(ctx: &mut Context, args: &EventsArgs) -> Result<EventFilter> {
    let since = match &args.since {
        Some(text) => {
            let now = ctx.now()?.with_timezone(&Local);
            Some(when::parse_past(text, &now).map_err(|message| CliError::usage(format!("--since: {message}")))?)
        }
        None => None,
    };
    Ok(EventFilter {
        task_id: args.task,
        run_id: args.run,
        kinds: args.kind.clone(),
        actor: args.by.clone(),
        since,
        before: None,
    })
}

/// Prints events: the whole list, or its next lines.
fn show(events: &[Event], listing: &mut Option<Listing<'_>>, out: &mut Out) -> Result<()> {
    match listing {
        Some(listing) => listing.print(&events.iter().map(event_json).collect::<Vec<_>>(), out),
        None => events.iter().try_for_each(|event| show_one(event, out)),
    }
}

fn show_one(event: &Event, out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.json(&event_json(event));
    }
    let about = match (event.task_id, event.run_id) {
        (Some(task), Some(run)) => format!("   task {task} run {run}"),
        (Some(task), None) => format!("   task {task}"),
        (None, Some(run)) => format!("   run {run}"),
        (None, None) => String::new(),
    };
    let by = match (event.actor.as_str(), event.host.as_str()) {
        ("", "") => String::new(),
        ("", host) => format!("   on {host}"),
        (actor, "") => format!("   {actor}"),
        (actor, host) => format!("   {actor} on {host}"),
    };
    let line = format!("{}   {}{about}{by}   {}", instant(event.occurred_on), event.kind, event_words(&event.details));
    out.data(folded(clean_line(&line).trim_end(), out.width()))
}
