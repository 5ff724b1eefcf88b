//! Tasks queued one by one through the library, each its own commit, by so many clients at once; prints the seconds.

use taskqueue::{NewTask, TaskQueue};
use taskqueue_bench::{argument, by_threads, number};

const USAGE: &str = "bench_library URL N CLIENTS";

fn main() {
    let url = argument(1, USAGE);
    // As long as the rows of `bench_limits commits`.
    let data = format!("{{\"text\":\"{}\"}}", "x".repeat(189));
    let connect = || TaskQueue::connect(&url).expect("a connection");
    by_threads(number(2, USAGE), number(3, USAGE), connect, |queue| {
        queue.queue(NewTask::new("noop").json(data.as_str())).expect("a task is queued");
    });
}
