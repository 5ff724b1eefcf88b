//! What an exec gate would cost: the handler started through this very program, which waits on a pipe until its identity
//! is saved and only then executes the handler, against a handler that is started at once. docs/performance.md has the
//! figures and what was decided by them.
//!
//! This program links no database client, so that its gate is the cheapest there can be.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const GATE: &str = "__gate";
const HANDLER: &str = "/bin/true";
const ROUNDS: usize = 2_000;

fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == GATE) {
        let mut released = [0_u8; 1];
        // The runner died: nobody would know the handler.
        if std::io::stdin().read_exact(&mut released).is_err() {
            return;
        }
        panic!("{}", Command::new(HANDLER).exec());
    }
    let own = std::env::current_exe().unwrap();
    let bare = || Command::new(HANDLER);
    let gated = || {
        let mut command = Command::new(&own);
        command.arg(GATE);
        command
    };
    let ways: [(&str, &dyn Fn() -> Command); 2] = [("a bare spawn", &bare), ("a spawn through a gate", &gated)];
    // In turns, so that whatever else the machine does slows both.
    let mut times = ways.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, command), times) in ways.iter().zip(&mut times) {
            times.push(time(command()));
        }
    }
    let bare_median = median(&mut times[0]);
    println!("{ROUNDS} starts of {HANDLER} each, until its end is known; the median");
    for ((name, _), times) in ways.iter().zip(&mut times) {
        let median = median(times);
        let more = 100.0 * (median.as_secs_f64() / bare_median.as_secs_f64() - 1.0);
        println!("{name:24} {:>8.0} µs   {more:+.0} %", median.as_secs_f64() * 1e6);
    }
}

fn time(mut command: Command) -> Duration {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // Both get the byte: it costs the same whoever reads it.
    let _ = child.stdin.take().unwrap().write_all(b"x");
    child.wait().unwrap();
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
