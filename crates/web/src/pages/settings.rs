//! `GET /settings`: what all hosts share.

use maud::html;

use crate::app::Caller;
use crate::pages::parts::text;
use crate::pages::{Page, Refresh, page as whole_page};
use taskqueue_engine::change::settings::list;

pub(crate) async fn page(caller: Caller) -> Page {
    let settings = caller.call(list).await?;
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
    Ok(whole_page("Settings", "/settings", Some(&caller.login), Refresh::OnChanges, &body))
}
