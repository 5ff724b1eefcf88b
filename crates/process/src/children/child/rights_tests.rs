//! The rights and limits of a handler, tested from inside it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::tests::{LONG, Seen, limits, rights, spec};
use super::*;
use crate::spawning::rights::Rights;
use taskqueue_domain::limits::confinement::Limits;
use taskqueue_host::machine::account::{is_root, run_as};

fn run(script: &str, rights: Rights) -> Finished {
    let spec = ChildSpec { rights, ..spec("sh", script) };
    supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default())
}

fn why(finished: &Finished) -> &str {
    match &finished.ending {
        Ending::Killed { why, .. } | Ending::CouldNotStart(why) | Ending::Misconfigured(why) => why,
        _ => "",
    }
}

#[test]
fn every_limit_is_soft_and_hard_in_the_handler_and_core_dumps_are_off() {
    let all = Limits {
        cpu_secs: Some(77),
        memory_bytes: Some(512 << 20),
        open_files: Some(40),
        processes: Some(5000),
        file_size_bytes: Some(8192),
    };
    let finished = run("tr -s ' ' </proc/self/limits; umask", rights(all));
    let text = finished.stdout.to_text();
    let line = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Max cpu time"), ["77", "82"]);
    assert_eq!(line("Max address space"), ["536870912", "536870912"]);
    assert_eq!(line("Max open files"), ["40", "40"]);
    assert_eq!(line("Max processes"), ["5000", "5000"]);
    assert_eq!(line("Max file size"), ["8192", "8192"]);
    assert_eq!(line("Max core file size"), ["1", "1"]);
    assert!(text.ends_with("0077\n"), "{text}");
    let text = run("tr -s ' ' </proc/self/limits", rights(Limits::default())).stdout.to_text();
    assert!(text.lines().any(|line| line.split_whitespace().eq("Max core file size 1 1 bytes".split(' '))), "{text}");
}

#[test]
fn a_handler_that_computes_for_too_long_is_ended_with_a_clear_reason() {
    let limits = Limits { cpu_secs: Some(1), ..Limits::default() };
    let finished = run("while :; do :; done", rights(limits));
    assert_eq!(why(&finished), "over its limit of 1 seconds of processor time");
    assert!(matches!(finished.ending, Ending::Killed { signal: 24, .. }), "{finished:?}");
    // If the signal is ignored, a KILL follows, which the runner did not send either.
    let finished = run("trap '' XCPU; while :; do :; done", rights(limits));
    assert!(matches!(finished.ending, Ending::Killed { signal: 9, .. }), "{finished:?}");
    assert_eq!(why(&finished), "over its limit of 1 seconds of processor time");
}

#[test]
fn a_handler_that_writes_too_large_a_file_is_ended_with_a_clear_reason() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { file_size_bytes: Some(5000), ..Limits::default() };
    let script = format!("exec dd if=/dev/zero of={}/file bs=1000 count=10", directory.path().display());
    let finished = run(&script, rights(limits));
    assert_eq!(why(&finished), "over its limit of 5000 bytes for a file", "{finished:?}");
    let finished = run("head -c 100000 /dev/zero", rights(limits));
    assert_eq!((finished.ending, finished.stdout.total_bytes), (Ending::Exited(0), 100_000), "a pipe is no file");
}

#[test]
fn memory_descriptors_and_processes_run_out_for_the_handler_alone() {
    let limits = Limits { memory_bytes: Some(256 << 20), open_files: Some(20), ..Limits::default() };
    let script = "python3 -c 'bytearray(1 << 30)' 2>&1 | tail -n 1; \
                  python3 -c 'a=[open(\"/dev/null\") for _ in range(30)]' 2>&1 | tail -n 1";
    let text = run(script, rights(limits)).stdout.to_text();
    assert!(text.starts_with("MemoryError\nOSError: [Errno 24]"), "{text}");
}

#[test]
fn a_handler_has_a_raised_oom_score_and_by_default_no_new_privileges() {
    let ours: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    let script = "cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status";
    let text = run(script, rights(Limits::default())).stdout.to_text();
    assert_eq!(text, format!("{}\nNoNewPrivs:\t1\n", (ours + 500).min(1000)));
    let text = run(script, Rights { no_new_privileges: false, ..rights(Limits::default()) }).stdout.to_text();
    assert!(text.ends_with("NoNewPrivs:\t0\n"), "{text}");
}

