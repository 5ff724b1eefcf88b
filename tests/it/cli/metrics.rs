//! `taskqueue metrics`: the numbers of the store, printed or written to a file.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::{ECHO, error_and_hint, shell_class, signal, wait_for_file, write};
use crate::each_engine;
use crate::support::exposition::Exposition;
use crate::support::{Cli, TestDb};

fn metrics(db: &TestDb) -> Exposition {
    let ended = db.cli().run(&["metrics"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    Exposition::parse(&ended.stdout)
}

#[track_caller]
fn expect(found: &Exposition, expected: &[(&str, f64)]) {
    for (key, value) in expected {
        assert_eq!(found.value(&format!("taskqueue_{key}")), *value, "{key}: {:#?}", found.values);
    }
}

each_engine! {
    fn an_empty_store_has_numbers_too(db) {
        let found = metrics(db);
        expect(&found, &[
            ("up", 1.0), ("due_tasks", 0.0), ("oldest_due_age_seconds", 0.0), ("failed_tasks", 0.0), ("lost_runs", 0.0),
            ("runner_slots", 0.0), ("runner_slots_limit", 8.0), ("held_classes", 0.0), ("late_schedules", 0.0),
            ("recently_over_tasks{status=\"success\"}", 0.0),
            (concat!("build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
        ]);
        assert_eq!(found.types["taskqueue_waiting_runs"], "gauge");
        assert!(!found.values.keys().any(|key| key.contains("class=")), "{found:?}");
    }

    fn the_numbers_are_those_of_the_store(db) {
        let bad = shell_class(db, "bad", "exit 65");
        let again = shell_class(db, "again", "exit 75");
        db.configure(&format!("{ECHO}{bad}{again}"));
        for class in ["echo", "echo", "bad", "again"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["tick"]).ok();
        for _ in 0..3 {
            db.cli().run(&["queue", "--any-class", "App\\Tasks\\Import"]).ok();
        }
        db.cli().run(&["queue", "echo", "--priority", "3"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 10");
        db.cli().run(&["pause", "--class", "mail.*"]).ok();
        let found = metrics(db);
        expect(&found, &[
            ("due_tasks", 1.0),
            ("later_tasks", 2.0),
            ("failed_tasks", 2.0),
            ("quarantined_tasks", 0.0),
            ("recently_over_tasks{status=\"success\"}", 2.0),
            ("recently_over_tasks{status=\"failed\"}", 1.0),
            ("recently_over_tasks{status=\"cancelled\"}", 0.0),
            ("waiting_runs{class=\"App\\\\Tasks\\\\Import\"}", 3.0),
            ("waiting_runs{class=\"echo\"}", 1.0),
            ("running_runs{class=\"echo\"}", 0.0),
            ("pauses{scope=\"class\"}", 1.0),
        ]);
        let year = 365.0 * 86_400.0;
        assert!(found.value("taskqueue_oldest_due_age_seconds") > 5.0 * year);
        assert!(found.value("taskqueue_next_waiting_age_seconds{class=\"echo\"}") < year);
    }

    fn schedules_and_limit_keys_are_counted(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC"]).ok();
        db.cli().run(&["queue", "echo", "--every", "0 4 * * *", "--tz", "UTC"]).ok();
        db.cli().run(&["schedule", "pause", "2"]).ok();
        for _ in 0..3 {
            db.cli().run(&["queue", "echo", "--limit-key", "server-7"]).ok();
        }
        db.cli().run(&["create-runs"]).ok();
        let counted = [("schedules{state=\"paused\"}", 1.0), ("runs_waiting_for_key", 2.0), ("waiting_runs{class=\"echo\"}", 1.0)];
        expect(&metrics(db), &counted);
        expect(&metrics(db), &[("schedules{state=\"waiting\"}", 1.0), ("late_schedules", 0.0)]);
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 1");
        expect(&metrics(db), &[("late_schedules", 1.0)]);
    }

    fn a_runner_is_counted_by_its_state_and_the_runs_of_a_dead_one_as_lost(db) {
        let script = format!("cd {}; echo on > began; sleep 600", db.home().display());
        db.configure(&shell_class(db, "slow", &script));
        db.cli().run(&["queue", "slow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        let host = db.text("SELECT \"Host\" AS value FROM \"TaskQueueRunners\"").unwrap();
        let of = |state: &str| format!("runners{{host=\"{host}\",state=\"{state}\"}}");
        expect(&metrics(db), &[(&of("alive"), 1.0), ("running_runs{class=\"slow\"}", 1.0), ("lost_runs", 0.0), ("runner_slots", 1.0)]);
        signal(&runner, Signal::KILL);
        runner.wait().unwrap();
        let found = metrics(db);
        expect(&found, &[(&of("dead"), 1.0), ("lost_runs", 1.0)]);
        assert!(!found.values.contains_key(&of("alive")));
        db.cli().run(&["create-runs"]).ok();
        expect(&metrics(db), &[("lost_runs", 0.0), ("runner_slots", 0.0)]);
    }

    fn a_file_for_node_exporter_is_replaced_whole_and_everybody_may_read_it(db) {
        db.configure(ECHO);
        let path = db.home().join("tq.prom");
        let textfile = path.to_str().unwrap();
        // The state after a power failure during a write.
        write(db, ".tq.prom.0123456789abcdef0123456789abcdef.new", "# HELP");
        for due in [0.0, 1.0] {
            let ended = db.cli().run(&["metrics", "--textfile", textfile]);
            assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
            expect(&Exposition::parse(&std::fs::read_to_string(&path).unwrap()), &[("due_tasks", due)]);
            db.cli().run(&["queue", "echo"]).ok();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let names = std::fs::read_dir(db.home()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains("tq.prom")).collect::<Vec<_>>(), ["tq.prom"]);
        let other = db.cli().run(&["metrics", "--textfile", "numbers.txt"]);
        assert_eq!((other.code, other.stderr.as_str()), (Some(0), "warning: node_exporter reads only files whose names end in .prom\n"));
        for bad in ["/nonexistent/tq.prom", db.home().to_str().unwrap(), "/dev/null"] {
            let (error, hint) = error_and_hint(&db.cli().run(&["metrics", "--textfile", bad]).fails(1));
            assert!(error.starts_with(&format!("error: {bad} cannot be written: ")) && !hint.is_empty(), "{error}");
        }
    }

    fn the_numbers_are_also_an_object(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let found = db.cli().run(&["metrics", "--json"]).json();
        assert_eq!((&found["schema"], &found["metrics"]["due"]["count"]), (&"taskqueue.metrics/1".into(), &1.into()));
    }
}

#[test]
fn a_database_that_is_away_is_down_in_what_is_printed_and_in_the_file() {
    let home = tempfile::tempdir().unwrap();
    crate::support::cli::configure(home.path(), "connect_wait_secs = 0\n");
    let cli = Cli::new(home.path()).env("TASKQUEUE_DATABASE_URL", "postgres://127.0.0.1:1/none");
    let ended = cli.run(&["metrics"]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let found = Exposition::parse(&ended.stdout);
    expect(&found, &[("up", 0.0)]);
    assert!(!found.types.contains_key("taskqueue_due_tasks"));
    assert!(error_and_hint(&ended.stderr).0.contains("cannot reach the database"), "{ended:?}");
    cli.run(&["metrics", "--textfile", "tq.prom"]).fails(69);
    expect(&Exposition::parse(&std::fs::read_to_string(home.path().join("tq.prom")).unwrap()), &[("up", 0.0)]);
    let json = cli.run(&["metrics", "--json"]).fails(69);
    assert!(json.starts_with("{\"error\":"), "{json}");
}
