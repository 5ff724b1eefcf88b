//! `taskqueue init`

use std::env::current_exe;
use std::io;
use std::path::{Path, absolute};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::cli::GlobalArgs;
use crate::cli::error::{CONFIG, CliError, DONE};
use crate::cli::output::Out;
use crate::cli::output::human::shell_word;
use crate::cli::session::{Session, configuration_path};
use crate::config::{Environment, first_configuration, write_first};
use crate::domain::task_class::{EXEC_CLASS, TaskClass};
use crate::engine::{DatabaseUrl, EngineError, classes};

/// Write a first configuration with one class, make the store, and test both
///
/// A configuration of yours that is there already stays as it is; that of the whole machine does not count for you any more.
/// The tables of a server are made by `taskqueue migrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue init\n  taskqueue init mail.send -- /usr/local/bin/send-mail --queue\n  taskqueue init --database postgres://taskqueue@db.example.org/taskqueue"
)]
pub(crate) struct InitArgs {
    /// The class
    #[arg(default_value = "hello")]
    class: TaskClass,
    /// The program that handles it, and its arguments; the path is absolute
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// Prints the data of its tasks.
const SAMPLE: &str = "/bin/cat";

pub(crate) fn run(
    args: &InitArgs,
    global: &GlobalArgs,
    prepare: impl FnOnce(&mut Out) -> anyhow::Result<Session>,
    out: &mut Out,
) -> anyhow::Result<u8> {
    if args.class.as_str() == EXEC_CLASS {
        return Err(CliError::usage("the class \"exec\" is built in; give another name").into());
    }
    let path = configuration_path(global);
    let argv = if args.argv.is_empty() { vec![SAMPLE.to_owned()] } else { args.argv.clone() };
    if !argv.first().is_some_and(|program| Path::new(program).is_absolute()) {
        return Err(CliError::usage(format!("{} is no absolute path", argv.first().map_or("", String::as_str)))
            .with_hint("`command -v PROGRAM` tells where it is")
            .into());
    }
    let database = global.database.as_deref().map(lasting).transpose()?;
    let text = first_configuration(args.class.as_str(), &argv, database.as_deref());
    write_first(&path, &text).map_err(|error| refused(&path, &error))?;
    out.say(&format!("{} is written", path.display()));
    // As every later command will read it.
    let session = prepare(out)?;
    let url = session.url.to_string();
    let mut ctx = session.open_or_make()?;
    let listed = classes::list(&mut ctx)?;
    let problem = listed.into_iter().find(|state| state.name == args.class.as_str()).and_then(|state| state.problem);
    if out.is_json() {
        out.json(&json!({
            "schema": "taskqueue.init/1", "configuration": path, "database": url, "class": args.class.as_str(),
            "problem": problem,
        }))?;
    } else {
        out.say(&format!("the store is {url}"));
        let environment = Environment::own();
        if global.database.is_none() && environment.database.is_some() {
            out.warn("cron does not have TASKQUEUE_DATABASE_URL: write `database = \"…\"` into the configuration");
        }
        // As cron finds it, which has neither this directory nor these variables.
        let option = if path == environment.own_config_path() {
            String::new()
        } else {
            format!(" --config {}", shell_word(&absolute(&path)?.to_string_lossy()))
        };
        tell_next(args.class.as_str(), &option, problem.as_deref(), out)?;
    }
    Ok(if problem.is_some() { CONFIG } else { DONE })
}

/// The address of the database as it means the same from every directory.
fn lasting(text: &str) -> anyhow::Result<String> {
    let url = DatabaseUrl::parse(text).map_err(EngineError::from)?;
    Ok(match url.path() {
        Some(path) => DatabaseUrl::sqlite(&absolute(path)?).to_string(),
        // With its password, if it has one: the file is its owner's alone.
        None => text.to_owned(),
    })
}

fn refused(path: &Path, error: &io::Error) -> CliError {
    let place = path.display();
    if error.kind() == io::ErrorKind::AlreadyExists {
        return CliError::failed(format!("there is a configuration already: {place}"))
            .with_hint("`taskqueue classes` lists what it has; add a class to it with an editor");
    }
    CliError::failed(format!("{place} cannot be written: {error}")).with_hint("--config FILE names another one")
}

fn tell_next(class: &str, option: &str, problem: Option<&str>, out: &mut Out) -> anyhow::Result<()> {
    if let Some(problem) = problem {
        out.warn(&format!("class {class} cannot be executed yet: {problem}"));
        out.say("hint: mend it, then `taskqueue classes check`");
        return Ok(());
    }
    let program = current_exe().context("this program cannot tell where it is")?;
    let program = shell_word(&program.to_string_lossy());
    out.say(&format!("class {class} can be executed; now:"));
    let lines = [
        format!("taskqueue{option} queue {} '{{\"hello\":\"world\"}}'", shell_word(class)),
        format!("taskqueue{option} tick"),
        format!("taskqueue{option} status"),
        format!("# for every minute, in crontab -e:   * * * * * {program}{option} tick"),
    ];
    out.data(&lines.join("\n"))
}
