//! The log of a run while its handler writes.

use super::WebServer;
use crate::cli::{shell_class, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::wait_until;

each_engine! {
    fn an_open_log_gets_an_event_for_each_output_and_one_for_the_end(db) {
        let is_there = |name: &str| format!("until [ -e {:?} ]; do sleep 0.05; done", db.home().join(name));
        let script = format!("echo first; {}; echo second; {}", is_there("go"), is_there("end"));
        db.configure(&shell_class(db, "slow", &script));
        db.cli().run(&["queue", "slow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let server = WebServer::start(db, &[]);
        let runner = db.cli().spawn(&["process-run"]);
        let shows = |text: &str| server.get("/tasks/1/log").body.contains(text);
        wait_until("the run has begun", || shows("data-stream=\"/runs/1/log\""));
        let mut lines = server.stream("/runs/1/log");
        let mut hears_until = |text: &str| {
            while !shows(text) {
                assert!(lines.any(|line| line == "event: changed"), "no event before {text}");
            }
        };
        hears_until("first\n");
        write(db, "go", "");
        hears_until("second\n");
        write(db, "end", "");
        hears_until("success");
        finish(runner).ok();
        assert!(!shows("data-stream"));
        assert!(lines.any(|line| line == "0"), "the stream of a run that has ended does not end");
        // Others, of a browser that has not heard of the end, and of a run that was deleted.
        for run in [1, 99] {
            let mut late = server.stream(&format!("/runs/{run}/log"));
            assert!(late.any(|line| line == "event: changed"));
            assert!(late.any(|line| line == "0"));
        }
    }
}
