//! What the peers' programs share: their command line, what a job does, and how they say that the last one is over.
//!
//! `PROGRAM URL fill N` queues N jobs in the peer's fastest way and prints the seconds that took;
//! `PROGRAM URL add N CLIENTS` queues N one by one, each its own commit, and prints the seconds;
//! `PROGRAM URL drain N WORK KEY=VALUE...` works N jobs off and prints the moment when the last end was in the tables.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Jobs whose work is done.
static DONE: AtomicUsize = AtomicUsize::new(0);

/// What the command line asks for.
pub struct Request {
    pub url: String,
    pub verb: String,
    pub number: usize,
    pub rest: Vec<String>,
    settings: HashMap<String, usize>,
}

impl Request {
    pub fn read() -> Self {
        let mut words = std::env::args().skip(1);
        let mut next = || words.next().expect("usage: PROGRAM URL fill|add|drain N [...]");
        let (url, verb, number) = (next(), next(), next().parse().expect("a number of jobs"));
        let (pairs, rest): (Vec<String>, Vec<String>) = words.partition(|word| word.contains('='));
        let settings = pairs.iter().filter_map(|pair| pair.split_once('='));
        let settings = settings.map(|(key, value)| (key.to_owned(), value.parse().expect("a number"))).collect();
        Self { url, verb, number, rest, settings }
    }

    /// A setting of the peer's worker.
    pub fn setting(&self, key: &str, default: usize) -> usize {
        self.settings.get(key).copied().unwrap_or(default)
    }

    /// The clients of `add`.
    pub fn clients(&self) -> usize {
        self.rest.first().map_or(1, |text| text.parse().expect("a number of clients"))
    }

    /// Whether a job starts /bin/true, or does nothing at all.
    pub fn spawns(&self) -> bool {
        self.rest.first().is_some_and(|work| work == "true")
    }
}

/// The work of one job. No pipes: the peers do not keep what a program prints.
pub async fn work(spawns: bool) {
    if spawns {
        let status = tokio::process::Command::new("/bin/true").status().await.expect("/bin/true starts");
        assert!(status.success());
    }
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// Waits until so many jobs have done their work.
pub async fn worked_off(number: usize) {
    while DONE.load(Ordering::Relaxed) < number {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Prints the moment after the question `is_over` was first answered with yes. Seconds since 1970, as the caller has them.
pub async fn say_when<F: Future<Output = bool>>(mut is_over: impl FnMut() -> F) {
    while !is_over().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    println!("{:.6}", now.as_secs_f64());
}

/// Prints how long it took.
pub async fn say_seconds(what: impl Future<Output = ()>) {
    let started = Instant::now();
    what.await;
    println!("{:.6}", started.elapsed().as_secs_f64());
}

/// So many calls shared among so many clients at once.
pub async fn by_clients<F>(number: usize, clients: usize, add: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let share = number / clients;
    let tasks: Vec<_> = (0..clients).map(|_| tokio::spawn(futures_of(share, &add))).collect();
    for task in tasks {
        task.await.expect("a client ends well");
    }
}

fn futures_of<F: Future<Output = ()> + Send + 'static>(
    share: usize,
    add: &impl Fn() -> F,
) -> impl Future<Output = ()> + Send + 'static {
    let calls: Vec<F> = (0..share).map(|_| add()).collect();
    async move {
        for call in calls {
            call.await;
        }
    }
}
