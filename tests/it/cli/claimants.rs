//! `heartbeat`, `progress`, `resolve` and `release`: what claimants report about their runs, and the errors when they have lost
//! them.

use serde_json::{Value, json};

use super::{detail, error_and_hint, task};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::{Ended, TestDb};

/// A run that a claimant holds.
pub(super) struct Held {
    pub(super) run: String,
    pub(super) task: String,
    pub(super) token: String,
}

pub(super) fn claim_as(db: &TestDb, claimant: &str) -> Option<Held> {
    let ended = db.cli().run(&["worker", "claim", "--claimant", claimant]);
    if ended.code == Some(3) {
        return None;
    }
    let line: Value = serde_json::from_str(&ended.ok()).unwrap();
    let text = |field: &str| line[field].to_string().replace('"', "");
    Some(Held { run: text("run_id"), task: text("task_id"), token: text("token") })
}

pub(super) fn queue_and_claim(db: &TestDb, options: &[&str]) -> Held {
    db.cli().run(&[&["queue", "--any-class", "work"], options].concat()).ok();
    claim_as(db, "bot").unwrap()
}

impl Held {
    pub(super) fn say(&self, db: &TestDb, verb: &str, args: &[&str]) -> Ended {
        let group = if ["progress", "message"].contains(&verb) { "report" } else { "worker" };
        db.cli().run(&[&[group, verb, &self.run], args, &["--token", &self.token]].concat())
    }
}

pub(super) fn deadline(db: &TestDb, held: &Held) -> chrono::DateTime<chrono::Utc> {
    db.store().get_run(held.run.parse().unwrap()).unwrap().lease_expires_on.unwrap()
}

pub(super) fn make_due(db: &TestDb) {
    db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
}

fn end_lease(db: &TestDb) {
    db.execute("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = '2020-01-01 00:00:00.000000' WHERE \"Status\" = 'processing'");
    for (name, value) in [("Renewal", "1"), ("Margin", "1"), ("Time", "5")] {
        db.cli().run(&["setting", "set", &format!("TaskQueueLease{name}"), value]).ok();
    }
    crate::support::wait_until("leases count", || db.store().leases_count(5).unwrap());
}

