//! Without `[notify]`, each task that will not be retried is printed once on standard error; `status` and `doctor` count the
//! unreported ones.

use rustix::process::Signal;
use serde_json::Value;

use super::{count_notices, shell_class, signal, task, write};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

const WORK: &str = "echo 'no such mailbox' >&2; exit 1";

/// Queues a task that fails without a retry, and processes it with a verb that reports nothing.
fn exhaust(db: &TestDb, class: &str) -> String {
    let id = db.cli().run(&["queue", class, "--max-retries", "1"]).ok();
    db.cli().run(&["create-runs"]).ok();
    assert_eq!(db.cli().run(&["process-run", "--drain"]).stderr, "");
    id
}

fn warning(id: &str) -> String {
    format!(
        "warning: task {id} of class work failed and will not be retried: exit:1: no such mailbox; `taskqueue status {id}` has the \
         details\n"
    )
}

fn unreported(db: &TestDb) -> Value {
    db.cli().run(&["status", "--json"]).json()["counts"]["unreported_failures"]["count"].clone()
}

/// Returns the finding of `doctor`, if there is one.
fn finding(db: &TestDb) -> Option<Value> {
    let ended = db.cli().run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["trouble"] == "unreported_failures").cloned()
}

each_engine! {
    fn create_runs_prints_a_final_failure_once_and_status_counts_it_before(db) {
        db.configure(&shell_class(db, "work", WORK));
        assert_eq!((unreported(db), finding(db)), (0.into(), None));
        let id = exhaust(db, "work");
        assert_eq!(unreported(db), 1);
        assert!(db.cli().run(&["status"]).ok().contains("unreported failures 1"));
        let found = finding(db).unwrap();
        assert_eq!((&found["count"]["count"], &found["level"]), (&1.into(), &"warning".into()));
        assert_eq!(found["message"], "1 task will not be retried, and the failure was not reported yet");
        assert_eq!(db.cli().run(&["create-runs"]).stderr, warning(&id));
        assert_eq!((unreported(db), finding(db), count_notices(db)), (0.into(), None, 0));
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
    }

    fn an_error_without_a_message_is_reported_by_its_code_alone(db) {
        db.configure(&shell_class(db, "work", r#"echo '{"error":{"code":"e1"}}' >&3; exit 1"#));
        let id = exhaust(db, "work");
        let told = db.cli().run(&["create-runs"]).stderr;
        assert!(told.contains("will not be retried: e1; `taskqueue status"), "{told}");
        let shown = db.cli().run(&["status", &id]).ok();
        let has_line = |line: &str| shown.lines().any(|shown| shown == line);
        assert!(has_line("  why          not retried, no retry left: e1") && has_line("  error        e1"), "{shown}");
        assert_eq!(db.cli().run(&["status", &id, "--json"]).json()["why"]["error"], "e1");
    }

    fn a_tick_prints_its_own_final_failures_and_no_failure_that_is_retried(db) {
        db.configure(&shell_class(db, "work", WORK));
        db.cli().run(&["queue", "work"]).ok();
        assert_eq!(db.cli().run(&["tick"]).stderr, "");
        let id = db.cli().run(&["queue", "work", "--max-retries", "1"]).ok();
        let ended = db.cli().run(&["tick"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), (Some(0), "", warning(&id)));
        assert_eq!(db.cli().run(&["tick", "--json"]).stderr, "");
    }

    fn a_worker_prints_final_failures_of_others_and_its_own(db) {
        db.configure(&shell_class(db, "work", WORK));
        let first = exhaust(db, "work");
        let worker = db.cli().spawn(&["work"]);
        wait_until("the worker has printed the first failure", || count_notices(db) == 0);
        let second = db.cli().run(&["queue", "work", "--max-retries", "1"]).ok();
        wait_until("the second task has failed", || task(db, &second)["is_exhausted"] == true);
        signal(&worker, Signal::TERM);
        let ended = finish(worker);
        assert_eq!((ended.code, ended.stderr), (Some(0), warning(&first) + &warning(&second)));
        assert_eq!(count_notices(db), 0);
    }

    fn a_quarantined_task_is_printed_as_such(db) {
        db.configure(&format!("{}crash_limit = 1\n", shell_class(db, "crash", "kill -KILL $$")));
        let id = db.cli().run(&["queue", "crash"]).ok();
        let printed = db.cli().run(&["tick"]).stderr;
        let words = format!("warning: task {id} of class crash is quarantined and will not be retried: signal:9: ");
        assert!(printed.starts_with(&words) && printed.lines().count() == 1, "{printed}");
    }

    fn many_final_failures_are_fifty_lines_and_a_count(db) {
        db.configure(&shell_class(db, "work", WORK));
        let batch = "{\"class\":\"work\",\"max_retries\":1}\n".repeat(60);
        db.cli().stdin(batch).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run", "--drain"]).ok();
        let printed = db.cli().run(&["create-runs"]).stderr;
        assert_eq!(printed.lines().count(), 51, "{printed}");
        assert!(printed.ends_with("\nwarning: and 10 more; `taskqueue failures` shows them\n"), "{printed}");
        assert_eq!((count_notices(db), db.cli().run(&["create-runs"]).stderr.as_str()), (0, ""));
    }

    fn a_failure_message_cannot_write_lines_or_control_the_terminal(db) {
        let script = r#"printf '%s\n' '{"error":{"code":"a\u001b[31m","message":"one\nwarning: two\u001b[2J"}}' >&3; exit 1"#;
        db.configure(&shell_class(db, "work", script));
        exhaust(db, "work");
        let printed = db.cli().run(&["create-runs"]).stderr;
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(!printed.contains('\u{1b}') && printed.contains("one"), "{printed}");
    }

    fn eight_processes_that_create_runs_print_a_failure_once(db) {
        db.configure(&shell_class(db, "work", WORK));
        let id = exhaust(db, "work");
        let calls: Vec<_> = (0..8).map(|_| db.cli().spawn(&["create-runs"])).collect();
        let printed: String = calls.into_iter().map(|call| finish(call).stderr).collect();
        assert_eq!(printed, warning(&id));
    }

    fn a_task_that_was_retried_meanwhile_is_neither_counted_nor_printed(db) {
        db.configure(&shell_class(db, "work", WORK));
        let id = exhaust(db, "work");
        db.cli().run(&["retry", &id]).ok();
        assert_eq!(unreported(db), 0);
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "1 run created\n");
        assert_eq!(count_notices(db), 0);
        // It fails for the last time again, and is printed once.
        db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(db.cli().run(&["create-runs"]).stderr, warning(&id));
    }

    fn a_failure_that_a_killed_process_had_taken_is_printed_later(db) {
        db.configure(&shell_class(db, "work", WORK));
        let id = exhaust(db, "work");
        // The state after a process was killed between taking the notice and printing it.
        db.execute(&format!("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = {} WHERE \"Name\" = 'notify'", sql_now(db.engine, 60)));
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
        assert_eq!(unreported(db), 1);
        db.execute("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = '2020-01-01 00:00:00.000000' WHERE \"Name\" = 'notify'");
        assert_eq!(db.cli().run(&["create-runs"]).stderr, warning(&id));
    }

    fn a_failure_is_printed_although_the_timers_are_from_a_clock_ahead(db) {
        db.configure(&shell_class(db, "work", WORK));
        let id = exhaust(db, "work");
        db.execute(&format!("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = {}", sql_now(db.engine, 200_000)));
        assert_eq!(db.cli().run(&["create-runs"]).stderr, warning(&id));
    }

    fn a_host_without_notify_leaves_failures_to_one_that_has_it(db) {
        let class = shell_class(db, "work", WORK);
        let log = db.home().join("notices.log");
        let deaf = write(db, "tell.sh", "exit 7");
        let refusing = format!("[notify]\nargv = [\"/bin/sh\", {deaf:?}]\nevery_secs = 0\n{class}");
        db.configure(&refusing);
        db.cli().run(&["create-runs"]).ok();
        exhaust(db, "work");
        db.configure(&class);
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
        assert_eq!(unreported(db), 1, "a host with [notify] was active within the hour");
        db.configure(&format!("[notify]\nlog = {log:?}\nevery_secs = 0\n{class}"));
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
        assert!(std::fs::read_to_string(&log).unwrap().contains("no such mailbox"));
        assert_eq!(unreported(db), 0);
        // The host with [notify] has been inactive for an hour.
        db.configure(&class);
        let id = exhaust(db, "work");
        db.execute("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(db.cli().run(&["create-runs"]).stderr, warning(&id));
    }
}
