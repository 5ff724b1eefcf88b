//! Commands inside a handler. Its runner executes those that use the queue, with the store of the run, so that the handler
//! needs no password. This module sends such a command, and the runner checks it.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::GlobalArgs;
use super::error::CliError;
use super::session::names_store;
use taskqueue_engine::config::{Environment, HandlerEnvironment, own_trace};
use taskqueue_engine::queueing::own_queue::{CommandAnswer, request_command};

/// The commands that a runner executes for a handler, with their allowed arguments; all others are refused. None of them opens
/// a file, a network connection or another store.
const SERVED: [(&str, &[&[&str]]); 7] = [
    (
        "queue",
        &[
            &ATTEMPT,
            &["class", "data", "batch", "rate", "any_class", "after", "after_any", "wait"],
            &UNIQUE,
            &["limit_key", "tag", "name", "correlation"],
            &SCHEDULE,
        ],
    ),
    ("status", &[&["selection", "full"], &LIST]),
    ("wait", &[&["selection", "any", "timeout"]]),
    ("events", &[&["task", "run", "kind", "since", "limit", "follow"], &LIST]),
    ("cancel", &[&CHANGE]),
    ("report message", &[&["first", "second", "task", "keep"]]),
    ("edit", &[&CHANGE, &ATTEMPT, &["data", "if_updated_on"]]),
];
/// When and how often a task is attempted.
const ATTEMPT: [&str; 10] =
    ["at", "delay", "expires", "max_retries", "timeout", "priority", "backoff", "keep", "keep_results", "meta"];
const UNIQUE: [&str; 3] = ["unique", "on_conflict", "unique_for"];
const SCHEDULE: [&str; 4] = ["every", "tz", "catch_up", "overlap"];
/// How a list is printed.
const LIST: [&str; 3] = ["output", "columns", "no_header"];
/// The arguments of a command that changes selected tasks.
const CHANGE: [&str; 4] = ["selection", "yes", "dry_run", "reason"];
/// Arguments that a command needs so that it applies to a task.
const NEEDED: [(&str, &str); 3] = [("status", "selection"), ("events", "task"), ("report message", "task")];
/// Arguments that every command allows.
const GLOBAL: [&str; 3] = ["json", "verbose", "color"];

/// Sends this command to the runner of the calling handler, and returns its exit status. Returns `None` if it must be executed
/// here: outside a handler, with an explicit database, or if it does not use the queue.
pub(super) fn execute_by_runner(
    global: &GlobalArgs,
    matches: &ArgMatches,
    arguments: &[OsString],
) -> anyhow::Result<Option<u8>> {
    let HandlerEnvironment { socket: Some(socket), token: Some(token), on_behalf_of: None, .. } =
        HandlerEnvironment::own()?
    else {
        return Ok(None);
    };
    let is_served = called(matches).is_some_and(|(verb, of_command)| {
        // A message without a task is a report, which reaches the runner in another way.
        let is_report = verb == "report message" && !of_command.contains_id("task");
        !is_report && SERVED.iter().any(|(served, _)| *served == verb)
    });
    if !is_served || names_store(global, &Environment::own()?) {
        return Ok(None);
    }
    let arguments = arguments.iter().skip(1).map(|argument| argument.to_str().map(str::to_owned));
    let arguments: Option<Vec<String>> = arguments.collect();
    let arguments = arguments.ok_or_else(|| CliError::usage("an argument is not UTF-8"))?;
    let trace = own_trace().map_err(CliError::usage)?;
    let answer = request_command(&socket, &token, &arguments, &trace).map_err(|error| {
        CliError::unreachable(format!("the runner of this handler cannot be reached: {error}"))
            .with_hint("long data goes through standard input: `taskqueue queue CLASS -`")
    })?;
    match answer {
        CommandAnswer::Ended(code) => Ok(Some(code)),
        CommandAnswer::Refused(reason) => Err(CliError::unreachable(reason).with_hint(NAME_IT).into()),
        CommandAnswer::Lost => {
            Err(CliError::unreachable("the runner of this handler ended before the command did").into())
        }
    }
}

const NAME_IT: &str = "name the store: --database URL, or TASKQUEUE_DATABASE_URL in env of the class";

/// Returns the verb with the verb below it, if there is one, and its arguments.
fn called(matches: &ArgMatches) -> Option<(String, &ArgMatches)> {
    let (verb, of_verb) = matches.subcommand()?;
    Some(match of_verb.subcommand() {
        Some((action, of_action)) => (format!("{verb} {action}"), of_action),
        None => (verb.to_owned(), of_verb),
    })
}

/// Returns the arguments that were given, global ones included. Groups of arguments, which clap names after their types, are
/// left out.
fn given(matches: &ArgMatches) -> impl Iterator<Item = &str> {
    let of_command = called(matches).map(|(_, matches)| matches);
    [Some(matches), of_command].into_iter().flatten().flat_map(|matches| {
        let is_written = |name: &&str| {
            !name.starts_with(char::is_uppercase) && matches.value_source(name) == Some(ValueSource::CommandLine)
        };
        matches.ids().map(clap::Id::as_str).filter(is_written)
    })
}

/// Checks a command line that a handler requested: its command and arguments, and that it reads no file.
pub(super) fn check(matches: &ArgMatches) -> Result<(), CliError> {
    let Some((verb, of_command)) = called(matches) else { return Ok(()) };
    let Some((_, allowed)) = SERVED.iter().find(|(served, _)| *served == verb) else {
        return Err(CliError::usage(format!("a handler cannot call `{verb}`")));
    };
    if let Some(name) = given(matches).find(|name| !allowed.concat().contains(name) && !GLOBAL.contains(name)) {
        let name = name.replace('_', "-");
        return Err(CliError::usage(format!("a handler cannot use --{name} with `{verb}`")));
    }
    if let Some((_, needed)) = NEEDED.iter().find(|(of, _)| *of == verb)
        && !given(matches).any(|name| name == *needed)
    {
        return Err(CliError::usage(format!("inside a handler, `{verb}` needs a task")).with_hint(format!(
            "taskqueue {verb} {}\"$TASKQUEUE_TASK_ID\"",
            if verb == "status" { "" } else { "--task " }
        )));
    }
    let value = |name| of_command.try_get_raw(name).ok().flatten().and_then(|mut values| values.next());
    let reads_file = value("data").is_some_and(|data| data.to_string_lossy().starts_with('@'));
    if reads_file || value("batch").is_some_and(|path| path != "-") {
        return Err(CliError::usage("inside a handler, @FILE and --batch FILE are not available")
            .with_hint("`-` is standard input: taskqueue queue CLASS - < FILE"));
    }
    Ok(())
}
