//! `GET /tasks/{id}/log?run=ID` and `?attempt=N`: what a handler has written.

use axum::extract::{Path, Query};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::Caller;
use crate::pages::parts::{maybe_time, run_status, task_link, text};
use crate::pages::tasks::ansi::coloured;
use crate::pages::{Page, Refresh, page as whole_page};
use chrono::{DateTime, Utc};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput};
use taskqueue_engine::inspect::logs::{AskedRun, run_with_output};

/// Which run, or which attempt; without one, the newest that has started.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Which {
    run: Option<RunId>,
    attempt: Option<i32>,
}

pub(crate) async fn page(caller: Caller, Path(id): Path<i64>, Query(Which { run, attempt }): Query<Which>) -> Page {
    let asked = run.map(AskedRun::Id).or(attempt.map(AskedRun::Attempt)).unwrap_or_default();
    let (found, now) = caller.call(move |ctx| Ok((run_with_output(ctx, TaskId(id), asked)?, ctx.now()?))).await?;
    let refresh = match &found {
        None => Refresh::OnChanges,
        Some((run, _)) if run.finished_on.is_none() => Refresh::OnOutput(run.id),
        Some(_) => Refresh::Never,
    };
    let body = html! {
        h1 { "Output of task " (task_link(TaskId(id))) }
        @match &found {
            Some((run, outputs)) => (output(run, outputs, now)),
            None => p { "No attempt has started." },
        }
    };
    Ok(whole_page(&format!("Output of task {id}"), "/tasks", Some(&caller.login), refresh, &body))
}

fn output(run: &Run, outputs: &[RunOutput], now: DateTime<Utc>) -> Markup {
    html! {
        p {
            "Attempt " (run.attempt) " (run " (run.id) "), " (run_status(&run.status)) ", started " (maybe_time(run.started_on, now)) " "
            a href="#end" { "to the end" }
        }
        @if outputs.is_empty() { p { "No output so far." } }
        @for output in outputs {
            h2 { (text(&output.stream)) " " span.quiet { "(" (output.total_bytes) " bytes" @if output.is_lossy { ", not all kept" } ")" } }
            pre { (coloured(&output.content)) }
        }
        p #end { a href="#main" { "to the beginning" } }
    }
}
