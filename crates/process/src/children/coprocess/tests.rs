#![allow(clippy::unwrap_used)]

use std::os::fd::AsRawFd as _;

use super::*;
use crate::spawning::rights::Rights;

/// A descendant that writes faster than it is read: after each read, the pipes hold the next bytes.
struct Flood {
    writers: [OwnedFd; 2],
    heard: [usize; 2],
}

impl Flood {
    fn into(pipes: &Pipes) -> Self {
        let writer = |pipe: &OwnedFd| {
            let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
            File::options().write(true).open(path).unwrap().into()
        };
        let flood = Self { writers: [writer(&pipes.stdout), writer(&pipes.stderr)], heard: [0; 2] };
        (0..2).for_each(|stream| flood.write(stream));
        flood
    }

    fn write(&self, stream: usize) {
        assert_eq!(write(&self.writers[stream], b"y\n").unwrap(), 2);
    }

    fn hear(&mut self, stream: usize) {
        self.heard[stream] += 1;
        assert!(self.heard[stream] < 10_000, "it is read without an end");
        self.write(stream);
    }
}

impl CoprocessListener for Flood {
    fn stdout(&mut self, _bytes: &[u8]) {
        self.hear(0);
    }
    fn stderr(&mut self, _bytes: &[u8]) {
        self.hear(1);
    }
    fn must_be_killed(&mut self) -> bool {
        false
    }
}

#[test]
fn a_flood_that_outlives_it_does_not_hold_its_runner() {
    let spec = ChildSpec {
        program: "true".into(),
        args: Vec::new(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: None,
        rights: Rights { credentials: None, limits: Limits::default(), umask: 0o077, no_new_privileges: true },
        marker: "TASKQUEUE_RUN_TOKEN=flood".into(),
    };
    let (mut coprocess, inlet) = Coprocess::start(&spec).unwrap();
    let (mut flood, waker) = (Flood::into(&coprocess.pipes), Waker::new().unwrap());
    let until = Moment::after(Duration::from_secs(60));
    loop {
        flood.heard = [0; 2];
        if coprocess.turn(&waker, (true, false), until, &mut flood).has_ended {
            break;
        }
    }
    assert_eq!(flood.heard, [MOST_READS, MOST_READS * MOST_READS], "all that a pipe can hold");
    flood.heard = [0; 2];
    let long = Duration::from_secs(60);
    let plan = EndPlan { closes_input: false, term_after: long, kill_after: long, kill_grace: long, reason: None };
    let end = coprocess.end(Some(inlet), &plan, &mut flood);
    assert_eq!((end.ending, end.unended), (Ending::Exited(0), None));
    assert_eq!(flood.heard, [MOST_READS + 1; 2]);
}
