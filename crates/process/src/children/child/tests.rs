#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::*;
use crate::children::event_socket::send_event;
use crate::identities::identity::ProcessIdentity;
use crate::spawning::rights::Rights;
use taskqueue_domain::limits::confinement::Limits;
use taskqueue_host::testing::{eventually, run_again_inside};

/// Records the calls; every event line except `quiet` counts as a report.
#[derive(Default)]
pub(super) struct Seen {
    handler: Option<ProcessIdentity>,
    output: u64,
    lines: Vec<String>,
    idles: u32,
    stop_after: Option<u32>,
}

impl Observer for Seen {
    fn started(&mut self, handler: &ProcessIdentity) {
        self.handler = Some(handler.clone());
    }
    fn output(&mut self, _stream: Stream, bytes: &[u8]) {
        self.output += u64::try_from(bytes.len()).unwrap();
    }
    fn event_line(&mut self, line: &[u8]) -> IsReport {
        self.lines.push(String::from_utf8_lossy(line).into_owned());
        if line == b"quiet" { IsReport::No } else { IsReport::Yes }
    }
    fn idle(&mut self) -> Control {
        self.idles += 1;
        if self.stop_after.is_some_and(|idles| self.idles >= idles) { Control::Kill } else { Control::Continue }
    }
}

pub(super) fn spec(program: &str, script: &str) -> ChildSpec {
    ChildSpec {
        program: program.into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: None,
        rights: rights(Limits::default()),
        marker: "".into(),
    }
}

pub(super) fn rights(limits: Limits) -> Rights {
    Rights { credentials: None, limits, umask: 0o077, no_new_privileges: true }
}

pub(super) fn limits(timeout_ms: u64, grace_ms: u64) -> Supervision {
    Supervision {
        timeout: Some(Duration::from_millis(timeout_ms)),
        kill_grace: Duration::from_millis(grace_ms),
        output_limit_bytes: 1000,
    }
}

pub(super) const LONG: u64 = 60_000;

fn run_with(program: &str, script: &str, stdin: &[u8], limits: &Supervision) -> (Finished, Seen) {
    let mut seen = Seen::default();
    let finished = supervise(&spec(program, script), stdin, limits, &[], None, &mut seen);
    (finished, seen)
}

fn sh(script: &str) -> (Finished, Seen) {
    run_with("sh", script, b"", &limits(LONG, 1000))
}

fn is_gone(pid: &str) -> bool {
    ProcessIdentity::of_pid(pid.trim().parse().unwrap())
        .unwrap()
        .is_none_or(|identity| identity.liveness() == crate::identities::identity::Liveness::Dead)
}

#[test]
fn input_output_events_and_exit_code_pass_through() {
    let (finished, seen) =
        run_with("sh", "cat; echo oops >&2; echo one >&3; printf two >&3; exit 7", b"{\"a\":1}", &limits(LONG, 1000));
    assert_eq!(finished.ending, Ending::Exited(7));
    assert_eq!(finished.stdout.to_text(), "{\"a\":1}");
    assert_eq!(finished.stderr.to_text(), "oops\n");
    assert_eq!(seen.lines, ["one", "two"]);
    assert_eq!(seen.output, 12);
}

#[test]
fn a_handler_has_five_descriptors_default_signals_and_its_environment() {
    // A descriptor without close-on-exec, as some database clients leave theirs.
    let leaky = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 20).unwrap();
    rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
    let script = "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))\n\
                  s=dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)\n\
                  print(s['SigBlk'],hex(int(s['SigIgn'],16)&~(3<<31)))\nprint(os.getpgid(0)==os.getpid(), sorted(os.environ))";
    // Python itself ignores SIGPIPE (bit 12) and SIGXFSZ (bit 24).
    let (finished, _) = run_with("python3", script, b"", &limits(LONG, 1000));
    let text = finished.stdout.to_text();
    let lines = text.lines().collect::<Vec<_>>();
    assert_eq!(lines[0], "[0, 1, 2, 3, 4]", "{}", finished.stderr.to_text());
    assert_eq!(lines[1], "0000000000000000 0x1001000");
    assert!(lines[2].starts_with("True ["), "{text}");
    assert!(!text.contains("CARGO") && !text.contains("HOME"));
    drop(leaky);
    let (finished, _) = sh("grep -E 'Sig(Blk|Ign)' /proc/self/status");
    assert_eq!(masks(&finished), [0, 0]);
}

/// Returns the masks in lines as of /proc/PID/status, without signals 32 and 33: those belong to the C library, which does not
/// allow resetting them.
fn masks(finished: &Finished) -> Vec<u64> {
    let text = finished.stdout.to_text();
    let masks = text.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap());
    masks.map(|mask| mask & !(3 << 31)).collect()
}

