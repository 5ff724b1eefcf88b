//! `GET /runners`: the processes that work.

use maud::html;

use crate::app::Caller;
use crate::pages::now::runner_table;
use crate::pages::{Page, Refresh, page as whole_page};
use taskqueue_engine::inspect::status::list_runners;

/// How many runners are listed, those that have ended among them.
const RUNNERS: i64 = 200;

pub(crate) async fn page(caller: Caller) -> Page {
    let (runners, now) = caller.call(|ctx| Ok((list_runners(ctx, RUNNERS, false)?, ctx.now()?))).await?;
    let body = html! { h1 { "Runners" } (runner_table(&runners, now, &caller.login)) };
    Ok(whole_page("Runners", "/runners", Some(&caller.login), Refresh::OnChanges, &body))
}
