//! The bare spawn loop: three pipes for each child, as a queue needs them that hands over data and keeps what is printed.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use taskqueue_bench::by_threads;

/// So many children in so many slots, each a thread that waits for one child after the other.
pub(crate) fn run(children: usize, slots: usize, program: &str) {
    by_threads(children, slots, || (), |()| one(program));
}

fn one(program: &str) {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that does not read may be gone by now.
    let _ = child.stdin.take().expect("a pipe").write_all(b"{}");
    let mut kept = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut kept).expect("its output");
    child.stderr.take().expect("a pipe").read_to_end(&mut kept).expect("its errors");
    assert!(child.wait().expect("its end").success());
}