#[test]
fn a_kill_that_we_did_not_send_may_have_been_the_kernels() {
    let finished = run("kill -KILL $$", rights(Limits::default()));
    assert!(why(&finished).starts_with("killed by signal 9, which taskqueue did not send; perhaps"), "{finished:?}");
}

fn nobody() -> Option<Rights> {
    let credentials = if is_root() { run_as(Some("nobody")).unwrap().credentials } else { None };
    credentials.map(|user| Rights { credentials: Some(user), ..rights(Limits::default()) })
}

#[test]
fn a_handler_becomes_its_user_with_all_ids_and_groups_and_cannot_go_back() {
    let Some(rights) = nobody() else { return };
    let user = rights.credentials.clone().unwrap();
    let script = "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm):' /proc/self/status; echo on >/dev/stdout; echo it >/dev/stderr; \
                  echo '{}' >/dev/fd/3; echo $PPID";
    let finished = run(script, rights);
    let text = finished.stdout.to_text();
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<u32>>()
    };
    assert_eq!(line("Uid:"), [user.uid; 4]);
    assert_eq!(line("Gid:"), [user.gid; 4]);
    let (mut found, mut expected) = (line("Groups:"), user.groups);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!((found, line("CapEff:"), line("CapPrm:")), (expected, vec![0], vec![0]));
    assert!(text.contains("\non\n"), "its own pipes can be opened by it: {text} {}", finished.stderr.to_text());
    assert_eq!(finished.stderr.to_text(), "it\n");
}

/// With shared memory, the kernel would also take from this process what it takes from a process that becomes another user.
#[test]
fn a_handler_of_another_user_never_has_our_memory() {
    let Some(rights) = nobody() else { return };
    let before = rustix::process::dumpable_behavior().unwrap();
    assert_eq!(run("exit 3", rights).ending, Ending::Exited(3));
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), before);
    assert_eq!(before, rustix::process::DumpableBehavior::Dumpable);
}

#[test]
fn the_death_of_the_runner_is_the_death_of_a_handler_of_another_user() {
    let Some(rights) = nobody() else { return };
    let script =
        "import ctypes\nsignal=ctypes.c_int()\nctypes.CDLL(None).prctl(2, ctypes.byref(signal))\nprint(signal.value)";
    let spec = ChildSpec { rights, ..spec("python3", script) };
    let finished = supervise(&spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default());
    assert_eq!(finished.stdout.to_text(), "9\n", "the change of user would have cleared it");
}

#[test]
fn signals_reach_a_handler_of_another_user_and_all_that_it_leaves_behind() {
    let Some(rights) = nobody() else { return };
    let script =
        "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$; exec sleep 600\" & while :; do sleep 600; done";
    let spec = ChildSpec { rights, ..spec("sh", script) };
    let finished = supervise(&spec, b"", &limits(500, 300), &[], None, &mut Seen::default());
    assert_eq!(finished.ending, Ending::TimedOut);
    let left = finished.stdout.to_text().trim().parse().unwrap();
    assert!(taskqueue_host::machine::proc_files::read_stat(left).is_err());
}

#[test]
fn directory_and_program_are_looked_at_with_the_rights_of_the_user() {
    let Some(rights) = nobody() else { return };
    let directory = tempfile::tempdir().unwrap();
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(directory.path(), 0o755);
    mode(&closed, 0o700);
    let ending =
        |spec: &ChildSpec| (supervise(spec, b"", &limits(LONG, 1000), &[], None, &mut Seen::default()), rehearse(spec));
    let inside = ChildSpec { cwd: Some(closed.clone()), rights: rights.clone(), ..spec("/bin/sh", "pwd") };
    let (finished, rehearsed) = ending(&inside);
    assert_eq!(
        why(&finished),
        format!("could not start /bin/sh: the working directory {} may not be entered by its user", closed.display())
    );
    assert_eq!(rehearsed, Err(finished.ending));
    let program = closed.join("program");
    std::fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    mode(&program, 0o755);
    let hidden = ChildSpec { program: program.clone(), args: Vec::new(), ..ChildSpec { rights, ..spec("", "") } };
    let (finished, rehearsed) = ending(&hidden);
    assert_eq!(why(&finished), format!("could not start {}: no permission to execute it", program.display()));
    assert_eq!(rehearsed, Err(finished.ending));
    mode(&closed, 0o755);
    assert_eq!(rehearse(&hidden), Ok(()));
    assert_eq!(rehearse(&ChildSpec { rights: super::tests::rights(Limits::default()), ..hidden }), Ok(()));
}
