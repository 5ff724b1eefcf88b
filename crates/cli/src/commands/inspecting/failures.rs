//! `taskqueue failures`

use chrono::{DateTime, Utc};
use clap::Args;

use crate::error::DONE;
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing};
use crate::output::page::Page;
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use crate::views::unknown_class::{WarnOf, refuse_pattern, warn_of_unknown_class};
use taskqueue_domain::text::outside_text::OutsideText;
use taskqueue_engine::inspect::failures::{FailureGroup, Failures, failures};
use taskqueue_views::human::{fitted_words, plural, relative};
use taskqueue_views::json::failures_json;
use taskqueue_views::shell_word::shell_word;
use taskqueue_views::words::why::final_words;

/// Group failed tasks by class and error, and show how to retry them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue failures\n  taskqueue failures --class mail.send --samples\n  taskqueue retry class=mail.send error=exit:75 --sample 5\n  taskqueue retry class=mail.send error=exit:75 --rate 10/1m"
)]
pub(crate) struct FailuresArgs {
    /// Show only tasks of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Show the newest tasks of each group, with their error messages
    #[arg(long)]
    samples: bool,
    /// Show at most N groups
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    list: ListOptions,
}

const GROUPS: ListKind = ListKind { columns: &["class", "error_code", "tasks", "will_not_be_retried"], ids: &[] };

pub(crate) fn run(session: Session, args: &FailuresArgs, out: &mut Out) -> anyhow::Result<u8> {
    refuse_pattern(args.class.as_deref(), "status")?;
    let listing = Listing::of(&args.list, &GROUPS, out)?;
    let mut ctx = session.open_to_read(out)?;
    let found = failures(&mut ctx, args.class.as_deref())?;
    if let Some(class) = args.class.as_deref().filter(|_| found.groups.is_empty()) {
        warn_of_unknown_class(&mut ctx, class, WarnOf::Any, out)?;
    }
    let shown = found.groups.len().min(usize::try_from(args.limit).unwrap_or(usize::MAX));
    if let Some(mut listing) = listing {
        listing.print(&found.groups[..shown], out)?;
        return Ok(DONE);
    }
    if out.is_json() {
        out.json(&failures_json(&found, shown))?;
        return Ok(DONE);
    }
    if found.groups.is_empty() {
        out.data(fitted_words("No failed tasks: no task has failed, or all have succeeded since.", out.width()))?;
        return Ok(DONE);
    }
    show(&found, shown, args.samples, out)?;
    Ok(DONE)
}

fn show(found: &Failures, shown: usize, with_samples: bool, out: &mut Out) -> anyhow::Result<()> {
    let groups = &found.groups[..shown];
    let mut page = Page::from(fitted_words(&counter(found), out.width()));
    page.add("");
    if with_samples {
        let rows = groups.iter().flat_map(|group| sample_rows(group, found.now)).collect();
        page.add(render(out, &["TASK", "CLASS", "ERROR", "ATTEMPTS", "RETRY", "FAILED", "MESSAGE"], rows, &[5, 3]));
    } else {
        let rows = groups.iter().map(|group| row(group, found.now)).collect();
        page.add(render(out, &["TASKS", "NOT RETRIED", "CLASS", "ERROR", "LAST", "MESSAGE"], rows, &[4, 1]));
    }
    if let Some(largest) = groups.first() {
        let words = format!("Retry a few of the largest group: {}", retry_command(largest));
        page.add("");
        page.add(fitted_words(&words, out.width()));
    }
    if shown < found.groups.len() {
        let more = format!("{} more: -n N shows more.", plural(found.groups.len() - shown, "group"));
        page.add(fitted_words(&more, out.width()));
    }
    out.data(page)
}

/// Formats the totals: `12 failed tasks in 3 groups; 2 of them will not be retried`.
fn counter(found: &Failures) -> String {
    let will_not_be_retried: usize = found.groups.iter().map(|group| group.will_not_be_retried).sum();
    let (tasks, groups) = (plural(found.looked_at, "failed task"), plural(found.groups.len(), "group"));
    let newest = if found.has_more { "the newest " } else { "" };
    format!("{newest}{tasks} in {groups}; {will_not_be_retried} of them will not be retried")
}

/// Returns the command that retries a group. It lists the tasks if the stored error cannot be pasted.
fn retry_command(group: &FailureGroup) -> String {
    let can_be_pasted = |text: &OutsideText| text.is_clean() && !text.as_stored().contains(['\n', '\t']);
    if group.error_code.is_empty() || ![&group.error_code, &group.class.as_str().into()].into_iter().all(can_be_pasted)
    {
        let ids: Vec<String> = group.samples.iter().map(|sample| sample.task_id.to_string()).collect();
        return format!("taskqueue retry {}", ids.join(" "));
    }
    let class = shell_word(&format!("class={}", group.class));
    let error = shell_word(&format!("error={}", group.error_code));
    format!("taskqueue retry {class} {error} --sample 5 --yes")
}

fn row(group: &FailureGroup, now: DateTime<Utc>) -> Vec<Field> {
    let tone = if group.will_not_be_retried > 0 { Tone::Bad } else { Tone::Waiting };
    let message = group.samples.first().map(|sample| first_line(&sample.error_message)).unwrap_or_default();
    vec![
        Field::toned(group.tasks.to_string(), tone),
        group.will_not_be_retried.to_string().into(),
        group.class.as_str().into(),
        group.error_code.to_string().into(),
        group.last_failed_on().map(|on| relative(on, now)).unwrap_or_default().into(),
        message.into(),
    ]
}

fn sample_rows(group: &FailureGroup, now: DateTime<Utc>) -> Vec<Vec<Field>> {
    let rows = group.samples.iter().map(|sample| {
        vec![
            sample.task_id.to_string().into(),
            group.class.as_str().into(),
            Field::toned(group.error_code.to_string(), Tone::Bad),
            sample.attempts.to_string().into(),
            final_words(sample.why_final).into(),
            sample.failed_on.map(|on| relative(on, now)).unwrap_or_default().into(),
            first_line(&sample.error_message).into(),
        ]
    });
    rows.collect()
}

fn first_line(message: &OutsideText) -> String {
    message.as_stored().lines().next().unwrap_or_default().to_owned()
}
