//! `taskqueue progress` and `taskqueue result`: what a handler reports about itself, where descriptor 3 is awkward.

use std::io::{self, Read as _};

use anyhow::bail;
use clap::Args;

use crate::cli::error::{CliError, DONE};
use crate::config::HandlerEnvironment;
use crate::domain::json::check_storable;
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

pub(crate) fn progress(args: &ProgressArgs) -> anyhow::Result<u8> {
    send(&serde_json::json!({ "progress": args.percent, "message": args.message }))
}

pub(crate) fn result(args: &ResultArgs) -> anyhow::Result<u8> {
    let mut text = args.text.clone();
    if text == "-" {
        text.clear();
        io::stdin().lock().read_to_string(&mut text)?;
    }
    check_storable(&text).map_err(|what| CliError::usage(format!("the result {what}")))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| CliError::usage(error.to_string()))?;
    send(&serde_json::json!({ "result": value }))
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
