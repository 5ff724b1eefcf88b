//! The program `taskqueue`: the library's command line with the configured classes and nothing added.

use std::process::ExitCode;

fn main() -> ExitCode {
    taskqueue::App::new().run()
}
