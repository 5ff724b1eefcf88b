//! Handlers that leave processes behind in every possible way: each must disappear soon and leave no zombie. Each test runs in
//! its own process, because it checks all its children.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::process::{Command, Stdio};

use super::tests::{LONG, Seen, limits, spec};
use super::*;
use taskqueue_host::machine::proc_files::{other_processes, read_stat};
use taskqueue_host::testing::{eventually, run_again_inside};

const MODULE: &str = "children::child::leftover_tests::";
/// Beyond the grace period of the class; the promise is 2 seconds, but this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

fn own_children() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap();
    other_processes().unwrap().filter(|pid| read_stat(*pid).is_ok_and(|stat| stat.parent == own)).collect()
}

fn is_alive(pid: i32) -> bool {
    read_stat(pid).is_ok_and(|stat| !stat.has_ended())
}

/// Python code that leaves itself behind in a new session, by a double fork, without its pipes, and writes its PID to `path`. It
/// executes `before` first.
fn daemon(path: &str, before: &str) -> String {
    format!(
        "import os,signal,sys,time\n\
         if os.fork() == 0:\n\
         \x20 os.setsid()\n\
         \x20 if os.fork(): os._exit(0)\n\
         \x20 {before}\n\
         \x20 for fd in range(4): os.close(fd)\n\
         \x20 f=os.open('{path}.new', os.O_CREAT|os.O_WRONLY); os.write(f, str(os.getpid()).encode()); os.close(f)\n\
         \x20 os.rename('{path}.new', '{path}')\n\
         \x20 while True: time.sleep(600)\n\
         while not os.path.exists('{path}'): time.sleep(0.005)\n"
    )
}

/// Runs the script as a handler and checks what is left of the daemon that it made.
fn check_daemon(name: &str, before: &str, after: &str, timeout_ms: u64, grace_ms: u64) -> Option<Ending> {
    if !run_again_inside(&["env", "TASKQUEUE_RUN_TOKEN="], &format!("{MODULE}{name}")) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon").display().to_string();
    let mut spec = spec("python3", &(daemon(&path, before) + after));
    spec.env.push(("TASKQUEUE_RUN_TOKEN".into(), "this".into()));
    spec.marker = "TASKQUEUE_RUN_TOKEN=this".into();
    let limits = limits(timeout_ms, grace_ms);
    let start = Moment::now();
    let finished = supervise(&spec, b"", &limits, &[], None, &mut Seen::default());
    let until = limits.timeout.unwrap().min(start.elapsed()) + limits.kill_grace + PATIENCE;
    let pid = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert!(!is_alive(pid), "the daemon lives: {finished:?}");
    assert_eq!(own_children(), [0; 0], "zombies");
    assert!(start.elapsed() < until, "{:?}", start.elapsed());
    Some(finished.ending)
}

const IGNORE_TERM: &str = "signal.signal(signal.SIGTERM, signal.SIG_IGN)";
/// The environment in /proc is that of the last exec.
const WITHOUT_ENVIRONMENT: &str = "os.environ.get('AGAIN') or os.execve(sys.executable, [sys.executable, '-c', \
     'import os,signal,time;signal.signal(signal.SIGTERM, signal.SIG_IGN);p=' + repr('@') + ';\
     open(p+\".new\",\"w\").write(str(os.getpid()));os.rename(p+\".new\",p);time.sleep(600)'], {})";

#[test]
fn a_daemon_ends_with_its_handler() {
    let ending = check_daemon("a_daemon_ends_with_its_handler", "pass", "", LONG, 1000);
    assert!(ending.is_none_or(|ending| ending == Ending::Exited(0)));
}

#[test]
fn a_daemon_that_ignores_term_ends_with_its_handler() {
    let name = "a_daemon_that_ignores_term_ends_with_its_handler";
    let ending = check_daemon(name, IGNORE_TERM, "sys.exit(3)", LONG, 300);
    assert!(ending.is_none_or(|ending| ending == Ending::Exited(3)));
}

#[test]
fn a_daemon_ends_with_a_handler_that_times_out_and_both_ignore_term() {
    let name = "a_daemon_ends_with_a_handler_that_times_out_and_both_ignore_term";
    let after = format!("{IGNORE_TERM}\nwhile True: time.sleep(600)");
    let ending = check_daemon(name, IGNORE_TERM, &after, 1500, 500);
    assert!(ending.is_none_or(|ending| ending == Ending::TimedOut));
}

