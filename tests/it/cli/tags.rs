//! Tags: which tasks have one, claims by tag, and selections by tag.

use serde_json::{Value, json};

use super::claim_chosen::{claim, claimed, queue, why};
use super::selections::selects;
use super::{shell_class, task};
use crate::each_engine;
use crate::support::TestDb;

/// Returns a tag of the maximum length, with each kind of character.
fn longest() -> String {
    format!("~ '\"`$%_\\{}!", "x".repeat(180))
}

fn tag_of(db: &TestDb, id: &str) -> Value {
    task(db, id)["tag"].clone()
}

each_engine! {
    fn a_claim_takes_only_tasks_with_its_tag_in_their_order(db) {
        let _ = queue(db, &["--priority", "9"]);
        let _ = queue(db, &["--priority", "9", "--tag", "account-1"]);
        let low = queue(db, &["--tag", "account-17"]);
        let high = queue(db, &["--tag", "account-17", "--priority", "5"]);
        let mail = db.cli().run(&["queue", "--any-class", "mail", "--tag", "account-17", "--priority", "7"]).ok();
        let last = queue(db, &["--tag", "account-17"]);
        let _ = queue(db, &["--tag", "Account-17", "--priority", "9"]);
        assert_eq!(claimed(db, &["--tag", "account-18"]), [""; 0]);
        assert_eq!(claimed(db, &["--tag", "account-17", "--class", "x*"]), [""; 0]);
        assert_eq!(claimed(db, &["--tag", "account-17"]), [mail.trim()]);
        assert_eq!(claimed(db, &["--tag", "account-17", "--class", "work", "--count", "9"]), [high, low, last]);
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), [""; 0], "they are claimed already");
        assert_eq!(claimed(db, &["--count", "9"]).len(), 3, "without a tag, all are claimable");
    }

    fn many_tasks_of_one_tag_run_at_once(db) {
        let tagged: Vec<String> = (0..5).map(|_| queue(db, &["--tag", "account-17"])).collect();
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), tagged);
    }

    fn pauses_limits_and_rejections_hold_for_a_claim_of_a_tag(db) {
        let first = queue(db, &["--tag", "account-17"]);
        let second = queue(db, &["--tag", "account-17"]);
        let third = queue(db, &["--tag", "account-17"]);
        let of_tag = &["--tag", "account-17"][..];
        let _ = db.cli().run(&["pause", "--class", "work"]).ok();
        assert_eq!(claimed(db, of_tag), [""; 0]);
        let _ = db.cli().run(&["resume", "--class", "work"]).ok();
        let run = claim(db, of_tag).json();
        assert_eq!(run["task_id"].to_string(), first);
        let _ = db.cli().run(&["worker", "release", &run["run_id"].to_string(), "--token", run["token"].as_str().unwrap()]).ok();
        let _ = db.cli().run(&["limit", "set", "work", "--running", "1"]).ok();
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), [second]);
        let _ = db.cli().run(&["limit", "remove", "work"]).ok();
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), [third], "the first was rejected");
        let other = db.cli().env("TASKQUEUE_CLAIMANT", "bot-2").run(&["worker", "claim", "--tag", "account-17"]).json();
        assert_eq!(other["task_id"].to_string(), first);
    }

    fn a_task_that_waits_for_a_slot_of_its_key_is_not_claimed_by_its_tag(db) {
        let first = queue(db, &["--tag", "account-17", "--limit-key", "disk"]);
        let second = queue(db, &["--tag", "account-17", "--limit-key", "disk"]);
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), [first]);
        let _ = db.cli().run(&["limit", "set", "--key", "disk", "--running", "2"]).ok();
        assert_eq!(claimed(db, &["--tag", "account-17", "--count", "9"]), [second]);
    }

    fn a_tag_a_key_and_a_task_of_one_claim_hold_together(db) {
        let task = queue(db, &["--tag", "account-17", "--unique", "a", "--limit-key", "disk"]);
        let plain = queue(db, &[]);
        for key in [["--unique", "a"], ["--limit-key", "disk"]] {
            assert_eq!(claimed(db, &[&["--tag", "account-1"], &key[..]].concat()), [""; 0], "{key:?}");
        }
        assert_eq!(why(db, &["--task", &task, "--tag", "account-1"]), "its tag is \"account-17\"");
        assert_eq!(why(db, &["--task", &plain, "--tag", "account-1"]), "its tag is not set");
        let all = ["--tag", "account-17", "--task", task.as_str(), "--unique", "a", "--limit-key", "disk", "--class", "work"];
        assert_eq!(claimed(db, &all), [task.as_str()]);
    }

    fn each_way_to_queue_gives_a_task_its_tag(db) {
        let longest = longest();
        let of_option = queue(db, &["--tag", &longest]);
        assert_eq!(tag_of(db, &of_option), json!(longest));
        db.configure("[exec]\nenabled = true\n");
        let of_exec = db.cli().run(&["exec", "--tag", "account-17", "--", "/bin/true"]).ok();
        let line = |tag: &str| json!({ "class": "work", "tag": tag }).to_string();
        let lines = format!("{}\n{}\n{{\"class\":\"work\"}}\n", line(&longest), line("account-17"));
        let of_lines = db.cli().stdin(lines).run(&["queue", "--any-class", "--batch", "-"]).ok();
        let tags = of_lines.lines().map(|id| tag_of(db, id)).collect::<Vec<_>>();
        assert_eq!(tags, [json!(longest), json!("account-17"), Value::Null]);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Tag\") VALUES ('work', 'account-17')");
        let of_sql = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\"").to_string();
        for id in [of_exec.trim(), &of_sql] {
            assert_eq!(tag_of(db, id), json!("account-17"), "{id}");
        }
        let shown = db.cli().run(&["status", &of_sql]).ok();
        assert!(shown.contains("\n  tag          account-17\n"), "{shown}");
        let claimed = claimed(db, &["--tag", &longest, "--count", "9"]);
        assert_eq!(claimed, [of_option.as_str(), of_lines.lines().next().unwrap()]);
    }

    fn a_tag_that_is_none_is_refused_and_says_what_is_wrong(db) {
        let too_long = "x".repeat(191);
        for (bad, why) in [
            ("", "0 characters"),
            (" a", "begins or ends with a space"),
            ("a ", "begins or ends with a space"),
            ("a\tb", "has the character '\\t'"),
            ("caf\u{e9}", "has the character '\u{e9}'"),
            (&too_long, "191 characters; 1 to 190 are allowed"),
        ] {
            let line = json!({ "class": "work", "tag": bad }).to_string();
            let batch = db.cli().stdin(line).run(&["queue", "--any-class", "--batch", "-"]).fails(2);
            let text = db.cli().run(&["queue", "--any-class", "work", "--tag", bad]).fails(2);
            for text in [batch, text, claim(db, &["--tag", bad]).fails(2)] {
                assert!(text.contains("the tag") && text.contains(why), "{bad:?}: {text}");
            }
            assert_eq!(db.cli().run(&["cancel", &format!("tag={bad}"), "--yes"]).code, Some(2), "{bad:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
    }

    fn each_task_of_a_schedule_has_its_tag(db) {
        db.configure(&shell_class(db, "report", "exit 0"));
        let first = db.cli().run(&["queue", "report", "--every", "* * * * * *", "--tag", "account-17"]).ok();
        let first = first.trim();
        let tagged = format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" > {first} AND \"Tag\" = 'account-17'");
        assert_eq!(db.number(&tagged), 0);
        let past = "'2020-01-01 00:00:00.000000'";
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = {past}, \"PlannedOn\" = {past}"));
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["create-runs"]).ok();
        assert!(db.number(&tagged) >= 1);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Tag\" IS NULL"), 0);
    }

    fn a_task_that_replaces_another_brings_its_own_tag(db) {
        let task = queue(db, &["--unique", "a", "--tag", "account-1"]);
        db.cli().run(&["create-runs"]).ok();
        let replaced = queue(db, &["--unique", "a", "--on-conflict", "replace", "--tag", "account-17"]);
        assert_eq!((&replaced, tag_of(db, &task)), (&task, json!("account-17")));
        assert_eq!(claimed(db, &["--tag", "account-1"]), [""; 0]);
        assert_eq!(claimed(db, &["--tag", "account-17"]), [task]);
    }

    fn a_retried_task_keeps_its_tag(db) {
        let task = queue(db, &["--tag", "account-17", "--backoff", "fixed:1h"]);
        let run = claim(db, &["--tag", "account-17"]).json();
        let (id, token) = (run["run_id"].to_string(), run["token"].as_str().unwrap());
        let _ = db.cli().run(&["worker", "resolve", &id, "--token", token, "--error", "smtp"]).ok();
        assert_eq!(claimed(db, &["--tag", "account-17"]), [""; 0]);
        let _ = db.cli().run(&["retry", &task]).ok();
        assert_eq!(claimed(db, &["--tag", "account-17"]), [task]);
    }

    fn a_tag_selects_tasks_whatever_became_of_them(db) {
        let first = queue(db, &["--tag", "account-17"]);
        let _ = queue(db, &["--tag", "account-1"]);
        let third = queue(db, &["--tag", "account-17"]);
        let _ = queue(db, &[]);
        let _ = db.cli().run(&["cancel", "tag=account-17", "class=work", "1-2", "--yes"]).ok();
        selects(db, "tag=account-17", &[1, 3]);
        selects(db, "tag=account-17 tag=account-1", &[1, 2, 3]);
        selects(db, "tag=account-17 status=scheduled", &[3]);
        selects(db, "tag=account-18", &[]);
        assert_eq!((task(db, &first)["status"].as_str(), task(db, &third)["status"].as_str()), (Some("cancelled"), Some("scheduled")));
    }
}
