//! Short programs of the operating system that a command calls for its user, such as `crontab`. They are not handlers: nothing
//! supervises them.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use crate::children::address_handover::DATABASE_VARIABLE;

/// What a program printed, and whether it succeeded.
#[derive(Clone, Debug)]
pub struct ToolAnswer {
    /// Whether it exited with 0.
    pub is_success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a program of the PATH with this standard input, and waits for its end. The messages of the program are in English.
///
/// # Errors
/// The program cannot be started, or it does not read its input.
pub fn call_tool(program: &str, args: &[&OsStr], input: &str) -> io::Result<ToolAnswer> {
    #[expect(clippy::disallowed_methods, reason = "a tool of the user's session, which ends before this call does")]
    let mut command = Command::new(program);
    let command = command.args(args).env("LC_ALL", "C").env_remove(DATABASE_VARIABLE);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(ToolAnswer { is_success: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}
