//! The run as passed to a Rust handler, the errors of a handler, and the call that catches its panics.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CancelToken, Inbox, Reporter, RunContext, StopReason, TaskHandler};
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::trace::{CorrelationId, Traceparent};
use taskqueue_domain::text::json::check_storable;

/// The run that a handler processes.
pub struct ActiveRun<'a> {
    context: &'a RunContext,
    reporter: &'a mut dyn Reporter,
}

impl<'a> ActiveRun<'a> {
    /// Returns the run of this context, which reports to `reporter`.
    pub fn new(context: &'a RunContext, reporter: &'a mut dyn Reporter) -> Self {
        Self { context, reporter }
    }

    /// Returns everything that is known about the run.
    #[must_use]
    pub fn context(&self) -> &RunContext {
        self.context
    }

    /// Returns the id of the task; the same for all its attempts.
    #[must_use]
    pub fn task_id(&self) -> i64 {
        self.context.task_id
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn run_id(&self) -> i64 {
        self.context.run_id
    }

    /// Returns the number of the attempt; 1 for the first one.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.context.attempt
    }

    /// Returns the W3C trace context of the task, if it has one.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.context.trace.traceparent.as_ref().map(Traceparent::as_str)
    }

    /// Returns the correlation id of the task, if it has one.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.context.trace.correlation.as_ref().map(CorrelationId::as_str)
    }

    /// Returns the task class.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.context.class
    }

    /// Deserializes the data of the task.
    ///
    /// # Errors
    /// Returns code `invalid-data`, without a retry, if the data does not fit the type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(&self.context.data)
            .map_err(|error| HandlerError::no_retry("invalid-data", error.to_string()))
    }

    /// Saves the progress and restarts the timeout. Values outside 0 to 100 are clamped.
    pub fn set_percents_completed(&mut self, percent: i32) {
        self.reporter.progress(percent.clamp(0, 100), None);
    }

    /// Saves the results, and replaces earlier ones.
    ///
    /// # Errors
    /// Returns code `invalid-results` if the value has no JSON form (a map whose keys are not strings), or one that not every
    /// engine can store.
    pub fn set_results<T: Serialize + ?Sized>(&mut self, results: &T) -> Result<(), HandlerError> {
        let json = serde_json::to_string(results)
            .map_err(|error| HandlerError::no_retry("invalid-results", error.to_string()))?;
        check_storable(&json)
            .map_err(|what| HandlerError::no_retry("invalid-results", format!("the result {what}")))?;
        self.reporter.results(&json);
        Ok(())
    }

    /// Sets a value in the metadata of the task when the run ends, whatever its outcome. It replaces an earlier value of this
    /// name; `None` or `()` removes the name.
    ///
    /// ```
    /// # use taskqueue_engine::handler as taskqueue;
    /// use taskqueue::{ActiveRun, HandlerError};
    ///
    /// fn handle(run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
    ///     run.set_meta("invoice", "2026-117")?;
    ///     run.set_meta("pages", &12)
    /// }
    /// # let _ = handle;
    /// ```
    ///
    /// # Errors
    /// Returns code `invalid-meta` if the name is empty or too long, or if the value has no JSON form that every engine can
    /// store.
    pub fn set_meta<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), HandlerError> {
        let invalid = |what: String| HandlerError::no_retry("invalid-meta", what);
        let json = serde_json::to_string(value).map_err(|error| invalid(error.to_string()))?;
        let mut meta = Meta::default();
        meta.set(name, &json).map_err(invalid)?;
        self.reporter.meta(meta);
        Ok(())
    }

    /// Sends a message that anyone may follow with `taskqueue events` or a listener.
    ///
    /// # Errors
    /// Returns code `invalid-message` if it has no name, is too large, or has no JSON form that every engine can store.
    pub fn emit<T: Serialize + ?Sized>(&mut self, name: &str, data: &T) -> Result<(), HandlerError> {
        let invalid = |what: String| HandlerError::no_retry("invalid-message", what);
        let data = serde_json::to_string(data).map_err(|error| invalid(error.to_string()))?;
        check_message(name, &data).map_err(invalid)?;
        self.reporter.message(Message { name: name.to_owned(), data });
        Ok(())
    }

    /// Returns the inbox with messages sent to this task by `taskqueue report message --task`, `TaskQueue::message` or SQL. The
    /// first call starts the delivery; messages kept for this attempt arrive at once. Without a call, this costs nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use taskqueue_engine::handler as taskqueue;
    /// use taskqueue::{ActiveRun, HandlerError};
    ///
    /// fn process(run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
    ///     let inbox = run.messages();
    ///     while run.stop_reason().is_none() {
    ///         match inbox.wait(Duration::from_secs(1)) {
    ///             Some(message) if message.name == "finish" => break,
    ///             Some(message) => println!("{}: {}", message.name, message.data),
    ///             None => run.heartbeat(),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn messages(&mut self) -> Inbox {
        self.reporter.inbox()
    }

    /// Returns true if the handler should end: the run was cancelled, its timeout or its time to stop has passed, or its lease
    /// has expired. [`Self::stop_reason`] returns which. A success that the handler returns afterwards still counts. After a
    /// cancel, an error counts as cancelled and is not retried.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reporter.cancel_token().is_cancelled()
    }

    /// Returns why the handler should clean up and return soon; `None` while it may continue.
    ///
    /// When its grace has passed, the runner gives up on the handler: it records the end of the run, and drops what the handler
    /// reports or returns afterwards (see [`OverrunAction`](super::OverrunAction)). After [`StopReason::Shutdown`] the grace
    /// begins when the time to stop has passed; after [`StopReason::Timeout`] and [`StopReason::LeaseLost`] it begins at once.
    /// A success that is returned within the grace counts; an error counts as the requested end.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.reporter.stop_reason()
    }

    /// Returns a token for other threads, which can also be waited for.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.reporter.cancel_token()
    }

    /// Restarts the timeout without reporting anything.
    pub fn heartbeat(&mut self) {
        self.reporter.heartbeat();
    }
}

