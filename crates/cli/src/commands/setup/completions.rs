//! `taskqueue completions`

use clap::Args;

use crate::completion::Shell;
use crate::error::DONE;
use crate::output::Out;

/// Print completions for bash, zsh or fish
///
/// The shell calls the program while you type, so it also completes ids, classes, runners and keys of the store. This changes
/// nothing. If the store does not answer within half a second, the shell offers none of these.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(taskqueue completions bash)\n  taskqueue completions zsh >~/.zfunc/_taskqueue\n  taskqueue completions fish >~/.config/fish/completions/taskqueue.fish"
)]
pub(crate) struct CompletionsArgs {
    /// Shell that the completions are for
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
