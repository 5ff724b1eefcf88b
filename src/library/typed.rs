//! A handler whose data and results are Rust types.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use taskqueue_engine::handler::{ActiveRun, HandlerError, TaskHandler};

/// Creates a handler from a function that takes the data of the task as a Rust type and returns the results. If it returns `()`
/// or `None`, the results that it has set itself are kept.
///
/// If the data does not fit the type, the task fails without a retry, with code `invalid-data`.
///
/// ```no_run
/// use taskqueue::typed;
/// use taskqueue_cli::App;
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     cents: Vec<u64>,
/// }
///
/// # fn main() -> std::process::ExitCode {
/// let total = typed(|order: Order, _run| Ok(order.cents.iter().sum::<u64>()));
/// App::new().class("order.total", total).run()
/// # }
/// ```
pub fn typed<D, R, F>(handle: F) -> impl TaskHandler
where
    D: DeserializeOwned,
    R: Serialize,
    F: Fn(D, &mut ActiveRun<'_>) -> Result<R, HandlerError> + Send + Sync,
{
    Typed { handle, data: PhantomData }
}

struct Typed<D, F> {
    handle: F,
    /// Only the type is used.
    data: PhantomData<fn(D)>,
}

impl<D, R, F> TaskHandler for Typed<D, F>
where
    D: DeserializeOwned,
    R: Serialize,
    F: Fn(D, &mut ActiveRun<'_>) -> Result<R, HandlerError> + Send + Sync,
{
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        let results = (self.handle)(run.data()?, run)?;
        let json =
            to_raw_value(&results).map_err(|error| HandlerError::no_retry("invalid-results", error.to_string()))?;
        if json.get() == "null" { Ok(()) } else { run.set_results(&json) }
    }
}
