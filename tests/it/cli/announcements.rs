//! Notices for operators, and hooks that are started when a run has ended.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::outside_text::harmful;
use super::{count_notices, error_and_hint, process, shell_class, signal, task, write};
use crate::conformance::fixture::{claim_as, dead_process, sql_now};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// A program that appends its input to the file `told`, and fails while the file `deaf` exists.
fn program(db: &TestDb) -> String {
    let (told, deaf) = (db.home().join("told"), db.home().join("deaf"));
    let script = format!(
        "[ ! -e '{}' ] || {{ echo 'nobody home' >&2; exit 7; }}\ncat >>'{}'\necho >>'{}'\n",
        deaf.display(),
        told.display(),
        told.display()
    );
    let path = write(db, "tell.sh", script);
    format!("[\"/bin/sh\", \"{}\"]", path.display())
}

/// Returns the messages that the program received, in order.
fn told(db: &TestDb) -> Vec<Value> {
    lines(&db.home().join("told"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn notify(db: &TestDb, every_secs: u32) -> String {
    format!("[notify]\nargv = {}\nevery_secs = {every_secs}\n", program(db))
}

/// Queues a task and lets it fail without a retry.
fn exhaust(db: &TestDb) -> String {
    let id = db.cli().run(&["queue", "work", "--max-retries", "1"]).ok();
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["process-run", "--drain"]).ok();
    id
}

/// Inserts an expired pause, which housekeeping removes.
fn leave_ended_pause(db: &TestDb) {
    let row = "('class', 'x', '2020-01-01 00:00:00.000000')";
    db.execute(&format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\", \"Until\") VALUES {row}"));
}

fn pauses(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueuePauses\"")
}

