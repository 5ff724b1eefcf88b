//! What the buttons do. A change of one thing leads back to its page; one of many is asked about first.

use axum::Form;
use axum::extract::Path;
use axum::extract::rejection::FormRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::Caller;
use crate::logins::login::{Login, digest};
use crate::pages::parts::{answer, task_link, text};
use crate::pages::tasks::selections::selection;
use crate::pages::{Page, Refresh, page as whole_page};
use crate::querying::database::Patience;
use crate::querying::hidden::nothing_to_hide;
use crate::serving::address::encoded;
use crate::serving::problem::Problem;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::{TaskEvent, statuses_for};
use taskqueue_domain::task::choosing::selection::{Selection, StatusFilter};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::text::outside_text::clean_line;
use taskqueue_engine::change::cancel::{cancel_tasks, cancellable, preview_cancel};
use taskqueue_engine::change::retry::{RetryOptions, preview_retry, retry_tasks, retryable};
use taskqueue_engine::change::schedules;
use taskqueue_engine::change::selected::{OnAnswer, TaskAnswer, select_oldest};
use taskqueue_engine::inspect::status::TaskLine;
use taskqueue_engine::queueing::queue::ClassCheck;
use taskqueue_engine::queueing::schedule_run::run_now;
use taskqueue_engine::{Context, EngineResult};
use taskqueue_views::human::plural;

/// How many answers a page lists.
const ANSWERS: usize = 100;
/// How many tasks are changed at once: a request has a time limit, and a retry can take 10 ms.
const MOST_TASKS: usize = 5_000;

nothing_to_hide!(Problem);

/// A change of tasks.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Retry,
    Cancel,
}

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Cancel => "Cancel",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Retry => "/retry",
            Self::Cancel => "/cancel",
        }
    }

    /// The statuses that are meant where none is named.
    fn statuses(self) -> Vec<TaskStatus> {
        match self {
            Self::Retry => retryable(false),
            Self::Cancel => cancellable(false),
        }
    }

    /// Returns the statuses of the tasks of a selection on which it can have an effect.
    fn possible(self, selection: &Selection) -> Vec<TaskStatus> {
        let event = match self {
            Self::Retry => TaskEvent::Retry,
            Self::Cancel => TaskEvent::Cancel,
        };
        let (named, possible) = (selection.allowed_statuses(), statuses_for(event));
        let meant = if selection.statuses.is_empty() { self.statuses() } else { named };
        meant.into_iter().filter(|status| possible.contains(status)).collect()
    }

    /// Does it. The options are for a retry.
    fn make(
        self,
        ctx: &mut Context,
        ids: &[TaskId],
        options: &RetryOptions<'_>,
        on_answer: OnAnswer<'_>,
    ) -> EngineResult<()> {
        match self {
            Self::Retry => retry_tasks(ctx, ids, options, on_answer),
            Self::Cancel => cancel_tasks(ctx, ids, None, on_answer),
        }
    }

    /// Does it with one task, and returns its answer. A task is only retried if it has one of these statuses; empty allows all.
    pub(crate) fn make_one(self, ctx: &mut Context, id: TaskId, only: &[TaskStatus]) -> EngineResult<Vec<TaskAnswer>> {
        let (mut answers, options) = (Vec::new(), RetryOptions { only, ..RetryOptions::default() });
        self.make(ctx, &[id], &options, &mut |answer| answers.push(answer))?;
        Ok(answers)
    }

    /// Does it until it fails, and returns the answers so far with what has failed.
    fn make_many(
        self,
        ctx: &mut Context,
        ids: &[TaskId],
        options: &RetryOptions<'_>,
    ) -> (Vec<TaskAnswer>, Option<Problem>) {
        let (mut answers, patience) = (Vec::new(), Patience::new());
        patience.hold(ctx);
        let made = self.make(ctx, ids, options, &mut |answer| {
            patience.renew();
            answers.push(answer);
        });
        (answers, made.err().map(Problem::from))
    }

    fn preview(self, ctx: &mut Context, ids: &[TaskId]) -> EngineResult<Vec<TaskAnswer>> {
        let mut answers = Vec::new();
        match self {
            Self::Retry => preview_retry(ctx, ids, &RetryOptions::default(), &mut |answer| answers.push(answer))?,
            Self::Cancel => preview_cancel(ctx, ids, &mut |answer| answers.push(answer))?,
        }
        Ok(answers)
    }
}

