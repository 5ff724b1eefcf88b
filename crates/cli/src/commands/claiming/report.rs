//! `taskqueue report progress`, `result` and `message`: for handlers for which descriptor 3 is inconvenient. Claimants use
//! `progress` and `message` too, and `message` also sends messages to running tasks.

use std::io::{self, Read as _};

use anyhow::bail;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::commands::claiming::heartbeat;
use crate::commands::claiming::send_message;
use crate::commands::claiming::send_message::To;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::claiming::claimants::{self, Held, ProgressReport};
use taskqueue_engine::claiming::report;
use taskqueue_engine::config::HandlerEnvironment;
use taskqueue_views::shell_word::shell_word;

/// Report progress, the result or a message of a run
///
/// A handler reports about its own run. A claimant passes the run and its token. `message` also sends messages to running tasks.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue report progress 40 'page 4 of 10'\n  taskqueue report result '{\"pages\":10}'\n  taskqueue report message --task 4711 skip '[17]'"
)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    action: ReportVerb,
}

#[derive(Debug, Subcommand)]
enum ReportVerb {
    Progress(ProgressArgs),
    Result(ResultArgs),
    Message(MessageArgs),
}

impl ReportArgs {
    /// Returns false for a report that a handler sends through its runner.
    pub(crate) const fn needs_database(&self) -> bool {
        match &self.action {
            ReportVerb::Progress(args) => args.token.is_some(),
            ReportVerb::Result(_) => false,
            ReportVerb::Message(args) => args.needs_database(),
        }
    }
}

/// Sends a report through the runner of the calling handler.
pub(crate) fn run_in_handler(args: &ReportArgs) -> anyhow::Result<u8> {
    match &args.action {
        ReportVerb::Progress(args) => progress(args),
        ReportVerb::Result(args) => result(args),
        ReportVerb::Message(args) => message(args),
    }
}

/// Writes a report of a claimant, or a message to tasks, into the database.
pub(crate) fn run_by_database(session: Session, args: &ReportArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        ReportVerb::Progress(args) => claimant_progress(session, args, out),
        ReportVerb::Result(args) => result(args),
        ReportVerb::Message(args) => message_by_database(session, args, out),
    }
}

/// Report the progress of a run
///
/// The report also restarts the timeout. A handler passes no run and no token, because the runner that started it knows both. A
/// claimant passes both, and its deadline is renewed, as with `worker heartbeat`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue report progress PERCENT [MESSAGE]\n       taskqueue report progress RUN PERCENT [MESSAGE] --token TOKEN",
    after_help = "Examples:\n  taskqueue report progress 40 'page 4 of 10'\n  taskqueue report progress 7 40 'page 4 of 10' --token \"$token\""
)]
pub(crate) struct ProgressArgs {
    /// Percentage, 0 to 100, and a message for people; with --token, the run comes first
    #[arg(value_name = "PERCENT", num_args = 1..=3, required = true, allow_negative_numbers = true)]
    words: Vec<String>,
    /// Token that `worker claim` printed with the run
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

/// Save the result of a run, from inside its handler
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue report result '{\"pages\":10}'\n  taskqueue status 17 --json | taskqueue report result -"
)]
pub(crate) struct ResultArgs {
    /// Result: JSON text, or `-` for standard input
    // Not called `json`, because clap would confuse it with the global option.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    text: String,
}

/// Send a message to a running task, or from a handler
///
/// With --task or --class, the handlers of the runs in progress get the message. A coprocess or a handler in Rust listens for it,
/// every other handler reads it with `events --follow`. Without these options, a handler or a claimant sends the message to those
/// who follow its events. A handler passes no run. A claimant passes its run and the token, and its deadline is renewed, as with
/// `worker heartbeat`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue report message --task TASK [--keep] NAME [JSON]\n       taskqueue report message --class CLASS NAME [JSON]\n       taskqueue report message NAME [JSON]\n       taskqueue report message RUN NAME [JSON] --token TOKEN",
    after_help = "Examples:\n  taskqueue report message --task 4711 priority '{\"lane\":\"fast\"}'\n  taskqueue report message --task 4711 --keep skip '[17,18]'\n  taskqueue report message --class 'report.*' reload"
)]
pub(crate) struct MessageArgs {
    /// Name of the message; with --token, the run comes first
    #[arg(value_name = "NAME")]
    first: String,
    /// Data of the message: JSON text, or `-` for standard input
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    second: Option<String>,
    // The JSON, if the first argument is the run.
    #[arg(hide = true, allow_hyphen_values = true, requires = "token")]
    third: Option<String>,
    /// Token that `worker claim` printed with the run
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["task", "class"])]
    token: Option<String>,
    /// Send it to the attempt of this task that is in progress
    #[arg(long, value_name = "TASK")]
    task: Option<TaskId>,
    /// Send it to all runs in progress of this class, or of the classes that match a pattern with * and ?
    #[arg(long, value_name = "CLASS", conflicts_with = "task")]
    class: Option<String>,
    /// Send it to all later attempts of the task, too; none need be in progress
    #[arg(long, requires = "task", conflicts_with = "class")]
    keep: bool,
}

impl MessageArgs {
    /// Returns false if a handler sends it through its runner.
    const fn needs_database(&self) -> bool {
        self.token.is_some() || self.task.is_some() || self.class.is_some()
    }

