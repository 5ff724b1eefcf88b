//! `taskqueue check`

use rustix::process::Signal;

use super::{ECHO, shell_class, signal, wait_for_file};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::Ended;

/// Checks the exit status and the line.
#[track_caller]
fn expect(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(
        ended.stdout.starts_with(words) && ended.stdout.lines().count() == 1 && ended.stderr.is_empty(),
        "{words}: {ended:?}"
    );
}

each_engine! {
    fn check_compares_numbers_with_limits_as_monitoring_wants_it(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        expect(&db.cli().run(&["check"]), 0, "TASKQUEUE OK - oldest_due 0s, due 0, waiting 0, failed 0, quarantined 0, lost 0, stalled 0, silent_runners 0, late_schedules 0, runners 0 | oldest_due=0s;;600 due=0 ");
        for _ in 0..2 {
            db.cli().run(&["queue", "bad"]).ok();
        }
        db.cli().run(&["tick"]).ok();
        expect(&db.cli().run(&["check", "--failed", "1,5"]), 1, "TASKQUEUE WARNING - failed 2 | ");
        expect(&db.cli().run(&["check", "--failed", "1"]), 2, "TASKQUEUE CRITICAL - failed 2 | ");
        expect(&db.cli().run(&["check", "--failed", "2", "--min-runners", "1"]), 2, "TASKQUEUE CRITICAL - runners 0 | ");
        let json = db.cli().run(&["check", "--failed", "1,5", "--json"]);
        assert_eq!(json.code, Some(1));
        let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!((&json["schema"], &json["level"], &json["measures"]["failed"]), (&"taskqueue.check/1".into(), &"warning".into(), &2.into()));
        assert_eq!(db.cli().run(&["check", "--failed", "5,1"]).code, Some(2));
    }

    fn check_is_critical_when_a_schedule_did_not_run_at_its_time(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "@daily"]).ok();
        expect(&db.cli().run(&["check", "--late-schedules", "0"]), 0, "TASKQUEUE OK - ");
        // Late for two minutes: no default limit but this one.
        let late = sql_now(db.engine, -120);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = {late}"));
        expect(&db.cli().run(&["check"]), 1, "TASKQUEUE WARNING - late_schedules 1 | ");
        // Also if no `create-runs` ever ran.
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
        expect(&db.cli().run(&["check", "--late-schedules", "0"]), 2, "TASKQUEUE CRITICAL - oldest_due ");
        // Another option replaces the defaults.
        expect(&db.cli().run(&["check", "--late-schedules", "0", "--failed", "9"]), 2, "TASKQUEUE CRITICAL - late_schedules 1 | ");
        expect(&db.cli().run(&["check", "--late-schedules", "0,1", "--failed", "9"]), 1, "TASKQUEUE WARNING - late_schedules 1 | ");
    }

    fn check_is_critical_by_itself_without_create_runs_or_with_a_dead_runner(db) {
        db.configure(&shell_class(db, "slow", &format!("cd {}; echo on > began; sleep 600", db.home().display())));
        db.cli().run(&["queue", "slow"]).ok();
        expect(&db.cli().run(&["check"]), 0, "TASKQUEUE OK - ");
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
        expect(&db.cli().run(&["check"]), 2, "TASKQUEUE CRITICAL - oldest_due ");
        db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        expect(&db.cli().run(&["check"]), 0, "TASKQUEUE OK - ");
        signal(&runner, Signal::KILL);
        runner.wait().unwrap();
        expect(&db.cli().run(&["check"]), 2, "TASKQUEUE CRITICAL - lost 1 | ");
        db.cli().run(&["create-runs"]).ok();
        expect(&db.cli().run(&["check"]), 0, "TASKQUEUE OK - ");
    }
}

#[test]
fn check_says_unknown_where_it_cannot_look() {
    let home = tempfile::tempdir().unwrap();
    crate::support::cli::configure(home.path(), "connect_wait_secs = 0\n");
    let cli = crate::support::Cli::new(home.path()).env("TASKQUEUE_DATABASE_URL", "postgres://127.0.0.1:1/none");
    expect(&cli.run(&["check"]), 3, "TASKQUEUE UNKNOWN - ");
}