/// How a Rust handler failed. `?` makes one from any error: code `error`, retried by the rules of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    /// A short code for programs.
    pub code: String,
    /// A message to display.
    pub message: String,
    /// Whether a retry makes sense.
    pub retry: bool,
    /// Seconds to wait before the retry, 0 to a year; `None` uses the backoff.
    pub delay_secs: Option<i64>,
}

impl HandlerError {
    /// Creates a failure that may be retried.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retry: true, delay_secs: None }
    }

    /// Creates a failure that would only repeat, so that it is not retried.
    pub fn no_retry(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { retry: false, ..Self::new(code, message) }
    }

    /// Creates a failure that may be retried after this many seconds: 0 to a year. Other values are clamped.
    pub fn retry_after(delay_secs: i64, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { delay_secs: Some(possible_delay_secs(delay_secs)), ..Self::new(code, message) }
    }
}

/// Uses the message of the error with all its causes. Because of this conversion, the type cannot implement `Error` itself.
impl<E: Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new("error", message)
    }
}

/// Runs a handler in this thread.
///
/// # Errors
/// Returns the error of the handler, or code `panic` if it panicked.
pub fn run_rust_handler(
    handler: &dyn TaskHandler,
    context: &RunContext,
    reporter: &mut dyn Reporter,
) -> Result<(), HandlerError> {
    let mut run = ActiveRun::new(context, reporter);
    // After a panic, only the reporter is used, and its calls do not depend on each other.
    catch_unwind(AssertUnwindSafe(|| handler.process_task_queue_run(&mut run)))
        .unwrap_or_else(|panic| Err(HandlerError::new("panic", panic_message(panic.as_ref()))))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("no message"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use taskqueue_domain::task::trace::Trace;

    use super::*;

    /// Every context gets its own token, because processes are ended by token.
    pub(in crate::handler) fn context(data: &str) -> RunContext {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        RunContext {
            task_id: 7,
            run_id: 70,
            attempt: 2,
            max_retries: 5,
            class: "mail.send".parse().unwrap(),
            data: data.to_owned(),
            token: format!("token-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            planned_on: "2026-08-01T10:00:00Z".to_owned(),
            timeout_secs: 60,
            deadline: "2026-08-01T10:01:00Z".to_owned(),
            trace: Trace::default(),
        }
    }

    #[derive(Default)]
    struct Saved(Vec<String>);

    impl Reporter for Saved {
        fn progress(&mut self, percent: i32, _message: Option<&str>) {
            self.0.push(percent.to_string());
        }
        fn results(&mut self, json: &str) {
            self.0.push(json.to_owned());
        }
    }

    struct ByData;

    impl TaskHandler for ByData {
        fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
            let wanted: Vec<String> = run.data()?;
            run.set_percents_completed(150);
            match wanted[0].as_str() {
                "good" => run.set_results(&[run.task_id()]),
                "panic" => panic!("no {}", wanted[0]),
                number => {
                    number.parse::<i32>()?;
                    Err(HandlerError::retry_after(-3, "later", "busy"))
                }
            }
        }
    }

    fn outcome(data: &str) -> (Result<(), HandlerError>, Vec<String>) {
        let mut saved = Saved::default();
        (run_rust_handler(&ByData, &context(data), &mut saved), saved.0)
    }

    #[test]
    fn progress_and_results_of_a_success_are_saved() {
        assert_eq!(outcome("[\"good\"]"), (Ok(()), vec!["100".to_owned(), "[7]".to_owned()]));
    }

    #[test]
    fn a_delay_beyond_a_year_is_a_year() {
        assert_eq!(HandlerError::retry_after(i64::MAX, "later", "busy").delay_secs, Some(31_536_000));
        assert_eq!(HandlerError::retry_after(i64::MIN, "later", "busy").delay_secs, Some(0));
    }

    #[test]
    fn a_panic_becomes_an_error_that_names_it() {
        let error = outcome("[\"panic\"]").0.unwrap_err();
        assert_eq!(error, HandlerError::new("panic", "the handler panicked: no panic"));
        assert!(outcome("[]").0.unwrap_err().message.contains("out of bounds"));
    }

    #[test]
    fn errors_keep_their_code_and_their_wish() {
        let error = outcome("[\"x1\"]").0.unwrap_err();
        assert_eq!((error.code.as_str(), error.retry), ("error", true));
        assert_eq!(outcome("[\"1\"]").0.unwrap_err().delay_secs, Some(0));
        let error = outcome("{}").0.unwrap_err();
        assert_eq!((error.code.as_str(), error.retry), ("invalid-data", false));
    }
}
