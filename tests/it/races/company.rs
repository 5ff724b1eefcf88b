//! Runs that are lost together: which of them counts a crash, and how they are retried.

use std::process::Child;

use taskqueue_engine::why_no_own_group;

use super::stage::end_lease;
use crate::cli::{detail, is_alive, shell_class, task, wait_for_file};
use crate::each_engine;
use crate::support::{TestDb, wait_until};

/// The first attempt never ends. Any other one writes the file `company` if another handler runs at the same time.
const SCRIPT: &str = "cd \"$(dirname \"$0\")\"; test \"$TASKQUEUE_CLASS $TASKQUEUE_ATTEMPT\" = 'work 1' && exec sleep 600\n\
    mkdir at-work || touch company; sleep 0.3; rmdir at-work || true";

fn configure(db: &TestDb) {
    db.configure(&format!("{}{}", shell_class(db, "work", SCRIPT), shell_class(db, "other", SCRIPT)));
}

/// Starts a worker with this many runs that never end.
fn start(db: &TestDb, runs: i64) -> Child {
    configure(db);
    for _ in 0..runs {
        db.cli().run(&["queue", "work"]).ok();
    }
    let worker = db.cli().spawn(&["work", "--slots", "3"]);
    let started =
        "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"HandlerIdentity\" <> ''";
    wait_until("all have begun", || db.number(started) == runs);
    worker
}

fn kill(mut worker: Child) {
    worker.kill().unwrap();
    worker.wait().unwrap();
}

fn crashes(db: &TestDb, ids: &[&str]) -> Vec<i64> {
    ids.iter().map(|id| task(db, id)["crashes"].as_i64().unwrap()).collect()
}

each_engine! {
    fn runs_that_are_lost_together_count_no_crash_and_are_tried_again_alone(db) {
        kill(start(db, 3));
        let report = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!(report["rescued"].as_array().unwrap().len(), 3);
        assert_eq!(crashes(db, &["1", "2", "3"]), [0, 0, 0]);
        let lost = detail(db, "1");
        let lost = lost["runs"].as_array().unwrap().iter().find(|run| run["status"] == "timeout").unwrap().clone();
        assert_eq!(lost["decision"], "runner-died: retry, with nothing beside it (other runs were lost with it)");
        db.cli().run(&["queue", "other"]).ok();
        let ended = db.cli().run(&["work", "--slots", "3", "--idle-exit", "0s"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(["1", "2", "3", "4"].iter().all(|id| task(db, id)["status"] == "success"));
        assert!(!db.home().join("company").exists());
    }

    fn nothing_that_a_killed_runner_has_started_survives_its_rescue(db) {
        if let Some(why) = why_no_own_group() {
            eprintln!("not tested: {why}");
            return;
        }
        let script = "cd \"$(dirname \"$0\")\"; env -i /usr/bin/setsid /bin/sh -c 'echo $$ > hidden; exec sleep 600' & exec sleep 600";
        db.configure(&shell_class(db, "work", script));
        for runner in [&["work", "--slots", "1"][..], &["tick"], &["process-run"]] {
            let id = db.cli().run(&["queue", "work"]).ok();
            db.cli().run(&["create-runs"]).ok();
            let child = db.cli().spawn(runner);
            let hidden = wait_for_file(db, "hidden");
            kill(child);
            assert!(is_alive(&hidden), "{runner:?}");
            let report = db.cli().run(&["create-runs", "--json"]).json();
            assert!(report["rescued"][0]["ended_processes"].as_i64().unwrap() >= 1, "{report}");
            wait_until("it has ended", || !is_alive(&hidden));
            db.cli().run(&["cancel", &id]).ok();
            std::fs::remove_file(db.home().join("hidden")).unwrap();
        }
    }

    fn a_run_that_is_lost_alone_counts_a_crash(db) {
        kill(start(db, 1));
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(crashes(db, &["1"]), [1]);
        assert_eq!(task(db, "1")["failed_retries"], 1);
    }

    fn a_run_that_was_lost_when_its_machine_started_again_counts_no_crash(db) {
        kill(start(db, 1));
        let identity = db.text("SELECT \"ProcessIdentity\" AS value FROM \"TaskQueueRuns\"").unwrap();
        let (_, rest) = identity.split_once(':').unwrap();
        let other = format!("00000000-0000-4000-8000-000000000000:{rest}");
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"ProcessIdentity\" = '{other}', \"HandlerIdentity\" = ''"));
        end_lease(db);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(crashes(db, &["1"]), [0]);
        let lost = detail(db, "1");
        let lost = lost["runs"].as_array().unwrap().iter().find(|run| run["status"] == "timeout").unwrap().clone();
        assert_eq!(lost["decision"], "lease-expired: retry (its machine was started again)");
    }
}
