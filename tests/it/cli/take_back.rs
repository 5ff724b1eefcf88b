//! `release --force` and `retry --force` take runs from claimants; `release --no-reject` releases one at no cost; `heartbeat
//! --check` only reads.

use std::path::Path;

use serde_json::{Value, json};

use super::claimants::{Held, claim_as, deadline, make_due, queue_and_claim};
use super::{detail, error_and_hint, task};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::TestDb;

fn kinds(db: &TestDb, task: &str) -> Vec<String> {
    let events = detail(db, task)["events"].clone();
    events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

fn count_of_kind(db: &TestDb, task: &str, kind: &str) -> usize {
    kinds(db, task).iter().filter(|found| *found == kind).count()
}

fn force(db: &TestDb, held: &Held) -> Value {
    db.cli().run(&["worker", "release", &held.run, "--force", "--reason", "bot was removed", "--json"]).json()
}

/// Returns status, failed retries and attempts of a task.
fn counted(db: &TestDb, id: &str) -> (String, i64, i64) {
    let task = task(db, id);
    (
        task["status"].as_str().unwrap().to_owned(),
        task["failed_retries"].as_i64().unwrap(),
        task["attempts"].as_i64().unwrap(),
    )
}

/// Returns the text between backquotes, as arguments of the program.
fn pasted(text: &str) -> Vec<String> {
    let command = text.split('`').nth(1).unwrap_or_else(|| panic!("no command: {text}"));
    command.split(' ').skip(1).map(str::to_owned).collect()
}

each_engine! {
    fn an_operator_takes_a_run_from_a_claimant_at_no_cost(db) {
        let held = queue_and_claim(db, &["--max-retries", "1"]);
        let taken = force(db, &held);
        assert_eq!((&taken["status"], &taken["claimant"], &taken["was_recorded_before"]), (&json!("released"), &json!("bot"), &json!(false)));
        assert_eq!(counted(db, &held.task), ("scheduled".to_owned(), 0, 0));
        let detail = detail(db, &held.task);
        let (run, event) = (&detail["runs"][0], &detail["events"][0]);
        assert_eq!((&run["status"], &run["error_code"]), (&json!("released"), &json!("taken-back")));
        assert!(run["error_message"].as_str().unwrap().ends_with(": bot was removed"), "{run}");
        assert_eq!((&event["kind"], &event["details"]["claimant"], &event["details"]["reason"]), (&json!("taken-back"), &json!("bot"), &json!("bot was removed")));
        assert_ne!(event["actor"], "bot");
        assert_eq!(detail["rejected_by"], json!([]));
        // A repeated call succeeds, and is stored once.
        assert_eq!(force(db, &held)["was_recorded_before"], true);
        assert_eq!(count_of_kind(db, &held.task, "taken-back"), 1);
        // The task is due at once, for the same claimant too.
        let again = claim_as(db, "bot").unwrap();
        assert_eq!(again.task, held.task);
        assert_eq!(again.say(db, "resolve", &[]).ok(), "");
    }

    fn a_claimant_whose_run_was_taken_is_refused_and_its_result_is_kept(db) {
        let held = queue_and_claim(db, &[]);
        force(db, &held);
        for (verb, args) in [("heartbeat", &[][..]), ("heartbeat", &["--check"]), ("progress", &["3"]), ("resolve", &["--results", "[7]"]), ("release", &["--no-reject"])] {
            let (error, _) = error_and_hint(&held.say(db, verb, args).fails(1));
            assert!(error.contains("its status is released (taken-back: taken from its claimant by "), "{verb}: {error}");
        }
        let late = db.raw().texts("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result' ORDER BY \"Id\"");
        assert_eq!(late.len(), 2, "{late:?}");
        assert!(late[0].as_ref().unwrap().contains("[7]"), "{late:?}");
        assert_eq!(counted(db, &held.task), ("scheduled".to_owned(), 0, 0));
    }

    fn a_run_that_ended_before_the_operator_forced_it_is_left_alone(db) {
        let held = queue_and_claim(db, &[]);
        assert_eq!(held.say(db, "resolve", &[]).ok(), "");
        let shown = db.cli().run(&["worker", "release", &held.run, "--force", "--json"]).fails(1);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&shown["error"]["code"], &shown["error"]["found"]["status"]), (&json!("not_taken_back"), &json!("success")));
        assert_eq!(counted(db, &held.task), ("success".to_owned(), 0, 1));
        assert_eq!(count_of_kind(db, &held.task, "taken-back"), 0);
    }

    fn what_no_claimant_has_in_progress_cannot_be_taken(db) {
        db.cli().run(&["queue", "--any-class", "work"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let (error, hint) = error_and_hint(&db.cli().run(&["worker", "release", "1", "--force"]).fails(1));
        assert!(error.contains("run 1 cannot be released with --force: its status is scheduled"), "{error}");
        assert_eq!(db.cli().run(&pasted(&hint).iter().map(String::as_str).collect::<Vec<_>>()).code, Some(0));
        let held = claim_as(db, "bot").unwrap();
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Claimant\" = NULL");
        let (error, hint) = error_and_hint(&db.cli().run(&["worker", "release", &held.run, "--force"]).fails(1));
        assert!(error.contains("a runner holds it"), "{error}");
        assert!(hint.contains("`taskqueue cancel 1`") && hint.contains("`taskqueue create-runs`"), "{hint}");
        assert_eq!(db.cli().run(&["retry", "1", "--force"]).code, Some(1));
        assert_eq!(task(db, "1")["status"], "processing");
        assert_eq!(db.cli().run(&["worker", "release", "4711", "--force"]).code, Some(3));
        for bad in [&["worker", "release", "1"][..], &["worker", "release", "1", "--force", "--token", "x"], &["worker", "release", "1", "--force", "--no-reject"]] {
            assert_eq!(db.cli().run(bad).code, Some(2), "{bad:?}");
        }
    }

    fn a_verb_without_the_token_of_its_run_names_what_takes_the_run_back(db) {
        for (verb, options) in [("release", &[][..]), ("release", &["--no-reject"]), ("resolve", &["--results", "7"]), ("heartbeat", &["--check"])] {
            let held = queue_and_claim(db, &[]);
            let (error, hint) = error_and_hint(&db.cli().run(&[&["worker", verb, &held.run], options].concat()).fails(2));
            assert!(error.contains(&format!("`{verb}` of run {} needs --token", held.run)), "{error}");
            assert_eq!(error.contains("--force"), verb == "release", "{error}");
            let pasted = pasted(&hint);
            assert_eq!(pasted, ["worker", "release", &held.run, "--force"]);
            assert_eq!(db.cli().run(&pasted.iter().map(String::as_str).collect::<Vec<_>>()).code, Some(0));
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
        let held = queue_and_claim(db, &[]);
        for words in [&["50"][..], &["50", "half of it"]] {
            let (_, hint) = error_and_hint(&db.cli().run(&[&["report", "progress", &held.run], words].concat()).fails(2));
            let line = hint.split('`').nth(1).unwrap().replacen("taskqueue", env!("CARGO_BIN_EXE_taskqueue"), 1);
            let shell = db.cli().program(Path::new("/bin/sh")).env("token", &held.token).run(&["-c", &line]);
            assert_eq!(shell.code, Some(0), "{line}: {shell:?}");
            assert_eq!(detail(db, &held.task)["runs"][0]["percents_completed"], 50);
        }
    }

    fn retry_takes_a_run_from_a_claimant_and_starts_its_task_anew(db) {
        let held = queue_and_claim(db, &[]);
        held.say(db, "resolve", &["--error", "smtp"]).ok();
        make_due(db);
        let held = claim_as(db, "bot").unwrap();
        assert_eq!(db.cli().run(&["retry", &held.task]).code, Some(1));
        let preview = db.cli().run(&["retry", &held.task, "--force", "--dry-run"]);
        assert!(preview.stderr.contains("would be taken from claimant bot and retried"), "{preview:?}");
        assert_eq!(task(db, &held.task)["status"], "processing");
        let answer = db.cli().run(&["retry", &held.task, "--force", "--reason", "gone", "--json"]).json();
        assert_eq!((&answer["result"], &answer["dry_run"]), (&json!("retried"), &json!(false)));
        assert_eq!(counted(db, &held.task), ("scheduled".to_owned(), 0, 1));
        assert_eq!((count_of_kind(db, &held.task, "taken-back"), count_of_kind(db, &held.task, "retried")), (1, 1));
        assert_eq!(held.say(db, "resolve", &[]).code, Some(1));
        assert_eq!(claim_as(db, "bot").unwrap().task, held.task);
    }

    fn a_run_that_is_to_be_cancelled_is_cancelled_when_it_is_taken(db) {
        let [first, second, third] = [(); 3].map(|()| queue_and_claim(db, &[]));
        for held in [&first, &second, &third] {
            assert_eq!(db.cli().run(&["cancel", &held.task]).code, Some(0));
        }
        assert_eq!(force(db, &first)["status"], "cancelled");
        assert_eq!(counted(db, &first.task).0, "cancelled");
        assert_eq!(force(db, &first)["was_recorded_before"], true);
        assert_eq!(db.cli().run(&["retry", &second.task, "--force"]).code, Some(0));
        assert_eq!(counted(db, &second.task).0, "scheduled");
        assert_eq!(detail(db, &second.task)["runs"][0]["status"], "cancelled");
        // A filter selects it while it is in progress.
        assert_eq!(db.cli().run(&["retry", "class=work", "--force", "--yes"]).stderr, "1 task retried\n");
        assert_eq!((counted(db, &third.task).0.as_str(), count_of_kind(db, &third.task, "retried")), ("scheduled", 1));
    }

    fn retry_with_force_does_with_others_what_it_does_without(db) {
        let [taken, later, failed, done] = [(); 4].map(|()| queue_and_claim(db, &[]));
        failed.say(db, "resolve", &["--error", "smtp"]).ok();
        done.say(db, "resolve", &[]).ok();
        let ended = db.cli().run(&["retry", "class=work", "--force", "--yes", "--rate", "1/1h", "--data", "7"]);
        assert!(ended.stderr.contains("3 tasks retried"), "{ended:?}");
        let all = [&taken, &later, &failed, &done];
        assert_eq!(all.map(|held| counted(db, &held.task).0), ["scheduled", "scheduled", "failed", "success"]);
        assert_eq!(all.map(|held| count_of_kind(db, &held.task, "taken-back")), [1, 1, 0, 0]);
        assert_eq!(all.map(|held| count_of_kind(db, &held.task, "retried")), [1, 1, 1, 0]);
        assert_eq!(all.map(|held| task(db, &held.task)["data"].clone()), [json!(7), json!(7), json!(7), json!({})]);
        assert_eq!(claim_as(db, "bot").unwrap().task, taken.task);
        assert!(claim_as(db, "bot").is_none(), "the others are due in an hour and in two");
    }

    fn a_claimant_releases_a_run_at_no_cost(db) {
        let held = queue_and_claim(db, &["--max-retries", "1"]);
        assert_eq!(held.say(db, "release", &["--no-reject", "--reason", "shutting down"]).ok(), "");
        assert_eq!(counted(db, &held.task), ("scheduled".to_owned(), 0, 0));
        let detail = detail(db, &held.task);
        assert_eq!(detail["rejected_by"], json!([]));
        let (run, event) = (&detail["runs"][0], &detail["events"][0]);
        assert_eq!((&run["status"], &run["error_code"], &run["error_message"]), (&json!("released"), &json!("claimant-released"), &json!("shutting down")));
        assert_eq!((&event["kind"], &event["actor"]), (&json!("released"), &json!("bot")));
        assert_eq!(held.say(db, "release", &["--no-reject", "--json"]).json()["was_recorded_before"], true);
        // The first resolution counts.
        assert_eq!(held.say(db, "release", &[]).code, Some(1));
        let again = claim_as(db, "bot").unwrap();
        assert_eq!(again.task, held.task);
        db.cli().run(&["cancel", &again.task]).ok();
        assert_eq!(again.say(db, "release", &["--no-reject", "--json"]).json()["status"], "cancelled");
        assert_eq!(counted(db, &held.task).0, "cancelled");
    }

    fn a_task_that_failed_before_is_failed_again_when_its_run_is_released(db) {
        let held = queue_and_claim(db, &[]);
        held.say(db, "resolve", &["--error", "smtp"]).ok();
        for release in ["by the claimant", "by an operator"] {
            make_due(db);
            let held = claim_as(db, "bot").unwrap();
            match release {
                "by the claimant" => assert_eq!(held.say(db, "release", &["--no-reject"]).ok(), ""),
                _ => assert_eq!(force(db, &held)["status"], "released"),
            }
            assert_eq!(counted(db, &held.task), ("failed".to_owned(), 1, 1), "{release}");
        }
        assert!(claim_as(db, "bot").is_some(), "it is due at once");
    }

    fn heartbeat_check_asks_and_moves_no_deadline(db) {
        let held = queue_and_claim(db, &["--timeout", "100s"]);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {}", sql_now(db.engine, 50)));
        let row = || db.store().get_run(held.run.parse().unwrap()).unwrap();
        let before = row();
        assert_eq!(held.say(db, "heartbeat", &["--check"]).ok(), "");
        let answer = held.say(db, "heartbeat", &["--check", "--json"]).json();
        let deadline_said = answer["deadline"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert_eq!((deadline_said, &answer["cancel_requested"]), (deadline(db, &held), &json!(false)));
        assert_eq!(row(), before);
        db.cli().run(&["cancel", &held.task, "--reason", "wrong file"]).ok();
        let asked = held.say(db, "heartbeat", &["--check"]);
        assert_eq!((asked.code, asked.stdout.as_str(), asked.stderr.as_str()), (Some(1), "cancel: wrong file\n", ""));
        assert_eq!(held.say(db, "heartbeat", &["--check", "--json"]).code, Some(1));
        held.say(db, "release", &["--no-reject"]).ok();
        assert!(held.say(db, "heartbeat", &["--check"]).fails(1).contains("is not yours"));
        assert_eq!(db.cli().run(&["worker", "heartbeat", "4711", "--token", "x", "--check"]).code, Some(3));
    }

    fn status_explain_and_doctor_show_the_deadline_of_a_claim(db) {
        let held = queue_and_claim(db, &["--timeout", "2h"]);
        let (id, until) = (held.task.as_str(), json!(deadline(db, &held)));
        for args in [&["status", id][..], &["status"], &["status", "--runs"], &["explain", id], &["doctor"]] {
            let shown = db.cli().run(args).stdout;
            assert!(shown.contains("deadline"), "{args:?}: {shown}");
        }
        let status = detail(db, id);
        assert_eq!((&status["why"]["deadline"], &status["runs"][0]["lease_expires_on"]), (&until, &until));
        let explained = db.cli().run(&["explain", id, "--json"]).json();
        assert_eq!((&explained["claim"]["deadline"], &explained["cause"]["why"]["deadline"], &explained["next"]["on"]), (&until, &until, &until));
        let examined = db.cli().run(&["doctor", "--json"]);
        let examined: Value = serde_json::from_str(&examined.stdout).unwrap();
        assert_eq!((&examined["claims"][0]["deadline"], &examined["claims"][0]["claimant"]), (&until, &json!("bot")));
        held.say(db, "resolve", &[]).ok();
        assert!(!db.cli().run(&["doctor"]).stdout.contains("claim  run"));
        assert_eq!(db.cli().run(&["explain", id, "--json"]).json()["claim"], Value::Null);
    }

    fn what_is_printed_of_a_claim_that_a_verb_cannot_end_works_when_pasted(db) {
        for verb in ["cancel", "retry", "explain", "doctor"] {
            let held = queue_and_claim(db, &[]);
            let words = if verb == "doctor" { vec![verb] } else { vec![verb, &held.task] };
            let ended = db.cli().run(&words);
            let text = format!("{}{}", ended.stdout, ended.stderr);
            let line = text.lines().find(|line| line.contains("if claimant bot is gone")).unwrap_or_else(|| panic!("{verb}: {text}"));
            let pasted = pasted(line);
            assert_eq!(pasted, ["worker", "release", &held.run, "--force"], "{verb}");
            assert_eq!(db.cli().run(&pasted.iter().map(String::as_str).collect::<Vec<_>>()).code, Some(0), "{verb}");
            // Removes it, so that it does not disturb the next case.
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
        let held = queue_and_claim(db, &[]);
        let answer = db.cli().run(&["cancel", &held.task, "--json"]).json();
        assert_eq!((&answer["claim"]["run_id"].to_string(), &answer["claim"]["claimant"]), (&held.run, &json!("bot")));
    }
}
