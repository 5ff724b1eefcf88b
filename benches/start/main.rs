//! What a start costs beside one of /bin/true: the program that says its version, and one that queues a task on SQLite.
//! docs/performance.md has the figures. `-- PROGRAM…` measures these programs in place of the one just built.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;

fn main() {
    let named = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let mut programs: Vec<String> = named.collect();
    if programs.is_empty() {
        programs.push(env!("CARGO_BIN_EXE_taskqueue").to_owned());
    }
    let home = tempfile::tempdir().unwrap();
    let mut ways = vec![Way::new("/bin/true", &[])];
    for program in &programs {
        let queue = ["queue", "none", "1", "--any-class"];
        ways.extend([Way::new(program, &["--version"]), Way::new(program, &["status"]), Way::new(program, &queue)]);
    }
    // A store must be there, and the files in memory.
    ways.iter().rev().for_each(|way| assert!(way.start(home.path()) > Duration::ZERO));
    // In turns, so that whatever else the machine does slows all.
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.times.push(way.start(home.path()));
        }
    }
    println!("{ROUNDS} starts each, until the end is known; the median, and times that of /bin/true");
    let bare = ways[0].median();
    for way in &mut ways {
        let median = way.median();
        println!("{:>8.0} µs  {:>5.2}  {}", median * 1e6, median / bare, way.name);
    }
}

struct Way {
    name: String,
    program: String,
    args: Vec<String>,
    times: Vec<Duration>,
}

impl Way {
    fn new(program: &str, args: &[&str]) -> Self {
        let name = [&[program], args].concat().join(" ");
        Self {
            name,
            program: program.to_owned(),
            args: args.iter().map(ToString::to_string).collect(),
            times: Vec::new(),
        }
    }

    fn start(&self, home: &Path) -> Duration {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().env("HOME", home).stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let status = command.status().unwrap();
        let time = start.elapsed();
        assert!(status.success(), "{}: {status}", self.name);
        time
    }

    /// In seconds.
    fn median(&mut self) -> f64 {
        self.times.sort_unstable();
        self.times[self.times.len() / 2].as_secs_f64()
    }
}
