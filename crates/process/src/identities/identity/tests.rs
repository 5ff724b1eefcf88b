#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use taskqueue_host::testing::{eventually, run_again_inside};

fn of_child(child: &std::process::Child) -> ProcessIdentity {
    ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap()
}

#[test]
fn our_own_identity_is_alive_and_survives_its_text() {
    let own = ProcessIdentity::own().unwrap();
    assert_eq!(own.liveness(), Liveness::Alive);
    assert_eq!(own.to_string().parse(), Ok(own));
}

#[test]
fn a_killed_process_is_dead_as_a_zombie_and_after() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let identity = of_child(&child);
    assert_eq!(identity.liveness(), Liveness::Alive);
    child.kill().unwrap();
    eventually(|| identity.liveness() == Liveness::Dead);
    assert!(ProcessIdentity::of_pid(identity.pid).unwrap().is_some(), "still a zombie");
    child.wait().unwrap();
    assert_eq!(identity.liveness(), Liveness::Dead);
}

#[test]
fn a_process_whose_main_thread_ended_is_still_alive() {
    let script = "import threading,ctypes,time\nthreading.Thread(target=time.sleep,args=(600,)).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let mut child = Command::new("python3").args(["-c", script]).stderr(Stdio::null()).spawn().unwrap();
    let identity = of_child(&child);
    eventually(|| read_stat(identity.pid).unwrap().state == b'Z');
    assert_eq!(identity.liveness(), Liveness::Alive);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn other_ticks_are_dead_and_another_view_is_unknown() {
    let own = ProcessIdentity::own().unwrap();
    let later = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own.clone() };
    assert_eq!(later.liveness(), Liveness::Dead);
    let container = ProcessIdentity { pid_namespace: own.pid_namespace + 1, ..own.clone() };
    assert_eq!(container.liveness(), Liveness::Unknown);
    let forged = ProcessIdentity { pid: -7, ..own.clone() };
    assert_eq!(forged.liveness(), Liveness::Unknown);
    let rebooted = ProcessIdentity { boot_id: "0".repeat(36), ..own };
    assert_eq!(rebooted.liveness(), Liveness::Unknown);
}

#[test]
fn a_thread_number_is_not_a_process() {
    let own = ProcessIdentity::own().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        sender.send(rustix::thread::gettid().as_raw_pid()).unwrap();
        let _ = stopped.recv();
    });
    let thread = ProcessIdentity { pid: receiver.recv().unwrap(), ..own };
    assert_eq!(thread.liveness(), Liveness::Dead);
    drop(stop);
}

#[test]
fn only_the_exact_text_is_read() {
    let boot = "0f1e2d3c-0000-4000-8000-0123456789ab";
    let good = format!("{boot}:4026531836:77:123");
    assert_eq!(good.parse::<ProcessIdentity>().unwrap().to_string(), good);
    for bad in [
        String::new(),
        good[1..].to_owned(),
        good.to_uppercase(),
        format!("{good} "),
        format!("{good}:1"),
        format!("{boot}:1:77"),
        format!("{boot}:1:0:5"),
        format!("{boot}:1:-7:5"),
        format!("{boot}:1:+7:5"),
        format!("{boot}:1:07:5"),
        format!("{boot}:1:2147483648:5"),
        format!("{boot}:1:7:99999999999999999999"),
        format!("{boot}:1:7:"),
    ] {
        assert_eq!(bad.parse::<ProcessIdentity>(), Err(InvalidIdentity), "{bad}");
    }
}

/// Runs in its own PID namespace, where the next PID can be chosen; needs root and is skipped otherwise.
#[test]
fn a_reused_pid_is_dead_and_its_new_owner_is_not_signalled() {
    let name = "identities::identity::tests::a_reused_pid_is_dead_and_its_new_owner_is_not_signalled";
    if !run_again_inside(&["unshare", "-pf", "--mount-proc", "--kill-child"], name) {
        return;
    }
    let mut first = Command::new("sleep").arg("600").spawn().unwrap();
    let old = of_child(&first);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut innocent = loop {
        fs::write("/proc/sys/kernel/ns_last_pid", (old.pid - 1).to_string()).unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        // Ticks last 10 ms: only a process started in a later tick can be distinguished.
        if i32::try_from(child.id()) == Ok(old.pid) && of_child(&child) != old {
            break child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    };
    assert_eq!(old.liveness(), Liveness::Dead);
    assert!(crate::identities::signalling::ProcessHandle::open(&old).unwrap().is_none());
    let grace = std::time::Duration::from_secs(1);
    let marker = "TASKQUEUE_RUN_TOKEN=nobody";
    let recorded = crate::identities::survivors::RecordedHandler { identity: old.clone(), has_own_group: true };
    assert_eq!(crate::identities::survivors::end_survivors(marker, Some(&recorded), grace).unwrap(), 0);
    assert!(innocent.try_wait().unwrap().is_none());
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[test]
fn a_child_that_is_named_by_the_clock_has_the_name_that_proc_gives_it() {
    for _ in 0..20 {
        let before = Moment::now();
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let named = ProcessIdentity::of_child(pid, before, Moment::now()).unwrap();
        assert_eq!(named, ProcessIdentity::of_pid(pid).unwrap());
        child.wait().unwrap();
    }
    let pid = i32::try_from(std::process::id()).unwrap();
    let long_ago = Moment::now();
    let named = ProcessIdentity::of_child(pid, long_ago, long_ago.plus(Duration::from_secs(1))).unwrap();
    assert_eq!(named, Some(ProcessIdentity::own().unwrap()), "where the clock does not tell enough, /proc does");
}