/// The buttons that change all tasks of a selection, without those that can change none of them. `all` are its tasks, if the
/// page shows all.
pub(super) fn buttons(query: &str, selection: &Selection, all: Option<&[TaskLine]>) -> Markup {
    let changes = [Change::Retry, Change::Cancel].into_iter().filter(|change| {
        let possible = change.possible(selection);
        let is_possible = |line: &TaskLine| possible.iter().any(|status| line.task.status.is(*status));
        all.map_or(!possible.is_empty(), |lines| lines.iter().any(is_possible))
    });
    html! {
        div.actions {
            @for change in changes {
                form method="post" action=(change.path()) {
                    input type="hidden" name="q" value=(text(query));
                    button { (change.name()) " these" }
                }
            }
        }
    }
}

/// The status that the page showed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    status: String,
}

pub(crate) async fn retry_one(caller: Caller, Path(id): Path<i64>, shown: Result<Form<Shown>, FormRejection>) -> Page {
    one(&caller, TaskId(id), Change::Retry, shown.ok().map(|Form(shown)| shown)).await
}

pub(crate) async fn cancel_one(caller: Caller, Path(id): Path<i64>) -> Page {
    one(&caller, TaskId(id), Change::Cancel, None).await
}

async fn one(caller: &Caller, id: TaskId, change: Change, shown: Option<Shown>) -> Page {
    let only: Vec<TaskStatus> = shown.and_then(|shown| TaskStatus::parse(&shown.status)).into_iter().collect();
    let answers = caller.call(move |ctx| change.make_one(ctx, id, &only)).await?;
    let is_done = answers.iter().all(|answer| answer.result.is_some());
    Ok(if is_done {
        back_to(&format!("/tasks/{id}"))
    } else {
        show_answers(&caller.login, change, (&answers, false), None)
    })
}

/// A selection, and the digest of the tasks that the reader has agreed to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Selected {
    q: String,
    agreed: Option<String>,
    /// How fast the tasks are due: `100/1m`. Empty makes all of them due at once.
    #[serde(default)]
    rate: String,
}

impl Selected {
    fn rate(&self) -> Result<Option<Rate>, Problem> {
        let given = Some(self.rate.trim()).filter(|rate| !rate.is_empty());
        given.map(str::parse).transpose().map_err(|words: String| Problem::input(format!("the rate: {words}")))
    }
}

pub(crate) async fn retry_selected(caller: Caller, Form(selected): Form<Selected>) -> Page {
    many(&caller, &selected, Change::Retry).await
}

pub(crate) async fn cancel_selected(caller: Caller, Form(selected): Form<Selected>) -> Page {
    many(&caller, &selected, Change::Cancel).await
}

/// Asks first, and again if other tasks are selected by then or the rate is none.
async fn many(caller: &Caller, selected: &Selected, change: Change) -> Page {
    let mut wanted = selection(&caller.app, &selected.q)?;
    if selected.q.trim().is_empty() {
        return Err(Problem::input("select tasks: an empty selection would mean all"));
    }
    if wanted.statuses.is_empty() {
        wanted.statuses = change.statuses().into_iter().map(StatusFilter::Is).collect();
    }
    let rate = selected.rate();
    // What was agreed to had no such rate.
    let agreed = selected.agreed.clone().filter(|_| rate.is_ok());
    let (rate, problem) = match rate {
        Ok(rate) => (rate, None),
        Err(problem) => (None, Some(problem)),
    };
    let (answers, has_more, is_made, failure) = caller
        .call(move |ctx| {
            let (ids, has_more) = select_oldest(ctx, &wanted, MOST_TASKS)?;
            if agreed.is_some_and(|agreed| agreed == digest_of(&ids)) {
                let only = wanted.allowed_statuses();
                let options = RetryOptions { only: &only, rate, ..RetryOptions::default() };
                let (answers, failure) = change.make_many(ctx, &ids, &options);
                return Ok((answers, has_more, true, failure));
            }
            Ok((change.preview(ctx, &ids)?, has_more, false, None))
        })
        .await?;
    Ok(if is_made {
        show_answers(&caller.login, change, (&answers, has_more && failure.is_none()), failure.as_ref())
    } else {
        ask(&caller.login, change, selected, (&answers, has_more), problem.as_ref())
    })
}

