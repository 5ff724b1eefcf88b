//! `taskqueue queue`

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chrono::Local;
use clap::Args;

use crate::commands::options::task_options::TaskOptions;
use crate::commands::queueing::batch_input::{BatchInput, BatchStop};
use crate::commands::queueing::queue_and_follow::queue_and_follow;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::session::Session;
use taskqueue_domain::limits::limit::{Rate, Spread};
use taskqueue_domain::task::unique::Arrival;
use taskqueue_engine::queueing::queue::{ClassCheck, QueuedLine};
use taskqueue_engine::queueing::queue_batch::{BatchDefaults, queue_batch};
use taskqueue_engine::{Context, EngineError};
use taskqueue_views::human;
use taskqueue_views::shell_word::shell_word;

/// Queue a task, or a batch with --batch, and print the ids
///
/// DATA is JSON text, `-` for standard input, or `@FILE`; the default is {}. A line of a batch is an object:
/// {"class":"mail.send","data":{"to":"x"}}. Its other keys have the names of the long options: at, in, expires, max_retries, timeout,
/// priority, backoff, every, tz, catch_up, overlap, by, after, after_any, unique, on_conflict, unique_for, limit_key, tag, keep,
/// keep_results, correlation, meta (an object). "after" and "after_any" are lists of ids, and of names that other lines have in "name". All lines are queued,
/// or none.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue queue [OPTIONS] CLASS [DATA]\n       taskqueue queue [OPTIONS] --batch FILE",
    after_help = "Examples:\n  taskqueue queue mail.send '{\"to\":\"ann@example.org\"}'\n  taskqueue queue report.daily --at 'tomorrow 03:00'\n  taskqueue queue report.send --after 4711\n  generate-tasks | taskqueue queue --batch -\n  taskqueue queue --batch mails.ndjson --rate 100/1m --at 'tomorrow 08:00'"
)]
pub(crate) struct QueueArgs {
    /// Task class, which names the program that handles the task
    #[arg(required_unless_present = "batch")]
    class: Option<String>,
    /// Data: JSON text, `-` for standard input, or `@FILE`
    #[arg(conflicts_with = "batch", allow_negative_numbers = true)]
    data: Option<String>,
    /// Queue every line of this file (`-`: standard input), all or none
    #[arg(long, value_name = "FILE", conflicts_with = "class")]
    batch: Option<PathBuf>,
    /// Spread the batch over time: N tasks in each period of this length, starting at --at or --in, else now: 10/1m
    #[arg(long, value_name = "N/TIME")]
    rate: Option<Rate>,
    /// Accept a class that this host does not know; another host may know it
    #[arg(long)]
    any_class: bool,
    #[command(flatten)]
    options: TaskOptions,
}

pub(crate) fn run(session: Session, args: &QueueArgs, out: &mut Out) -> anyhow::Result<u8> {
    let check = if args.any_class { ClassCheck::AnyName } else { ClassCheck::KnownHere };
    if let Some(path) = &args.batch {
        if args.options.has_task_option(args.rate.is_some()) {
            bail!(CliError::usage("options of a task cannot be combined with --batch").with_hint(
                "write them into each line: {\"class\":\"…\",\"priority\":5}; --at and --in need --rate: --rate 10/1m"
            ));
        }
        let input = BatchInput::open(path)?;
        let mut ctx = session.open_or_make()?;
        return queue_lines(&mut ctx, input, args, check, out);
    }
    let class = args.class.as_deref().unwrap_or_default();
    if args.rate.is_some() {
        bail!(
            CliError::usage("--rate spreads the tasks of a batch over time, and this is one task")
                .with_hint("queue a batch: --batch FILE --rate 10/1m; for one task, use --in 10m or --at TIME")
        );
    }
    let data = args.data.as_deref().map(read_data).transpose()?;
    let mut ctx = session.open_or_make()?;
    let request = args.options.request(&mut ctx, class, data)?;
    queue_and_follow(&mut ctx, &args.options, request, check, out)
        .map_err(|error| with_text_hint(error, class, args.data.as_deref().unwrap_or_default()))
}

