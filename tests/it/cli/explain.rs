//! `taskqueue explain`: real cases in which a task does not run, and the explanation of each.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ECHO, error_and_hint, queue, shell_class, signal, task, wait_for_file, write};
use crate::conformance::fixture::{allow_unknown_statuses, insert_runner};
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};
use crate::{each_engine, each_server};
use taskqueue_process::identities::identity::ProcessIdentity;

/// Classes `echo`, `bad`, and `slow`, whose handler writes that it has begun and works until the file `go` exists.
fn configure(db: &TestDb) {
    let slow = format!("cd {}; echo on > began; until test -e go; do sleep 0.02; done", db.home().display());
    let (slow, bad) = (shell_class(db, "slow", &slow), shell_class(db, "bad", "echo no such box >&2; exit 65"));
    db.configure(&format!("{ECHO}{slow}{bad}"));
}

/// Queues a task and creates its run.
fn waiting(db: &TestDb, class: &str, more: &[&str]) -> String {
    let id = queue(db, class, more);
    db.cli().run(&["create-runs"]).ok();
    id
}

fn explain(db: &TestDb, id: &str) -> Value {
    db.cli().run(&["explain", "--json", id]).json()
}

/// Checks that the answer is one sentence with these words, in JSON and as text, followed by the remedy; returns the JSON.
#[track_caller]
fn expect(db: &TestDb, id: &str, cause: &str, words: &str) -> Value {
    let explained = explain(db, id);
    assert_eq!(explained["cause"]["why"]["reason"], cause, "{explained}");
    let text = db.cli().run(&["explain", id]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with(&format!("Task {id} ")) && lines[0].contains(words) && lines[0].ends_with(['.', '?', '…']),
        "{words}: {text}"
    );
    let (answer, remedy) = (explained["answer"].as_str().unwrap(), explained["remedy"].as_str());
    assert!(answer.starts_with(&format!("Task {id} ")) && answer.contains(words), "{answer}");
    assert_eq!(lines.get(1).copied(), remedy.map(|remedy| format!("  {remedy}")).as_deref(), "{text}");
    assert!(!text.contains("MET"), "the conditions are only in --verbose: {text}");
    let verbose = db.cli().run(&["explain", id, "--verbose"]).ok();
    assert!(verbose.contains("\nnext   ") && verbose.contains("MET"), "{verbose}");
    explained
}

/// Checks whether the next change of that condition is given.
#[track_caller]
fn expect_next(explained: &Value, condition: &str) {
    assert_eq!(explained["next"]["condition"], condition, "{explained}");
    assert!(explained["next"]["on"].as_str() > explained["now"].as_str(), "{explained}");
}

#[track_caller]
fn expect_no_next(explained: &Value) {
    assert_eq!(explained["next"], Value::Null, "{explained}");
}

/// Starts a runner, and waits until it is registered.
fn start_runner(db: &TestDb, args: &[&str]) -> std::process::Child {
    let child = db.cli().spawn(args);
    let live = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";
    wait_until("a runner is registered", || db.number(live) == 1);
    child
}

fn stop(child: std::process::Child) {
    signal(&child, Signal::TERM);
    let _ = finish(child);
}

