//! `GET /classes?name=CLASS`: the classes with their limits and holds, and how long the runs of one waited and took.

use axum::extract::Query;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::parts::{answer, cards, text, time};
use crate::pages::pauses::{LINK, address};
use crate::pages::{Page, Refresh, page as whole_page};
use crate::serving::address::encoded;
use taskqueue_domain::limits::pause::PauseScope;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::monitoring::spread::Spread;
use taskqueue_engine::change::classes::{ClassState, list};
use taskqueue_engine::change::limits::{self, LimitLine};
use taskqueue_engine::inspect::status::{ClassLine, ClassTimes, Counted, class_times};
use taskqueue_views::class_times::{bound_words, secs_words};
use taskqueue_views::human::{count, plural};

/// The width and the height of the longest bar, in pixels.
const BAR_PIXELS: usize = 200;
const BAR_HEIGHT_PIXELS: usize = 12;

/// Which class is shown with its times.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    name: String,
}

pub(crate) async fn page(caller: Caller, Query(Shown { name }): Query<Shown>) -> Page {
    let (classes, limits, times, now) = caller
        .call(move |ctx| {
            let times = if name.is_empty() { None } else { Some(class_times(ctx, &name)?) };
            Ok((list(ctx)?, limits::list(ctx)?, times, ctx.now()?))
        })
        .await?;
    let work = caller.app.classes.get().await.unwrap_or_default();
    let (work, has_more) = &*work;
    let body = html! {
        h1 { "Classes" }
        @if let Some(times) = &times { (histograms(times)) }
        @if !work.is_empty() {
            (work_table(work))
            @if *has_more { p.quiet { "Not all classes are counted: those with waiting, running or due tasks come first." } }
        }
        (table(&classes, &limits, now, &caller.login))
    };
    Ok(whole_page("Classes", "/classes", Some(&caller.login), Refresh::OnChanges, &body))
}

/// How many tasks of these classes are in which status, with links to them.
pub(crate) fn work_table(lines: &[ClassLine]) -> Markup {
    let number = |class: &str, head: &str, number: Counted, status: &str, is_bad: bool| {
        let query = encoded(&format!("\"class={class}\" status={status}"));
        html! {
            td data-label=(head) {
                @if number == Counted::default() {
                    span.quiet { "0" }
                } @else {
                    a.bad[is_bad] href=(format!("/tasks?q={query}")) { (count(number)) }
                }
            }
        }
    };
    let rows = html! {
        @for ClassLine { counts, scheduled } in lines {
            @let class = counts.class.as_str();
            tr {
                td { a href=(format!("/classes?name={}", encoded(class))) { (text(class)) } }
                (number(class, "running", Counted { count: counts.running, or_more: false }, "processing", false))
                (number(class, "waiting runs", counts.waiting, "waiting", false))
                (number(class, "due", counts.due, "due", false))
                (number(class, "scheduled", *scheduled, "scheduled", false))
                (number(class, "failed", counts.failed, "failed status=timeout", true))
            }
        }
    };
    cards(["Class", "Running", "Waiting runs", "Due", "Scheduled", "Failed"], &rows)
}

fn table(classes: &[ClassState], limits: &[LimitLine], now: DateTime<Utc>, login: &Login) -> Markup {
    let may_change = login.may >= Scope::Operate;
    let heads = ["Class", "Kind", "State", "Limit", "Program", "Tasks"].into_iter();
    let rows = html! {
        @for class in classes {
            tr {
                td { a href=(format!("/classes?name={}", encoded(&class.name))) { (text(&class.name)) } }
                td { (class.kind) }
                td.words { (state(class, now)) }
                td { (limit(limits.iter().find(|line| line.limit.class == class.name))) }
                td.words { (text(class.argv.join(" "))) }
                td { a href=(format!("/tasks?q={}", encoded(&format!("\"class={}\"", class.name)))) { "tasks" } }
                @if may_change { td { a href=(address(&PauseScope::Class(class.name.clone()))) { (LINK) } } }
            }
        }
    };
    html! {
        p.quiet { "As configured on this host; other hosts can have other programs." }
        (cards(heads.chain(may_change.then_some("Change")), &rows))
    }
}

fn state(class: &ClassState, now: DateTime<Utc>) -> Markup {
    html! {
        @if let Some(problem) = &class.problem {
            span.bad { (text(problem)) }
        } @else if let Some(script) = &class.missing_script {
            span.bad { (text(script.display())) " does not exist" }
        } @else if class.holds.is_empty() {
            span.good { "ok" }
        }
        @for hold in &class.holds {
            span.waiting { "held on " (text(&hold.host)) ", ends " (time(hold.held_until, now)) ": " (text(&hold.reason)) }
        }
    }
}

fn limit(line: Option<&LimitLine>) -> Markup {
    let Some(line) = line else { return html! {} };
    html! {
        @if let Some(most) = line.limit.max_running { (line.running) " of " (most) " running " }
        @if let Some(rate) = &line.limit.rate { (rate) }
    }
}

fn histograms(times: &ClassTimes) -> Markup {
    if times.runs == 0 {
        return answer(&format!("No run of class {} has ended.", times.class), None, false);
    }
    html! {
        h2 { "The newest " (plural(times.runs, "run")) " of " (text(&times.class)) " that ended" }
        div.scroll {
            table {
                thead { tr { th { "" } th { "Due to start" } th { "Run time" } } }
                tbody {
                    @for (waited, took) in times.due_to_start.buckets.iter().zip(&times.run_time.buckets) {
                        tr {
                            td { (bound_words(took.le_secs)) }
                            td { (bar(waited.count, &times.due_to_start)) }
                            td { (bar(took.count, &times.run_time)) }
                        }
                    }
                    tr { td { "median" } td { (secs_words(times.due_to_start.median_secs)) } td { (secs_words(times.run_time.median_secs)) } }
                    tr { td { "95% within" } td { (secs_words(times.due_to_start.p95_secs)) } td { (secs_words(times.run_time.p95_secs)) } }
                }
            }
        }
    }
}

/// A bar with its number, in the colour of the text: it is readable in print and without colours.
fn bar(count: usize, spread: &Spread) -> Markup {
    let most = spread.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let width = (count * BAR_PIXELS).div_ceil(most);
    html! {
        (count) " "
        @if count > 0 {
            svg.bar width=(width) height=(BAR_HEIGHT_PIXELS) aria-hidden="true" { rect width=(width) height=(BAR_HEIGHT_PIXELS) {} }
        }
    }
}
