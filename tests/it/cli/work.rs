//! `taskqueue work`

use std::io::{BufRead as _, BufReader};

use rustix::process::Signal;
use taskqueue_process::identities::identity::ProcessIdentity;

use super::{ECHO, detail, printed, shell_class, signal, task, wait_for_file, write};
use crate::conformance::fixture::insert_runner;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Returns the number of runs with this status.
fn runs(db: &TestDb, status: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = '{status}'"))
}

fn queue_many(db: &TestDb, class: &str, count: usize) {
    let lines = format!("{{\"class\":\"{class}\"}}\n").repeat(count);
    db.cli().stdin(lines).run(&["queue", "--batch", "-"]).ok();
}

/// Returns the number of live runners with this many slots.
fn live_runners(db: &TestDb, slots: usize) -> i64 {
    let live = "\"FinishedOn\" IS NULL";
    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE {live} AND \"Slots\" = {slots}"))
}

each_engine! {
    fn work_drains_the_queue_and_ends_when_nothing_was_left_for_so_long(db) {
        db.configure(ECHO);
        queue_many(db, "echo", 30);
        let ended = db.cli().run(&["work", "--slots", "3", "--idle-exit", "0s"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert_eq!((runs(db, "success"), live_runners(db, 3)), (30, 0));
        let first = detail(db, "1");
        assert_eq!((&first["task"]["attempts"], printed(&first, "stdout")), (&1.into(), "{}"));
    }

    fn a_worker_has_the_slots_of_its_configuration_or_of_its_option(db) {
        db.configure(&format!("work_slots = 3\n{ECHO}"));
        let runners = |slots: usize| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"Slots\" = {slots}"));
        db.cli().run(&["work", "--idle-exit", "0s"]).ok();
        assert_eq!((runners(3), runners(2)), (1, 0));
        db.cli().run(&["work", "--idle-exit", "0s", "--slots", "2"]).ok();
        assert_eq!((runners(3), runners(2)), (1, 1));
    }

    fn work_says_with_v_or_as_json_what_it_did(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 1")));
        queue_many(db, "echo", 2);
        db.cli().run(&["queue", "bad", "--max-retries", "1"]).ok();
        let ended = db.cli().run(&["work", "-v", "--idle-exit", "0s"]);
        assert!(ended.stderr.ends_with("3 runs processed: 2 succeeded, 1 failed\n"), "{ended:?}");
        queue_many(db, "echo", 1);
        let report = db.cli().run(&["work", "--json", "--idle-exit", "0s"]).json();
        assert_eq!((&report["processed"], &report["succeeded"]), (&1.into(), &1.into()));
    }

    fn work_takes_what_becomes_due_while_it_works_and_what_waits_for_it(db) {
        db.configure(ECHO);
        let first = db.cli().run(&["queue", "echo", "--in", "1s"]).ok();
        let second = db.cli().run(&["queue", "echo", "--after", &first]).ok();
        let child = db.cli().spawn(&["work", "--slots", "2"]);
        wait_until("both are done", || task(db, &second)["status"] == "success");
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
        assert_eq!(task(db, &first)["status"], "success");
    }

    fn slots_work_at_the_same_time_and_count_under_the_limit(db) {
        // Each of the two handlers waits for the other.
        let script = "mkdir -p seen; touch seen/$TASKQUEUE_RUN_ID; until [ \"$(ls seen | wc -l)\" = 2 ]; do sleep 0.01; done";
        db.configure(&shell_class(db, "meet", &format!("cd {}; {script}", db.home().display())));
        queue_many(db, "meet", 2);
        let child = db.cli().spawn(&["work", "--slots", "2", "--name", "two"]);
        wait_until("both have succeeded", || runs(db, "success") == 2);
        assert_eq!(live_runners(db, 2), 1);
        assert!(db.cli().run(&["runner"]).ok().contains("two"));
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
        assert_eq!(live_runners(db, 2), 0);
    }

    fn work_waits_for_room_under_the_runner_limit(db) {
        db.configure(ECHO);
        queue_many(db, "echo", 1);
        insert_runner(db, &ProcessIdentity::own().unwrap(), 2);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "3"]).ok();
        let ended = db.cli().run(&["work", "--slots", "2", "--idle-exit", "0s"]);
        assert_eq!(ended.stderr, "runner limit reached (2 of 3 slots in use); waiting for free slots\n");
        let child = db.cli().spawn(&["work", "--slots", "2", "--max-runs", "1"]);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "4"]).ok();
        assert_eq!((finish(child).code, runs(db, "success")), (Some(0), 1));
    }

    fn work_takes_no_more_slots_than_the_runner_limit_allows(db) {
        db.configure(ECHO);
        queue_many(db, "echo", 1);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "2"]).ok();
        let ended = db.cli().run(&["work", "--slots", "3", "--idle-exit", "0s"]);
        let warning = "working with 2 of 3 slots: the setting TaskQueueRunnerLimit allows no more";
        assert!(ended.stderr.contains(warning), "{ended:?}");
        assert_eq!((ended.code, runs(db, "success")), (Some(0), 1));
    }

    fn work_ends_after_max_runs_and_gives_back_nothing_more(db) {
        db.configure(ECHO);
        queue_many(db, "echo", 5);
        db.cli().run(&["work", "--slots", "2", "--max-runs", "3"]).ok();
        assert_eq!((runs(db, "success"), runs(db, "released"), runs(db, "processing")), (3, 0, 0));
    }

    fn a_worker_that_uses_too_much_memory_ends_after_its_runs_in_progress(db) {
        let script = format!("cd {}; echo started > started; until [ -e go ]; do sleep 0.01; done", db.home().display());
        db.configure(&format!("{ECHO}{}", shell_class(db, "slow", &script)));
        queue_many(db, "slow", 3);
        let enough = db.cli().spawn(&["work", "--slots", "1", "--max-rss", "1TiB", "--max-runs", "2"]);
        wait_for_file(db, "started");
        write(db, "go", "");
        let ended = finish(enough);
        assert_eq!((ended.code, ended.stderr.as_str(), runs(db, "success")), (Some(0), "", 2));
        std::fs::remove_file(db.home().join("go")).unwrap();
        queue_many(db, "slow", 2);
        db.cli().run(&["queue", "echo", "--priority", "1"]).ok();
        // Every worker is larger than this; it checks only after its first run.
        let mut child = db.cli().spawn(&["work", "--slots", "1", "--max-rss", "1M"]);
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = said.next().unwrap();
        assert!(first.starts_with("this worker uses ") && first.contains("more than --max-rss 976.56 KiB"), "{first}");
        write(db, "go", "");
        assert_eq!((finish(child).code, said.next()), (Some(0), None));
        assert!(runs(db, "success") <= 4, "more than the run before the check and the one in progress");
        assert_eq!((runs(db, "processing"), db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"FailedRetries\" > 0")), (0, 0));
    }

    fn work_takes_only_the_classes_that_it_was_given(db) {
        db.configure(&format!("{ECHO}[class.other]\nargv = [\"/bin/cat\"]\n"));
        queue_many(db, "other", 1);
        queue_many(db, "echo", 1);
        db.cli().run(&["work", "--class", "ec*", "--idle-exit", "0s"]).ok();
        assert_eq!((&task(db, "1")["status"], &task(db, "2")["status"]), (&"scheduled".into(), &"success".into()));
        let ended = db.cli().run(&["work", "--class", "ecko", "--idle-exit", "0s"]);
        let warning = "warning: no class \"ecko\" is known here, and no task has it; did you mean \"echo\"";
        assert!(ended.code == Some(0) && ended.stderr.starts_with(warning), "{ended:?}");
    }

    fn the_first_signal_lets_runs_end_and_gives_the_others_back_at_no_cost(db) {
        let script = format!("cd {}; echo started > started; until [ -e go ]; do sleep 0.01; done", db.home().display());
        db.configure(&format!("stop_wait_secs = 3600\n{}", shell_class(db, "slow", &script)));
        queue_many(db, "slow", 2);
        let child = db.cli().spawn(&["work", "--slots", "1"]);
        wait_for_file(db, "started");
        signal(&child, Signal::TERM);
        write(db, "go", "");
        assert_eq!(finish(child).code, Some(0));
        assert_eq!((&task(db, "1")["status"], &task(db, "2")["status"]), (&"success".into(), &"scheduled".into()));
        assert_eq!((&task(db, "2")["attempts"], runs(db, "processing")), (&0.into(), 0));
    }

    fn the_second_signal_ends_the_runs_in_progress_and_gives_them_back(db) {
        let script = format!("cd {}; echo started > started; exec sleep 600", db.home().display());
        db.configure(&format!("stop_wait_secs = 3600\n{}", shell_class(db, "slow", &script)));
        queue_many(db, "slow", 1);
        let child = db.cli().spawn(&["work", "--slots", "2"]);
        wait_for_file(db, "started");
        signal(&child, Signal::TERM);
        // Not TERM again: the kernel merges two pending signals of one kind.
        signal(&child, Signal::INT);
        assert_eq!(finish(child).code, Some(0));
        assert_eq!((runs(db, "released"), &task(db, "1")["attempts"]), (1, &0.into()));
    }

    fn a_run_in_a_slot_is_cancelled_while_the_others_go_on(db) {
        let script = format!("cd {}; echo started > started; exec sleep 600", db.home().display());
        db.configure(&format!("{ECHO}{}", shell_class(db, "slow", &script)));
        queue_many(db, "slow", 1);
        let child = db.cli().spawn(&["work", "--slots", "2"]);
        wait_for_file(db, "started");
        queue_many(db, "echo", 3);
        wait_until("the others are done", || runs(db, "success") == 3);
        db.cli().run(&["cancel", "1"]).ok();
        wait_until("it is cancelled", || runs(db, "cancelled") == 1);
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
        assert_eq!(task(db, "1")["status"], "cancelled");
    }

    fn a_worker_and_cron_driven_runners_share_one_queue(db) {
        db.configure(&format!("{ECHO}[class.other]\nargv = [\"/bin/cat\"]\n"));
        let child = db.cli().spawn(&["work", "--slots", "2", "--class", "echo"]);
        for _ in 0..5 {
            queue_many(db, "other", 2);
            queue_many(db, "echo", 2);
            db.cli().run(&["tick"]).ok();
        }
        wait_until("all are done", || runs(db, "success") == 20);
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 20);
    }

    fn a_rescue_of_a_killed_worker_counts_begun_runs_and_not_those_ahead(db) {
        // Short runs first, so that it claims ahead. One run kills its worker: it was begun, and the runs behind it were not.
        db.configure(&shell_class(db, "work", "read -r data; [ \"$data\" = '{}' ] || kill -KILL $PPID"));
        queue_many(db, "work", 30);
        db.cli().run(&["queue", "work", "{\"deadly\":1}"]).ok();
        queue_many(db, "work", 30);
        assert_eq!(finish(db.cli().spawn(&["work", "--slots", "1"])).code, None);
        let over = || runs(db, "released") + runs(db, "success");
        let (held, were_over) = (runs(db, "processing"), over());
        db.cli().run(&["create-runs"]).ok();
        // Runs that had finished before have their outcome, although no runner was left to record it.
        assert_eq!((runs(db, "timeout"), over(), runs(db, "processing")), (1, were_over + held - 1, 0));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" < 31 AND \"LastStatus\" <> 'success'"), 0);
        assert_eq!(task(db, "31")["failed_retries"], 1);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" <> 31 AND \"FailedRetries\" > 0"), 0);
        // The next create-runs uses the marks of the slots.
        db.cli().run(&["create-runs"]).ok();
        let left = std::fs::read_dir(db.home().join(".local/state/taskqueue/spool")).unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.starts_with("slots-")), "{names:?}");
    }

    fn work_until_idle_takes_back_the_run_of_a_worker_that_was_killed(db) {
        let script = format!("cd {}; [ -e started ] || {{ echo started > started; exec sleep 600; }}", db.home().display());
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "slow", &script)));
        queue_many(db, "slow", 1);
        let killed = db.cli().spawn(&["work", "--slots", "1"]);
        wait_for_file(db, "started");
        signal(&killed, Signal::KILL);
        assert_eq!(finish(killed).code, None);
        db.cli().run(&["work", "--idle-exit", "0s"]).ok();
        assert_eq!((runs(db, "processing"), runs(db, "timeout"), runs(db, "success")), (0, 1, 1));
    }

    fn wrong_options_of_work_are_refused(db) {
        for arguments in [&["work", "--slots", "0"][..], &["work", "--idle-exit", "soon"], &["work", "--max-runs", "0"], &["work", "--max-rss", "much"], &["work", "--max-rss", "0"]] {
            assert_eq!(db.cli().run(arguments).code, Some(2), "{arguments:?}");
        }
    }
}
