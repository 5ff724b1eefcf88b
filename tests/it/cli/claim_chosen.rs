//! `claim` of one task, or of the tasks with a key.

use serde_json::{Value, json};

use super::claim::wait_until_it_listens;
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::{Ended, finish};

pub(super) fn queue(db: &TestDb, options: &[&str]) -> String {
    db.cli().run(&[&["queue", "--any-class", "work"], options].concat()).ok().trim().to_owned()
}

pub(super) fn claim(db: &TestDb, options: &[&str]) -> Ended {
    db.cli().env("TASKQUEUE_CLAIMANT", "bot").run(&[&["worker", "claim"], options].concat())
}

/// Returns the tasks that a claim gets.
pub(super) fn claimed(db: &TestDb, options: &[&str]) -> Vec<String> {
    let ended = claim(db, options);
    assert!(matches!(ended.code, Some(0 | 3)), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["task_id"].to_string()).collect()
}

/// Returns why a task cannot be claimed.
pub(super) fn why(db: &TestDb, options: &[&str]) -> String {
    let error = claim(db, &[&["--json"], options].concat()).fails(3);
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["code"], "not_claimable", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    message.split_once(" cannot be claimed now: ").unwrap().1.to_owned()
}

each_engine! {
    fn a_claim_takes_the_task_that_it_names_before_all_others(db) {
        let _ = queue(db, &["--priority", "9"]);
        let wanted = queue(db, &[]);
        assert_eq!(claimed(db, &["--task", &wanted, "--count", "5"]), [wanted.as_str()]);
        // The claim does not wait for a task that does not exist.
        assert!(claim(db, &["--task", "3", "--wait", "60s"]).fails(3).contains("there is no task 3"));
        assert_eq!(claimed(db, &[]), ["1"]);
    }

    fn a_claim_of_a_task_that_cannot_be_claimed_says_why(db) {
        let held = queue(db, &[]);
        assert_eq!(claimed(db, &["--task", &held]), [held.as_str()]);
        assert!(why(db, &["--task", &held]).starts_with("it is running: claimant bot on "));
        let later = queue(db, &["--in", "1h"]);
        assert!(why(db, &["--task", &later]).starts_with("it becomes due in "));
        let after = queue(db, &["--after", &held]);
        assert!(why(db, &["--task", &after]).contains(&held));
        let cancelled = queue(db, &[]);
        let _ = db.cli().run(&["cancel", &cancelled]).ok();
        assert_eq!(why(db, &["--task", &cancelled]), "it was cancelled");
        let other = queue(db, &["--unique", "a", "--limit-key", "b"]);
        assert_eq!(why(db, &["--task", &other, "--class", "mail", "x*"]), "its class is work");
        assert_eq!(why(db, &["--task", &other, "--unique", "b"]), "its unique key is \"a\"");
        assert_eq!(why(db, &["--task", &held, "--limit-key", "b"]), "its limit key is not set");
        let text = claim(db, &["--task", &later]).fails(3);
        assert!(text.contains(&format!("hint: `taskqueue explain {later}`")), "{text}");
        assert_eq!(claim(db, &["--task", &later, "--wait", "200ms"]).code, Some(124));
    }

    fn a_claim_waits_for_no_task_that_can_never_be_its_own(db) {
        let waits_for = |task: &str, options: &[&str]| claim(db, &[&["--task", task, "--wait", "1h"], options].concat());
        let end = |task: &str, verb: &[&str]| {
            let run = claim(db, &["--task", task]).json();
            let (id, token) = (run["run_id"].to_string(), run["token"].as_str().unwrap().to_owned());
            db.cli().run(&[&verb[..2], &[&id, "--token", &token], &verb[2..]].concat()).ok();
        };
        let over = [&["worker", "resolve"][..], &["worker", "resolve", "--error", "smtp", "--no-retry"], &["worker", "release"]];
        for (verb, words) in over.into_iter().zip(["it has succeeded", "not retried: smtp", "bot has rejected it"]) {
            let task = queue(db, &[]);
            end(&task, verb);
            let error = waits_for(&task, &[]).fails(3);
            assert!(error.contains(words), "{error}");
        }
        let cancelled = queue(db, &[]);
        let _ = db.cli().run(&["cancel", &cancelled]).ok();
        assert!(waits_for(&cancelled, &[]).fails(3).contains("it was cancelled"));
        let other = queue(db, &["--unique", "a"]);
        assert!(waits_for(&other, &["--class", "mail"]).fails(3).contains("its class is work"));
        // It ends while a claim waits for it.
        let run = db.cli().run(&["worker", "claim", "--claimant", "other", "--task", &other]).json();
        let waiting = db.cli().spawn(&["worker", "claim", "--claimant", "bot", "--task", &other, "--wait", "1h"]);
        wait_until_it_listens(&waiting);
        db.cli().run(&["worker", "resolve", &run["run_id"].to_string(), "--token", run["token"].as_str().unwrap()]).ok();
        assert!(finish(waiting).fails(3).contains("it has succeeded"));
    }

    fn pauses_limits_and_rejections_hold_for_a_task_that_a_claim_names(db) {
        let task = queue(db, &["--limit-key", "account-17"]);
        let run = claim(db, &["--task", &task]).json();
        let second = queue(db, &["--limit-key", "account-17"]);
        assert!(why(db, &["--task", &second]).contains("limit key account-17 allows 1 run at a time, and task"));
        let _ = db.cli().run(&["worker", "release", &run["run_id"].to_string(), "--token", run["token"].as_str().unwrap()]).ok();
        assert_eq!(why(db, &["--task", &task]), "bot has rejected it");
        let _ = db.cli().run(&["pause", "--class", "work", "--reason", "sale"]).ok();
        assert!(why(db, &["--task", &second]).contains("sale"));
        let _ = db.cli().run(&["resume", "--class", "work"]).ok();
        assert_eq!(claimed(db, &["--task", &second]), [second.as_str()]);
        let _ = db.cli().run(&["limit", "set", "work", "--running", "1"]).ok();
        let third = queue(db, &[]);
        assert!(why(db, &["--task", &third]).contains("its class has reached its limit of 1 running"));
    }

    fn a_claim_takes_only_tasks_with_the_key_that_it_names(db) {
        let other = queue(db, &["--priority", "9", "--limit-key", "account-1", "--unique", "x"]);
        let low = queue(db, &["--limit-key", "account-17", "--unique", "y"]);
        let high = queue(db, &["--limit-key", "account-17", "--priority", "5"]);
        let _ = db.cli().run(&["limit", "set", "--key", "account-17", "--running", "2"]).ok();
        assert_eq!(claimed(db, &["--limit-key", "account-18"]), [""; 0]);
        assert_eq!(claimed(db, &["--limit-key", "account-17", "--class", "x"]), [""; 0]);
        assert_eq!(claimed(db, &["--limit-key", "account-17", "--unique", "x"]), [""; 0]);
        assert_eq!(claimed(db, &["--limit-key", "account-17", "--count", "5"]), [high, low]);
        assert_eq!(claimed(db, &["--unique", "y"]), [""; 0], "it is claimed already");
        assert_eq!(claimed(db, &["--unique", "x", "--class", "w*"]), [other]);
    }

    fn a_claim_of_no_such_task_or_of_no_key_is_an_error(db) {
        let error: Value = serde_json::from_str(&claim(db, &["--task", "7", "--json"]).fails(3)).unwrap();
        assert_eq!(error["error"]["code"], json!("not_found"));
        for bad in [["--task", "x"], ["--task", "0"], ["--unique", ""], ["--limit-key", " a"], ["--unique", "ä"]] {
            assert_eq!(claim(db, &bad).code, Some(2), "{bad:?}");
        }
    }
}
