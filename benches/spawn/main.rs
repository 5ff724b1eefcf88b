//! What it costs to run a handler beside what it costs to start a program at all: `/bin/true` through `children::child` and
//! through `handler::command`, against a bare loop of the standard library's `Command` with pipes for its input and its
//! outputs, on the same number of threads. docs/performance.md has the figures.
//!
//! `cargo bench --bench spawn [-- --starts 2000] [--rounds 7] [--only child|command]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::hint::black_box;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use taskqueue_domain::limits::confinement::{Confinement, Limits};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::trace::Trace;
use taskqueue_engine::handler::RunContext;
use taskqueue_engine::handler::command::{CommandHandler, CommandSource, Printer};
use taskqueue_process::children::child::{ChildSpec, Control, Observer, Supervision, prepare_process, supervise};
use taskqueue_process::spawning::rights::Rights;

const PROGRAM: &str = "/bin/true";
const DATA: &str = "{\"to\":\"somebody\",\"subject\":\"something\"}";
const THREADS: [u32; 3] = [1, 2, 8];

/// Starts the program once and waits for its end.
type Way = fn();

fn main() {
    prepare_process().unwrap();
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let number = |name: &str, or: u32| option(name).map_or(or, |text| text.parse().expect("a number"));
    let (starts, rounds) = (number("--starts", 2_000), number("--rounds", 7));
    if let Some(only) = option("--only") {
        let way = match only.as_str() {
            "child" => child,
            "bare" => bare,
            _ => command,
        };
        println!("{only}: {:.0} starts/s", rate(way, number("--threads", 8), starts));
        return;
    }
    let ways: [(&str, Way); 3] = [("a bare loop", bare), ("child process", child), ("handler::command", command)];
    println!("{starts} starts of {PROGRAM} in each of {rounds} rounds; starts a second, medians\n");
    println!(
        "| threads | a bare loop | child process | ratio | handler::command | ratio |\n| --: | --: | --: | --: | --: | --: |"
    );
    for threads in THREADS {
        // In turns, so that whatever else the machine does slows all of them; the ratio is that of one round.
        let rounds: Vec<[f64; 3]> = (0..rounds).map(|_| ways.map(|(_, way)| rate(way, threads, starts))).collect();
        let median_of = |of: &dyn Fn(&[f64; 3]) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "| {threads} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} |",
            median_of(&|round| round[0]),
            median_of(&|round| round[1]),
            median_of(&|round| round[1] / round[0]),
            median_of(&|round| round[2]),
            median_of(&|round| round[2] / round[0]),
        );
    }
}

/// Starts a second.
fn rate(way: Way, threads: u32, starts: u32) -> f64 {
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || (0..starts / threads).for_each(|_| way()));
        }
    });
    f64::from(starts / threads * threads) / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn bare() {
    let mut command = Command::new(PROGRAM);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(DATA.as_bytes());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut errors).unwrap();
    assert!(child.wait().unwrap().success());
    black_box((output, errors));
}

fn child() {
    let spec = ChildSpec {
        program: PROGRAM.into(),
        args: Vec::new(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("TASKQUEUE_RUN_TOKEN".into(), "token".into())],
        cwd: Some("/".into()),
        rights: Rights { credentials: None, limits: Limits::default(), umask: 0o077, no_new_privileges: true },
        marker: "TASKQUEUE_RUN_TOKEN=token".into(),
    };
    let limits = Supervision {
        timeout: Some(Duration::from_secs(60)),
        kill_grace: Duration::from_secs(5),
        output_limit_bytes: 64 * 1024,
    };
    let finished = supervise(&spec, DATA.as_bytes(), &limits, &[], None, &mut Silent);
    assert_eq!(finished.ending, Ending::Exited(0));
}

fn command() {
    let handler = CommandHandler {
        argv: vec![PROGRAM.to_owned()],
        source: CommandSource::Configuration,
        cwd: Some("/".into()),
        env: Vec::new(),
        pass_env: Vec::new(),
        confinement: Confinement::default(),
        kill_grace: Duration::from_secs(5),
        output_limit_bytes: 64 * 1024,
    };
    let run = RunContext {
        task_id: 7,
        run_id: 70,
        attempt: 1,
        max_retries: 5,
        class: "mail.send".parse().unwrap(),
        data: DATA.to_owned(),
        token: "4cbb8c6ef0d9a1b2c3d4e5f60718293a".to_owned(),
        planned_on: "2026-08-01T10:00:00Z".to_owned(),
        timeout_secs: 60,
        deadline: "2026-08-01T10:01:00Z".to_owned(),
        trace: Trace::default(),
    };
    assert_eq!(
        handler.run(&ExitRules::default(), &run, &[], None, &mut Printer(&mut |_, _| {})).ending,
        Ending::Exited(0)
    );
}

/// Watches a handler of which there is nothing to be said.
struct Silent;

impl Observer for Silent {
    fn idle(&mut self) -> Control {
        Control::Continue
    }
}
