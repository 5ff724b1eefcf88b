//! How many runs a second pass through a coprocess, without any database: handlers in Python, PHP and Node that do nothing,
//! written with the helpers of contrib. docs/performance.md shows the figures.
//!
//!     cargo bench --bench coprocess [-- SECONDS [LANGUAGE…]]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use taskqueue_domain::limits::confinement::Confinement;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::trace::Trace;
use taskqueue_engine::config::CoprocessConfig;
use taskqueue_engine::handler::RunContext;
use taskqueue_engine::handler::command::{CommandHandler, CommandSource, Printer};
use taskqueue_engine::handler::coprocess::{CoprocessHandler, Coprocesses, PING_EVERY};

/// Runs that wait or are at work at once, and how many of them the handler takes.
const SHAPES: [(usize, usize); 5] = [(1, 1), (8, 8), (16, 16), (32, 32), (64, 64)];
const LANGUAGES: [&str; 3] = ["python3", "php", "node"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let secs = args.first().map_or(2.0, |secs| secs.parse().unwrap());
    let wanted = args.get(1..).unwrap_or_default();
    println!("runs a second through one process, medians of 5 times {secs} s");
    println!("{:>10} {}", "threads", LANGUAGES.map(|language| format!("{language:>10}")).join(""));
    for (threads, in_flight) in SHAPES {
        let figures = LANGUAGES.map(|language| {
            let is_wanted = wanted.is_empty() || wanted.iter().any(|name| name == language);
            let mut rates: Vec<f64> = if is_wanted {
                measure(language, threads, in_flight, Duration::from_secs_f64(secs))
            } else {
                vec![0.0]
            };
            rates.sort_by(f64::total_cmp);
            format!("{:>10.0}", rates[rates.len() / 2])
        });
        println!("{threads:>10} {}", figures.join(""));
    }
}

fn measure(language: &str, threads: usize, in_flight: usize, time: Duration) -> Vec<f64> {
    let (coprocesses, handler) = (Coprocesses::default(), handler(language, in_flight));
    let ids = AtomicI64::new(1);
    for_a_while(&coprocesses, &handler, &ids, threads, time / 4);
    (0..5).map(|_| for_a_while(&coprocesses, &handler, &ids, threads, time)).collect()
}

fn for_a_while(
    coprocesses: &Coprocesses,
    handler: &CoprocessHandler,
    ids: &AtomicI64,
    threads: usize,
    time: Duration,
) -> f64 {
    let done = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while start.elapsed() < time {
                    let run = run(ids.fetch_add(1, Ordering::Relaxed));
                    let end = coprocesses.run(handler, &run, &[], None, &mut Printer(&mut |_, _| {}));
                    assert!(end.ending.is_success() && end.said.error.is_none(), "{end:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn run(id: i64) -> RunContext {
    RunContext {
        task_id: id,
        run_id: id,
        attempt: 1,
        max_retries: 5,
        class: "nothing".parse().unwrap(),
        data: "{\"to\":\"ann@example.org\",\"subject\":\"hello\",\"page\":7}".to_owned(),
        token: format!("{id:032x}"),
        planned_on: "2026-08-01T10:00:00.000000Z".to_owned(),
        timeout_secs: 60,
        deadline: "2026-08-01T10:01:00.000000Z".to_owned(),
        trace: Trace::default(),
    }
}

fn handler(language: &str, in_flight: usize) -> CoprocessHandler {
    let contrib = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
    let helper = |name: &str| contrib.join(name).display().to_string();
    let (option, script) = match language {
        "python3" => {
            let path = contrib.display();
            let import = format!("import sys; sys.path.insert(0, '{path}'); from taskqueue_handler import serve");
            ("-c", format!("{import}\nserve(lambda task: None, in_flight={in_flight})"))
        }
        "php" => {
            let file = helper("TaskqueueHandler.php");
            ("-r", format!("require '{file}'; Taskqueue\\serve(fn($task) => null, inFlight: {in_flight});"))
        }
        _ => {
            let file = helper("taskqueue-handler.js");
            ("-e", format!("require('{file}').serve(() => undefined, {{ inFlight: {in_flight} }})"))
        }
    };
    CoprocessHandler {
        name: "nothing".to_owned(),
        command: CommandHandler {
            argv: vec![language.to_owned(), option.to_owned(), script],
            source: CommandSource::Configuration,
            cwd: None,
            env: Vec::new(),
            pass_env: Vec::new(),
            confinement: Confinement::default(),
            kill_grace: Duration::from_secs(10),
            output_limit_bytes: 128 << 10,
        },
        exit_rules: ExitRules::default(),
        config: CoprocessConfig {
            start_timeout: Duration::from_secs(30),
            max_runs: None,
            max_age: None,
            max_rss_bytes: None,
        },
        ping_every: PING_EVERY,
    }
}
