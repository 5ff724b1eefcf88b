//! `taskqueue init`

use std::env::current_exe;
use std::io;
use std::path::{Path, absolute};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::GlobalArgs;
use crate::commands::setup::init_install::{Call, Starter, install};
use crate::commands::setup::init_task::{FirstTask, run_first};
use crate::error::{CONFIG, CliError, DONE, FAILED, INTERRUPTED};
use crate::output::Out;
use crate::session::{Session, configuration_path};
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_engine::change::classes;
use taskqueue_engine::config::{Environment, first_configuration, load, write_first};
use taskqueue_engine::{DatabaseUrl, EngineError, StoreError, own_user_name};
use taskqueue_views::shell_word::shell_word;

/// Write a first configuration, create the store, and run a task
///
/// The configuration has one class. taskqueue reads it instead of the machine-wide one. `init` shows it, and asks first if it runs
/// on a terminal. It does not overwrite a configuration that you already have. On a server, `taskqueue db migrate` creates the
/// tables.
///
/// The sample class `hello` runs its first task at once. A class of your own does so with --data.
///
/// --install makes cron or systemd start taskqueue. You can repeat it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue init\n  taskqueue init mail.send -- /usr/local/bin/send-mail --queue\n  taskqueue init --install cron\n  taskqueue init --database postgres://taskqueue@db.example.org/taskqueue"
)]
pub(crate) struct InitArgs {
    /// Task class to configure [default: hello]; without PROGRAM, /bin/cat handles it
    class: Option<TaskClass>,
    /// Run a first task of the class with this data
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Start taskqueue from cron or systemd
    #[arg(long, value_enum, value_name = "STARTER")]
    install: Option<Starter>,
    /// Write without asking
    #[arg(short, long)]
    yes: bool,
    /// Only print what would be written
    #[arg(long)]
    dry_run: bool,
    /// Program that handles the class, with its absolute path, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// A sample class with a handler that prints the data of its tasks, and that data.
const SAMPLE_CLASS: &str = "hello";
const SAMPLE: &str = "/bin/cat";
const SAMPLE_DATA: &str = "{\"hello\":\"world\"}";

impl InitArgs {
    fn class(&self) -> &str {
        self.class.as_ref().map_or(SAMPLE_CLASS, TaskClass::as_str)
    }

    fn argv(&self) -> Vec<String> {
        if self.argv.is_empty() { vec![SAMPLE.to_owned()] } else { self.argv.clone() }
    }

    /// Returns the data of the first task; `None` if there is no such task. A program of the user may do something that cannot
    /// be undone, so it is only run with data that the user has chosen.
    fn first_data(&self) -> Option<&str> {
        self.data.as_deref().or(self.argv.is_empty().then_some(SAMPLE_DATA))
    }