fn digest_of(ids: &[TaskId]) -> String {
    digest(&ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn ask(
    login: &Login,
    change: Change,
    selected: &Selected,
    (answers, has_more): (&[TaskAnswer], bool),
    problem: Option<&Problem>,
) -> Response {
    let selection = &selected.q;
    let possible = answers.iter().filter(|answer| answer.result.is_some()).count();
    let body = html! {
        h1 { (change.name()) " " (plural(possible, "task")) "?" }
        @if let Some(problem) = problem { (answer(&problem.detail, None, true)) }
        p { "Selected by " code { (text(selection)) } "." }
        @if possible > 0 {
            form.row method="post" action=(change.path()) {
                input type="hidden" name="q" value=(clean_line(selection));
                input type="hidden" name="agreed" value=(digest_of(&answers.iter().map(|answer| answer.id).collect::<Vec<_>>()));
                @if matches!(change, Change::Retry) {
                    label for="rate" { "Rate (empty: all at once)" }
                    input #rate name="rate" placeholder="100/1m" size="8" value=(clean_line(&selected.rate));
                }
                button { "Yes, " (change.name().to_lowercase()) " " (plural(possible, "task")) }
                a href=(format!("/tasks?q={}", encoded(selection))) { "No" }
            }
        }
        (list(answers, has_more))
    };
    let status = problem.map_or(StatusCode::OK, |problem| problem.status);
    (status, whole_page(change.name(), "/tasks", Some(login), Refresh::Never, &body)).into_response()
}

/// Shows what was done, and what ended it before the others were.
fn show_answers(
    login: &Login,
    change: Change,
    (answers, has_more): (&[TaskAnswer], bool),
    failure: Option<&Problem>,
) -> Response {
    let done = answers.iter().filter(|answer| answer.result.is_some()).count();
    let body = html! {
        @if let Some(failure) = failure {
            h1 { (change.name()) ": " (plural(done, "task")) ", then it failed" }
            (answer(&failure.detail, None, true))
            p { "It is not known whether the tasks after these have changed." }
        } @else {
            h1 { (change.name()) ": " (done) " of " (plural(answers.len(), "task")) }
        }
        (list(answers, has_more))
        p { a href="/tasks" { "Tasks" } }
    };
    let refused = (done == 0 && !answers.is_empty()).then_some(StatusCode::CONFLICT);
    let status = failure.map(|failure| failure.status).or(refused).unwrap_or(StatusCode::OK);
    (status, whole_page(change.name(), "/tasks", Some(login), Refresh::Never, &body)).into_response()
}

fn list(answers: &[TaskAnswer], has_more: bool) -> Markup {
    html! {
        @if has_more { p { "More tasks match: these are the oldest " (MOST_TASKS) ". Change the others after them, or use the command line." } }
        ul {
            @for answer in answers.iter().take(ANSWERS) { li { (task_link(answer.id)) ": " (text(&answer.message)) } }
            @if answers.len() > ANSWERS { li { (answers.len() - ANSWERS) " more" } }
        }
    }
}

/// The form of the button that runs a schedule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunForm {
    /// When its page was made, in microseconds since 1970.
    page: Option<i64>,
}

/// A button that is pressed twice queues one task.
pub(crate) async fn run_schedule(
    caller: Caller,
    Path(id): Path<i64>,
    form: Result<Form<RunForm>, FormRejection>,
) -> Page {
    let page = form.ok().and_then(|Form(form)| form.page);
    let once = page.map(|page| format!("run-now:{id}:{page}"));
    let task = caller.call(move |ctx| run_now(ctx, TaskId(id), ClassCheck::AnyName, once)).await?;
    Ok(back_to(&format!("/tasks/{task}")))
}

pub(crate) async fn pause_schedule(caller: Caller, Path(id): Path<i64>) -> Page {
    caller.call(move |ctx| schedules::pause(ctx, TaskId(id))).await?;
    Ok(back_to(&format!("/schedules/{id}")))
}

pub(crate) async fn resume_schedule(caller: Caller, Path(id): Path<i64>) -> Page {
    caller.call(move |ctx| schedules::resume(ctx, TaskId(id))).await?;
    Ok(back_to(&format!("/schedules/{id}")))
}

pub(in crate::pages) fn back_to(place: &str) -> Response {
    Redirect::to(place).into_response()
}
