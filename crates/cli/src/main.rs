//! The program `taskqueue`: the plain command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskqueue_cli::App::new().run()
}
