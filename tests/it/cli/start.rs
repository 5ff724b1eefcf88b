//! The cost of a start: which system files a command reads, besides the configuration and the store.

use std::collections::BTreeSet;
use std::path::Path;

use super::shell_class;
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

/// The files that identify a process: only a runner needs them.
const IDENTITY: [&str; 4] = ["/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid", "/proc/PID/stat", "/proc/self"];

/// Returns the files below /proc and /etc that a command opens or checks, without those of the dynamic linker.
fn files_of_machine(db: &TestDb, args: &[&str]) -> BTreeSet<String> {
    let trace = db.home().join("trace");
    let options = ["-f", "-qq", "-e", "trace=%file", "-o", trace.to_str().unwrap(), env!("CARGO_BIN_EXE_taskqueue")];
    let _ = db.cli().program(Path::new("strace")).run(&[&options, args].concat()).ok();
    let text = std::fs::read_to_string(&trace).unwrap();
    let paths = text.lines().filter_map(|line| line.split('"').nth(1));
    let paths = paths.filter(|path| path.starts_with("/proc") || path.starts_with("/etc"));
    paths.filter(|path| !path.starts_with("/etc/ld.so")).map(without_numbers).collect()
}

/// Replaces the number in `/proc/PID/stat` and in `/proc/self/fd`.
fn without_numbers(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.parse::<u32>().is_ok() { "PID" } else { part });
    parts.collect::<Vec<_>>().join("/").replace("/fd/PID", "/fd")
}

each_engine! {
    fn only_a_runner_reads_which_process_it_is(db) {
        db.configure(&shell_class(db, "echo", "cat"));
        let _ = db.cli().run(&["queue", "echo", "1"]).ok();
        for args in [&["queue", "echo", "2"][..], &["status"], &["status", "1"], &["edit", "1", "--priority", "2"]] {
            let files = files_of_machine(db, args);
            assert!(IDENTITY.iter().all(|file| !files.contains(*file)), "{args:?}: {files:?}");
            assert!(!files.contains("/proc/self/status"), "{args:?}: {files:?}");
            if db.engine == EngineUnderTest::Sqlite {
                // The first is read by Rust, the second to open a checked descriptor, the third contains the user name.
                let expected = ["/proc/self/maps", "/proc/self/fd", "/etc/passwd"].map(str::to_owned);
                assert_eq!(files, BTreeSet::from(expected), "{args:?}");
            }
        }
        let files = files_of_machine(db, &["tick"]);
        assert!(IDENTITY.iter().all(|file| files.contains(*file)), "{files:?}");
    }
}
