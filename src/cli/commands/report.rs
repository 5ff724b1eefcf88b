//! `taskqueue progress`, `taskqueue result` and `taskqueue message`: what a handler reports about itself, where descriptor 3 is awkward.

use std::io::{self, Read as _};

use anyhow::bail;
use clap::Args;

use crate::cli::error::{CliError, DONE};
use crate::config::HandlerEnvironment;
use crate::domain::json::check_storable;
use crate::domain::message::check_message;
use crate::engine::report;

/// From inside a handler: report progress, and that it is still alive
#[derive(Debug, Args)]
pub(crate) struct ProgressArgs {
    /// 0 to 100
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: u8,
    /// A line for people
    message: Option<String>,
}

/// From inside a handler: leave a result, JSON text or `-` for standard input
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// JSON text, or `-` for standard input
    // Not called `json`: that is the global option, and the two would be taken for one.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    text: String,
}

/// From inside a handler: send a message that anyone may follow with `events`
#[derive(Debug, Args)]
pub(crate) struct MessageArgs {
    /// What it is called
    name: String,
    /// JSON text, or `-` for standard input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    text: Option<String>,
}

pub(crate) fn progress(args: &ProgressArgs) -> anyhow::Result<u8> {
    send(&serde_json::json!({ "progress": args.percent, "message": args.message }))
}

pub(crate) fn result(args: &ResultArgs) -> anyhow::Result<u8> {
    let value = json_of("the result", &args.text)?;
    send(&serde_json::json!({ "result": value }))
}

pub(crate) fn message(args: &MessageArgs) -> anyhow::Result<u8> {
    let data = args.text.as_deref().map(|text| json_of("the data", text)).transpose()?;
    check_message(&args.name, &data.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string))
        .map_err(CliError::usage)?;
    send(&serde_json::json!({ "event": args.name, "data": data }))
}

/// The JSON of an argument, or of standard input.
fn json_of(what: &str, text: &str) -> anyhow::Result<serde_json::Value> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        io::stdin().lock().read_to_string(&mut text)?;
    }
    check_storable(&text).map_err(|problem| CliError::usage(format!("{what} {problem}")))?;
    Ok(serde_json::from_str(&text).map_err(|error| CliError::usage(error.to_string()))?)
}

fn send(event: &serde_json::Value) -> anyhow::Result<u8> {
    let HandlerEnvironment { socket: Some(socket), token: Some(token) } = HandlerEnvironment::own() else {
        bail!(CliError::usage(
            "this works inside a handler only: TASKQUEUE_EVENTS_SOCKET and TASKQUEUE_RUN_TOKEN are not set",
        ));
    };
    report::send(&socket, &token, event)?;
    Ok(DONE)
}
