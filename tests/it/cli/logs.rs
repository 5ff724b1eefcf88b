//! `taskqueue logs`

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use rustix::process::Signal;

use super::{ECHO, detail, error_and_hint, shell_class, signal, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Starts a task whose handler writes, waits for permission to continue, and writes again; returns it with its runner.
fn start(db: &TestDb) -> (String, Child) {
    let go = db.home().join("go");
    let script = format!("echo first; echo oops >&2; until [ -e {go:?} ]; do sleep 0.05; done; echo second");
    db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "slow", &script)));
    let id = db.cli().run(&["queue", "slow"]).ok();
    db.cli().run(&["create-runs"]).ok();
    let runner = db.cli().spawn(&["process-run"]);
    (id, runner)
}

/// Waits until other processes can read the first output of the handler.
fn wait_for_first(db: &TestDb, id: &str) {
    wait_until("what the handler has written can be read", || {
        let said = db.cli().run(&["logs", id]);
        said.stdout == "first\n" && said.stderr == "oops\n"
    });
}

fn go_on(db: &TestDb) {
    write(db, "go", "");
}

fn wait_for_handler_of_int(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    wait_until("the signal handlers are installed", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
    });
}

each_engine! {
    fn logs_prints_what_each_attempt_wrote_where_it_wrote_it(db) {
        let script = "echo attempt $TASKQUEUE_ATTEMPT; echo no luck >&2; exit $((TASKQUEUE_ATTEMPT == 1))";
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "second", script)));
        let id = db.cli().run(&["queue", "second"]).ok();
        let early = db.cli().run(&["logs", &id]);
        assert_eq!((early.code, early.stdout.as_str()), (Some(0), ""));
        assert!(early.stderr.contains(&format!("taskqueue explain {id}")), "{early:?}");
        assert!(db.cli().run(&["logs", &id, "--json"]).json()["run_id"].is_null());
        db.cli().run(&["tick"]).ok();
        wait_until("the second attempt has ended", || {
            db.cli().run(&["tick"]).ok();
            db.cli().run(&["wait", &id, "--timeout", "1ms"]).code == Some(0)
        });
        let newest = db.cli().run(&["logs", &id]);
        assert_eq!((newest.stderr.clone().as_str(), newest.ok().as_str()), ("no luck\n", "attempt 2"));
        assert_eq!(db.cli().run(&["logs", &id, "--attempt", "1"]).ok(), "attempt 1");
        assert_eq!(db.cli().run(&["logs", "last", "--follow"]).ok(), "attempt 2");
        let json = db.cli().run(&["logs", &id, "--attempt", "1", "--json"]).json();
        assert_eq!((&json["attempt"], &json["outputs"][1]["content"]), (&1.into(), &"attempt 1\n".into()));
        assert!(error_and_hint(&db.cli().run(&["logs", &id, "--attempt", "3"]).fails(3)).0.contains("attempt 3"));
    }

    fn what_a_handler_has_written_can_be_read_while_it_works(db) {
        let (id, runner) = start(db);
        wait_for_first(db, &id);
        let follower = db.cli().spawn(&["logs", &id, "--follow"]);
        wait_for_handler_of_int(&follower);
        go_on(db);
        let followed = finish(follower);
        assert_eq!((followed.stderr.clone().as_str(), followed.ok().as_str()), ("oops\n", "first\nsecond"));
        finish(runner).ok();
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "first\nsecond");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunOutputs\""), 2);
    }

    fn what_a_handler_wrote_before_its_runner_died_is_kept(db) {
        let (id, mut runner) = start(db);
        wait_for_first(db, &id);
        runner.kill().unwrap();
        runner.wait().unwrap();
        db.cli().run(&["create-runs"]).ok();
        let after = detail(db, &id);
        let lost = after["runs"].as_array().unwrap().iter().find(|run| run["status"] == "timeout").unwrap();
        assert_eq!(lost["error_code"], "runner-died");
        assert_eq!(db.cli().run(&["logs", &id, "--attempt", "1"]).ok(), "first");
        go_on(db);
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "first\nsecond");
    }

    fn runs_that_ended_before_they_began_do_not_hide_what_an_attempt_wrote(db) {
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "bad", "echo attempt $TASKQUEUE_ATTEMPT; exit 1")));
        let id = db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run"]).ok();
        for _ in 0..2 {
            wait_until("its next run waits", || {
                db.cli().run(&["create-runs"]).ok();
                db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'scheduled'") == 1
            });
            db.cli().run(&["edit", &id, "--in", "1h"]).ok();
            db.cli().run(&["edit", &id, "--at", "2020-01-01T00:00:00Z"]).ok();
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'released'"), 2);
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "attempt 1");
    }

    fn what_a_handler_writes_for_long_keeps_no_older_output_from_being_pruned(db) {
        let (id, runner) = start(db);
        wait_for_first(db, &id);
        db.configure(ECHO);
        let other = db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.cli().run(&["logs", &other]).ok(), "{}");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00' WHERE \"FinishedOn\" IS NOT NULL");
        db.cli().run(&["prune"]).ok();
        assert_eq!(db.cli().run(&["logs", &other]).ok(), "");
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "first");
        go_on(db);
        finish(runner).ok();
    }

    fn who_follows_hears_of_further_attempts_until_the_task_is_over(db) {
        let script = "echo attempt $TASKQUEUE_ATTEMPT; exit $((TASKQUEUE_ATTEMPT < 3))";
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "third", script)));
        let id = db.cli().run(&["queue", "third"]).ok();
        let follower = db.cli().spawn(&["logs", &id, "--follow", "--json"]);
        wait_for_handler_of_int(&follower);
        wait_until("the third attempt has ended", || {
            db.cli().run(&["tick"]).ok();
            db.cli().run(&["wait", &id, "--timeout", "1ms"]).code == Some(0)
        });
        let followed = finish(follower).ok();
        let texts: Vec<serde_json::Value> = followed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = texts.iter().map(|text| (text["attempt"].as_i64().unwrap(), text["text"].as_str().unwrap())).collect();
        assert!(told.ends_with(&[(3, "attempt 3\n")]), "{told:?}");
        assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "{told:?}");
    }

    fn a_class_is_followed_across_its_tasks_and_those_that_start_later(db) {
        let go = db.home().join("go");
        let slow = format!("echo first; until [ -e {go:?} ]; do sleep 0.05; done; printf second");
        let (slow, quick) = (shell_class(db, "mail.slow", &slow), shell_class(db, "mail.quick", "echo out; echo oops >&2"));
        db.configure(&format!("{ECHO}{slow}{quick}"));
        db.cli().run(&["queue", "mail.slow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        let mut follower = db.cli().spawn(&["logs", "--class", "mail.*", "--follow"]);
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("1/1 mail.slow | first"));
        for class in ["echo", "mail.quick"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["tick"]).ok();
        assert_eq!(lines.next().as_deref(), Some("3/3 mail.quick | out"));
        go_on(db);
        finish(runner).ok();
        assert_eq!(lines.next().as_deref(), Some("1/1 mail.slow | second"));
        signal(&follower, Signal::INT);
        let ended = finish(follower);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), "3/3 mail.quick | oops\nstopped by a signal: the tasks are not affected\n"));
        // Of tasks by id, it ends with them.
        assert_eq!(db.cli().run(&["logs", "1", "2", "3", "--follow"]).code, Some(0));
        let refused = error_and_hint(&db.cli().run(&["logs", "class=mail.*"]).fails(2));
        assert_eq!(refused.1, "hint: `taskqueue logs 3`; --follow prints all of them as they run");
    }

    fn who_follows_what_has_not_begun_waits_until_a_signal(db) {
        db.configure(ECHO);
        let id = db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let follower = db.cli().spawn(&["logs", &id, "-f"]);
        wait_for_handler_of_int(&follower);
        signal(&follower, Signal::INT);
        let ended = finish(follower);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), "stopped by a signal: task 1 is not affected; it is scheduled\n"));
        assert_eq!(db.cli().run(&["logs", "class=nope"]).code, Some(3));
        db.cli().run(&["queue", "echo"]).ok();
        let (error, hint) = error_and_hint(&db.cli().run(&["logs", "class=echo"]).fails(2));
        assert!(error.contains("2 tasks") && hint.contains("taskqueue logs "), "{error} {hint}");
    }

    fn what_a_coprocess_says_on_standard_error_can_be_read_while_it_works(db) {
        let go = db.home().join("go");
        let script = format!("import json, os, sys, time\n\
            def say(**m): sys.stdout.write(json.dumps(m) + '\\n'); sys.stdout.flush()\n\
            say(type='hello', version=1)\n\
            for line in sys.stdin:\n m = json.loads(line)\n if m['type'] != 'run': continue\n \
            sys.stderr.write('on the way\\n'); sys.stderr.flush()\n \
            while not os.path.exists({go:?}): time.sleep(0.05)\n say(type='done', id=m['id'])\n");
        let path = write(db, "slow.py", script);
        db.configure(&format!("[class.slow]\nargv = [\"/usr/bin/env\", \"python3\", {path:?}]\nprotocol = \"coprocess\"\n"));
        let id = db.cli().run(&["queue", "slow"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        wait_until("its output can be read", || db.cli().run(&["logs", &id]).stderr == "on the way\n");
        go_on(db);
        finish(runner).ok();
        assert_eq!(db.cli().run(&["logs", &id]).stderr, "on the way\n");
    }
}
