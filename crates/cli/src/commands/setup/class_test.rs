//! `taskqueue class test`

use clap::Args;
use serde_json::{Value, json};

use crate::commands::queueing::queue::read_data;
use crate::error::{CliError, DONE, FAILED, did_you_mean};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::run::decision::Decision;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::running::try_class::{TriedClass, try_class};
use taskqueue_engine::{EngineError, Stream};
use taskqueue_views::clock::host_clock;
use taskqueue_views::shell_word::shell_word;

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Task class
    class: TaskClass,
    /// Data of the task: JSON, @FILE, or - for standard input [default: {}]
    #[arg(value_name = "DATA")]
    data: Option<String>,
}

pub(crate) fn run(session: Session, args: &TestArgs, out: &mut Out) -> anyhow::Result<u8> {
    let data = args.data.as_deref().map(read_data).transpose()?.unwrap_or_else(|| "{}".to_owned());
    check_storable(&data).map_err(|what| CliError::usage(format!("the data {what}")))?;
    let handlers = session.into_handlers();
    let is_json = out.is_json();
    let mut captured = [Vec::new(), Vec::new()];
    let mut print = |stream: Stream, bytes: &[u8]| {
        let is_stderr = stream == Stream::Stderr;
        if is_json {
            captured[usize::from(is_stderr)].extend_from_slice(bytes);
        } else {
            out.handler_output(is_stderr, bytes);
        }
    };
    let tried = try_class(&handlers, &args.class, &data, host_clock(), &mut print).map_err(|error| match error {
        EngineError::Refused(_) | EngineError::UnknownClass { .. } if args.class.as_str() == EXEC_CLASS => {
            CliError::from(error).with_hint("taskqueue exec --run PROGRAM")
        }
        EngineError::Refused(why) => CliError::failed(why)
            .with_hint(format!("`taskqueue queue {} --run` runs a task of it", shell_word(&args.class))),
        EngineError::UnknownClass { ref nearest, .. } => {
            let hint = match did_you_mean(nearest).strip_prefix("; ") {
                Some(meant) => format!("{meant} `taskqueue class` lists all classes"),
                None => "taskqueue class    # lists all classes".to_owned(),
            };
            CliError::from(error).with_hint(hint)
        }
        other => other.into(),
    })?;
    let decision = &tried.decision;
    out.json_if_asked(&record(&args.class, &tried, &captured))?;
    out.say(&format!("class {}: {}", args.class, words(decision)));
    Ok(if decision.event == RunEvent::Succeed { DONE } else { FAILED })
}

const fn outcome(event: RunEvent) -> &'static str {
    match event {
        RunEvent::Succeed => "success",
        RunEvent::TimeOut => "timeout",
        RunEvent::Release => "released",
        RunEvent::Cancel => "cancelled",
        RunEvent::Expire => "expired",
        RunEvent::Fail | RunEvent::Claim => "error",
    }
}

fn words(decision: &Decision) -> String {
    let then = match decision.event {
        RunEvent::Succeed => return format!("success ({})", decision.rule),
        _ if decision.holds_class => "the class would be held on this host",
        RunEvent::Release => "the run would be released, which counts no attempt",
        _ if decision.may_retry => "the task would be retried",
        _ => "the task would not be retried",
    };
    let (code, message) = (&decision.error_code, &decision.error_message);
    format!("{}: {code}: {message}; {then} ({})", outcome(decision.event), decision.rule)
}

fn record(class: &TaskClass, tried: &TriedClass, captured: &[Vec<u8>; 2]) -> Value {
    let decision = &tried.decision;
    let results = tried.results.as_deref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| json!(text)));
    let [stdout, stderr] = captured.each_ref().map(|bytes| String::from_utf8_lossy(bytes));
    json!({
        "schema": "taskqueue.class_test/1", "class": class.as_str(), "outcome": outcome(decision.event),
        "error_code": decision.error_code, "error_message": decision.error_message, "decision": decision.rule,
        "may_retry": decision.may_retry, "holds_class": decision.holds_class, "results": results,
        "stdout": stdout, "stderr": stderr,
    })
}
