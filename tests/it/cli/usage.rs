//! The processor time and the memory of a run.

use serde_json::Value;

use super::{detail, write};
use crate::each_engine;

const BURN: &str = "import sys, time
block = b'x' * 100_000_000
while time.process_time() < 0.3: pass
sys.exit(int(sys.stdin.read() or 0))
";

fn usage_of(detail: &Value) -> (f64, i64) {
    let run = &detail["runs"][0];
    (run["cpu_secs"].as_f64().unwrap_or(-1.0), run["peak_memory_bytes"].as_i64().unwrap_or(-1))
}

each_engine! {
    fn a_run_records_the_processor_time_and_memory_of_its_program(db) {
        let python = write(db, "burn.py", BURN);
        db.configure(&format!("[class.burn]\nargv = [\"/usr/bin/python3\", \"{}\"]\n[class.true]\nargv = [\"/bin/true\"]\n", python.display()));
        // A shell between: the peak of a program begins with that of the process that starts it, and this process is large.
        let program = env!("CARGO_BIN_EXE_taskqueue");
        let between = write(db, "between.sh", format!("{program} \"$@\"\nexit $?\n"));
        let between = between.to_str().unwrap();
        let runner = |args: &[&str]| db.cli().program("/bin/sh".as_ref()).run(&[&[between], args].concat()).ok();
        let queue = |class: &str, data: &str| db.cli().run(&["queue", class, data]).ok();
        let (single, failed) = (queue("burn", "0"), queue("burn", "3"));
        db.cli().run(&["create-runs"]).ok();
        runner(&["process-run", "--drain"]);
        let (batch, small) = (queue("burn", "0"), queue("true", "null"));
        runner(&["work", "--idle-exit", "0s", "--slots", "2"]);
        for (id, status) in [(&single, "success"), (&failed, "error"), (&batch, "success")] {
            let detail = detail(db, id);
            let (cpu_secs, memory) = usage_of(&detail);
            assert_eq!(detail["runs"][0]["status"], status);
            assert!(cpu_secs >= 0.3 && memory >= 100_000_000, "{status}: {detail}");
        }
        let (small_id, small) = (small.clone(), detail(db, &small));
        assert!(small["runs"][0]["cpu_secs"].is_number() && small["runs"][0]["peak_memory_bytes"].is_null(), "{small}");
        let shown = db.cli().run(&["status", &single]).ok();
        let line = shown.lines().find(|line| line.starts_with("  used ")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.starts_with("  used         cpu ") && line.contains("s, peak memory ") && line.ends_with(" MiB"), "{line}");
        let shown = db.cli().run(&["status", &small_id]).ok();
        assert!(shown.lines().any(|line| line.ends_with("s, peak memory below that of its runner")), "{shown}");

        let other = db.cli().env("TASKQUEUE_DATABASE_URL", db.home().join("elsewhere.db").to_str().unwrap());
        other.clone().stdin(db.cli().run(&["export"]).ok()).run(&["import"]).ok();
        let imported = other.run(&["status", "--json", &single]).json();
        assert_eq!(usage_of(&imported), usage_of(&detail(db, &single)));
    }
}
