//! The Library column of docs/sources.md lists public names: each of them is compiled here, and each name here is in the
//! column.

use std::collections::BTreeSet;
use std::time::Duration;

use taskqueue::{ActiveRun, HandlerError, TaskHandler};

use super::read;

/// An argument of any type; nothing here is called.
fn any<T>() -> T {
    unreachable!("these functions are compiled, and never called")
}

/// A handler whose type has a name.
struct Handler;

impl TaskHandler for Handler {
    fn process_task_queue_run(&self, _run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}

/// Compiles each name as a path into the crate, with these arguments if it is a function, and lists the names.
/// The library, and the command line for a program with its own classes.
mod library {
    pub use taskqueue::*;
    pub use taskqueue_cli::App;
}

macro_rules! names {
    (types: $($type:ident)*; functions: $($owner:ident :: $function:ident($($argument:expr),*);)*) => {
        fn names() -> BTreeSet<String> {
            $({
                #[allow(unused_imports)]
                use library::$type;
            })*
            $({
                #[allow(unused_imports)]
                use library::$owner;
                let _ = || {
                    let _ = $owner::$function($($argument),*);
                };
            })*
            let types = [$(stringify!($type)),*].map(str::to_owned);
            let functions = [$(concat!(stringify!($owner), "::", stringify!($function))),*].map(str::to_owned);
            types.into_iter().chain(functions).collect()
        }
    };
}

names! {
    types: AttemptOutcome ClaimedRun Error EventsOf OverrunAction Run Selection TaskHandler TaskStatus WorkerEvent;
    functions:
    ActiveRun::emit(any::<&mut ActiveRun<'_>>(), "name", &0);
    ActiveRun::set_meta(any::<&mut ActiveRun<'_>>(), "name", &0);
    ActiveRun::is_cancelled(any::<&ActiveRun<'_>>());
    ActiveRun::messages(any::<&mut ActiveRun<'_>>());
    App::class(any(), "name", Handler);
    Claim::classes(any(), ["name"]);
    Claim::process(any(), 0);
    Claim::tag(any(), "tag");
    Claim::task(any(), any());
    Claim::wait(any(), Duration::ZERO);
    Edit::data(any(), &0);
    Edit::if_updated_on(any(), any());
    Edit::priority(any(), 0);
    HeldRun::check(any());
    HeldRun::fail(any(), any());
    HeldRun::heartbeat(any());
    HeldRun::progress(any(), 0, None);
    HeldRun::reject(any(), "reason");
    HeldRun::release(any(), "reason");
    HeldRun::resolve(any(), &0);
    HeldRun::resolve_with_meta(any(), &0, &0);
    NewTask::after(any(), []);
    NewTask::at(any(), any::<std::time::SystemTime>());
    NewTask::backoff(any(), "fixed:10s");
    NewTask::data(any(), &0);
    NewTask::delay(any(), Duration::ZERO);
    NewTask::every(any(), "0 3 * * *", "UTC");
    NewTask::keep(any(), Duration::ZERO);
    NewTask::keep_results(any(), Duration::ZERO);
    NewTask::limit_key(any(), "key");
    NewTask::tag(any(), "tag");
    NewTask::max_retries(any(), 1);
    NewTask::meta(any(), "name", &0);
    NewTask::new("name");
    NewTask::parent(any(), any());
    NewTask::priority(any(), 0);
    NewTask::timeout(any(), Duration::ZERO);
    NewTask::unique(any(), "key");
    Retry::by_force(any());
    TaskQueue::because(any(), "reason");
    Task::due_from(any());
    TaskQueue::cancel(any(), any::<taskqueue::TaskId>());
    TaskQueue::claim(any(), any());
    TaskQueue::drain(any(), any(), None);
    TaskQueue::edit(any(), any::<taskqueue::TaskId>(), any());
    TaskQueue::events(any(), any(), 1);
    TaskQueue::listen(any(), any());
    TaskQueue::message(any(), any(), "name", &0);
    TaskQueue::message_class(any(), "class", "name", &0);
    TaskQueue::message_kept(any(), any(), "name", &0);
    TaskQueue::pause(any(), any(), None);
    TaskQueue::pauses(any());
    TaskQueue::prune(any(), any::<taskqueue::TaskId>());
    TaskQueue::queue(any(), any());
    TaskQueue::resume(any(), any());
    TaskQueue::retry(any(), any::<taskqueue::TaskId>());
    TaskQueue::run_of_token(any(), "token");
    TaskQueue::runs(any(), any(), 1);
    TaskQueue::select(any(), any::<taskqueue::TaskId>());
    TaskQueue::silent_runs(any(), Duration::ZERO, 1);
    TaskQueue::stop_runners(any(), any(), None);
    TaskQueue::take_back(any(), any());
    TaskQueue::task(any(), any());
    Worker::class(any(), "name", Handler);
    Worker::follow_signals(any());
    Worker::max_left_behind(any(), 1);
    Worker::name(any(), "name");
    Worker::on_overrun(any(), any());
    Worker::run(any());
    Worker::slots(any(), 1);
    Worker::stop_handle(any());
}

/// Returns the names between backquotes in the column Library.
fn documented() -> BTreeSet<String> {
    let page = read("docs/sources.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_matches('|').split('|').nth(3));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn the_library_column_of_the_sources_names_only_what_is_public() {
    let names = names();
    assert!(names.len() > 50, "{names:?}");
    assert_eq!(documented(), names);
}
