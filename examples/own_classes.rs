//! A program of one's own: the whole command line of taskqueue, and three task classes that Rust types handle.
//!
//! ```sh
//! cargo run --example own_classes -- queue text.count '{"text":"one two\nthree"}'
//! cargo run --example own_classes -- queue web.check '{"answer":503,"retry_after":120}'
//! cargo run --example own_classes -- queue file.await '"/tmp/report.csv"'
//! cargo run --example own_classes -- tick
//! cargo run --example own_classes -- status
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taskqueue::{ActiveRun, HandlerError, TaskHandler};
use taskqueue_cli::App;

/// Counts the words of a text line by line, says how far it is, and leaves the count as its results.
struct CountWords;

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
struct Count {
    lines: usize,
    words: usize,
}

impl TaskHandler for CountWords {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        // Data of another shape ends the task for good, with code `invalid-data`.
        let Text { text } = run.data()?;
        let total = text.lines().count();
        let mut count = Count { lines: 0, words: 0 };
        for line in text.lines() {
            count.lines += 1;
            count.words += line.split_whitespace().count();
            run.set_percents_completed(i32::try_from(count.lines * 100 / total).unwrap_or(100));
        }
        run.set_results(&count)
    }
}

/// Looks at the answer of a web server and decides whether asking again makes sense, and when.
struct CheckAnswer;

#[derive(Deserialize)]
struct Answer {
    answer: u16,
    retry_after: Option<i64>,
}

impl TaskHandler for CheckAnswer {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let Answer { answer, retry_after } = run.data()?;
        let code = format!("http:{answer}");
        match (answer, retry_after) {
            (200..=299, _) => run.set_results(&answer),
            (429 | 503, Some(secs)) => {
                Err(HandlerError::retry_after(secs, code, format!("the server asks for {secs} seconds")))
            }
            (400..=499, _) => Err(HandlerError::no_retry(code, "asking again would give the same answer")),
            _ => Err(HandlerError::new(code, "no good answer")),
        }
    }
}

/// Waits until a file is there, for however long, and says all the time that it is alive: without that its timeout would
/// end it.
struct AwaitFile;

impl TaskHandler for AwaitFile {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let path: PathBuf = run.data()?;
        while !path.exists() {
            run.heartbeat();
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    // A handler that does not end when it is asked to is left behind after this time.
    let app = App::new().named("own_classes").overrun_grace(Duration::from_secs(1)).class("text.count", CountWords);
    app.class("web.check", CheckAnswer).class("file.await", AwaitFile).run()
}
