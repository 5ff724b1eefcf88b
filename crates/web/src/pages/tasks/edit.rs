//! `GET` and `POST /tasks/{id}/edit`: the priority, the time and the data of a task. The form names the version of the task that it
//! shows; if the task has changed since, nothing is changed and both versions are shown. The page is not the one of the task, because
//! that one loads itself again.

use axum::Form;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::Caller;
use crate::pages::parts::{answer, task_status, text};
use crate::pages::tasks::changes::back_to;
use crate::pages::tasks::task::{events, is_editable};
use crate::pages::{Page, Refresh, page as whole_page};
use crate::querying::hidden::nothing_to_hide;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::{ChangeRequest, TaskVersion};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_domain::text::outside_text::clean_json;
use taskqueue_domain::time::when;
use taskqueue_engine::change::edit::{Edit, edit_tasks};
use taskqueue_engine::inspect::status::{TaskDetail, detail};
use taskqueue_engine::{Context, EngineError, EngineResult};
use taskqueue_views::human::instant;

/// The longest data that the form shows; a form encodes a byte in up to three.
const FORM_DATA_BYTES: usize = 64 << 10;
/// The largest body of the form: a byte of data becomes up to three, and the other fields need room.
pub(crate) const BODY_BYTES: usize = 4 * FORM_DATA_BYTES;

/// What the form sends.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EditForm {
    /// The version of the task that the form shows.
    updated_on: DateTime<Utc>,
    /// The open run of that version, or 0.
    run: RunId,
    /// The newest event of the task at that time.
    event: i64,
    priority: String,
    /// Missing for a task that no time starts.
    #[serde(default)]
    pub(crate) due: String,
    /// Missing if the form did not show it.
    pub(crate) data: Option<String>,
}

impl EditForm {
    /// Returns what a new form shows.
    fn of(detail: &TaskDetail, caller: &Caller) -> Self {
        let task = &detail.task;
        Self {
            updated_on: task.updated_on,
            run: open_run(task),
            event: detail.events.first().map_or(0, |event| event.id),
            priority: task.priority.to_string(),
            due: shown_due(task),
            data: has_data_field(caller, task).then(|| editable_text(&task.data)),
        }
    }

    /// Returns what differs from the task.
    fn change_of(&self, task: &Task, now: DateTime<Utc>) -> Result<ChangeRequest, String> {
        let mut change = ChangeRequest::default();
        let (priority, due) = (self.priority.trim(), self.due.trim());
        if priority != task.priority.to_string() {
            let number = priority.parse().map_err(|_| format!("priority: \"{priority}\" is not a whole number"))?;
            change.priority = Some(number);
        }
        if due != shown_due(task) {
            change.scheduled_on = Some(when::parse_start(due, &now).map_err(|words| format!("due: {words}"))?);
        }
        let data = self.data.as_deref().map(editable_text);
        change.data = data.filter(|data| *data != editable_text(&task.data));
        Ok(change)
    }
}

fn open_run(task: &Task) -> RunId {
    task.current_run_id.unwrap_or(RunId(0))
}

/// Returns when the task is due; empty if it is finished.
fn shown_due(task: &Task) -> String {
    if task.is_settled() { String::new() } else { instant(task.due_from()) }
}

/// Returns data as a text field keeps it: line ends as `\n`, and characters that could reorder text escaped, so that a program
/// reads the same value.
pub(crate) fn editable_text(json: &str) -> String {
    let lines = json.replace("\r\n", "\n").replace('\r', "\n");
    let clean_parts = |line: &str| line.split('\t').map(clean_json).collect::<Vec<_>>().join("\t");
    lines.split('\n').map(clean_parts).collect::<Vec<_>>().join("\n")
}

fn is_hidden(caller: &Caller, task: &Task) -> bool {
    caller.app.hidden_data().is_some_and(|classes| classes.contain(task.class.as_str()))
}

/// Returns why the data may not be changed by this login, if so.
fn why_no_data(caller: &Caller, task: &Task) -> Option<&'static str> {
    if is_hidden(caller, task) {
        return Some("Its data is hidden by the configuration.");
    }
    let names_program = task.class.as_str() == EXEC_CLASS && caller.login.may < Scope::Admin;
    names_program.then_some("Its data names a program to run; changing it needs the scope admin.")
}

fn has_data_field(caller: &Caller, task: &Task) -> bool {
    why_no_data(caller, task).is_none() && task.data.len() <= FORM_DATA_BYTES
}

pub(crate) async fn form(caller: Caller, Path(id): Path<i64>) -> Page {
    let detail = caller.call(move |ctx| detail(ctx, TaskId(id))).await?;
    Ok(show(&caller, &detail, &EditForm::of(&detail, &caller), StatusCode::OK, &html! {}))
}

/// The result of saving the form.
pub(crate) enum Made {
    Done,
    /// The input is wrong, or the task does not allow it.
    Refused(StatusCode, String),
    /// The task has changed since the form was shown.
    Stale,
}

nothing_to_hide!(Made);

pub(crate) async fn save(caller: Caller, Path(id): Path<i64>, Form(sent): Form<EditForm>) -> Page {
    let (id, wanted, by) = (TaskId(id), sent.clone(), caller.clone());
    let made = caller.call(move |ctx| Ok((change(ctx, id, &wanted, &by)?, detail(ctx, id)?, ctx.now()?))).await?;
    Ok(match made {
        (Made::Done, ..) => back_to(&format!("/tasks/{id}")),
        (Made::Refused(status, words), detail, _) => {
            show(&caller, &detail, &sent, status, &html! { div role="alert" { (answer(&words, None, true)) } })
        }
        (Made::Stale, detail, now) => {
            // The next answer is for the version that is shown now.
            let again = EditForm { updated_on: detail.task.updated_on, run: open_run(&detail.task), ..sent.clone() };
            show(&caller, &detail, &again, StatusCode::CONFLICT, &both(&detail, &sent, now))
        }
    })
}

