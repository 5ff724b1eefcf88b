//! `class test`: runs the handler of a class once, without a store.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use crate::error::{EngineError, EngineResult};
use crate::handler::RunContext;
use crate::handler::command::Printer;
use crate::handler::handlers::{ClassHandler, Handlers};
use taskqueue_domain::run::decision::{Decision, decide};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::trace::Trace;
use taskqueue_host::random::token;
use taskqueue_process::children::child::Stream;

use crate::config::Protocol;

/// The timeout of a class that sets none.
const DEFAULT_TIMEOUT_SECS: i64 = 3_600;

/// What a handler did, and what a runner would have recorded.
#[derive(Clone, Debug)]
pub struct TriedClass {
    /// What a runner would have decided.
    pub decision: Decision,
    /// The results that it reported, as JSON text.
    pub results: Option<String>,
}

/// Runs the program of a class once with this data, as a runner does. Records nothing.
///
/// # Errors
/// Returns [`EngineError::UnknownClass`], or [`EngineError::Refused`] if no program is started for each run of the class.
pub fn try_class(
    handlers: &Handlers,
    class: &TaskClass,
    data: &str,
    now: DateTime<Utc>,
    print: &mut dyn FnMut(Stream, &[u8]),
) -> EngineResult<TriedClass> {
    let configured = match handlers.find(class) {
        Some(ClassHandler::Command(configured)) => configured,
        Some(_) => return Err(EngineError::Refused(format!("the class \"{class}\" has no program to test"))),
        None => {
            let nearest = handlers.nearest_names(class);
            return Err(EngineError::UnknownClass { class: class.to_string(), nearest });
        }
    };
    if configured.protocol != Protocol::OneShot {
        return Err(EngineError::Refused(format!(
            "the program of the class \"{class}\" is a coprocess, which a runner keeps running"
        )));
    }
    let timeout = configured.timeout.map(|timeout| timeout.as_secs());
    let timeout_secs = timeout.and_then(|secs| i64::try_from(secs).ok()).unwrap_or(DEFAULT_TIMEOUT_SECS);
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
    let context = RunContext {
        task_id: 0,
        run_id: 0,
        attempt: 1,
        max_retries: 1,
        class: class.clone(),
        data: data.to_owned(),
        token: token().map_err(|source| EngineError::Os { what: "cannot make a token", source })?,
        planned_on: time(now),
        timeout_secs,
        deadline: time(now + TimeDelta::try_seconds(timeout_secs).unwrap_or_default()),
        trace: Trace::default(),
    };
    let command = handlers.command_of(configured).map_err(EngineError::Refused)?;
    let end = command.run(&configured.exit_rules, &context, &[], None, &mut Printer(print));
    let stderr = end.stderr.to_text();
    let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let decision = decide(&end.ending, end.said.error.as_ref(), last_line, &configured.exit_rules, timeout_secs);
    let decision = decision.with_unread_events(end.said.unread).with_unknown_keys(&end.said.unknown_keys);
    Ok(TriedClass { decision, results: end.said.results })
}