each_engine! {
    fn hooks_and_notice_programs_get_no_characters_that_control_a_terminal(db) {
        let script = "printf 'C\\302\\2332J\\342\\200\\256z' >&2; exit 1";
        let hooks = format!("[hooks]\nfailed = {}\n", program(db));
        db.configure(&format!("{}{}{hooks}", notify(db, 0), shell_class(db, "work", script)));
        exhaust(db);
        db.cli().run(&["create-runs"]).ok();
        let messages = told(db);
        assert!(messages.iter().any(|message| message["event"] == "failed"), "{messages:?}");
        assert!(messages.iter().any(|message| message["event"] == "notices"), "{messages:?}");
        let text = std::fs::read_to_string(db.home().join("told")).unwrap();
        assert_eq!((harmful(&text), text.matches("C\\u009b2J\\u202ez").count() >= 2), (None, true), "{text}");
    }

    fn results_of_several_lines_reach_a_hook_on_one_line(db) {
        db.configure(&format!("{}[hooks]\nsuccess = {}\n", shell_class(db, "work", "true"), program(db)));
        db.cli().run(&["queue", "work"]).ok();
        let run: Value = db.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
        let (id, token) = (run["run_id"].to_string(), run["token"].as_str().unwrap());
        db.cli().run(&["worker", "resolve", &id, "--token", token, "--results", "{\n\t\"sent\": [3,\r\n4]\n}"]).ok();
        let messages = told(db);
        assert_eq!((messages.len(), &messages[0]["results"]), (1, &serde_json::json!({ "sent": [3, 4] })));
    }

    fn one_live_worker_of_a_host_does_the_housekeeping_and_all_send_notices(db) {
        let class = shell_class(db, "work", "exit 1");
        db.configure(&class);
        leave_ended_pause(db);
        let first = db.cli().spawn(&["work"]);
        wait_until("the first worker has done its housekeeping", || pauses(db) == 0);
        db.cli().run(&["queue", "work", "--max-retries", "1"]).ok();
        wait_until("the task has failed without a retry", || count_notices(db) == 1);
        leave_ended_pause(db);
        db.configure(&format!("{}{class}", notify(db, 0)));
        let second = db.cli().spawn(&["work"]);
        wait_until("the second one has sent its notices", || told(db).len() == 1);
        assert_eq!(pauses(db), 1, "the other worker does the housekeeping");
        for worker in [first, second] {
            signal(&worker, Signal::KILL);
            assert_eq!(finish(worker).code, None);
        }
        let third = db.cli().spawn(&["work"]);
        wait_until("the worker that did the housekeeping is dead", || pauses(db) == 0);
        signal(&third, Signal::TERM);
        assert_eq!(finish(third).code, Some(0));
    }

    fn somebody_is_told_once_of_a_task_that_is_exhausted(db) {
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "echo 'no such mailbox' >&2; exit 1")));
        let id = exhaust(db);
        assert_eq!(told(db), [] as [Value; 0], "only a process that creates runs sends it");
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let messages = told(db);
        assert_eq!(messages.len(), 1);
        assert_eq!((&messages[0]["event"], &messages[0]["count"]), (&"notices".into(), &1.into()));
        let notice = &messages[0]["notices"][0];
        assert_eq!((notice["kind"].as_str(), notice["class"].as_str()), (Some("exhausted"), Some("work")));
        assert_eq!(notice["task_id"].to_string(), id);
        assert!(notice["error_message"].as_str().unwrap().contains("no such mailbox"), "{notice}");
        assert_eq!(messages[0]["groups"][0]["count"], 1);
        assert!(!messages[0]["database"].as_str().unwrap().contains("taskqueue:taskqueue@"), "it has a password");
    }

    fn a_task_that_is_tried_again_is_no_notice(db) {
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        process(db, "work", "{}");
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (0, 0));
    }

    fn what_gathers_between_two_messages_is_one_message(db) {
        db.configure(&format!("{}{}", notify(db, 3_600), shell_class(db, "work", "exit 1")));
        exhaust(db);
        db.cli().run(&["create-runs"]).ok();
        exhaust(db);
        exhaust(db);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (1, 2), "another message came too early");
        db.execute("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = '2020-01-01 00:00:00.000000'");
        db.cli().run(&["create-runs"]).ok();
        let messages = told(db);
        assert_eq!((messages.len(), messages[1]["count"].as_i64(), count_notices(db)), (2, Some(2), 0));
    }

    fn notices_are_sent_although_the_last_were_sent_under_a_clock_ahead(db) {
        db.configure(&format!("{}{}", notify(db, 3_600), shell_class(db, "work", "exit 1")));
        let set = |ahead_secs| db.execute(&format!("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = {}", sql_now(db.engine, ahead_secs)));
        exhaust(db);
        set(86_400);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (0, 1), "a host may have such a pause");
        set(200_000);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (1, 0));
        let late = format!("SELECT COUNT(*) AS value FROM \"TaskQueueTimers\" WHERE \"NextOn\" > {}", sql_now(db.engine, 3_700));
        assert_eq!(db.number(&late), 0);
    }

    fn a_log_that_is_a_pipe_or_a_link_is_refused_and_blocks_nothing(db) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let (pipe, link, log) = (db.home().join("pipe"), db.home().join("link"), db.home().join("log"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let class = shell_class(db, "work", "exit 1");
        let with_log = |log: &Path| db.configure(&format!("[notify]\nlog = {log:?}\nevery_secs = 0\n{class}"));
        db.configure(&class);
        exhaust(db);
        for refused in [&pipe, &link] {
            with_log(refused);
            let said = db.cli().run(&["create-runs"]).stderr;
            assert!(said.contains(&format!("{}: it is not a regular file", refused.display())), "{said}");
            assert_eq!((count_notices(db), log.exists()), (1, false));
        }
        with_log(&log);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((lines(&log).len(), count_notices(db)), (1, 0));
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn nothing_is_forgotten_while_nobody_can_be_told(db) {
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        let deaf = write(db, "deaf", "");
        exhaust(db);
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("1 notices were not delivered") && ended.stderr.contains("exited with 7: nobody home"), "{ended:?}");
        assert_eq!((ended.code, count_notices(db)), (Some(0), 1));
        std::fs::remove_file(deaf).unwrap();
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (1, 0));
    }

    fn a_failed_notify_program_logs_nothing_and_a_failed_log_runs_no_program(db) {
        let log = db.home().join("notices.log");
        let with_log = |log: &Path| {
            db.configure(&format!("{}log = {log:?}\n{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        };
        with_log(&log);
        let deaf = write(db, "deaf", "");
        exhaust(db);
        for _ in 0..3 {
            db.cli().run(&["create-runs"]).ok();
        }
        assert_eq!((lines(&log).len(), count_notices(db)), (0, 1));
        std::fs::remove_file(deaf).unwrap();
        with_log(&db.home().join("nowhere/notices.log"));
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("notices cannot be written to "), "{ended:?}");
        assert_eq!((told(db).len(), count_notices(db)), (0, 1));
        with_log(&log);
        for _ in 0..2 {
            db.cli().run(&["create-runs"]).ok();
        }
        assert_eq!((lines(&log).len(), told(db).len(), count_notices(db)), (1, 1, 0));
    }

    fn a_notice_that_cannot_be_sent_for_a_week_is_removed_despite_a_program(db) {
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        write(db, "deaf", "");
        exhaust(db);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(count_notices(db), 1);
        db.execute("UPDATE \"TaskQueueNotices\" SET \"OccurredOn\" = '2020-01-01 00:00:00.000000'");
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("1 notices were not delivered"), "{ended:?}");
        assert_eq!(count_notices(db), 0);
    }

    fn a_notice_older_than_a_week_is_sent_by_a_host_that_can_before_removal(db) {
        db.configure(&shell_class(db, "work", "exit 1"));
        exhaust(db);
        db.execute("UPDATE \"TaskQueueNotices\" SET \"OccurredOn\" = '2020-01-01 00:00:00.000000'");
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        db.cli().run(&["create-runs"]).ok();
        assert_eq!((told(db).len(), count_notices(db)), (1, 0));
    }

    fn a_silent_host_leaves_notices_to_others_for_a_week(db) {
        db.configure(&format!("[notify]\nstderr = false\n{}", shell_class(db, "work", "exit 1")));
        exhaust(db);
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
        assert_eq!(count_notices(db), 1);
        db.execute("UPDATE \"TaskQueueNotices\" SET \"OccurredOn\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(db.cli().run(&["create-runs"]).stderr, "");
        assert_eq!(count_notices(db), 0);
    }

    fn a_quarantined_task_and_a_held_class_are_notices_in_a_log(db) {
        let log = db.home().join("notices.log");
        db.configure(&format!(
            "[notify]\nlog = {log:?}\nevery_secs = 0\n{}crash_limit = 1\n[class.gone]\nargv = [\"/nowhere/program\"]\n",
            shell_class(db, "crash", "kill -KILL $$")
        ));
        for class in ["crash", "gone"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let mut kinds: Vec<(String, String)> = lines(&log)
            .iter()
            .map(|notice| (notice["kind"].as_str().unwrap().to_owned(), notice["class"].as_str().unwrap().to_owned()))
            .collect();
        kinds.sort();
        assert_eq!(kinds, [("held", "gone"), ("quarantined", "crash")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    fn two_processes_that_create_runs_tell_of_a_notice_once(db) {
        db.configure(&format!("{}{}", notify(db, 0), shell_class(db, "work", "exit 1")));
        exhaust(db);
        let calls: Vec<_> = (0..8).map(|_| db.cli().spawn(&["create-runs"])).collect();
        for call in calls {
            assert!(call.wait_with_output().unwrap().status.success());
        }
        let notices: Vec<Value> = told(db).iter().flat_map(|message| message["notices"].as_array().unwrap().clone()).collect();
        assert_eq!(notices.len(), 1, "{notices:?}");
    }

    fn hooks_are_started_after_a_success_a_retry_and_a_failure(db) {
        let argv = program(db);
        db.configure(&format!(
            "[hooks]\nsuccess = {argv}\nfailed = {argv}\nretry = {argv}\n{}{}",
            shell_class(db, "good", "echo '{\"result\":{\"rows\":3}}' >&3"),
            shell_class(db, "work", "exit 1")
        ));
        process(db, "good", "{}");
        process(db, "work", "{}");
        exhaust(db);
        let news = told(db);
        let events: Vec<&str> = news.iter().map(|news| news["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["success", "retry", "failed"]);
        assert_eq!((&news[0]["results"]["rows"], &news[0]["class"]), (&3.into(), &"good".into()));
        assert_eq!((&news[1]["error_code"], &news[1]["failed_retries"]), (&"exit:1".into(), &1.into()));
        assert_eq!((&news[2]["task_id"], &news[2]["max_retries"]), (&3.into(), &1.into()));
        let decisions: Vec<&str> = news[1..].iter().map(|news| news["decision"].as_str().unwrap()).collect();
        assert_eq!(decisions, ["exit 1: retry (default rule)", "exit 1: not retried (default rule)"]);
    }

    fn create_runs_starts_the_hook_of_a_run_whose_runner_died(db) {
        let argv = program(db);
        db.configure(&format!("[hooks]\nfailed = {argv}\nretry = {argv}\n{}", shell_class(db, "work", "true")));
        for retries in ["5", "1"] {
            db.cli().run(&["queue", "work", "--max-retries", retries]).ok();
        }
        db.cli().run(&["create-runs"]).ok();
        for _ in 0..2 {
            claim_as(&mut db.store(), &dead_process()).unwrap();
        }
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let mut news: Vec<(String, i64, String)> = told(db)
            .iter()
            .map(|news| {
                let text = |field: &str| news[field].as_str().unwrap().to_owned();
                (text("event"), news["task_id"].as_i64().unwrap(), text("error_code"))
            })
            .collect();
        news.sort();
        let expected = [("failed", 2, "runner-died"), ("retry", 1, "runner-died")];
        assert_eq!(news, expected.map(|(event, task, code)| (event.to_owned(), task, code.to_owned())));
    }

    fn a_hook_that_fails_is_named_and_changes_nothing(db) {
        let argv = program(db);
        db.configure(&format!("[hooks]\nsuccess = {argv}\n{}", shell_class(db, "good", "true")));
        write(db, "deaf", "");
        db.cli().run(&["queue", "good"]).ok();
        let ended = db.cli().run(&["tick"]);
        assert!(ended.stderr.contains("the hook \"success\" of run 1: /bin/sh exited with 7: nobody home"), "{ended:?}");
        assert_eq!(ended.code, Some(0));
        assert_eq!(task(db, "1")["status"], "success");
    }

    fn the_end_of_a_claimants_run_starts_hooks_too_and_names_one_that_fails(db) {
        let argv = program(db);
        db.configure(&format!("[hooks]\nsuccess = {argv}\n"));
        let end_one = || {
            db.cli().run(&["queue", "any", "--any-class"]).ok();
            let run: Value = db.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
            db.cli().run(&["worker", "resolve", &run["run_id"].to_string(), "--token", run["token"].as_str().unwrap()])
        };
        assert_eq!(end_one().ok(), "");
        assert_eq!(told(db)[0]["event"], "success");
        write(db, "deaf", "");
        let ended = end_one();
        assert!(ended.stderr.contains("the hook \"success\" of run 2: /bin/sh exited with 7: nobody home"), "{ended:?}");
        assert_eq!((ended.code, told(db).len()), (Some(0), 1));
    }

    fn an_announcement_that_cannot_be_made_is_refused_with_the_reason(db) {
        let cases = [
            ("[notify]\nevery_secs = 60\n", "argv or log is required"),
            ("[notify]\nlog = \"notices.log\"\n", "log must be an absolute path"),
            ("[notify]\nlog = \"/x\"\nstderr = true\n", "stderr cannot be combined with other keys"),
            ("[notify]\nargv = [\"mail\"]\n", "needs an absolute path"),
            ("[notify]\nlog = \"/x\"\nevery_secs = -1\n", "every_secs is -1; it must be 0 to 86400"),
            ("[hooks]\nsuccess = []\n", "hooks: success: argv is empty"),
            ("[hooks]\ncancel = [\"/bin/true\"]\n", "unknown key `cancel`"),
        ];
        for (toml, words) in cases {
            db.configure(toml);
            let (error, _) = error_and_hint(&db.cli().run(&["create-runs"]).fails(78));
            assert!(error.contains(words), "{error}");
        }
    }
}