    /// Returns true if only --install is requested, and the configuration is that of an earlier call.
    fn is_install_alone(&self, path: &Path) -> bool {
        self.install.is_some() && self.class.is_none() && self.argv.is_empty() && self.data.is_none() && path.exists()
    }
}

pub(crate) fn run(
    args: &InitArgs,
    global: &GlobalArgs,
    prepare: impl FnOnce(&mut Out) -> anyhow::Result<Session>,
    out: &mut Out,
) -> anyhow::Result<u8> {
    if args.class() == EXEC_CLASS {
        return Err(CliError::usage("the class \"exec\" is built in; give another name").into());
    }
    let environment = Environment::own()?;
    let path = configuration_path(global, &environment);
    let call = call_of(&path, &environment)?;
    if args.is_install_alone(&path) {
        out.say(&format!("the configuration {} exists already and is kept", path.display()));
        warn_of_named_store(&path, global, &environment, out)?;
        return end(args, &path, None, &call, out);
    }
    refuse_bad_program(args.class(), args.argv().first().map_or("", String::as_str))?;
    refuse_bad_data(args.data.as_deref())?;
    let database = global.database.as_deref().map(lasting).transpose()?;
    let text = first_configuration(args.class(), &args.argv(), database.as_deref());
    if !is_confirmed(args, &path, &text, &call, out)? {
        return Ok(DONE);
    }
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
    let problem = listed.into_iter().find(|state| state.name == args.class()).and_then(|state| state.problem);
    out.say(&format!("the store is {url}"));
    warn_of_named_store(&path, global, &environment, out)?;
    let task = match args.first_data().filter(|_| problem.is_none()) {
        Some(data) => Some(run_first(&mut ctx, args.class(), data, out)?),
        None => None,
    };
    end(args, &path, Some(&Created { url, problem, task }), &call, out)
}

/// What was created besides the configuration.
struct Created {
    url: String,
    /// Why the class cannot be executed.
    problem: Option<String>,
    task: Option<FirstTask>,
}

/// Installs what was requested, and prints the results and what to do next.
fn end(args: &InitArgs, path: &Path, created: Option<&Created>, call: &Call, out: &mut Out) -> anyhow::Result<u8> {
    let installed = args.install.map(|starter| install(starter, call, args.dry_run)).transpose()?;
    for words in installed.iter().flat_map(|installed| &installed.words) {
        out.say(words);
    }
    let problem = created.and_then(|created| created.problem.as_deref());
    let task = created.and_then(|created| created.task.as_ref());
    if out.is_json() {
        out.json(&json!({
            "schema": "taskqueue.init/1", "configuration": path, "class": args.class(), "problem": problem, "task": task,
            "database": created.map(|created| &created.url), "installed": installed,
        }))?;
    } else {
        if task.is_some_and(|task| !task.has_succeeded) {
            out.say("hint: taskqueue status last");
        } else if created.is_some() {
            tell_next(args, problem, call, out)?;
        }
        if let Some(installed) = installed.filter(|installed| !installed.commands.is_empty()) {
            out.say("run:");
            out.data(installed.commands.join("\n"))?;
        }
    }
    Ok(match task {
        _ if problem.is_some() => CONFIG,
        Some(task) if task.was_interrupted => INTERRUPTED,
        Some(task) if !task.has_succeeded => FAILED,
        _ => DONE,
    })
}

/// Shows what would be written, and asks if there is a terminal. Returns true if it is to be written.
fn is_confirmed(args: &InitArgs, path: &Path, text: &str, call: &Call, out: &mut Out) -> anyhow::Result<bool> {
    let place = path.display();
    if args.dry_run {
        if path.exists() {
            return Err(refused(path, &io::ErrorKind::AlreadyExists.into()).into());
        }
        out.say(&format!("would write {place}:"));
        out.data(text.trim_end())?;
        if let Some(starter) = args.install {
            install(starter, call, true)?.words.iter().for_each(|words| out.say(words));
        }
        return Ok(false);
    }
    if args.yes || path.exists() || !out.can_ask() {
        return Ok(true);
    }
    out.say(&format!("would write {place}:"));
    out.data(text.trim_end())?;
    let is_confirmed = out.ask("Write it?")?.unwrap_or_default();
    if !is_confirmed {
        out.say("nothing was written");
    }
    Ok(is_confirmed)
}

/// Returns how cron and systemd call the program: they have neither this directory nor these variables.
fn call_of(path: &Path, environment: &Environment) -> anyhow::Result<Call> {
    let services = Environment::of_services();
    let program = current_exe().context("cannot find the path of this program")?;
    let mut program = shell_word(&program.to_string_lossy());
    if let Some(home) = environment.state_home.as_ref().filter(|_| environment.state_home != services.state_home) {
        // The default store and the spool are there.
        let variable = format!("XDG_STATE_HOME={}", home.to_string_lossy());
        program = format!("/usr/bin/env {} {program}", shell_word(&variable));
    }
    // Without the option, a shell must find the same file as cron.
    let option = if [environment, &services].into_iter().all(|found| found.own_config_path() == *path) {
        String::new()
    } else {
        format!(" --config {}", shell_word(&absolute(path)?.to_string_lossy()))
    };
    let homes = [environment, &services].map(|found| found.config_home.clone().unwrap_or_default());
    Ok(Call { program, option, user: own_user_name(), config_homes: homes })
}

/// Warns if cron and systemd would not use the store that this call names: they know only that of the configuration.
fn warn_of_named_store(
    path: &Path,
    global: &GlobalArgs,
    environment: &Environment,
    out: &mut Out,
) -> anyhow::Result<()> {
    let (source, named) = match (&global.database, &environment.database) {
        (Some(option), _) => ("--database", lasting(option)?),
        (None, Some(variable)) => ("TASKQUEUE_DATABASE_URL", variable.clone()),
        (None, None) => return Ok(()),
    };
    let written = load(Some(path), environment).ok().and_then(|config| config.database);
    if written.is_none_or(|written| written != named) {
        out.warn(&format!("cron and systemd do not have {source}: write `database = \"…\"` into the configuration"));
    }
    Ok(())
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

fn refuse_bad_data(data: Option<&str>) -> Result<(), CliError> {
    match data.filter(|data| serde_json::from_str::<serde::de::IgnoredAny>(data).is_err()) {
        Some(data) => Err(CliError::usage(format!("--data is not JSON: {data}"))
            .with_hint("quote it for the shell: --data '{\"a\":1}'")),
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
            .with_hint("`taskqueue class add` adds a class to it; `taskqueue init --install service` installs a worker as a service");
    }
    CliError::failed(format!("{place} cannot be written: {error}")).with_hint("--config FILE writes another file")
}

fn tell_next(args: &InitArgs, problem: Option<&str>, call: &Call, out: &mut Out) -> anyhow::Result<()> {
    let class = args.class();
    if let Some(problem) = problem {
        out.warn(&format!("class {class} cannot be executed yet: {problem}"));
        out.say("hint: fix it, then run `taskqueue class check`");
        return Ok(());
    }
    out.say(&format!("class {class} can be executed; try:"));
    let option = &call.option;
    let lines = [
        format!("taskqueue{option} queue {} {}", shell_word(class), shell_word(args.first_data().unwrap_or("{}"))),
        format!("taskqueue{option} tick"),
        format!("taskqueue{option} status"),
        format!("# for every minute, in crontab -e:   {}", call.cron_line()),
        format!("# taskqueue{option} init --install cron   # or user-timer, or service"),
    ];
    out.data(lines.join("\n"))
}
