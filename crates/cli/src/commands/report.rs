//! `taskqueue progress`, `taskqueue result` and `taskqueue message`: what a handler reports about itself, where descriptor 3
//! is awkward; `progress` and `message` of a claimant; `message` to tasks.

use std::io::{self, Read as _};

use anyhow::bail;
use clap::Args;

use super::heartbeat;
use super::send_message::{self, To};
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::human::shell_word;
use crate::session::Session;
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::selection::ClassFilter;
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::claiming::claimants::{self, Held, ProgressReport};
use taskqueue_engine::claiming::report;
use taskqueue_engine::config::HandlerEnvironment;

/// Report the progress of a run
///
/// It also says that the work goes on. A handler names no run and shows no token: the runner that started it knows both.
/// A claimant names both; its deadline moves, as with `heartbeat`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue progress PERCENT [MESSAGE]\n       taskqueue progress RUN PERCENT [MESSAGE] --token TOKEN"
)]
pub(crate) struct ProgressArgs {
    /// 0 to 100, and a line for people; with --token, the run stands first
    #[arg(value_name = "PERCENT", num_args = 1..=3, required = true, allow_negative_numbers = true)]
    words: Vec<String>,
    /// The token that `claim` printed with the run
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

/// Save a result of a run
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// JSON text, or `-` for standard input
    // Not called `json`: that is the global option, and the two would be taken for one.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    text: String,
}

/// Send a message to a running task, or from a handler
///
/// With --task or --class the handlers of the runs in progress get it: a coprocess or a handler in Rust that listens, every
/// other one by `events --follow`. Without, a handler sends it to whoever follows its events, and names no run; a claimant
/// names its run and shows the token, and its deadline moves, as with `heartbeat`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue message --task TASK [--keep] NAME [JSON]\n       taskqueue message --class CLASS NAME [JSON]\n       taskqueue message NAME [JSON]\n       taskqueue message RUN NAME [JSON] --token TOKEN",
    after_help = "Examples:\n  taskqueue message --task 4711 priority '{\"lane\":\"fast\"}'\n  taskqueue message --task 4711 --keep skip '[17,18]'\n  taskqueue message --class 'report.*' reload"
)]
pub(crate) struct MessageArgs {
    /// What it is called; with --token, the run stands first
    #[arg(value_name = "NAME")]
    first: String,
    /// JSON text, or `-` for standard input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    second: Option<String>,
    // The JSON, where the run stands first.
    #[arg(hide = true, allow_hyphen_values = true, requires = "token")]
    third: Option<String>,
    /// The token that `claim` printed with the run
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["task", "class"])]
    token: Option<String>,
    /// To the attempt at this task that is in progress
    #[arg(long, value_name = "TASK")]
    task: Option<TaskId>,
    /// To all runs in progress of this class, or of those that a pattern with * and ? matches
    #[arg(long, value_name = "CLASS", conflicts_with = "task")]
    class: Option<String>,
    /// Also to all later attempts at the task; none need be in progress
    #[arg(long, requires = "task", conflicts_with = "class")]
    keep: bool,
}

impl MessageArgs {
    /// Returns false where a handler sends it by its runner.
    pub(crate) const fn needs_database(&self) -> bool {
        self.token.is_some() || self.task.is_some() || self.class.is_some()
    }

    /// To whom it is sent, unless a handler or a claimant sends it to its followers.
    pub(super) fn to(&self) -> Option<To> {
        let class = || self.class.as_ref().map(|class| To::Class(ClassFilter::new(class.as_str())));
        self.task.map(|id| To::Task { id, is_kept: self.keep }).or_else(class)
    }
}

impl ProgressArgs {
    /// Whether a claimant speaks, which needs the database.
    pub(crate) const fn is_of_claimant(&self) -> bool {
        self.token.is_some()
    }
}

pub(crate) fn progress(args: &ProgressArgs) -> anyhow::Result<u8> {
    let of_claimant = progress_of_claimant(&args.words);
    let (percent, message) = percent_and_message(&args.words)
        .map_err(|error| if args.words.len() == 3 { error.with_hint(claimant_hint(&of_claimant)) } else { error })?;
    send(&serde_json::json!({ "progress": percent, "message": message }), &of_claimant)
}

