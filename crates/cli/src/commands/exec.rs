//! `taskqueue exec`

use clap::Args;

use super::queue_and_follow::queue_and_follow;
use super::task_options::TaskOptions;
use crate::error::CliError;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_engine::config::own_search_path;
use taskqueue_engine::queueing::program_path::find_in_path;
use taskqueue_engine::queueing::queue::ClassCheck;

/// Queue a command line and print the id of its task
///
/// The program is found by your PATH now, and runs in the current directory, with a clean environment. Without --shell no shell is
/// involved. On for a SQLite store, off for servers until the configuration has `[exec] enabled = true`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue exec tar czf /backup/home.tar.gz /home\n  taskqueue exec --run make test\n  taskqueue exec --in 2h notify-send 'tea is ready'\n  taskqueue exec --shell 'sort names | uniq -c > counts'"
)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    options: TaskOptions,
    /// A line for /bin/sh, in place of a program
    #[arg(long, value_name = "LINE", conflicts_with = "argv")]
    shell: Option<String>,
    /// The program and its arguments; options of this command go before it
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "PROGRAM")]
    argv: Vec<String>,
}

impl ExecArgs {
    /// With the path of the program, if the PATH of the caller leads to it: that of cron may not.
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
    let directory = directory.to_str().ok_or_else(|| CliError::usage("the current directory is not UTF-8"))?;
    let data = serde_json::json!({ "argv": args.command_line(), "cwd": directory }).to_string();
    let mut ctx = session.open_or_make()?;
    let request = args.options.request(&mut ctx, EXEC_CLASS, Some(data))?;
    fault_point!("exec.request_made");
    queue_and_follow(&mut ctx, &args.options, request, ClassCheck::KnownHere, out)
}