each_engine! {
    fn heartbeats_and_progress_move_the_deadline(db) {
        let held = queue_and_claim(db, &["--timeout", "100s"]);
        let first = deadline(db, &held);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {}", sql_now(db.engine, 5)));
        assert_eq!(held.say(db, "heartbeat", &[]).ok(), "");
        assert!(deadline(db, &held) >= first);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {}", sql_now(db.engine, 5)));
        let answer = held.say(db, "progress", &["40", "half of it", "--json"]).json();
        assert_eq!(answer["run_id"].to_string(), held.run);
        assert!(answer["deadline"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap() >= first);
        let run = detail(db, &held.task)["runs"][0].clone();
        assert_eq!((&run["percents_completed"], &run["progress_message"]), (&json!(40), &json!("half of it")));
        assert_eq!(held.say(db, "progress", &["101"]).code, Some(2));
        assert_eq!(held.say(db, "progress", &["1", "two", "three"]).code, Some(2));
    }

    fn a_message_of_a_claimant_is_kept_as_its_word_and_moves_the_deadline(db) {
        let held = queue_and_claim(db, &["--timeout", "100s"]);
        let first = deadline(db, &held);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {}", sql_now(db.engine, 5)));
        assert_eq!(held.say(db, "message", &["page", "{\"n\":2}"]).ok(), "");
        assert!(deadline(db, &held) >= first);
        assert_eq!(held.say(db, "message", &["balance", "-3"]).ok(), "");
        for words in [&[][..], &["", "1"], &["page", "{"], &["page", "1", "2"]] {
            assert_eq!(held.say(db, "message", words).code, Some(2), "{words:?}");
        }
        db.cli().run(&["cancel", &held.task, "--reason", "order withdrawn"]).ok();
        assert_eq!(held.say(db, "message", &["done"]).ok(), "cancel: order withdrawn");
        let stranger = db.cli().run(&["report", "message", &held.run, "page", "--token", "another"]);
        assert!(stranger.fails(1).contains("the token does not match its claim"));
        held.say(db, "resolve", &[]).ok();
        assert_eq!(held.say(db, "message", &["too-late"]).code, Some(1));
        let lines = db.cli().run(&["events", "--kind", "message", "--json"]).ok();
        let said: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let details: Vec<&Value> = said.iter().map(|event| &event["details"]).collect();
        assert_eq!(details, [&json!({"name":"page","data":{"n":2}}), &json!({"name":"balance","data":-3}), &json!({"name":"done","data":null})]);
        assert!(said.iter().all(|event| event["actor"] == "bot" && event["run_id"].as_i64() == held.run.parse().ok()), "{said:?}");
    }

    fn a_success_is_recorded_once_however_often_it_is_told(db) {
        let held = queue_and_claim(db, &[]);
        assert_eq!(held.say(db, "resolve", &["--results", "{\"sent\":[3]}"]).ok(), "");
        let again = held.say(db, "resolve", &["--results", "{\"sent\":[3]}", "--json"]).json();
        assert_eq!(again["was_recorded_before"], true);
        let detail = detail(db, &held.task);
        assert_eq!((&detail["task"]["status"], &detail["task"]["attempts"]), (&json!("success"), &json!(1)));
        assert_eq!(detail["runs"][0]["results"], json!({"sent": [3]}));
        assert_eq!(detail["runs"][0]["cpu_secs"], Value::Null);
        assert_eq!(detail["events"].as_array().unwrap().len(), 2, "{detail}");
        assert_eq!(detail["events"][0]["kind"], "resolved");
        let empty = queue_and_claim(db, &[]);
        assert_eq!(empty.say(db, "resolve", &[]).ok(), "");
        assert_eq!(task(db, &empty.task)["status"], "success");
    }

    fn an_error_is_retried_as_its_claimant_says(db) {
        let held = queue_and_claim(db, &[]);
        assert_eq!(held.say(db, "resolve", &["--error", "smtp", "--message", "451", "--delay", "1h"]).ok(), "");
        let failed = detail(db, &held.task);
        assert_eq!((&failed["task"]["status"], &failed["task"]["failed_retries"]), (&json!("failed"), &json!(1)));
        assert_eq!((&failed["runs"][0]["error_code"], &failed["runs"][0]["error_message"]), (&json!("smtp"), &json!("451")));
        assert_eq!(failed["why"]["reason"], "not_yet");
        make_due(db);
        let held = claim_as(db, "bot").unwrap();
        assert_eq!(held.say(db, "resolve", &["--error", "broken", "--no-retry"]).ok(), "");
        assert_eq!(task(db, &held.task)["is_exhausted"], true);
        for bad in [&["--error", " "][..], &["--results", "{"], &["--message", "x"], &["--results", "1", "--error", "x"], &["--no-retry"]] {
            assert_eq!(held.say(db, "resolve", bad).code, Some(2), "{bad:?}");
        }
    }

    fn a_rejected_task_goes_to_others_until_it_is_exhausted(db) {
        let first = queue_and_claim(db, &["--max-retries", "2"]);
        assert_eq!(first.say(db, "release", &["--reason", "no such disk"]).ok(), "");
        let rejected = detail(db, &first.task);
        assert_eq!((&rejected["task"]["failed_retries"], &rejected["task"]["attempts"]), (&json!(1), &json!(1)));
        assert_eq!(rejected["rejected_by"], json!(["bot"]));
        assert_eq!((&rejected["runs"][0]["status"], &rejected["runs"][0]["error_code"]), (&json!("error"), &json!("rejected")));
        assert_eq!((&rejected["events"][0]["kind"], &rejected["events"][0]["actor"]), (&json!("rejected"), &json!("bot")));
        assert!(claim_as(db, "bot").is_none());
        // Not even after other tasks, or among tasks that it may claim.
        let other = queue_and_claim(db, &[]);
        assert_ne!(other.task, first.task);
        let second = claim_as(db, "bot2").unwrap();
        assert_eq!(second.task, first.task);
        assert_eq!(second.say(db, "release", &[]).ok(), "");
        assert_eq!(second.say(db, "release", &["--json"]).json()["was_recorded_before"], true);
        let exhausted = detail(db, &first.task);
        assert_eq!(exhausted["task"]["is_exhausted"], true);
        assert_eq!(exhausted["rejected_by"], json!(["bot", "bot2"]));
        assert!(db.cli().run(&["status", &first.task]).ok().contains("rejected by  bot, bot2"));
        assert!(claim_as(db, "bot3").is_none());
        // A retry resets the failures, but not the rejections.
        assert_eq!(db.cli().run(&["retry", &first.task]).code, Some(0));
        assert!(claim_as(db, "bot").is_none());
        assert_eq!(claim_as(db, "bot3").unwrap().task, first.task);
    }

    fn a_claimant_whose_time_ran_out_is_offered_other_tasks(db) {
        let first = queue_and_claim(db, &["--max-retries", "9"]);
        let other = db.cli().run(&["queue", "--any-class", "work"]).ok();
        end_lease(db);
        // For other claimants, the first task comes before the other one.
        assert_eq!(claim_as(db, "bot").unwrap().task, other);
        assert!(claim_as(db, "bot").is_none());
        let held = detail(db, &first.task);
        assert_eq!((&held["held_back"][0]["claimant"], &held["rejected_by"]), (&json!("bot"), &json!([])));
        assert!(db.cli().run(&["status", &first.task]).ok().contains("held back    from bot until "));
        let refused = db.cli().run(&["worker", "claim", "--claimant", "bot", "--task", &first.task]);
        assert!(refused.stderr.contains("bot timed out with it; only other claimants can claim it until "), "{refused:?}");
        let second = claim_as(db, "bot2").unwrap();
        assert_eq!(second.task, first.task);
        second.say(db, "release", &["--no-reject"]).ok();

        for timeouts in 2..=3 {
            db.execute("UPDATE \"TaskQueueRejections\" SET \"HeldUntil\" = '2020-01-01 00:00:00.000000'");
            assert_eq!(claim_as(db, "bot").unwrap().task, first.task, "{timeouts}");
            end_lease(db);
            db.cli().run(&["create-runs"]).ok();
        }
        let rejected = detail(db, &first.task);
        assert_eq!((&rejected["held_back"], &rejected["rejected_by"]), (&json!([]), &json!(["bot"])));
        assert!(claim_as(db, "bot").is_none_or(|held| held.task == other));
    }

    fn a_stated_backoff_holds_after_a_lost_worker_too(db) {
        for options in [&["--backoff", "fixed:1h"][..], &[]] {
            let held = queue_and_claim(db, options);
            end_lease(db);
            db.cli().run(&["create-runs"]).ok();
            let after = detail(db, &held.task);
            let waits = after["task"]["current_run_id"].is_null();
            assert_eq!((&after["runs"][usize::from(!waits)]["error_code"], waits), (&json!("lease-expired"), !options.is_empty()), "{after}");
            assert_eq!(after["task"]["next_attempt_on"].is_null(), !waits);
            db.cli().run(&["cancel", &held.task]).ok();
        }
    }

    fn the_last_rejection_says_that_no_retry_is_left(db) {
        let first = queue_and_claim(db, &["--max-retries", "2"]);
        first.say(db, "release", &[]).ok();
        let decision = |task: &str| detail(db, task)["runs"][0]["decision"].as_str().unwrap().to_owned();
        assert_eq!(decision(&first.task), "its claimant rejected it: retry at once, with others");
        let second = claim_as(db, "bot2").unwrap();
        second.say(db, "release", &[]).ok();
        assert_eq!(decision(&first.task), "its claimant rejected it: no retry left");
        assert_eq!(detail(db, &first.task)["events"][0]["details"]["decision"], "its claimant rejected it: no retry left");
        let text = db.cli().run(&["status", &first.task]).ok();
        assert!(text.contains("no retry left: rejected"), "{text}");
    }

    fn a_task_that_claimants_rejected_waits_for_another_claimant(db) {
        let held = queue_and_claim(db, &[]);
        held.say(db, "release", &[]).ok();
        db.cli().run(&["create-runs"]).ok();
        let why = detail(db, &held.task)["why"].clone();
        assert_eq!((&why["reason"], &why["rejected_by"]), (&json!("waits_for_claimant"), &json!(["bot"])));
        claim_as(db, "bot2").unwrap().say(db, "release", &[]).ok();
        db.cli().run(&["create-runs"]).ok();
        let text = db.cli().run(&["status", &held.task]).ok();
        assert!(text.contains("waits for another claimant; rejected by bot, bot2"), "{text}");
        let text = db.cli().run(&["explain", &held.task]).ok();
        assert!(text.contains("waits for another claimant; rejected by bot, bot2"), "{text}");
        assert!(text.contains(&format!("taskqueue worker claim --claimant NAME --task {}", held.task)), "{text}");
        // Only the class: a claimant started its newest run.
        let other = db.cli().run(&["queue", "--any-class", "work"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let why = detail(db, &other)["why"].clone();
        assert_eq!((&why["reason"], &why["rejected_by"]), (&json!("waits_for_claimant"), &json!([])));
        assert!(db.cli().run(&["status", &other]).ok().contains("waits for a claimant"));
    }

    fn a_claimant_that_got_term_is_not_called_a_handler(db) {
        db.cli().run(&["queue", "--any-class", "work"]).ok();
        let mut worker = std::process::Command::new("/bin/sleep").arg("1000").env("TASKQUEUE_CLAIMANT", "bot").spawn().unwrap();
        let pid = worker.id().to_string();
        db.cli().run(&["worker", "claim", "--claimant", "bot", "--process", &pid]).ok();
        end_lease(db);
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("; claimant bot ended after TERM\n"), "{ended:?}");
        assert!(!ended.stderr.contains("handler"), "{ended:?}");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&worker.wait().unwrap()), Some(15));
    }

    fn whoever_lost_its_run_is_refused_shown_the_row_and_its_result_is_kept(db) {
        let held = queue_and_claim(db, &[]);
        end_lease(db);
        assert_eq!(db.cli().run(&["create-runs"]).code, Some(0));
        for (verb, args) in [("heartbeat", &[][..]), ("progress", &["3"]), ("resolve", &["--results", "[7]"]), ("release", &[])] {
            let (error, hint) = error_and_hint(&held.say(db, verb, args).fails(1));
            assert!(error.contains("its status is timeout (lease-expired: the claimant bot on "), "{verb}: {error}");
            assert!(hint.contains("stop working"), "{hint}");
        }
        let shown = held.say(db, "heartbeat", &["--json"]).fails(1);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&shown["error"]["code"], &shown["error"]["found"]["status"]), (&json!("not_held"), &json!("timeout")));
        assert!(!shown.to_string().contains(&held.token), "{shown}");
        let late = db.raw().texts("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result' ORDER BY \"Id\"");
        assert_eq!(late.len(), 2, "{late:?}");
        assert!(late[0].as_ref().unwrap().contains("[7]"), "{late:?}");
        let task = task(db, &held.task);
        assert_eq!((&task["failed_retries"], &task["crashes"]), (&json!(1), &json!(0)));
    }

    fn who_does_not_show_the_token_or_is_no_claimant_is_refused(db) {
        let held = queue_and_claim(db, &[]);
        for verb in ["heartbeat", "resolve", "release"] {
            let (error, _) = error_and_hint(&db.cli().run(&["worker", verb, &held.run, "--token", "1-0000"]).fails(1));
            assert!(error.contains("the token does not match its claim, and its status is processing"), "{error}");
            assert_eq!(db.cli().run(&["worker", verb, "4711", "--token", "x"]).code, Some(3));
            assert_eq!(db.cli().run(&["worker", verb, &held.run]).code, Some(2));
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'"), 0);
        // The handler of a runner has a token, too.
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Claimant\" = NULL");
        let (error, _) = error_and_hint(&held.say(db, "heartbeat", &[]).fails(1));
        assert!(error.contains("taskqueue report progress"), "{error}");
        assert_eq!(task(db, &held.task)["status"], "processing");
    }

    fn silent_runs_and_the_run_of_a_token_are_found(db) {
        let held = queue_and_claim(db, &[]);
        let silent = |secs: &str| db.cli().run(&["status", "--runs", "--silent-for", secs, "--json"]).ok();
        assert_eq!(silent("1h"), "");
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"UpdatedOn\" = {}", sql_now(db.engine, -7_200)));
        assert!(silent("1h").contains(&format!("\"id\":{}", held.run)));
        assert_eq!(held.say(db, "heartbeat", &[]).ok(), "");
        assert_eq!(silent("1h"), "");
        let of_token = || db.cli().run(&["status", "--token", &held.token, "--json"]).json();
        assert_eq!(of_token(), json!({"run_id": 1, "task_id": 1, "status": "processing", "is_processing": true}));
        assert_eq!(held.say(db, "resolve", &[]).ok(), "");
        assert_eq!(of_token(), json!({"run_id": 1, "task_id": 1, "status": "success", "is_processing": false}));
        assert_eq!(db.cli().run(&["status", "--token", &held.token]).ok(), "run 1 of task 1: success");
        for wrong in ["1-", "2-3", "x", "-", "99999999999999999999-1"] {
            assert_eq!(db.cli().run(&["status", &format!("--token={wrong}")]).code, Some(3), "{wrong}");
        }
    }

    fn a_cancel_does_not_make_a_silent_run_one_that_was_heard_of(db) {
        let held = queue_and_claim(db, &[]);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"UpdatedOn\" = {}", sql_now(db.engine, -7_200)));
        assert_eq!(db.cli().run(&["cancel", &held.task]).code, Some(0));
        let silent = || db.cli().run(&["status", "--runs", "--silent-for", "1h", "--json"]).ok();
        assert!(silent().contains(&format!("\"id\":{}", held.run)), "{}", silent());
        assert!(!silent().contains(&held.token));
        assert!(held.say(db, "heartbeat", &[]).ok().starts_with("cancel: "));
        assert_eq!(silent(), "");
    }

    fn a_list_of_runs_that_is_not_whole_says_so(db) {
        for _ in 0..3 {
            queue_and_claim(db, &[]);
        }
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"UpdatedOn\" = {}", sql_now(db.engine, -7_200)));
        let more = "There are more: -n N shows more lines.";
        for which in [&["status", "--runs"][..], &["status", "--runs", "--silent-for", "1h"]] {
            let show = |args: &[&str]| db.cli().run(&[which, args].concat());
            let part = show(&["-n", "2"]).ok();
            assert_eq!((part.lines().count(), part.lines().last()), (1 + 2 + 1, Some(more)), "{part}");
            assert!(!show(&["-n", "3"]).ok().contains(more));
            let json = show(&["-n", "2", "--json"]);
            assert_eq!((json.stdout.lines().count(), json.stderr.as_str()), (2, format!("warning: {more}\n").as_str()));
            assert_eq!(show(&["--json"]).stderr, "");
        }
    }

    fn a_claimant_is_told_that_its_run_is_to_be_cancelled_and_ends_it(db) {
        let held = queue_and_claim(db, &[]);
        assert_eq!(held.say(db, "heartbeat", &[]).ok(), "");
        assert_eq!(db.cli().run(&["cancel", &held.task, "--reason", "wrong file"]).code, Some(0));
        assert!(held.say(db, "heartbeat", &[]).ok().starts_with("cancel: "));
        let told = held.say(db, "progress", &["50", "--json"]).json();
        assert_eq!(told["cancel_requested"], true);
        assert!(told["cancel_reason"].as_str().unwrap().contains("wrong file"), "{told}");
        let ended = held.say(db, "resolve", &["--error", "stopped", "--json"]).json();
        assert_eq!((&ended["status"], &ended["was_recorded_before"]), (&json!("cancelled"), &json!(false)));
        let again = held.say(db, "resolve", &["--error", "stopped", "--json"]).json();
        assert_eq!((&again["status"], &again["was_recorded_before"]), (&json!("cancelled"), &json!(true)));
        assert_eq!(task(db, &held.task)["status"], "cancelled");
        // A report that was stored before the answer was lost is kept.
        let done = queue_and_claim(db, &[]);
        assert_eq!(db.cli().run(&["cancel", &done.task]).code, Some(0));
        assert_eq!(done.say(db, "resolve", &[]).ok(), "");
        assert_eq!(task(db, &done.task)["status"], "success");
    }
}
