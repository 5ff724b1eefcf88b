//! The memory of `taskqueue work` itself.

use std::fs;

use crate::each_engine;
use crate::support::wait_until;

/// Returns how many kB of files a process has mapped in memory, its own instructions among them.
fn file_pages_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

each_engine! {
    fn an_idle_worker_gives_back_the_memory_that_only_its_start_needed(db) {
        let mut worker = db.cli().spawn(&["work"]);
        let mut most_kb = 0;
        wait_until("its pages are fewer", || {
            let pages_kb = file_pages_kb(worker.id());
            most_kb = most_kb.max(pages_kb);
            pages_kb < most_kb / 4 * 3
        });
        assert!(worker.try_wait().unwrap().is_none());
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}
