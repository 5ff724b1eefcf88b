//! A claimed run, as its claimant gets it.

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::value::RawValue;

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
///
/// # Errors
/// Returns an error if the data can be written neither as JSON nor as text.
pub fn claim_line(offer: &Offer) -> serde_json::Result<ClaimLine<'_>> {
    let run = &offer.run;
    // Unchanged except for space between JSON tokens: a line break would end the run.
    let data: String = run.data.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c }).collect();
    Ok(ClaimLine {
        run_id: run.run_id.0,
        task_id: run.task_id.0,
        token: &run.token,
        class: &run.class,
        data: RawValue::from_string(data).or_else(|_| serde_json::value::to_raw_value(&run.data))?,
        attempt: run.attempt,
        max_retries: offer.max_retries,
        timeout_secs: offer.timeout_secs,
        deadline: offer.deadline.to_rfc3339_opts(SecondsFormat::Micros, true),
    })
}
