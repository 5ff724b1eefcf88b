//! `taskqueue class add` and `class remove`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::commands::options::task_options::duration_option;
use crate::commands::queueing::exec::path_of_program;
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_engine::change::classes::problem_of_program;
use taskqueue_engine::config::{NewClass, text_to_edit, with_class, without_class, write_edited};
use taskqueue_views::shell_word::shell_word;

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Name of the class, or a pattern like "mail.*"
    name: String,
    /// Time an attempt may run without reporting before it times out, in whole seconds: 90s, 2h
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// User that runs the handlers
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Replace a class of this name
    #[arg(long)]
    force: bool,
    /// Program that handles the class, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name or pattern of the class, as in the configuration
    name: String,
}

pub(crate) fn add(session: &Session, args: &AddArgs, out: &mut Out) -> anyhow::Result<u8> {
    check_class_pattern(&args.name)
        .map_err(|why| CliError::usage(format!("\"{}\" cannot be the name of a class: {why}", args.name)))?;
    let defined_in = place_of(session, &args.name);
    if let Some(path) = defined_in.as_ref().filter(|_| !args.force) {
        return Err(CliError::failed(format!("the class \"{}\" exists already, in {}", args.name, path.display()))
            .with_hint("--force replaces it, with its comments")
            .into());
    }
    let timeout = duration_option("--timeout", args.timeout.as_deref())?;
    if timeout.is_some_and(|timeout| timeout.subsec_nanos() > 0) {
        return Err(CliError::usage("--timeout: write whole seconds, like 90s").into());
    }
    let class = NewClass {
        name: args.name.clone(),
        argv: command_line(&args.argv)?,
        timeout_secs: timeout.and_then(|timeout| i64::try_from(timeout.as_secs()).ok()),
        user: args.user.clone(),
    };
    let path = defined_in.clone().unwrap_or_else(|| session.config.path.clone());
    let edited = with_class(&path, &text_to_edit(&path)?, &class)?;
    write_edited(&path, &edited.text).map_err(|error| unwritable(&path, &error))?;
    let is_replaced = defined_in.is_some();
    if out.is_json() {
        out.json(&json!({
            "class": args.name, "configuration": path, "replaced": is_replaced, "lines": edited.lines,
        }))?;
    } else {
        let what = if is_replaced { "replaced" } else { "added" };
        out.say(&format!("{what} class {} in {}:", args.name, path.display()));
        out.data(edited.lines)?;
        out.say(&if args.name.contains(['*', '?']) {
            "hint: `taskqueue class test NAME`, with a class that matches, runs it once".to_owned()
        } else {
            format!("hint: `taskqueue class test {}` runs it once", shell_word(&args.name))
        });
    }
    Ok(DONE)
}

pub(crate) fn remove(session: &Session, args: &RemoveArgs, out: &mut Out) -> anyhow::Result<u8> {
    let path = place_of(session, &args.name).unwrap_or_else(|| session.config.path.clone());
    let edited = without_class(&path, &text_to_edit(&path)?, &args.name)?;
    if let Some(edited) = &edited {
        write_edited(&path, &edited.text).map_err(|error| unwritable(&path, &error))?;
    }
    if out.is_json() {
        let lines = edited.as_ref().map(|edited| edited.lines.as_str());
        out.json(&json!({
            "class": args.name, "configuration": path, "removed": edited.is_some(), "lines": lines,
        }))?;
        return Ok(if edited.is_some() { DONE } else { NOT_FOUND });
    }
    let Some(edited) = edited else {
        out.say(&format!("{} has no class {}", path.display(), args.name));
        return Ok(NOT_FOUND);
    };
    out.say(&format!("removed class {} from {}:", args.name, path.display()));
    out.data(edited.lines)?;
    Ok(DONE)
}

/// Returns the file that defines the class.
fn place_of(session: &Session, name: &str) -> Option<PathBuf> {
    session.config.classes.by_name().into_iter().find(|class| class.name == name).map(|class| class.defined_in.clone())
}

/// Returns the command line with the absolute path of its program, which must exist.
fn command_line(argv: &[String]) -> Result<Vec<String>, CliError> {
    let mut argv = argv.to_vec();
    let Some(program) = argv.first_mut() else { return Ok(argv) };
    if let Some(found) = path_of_program(program) {
        *program = found;
    }
    if !Path::new(&*program).is_absolute() {
        return Err(CliError::usage(format!("{program} is not in PATH and is not an absolute path"))
            .with_hint("`command -v PROGRAM` prints the absolute path of a program"));
    }
    match problem_of_program(Path::new(&*program)) {
        Some(problem) => Err(CliError::configuration(format!("the class could not be executed: {problem}"))
            .with_hint("nothing was written; fix it, or name another program, and run the command again")),
        None => Ok(argv),
    }
}

pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("{} cannot be written: {error}", path.display()))
        .with_hint("run this as the user who owns the file, or name another one with --config FILE")
}
