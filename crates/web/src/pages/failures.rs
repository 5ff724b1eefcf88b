//! `GET /failures`: failed tasks in groups by class and error.

use maud::{Markup, html};

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::parts::{cards, maybe_time, task_link, text};
use crate::pages::{Page, Refresh, page as whole_page};
use crate::serving::address::encoded;
use chrono::{DateTime, Utc};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::text::outside_text::OutsideText;
use taskqueue_engine::inspect::failures::{FailureGroup, Failures, failures};
use taskqueue_views::human::plural;

pub(crate) async fn page(caller: Caller) -> Page {
    let found = caller.call(|ctx| failures(ctx, None)).await?;
    let login = &caller.login;
    Ok(whole_page("Failures", "/failures", Some(login), Refresh::OnChanges, &body(&found, login)))
}

fn body(found: &Failures, login: &Login) -> Markup {
    let heads = ["Tasks", "Class", "Error", "Not retried", "Last", "Message", "Newest"].into_iter();
    let heads = heads.chain((login.may >= Scope::Operate).then_some("Retry"));
    html! {
        h1 { "Failures" }
        @if found.groups.is_empty() {
            p { "No failed tasks." }
        } @else {
            (total(found))
            (cards(heads, &html! { @for group in &found.groups { (row(group, found.now, login)) } }))
        }
    }
}

fn total(found: &Failures) -> Markup {
    let not_retried: usize = found.groups.iter().map(|group| group.will_not_be_retried).sum();
    html! {
        p {
            b { (plural(found.looked_at, "task")) } " failed or timed out at the last attempt; " b { (not_retried) } " will not be retried."
            @if found.has_more { " There are more; only the newest ones are counted." }
        }
    }
}

fn row(group: &FailureGroup, now: DateTime<Utc>, login: &Login) -> Markup {
    let selection = selection_of(group);
    let address = |selection: &str| format!("/tasks?q={}", encoded(selection));
    let message = group.samples.first().map(|sample| sample.error_message.to_string()).unwrap_or_default();
    html! {
        tr {
            td data-label="tasks" {
                @match &selection {
                    Some(selection) => a href=(address(selection)) { (group.tasks) },
                    None => (group.tasks),
                }
            }
            td { (text(&group.class)) }
            td { (text(&group.error_code)) }
            td data-label="not retried" { (group.will_not_be_retried) }
            td data-label="last" { (maybe_time(group.last_failed_on(), now)) }
            td.words { (text(message)) }
            td data-label="newest" { @for sample in &group.samples { (task_link(sample.task_id)) " " } }
            @if login.may >= Scope::Operate {
                td {
                    @if let Some(selection) = &selection {
                        form.row method="post" action="/retry" {
                            input type="hidden" name="q" value=(selection);
                            button { "Retry these" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the selection that matches the tasks of a group; `None` if no selection matches these alone.
fn selection_of(group: &FailureGroup) -> Option<String> {
    let (class, error) = (OutsideText::from(&group.class), &group.error_code);
    let is_plain =
        |text: &OutsideText| !text.is_empty() && text.is_clean() && !text.as_stored().contains(['"', '\n', '\t']);
    if !is_plain(&class) || !is_plain(error) || group.class.contains(['*', '?']) {
        return None;
    }
    let quoted = |key: &str, word: &OutsideText| format!("\"{key}={}\"", word.as_stored());
    Some(format!("{} status=failed status=timeout {}", quoted("class", &class), quoted("error", error)))
}
