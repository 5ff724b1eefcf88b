//! The style sheet and the script, embedded. Their names contain a digest, so that browsers keep them until they change.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

use crate::logins::login::digest;
use crate::serving::problem::Problem;

struct Asset {
    name: String,
    kind: &'static str,
    text: &'static str,
}

static ASSETS: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    let asset = |beginning: &str, ending: &str, kind, text: &'static str| Asset {
        name: format!("{beginning}-{}.{ending}", digest(text).chars().take(12).collect::<String>()),
        kind,
        text,
    };
    [
        asset("page", "css", "text/css; charset=utf-8", include_str!("../assets/page.css")),
        asset("page", "js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    ]
});

/// Returns the address of the style sheet.
pub(crate) fn style() -> String {
    address(0)
}

/// Returns the address of the script.
pub(crate) fn script() -> String {
    address(1)
}

fn address(place: usize) -> String {
    ASSETS.get(place).map(|asset| format!("/assets/{}", asset.name)).unwrap_or_default()
}

/// `GET /assets/{file}`
pub(crate) async fn file(Path(file): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == file) else {
        return Problem::not_found("there is no such file").into_response();
    };
    ([(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], asset.text).into_response()
}
