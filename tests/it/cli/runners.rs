//! `taskqueue runner`: names, runs in progress, pauses.

use rustix::process::Signal;
use serde_json::Value;

use super::{ECHO, error_and_hint, shell_class, signal, wait_for_file, write};
use crate::each_engine;
use crate::races::stage::shorten_leases;
use crate::races::tools::freeze;
use crate::support::cli::finish;
use crate::support::wait_until;

each_engine! {
    fn runners_are_shown_with_their_names_and_what_they_work_on(db) {
        assert_eq!(db.cli().run(&["runner", "list"]).ok(), "No runners. Start one: `taskqueue work`, or `taskqueue tick` from cron.");
        let script = format!(
            "cd {}; echo '{{\"progress\":40}}' >&3; echo $$ > pid; until test -e go; do sleep 0.02; done",
            db.home().display()
        );
        db.configure(&shell_class(db, "slow", &script));
        db.cli().run(&["queue", "slow"]).ok();
        let runner = db.cli().spawn(&["tick", "--name", "import 1"]);
        wait_for_file(db, "pid");
        let line: Value = db.cli().run(&["runner", "--json"]).json();
        assert_eq!((&line["name"], &line["state"], &line["pause"]), (&"import 1".into(), &"alive".into(), &Value::Null));
        assert_eq!(line["process_id"], runner.id());
        let work = &line["works_on"][0];
        assert_eq!((&work["task_id"], &work["class"]), (&1.into(), &"slow".into()));
        assert!(work["started_on"].is_string() && line["heartbeat_on"].is_string(), "{line}");
        db.cli().run(&["pause", "--runner", "import 1", "--reason", "lunch"]).ok();
        let text = db.cli().run(&["runner"]).ok();
        for words in ["import 1", "task 1 (slow", "runner import 1 paused", ": lunch"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        write(db, "go", "");
        assert_eq!(finish(runner).code, Some(0));
        assert_eq!(db.cli().run(&["runner", "list"]).ok(), "No runners. Start one: `taskqueue work`, or `taskqueue tick` from cron.");
        let ended: Value = db.cli().run(&["status", "--runners", "--json"]).json();
        assert_eq!((&ended["name"], &ended["state"], &ended["works_on"]), (&"import 1".into(), &"ended".into(), &Value::Array(vec![])));
    }

    fn a_suspended_runner_is_silent_once_its_lease_is_over(db) {
        shorten_leases(db);
        db.configure(ECHO);
        let line = || -> Value { db.cli().run(&["runner", "--json"]).stdout.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap()) };
        let runner = db.cli().spawn(&["work", "--name", "frozen", "--slots", "3"]);
        wait_until("it is registered", || line()["state"] == "alive");
        assert_eq!(line()["silent_secs"], Value::Null);
        freeze(db, &runner);
        wait_until("it is silent", || line()["state"] == "silent");
        assert!(line()["silent_secs"].as_i64().unwrap() > 5, "{}", line());
        let text = db.cli().run(&["runner"]).ok();
        assert!(text.contains("silent for ") && text.contains("suspended, or cannot reach the database"), "{text}");
        let found = db.cli().run(&["doctor", "--json"]).stdout;
        assert!(found.contains("silent_runner"), "{found}");
        let metrics = db.cli().run(&["metrics"]).ok();
        assert!(metrics.contains("state=\"silent\"} 1"), "{metrics}");
        // It is not rescued, because its process is alive.
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(line()["slots"], 3);
        signal(&runner, Signal::CONT);
        wait_until("it has renewed its lease", || line()["state"] == "alive");
        signal(&runner, Signal::TERM);
        assert_eq!(finish(runner).code, Some(0));
    }

    fn a_runner_of_another_host_is_silent_by_the_clock_of_the_database(db) {
        shorten_leases(db);
        db.configure(ECHO);
        let line = || -> Value { db.cli().run(&["runner", "--json"]).json() };
        // Its boot clock is that of a host that booted recently.
        let columns = "\"ProcessId\", \"Host\", \"ProcessIdentity\", \"Name\", \"Version\", \"HeartbeatBootMs\"";
        let version = env!("CARGO_PKG_VERSION");
        db.execute(&format!("INSERT INTO \"TaskQueueRunners\" ({columns}) VALUES (7, 'elsewhere', 'elsewhere:7', 'other', '{version}', 1)"));
        assert_eq!((&line()["state"], &line()["silent_secs"]), (&"unknown".into(), &Value::Null));
        let found = db.cli().run(&["doctor", "--json"]).stdout;
        assert!(!found.contains("silent_runner"), "{found}");
        db.execute("UPDATE \"TaskQueueRunners\" SET \"HeartbeatOn\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(line()["state"], "unknown");
        assert!(line()["silent_secs"].as_i64().unwrap() > 5, "{}", line());
        let text = db.cli().run(&["runner"]).ok();
        assert!(text.contains("not visible from this host, silent for "), "{text}");
    }

    fn a_runner_without_a_name_is_called_by_host_and_process(db) {
        db.configure("[class.ok]\nargv = [\"/bin/true\"]\n");
        db.cli().run(&["queue", "ok"]).ok();
        db.cli().run(&["tick"]).ok();
        let line: Value = db.cli().run(&["status", "--runners", "--json"]).json();
        let name = format!("{}:{}", line["host"].as_str().unwrap(), line["process_id"]);
        assert_eq!(line["name"], name.as_str());
    }

    fn a_name_that_cannot_be_seen_is_refused(db) {
        for bad in ["", "a\nb", &"x".repeat(191)] {
            let (error, _) = error_and_hint(&db.cli().run(&["process-run", "--name", bad]).fails(2));
            assert!(error.contains("the name of a runner"), "{error}");
        }
    }
}
