//! `taskqueue exec`

use clap::Args;

use super::queue_and_follow::queue_and_follow;
use super::task_options::TaskOptions;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::task_class::EXEC_CLASS;
use crate::engine::queue::ClassCheck;

/// Queue a command line and print the id of its task
///
/// The program runs in the current directory, with a clean environment and no shell. On for a SQLite store, off for
/// servers until the configuration says `[exec] enabled = true`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue exec -- tar czf /backup/home.tar.gz /home\n  taskqueue exec --run -- make test\n  taskqueue exec --in 2h -- notify-send 'tea is ready'"
)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    options: TaskOptions,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

pub(crate) fn run(session: Session, args: &ExecArgs, out: &mut Out) -> anyhow::Result<u8> {
    let directory = std::env::current_dir()?;
    let directory = directory.to_str().ok_or_else(|| CliError::usage("the current directory is not UTF-8"))?;
    let data = serde_json::json!({ "argv": args.argv, "cwd": directory }).to_string();
    let mut ctx = session.open_or_make()?;
    let request = args.options.request(&mut ctx, EXEC_CLASS, Some(data))?;
    fault_point!("exec.request_made");
    queue_and_follow(&mut ctx, &args.options, request, ClassCheck::KnownHere, out)
}
