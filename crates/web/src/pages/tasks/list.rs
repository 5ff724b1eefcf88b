//! `GET /tasks?q=SELECTION&columns=NAMES&before=ID&over=TIME`: the tasks of a selection, in the language of the command line.

use axum::extract::Query;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::{App, Caller};
use crate::logins::login::Login;
use crate::pages::parts::{answer, text};
use crate::pages::tasks::changes::buttons;
use crate::pages::tasks::columns::{COLUMNS, Column, chosen, table_of};
use crate::pages::tasks::selections::{MOST, page_start, selection};
use crate::pages::{Page, Refresh, page as whole_page};
use crate::serving::address::encoded;
use crate::serving::problem::Problem;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::task::choosing::selection::{PagePlace, PageStart, Selection};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::inspect::status::{SelectionPage, select_page};

/// How many tasks a page shows.
const ON_A_PAGE: i64 = 50;

/// What a list of tasks is asked for. A name that is misspelt must not mean all tasks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TaskPageQuery {
    /// The words of a selection, as for `taskqueue status`.
    pub(crate) q: String,
    /// Newest first, all tasks have ids below this one.
    pub(crate) before: Option<i64>,
    /// Oldest first, all tasks have ids above this one.
    pub(crate) after: Option<i64>,
    /// At most this many.
    pub(crate) limit: Option<i64>,
}

/// What the page is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TasksQuery {
    q: String,
    before: Option<i64>,
    after: Option<i64>,
    limit: Option<i64>,
    /// The time since which the task of `before` or `after` is over, if the tasks are in the order of these times.
    over: Option<DateTime<Utc>>,
    /// The names of columns.
    pub(crate) columns: String,
}

fn over_on(place: PagePlace) -> String {
    let text = |over_on: DateTime<Utc>| encoded(&over_on.to_rfc3339_opts(SecondsFormat::Micros, true));
    place.over_on.map(|over_on| format!("&over={}", text(over_on))).unwrap_or_default()
}

/// Returns where a page of tasks that are over begins, in the order of that time.
fn ended_start(start: PageStart, over: Option<DateTime<Utc>>) -> PageStart {
    let id = start.place().id;
    let over = match (over, start) {
        (Some(over), _) => over,
        (None, PageStart::NEWEST) => DateTime::<Utc>::MAX_UTC,
        (None, PageStart::After(_)) if id.0 <= 0 => DateTime::<Utc>::MIN_UTC,
        (None, _) => return start,
    };
    start.continued(PagePlace::over(id, over))
}

impl TasksQuery {
    /// Returns the address of another page with the same tasks and columns; of the newest tasks without a start.
    fn address(&self, start: Option<PageStart>) -> String {
        let start = match start {
            Some(PageStart::Before(place)) => format!("&before={}{}", place.id, over_on(place)),
            Some(PageStart::After(place)) => format!("&after={}{}", place.id, over_on(place)),
            None => String::new(),
        };
        let limit = self.limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        format!("/tasks?q={}&columns={}{limit}{start}", encoded(&self.q), encoded(&self.columns))
    }

    const fn is_oldest_first(&self) -> bool {
        self.after.is_some()
    }

    const fn is_first_page(&self) -> bool {
        matches!((self.before, self.after, self.over), (None, None | Some(0), None))
    }
}

/// Returns what is listed, where it begins, and with which columns.
fn wanted(app: &App, query: &TasksQuery) -> Result<(Selection, PageStart, Vec<&'static Column>), Problem> {
    let columns = chosen(&query.columns).map_err(Problem::input)?;
    let (selection, start) = (selection(app, &query.q)?, page_start(query.before, query.after)?);
    let start = if selection.ended_statuses().is_some() { ended_start(start, query.over) } else { start };
    Ok((selection, start, columns))
}

pub(crate) async fn page(caller: Caller, Query(query): Query<TasksQuery>) -> Page {
    let (selection, start, columns) = match wanted(&caller.app, &query) {
        Ok(wanted) => wanted,
        Err(problem) => return Ok(show(&caller.login, &query, &answer(&problem.detail, None, true))),
    };
    let limit = query.limit.unwrap_or(ON_A_PAGE).clamp(1, MOST);
    let wanted = selection.clone();
    let found = caller.call(move |ctx| select_page(ctx, &wanted, start, limit)).await?;
    let all = (query.is_first_page() && found.next.is_none()).then_some(found.lines.as_slice());
    let body = html! {
        (list(&found, &columns, &query, start.place().over_on.is_some()))
        @if caller.login.may >= Scope::Operate && !query.q.trim().is_empty() { (buttons(&query.q, &selection, all)) }
    };
    Ok(show(&caller.login, &query, &body))
}

fn show(login: &Login, query: &TasksQuery, list: &Markup) -> Response {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let body = html! {
        h1 { "Tasks" }
        form role="search" action="/tasks" {
            div.row {
                label for="q" { "Selection" }
                input #q type="search" name="q" value=(text(&query.q)) placeholder="class=mail.* status=failed newer=1d" autocomplete="off";
                button { "Show" }
            }
            p.quiet {
                "Ids, ranges and filters as for "
                code { "taskqueue status" }
                ": " code { "17" } ", " code { "100-200" } ", " code { "class=mail.*" } ", " code { "status=due" } ", "
                code { "tag=nightly" } ", " code { "data.order=17" } ", " code { "error=exit:75" } ", " code { "newer=1d" } "."
            }
            @if let Some(limit) = query.limit { input type="hidden" name="limit" value=(limit); }
            @if query.is_oldest_first() { input type="hidden" name="after" value="0"; }
            details #columns-shown open[!query.columns.is_empty()] {
                summary { "Columns" }
                div.row {
                    label for="columns" { "Show" }
                    input #columns type="search" name="columns" value=(text(&query.columns)) placeholder="task class status tag queued" autocomplete="off";
                }
                p.quiet { (names.join(", ")) }
            }
        }
        (list)
    };
    whole_page("Tasks", "/tasks", Some(login), Refresh::OnChanges, &body)
}

fn list(found: &SelectionPage, columns: &[&Column], query: &TasksQuery, is_over: bool) -> Markup {
    let end = match (found.lines.is_empty(), query.is_first_page()) {
        (true, true) => return html! { p { "No task matches." } },
        (false, true) => "These are all.",
        (_, false) => "There are no more.",
    };
    html! {
        @if is_over { p.quiet { "Sorted by the time at which they finished." } }
        (table_of(columns, &found.lines, found.now))
        p {
            @if let Some(next) = found.next {
                a rel="next" href=(query.address(Some(next))) { @if query.is_oldest_first() { "Newer tasks" } @else { "Older tasks" } } " · "
            } @else {
                span.quiet { (end) } " "
            }
            @if query.is_oldest_first() {
                a href=(query.address(None)) { "Newest first" }
            } @else {
                a href=(query.address(Some(PageStart::After(PagePlace::of(TaskId(0)))))) { "Oldest first" }
            }
        }
    }
}
