//! `GET /`: what happens now.

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use crate::app::Caller;
use crate::following::charts::Figures;
use crate::following::live::{Glance, Seen};
use crate::logins::login::Login;
use crate::pages::chart::charts;
use crate::pages::classes::work_table;
use crate::pages::parts::{answer, bad_counter, cards, counter, maybe_time, task_link, text};
use crate::pages::pauses::{LINK, address, in_effect, pause_all};
use crate::pages::tasks::columns::task_table;
use crate::pages::{Page, Refresh, page as whole_page};
use taskqueue_domain::limits::pause::PauseScope;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_engine::inspect::doctor::Trouble;
use taskqueue_engine::inspect::status::{ClassLine, RunnerLine};
use taskqueue_views::answer::{QueueAnswer, queue_answer, sentence_of};
use taskqueue_views::human::{distance, plural};
use taskqueue_views::words::standstill::{standstill_remedy, standstill_words};
use taskqueue_views::words::trouble::trouble_words;

/// How many classes are listed.
const CLASSES: usize = 10;

pub(crate) async fn page(Caller { app, login }: Caller) -> Page {
    let (seen, classes, troubles) = tokio::join!(app.live.glance(), app.classes.get(), app.troubles.get());
    let figures = app.charts.figures().await;
    let (classes, troubles) = (classes.unwrap_or_default(), troubles.unwrap_or_default());
    let body = body(&seen?, &classes.0, &troubles, &figures, &login);
    Ok(whole_page("Now", "/", Some(&login), Refresh::OnChanges, &body))
}

fn body(seen: &Seen, classes: &[ClassLine], troubles: &[Trouble], figures: &Figures, login: &Login) -> Markup {
    let Glance { overview, runners, stuck, .. } = &*seen.glance;
    let (counts, now) = (&overview.counts, overview.now);
    html! {
        h1 { "Now" }
        @if let Some(problem) = &seen.problem {
            (answer(&format!("{}. These figures are {}s old.", problem.detail, seen.read_at.elapsed().as_secs()), None, true))
        }
        @for standstill in &overview.standstills {
            (answer(&standstill_words(standstill, now), Some(&standstill_remedy(standstill)), true))
        }
        @if let Some(QueueAnswer { words, command }) = stuck.as_ref().map(queue_answer) { (answer(&words, Some(&command), true)) }
        @if let Some(words) = trouble(troubles, &seen.glance) { (answer(&words, Some("taskqueue doctor"), true)) }
        (in_effect(&overview.pauses, now, login))
        ul.counters {
            (counter("running", counts.processing, "/tasks?q=status%3Dprocessing"))
            (counter("waiting runs", counts.waiting_runs, "/tasks?q=status%3Dwaiting"))
            @if counts.waiting_for_key.has_any() {
                (counter("waiting for a limit key", counts.waiting_for_key, "/tasks?q=status%3Dwaiting"))
            }
            (counter("due", counts.due, "/tasks?q=status%3Ddue"))
            (counter("scheduled", counts.scheduled, "/tasks?q=status%3Dscheduled"))
            (bad_counter("failed", counts.failed, "/failures"))
            (bad_counter("timeout", counts.timeout, "/failures"))
            @if counts.quarantined.has_any() {
                (bad_counter("quarantined", counts.quarantined, "/tasks?q=status%3Dquarantined"))
            }
            (counter("cancelled", counts.cancelled, "/tasks?q=status%3Dcancelled"))
            @if counts.expired.count > 0 { (counter("expired", counts.expired, "/tasks?q=status%3Dexpired")) }
            (counter("success", counts.success, "/tasks?q=status%3Dsuccess"))
            li { a href="/runners" { b { (overview.slots.0) "/" (overview.slots.1) } "slots in use" } }
            @if let Some(secs) = counts.oldest_due_secs { li { b { (distance(TimeDelta::seconds(secs))) } "oldest due" } }
        }
        @if login.may >= Scope::Operate && !overview.pauses.iter().any(|pause| pause.scope == PauseScope::All) { (pause_all()) }
        @if !classes.is_empty() {
            h2 { "Classes" }
            (work_table(&classes[..classes.len().min(CLASSES)]))
            @if classes.len() > CLASSES { p { a href="/classes" { "All classes" } } }
        }
        (charts(figures))
        h2 { "Tasks" }
        @if overview.lines.is_empty() {
            p { "No tasks yet." }
        } @else {
            (task_table(&overview.lines, now))
            @if overview.has_more { p { a href="/tasks" { "All tasks" } } }
        }
        h2 { "Runners" }
        (runner_table(runners, now, login))
    }
}

/// Returns the worst problem that `doctor` finds in the tables, and how many others, without those that the page shows anyway.
fn trouble(troubles: &[Trouble], Glance { overview, stuck, .. }: &Glance) -> Option<String> {
    let is_stuck = stuck.is_some() || !overview.standstills.is_empty();
    let is_shown = |trouble: &&Trouble| match trouble {
        Trouble::Standstill { .. } | Trouble::OldPause { .. } => true,
        Trouble::NothingRuns { .. } | Trouble::NothingCreatesRuns { .. } => is_stuck,
        _ => false,
    };
    let mut others = troubles.iter().filter(|trouble| !is_shown(trouble));
    let words = trouble_words(others.next()?, overview.now);
    Some(match others.count() {
        0 => sentence_of(&words),
        more => format!("{} And {}.", sentence_of(&words), plural(more, "more problem")),
    })
}

fn state_class(state: &str) -> &'static str {
    match state {
        "dead" | "silent" => "bad",
        "ended" => "quiet",
        _ => "good",
    }
}

/// The runners that have not ended.
pub(crate) fn runner_table(runners: &[RunnerLine], now: DateTime<Utc>, login: &Login) -> Markup {
    if runners.is_empty() {
        return html! { p { "No runner is alive." } };
    }
    let may_change = login.may >= Scope::Operate;
    let heads = ["Runner", "Host", "State", "Slots", "Since", "Memory", "Current runs"].into_iter();
    let rows = html! {
        @for line in runners {
            tr {
                td { (text(&line.runner.name)) }
                td { (text(&line.runner.host)) }
                td {
                    span class=(state_class(line.state)) { (line.state) }
                    @if line.pause.is_some() { span.waiting { " paused" } }
                }
                td { (line.runner.slots) }
                td { (maybe_time(Some(line.runner.started_on), now)) }
                td { @if let Some(bytes) = line.memory_bytes { (bytes >> 20) " MiB" } }
                td {
                    @for work in &line.works_on { (task_link(work.task_id)) " (" (text(&work.class)) ") " }
                    @if line.works_on.is_empty() { span.quiet { "nothing" } }
                }
                @if may_change {
                    td { @if line.state != "ended" { a href=(address(&PauseScope::Runner(line.runner.name.clone()))) { (LINK) } } }
                }
            }
        }
    };
    html! {
        (cards(heads.chain(may_change.then_some("Change")), &rows))
        p.quiet { (plural(runners.len(), "runner")) }
    }
}
