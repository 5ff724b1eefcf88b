//! `taskqueue completions`

use clap::Args;

use crate::completion::Shell;
use crate::error::DONE;
use crate::output::Out;

/// Print completions for bash, zsh or fish
///
/// The shell then asks the program itself, so that it also knows ids, classes, runners and keys of the store. Nothing is changed
/// by that, and a store that cannot be reached in half a second is done without.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(taskqueue completions bash)\n  taskqueue completions zsh >~/.zfunc/_taskqueue\n  taskqueue completions fish >~/.config/fish/completions/taskqueue.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, program: &str, out: &mut Out) -> anyhow::Result<u8> {
    let script = args.shell.script(program);
    if out.is_json() {
        out.json(&serde_json::json!({ "shell": args.shell.name(), "script": script }))?;
    } else {
        out.data(script.trim_end())?;
    }
    Ok(DONE)
}