each_engine! {
    fn a_task_whose_time_has_not_come_is_explained_with_that_time(db) {
        configure(db);
        let later = queue(db, "echo", &["--in", "1h"]);
        let explained = expect(db, &later, "not_yet", "waits for its time: due in 59m");
        expect_next(&explained, "due");
        assert_eq!(explained["next"]["on"], task(db, &later)["scheduled_on"]);
        assert_eq!(explained["remedy"], format!("taskqueue edit {later} --in 0s"));
        db.cli().run(&["edit", &later, "--in", "0s"]).ok();
        expect_no_next(&expect(db, &later, "waits_for_create_runs", "is due and has no run yet: a worker, tick or create-runs creates the run"));
    }

    fn a_retry_that_waits_is_explained_with_the_error_before_it(db) {
        db.configure(&shell_class(db, "again", "echo greylisted >&2; exit 75"));
        let id = queue(db, "again", &[]);
        db.cli().run(&["tick"]).ok();
        let explained = expect(db, &id, "not_yet", "failed 1 of 5 times and will be retried in ");
        expect_next(&explained, "due");
        let attempt = &explained["attempts"][0];
        assert_eq!((&attempt["attempt"], &attempt["status"], &attempt["error_code"]), (&json!(1), &json!("error"), &json!("exit:75")));
        assert_eq!(attempt["decision"], "exit 75: retry (default rule)");
        let text = db.cli().run(&["explain", &id, "-v"]).ok();
        assert!(text.contains("exit:75: greylisted") && text.contains("exit 75: retry (default rule)"), "{text}");
        assert_eq!(explained["remedy"], format!("taskqueue retry {id}"));
    }

    fn a_pause_is_explained_with_who_ordered_it_and_when_it_ends(db) {
        configure(db);
        let id = waiting(db, "echo", &[]);
        db.cli().run(&["pause", "--class", "ec*", "--reason", "the disk is full"]).ok();
        let explained = expect(db, &id, "paused", "waits because it is paused: class ec* paused ");
        expect_no_next(&explained);
        assert_eq!(explained["remedy"], "taskqueue resume --class 'ec*'");
        db.cli().run(&["resume", "--class", "ec*"]).ok();
        db.cli().run(&["pause", "--all", "--for", "2h"]).ok();
        let explained = expect(db, &id, "paused", "waits because it is paused: everything paused");
        expect_next(&explained, "not_paused");
        assert_eq!(explained["remedy"], "taskqueue resume --all");
        // Every unmet condition is listed, not only the cause.
        let unmet = |condition: &Value| condition["is_met"] == false;
        let conditions = explained["conditions"].as_array().unwrap();
        let unmet: Vec<&Value> = conditions.iter().filter(|condition| unmet(condition)).map(|condition| &condition["condition"]).collect();
        assert_eq!(unmet, ["not_paused", "runner_is_free"]);
    }

    fn a_class_at_its_limits_is_explained(db) {
        configure(db);
        db.cli().run(&["limit", "set", "slow", "--running", "1"]).ok();
        waiting(db, "slow", &[]);
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        let second = waiting(db, "slow", &[]);
        let explained = expect(db, &second, "class_is_full", "waits for a limit: class slow may have 1 run at a time");
        assert_eq!(explained["remedy"], "taskqueue status class=slow status=processing");
        write(db, "go", "");
        finish(runner).ok();
        db.cli().run(&["limit", "set", "echo", "--rate", "1/1h"]).ok();
        waiting(db, "echo", &[]);
        db.cli().run(&["process-run", "--drain"]).ok();
        let second = waiting(db, "echo", &[]);
        let explained = expect(db, &second, "rate_reached", "waits for a limit: class echo may start 1/3600s, the next one in ");
        expect_next(&explained, "within_rate");
    }

    fn a_limit_key_without_a_free_slot_is_explained(db) {
        configure(db);
        waiting(db, "slow", &["--limit-key", "server-7"]);
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        let second = waiting(db, "echo", &["--limit-key", "server-7"]);
        expect(db, &second, "key_is_full", "waits for a limit: limit key server-7 allows 1 run at a time, and task 1 has the slot");
        assert!(db.cli().run(&["status"]).ok().contains("   waiting for a limit key 1"));
        for (class, number) in [("echo", 1), ("slow", 0)] {
            let counts = db.cli().run(&["status", "--json", "--class", class]).json()["counts"].clone();
            assert_eq!(counts["waiting_for_key"], json!({"count": number, "or_more": false}), "{class}");
        }
        write(db, "go", "");
        finish(runner).ok();
    }

    fn a_class_that_nobody_executes_is_explained_with_the_names_like_it(db) {
        configure(db);
        let id = waiting(db, "ecko", &["--any-class"]);
        let explained = expect(db, &id, "no_handler_here", "waits for a handler: class ecko has none on this host");
        assert_eq!(explained["nearest_classes"], json!(["echo"]));
        let text = db.cli().run(&["explain", &id]).ok();
        assert!(text.contains("\nnote: class ecko is not known here; did you mean \"echo\"?"), "{text}");
    }

    fn a_held_class_is_explained_with_the_next_try(db) {
        db.configure("[class.gone]\nargv = [\"/no/such/program\"]\n");
        let id = queue(db, "gone", &[]);
        db.cli().run(&["tick"]).ok();
        let explained = expect(db, &id, "class_held", "waits: class gone is held here, the next try is in 4m");
        expect_next(&explained, "class_not_held");
        assert_eq!(explained["remedy"], "taskqueue class release gone");
    }

    fn a_run_without_a_runner_is_explained(db) {
        configure(db);
        let id = waiting(db, "echo", &[]);
        let explained = expect(db, &id, "no_runner", "waits for a runner: no runner is alive");
        expect_no_next(&explained);
        let runner = start_runner(db, &["work", "--slots", "1", "--class", "slow"]);
        expect(db, &id, "no_runner_for_class", "waits for a runner: 1 runner is alive, but none for class echo");
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        expect(db, &id, "runner_limit_reached", "waits for a runner: 1 runner slot is in use, and the limit is 1");
        stop(runner);
    }

    fn a_runner_that_may_not_claim_is_explained(db) {
        configure(db);
        db.cli().run(&["pause", "--runner", "r1", "--for", "1h"]).ok();
        let runner = start_runner(db, &["work", "--slots", "1", "--name", "r1"]);
        let id = waiting(db, "echo", &[]);
        let explained = expect(db, &id, "runners_paused", "waits because its runner is paused: runner r1 paused");
        expect_next(&explained, "runner_is_free");
        assert_eq!(explained["remedy"], "taskqueue resume --runner r1");
        stop(runner);
    }

    fn a_run_behind_others_is_explained(db) {
        configure(db);
        waiting(db, "slow", &[]);
        let runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        waiting(db, "slow", &[]);
        let third = waiting(db, "slow", &[]);
        let explained = expect(db, &third, "runners_busy", "waits for a free slot: 1 runner slot of its class is busy; 1 run is ahead of it");
        assert_eq!(explained["cause"]["why"]["before"], json!({ "count": 1, "or_more": false }));
        // A runner with a free slot that has not polled yet.
        insert_runner(db, &ProcessIdentity::own().unwrap(), 1);
        expect(db, &third, "waits_its_turn", "waits for a runner; 1 run is ahead of it");
        let second = (third.parse::<i64>().unwrap() - 1).to_string();
        let explained = explain(db, &second);
        assert_eq!(explained["cause"], Value::Null, "{explained}");
        assert!(db.cli().run(&["explain", &second]).ok().starts_with(&format!("Task {second} can run now: the next free runner takes it.")));
        write(db, "go", "");
        finish(runner).ok();
    }

    fn what_everything_waits_for_is_found_at_the_end_of_a_chain(db) {
        configure(db);
        let first = queue(db, "echo", &["--in", "1h"]);
        let second = queue(db, "echo", &["--after", &first]);
        let third = queue(db, "echo", &["--after", &second]);
        let explained = expect(db, &third, "waits_for_dependencies", &format!("waits for {second} (scheduled); task {first} blocks them: it becomes due in "));
        let blockers = explained["blockers"].as_array().unwrap();
        let named: Vec<String> = blockers.iter().map(|blocker| format!("{} {}", blocker["task_id"], blocker["why"]["reason"])).collect();
        assert_eq!(named, [format!("{second} \"waits_for_dependencies\""), format!("{first} \"not_yet\"")]);
        // Its next change is the next change of all of them.
        assert_eq!((&explained["next"]["task_id"], &explained["next"]["on"]), (&json!(first.parse::<i64>().unwrap()), &task(db, &first)["scheduled_on"]));
        assert_eq!(explained["remedy"], format!("taskqueue edit {first} --in 0s"));
    }

    fn explain_follows_the_prerequisite_that_blocks_for_ever_among_several(db) {
        configure(db);
        let later = queue(db, "echo", &["--in", "1h"]);
        let bad = queue(db, "bad", &[]);
        db.cli().run(&["tick"]).ok();
        let last = queue(db, "echo", &["--after", &format!("{later},{bad}")]);
        let explained = explain(db, &last);
        assert_eq!((&explained["blockers"][0]["task_id"], &explained["blockers"][0]["why"]["reason"]), (&json!(bad.parse::<i64>().unwrap()), &json!("exhausted")));
        assert_eq!(explained["remedy"], format!("taskqueue retry {bad}"));
        expect_no_next(&explained);
    }

    fn tasks_that_wait_for_each_other_are_explained_as_a_circle(db) {
        configure(db);
        let first = queue(db, "echo", &[]);
        let second = queue(db, "echo", &["--after", &first]);
        db.execute(&format!("INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES ({first}, {second})"));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1 WHERE \"Id\" = {first}"));
        let explained = expect(db, &first, "waits_for_dependencies", "will never run: tasks ");
        assert_eq!(explained["circle"].as_array().map(Vec::len), Some(3), "{explained}");
        expect_no_next(&explained);
    }

    fn a_task_that_is_over_is_explained_with_how_each_attempt_ended(db) {
        configure(db);
        let bad = queue(db, "bad", &[]);
        let good = queue(db, "echo", &[]);
        db.cli().run(&["tick"]).ok();
        let explained = expect(db, &bad, "exhausted", "will not run again: it failed with exit:65: no such box, and the rule `exit 65: no_retry (default rule)` allows no retry");
        expect_no_next(&explained);
        assert_eq!(explained["attempts"][0]["decision"], "exit 65: no_retry (default rule)");
        assert_eq!(explained["remedy"], format!("taskqueue retry {bad}"));
        let text = db.cli().run(&["explain", &bad, "--verbose"]).ok();
        assert!(text.contains("next   finished; it will not run again unless you retry it"), "{text}");
        expect(db, &good, "done", "succeeded ");
        let cancelled = queue(db, "echo", &[]);
        db.cli().run(&["cancel", &cancelled]).ok();
        let explained = expect(db, &cancelled, "cancelled", "was cancelled ");
        assert_eq!(explained["remedy"], format!("taskqueue retry {cancelled}"));
    }

    fn a_task_whose_key_another_one_has_is_explained(db) {
        configure(db);
        let first = queue(db, "bad", &["--unique", "order-17"]);
        db.cli().run(&["tick"]).ok();
        let second = queue(db, "bad", &["--unique", "order-17", "--in", "1h"]);
        let explained = expect(db, &first, "exhausted", "will not run again: it failed");
        assert_eq!(explained["key_holder"], second.parse::<i64>().unwrap());
        let text = db.cli().run(&["explain", &first]).ok();
        assert!(text.contains(&format!("\nnote: task {second} has the key order-17: this task cannot run again")), "{text}");
        assert_eq!(explain(db, &second)["key_holder"], Value::Null);
    }

    fn a_quarantined_task_is_explained(db) {
        db.configure(&format!("{}crash_limit = 1\n", shell_class(db, "work", "kill -SEGV $$")));
        let id = queue(db, "work", &[]);
        db.cli().run(&["tick"]).ok();
        expect_no_next(&expect(db, &id, "quarantined", "will not run again: it crashed 1 time and is quarantined; the last error is signal:11"));
    }

    fn what_keeps_a_schedule_is_explained(db) {
        configure(db);
        let id = queue(db, "echo", &["--every", "0 3 * * *"]);
        expect_next(&expect(db, &id, "not_yet", "waits for its time: due in "), "due");
        db.cli().run(&["schedule", "pause", &id]).ok();
        let explained = expect(db, &id, "schedule_paused", "waits because its schedule is paused");
        assert_eq!(explained["remedy"], format!("taskqueue schedule resume {id}"));
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"Recurrence\") VALUES ('echo', '{}', 'nonsense')");
        expect(db, "2", "not_planned", "will not run: its schedule cannot be read: ");
    }

    fn a_status_of_a_newer_version_is_explained_and_left_alone(db) {
        configure(db);
        let id = queue(db, "echo", &[]);
        allow_unknown_statuses(db).execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'hibernating'");
        let explained = expect(db, &id, "unknown_status", "is ignored: a newer version wrote its status hibernating");
        assert_eq!(explained["remedy"], Value::Null);
    }

    fn a_run_whose_runner_has_died_is_explained_until_it_is_taken_back(db) {
        configure(db);
        let id = waiting(db, "slow", &[]);
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        expect(db, &id, "running", "is running for ");
        signal(&runner, Signal::KILL);
        runner.wait().unwrap();
        let explained = expect(db, &id, "lost", "is dead; the next create-runs rescues its run");
        assert_eq!(explained["remedy"], "taskqueue create-runs");
        assert!(db.cli().run(&["explain"]).ok().contains(&format!("task {id} is not being worked on: the runner (process ")));
        assert!(db.cli().run(&["status"]).ok().contains("is dead; the next create-runs rescues the run"));
        // The same create-runs has created the next run.
        db.cli().run(&["create-runs"]).ok();
        expect(db, &id, "no_runner", "waits for a runner: no runner is alive");
    }

    fn explain_says_why_nothing_moves_at_all(db) {
        configure(db);
        let text = db.cli().run(&["explain"]).ok();
        assert_eq!(text, "Nothing runs: there are no tasks.\n  taskqueue help queue");
        let later = queue(db, "echo", &["--in", "1h"]);
        let text = db.cli().run(&["explain"]).ok();
        assert!(text.starts_with("Nothing runs: the next task is due in 59m") && text.ends_with(&format!(": task {later}.\n  taskqueue explain {later}")), "{text}");
        let due = waiting(db, "slow", &[]);
        let bad = queue(db, "bad", &[]);
        db.cli().run(&["pause", "--class", "slow"]).ok();
        let text = db.cli().run(&["explain"]).ok();
        assert!(text.starts_with("Nothing runs: 1 waiting run is not processed: class slow paused ") && text.ends_with("\n  taskqueue resume --class slow"), "{text}");
        assert!(db.cli().run(&["explain", "-v"]).ok().contains("running 0   slots 0/8   waiting runs 1   due 1\n"));
        let explained = db.cli().run(&["explain", "--json"]).json();
        assert!(explained["answer"].as_str().unwrap().starts_with("Nothing runs: 1 waiting run is not processed: "), "{explained}");
        assert_eq!(explained["schema"], "taskqueue.explain-queue/1");
        let first: Vec<String> = explained["first"].as_array().unwrap().iter().map(|first| format!("{} {}", first["task_id"], first["why"]["reason"])).collect();
        assert_eq!(first, [format!("{due} \"paused\""), format!("{bad} \"waits_for_create_runs\"")]);
        assert_eq!(explained["next"]["task_id"], later.parse::<i64>().unwrap());
    }

    fn several_tasks_are_explained_one_after_the_other(db) {
        configure(db);
        for _ in 0..3 {
            queue(db, "echo", &["--in", "1h"]);
        }
        let ended = db.cli().run(&["explain", "1-3", "-n", "2"]);
        assert_eq!(ended.stderr, "1 task more; -n N explains more\n");
        let text = ended.ok();
        assert_eq!(text.matches(" waits for its time: ").count(), 2, "{text}");
        let lines = db.cli().run(&["explain", "class=echo", "--json"]).ok();
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(db.cli().run(&["explain", "class=nope"]).code, Some(3));
        assert!(error_and_hint(&db.cli().run(&["explain", "99"]).fails(3)).0.contains("task 99"));
        db.cli().run(&["explain"]).ok();
    }
}

each_server! {
    fn a_clock_of_this_host_that_misleads_is_named_by_explain_and_doctor(db) {
        configure(db);
        let id = queue(db, "echo", &["--in", "30m"]);
        let host = |args: &[&str]| {
            let cli = db.cli().program(std::path::Path::new("faketime")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            cli.run(&[&["-f", "+1h", env!("CARGO_BIN_EXE_taskqueue")], args].concat())
        };
        // It was imported here, and not there.
        let explained = host(&["explain", "--json", &id]).json();
        assert_eq!(explained["cause"]["why"]["reason"], "not_yet");
        let ahead = explained["clock_ahead_secs"].as_i64().unwrap();
        assert!((3_590..=3_610).contains(&ahead), "{ahead}");
        let text = host(&["explain", &id]).ok();
        assert!(text.contains("\nnote: this host's clock is ") && text.contains(" ahead of the database's; taskqueue uses"), "{text}");
        let ended = host(&["doctor"]);
        assert!(ended.stdout.contains("this host's clock is ") && ended.stdout.contains("timedatectl"), "{ended:?}");
        assert_eq!(explain(db, &id)["clock_ahead_secs"], Value::Null);
    }
}