/// As in a container that a process entered from outside: the session and the group of this process have no number inside it.
#[test]
fn a_group_is_ended_when_the_session_leader_is_outside_our_pid_namespace() {
    let name = "children::child::tests::a_group_is_ended_when_the_session_leader_is_outside_our_pid_namespace";
    if !run_again_inside(&["unshare", "-pf", "--mount-proc", "--kill-child"], name) {
        return;
    }
    let (finished, _) = sh("trap '' TERM; sleep 600 & echo $!");
    assert!(is_gone(&finished.stdout.to_text()));
}

/// As if started by nohup in the background of a shell that blocks and ignores all it can, including SIGCHLD.
#[test]
fn an_ending_is_known_even_when_our_parent_ignored_and_blocked_signals() {
    let name = "children::child::tests::an_ending_is_known_even_when_our_parent_ignored_and_blocked_signals";
    let launcher = "import os,signal,sys\nfor s in (1,2,3,13,17): signal.signal(s, signal.SIG_IGN)\n\
                    signal.pthread_sigmask(signal.SIG_BLOCK,[10,12,15])\nos.execvp(sys.argv[1], sys.argv[1:])";
    if !run_again_inside(&["python3", "-c", launcher], name) {
        return;
    }
    let (finished, _) = sh("grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 5");
    assert_eq!(finished.ending, Ending::Exited(5));
    assert_eq!(masks(&finished), [0, 0]);
}

#[test]
fn a_handler_that_never_reads_its_input_still_ends() {
    let data = vec![b'x'; 5_000_000];
    let (finished, _) = run_with("sh", "exit 0", &data, &limits(LONG, 1000));
    assert_eq!(finished.ending, Ending::Exited(0));
    let (finished, _) = run_with("sh", "exec <&-; echo closed; sleep 0.2", &data, &limits(LONG, 1000));
    assert_eq!((finished.ending, finished.stdout.to_text()), (Ending::Exited(0), "closed\n".to_owned()));
}

#[test]
fn a_large_input_is_read_whole() {
    let data = vec![b'x'; 5_000_000];
    let (finished, _) = run_with("sh", "wc -c", &data, &limits(LONG, 1000));
    assert_eq!(finished.stdout.to_text().trim(), "5000000");
}

#[test]
fn a_handler_that_prints_a_gigabyte_is_counted_and_cut() {
    let (finished, seen) = sh("echo first; head -c 1000000000 /dev/zero; echo last");
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!((finished.stdout.total_bytes, seen.output), (1_000_000_011, 1_000_000_011));
    let text = finished.stdout.to_text();
    assert!(text.starts_with("first\n\u{2400}") && text.ends_with("\u{2400}last\n"));
    assert!(finished.stdout.is_lossy() && finished.stdout.left_out_bytes() == 1_000_000_011 - 1000);
}

#[test]
fn endless_bytes_without_a_newline_on_descriptor_three_are_dropped() {
    let (finished, seen) = sh("head -c 20000000 /dev/zero >&3; echo >&3; echo after >&3");
    assert_eq!((finished.ending, seen.lines), (Ending::Exited(0), vec![String::new(), "after".to_owned()]));
}

#[test]
fn a_handler_that_closes_its_descriptors_is_waited_for() {
    let (finished, seen) = sh("exec <&- >&- 2>&- 3>&-; sleep 1; exit 3");
    assert_eq!(finished.ending, Ending::Exited(3));
    assert!(seen.idles >= 1);
}

#[test]
fn a_silent_handler_times_out_and_its_whole_group_is_ended() {
    let (finished, seen) = run_with("sh", "sleep 600 & echo $!; wait", b"", &limits(300, 5000));
    assert_eq!(finished.ending, Ending::TimedOut);
    assert!(is_gone(&finished.stdout.to_text()));
    assert!(is_gone(&seen.handler.unwrap().pid.to_string()));
}