fn change(ctx: &mut Context, id: TaskId, sent: &EditForm, caller: &Caller) -> EngineResult<Made> {
    let (task, now) = (detail(ctx, id)?.task, ctx.now()?);
    let version = TaskVersion { updated_on: sent.updated_on, run: Some(sent.run) };
    if !version.is_of(&task) {
        return Ok(Made::Stale);
    }
    let change = match sent.change_of(&task, now) {
        Ok(change) => change,
        Err(words) => return Ok(Made::Refused(StatusCode::BAD_REQUEST, words)),
    };
    // Hidden data is not compared: the answer would show whether a guess is right.
    let has_data = change.data.is_some() || (sent.data.is_some() && is_hidden(caller, &task));
    if let Some(why) = why_no_data(caller, &task).filter(|_| has_data) {
        return Ok(Made::Refused(StatusCode::FORBIDDEN, why.to_owned()));
    }
    if change == ChangeRequest::default() {
        return Ok(Made::Done);
    }
    let (edit, mut made) = (Edit { change, if_version: Some(version) }, Made::Done);
    let edited = edit_tasks(ctx, &[id], &edit, &mut |answer| {
        made = match (answer.result, answer.current) {
            (Some(_), _) => Made::Done,
            (None, Some(_)) => Made::Stale,
            (None, None) => Made::Refused(StatusCode::CONFLICT, answer.message),
        };
    });
    match edited {
        Err(EngineError::Input(words)) => Ok(Made::Refused(StatusCode::BAD_REQUEST, words)),
        edited => edited.map(|()| made),
    }
}

fn show(caller: &Caller, detail: &TaskDetail, sent: &EditForm, status: StatusCode, above: &Markup) -> Response {
    let task = &detail.task;
    let body = html! {
        h1 { "Edit task " (task.id) " · " (text(&task.class)) " · " (task_status(&task.status)) }
        (above)
        @if task.status.is(TaskStatus::Processing) { p { "The attempt in progress does not see the change; the next one does." } }
        @if task.is_settled() { p { "It has finished: it will not run again unless you retry it." } }
        @if is_editable(task) { (fields(task, caller, sent)) }
        p { a href=(format!("/tasks/{}", task.id)) { "Back to task " (task.id) } }
    };
    let title = format!("Edit task {}", task.id);
    (status, whole_page(&title, "/tasks", Some(&caller.login), Refresh::Never, &body)).into_response()
}

fn fields(task: &Task, caller: &Caller, sent: &EditForm) -> Markup {
    html! {
        form.fields method="post" action=(format!("/tasks/{}/edit", task.id)) {
            input type="hidden" name="updated_on" value=(sent.updated_on.to_rfc3339_opts(SecondsFormat::Micros, true));
            input type="hidden" name="run" value=(sent.run);
            input type="hidden" name="event" value=(sent.event);
            label for="priority" { "Priority" }
            input #priority name="priority" inputmode="numeric" required value=(text(&sent.priority));
            @if !task.is_settled() {
                label for="due" { "Due" }
                input #due name="due" required value=(text(&sent.due)) aria-describedby="due-help";
                p #due-help .quiet { "2026-11-21T10:00:00Z, tomorrow 03:00 (in UTC), +30m or now" }
            }
            @if let Some(data) = &sent.data {
                label for="data" { "Data" }
                // A browser drops the first line end.
                textarea #data name="data" rows="12" spellcheck="false" { "\n" (editable_text(data)) }
            } @else if let Some(why) = why_no_data(caller, task) {
                p { (why) }
            } @else {
                p { "Its data is too long for a form: " code { "taskqueue edit " (task.id) " --data @FILE" } }
            }
            button { "Save" }
        }
    }
}

/// What has changed since the form was shown, and the versions side by side.
fn both(detail: &TaskDetail, sent: &EditForm, now: DateTime<Utc>) -> Markup {
    let task = &detail.task;
    let since: Vec<_> = detail.events.iter().filter(|event| event.id > sent.event).cloned().collect();
    let rows = [
        ("Priority", sent.priority.clone(), task.priority.to_string()),
        ("Due", sent.due.clone(), shown_due(task)),
        (
            "Data",
            sent.data.clone().unwrap_or_default(),
            if sent.data.is_some() { task.data.clone() } else { String::new() },
        ),
    ];
    html! {
        div role="alert" { (answer("The task has changed since this form was shown; nothing was saved.", None, true)) }
        @if !since.is_empty() { h2 { "Events since then" } (events(&since, now)) }
        h2 { "Both versions" }
        div.scroll {
            table {
                thead { tr { th { "" } th { "Yours" } th { "Now" } } }
                tbody {
                    @for (name, yours, current) in &rows {
                        tr { th { (name) } td.words { (editable_text(yours)) } td.words { (editable_text(current)) } }
                    }
                }
            }
        }
        p { "Save again to overwrite the current values with yours." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_escapes_characters_that_reorder_text_and_keeps_the_value() {
        let json = "{\r\n\t\"a\": \"x\u{202e}y\"}";
        let shown = editable_text(json);
        assert_eq!(shown, "{\n\t\"a\": \"x\\u202ey\"}");
        assert_eq!(editable_text(&shown.replace('\n', "\r\n")), shown, "as a browser sends it");
    }
}
