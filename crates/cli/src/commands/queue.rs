//! `taskqueue queue`

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chrono::Local;
use clap::Args;

use super::queue_and_follow::queue_and_follow;
use super::task_options::TaskOptions;
use crate::error::{CliError, DONE};
use crate::output::progress::Progress;
use crate::output::{Out, human};
use crate::session::Session;
use taskqueue_domain::task::unique::Arrival;
use taskqueue_engine::queueing::queue::{ClassCheck, QueuedLine};
use taskqueue_engine::queueing::queue_batch::queue_batch;
use taskqueue_engine::{Context, EngineError};

/// Queue a task, or many with --batch, and print the id
///
/// DATA is JSON text, `-` for standard input, or `@FILE`; without it the data is {}. A line of a batch is an object:
/// {"class":"mail.send","data":{"to":"x"}} with the long option names as further keys: at, in, max_retries, timeout,
/// priority, backoff, every, tz, catch_up, by, after, unique, on_conflict, unique_for, limit_key, tag, keep, keep_results, meta
/// (an object). "after" is a list of ids, and of names that other lines give themselves with "name". All lines are queued or none.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue queue mail.send '{\"to\":\"ann@example.org\"}'\n  taskqueue queue report.daily --at 'tomorrow 03:00'\n  taskqueue queue report.send --after 4711\n  generate-tasks | taskqueue queue --batch -"
)]
pub(crate) struct QueueArgs {
    /// The task class: it says who handles the task
    #[arg(required_unless_present = "batch")]
    class: Option<String>,
    /// JSON text, `-` for standard input, or `@FILE`
    #[arg(conflicts_with = "batch", allow_negative_numbers = true)]
    data: Option<String>,
    /// Queue every line of this file (`-`: standard input), all or none
    #[arg(long, value_name = "FILE", conflicts_with = "class")]
    batch: Option<PathBuf>,
    /// Accept a class that is not known here: another host may know it
    #[arg(long)]
    any_class: bool,
    #[command(flatten)]
    options: TaskOptions,
}

pub(crate) fn run(session: Session, args: &QueueArgs, out: &mut Out) -> anyhow::Result<u8> {
    let check = if args.any_class { ClassCheck::AnyName } else { ClassCheck::KnownHere };
    if let Some(path) = &args.batch {
        if args.options.has_task_option() {
            bail!(
                CliError::usage("with --batch every line says for itself when and how it is processed")
                    .with_hint("write it into the line: {\"class\":\"…\",\"priority\":5}")
            );
        }
        let mut input = open_batch(path)?;
        let mut ctx = session.open_or_make()?;
        return queue_lines(&mut ctx, &mut input, args, check, out);
    }
    let class = args.class.as_deref().unwrap_or_default();
    let data = args.data.as_deref().map(read_data).transpose()?;
    let mut ctx = session.open_or_make()?;
    let request = args.options.request(&mut ctx, class, data)?;
    queue_and_follow(&mut ctx, &args.options, request, check, out)
        .map_err(|error| with_text_hint(error, class, args.data.as_deref().unwrap_or_default()))
}

/// What was meant for a text is no JSON without its quotes, which a shell takes away.
fn with_text_hint(error: anyhow::Error, class: &str, argument: &str) -> anyhow::Error {
    let no_json = match error.downcast_ref::<EngineError>() {
        Some(EngineError::Input(message)) if message.starts_with("the data is not JSON") => message.clone(),
        _ => return error,
    };
    let is_text = argument != "-" && !argument.starts_with(['@', '{', '[', '"']);
    let hint = if is_text && argument.chars().count() <= MAX_TEXT_OF_HINT {
        format!("a text has double quotes: taskqueue queue {} {}", human::shell_word(class), json_word(argument))
    } else {
        "a text has double quotes, and so have the names in an object: '{\"to\":\"ann\"}'".to_owned()
    };
    CliError::usage(no_json).with_hint(hint).into()
}

/// The longest text that a hint repeats, in characters.
const MAX_TEXT_OF_HINT: usize = 60;

/// A text as JSON, quoted for a shell.
fn json_word(text: &str) -> String {
    human::shell_word(&serde_json::Value::from(text).to_string())
}

fn queue_lines(
    ctx: &mut Context,
    input: &mut dyn BufRead,
    args: &QueueArgs,
    check: ClassCheck,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let queued_by = args.options.by.clone().unwrap_or_else(|| ctx.me.user.clone());
    let progress = Progress::to_an_end(out, "queueing");
    let result =
        queue_batch(ctx, input, &Local, &queued_by, check, &mut |inserted, total| progress.at(inserted, total));
    drop(progress);
    let queued = result?;
    print_ids(&queued, out).with_context(|| match queued.as_slice() {
        [first, .., last] => {
            format!("tasks {} to {} are queued, but their ids cannot be told", first.task.id, last.task.id)
        }
        _ => "the tasks are queued, but their ids cannot be told".to_owned(),
    })?;
    let count = |wanted| queued.iter().filter(|line| line.task.arrival == wanted).count();
    let there = match (count(Arrival::Existing), count(Arrival::Replaced)) {
        (0, 0) => String::new(),
        (existing, 0) => format!("; {existing} there already"),
        (existing, replaced) => format!("; {existing} there already, {replaced} replaced"),
    };
    out.say(&format!(
        "queued {}{there}",
        human::plural(i64::try_from(count(Arrival::Queued)).unwrap_or(i64::MAX), "task")
    ));
    Ok(DONE)
}

fn print_ids(queued: &[QueuedLine], out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        for line in queued {
            out.json(line)?;
        }
    } else if !queued.is_empty() {
        let lines: Vec<String> = queued.iter().map(|line| line.task.id.to_string()).collect();
        out.data(lines.join("\n"))?;
    }
    Ok(())
}

/// A little more than the largest data that any setting allows: enough to tell that it is too large.
const MAX_READ_BYTES: u64 = (8 << 20) + 1;

pub(super) fn read_data(argument: &str) -> Result<String, CliError> {
    let (source, bytes) = match argument.strip_prefix('@') {
        Some(path) => {
            let read = File::open(path).and_then(read_limited).map_err(|error| {
                CliError::usage(format!("{path}: {error}"))
                    .with_hint(format!("@ names a file; a text that begins with it is written {}", json_word(argument)))
            });
            (path, read?)
        }
        None if argument == "-" => {
            let source = "standard input";
            let read = read_limited(io::stdin().lock());
            (source, read.map_err(|error| CliError::usage(format!("{source}: {error}")))?)
        }
        None => return Ok(argument.to_owned()),
    };
    String::from_utf8(bytes).map_err(|_| CliError::usage(format!("{source}: the data is not UTF-8, so it is not JSON")))
}

fn read_limited(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file of many lines, or standard input, to be read line by line.
pub(super) fn open_batch(path: &std::path::Path) -> Result<Box<dyn BufRead>, CliError> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() { Err(io::Error::from(io::ErrorKind::IsADirectory)) } else { Ok(file) }
    });
    let file = opened.map_err(|error| {
        CliError::usage(format!("{}: {error}", path.display()))
            .with_hint("is the path right, and may this user read it? `-` is standard input")
    })?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
}

const BUFFER_BYTES: usize = 64 << 10;
