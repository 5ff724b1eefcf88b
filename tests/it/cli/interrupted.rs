//! Verbs for several tasks that get a signal: they end between two parts and report how far they came.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::claim::wait_until_it_listens;
use super::status_terminal::of_terminal;
use super::{count_tasks, error_and_hint, signal};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// The answers for this many tasks exceed the buffer of a pipe, so the verb waits for the reader before it is done.
const MANY: i64 = 2_000;

fn fill(db: &TestDb, status: &str) {
    let row = format!("('work', '{status}', '2020-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000')");
    let rows = vec![row; usize::try_from(MANY).unwrap()].join(", ");
    db.execute("DELETE FROM \"TaskQueue\"");
    db.execute("DELETE FROM \"TaskQueueEvents\"");
    db.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UpdatedOn\") VALUES {rows}"
    ));
}

/// Returns the numbers of pruned tasks in the events, part by part.
fn pruned_by_events(db: &TestDb) -> Vec<i64> {
    let events = db.cli().run(&["events", "--kind", "pruned", "--json", "-n", "1000"]).ok();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.map(|event| event["details"]["tasks"].as_i64().unwrap()).collect()
}

/// Locks the tasks against writes until it is dropped.
fn lock_out(db: &TestDb) -> crate::support::database::Raw {
    let mut others = db.raw();
    others.execute(match db.engine {
        EngineUnderTest::Sqlite => "BEGIN IMMEDIATE",
        EngineUnderTest::Postgres => "BEGIN; LOCK TABLE \"TaskQueue\" IN EXCLUSIVE MODE",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "LOCK TABLES \"TaskQueue\" READ",
    });
    others
}

/// Reads what a terminal shows until it contains these words.
fn read_until(screen: &mut impl Read, shown: &mut String, words: &str) {
    let mut part = [0; 4096];
    while !shown.contains(words) {
        let count = screen.read(&mut part).unwrap();
        assert!(count > 0, "{words}: {shown}");
        shown.push_str(&String::from_utf8_lossy(&part[..count]));
    }
}