#[test]
fn a_handler_that_ignores_term_is_killed() {
    let start = Moment::now();
    let (finished, _) = run_with("sh", "trap '' TERM; while :; do sleep 600; done", b"", &limits(100, 200));
    assert_eq!(finished.ending, Ending::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_stopped_handler_sees_the_term_and_may_clean_up() {
    let script = "trap 'echo cleaned; exit 0' TERM; kill -STOP $$; sleep 600";
    let (finished, _) = run_with("sh", script, b"", &limits(300, 20_000));
    assert_eq!((finished.ending, finished.stdout.to_text()), (Ending::TimedOut, "cleaned\n".to_owned()));
}

#[test]
fn reports_restart_the_timeout_and_other_lines_do_not() {
    let script = "for i in 1 2 3 4 5 6; do sleep 0.25; echo $i >&3; done";
    let (finished, seen) = run_with("sh", script, b"", &limits(1000, 1000));
    assert_eq!((finished.ending, seen.lines.len()), (Ending::Exited(0), 6));
    let (finished, _) = run_with("sh", &script.replace("echo $i", "echo quiet"), b"", &limits(1000, 1000));
    assert_eq!(finished.ending, Ending::TimedOut);
}

#[test]
fn a_handler_ended_by_a_signal_says_which() {
    assert_eq!(sh("kill -SEGV $$").0.ending, Ending::Signalled(11));
    assert_eq!(sh("kill -TERM $$").0.ending, Ending::Signalled(15));
}

#[test]
fn the_observer_and_the_stop_descriptor_end_a_handler() {
    let mut seen = Seen { stop_after: Some(1), ..Seen::default() };
    let finished = supervise(&spec("sh", "sleep 600"), b"", &limits(LONG, 1000), &[], None, &mut seen);
    assert_eq!(finished.ending, Ending::Stopped);
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"x").unwrap();
    let spec = spec("sh", "trap '' TERM; sleep 600");
    let finished = supervise(&spec, b"", &limits(LONG, 100), &[reader.as_fd()], None, &mut Seen::default());
    assert_eq!(finished.ending, Ending::Stopped);
}

#[test]
fn background_processes_end_with_their_handler() {
    let (finished, _) = sh("sleep 600 & echo $!; sleep 600 >/dev/null 2>&1 3>&- & echo $!");
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(finished.stdout.to_text().lines().all(is_gone));
    let start = Moment::now();
    let (finished, _) = sh("sh -c \"trap '' TERM; echo ready; while :; do sleep 600; done\" & echo $!; sleep 0.2");
    assert_eq!(finished.ending, Ending::Exited(0));
    let text = finished.stdout.to_text();
    assert!(is_gone(text.lines().find(|line| *line != "ready").unwrap()), "{text}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_handler_can_neither_leave_its_group_nor_enter_ours() {
    let script = "import os\nfor group in (0, os.getpgid(os.getppid())):\n  try: os.setpgid(0, group); print('moved')\n\
                  \x20 except PermissionError: print('refused')\nprint(os.getsid(0)==os.getpgid(0)==os.getpid())";
    let (finished, _) = run_with("python3", script, b"", &limits(LONG, 1000));
    assert_eq!(finished.stdout.to_text(), "refused\nrefused\nTrue\n", "{}", finished.stderr.to_text());
}

#[test]
fn a_handler_dies_with_the_thread_that_watches_it() {
    let name = "children::child::tests::a_handler_dies_with_the_thread_that_watches_it";
    if !run_again_inside(&["env"], name) {
        return;
    }
    struct Vanish(std::sync::mpsc::Sender<ProcessIdentity>);
    impl Observer for Vanish {
        fn started(&mut self, handler: &ProcessIdentity) {
            self.0.send(handler.clone()).unwrap();
            // The runner's thread ends without clean-up.
            std::panic::resume_unwind(Box::new(()));
        }
        fn idle(&mut self) -> Control {
            Control::Continue
        }
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let sleeper = ChildSpec { args: vec!["600".into()], ..spec("sleep", "") };
        supervise(&sleeper, b"", &limits(LONG, 1000), &[], None, &mut Vanish(sender));
    });
    let identity = receiver.recv().unwrap();
    assert!(thread.join().is_err());
    eventually(|| identity.liveness() == crate::identities::identity::Liveness::Dead);
}

#[test]
fn messages_from_the_socket_reach_the_observer_and_forged_ones_do_not() {
    struct Answering<'a>(Seen, &'a EventSocket);
    impl Observer for Answering<'_> {
        fn started(&mut self, handler: &ProcessIdentity) {
            self.0.started(handler);
            send_event(self.1.name(), "wrong", b"forged").unwrap();
            send_event(self.1.name(), "token", b"genuine").unwrap();
        }
        fn output(&mut self, stream: Stream, bytes: &[u8]) {
            self.0.output(stream, bytes);
        }
        fn event_line(&mut self, line: &[u8]) -> IsReport {
            self.0.event_line(line)
        }
        fn idle(&mut self) -> Control {
            self.0.idle()
        }
    }
    let socket = EventSocket::bind(None).unwrap();
    let mut observer = Answering(Seen::default(), &socket);
    let limits = limits(LONG, 1000);
    supervise(&spec("sh", "exit 0"), b"", &limits, &[], Some((&socket, "token")), &mut observer);
    assert_eq!(observer.0.lines, ["genuine"]);
}

