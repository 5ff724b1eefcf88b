//! `GET /settings`: what all hosts share.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::html;

use super::parts::text;
use super::{Refresh, page as whole_page, problem_page};
use crate::app::App;
use crate::login::Login;
use taskqueue_engine::change::settings::list;

pub(crate) async fn page(State(app): State<App>, Extension(login): Extension<Login>) -> Response {
    match app.call(&login, list).await {
        Ok(settings) => {
            let body = html! {
                h1 { "Settings" }
                p.quiet { "All hosts share them. " code { "taskqueue setting set NAME VALUE" } " changes one." }
                div.scroll {
                    table {
                        thead { tr { th { "Setting" } th { "Value" } th { "Default" } th { "What it does" } } }
                        tbody {
                            @for (setting, value) in &settings {
                                tr {
                                    td { (setting.name()) }
                                    td { (text(value)) }
                                    td { (setting.default_value()) }
                                    td.words { (setting.purpose()) }
                                }
                            }
                        }
                    }
                }
            };
            whole_page("Settings", "/settings", Some(&login), Refresh::OnChanges, &body)
        }
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}
