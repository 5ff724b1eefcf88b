//! The whole command line of taskqueue with classes that do nothing, or next to nothing, in process.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use taskqueue::{ActiveRun, HandlerError, TaskHandler};
use taskqueue_cli::App;

struct Noop;

impl TaskHandler for Noop {
    fn process_task_queue_run(&self, _: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}

/// Writes the moment at which it was started to the file that its data names.
struct Stamp;

impl TaskHandler for Stamp {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path: String = run.data()?;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| writeln!(file, "{:.6}", now.as_secs_f64()))
            .map_err(|error| HandlerError::new("file", error.to_string()))
    }
}

fn main() -> ExitCode {
    App::new().named("bench_noop").class("noop", Noop).class("stamp", Stamp).run()
}