    /// Returns the tasks or classes to send it to; `None` for a report of a handler or a claimant.
    pub(crate) fn to(&self) -> Option<To> {
        let class = || self.class.as_ref().map(|class| To::Class(ClassFilter::new(class.as_str())));
        self.task.map(|id| To::Task { id, is_kept: self.keep }).or_else(class)
    }
}

fn progress(args: &ProgressArgs) -> anyhow::Result<u8> {
    let of_claimant = progress_of_claimant(&args.words);
    let (percent, message) = percent_and_message(&args.words)
        .map_err(|error| if args.words.len() == 3 { error.with_hint(claimant_hint(&of_claimant)) } else { error })?;
    send(&Event { progress: Some(percent), message, ..Event::default() }, &of_claimant)
}

/// Returns the command of a claimant that was probably meant: the words contain no token.
fn progress_of_claimant(words: &[String]) -> String {
    let names_run = words.len() > 1 && words[..2].iter().all(|word| word.parse::<i64>().is_ok());
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let run = if names_run { "" } else { "RUN " };
    format!("report progress {run}{} --token \"$token\"", words.join(" "))
}

/// Reports progress of a run that a claimant holds.
fn claimant_progress(session: Session, args: &ProgressArgs, out: &mut Out) -> anyhow::Result<u8> {
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
        [] => return Err(CliError::usage("PERCENT is required: a whole number from 0 to 100")),
        [_, _, _, ..] => return Err(CliError::usage("too many arguments: pass PERCENT and one MESSAGE in quotes")),
    };
    match percent.parse() {
        Ok(number @ 0..=100) => Ok((number, message)),
        _ => Err(CliError::usage(format!("\"{percent}\" is not a percentage: write a whole number from 0 to 100"))),
    }
}

fn result(args: &ResultArgs) -> anyhow::Result<u8> {
    let value = json_of("the result", &args.text)?;
    send(&Event { result: Some(&value), ..Event::default() }, "worker resolve RUN --token TOKEN --results JSON")
}

fn message(args: &MessageArgs) -> anyhow::Result<u8> {
    refuse_run_without_token(args)?;
    let Message { name, data } = message_of(&args.first, args.second.as_deref())?;
    send(
        &Event { event: Some(&name), data: Some(serde_json::from_str(&data)?), ..Event::default() },
        "report message RUN NAME --token TOKEN`; to a task: `taskqueue report message --task TASK NAME",
    )
}

/// Refuses `report message 7 done`, which names a run or a task and no token: `done` would be taken for JSON.
fn refuse_run_without_token(args: &MessageArgs) -> Result<(), CliError> {
    let Some(name) = &args.second else { return Ok(()) };
    let is_json = serde_json::from_str::<serde_json::Value>(name).is_ok();
    if is_json || name == "-" || args.first.parse::<i64>().is_err() {
        return Ok(());
    }
    let (number, name) = (&args.first, shell_word(name));
    Err(CliError::usage(format!("\"{number}\" is no message name; a claimant passes its run and --token")).with_hint(
        format!(
            "for run {number}: `taskqueue report message {number} {name} --token \"$token\"`; to task {number}: `taskqueue report \
             message --task {number} {name}`"
        ),
    ))
}

/// Sends a message to tasks, or for a run that a claimant holds.
fn message_by_database(session: Session, args: &MessageArgs, out: &mut Out) -> anyhow::Result<u8> {
    if let Some(to) = args.to() {
        let message = message_of(&args.first, args.second.as_deref())?;
        return send_message::run(session, &to, &message, out);
    }
    let run_id = args.first.parse().map_err(CliError::usage)?;
    let name = args.second.as_deref().ok_or_else(|| CliError::usage("NAME of the message is required"))?;
    let message = message_of(name, args.third.as_deref())?;
    let held = Held { run_id, token: args.token.clone().unwrap_or_default() };
    let mut ctx = session.open()?;
    heartbeat::answer(&claimants::emit(&mut ctx, &held, &message)?, out)
}

fn message_of(name: &str, text: Option<&str>) -> anyhow::Result<Message> {
    let data = text.map(|text| json_of("the data", text)).transpose()?.unwrap_or_default();
    check_message(name, data.get()).map_err(CliError::usage)?;
    Ok(Message { name: name.to_owned(), data: data.get().to_owned() })
}

/// Returns the JSON of an argument, or of standard input, as it is written.
fn json_of(what: &str, text: &str) -> anyhow::Result<Box<RawValue>> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        io::stdin().lock().read_to_string(&mut text)?;
    }
    check_storable(&text).map_err(|problem| CliError::usage(format!("{what} {problem}")))?;
    Ok(RawValue::from_string(text).map_err(|error| CliError::usage(error.to_string()))?)
}

fn claimant_hint(of_claimant: &str) -> String {
    format!("for a run that you claimed: `taskqueue {of_claimant}`")
}

/// One line of a handler (docs/handlers.md).
#[derive(Default, Serialize)]
struct Event<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
}

/// Sends an event to the runner of this handler. `of_claimant` is the command of a claimant, for the hint.
fn send(event: &Event<'_>, of_claimant: &str) -> anyhow::Result<u8> {
    let HandlerEnvironment { socket: Some(socket), token: Some(token), .. } = HandlerEnvironment::own()? else {
        bail!(
            CliError::usage(
                "this works only inside a handler: TASKQUEUE_EVENTS_SOCKET and TASKQUEUE_RUN_TOKEN are not set",
            )
            .with_hint(claimant_hint(of_claimant))
        );
    };
    report::send(&socket, &token, &serde_json::to_string(event)?)?;
    Ok(DONE)
}
