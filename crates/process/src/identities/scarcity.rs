//! Tests of what happens when descriptors are scarce: nothing that cannot be asked is taken for dead.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::adoption::{Adopting, ProcessOrigin};
use super::cgroup::{end_group_of, own_group};
use super::claimant::{EndAnswer, VARIABLE, ask_to_end};
use super::identity::{Liveness, ProcessIdentity};
use super::signalling::Signal;
use super::survivors::{RecordedHandler, end_coprocesses, end_survivors, runner_marker};
use taskqueue_host::testing::{eventually, run_again_inside};

const GRACE: Duration = Duration::from_secs(5);
const TOKEN_VARIABLE: &str = "TASKQUEUE_RUN_TOKEN";

/// Returns a token of this test's process alone: survivors are looked for among all processes of the machine.
fn own_token() -> String {
    format!("scarce-{}", std::process::id())
}

fn is_inside(name: &str) -> bool {
    run_again_inside(&["env"], &format!("identities::scarcity::{name}"))
}

/// Calls `act` while this process can open so many more files. It must be a process of its own.
pub(super) fn with_room_for<T>(count: usize, act: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - count);
    let answer = act();
    drop(files);
    setrlimit(Resource::Nofile, before).unwrap();
    answer
}

pub(super) fn is_lack<T: std::fmt::Debug>(answer: std::io::Result<T>) -> bool {
    Errno::from_io_error(&answer.unwrap_err()) == Some(Errno::MFILE)
}

/// A process in a session of its own that dies with the test.
struct Sleeper(Child, ProcessIdentity);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(name: &str, value: &str) -> Sleeper {
    let mut command = Command::new("setsid");
    let child = command.args(["sleep", "600"]).env(name, value).stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.spawn().unwrap();
    let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
    let sleeper = Sleeper(child, identity);
    eventually(|| std::fs::read(format!("/proc/{}/cmdline", sleeper.1.pid)).unwrap().starts_with(b"sleep"));
    sleeper
}

#[test]
fn survivors_that_cannot_be_asked_are_not_overlooked() {
    if !is_inside("survivors_that_cannot_be_asked_are_not_overlooked") {
        return;
    }
    let marker = format!("{TOKEN_VARIABLE}={}", own_token());
    let mut sleeper = start(TOKEN_VARIABLE, &own_token());
    for room in 0..2 {
        assert!(is_lack(with_room_for(room, || end_survivors(&marker, None, GRACE))), "room for {room}");
    }
    assert!(sleeper.0.try_wait().unwrap().is_none());
    assert_eq!(end_survivors(&marker, None, GRACE).unwrap(), 1);
}

#[test]
fn coprocesses_that_cannot_be_asked_are_not_overlooked() {
    if !is_inside("coprocesses_that_cannot_be_asked_are_not_overlooked") {
        return;
    }
    let runner = ProcessIdentity::own().unwrap();
    let marker = runner_marker(&runner);
    let (name, value) = marker.split_once('=').unwrap();
    let sleeper = start(name, value);
    let recorded = RecordedHandler { identity: sleeper.1.clone(), has_own_group: true };
    for coprocess in [Some(&recorded), None] {
        assert!(is_lack(with_room_for(0, || end_coprocesses(&runner, coprocess, GRACE))));
    }
    assert_eq!(end_coprocesses(&runner, None, GRACE).unwrap(), 1);
}

#[test]
fn who_cannot_be_examined_is_not_dead() {
    if !is_inside("who_cannot_be_examined_is_not_dead") {
        return;
    }
    let sleeper = start(TOKEN_VARIABLE, &own_token());
    for room in 0..2 {
        assert_eq!(with_room_for(room, || sleeper.1.liveness()), Liveness::Unknown, "room for {room}");
    }
    assert_eq!(sleeper.1.liveness(), Liveness::Alive);
}

/// Its parent has ended, so it is a child of this process, as the orphans of all its handlers are.
#[test]
fn an_orphan_that_cannot_be_examined_is_neither_ended_nor_overlooked() {
    if !is_inside("an_orphan_that_cannot_be_examined_is_neither_ended_nor_overlooked") {
        return;
    }
    let _adopting = Adopting::begin();
    let handler = ProcessIdentity::own().unwrap();
    let script = "setsid sleep 600 >/dev/null 2>&1 &";
    let own = own_token();
    assert!(Command::new("sh").args(["-c", script]).env(TOKEN_VARIABLE, &own).status().unwrap().success());
    let of = |token: &str| {
        let marker = format!("{TOKEN_VARIABLE}={token}").into();
        ProcessOrigin { handler: handler.clone(), marker, no_new_privileges: false }
    };
    eventually(|| of(&own).left_behind().unwrap().len() == 1);
    assert_eq!(of("other").left_behind().unwrap().len(), 0, "it is another handler's");
    for room in 0..2 {
        assert!(is_lack(with_room_for(room, || of(&own).left_behind())), "room for {room}");
    }
    of(&own).left_behind().unwrap()[0].signal(Signal::KILL).unwrap();
    eventually(|| of(&own).left_behind().unwrap().is_empty());
}

#[test]
fn without_descriptors_no_group_counts_as_empty_and_nobody_as_asked() {
    if !is_inside("without_descriptors_no_group_counts_as_empty_and_nobody_as_asked") {
        return;
    }
    assert!(is_lack(with_room_for(0, own_group)));
    let dead = ProcessIdentity { start_ticks: 1, ..ProcessIdentity::own().unwrap() };
    assert_eq!(end_group_of(&dead).unwrap(), 0);
    assert!(is_lack(with_room_for(0, || end_group_of(&dead))));
    let sleeper = start(VARIABLE, "bot");
    let asked = with_room_for(1, || ask_to_end(&sleeper.1, "bot", GRACE));
    assert!(matches!(asked, EndAnswer::Lives(_)), "{asked:?}");
}
