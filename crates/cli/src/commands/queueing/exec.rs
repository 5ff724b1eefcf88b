//! `taskqueue exec`

use clap::Args;

use crate::commands::options::task_options::TaskOptions;
use crate::commands::queueing::queue_and_follow::queue_and_follow;
use crate::error::CliError;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_engine::config::own_search_path;
use taskqueue_engine::queueing::program_path::find_in_path;
use taskqueue_engine::queueing::queue::ClassCheck;

/// Queue a command line and print the id of its task
///
/// Finds the program in your PATH now. The task runs it in the current directory, with a clean environment, and without a shell
/// unless you pass --shell. The class `exec` is on for a SQLite store that no other user can change. Elsewhere it is off until
/// the configuration has `[exec] enabled = true`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue exec tar czf /backup/home.tar.gz /home\n  taskqueue exec --run make test\n  taskqueue exec --in 2h notify-send 'tea is ready'\n  taskqueue exec --shell 'sort names | uniq -c > counts'"
)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    options: TaskOptions,
    /// Run this line with /bin/sh, instead of a program
    #[arg(long, value_name = "LINE", conflicts_with = "argv")]
    shell: Option<String>,
    /// Program and its arguments; put options of `exec` before it
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "PROGRAM")]
    argv: Vec<String>,
}

impl ExecArgs {
    /// Returns the command line with the path of the program, if the caller's PATH contains it: cron's PATH may not.
    fn command_line(&self) -> Vec<String> {
        if let Some(line) = &self.shell {
            return ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        }
        let mut argv = self.argv.clone();
        if let Some(program) = argv.first_mut()
            && let Some(path) = own_search_path()
            && let Some(found) = find_in_path(program, path.as_ref())
            && let Ok(found) = found.into_os_string().into_string()
        {
            *program = found;
        }
        argv
    }
}

pub(crate) fn run(session: Session, args: &ExecArgs, out: &mut Out) -> anyhow::Result<u8> {
    let directory = std::env::current_dir()?;
    let directory =
        directory.to_str().ok_or_else(|| CliError::usage("the path of the current directory is not UTF-8"))?;
    let data = serde_json::json!({ "argv": args.command_line(), "cwd": directory }).to_string();
    let mut ctx = session.open_or_make()?;
    let request = args.options.request(&mut ctx, EXEC_CLASS, Some(data))?;
    fault_point!("exec.request_made");
    queue_and_follow(&mut ctx, &args.options, request, ClassCheck::KnownHere, out)
}