each_engine! {
    fn a_verb_for_many_tasks_ends_between_two_parts_and_says_how_far_it_came(db) {
        for (number, before, args, done, kind) in [
            (Signal::INT, "scheduled", &["cancel", "class=work"][..], "cancelled", "cancelled"),
            (Signal::TERM, "scheduled", &["edit", "--priority", "7", "class=work"], "edited", "edited"),
            (Signal::INT, "success", &["retry", "class=work", "status=success"], "retried", "retried"),
            (Signal::INT, "cancelled", &["prune", "class=work"], "deleted", "pruned"),
        ] {
            fill(db, before);
            let mut working = db.cli().spawn(&[args, &["--json", "--yes"]].concat());
            let mut answers = BufReader::new(working.stdout.take().unwrap());
            let mut text = String::new();
            answers.read_line(&mut text).unwrap();
            signal(&working, number);
            answers.read_to_string(&mut text).unwrap();
            let ended = finish(working);
            assert_eq!(ended.code, Some(130), "{ended:?}");
            let events = format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}'");
            let count = if kind == "pruned" { MANY - count_tasks(db) } else { db.number(&events) };
            assert!(count > 0 && count < MANY && count % 100 == 0, "{count}: {ended:?}");
            assert_eq!(text.lines().count(), usize::try_from(count).unwrap(), "not every changed task was reported");
            let error: Value = serde_json::from_str(&ended.stderr).unwrap();
            assert_eq!(error["error"]["code"], "interrupted");
            assert_eq!(error["error"]["message"], format!("stopped by a signal: {count} of {MANY} tasks {done}"));
            // The tasks that were edited or retried may match again.
            let hint = ["cancel", "prune"].contains(&args[0]).then_some("the same command continues with the rest");
            assert_eq!(error["error"]["hint"].as_str(), hint);
            if kind == "pruned" {
                assert_eq!(pruned_by_events(db).iter().sum::<i64>(), count);
            }
        }
    }

    fn each_part_of_a_prune_has_its_event(db) {
        fill(db, "cancelled");
        assert!(db.cli().run(&["prune", "--older-than", "0s", "--yes"]).stderr.starts_with("2000 finished tasks pruned"));
        assert_eq!(pruned_by_events(db), [500; 4]);
        fill(db, "cancelled");
        assert_eq!(db.cli().run(&["prune", "--yes", "class=work"]).stderr, "2000 tasks deleted\n");
        assert_eq!(pruned_by_events(db), [100; 20]);
    }

    fn a_prune_by_age_stops_between_parts_and_its_events_count_all_deleted(db) {
        fill(db, "cancelled");
        let others = lock_out(db);
        let pruning = db.cli().spawn(&["prune", "--older-than", "0s", "--yes"]);
        wait_until_it_listens(&pruning);
        signal(&pruning, Signal::TERM);
        drop(others);
        let ended = finish(pruning);
        let deleted = MANY - count_tasks(db);
        assert!(deleted <= 500, "another part was started: {deleted}");
        let so_far = if deleted == 0 { "nothing pruned".to_owned() } else { format!("{deleted} finished tasks pruned") };
        let (error, _) = error_and_hint(&ended.fails(130));
        assert_eq!(error, format!("error: stopped by a signal: {so_far} so far"));
        assert_eq!(pruned_by_events(db).iter().sum::<i64>(), deleted);
    }

    fn a_terminal_shows_what_a_prune_waits_for_and_what_a_signal_does(db) {
        fill(db, "cancelled");
        let others = lock_out(db);
        let mut pruning = of_terminal(db, 200, "", "prune --older-than 0s --yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut shown, mut screen) = (String::new(), pruning.stdout.take().unwrap());
        read_until(&mut screen, &mut shown, "waiting for the ");
        let mut keys = pruning.stdin.take().unwrap();
        keys.write_all(b"\x03").unwrap();
        read_until(&mut screen, &mut shown, "stopping after the part in progress; a second signal ends it at once");
        drop(others);
        screen.read_to_string(&mut shown).unwrap();
        assert_eq!(pruning.wait().unwrap().code(), Some(130), "{shown}");
        assert!(shown.contains(" pruned so far") && shown.contains("hint: the same command continues with the rest"), "{shown}");
    }

    fn an_interrupted_export_says_how_much_it_wrote_and_is_refused(db) {
        fill(db, "scheduled");
        for selection in [&[][..], &["class=work"]] {
            let mut exporting = db.cli().spawn(&[&["export"], selection].concat());
            let mut lines = BufReader::new(exporting.stdout.take().unwrap());
            let mut text = String::new();
            lines.read_line(&mut text).unwrap();
            signal(&exporting, Signal::INT);
            lines.read_to_string(&mut text).unwrap();
            let (error, _) = error_and_hint(&finish(exporting).fails(130));
            let tasks = text.lines().count() - 1;
            assert!(tasks < usize::try_from(MANY).unwrap(), "the signal came too late");
            let expected = format!("stopped by a signal: {tasks} task{} written; the export was cut off", if tasks == 1 { "" } else { "s" });
            assert!(error.contains(&expected), "{error}");
            let refused = db.cli().stdin(text).run(&["import", "--again"]);
            assert!(refused.code == Some(2) && refused.stderr.contains("the export was cut off"), "{refused:?}");
        }
    }

    fn a_second_signal_ends_a_verb_that_waits_for_the_lock_of_others(db) {
        fill(db, "scheduled");
        let _others = lock_out(db);
        let mut cancelling = db.cli().spawn(&["cancel", "--yes", "class=work"]);
        wait_until_it_listens(&cancelling);
        let mut end = None;
        wait_until("the signal ends it", || {
            signal(&cancelling, Signal::TERM);
            end = cancelling.try_wait().unwrap();
            end.is_some()
        });
        // If the first signal came before the first part, there was nothing to wait for.
        let end = end.unwrap();
        assert!(end.signal() == Some(15) || end.code() == Some(130), "{end:?}");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'cancelled'"), 0);
    }

    fn a_signal_that_comes_while_its_handler_is_registered_is_not_lost(db) {
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('work')");
        let calls = db.home().join("calls");
        let traced = |inject: &str, timeout: &str| {
            let options = ["-qq", "-e", "trace=rt_sigaction", "-e", inject, "-o", calls.to_str().unwrap()];
            let args = [env!("CARGO_BIN_EXE_taskqueue"), "wait", "1", "--timeout", timeout];
            db.cli().program(Path::new("strace")).run(&[&options[..], &args].concat())
        };
        let _ = traced("signal=all", "1ms").fails(124);
        let traced_calls = std::fs::read_to_string(&calls).unwrap();
        let registered = traced_calls.lines().position(|call| call.starts_with("rt_sigaction(SIGTERM, {")).unwrap() + 1;
        let _ = traced(&format!("inject=rt_sigaction:signal=TERM:when={registered}"), "60s").fails(130);
    }

    fn a_batch_whose_input_is_interrupted_says_that_nothing_was_done(db) {
        for (args, done) in [(&["queue", "--any-class", "--batch", "-"][..], "queued"), (&["import"], "imported")] {
            // Both ends of this pipe stay open.
            let line = format!("mkfifo {done}; exec {} {} <>{done}", env!("CARGO_BIN_EXE_taskqueue"), args.join(" "));
            let waiting = db.cli().program(Path::new("/bin/sh")).spawn(&["-c", &line]);
            wait_until_it_listens(&waiting);
            signal(&waiting, Signal::INT);
            let (error, _) = error_and_hint(&finish(waiting).fails(130));
            assert_eq!(error, format!("error: stopped by a signal: nothing was {done}"));
        }
        assert_eq!(count_tasks(db), 0);
    }
}