/// What a claimant writes that means these words, which show no token.
fn progress_of_claimant(words: &[String]) -> String {
    let names_run = words.len() > 1 && words[..2].iter().all(|word| word.parse::<i64>().is_ok());
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let run = if names_run { "" } else { "RUN " };
    format!("progress {run}{} --token \"$token\"", words.join(" "))
}

/// Of a run that a claimant holds.
pub(crate) fn claimant_progress(session: Session, args: &ProgressArgs, out: &mut Out) -> anyhow::Result<u8> {
    let (run, rest) = args.words.split_first().map_or(("", &[][..]), |(run, rest)| (run.as_str(), rest));
    let run_id = run.parse().map_err(CliError::usage)?;
    let (percent, message) = percent_and_message(rest)?;
    let held = Held { run_id, token: args.token.clone().unwrap_or_default() };
    let report = ProgressReport { percents: Some(percent), message: message.map(str::to_owned) };
    heartbeat::tell(session, &held, &report, out)
}

fn percent_and_message(words: &[String]) -> Result<(i32, Option<&str>), CliError> {
    let (percent, message) = match words {
        [percent] => (percent, None),
        [percent, message] => (percent, Some(message.as_str())),
        [] => return Err(CliError::usage("how much is done? a percentage is missing")),
        [_, _, _, ..] => return Err(CliError::usage("too many words: a percentage and one message, in quotes")),
    };
    match percent.parse() {
        Ok(number @ 0..=100) => Ok((number, message)),
        _ => Err(CliError::usage(format!("\"{percent}\" is no percentage: a whole number from 0 to 100"))),
    }
}

pub(crate) fn result(args: &ResultArgs) -> anyhow::Result<u8> {
    let value = json_of("the result", &args.text)?;
    send(&serde_json::json!({ "result": value }), "resolve RUN --token TOKEN --results JSON")
}

pub(crate) fn message(args: &MessageArgs) -> anyhow::Result<u8> {
    let Message { name, data } = message_of(&args.first, args.second.as_deref())?;
    let data: serde_json::Value = serde_json::from_str(&data)?;
    send(
        &serde_json::json!({ "event": name, "data": data }),
        "message RUN NAME --token TOKEN`; to a task: `taskqueue message --task TASK NAME",
    )
}

/// To tasks, or of a run that a claimant holds.
pub(crate) fn message_by_database(session: Session, args: &MessageArgs, out: &mut Out) -> anyhow::Result<u8> {
    if let Some(to) = args.to() {
        let message = message_of(&args.first, args.second.as_deref())?;
        return send_message::run(session, &to, &message, out);
    }
    let run_id = args.first.parse().map_err(CliError::usage)?;
    let name =
        args.second.as_deref().ok_or_else(|| CliError::usage("what is the message called? a name is missing"))?;
    let message = message_of(name, args.third.as_deref())?;
    let held = Held { run_id, token: args.token.clone().unwrap_or_default() };
    let mut ctx = session.open()?;
    heartbeat::answer(&claimants::emit(&mut ctx, &held, &message)?, out)
}

fn message_of(name: &str, text: Option<&str>) -> anyhow::Result<Message> {
    let data = text.map(|text| json_of("the data", text)).transpose()?.unwrap_or_default().to_string();
    check_message(name, &data).map_err(CliError::usage)?;
    Ok(Message { name: name.to_owned(), data })
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

fn claimant_hint(of_claimant: &str) -> String {
    format!("of a run that you claimed: `taskqueue {of_claimant}`")
}

/// `of_claimant` is what a claimant writes instead, who is no handler.
fn send(event: &serde_json::Value, of_claimant: &str) -> anyhow::Result<u8> {
    let HandlerEnvironment { socket: Some(socket), token: Some(token), .. } = HandlerEnvironment::own()? else {
        bail!(
            CliError::usage(
                "this works inside a handler only: TASKQUEUE_EVENTS_SOCKET and TASKQUEUE_RUN_TOKEN are not set",
            )
            .with_hint(claimant_hint(of_claimant))
        );
    };
    report::send(&socket, &token, event)?;
    Ok(DONE)
}
