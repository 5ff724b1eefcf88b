//! `taskqueue init`

use std::env::current_exe;
use std::io;
use std::path::{Path, absolute};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::GlobalArgs;
use crate::error::{CONFIG, CliError, DONE};
use crate::output::Out;
use crate::session::{Session, configuration_path};
use crate::shell_word::shell_word;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_engine::change::classes;
use taskqueue_engine::config::{Environment, first_configuration, write_first};
use taskqueue_engine::{DatabaseUrl, EngineError, StoreError};

/// Write a first configuration, create the store, and test both
///
/// The configuration has one class. taskqueue reads it instead of the machine-wide one. `init` does not overwrite a configuration
/// that you already have. On a server, `taskqueue db migrate` creates the tables.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue init\n  taskqueue init mail.send -- /usr/local/bin/send-mail --queue\n  taskqueue init --database postgres://taskqueue@db.example.org/taskqueue"
)]
pub(crate) struct InitArgs {
    /// Task class to configure
    #[arg(default_value = "hello")]
    class: TaskClass,
    /// Program that handles the class, with its absolute path, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// A sample handler that prints the data of its tasks.
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
    let environment = Environment::own()?;
    let path = configuration_path(global, &environment);
    let argv = if args.argv.is_empty() { vec![SAMPLE.to_owned()] } else { args.argv.clone() };
    refuse_bad_program(args.class.as_str(), argv.first().map_or("", String::as_str))?;
    let database = global.database.as_deref().map(lasting).transpose()?;
    let text = first_configuration(args.class.as_str(), &argv, database.as_deref());
    write_first(&path, &text).map_err(|error| refused(&path, &error))?;
    // Opened in the same way as every later command does.
    let opened = prepare(out).and_then(|session| Ok((session.url.to_string(), session.open_or_make()?)));
    if opened.as_ref().err().is_none_or(is_to_be_migrated) {
        out.say(&format!("wrote {}", path.display()));
    } else {
        // The file would prevent a corrected command from working.
        std::fs::remove_file(&path).unwrap_or_else(|error| {
            out.warn(&format!("cannot remove {}; remove it before you try again: {error}", path.display()));
        });
    }
    let (url, mut ctx) = opened?;
    let listed = classes::list(&mut ctx)?;
    let problem = listed.into_iter().find(|state| state.name == args.class.as_str()).and_then(|state| state.problem);
    if out.is_json() {
        out.json(&json!({
            "schema": "taskqueue.init/1", "configuration": path, "database": url, "class": args.class.as_str(),
            "problem": problem,
        }))?;
    } else {
        out.say(&format!("the store is {url}"));
        if global.database.is_none() && environment.database.is_some() {
            out.warn("cron does not have TASKQUEUE_DATABASE_URL: write `database = \"…\"` into the configuration");
        }
        // Written so that cron finds it, which has neither this directory nor these variables.
        let option = if path == environment.own_config_path() {
            String::new()
        } else {
            format!(" --config {}", shell_word(&absolute(&path)?.to_string_lossy()))
        };
        tell_next(args.class.as_str(), &option, problem.as_deref(), out)?;
    }
    Ok(if problem.is_some() { CONFIG } else { DONE })
}

/// Checks the program before anything is written, so that the corrected command works.
fn refuse_bad_program(class: &str, program: &str) -> Result<(), CliError> {
    if !Path::new(program).is_absolute() {
        return Err(CliError::usage(format!("{program} is not an absolute path"))
            .with_hint("`command -v PROGRAM` prints its absolute path"));
    }
    match classes::problem_of_program(Path::new(program)) {
        Some(problem) => Err(CliError::configuration(format!("class {class} cannot be executed: {problem}"))
            .with_hint("nothing was written; fix it, or name another program, and run the command again")),
        None => Ok(()),
    }
}

/// Returns true if the configuration is valid and only the tables are missing.
fn is_to_be_migrated(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<EngineError>();
    matches!(error, Some(EngineError::Store(StoreError::NotMigrated { .. } | StoreError::Foreign { .. })))
}

/// Returns the address of the database in a form that means the same in every directory.
fn lasting(text: &str) -> anyhow::Result<String> {
    let url = DatabaseUrl::parse(text).map_err(EngineError::from)?;
    Ok(match url.path() {
        Some(path) => DatabaseUrl::sqlite(&absolute(path)?).to_string(),
        // With its password, if it has one: only the owner can read the file.
        None => text.to_owned(),
    })
}

fn refused(path: &Path, error: &io::Error) -> CliError {
    let place = path.display();
    if error.kind() == io::ErrorKind::AlreadyExists {
        return CliError::failed(format!("the configuration {place} exists already"))
            .with_hint("`taskqueue class` lists its classes; add a class to it with an editor");
    }
    CliError::failed(format!("{place} cannot be written: {error}")).with_hint("--config FILE writes another file")
}

fn tell_next(class: &str, option: &str, problem: Option<&str>, out: &mut Out) -> anyhow::Result<()> {
    if let Some(problem) = problem {
        out.warn(&format!("class {class} cannot be executed yet: {problem}"));
        out.say("hint: fix it, then run `taskqueue class check`");
        return Ok(());
    }
    let program = current_exe().context("cannot find the path of this program")?;
    let program = shell_word(&program.to_string_lossy());
    out.say(&format!("class {class} can be executed; try:"));
    let lines = [
        format!("taskqueue{option} queue {} '{{\"hello\":\"world\"}}'", shell_word(class)),
        format!("taskqueue{option} tick"),
        format!("taskqueue{option} status"),
        format!("# for every minute, in crontab -e:   * * * * * {program}{option} tick"),
    ];
    out.data(lines.join("\n"))
}
