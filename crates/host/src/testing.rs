//! Helpers shared by the tests of this crate. They never wait a fixed time: they poll with a limit.

use std::process::Command;
use std::time::Duration;

use crate::clock::Moment;

/// Polls until the condition holds; fails the test after 20 seconds.
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let limit = Moment::after(Duration::from_secs(20));
    while !condition() {
        assert!(!limit.has_passed(), "this did not come true within 20 seconds");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the named test again in its own process below `launcher`. Returns true inside that process; false outside, after the test
/// passed there or if the launcher is not permitted.
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
pub fn run_again_inside(launcher: &[&str], test: &str) -> bool {
    const INSIDE: &str = "TASKQUEUE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == *test) {
        return true;
    }
    let can_launch = Command::new(launcher[0]).args(&launcher[1..]).arg("true").output();
    if !can_launch.is_ok_and(|output| output.status.success()) {
        return false;
    }
    let output = Command::new(launcher[0])
        .args(&launcher[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1", "--nocapture"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "inside {launcher:?}:\n{text}");
    false
}