#[test]
fn a_daemon_with_a_cleaned_environment_ends_with_its_handler() {
    let name = "a_daemon_with_a_cleaned_environment_ends_with_its_handler";
    if !run_again_inside(&["env"], &format!("{MODULE}{name}")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon").display().to_string();
    let mut spec = spec("python3", &daemon(&path, &WITHOUT_ENVIRONMENT.replace('@', &path)));
    spec.marker = "TASKQUEUE_RUN_TOKEN=this".into();
    supervise(&spec, b"", &limits(LONG, 200), &[], None, &mut Seen::default());
    let pid = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert!(!is_alive(pid));
    assert_eq!(own_children(), [0; 0]);
}

/// A daemon of a daemon: each is found when its parent has ended.
#[test]
fn a_whole_tree_of_sessions_ends_with_its_handler() {
    let name = "a_whole_tree_of_sessions_ends_with_its_handler";
    if !run_again_inside(&["env"], &format!("{MODULE}{name}")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let script = "f() { if [ $1 -gt 0 ]; then setsid sh -c \"$F; f $(($1 - 1))\" & fi; echo $$; : > $D/$$; trap '' TERM; \
                  while :; do sleep 600; done; }";
    let script = format!(
        "F={}; D={here}; export F D; {script}; f 4 & until [ $(ls $D | wc -l) -ge 5 ]; do sleep 0.05; done; exit 0",
        quoted(script)
    );
    let finished = supervise(&spec("sh", &script), b"", &limits(LONG, 300), &[], None, &mut Seen::default());
    let text = finished.stdout.to_text();
    assert!(text.lines().count() >= 5, "{text}");
    assert!(text.lines().all(|pid| !is_alive(pid.parse().unwrap())), "{text}");
    assert_eq!(own_children(), [0; 0]);
}

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}

#[test]
fn an_orphan_that_ends_while_its_handler_works_is_no_zombie_for_long() {
    let name = "an_orphan_that_ends_while_its_handler_works_is_no_zombie_for_long";
    if !run_again_inside(&["env"], &format!("{MODULE}{name}")) {
        return;
    }
    let script = "setsid sh -c 'sleep 0.1 & echo $! >&3' & until [ -e /proc/1/nothing ]; do sleep 0.1; done";
    struct Waiting(Option<i32>, bool);
    impl Observer for Waiting {
        fn event_line(&mut self, line: &[u8]) -> IsReport {
            self.0 = std::str::from_utf8(line).unwrap().parse().ok();
            IsReport::No
        }
        fn idle(&mut self) -> Control {
            self.1 = self.0.is_some_and(|pid| read_stat(pid).is_err());
            if self.1 { Control::Kill } else { Control::Continue }
        }
    }
    let mut observer = Waiting(None, false);
    supervise(&spec("sh", script), b"", &limits(30_000, 200), &[], None, &mut observer);
    assert!(observer.1, "it was reaped before the handler ended");
}

/// A program that embeds the library starts its own children, before a handler runs and meanwhile.
#[test]
fn children_of_the_program_itself_are_left_alone() {
    let name = "children_of_the_program_itself_are_left_alone";
    if !run_again_inside(&["env"], &format!("{MODULE}{name}")) {
        return;
    }
    let sleeper = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("TASKQUEUE_RUN_TOKEN", "other").stdout(Stdio::null()).spawn().unwrap()
    };
    struct Starting<'a>(&'a dyn Fn(&str, &[&str]) -> std::process::Child, Vec<std::process::Child>);
    impl Observer for Starting<'_> {
        fn started(&mut self, _handler: &crate::identities::identity::ProcessIdentity) {
            self.1.push((self.0)("sleep", &["600"]));
            // In its own session, and without the privileges that a handler has given up.
            self.1.push((self.0)("setsid", &["sleep", "600"]));
            self.1.push((self.0)("true", &[]));
        }
        fn idle(&mut self) -> Control {
            Control::Continue
        }
    }
    let mut earlier = sleeper("sleep", &["600"]);
    let mut observer = Starting(&sleeper, Vec::new());
    let script = "setsid sleep 600 >/dev/null 2>&1 3>&- & sleep 0.3";
    let finished = supervise(&spec("sh", script), b"", &limits(LONG, 300), &[], None, &mut observer);
    assert_eq!(finished.ending, Ending::Exited(0));
    let mut expected: Vec<i32> = observer.1.iter().map(|child| child.id().try_into().unwrap()).collect();
    expected.push(earlier.id().try_into().unwrap());
    let mut found = own_children();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(observer.1.pop().unwrap().wait().unwrap().success(), "its end was left for the program to learn");
    for child in observer.1.iter_mut().chain([&mut earlier]) {
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Two runs in one process: neither touches processes of the other.
#[test]
fn what_belongs_to_another_run_of_the_same_process_is_left_to_it() {
    let name = "what_belongs_to_another_run_of_the_same_process_is_left_to_it";
    if !run_again_inside(&["env"], &format!("{MODULE}{name}")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let run = |token: &str, after: &str| {
        let mut spec = spec("python3", &(daemon(&path(token), "pass") + after));
        spec.env.push(("TASKQUEUE_RUN_TOKEN".into(), token.into()));
        spec.marker = format!("TASKQUEUE_RUN_TOKEN={token}").into();
        std::thread::spawn(move || supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default()).ending)
    };
    let pid = |token: &str| std::fs::read_to_string(path(token)).ok().and_then(|pid| pid.parse::<i32>().ok());
    let go = path("go");
    // The second handler is the younger one, so its orphan is not older than the first handler.
    let first = run("first", &format!("while not os.path.exists('{go}'): time.sleep(0.01)"));
    eventually(|| pid("first").is_some());
    let second = run("second", &format!("while not os.path.exists('{go}2'): time.sleep(0.01)"));
    eventually(|| pid("second").is_some());
    std::fs::write(&go, "").unwrap();
    assert_eq!(first.join().unwrap(), Ending::Exited(0));
    assert!(!is_alive(pid("first").unwrap()));
    assert!(is_alive(pid("second").unwrap()));
    std::fs::write(format!("{go}2"), "").unwrap();
    assert_eq!(second.join().unwrap(), Ending::Exited(0));
    assert!(!is_alive(pid("second").unwrap()));
    assert_eq!(own_children(), [0; 0]);
}
