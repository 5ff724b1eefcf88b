//! `taskqueue exec`

use clap::{Args, FromArgMatches as _};
use serde_json::{Map, Value, json};

use crate::commands::options::task_options::TaskOptions;
use crate::commands::queueing::queue_and_follow::queue_and_follow;
use crate::error::CliError;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_engine::Context;
use taskqueue_engine::config::{named_variable, own_search_path};
use taskqueue_engine::handler::exec::is_reserved_variable;
use taskqueue_engine::queueing::program_path::find_in_path;
use taskqueue_engine::queueing::queue::ClassCheck;

/// Queue a command line and print the id of its task
///
/// Finds the program in your PATH now. The task runs it in the current directory, with a clean environment, and without a shell
/// unless you pass --shell. The class `exec` is on for a SQLite store that no other user can change. Elsewhere it is off until
/// the configuration has `[exec] enabled = true`.
#[derive(Debug, Args)]
#[command(
    override_usage = "taskqueue exec [OPTIONS] PROGRAM [ARGUMENT]...\n       taskqueue exec [OPTIONS] --shell LINE",
    after_help = "Examples:\n  taskqueue exec tar czf /backup/home.tar.gz /home\n  taskqueue exec --run make test\n  taskqueue exec --env LANG --env MODE=fast ./report\n  taskqueue exec --in 2h notify-send 'tea is ready'\n  taskqueue exec --shell 'sort names | uniq -c > counts'"
)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    options: TaskOptions,
    /// Run this line with /bin/sh, instead of a program
    #[arg(long, value_name = "LINE", conflicts_with = "argv")]
    shell: Option<String>,
    /// Set a variable for the program: NAME alone takes your value; may be given more than once
    ///
    /// The values are stored with the task, where everyone who can read the store can read them. Do not pass secrets: give a
    /// class `pass_env` instead.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Program and its arguments; put options of `exec` before it
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "PROGRAM")]
    argv: Vec<String>,
}

impl ExecArgs {
    /// Returns the arguments that these words would give.
    pub(crate) fn of(words: &[String]) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("exec").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// Returns the command line with the path of the program, if the caller's PATH contains it: cron's PATH may not.
    fn command_line(&self) -> Vec<String> {
        if let Some(line) = &self.shell {
            return ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        }
        let mut argv = self.argv.clone();
        if let Some(program) = argv.first_mut()
            && let Some(found) = path_of_program(program)
        {
            *program = found;
        }
        argv
    }

    /// Returns the name of the program if neither a slash nor the caller's PATH says where it is. The PATH of a runner may.
    fn unknown_program(&self) -> Option<&str> {
        let name = self.argv.first().filter(|_| self.shell.is_none())?;
        (!name.contains('/') && path_of_program(name).is_none()).then_some(name)
    }

    /// Returns the data of the task.
    fn data(&self) -> anyhow::Result<Value> {
        let directory = std::env::current_dir()?;
        let directory =
            directory.to_str().ok_or_else(|| CliError::usage("the path of the current directory is not UTF-8"))?;
        let mut data = json!({ "argv": self.command_line(), "cwd": directory });
        let variables = self.variables()?;
        if !variables.is_empty() {
            data["env"] = Value::Object(variables);
        }
        Ok(data)
    }

    /// Returns the variables for the program.
    fn variables(&self) -> Result<Map<String, Value>, CliError> {
        let mut variables = Map::new();
        for text in &self.env {
            let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
            let refused = |why: &str| CliError::usage(format!("--env: {why}"));
            if name.is_empty() {
                return Err(refused(&format!("\"{text}\" has no name")).with_hint("--env NAME=VALUE, or --env NAME"));
            }
            if is_reserved_variable(name) {
                return Err(refused(&format!("{name} cannot be set: TASKQUEUE_* and LD_* are reserved"))
                    .with_hint(format!("`taskqueue exec -- env {name}=VALUE PROGRAM` sets it in the command line")));
            }
            let value = match value {
                Some(value) => value.to_owned(),
                None => named_variable(name).map_err(|why| refused(&why))?.ok_or_else(|| {
                    refused(&format!("the variable {name} is not set")).with_hint(format!("--env {name}=VALUE"))
                })?,
            };
            variables.insert(name.to_owned(), Value::from(value));
        }
        Ok(variables)
    }
}

/// Returns the path of a program that the caller's PATH contains; `None` for a name with a slash, which needs no search.
pub(crate) fn path_of_program(name: &str) -> Option<String> {
    find_in_path(name, own_search_path()?.as_ref())?.into_os_string().into_string().ok()
}

pub(crate) fn run(session: Session, args: &ExecArgs, out: &mut Out) -> anyhow::Result<u8> {
    // A wrong command line creates no store.
    args.data()?;
    queue_exec(&mut session.open_or_make()?, args, out)
}

/// Queues the command line.
pub(crate) fn queue_exec(ctx: &mut Context, args: &ExecArgs, out: &mut Out) -> anyhow::Result<u8> {
    let request = args.options.request(ctx, EXEC_CLASS, Some(args.data()?.to_string()))?;
    fault_point!("exec.request_made");
    if let Some(name) = args.unknown_program() {
        out.warn(&format!("no program \"{name}\" is in your PATH; the task fails unless its runner finds one"));
    }
    queue_and_follow(ctx, &args.options, request, ClassCheck::KnownHere, out)
}
