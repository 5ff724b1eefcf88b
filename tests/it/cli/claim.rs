//! `claim`: which runs a claimant gets, in which order, and how it waits.

use std::net::TcpListener;
use std::process::Child;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{error_and_hint, signal};
use crate::races::stage::end_lease;
use crate::races::tools::wait_blocked;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

fn queue(db: &TestDb, class: &str, data: &str) -> String {
    db.cli().run(&["queue", "--any-class", class, data]).ok()
}

/// Returns the lines that `claim` prints.
fn claim(db: &TestDb, args: &[&str]) -> Vec<Value> {
    let ended = db.cli().env("TASKQUEUE_CLAIMANT", "bot").run(&[&["worker", "claim"], args].concat());
    assert!(matches!(ended.code, Some(0 | 3)), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn statuses(db: &TestDb) -> String {
    let all = db.raw().texts("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"");
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Waits until the process has handlers for the signals, as the kernel shows.
pub(super) fn wait_until_it_listens(claiming: &Child) {
    let status = format!("/proc/{}/status", claiming.id());
    wait_until("the signal handlers are installed", || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap().to_owned();
        // The command may have ended before the signal.
        let term_and_int = (1 << 14) | (1 << 1);
        text.contains("State:\tZ") || u64::from_str_radix(&caught, 16).unwrap() & term_and_int == term_and_int
    });
}

each_engine! {
    fn a_claimant_gets_the_first_run_with_all_that_it_needs(db) {
        queue(db, "mail.send", "{\"to\":\n\t\"ann\",\"n\":1.10}");
        queue(db, "mail.send", "2");
        let ended = db.cli().run(&["worker", "claim", "--claimant", "bot"]);
        let line = ended.ok();
        assert!(line.contains("\"data\":{\"to\":  \"ann\",\"n\":1.10},\"attempt\":1,"), "{line}");
        let run: Value = serde_json::from_str(&line).unwrap();
        for (field, expected) in
            [("run_id", json!(1)), ("task_id", json!(1)), ("class", json!("mail.send")), ("max_retries", json!(5)), ("timeout_secs", json!(86_400))]
        {
            assert_eq!(run[field], expected, "{field}: {line}");
        }
        assert!(run["token"].as_str().unwrap().starts_with("1-"), "{line}");
        let lease = db.store().get_run("1".parse().unwrap()).unwrap().lease_expires_on.unwrap();
        assert_eq!(run["deadline"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap(), lease);
        assert_eq!(statuses(db), "processing scheduled");
        let task = crate::cli::detail(db, "1");
        assert_eq!(task["why"]["claimant"], "bot", "{task}");
        assert_eq!(task["runs"][0]["runner_id"], Value::Null);
        assert_eq!(task["events"][0]["kind"], "claimed");
        assert_eq!(task["events"][0]["actor"], "bot");
        let shown = db.cli().run(&["status"]).ok();
        assert!(shown.contains("claimant bot on "), "{shown}");
        assert!(db.cli().run(&["status", "1"]).ok().contains("by claimant bot on "));
    }

    fn a_claimant_takes_the_classes_that_it_names_in_the_order_of_all_claims(db) {
        for (class, priority) in [("a", "0"), ("mail.send", "0"), ("mail.read", "5"), ("mail", "9")] {
            db.cli().run(&["queue", "--any-class", class, "--priority", priority]).ok();
        }
        db.cli().run(&["queue", "--any-class", "a", "--in", "1h"]).ok();
        let classes = |args: &[&str]| -> Vec<String> {
            claim(db, args).iter().map(|run| run["class"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(classes(&["--class", "mail.*"]), ["mail.read"]);
        assert_eq!(classes(&["--class", "b", "mail.?ead"]), Vec::<String>::new());
        assert_eq!(classes(&["--count", "10"]), ["mail", "a", "mail.send"]);
        assert_eq!(classes(&[]), Vec::<String>::new());
        assert_eq!(db.number("SELECT COUNT(DISTINCT \"Token\") AS value FROM \"TaskQueueRuns\""), 4);
    }

    fn a_claim_without_result_says_so_by_its_exit_status(db) {
        assert_eq!(db.cli().run(&["worker", "claim", "--claimant", "bot"]).fails(3), "");
        assert_eq!(db.cli().run(&["worker", "claim", "--claimant", "bot", "--wait", "300ms"]).fails(124), "");
        for bad in [
            &["worker", "claim"][..],
            &["worker", "claim", "--claimant", "a b"],
            &["worker", "claim", "--claimant", ""],
            &["worker", "claim", "--claimant", "bot", "--class", "a b"],
            &["worker", "claim", "--claimant", "bot", "--class", ""],
            &["worker", "claim", "--claimant", "bot", "--count", "0"],
            &["worker", "claim", "--claimant", "bot", "--wait", "soon"],
            &["worker", "claim", "--claimant", "bot", "--process", "0"],
            &["worker", "claim", "--claimant", "bot", "--process", "1"],
            &["worker", "claim", "--claimant", "bot", "--process", "4194305"],
        ] {
            assert_eq!(db.cli().run(bad).code, Some(2), "{bad:?}");
        }
        let (error, hint) = error_and_hint(&db.cli().run(&["worker", "claim"]).fails(2));
        assert!(error.contains("TASKQUEUE_CLAIMANT") && hint.contains("--claimant bot-1"), "{error}\n{hint}");
        queue(db, "a", "1");
        let ended = db.cli().env("TASKQUEUE_CLAIMANT", "named").run(&["worker", "claim"]);
        assert!(ended.ok().contains("\"run_id\":1"));
        assert_eq!(db.text("SELECT \"Claimant\" AS value FROM \"TaskQueueRuns\"").unwrap(), "named");
    }

    fn a_claim_that_waits_gets_what_is_queued_meanwhile(db) {
        let waiting = db.cli().spawn(&["worker", "claim", "--claimant", "bot", "--wait", "60s"]);
        queue(db, "a", "[1]");
        let line = finish(waiting).ok();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["data"], json!([1]), "{line}");
    }

    fn claimants_alone_take_back_what_a_silent_one_had(db) {
        queue(db, "a", "1");
        assert_eq!(claim(db, &[])[0]["run_id"], json!(1));
        assert_eq!(claim(db, &[]), [Value::Null; 0], "its deadline has not passed");
        end_lease(db);
        let taken = &claim(db, &["--claimant", "other"])[0];
        assert_eq!((&taken["task_id"], &taken["attempt"]), (&json!(1), &json!(2)));
        assert_eq!(statuses(db), "timeout processing");
    }

    fn a_claim_that_waits_takes_back_what_is_over_meanwhile(db) {
        queue(db, "a", "1");
        assert_eq!(claim(db, &[]).len(), 1);
        // A lease does not end within its length after the start of the server, which may have been a moment ago.
        let waiting = db.cli().spawn(&["worker", "claim", "--claimant", "other", "--wait", "5m"]);
        wait_until_it_listens(&waiting);
        end_lease(db);
        let line = finish(waiting).ok();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["attempt"], json!(2), "{line}");
    }

    fn claimants_alone_take_back_what_a_dead_one_had(db) {
        let mut worker = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
        queue(db, "a", "1");
        assert_eq!(claim(db, &["--process", &worker.id().to_string()]).len(), 1);
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert_eq!(claim(db, &["--claimant", "other"])[0]["attempt"], json!(2));
    }

    fn a_claim_sees_a_task_of_plain_sql_beside_runs_that_wait(db) {
        queue(db, "a", "1");
        db.cli().run(&["create-runs"]).ok();
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Priority\") VALUES ('b', 9)");
        assert_eq!(claim(db, &[])[0]["class"], json!("b"));
    }

    fn a_claim_that_waits_ends_with_a_signal_and_has_taken_nothing(db) {
        for number in [Signal::INT, Signal::TERM] {
            let waiting = db.cli().spawn(&["worker", "claim", "--claimant", "bot", "--wait", "1h"]);
            wait_until_it_listens(&waiting);
            signal(&waiting, number);
            let ended = finish(waiting);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
        }
    }

    fn a_claim_that_waits_for_a_lock_ends_at_a_signal_and_takes_nothing(db) {
        queue(db, "a", "1");
        db.cli().run(&["create-runs"]).ok();
        for number in [Signal::INT, Signal::TERM] {
            let mut others = db.raw();
            others.execute(match db.engine {
                EngineUnderTest::Sqlite => "BEGIN IMMEDIATE",
                EngineUnderTest::Postgres => "BEGIN; LOCK TABLE \"TaskQueueRuns\" IN SHARE ROW EXCLUSIVE MODE",
                EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "LOCK TABLES \"TaskQueue\" READ",
            });
            let waiting = db.cli().spawn(&["worker", "claim", "--claimant", "bot"]);
            wait_until_it_listens(&waiting);
            wait_blocked(db);
            signal(&waiting, number);
            let ended = finish(waiting);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
            others.execute(if db.is_mysql_like() { "UNLOCK TABLES" } else { "COMMIT" });
            db.cli().run(&["create-runs"]).ok();
            assert_eq!(statuses(db), "scheduled");
        }
        assert_eq!(claim(db, &[]).len(), 1);
    }

    fn a_claim_and_a_signal_at_once_take_a_run_and_print_it_or_take_none(db) {
        const ROUNDS: usize = 8;
        let mut printed = 0;
        for round in 0..ROUNDS {
            queue(db, "a", &round.to_string());
            let claiming = db.cli().spawn(&["worker", "claim", "--claimant", "bot"]);
            wait_until_it_listens(&claiming);
            signal(&claiming, if round % 2 == 0 { Signal::INT } else { Signal::TERM });
            let ended = finish(claiming);
            assert!(matches!((ended.code, ended.stdout.as_str()), (Some(130), "")) || ended.code == Some(0), "{ended:?}");
            printed += ended.stdout.lines().count();
            db.cli().run(&["create-runs"]).ok();
            let all = statuses(db);
            assert_eq!(all.matches("processing").count(), printed, "{ended:?}: {all}");
        }
        // Each task was claimed once, and none was lost.
        assert_eq!(claim(db, &["--count", "10"]).len() + printed, ROUNDS);
    }

    fn what_nobody_reads_is_given_back(db) {
        queue(db, "a", "1");
        queue(db, "a", "2");
        let mut claiming = db.cli().spawn(&["worker", "claim", "--claimant", "bot", "--count", "2", "--wait", "60s"]);
        drop(claiming.stdout.take());
        let ended = finish(claiming);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(statuses(db), "released released");
        assert_eq!(db.number("SELECT SUM(\"FailedRetries\" + \"Attempts\") AS value FROM \"TaskQueue\""), 0);
        assert_eq!(claim(db, &["--count", "5"]).len(), 2);
    }
}

each_server! {
    fn a_claim_whose_server_never_answers_ends_with_a_signal(db) {
        // It accepts connections, and never sends anything.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let (login, place) = db.url_text().rsplit_once('@').unwrap();
        let (_, database) = place.split_once('/').unwrap();
        let url = format!("{login}@{}/{database}", silent.local_addr().unwrap());
        for number in [Signal::INT, Signal::TERM] {
            let waiting = db.cli().env("TASKQUEUE_DATABASE_URL", &url).spawn(&["worker", "claim", "--claimant", "bot"]);
            wait_until_it_listens(&waiting);
            signal(&waiting, number);
            let ended = finish(waiting);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
        }
    }
}