#[test]
fn what_could_not_start_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("plain"), "#!/bin/sh\n").unwrap();
    std::fs::write(path("broken"), "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path("broken"), executable).unwrap();
    let why = |program: PathBuf, cwd: Option<PathBuf>| {
        let spec = ChildSpec { program, cwd, ..spec("", "") };
        match supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default()).ending {
            Ending::CouldNotStart(why) => why,
            other => format!("{other:?}"),
        }
    };
    assert_eq!(why("/no/such".into(), None), "could not start /no/such: no such file");
    assert!(why("no-such-program".into(), None).ends_with("no such program in PATH"));
    assert!(why(path("plain"), None).ends_with("it is not executable (chmod +x)"));
    assert!(why(path("broken"), None).contains("interpreter"));
    assert!(why("/".into(), None).ends_with("it is a directory"));
    let missing = path("missing");
    let text = why("sh".into(), Some(missing.clone()));
    assert_eq!(text, format!("could not start sh: the working directory {} does not exist", missing.display()));
    let spec = ChildSpec { args: vec!["x".repeat(300_000).into()], ..spec("true", "") };
    let finished = supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default());
    assert!(matches!(finished.ending, Ending::CouldNotStart(why) if why.contains("too long")));
}

/// The descriptor numbers of the handler are free in this process, so its ends of the pipes get them.
#[test]
fn a_handler_gets_its_descriptors_when_their_numbers_are_free_in_us() {
    let name = "children::child::tests::a_handler_gets_its_descriptors_when_their_numbers_are_free_in_us";
    let launcher = ["sh", "-c", "exec \"$@\" <&- 3<&- 4<&- 5<&-", "sh"];
    if !run_again_inside(&launcher, name) {
        return;
    }
    let free = std::fs::File::open("/dev/null").unwrap();
    assert!(free.as_fd().as_raw_fd() <= 3, "{free:?}");
    drop(free);
    let (finished, seen) = run_with("sh", "cat; echo err >&2; echo event >&3", b"data", &limits(LONG, 1000));
    assert_eq!((finished.stdout.to_text().as_str(), finished.stderr.to_text().as_str()), ("data", "err\n"));
    assert_eq!((finished.ending, seen.lines), (Ending::Exited(0), vec!["event".to_owned()]));
}

#[test]
fn a_script_without_shebang_runs_by_the_shell_and_all_of_path_is_searched() {
    let directory = tempfile::tempdir().unwrap();
    let folder = |name: &str, mode: u32| {
        let folder = directory.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let script = folder.join("script");
        std::fs::write(&script, "echo \"$0 $1\"\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        folder.display().to_string()
    };
    let (closed, open) = (folder("closed", 0o644), folder("open", 0o755));
    let run = |program: &str, path: &str| {
        let spec = ChildSpec { args: vec!["one".into()], env: vec![("PATH".into(), path.into())], ..spec(program, "") };
        let finished = supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default());
        (finished.ending, finished.stdout.to_text())
    };
    let ran = (Ending::Exited(0), format!("{open}/script one\n"));
    assert_eq!(run(&format!("{open}/script"), "/nowhere"), ran);
    assert_eq!(run("script", &format!("/nowhere:{closed}:{open}")), ran);
    let (ending, _) = run("script", &format!("{closed}:/nowhere"));
    assert!(
        matches!(&ending, Ending::CouldNotStart(why) if why.ends_with("no permission to execute it")),
        "{ending:?}"
    );
}

#[test]
fn the_usage_of_a_handler_includes_children_that_it_waited_for() {
    let burn = "import time\nblock=b'x'*150_000_000\nwhile time.process_time()<0.3: pass";
    let (finished, _) = sh(&format!("python3 -c \"{burn}\"; exit 3"));
    assert_eq!(finished.ending, Ending::Exited(3));
    let usage = finished.usage.unwrap();
    assert!(usage.cpu_msecs >= 300, "{usage:?}");
    assert!(usage.peak_memory_bytes.is_some_and(|bytes| bytes >= 150_000_000), "{usage:?}");
}

#[test]
fn the_memory_of_its_runner_does_not_count_as_that_of_a_handler() {
    // More than the shell uses; the peak stays when it is freed.
    let block = std::hint::black_box(vec![1_u8; 60_000_000]);
    assert_eq!(sh("true").0.usage.unwrap().peak_memory_bytes, None);
    drop(block);
    assert_eq!(sh("true").0.usage.unwrap().peak_memory_bytes, None);
}
