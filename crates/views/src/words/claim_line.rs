//! A claimed run, as its claimant gets it.

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use taskqueue_domain::text::json::on_one_line;
use taskqueue_engine::claiming::claim::Offer;

/// A claimed run.
#[derive(Debug, Serialize)]
pub struct ClaimLine<'a> {
    run_id: i64,
    task_id: i64,
    token: &'a str,
    class: &'a str,
    data: Box<RawValue>,
    attempt: i32,
    max_retries: i32,
    timeout_secs: i64,
    deadline: String,
}

/// Returns what the claimant of a run gets, with the data as it is stored.
#[must_use]
pub fn claim_line(offer: &Offer) -> ClaimLine<'_> {
    let run = &offer.run;
    ClaimLine {
        run_id: run.run_id.0,
        task_id: run.task_id.0,
        token: &run.token,
        class: &run.class,
        data: RawValue::from_string(on_one_line(&run.data).into_owned())
            .or_else(|_| to_raw_value(&run.data))
            .unwrap_or_default(),
        attempt: run.attempt,
        max_retries: offer.max_retries,
        timeout_secs: offer.timeout_secs,
        deadline: offer.deadline.to_rfc3339_opts(SecondsFormat::Micros, true),
    }
}
