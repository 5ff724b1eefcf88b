//! `GET /tasks?q=SELECTION&before=ID`: the tasks of a selection, in the language of the command line.

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::parts::{answer, task_table, text};
use super::{Refresh, page as whole_page, problem_page};
use crate::address::encoded;
use crate::app::App;
use crate::login::Login;
use crate::problem::Problem;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::selection::Selection;
use taskqueue_engine::inspect::status::{SelectionPage, select_page};

/// How many tasks a page shows.
const ON_A_PAGE: i64 = 50;
/// The most that a program may ask for at once.
pub(crate) const MOST: i64 = 1_000;

/// The most words of a selection: each may be a query.
const MOST_WORDS: usize = 30;

/// What a list of tasks is asked for. A name that is misspelt must not mean all tasks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TaskPageQuery {
    /// The words of a selection, as for `taskqueue status`.
    pub(crate) q: String,
    /// All tasks have ids below this one.
    pub(crate) before: Option<i64>,
    /// At most this many.
    pub(crate) limit: Option<i64>,
}

/// Parses the words of a selection; spaces in a word are written in quotation marks. Without any, all tasks are meant. Hidden data
/// could be guessed by selections, so none may be by data then.
pub(crate) fn selection(app: &App, text: &str) -> Result<Selection, Problem> {
    let selection = parsed(text)?;
    if !selection.data.is_empty() && app.hidden_data().is_some() {
        return Err(Problem::forbidden(
            "tasks cannot be selected by their data here: hide_data of the configuration hides some",
        ));
    }
    Ok(selection)
}

/// Parses the words.
pub(crate) fn parsed(text: &str) -> Result<Selection, Problem> {
    let words = words(text);
    if words.is_empty() {
        return Ok(Selection::default());
    }
    if words.len() > MOST_WORDS {
        return Err(Problem::input(format!("a selection has at most {MOST_WORDS} words here")));
    }
    Selection::parse(&words).map_err(Problem::input)
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut has_word) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (is_quoted, has_word) = (!is_quoted, true),
            c if c.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut has_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                has_word = true;
            }
        }
    }
    if has_word {
        words.push(word);
    }
    words
}

pub(crate) async fn page(
    State(app): State<App>,
    Extension(login): Extension<Login>,
    Query(query): Query<TaskPageQuery>,
) -> Response {
    let selection = match selection(&app, &query.q) {
        Ok(selection) => selection,
        Err(problem) => return show(&login, &query, &answer(&problem.detail, None, true)),
    };
    let before = query.before.map(TaskId);
    let limit = query.limit.unwrap_or(ON_A_PAGE).clamp(1, MOST);
    match app.call(&login, move |ctx| select_page(ctx, &selection, before, limit)).await {
        Ok(found) => show(&login, &query, &list(&found, &query)),
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}

fn show(login: &Login, query: &TaskPageQuery, list: &Markup) -> Response {
    let body = html! {
        h1 { "Tasks" }
        form.row role="search" action="/tasks" {
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
        (list)
    };
    whole_page("Tasks", "/tasks", Some(login), Refresh::OnChanges, &body)
}

fn list(found: &SelectionPage, query: &TaskPageQuery) -> Markup {
    if found.lines.is_empty() {
        return html! { p { "No task matches." } };
    }
    html! {
        (task_table(&found.lines, found.now))
        @if let Some(before) = found.next_before {
            p { a rel="next" href=(format!("/tasks?q={}&before={before}", encoded(&query.q))) { "Older tasks" } }
        } @else {
            p.quiet { (text("These are all.")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_outside_quotation_marks_separate_the_words_of_a_selection() {
        assert_eq!(words("  class=a  status=due "), ["class=a", "status=due"]);
        assert_eq!(words("data~\"two words\" 17"), ["data~two words", "17"]);
        assert!(words(" ").is_empty());
    }
}