/// Adds a hint if the argument looks like a string whose quotes the shell has removed.
fn with_text_hint(error: anyhow::Error, class: &str, argument: &str) -> anyhow::Error {
    let no_json = match error.downcast_ref::<EngineError>() {
        Some(EngineError::Input(message)) if message.starts_with("the data is not JSON") => message.clone(),
        _ => return error,
    };
    let is_text = argument != "-" && !argument.starts_with(['@', '{', '[', '"']);
    let hint = if is_text && argument.chars().count() <= MAX_TEXT_OF_HINT {
        format!("a JSON string needs double quotes: taskqueue queue {} {}", shell_word(class), json_word(argument))
    } else {
        "a JSON string needs double quotes, and so do the keys of an object: '{\"to\":\"ann\"}'".to_owned()
    };
    CliError::usage(no_json).with_hint(hint).into()
}

/// The longest string that a hint repeats, in characters.
const MAX_TEXT_OF_HINT: usize = 60;

/// Formats a string as JSON, quoted for a shell.
fn json_word(text: &str) -> String {
    shell_word(&serde_json::Value::from(text).to_string())
}

fn queue_lines(
    ctx: &mut Context,
    input: BatchInput,
    args: &QueueArgs,
    check: ClassCheck,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let spread = match args.rate {
        Some(rate) => {
            let start = args.options.attempts.scheduled_on(ctx)?.map_or_else(|| ctx.now(), Ok)?;
            Some(Spread { start, rate })
        }
        None => None,
    };
    let queued_by = args.options.by.clone().unwrap_or_else(|| ctx.me.user.clone());
    let defaults = BatchDefaults {
        may_name_users: !ctx.acts_for_handler(),
        may_replace: true,
        queued_by,
        check,
        classes: None,
        spread,
        trace: args.options.trace()?,
    };
    let stop = BatchStop::install("queued")?;
    let mut input = input.until(&stop, out);
    let progress = Progress::to_an_end(out, "queueing");
    progress.announce_slow_answer(ctx.store.url());
    let hear = &mut |inserted, total| progress.at(inserted, total);
    let result = queue_batch(ctx, &mut input, &Local, &defaults, hear);
    drop(progress);
    let queued = result.map_err(|error| stop.explain(error))?;
    print_ids(&queued, out).with_context(|| match queued.as_slice() {
        [first, .., last] => {
            format!("tasks {} to {} are queued, but their ids cannot be printed", first.task.id, last.task.id)
        }
        _ => "the tasks are queued, but their ids cannot be printed".to_owned(),
    })?;
    let count = |wanted| queued.iter().filter(|line| line.task.arrival == wanted).count();
    let there = match (count(Arrival::Existing), count(Arrival::Replaced)) {
        (0, 0) => String::new(),
        (existing, 0) => format!("; {existing} existed already"),
        (existing, replaced) => format!("; {existing} existed already, {replaced} replaced"),
    };
    out.say(&format!("queued {}{there}", human::plural(count(Arrival::Queued), "task")));
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

/// A little more than the largest data that any setting allows, so that larger data is recognised.
const MAX_READ_BYTES: u64 = (8 << 20) + 1;

pub(crate) fn read_data(argument: &str) -> Result<String, CliError> {
    let (source, bytes) = match argument.strip_prefix('@') {
        Some(path) => {
            let read = File::open(path).and_then(read_limited).map_err(|error| {
                CliError::usage(format!("cannot read {path}: {error}")).with_hint(format!(
                    "@FILE reads the data from a file; write a JSON string that begins with @ as {}",
                    json_word(argument)
                ))
            });
            (path, read?)
        }
        None if argument == "-" => {
            let source = "standard input";
            let read = read_limited(io::stdin().lock());
            (source, read.map_err(|error| CliError::usage(format!("cannot read {source}: {error}")))?)
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
