//! The program `taskqueue`: the command line with the configured classes and nothing added.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskqueue_cli::App::new().run()
}
