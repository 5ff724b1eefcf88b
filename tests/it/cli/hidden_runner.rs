//! A runner is hidden from its handlers, and can still be found by other runners of its user.

use std::fs;
use std::io::{Read as _, pipe};
use std::path::Path;
use std::process::Command;

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::geteuid;
use serde_json::json;

use super::untrusted_files::as_nobody;
use super::{is_alive, printed, shell_class, wait_for_file};
use crate::each_engine;

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");
const AS_NOBODY: [&str; 3] = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"];

#[test]
fn a_command_that_only_prints_help_is_hidden_too() {
    if !geteuid().is_root() {
        return;
    }
    let as_nobody = || {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(AS_NOBODY);
        command
    };
    let (mut page, written) = pipe().unwrap();
    let capacity = fcntl_setpipe_size(&page, 4096).unwrap();
    let mut command = as_nobody().args([PROGRAM, "help", "configuration"]).stdout(written).spawn().unwrap();
    // The page is longer than the pipe, so the command waits in the middle of it.
    page.read_exact(&mut [0]).unwrap();
    let read =
        as_nobody().env("LC_ALL", "C").arg("cat").arg(format!("/proc/{}/environ", command.id())).output().unwrap();
    let mut rest = Vec::new();
    page.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > capacity, "{} bytes", rest.len());
    assert!(command.wait().unwrap().success());
    assert!(read.stdout.is_empty(), "{read:?}");
    assert!(String::from_utf8_lossy(&read.stderr).contains("Permission denied"), "{read:?}");
}

each_engine! {
    fn a_handler_cannot_read_the_environment_of_a_runner_of_its_user(db) {
        if !geteuid().is_root() {
            return;
        }
        let ours: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
        // The runner sets the score of a handler that has begun.
        let script = format!(
            "cat /proc/$PPID/environ /proc/$PPID/maps; ls /proc/$PPID/fd; \
             until read score </proc/self/oom_score_adj && [ \"$score\" = {} ]; do :; done",
            (ours + 500).min(1000)
        );
        db.configure_exactly(&format!("{}timeout_secs = 60\n", shell_class(db, "work", &script)));
        let _ = as_nobody(db, &["queue", "work"]).ok();
        let _ = as_nobody(db, &["tick"]).ok();
        let after = as_nobody(db, &["status", "--json", "1"]).json();
        let errors = printed(&after, "stderr");
        assert_eq!(errors.matches("Permission denied").count(), 3, "{after}");
        assert_eq!(printed(&after, "stdout"), "");
        assert_eq!(after["task"]["status"], json!("success"));
    }

    fn what_a_dead_runner_of_another_user_left_is_found_and_ended(db) {
        if !geteuid().is_root() {
            return;
        }
        let script = "setsid sh -c 'echo $$ > left.new; mv left.new left; exec sleep 1000' & sleep 1000";
        let class = shell_class(db, "work", &format!("cd {}; {script}", db.home().display()));
        db.configure_exactly(&class);
        let _ = as_nobody(db, &["queue", "work"]).ok();
        let user = [&AS_NOBODY[..], &[PROGRAM, "tick"]].concat();
        let mut runner = db.cli().program(Path::new("/usr/bin/setpriv")).spawn(&user);
        let left = wait_for_file(db, "left");
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert!(is_alive(&left));
        let _ = as_nobody(db, &["create-runs"]).ok();
        assert!(!is_alive(&left));
        assert_eq!(as_nobody(db, &["status", "--json", "1"]).json()["runs"][1]["status"], "timeout");
    }
}
