//! Metadata of tasks: set when they are queued, extended by their attempts, selected and changed by users.

use std::time::Duration;

use serde_json::{Value, json};
use taskqueue::{Claim, HandlerError, NewTask, TaskQueue, Worker, typed};

use super::claimants::queue_and_claim;
use super::coprocess::kept;
use super::{ECHO, detail, error_and_hint, process, shell_class, task};
use crate::each_engine;
use crate::support::TestDb;

fn queue_with(db: &TestDb, class: &str, meta: &[&str]) -> String {
    let options: Vec<&str> = meta.iter().flat_map(|word| ["--meta", *word]).collect();
    db.cli().run(&[&["queue", class], options.as_slice()].concat()).ok()
}

fn meta(db: &TestDb, id: &str) -> Value {
    task(db, id)["meta"].clone()
}

/// Returns the ids that these words select.
fn selected(db: &TestDb, words: &[&str]) -> Vec<i64> {
    let status = db.cli().run(&[&["status", "--json"], words].concat()).json();
    let mut ids: Vec<i64> =
        status["tasks"].as_array().unwrap().iter().map(|line| line["task"]["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

each_engine! {
    fn metadata_is_kept_with_the_task_and_shown(db) {
        db.configure(ECHO);
        queue_with(db, "echo", &["order=17", "note=a=b c"]);
        queue_with(db, "echo", &[]);
        assert_eq!((meta(db, "1"), meta(db, "2")), (json!({"note": "a=b c", "order": "17"}), json!({})));
        assert!(db.cli().run(&["status", "1"]).ok().contains("  meta         {\"note\":\"a=b c\",\"order\":\"17\"}"));
        assert!(!db.cli().run(&["status", "2"]).ok().contains("meta"));
    }

    fn tasks_are_selected_by_their_metadata(db) {
        db.configure(ECHO);
        queue_with(db, "echo", &["order=17", "shop=a"]);
        queue_with(db, "echo", &["order=18", "shop=a"]);
        queue_with(db, "echo", &["order=17", "shop=b"]);
        queue_with(db, "echo", &[]);
        db.cli().stdin("{\"class\":\"echo\",\"meta\":{\"order\": 17, \"a.b\": true}}").run(&["queue", "--batch", "-"]).ok();
        assert_eq!(selected(db, &["meta.order=17"]), [1, 3, 5]);
        assert_eq!(selected(db, &["meta.order=17", "meta.shop=a"]), [1]);
        assert_eq!(selected(db, &["meta.shop=a", "meta.shop=b"]), [1, 2, 3]);
        assert_eq!(selected(db, &["meta.a.b=true", "status=scheduled"]), [5]);
        assert_eq!(selected(db, &["meta.order=17", "1-2"]), [1]);
        let none = db.cli().run(&["status", "meta.order=1", "class=echo"]);
        assert_eq!(none.code, Some(3), "{none:?}");
        assert_eq!(db.cli().run(&["cancel", "meta.shop=a", "--yes"]).fails(0), "2 tasks cancelled\n");
        assert_eq!(selected(db, &["status=cancelled"]), [1, 2]);
    }

    fn an_edit_that_makes_metadata_too_large_changes_nothing(db) {
        db.configure(ECHO);
        let long = |name: &str| format!("{name}={}", "x".repeat(40_000));
        queue_with(db, "echo", &[&long("a")]);
        let before = task(db, "1");
        let message = db.cli().run(&["edit", "1", "--priority", "7", "--meta", &long("b")]).fails(1);
        assert!(message.contains("task 1 was not edited: its metadata would exceed 65536 bytes"), "{message}");
        assert_eq!((task(db, "1"), &detail(db, "1")["events"]), (before, &json!([])));
    }

    fn an_edit_changes_metadata_name_by_name(db) {
        db.configure(ECHO);
        queue_with(db, "echo", &["a=1", "b=2"]);
        db.cli().run(&["edit", "1", "--meta", "b=", "--meta", "c=3"]).ok();
        assert_eq!(meta(db, "1"), json!({"a": "1", "c": "3"}));
        let edited = &detail(db, "1")["events"][0]["details"];
        assert_eq!((&edited["columns"], &edited["before"]["Meta"]), (&json!(["Meta"]), &json!("{\"a\":\"1\",\"b\":\"2\"}")));
        db.cli().run(&["edit", "1", "--meta", "a=", "--meta", "c="]).ok();
        assert_eq!((meta(db, "1"), db.text("SELECT \"Meta\" AS value FROM \"TaskQueue\"")), (json!({}), None));
    }

    fn an_attempt_adds_to_the_metadata_however_it_ends(db) {
        let script = "echo '{\"meta\":{\"a\":null,\"b\":1.50}}' >&3\necho '{\"meta\":{\"c\":\"x\"}}' >&3\nexit $(cat)";
        db.configure(&shell_class(db, "work", script));
        for (data, status) in [("0", "success"), ("65", "failed"), ("99", "scheduled")] {
            let id = db.cli().run(&["queue", "work", data, "--meta", "a=old", "--meta", "d=old", "--max-retries", "1"]).ok();
            db.cli().run(&["create-runs"]).ok();
            assert!(db.cli().run(&["process-run"]).code.is_some());
            let detail = detail(db, &id);
            assert_eq!(detail["task"]["status"], status);
            assert_eq!(detail["task"]["meta"], json!({"b": 1.5, "c": "x", "d": "old"}), "{data}");
            let _ = db.cli().run(&["cancel", &id]);
        }
        let stored = "SELECT \"Meta\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1";
        assert_eq!(db.text(stored).as_deref(), Some("{\"b\":1.50,\"c\":\"x\",\"d\":\"old\"}"));
    }

    fn a_coprocess_adds_to_the_metadata_with_its_answers(db) {
        let script = "say(type='hello', version=1)\nfor run in runs():\n \
            say(type='progress', id=run['id'], meta={'n': 1, 'm': 1})\n \
            say(type='done', id=run['id'], meta={'n': 2}) if run['data'] else say(type='fail', id=run['id'], exit=65, meta={'n': 3})\n";
        db.configure(&kept(db, "kept", script));
        assert_eq!(process(db, "kept", "1")["task"]["meta"], json!({"m": 1, "n": 2}));
        let failed = process(db, "kept", "0");
        assert_eq!((&failed["task"]["status"], &failed["task"]["meta"]), (&json!("failed"), &json!({"m": 1, "n": 3})));
    }

    fn a_claimant_adds_to_the_metadata(db) {
        let held = queue_and_claim(db, &["--meta", "a=1", "--meta", "b=2"]);
        held.say(db, "resolve", &["--meta", "b=", "--meta", "c=3"]).ok();
        assert_eq!(meta(db, &held.task), json!({"a": "1", "c": "3"}));
        // A repeated call changes nothing.
        held.say(db, "resolve", &["--meta", "b=", "--meta", "c=3"]).ok();
        let held = queue_and_claim(db, &[]);
        held.say(db, "resolve", &["--error", "e1", "--no-retry", "--meta", "why=later"]).ok();
        assert_eq!(meta(db, &held.task), json!({"why": "later"}));
    }

    fn a_program_adds_to_the_metadata_of_a_run_it_claimed(db) {
        let queue = TaskQueue::connect(db.url_text()).unwrap().spool(db.home().join("spool"));
        let claim = || queue.claim(&Claim::new("bot")).unwrap().pop().unwrap();
        let first = queue.queue(NewTask::new("mail").meta("a", "x").unwrap()).unwrap().id;
        claim().resolve_with_meta(&(), &json!({"n": 1})).unwrap();
        assert_eq!(queue.task(first).unwrap().meta.as_deref(), Some("{\"a\":\"x\",\"n\":1}"));
        let second = queue.queue(NewTask::new("mail")).unwrap().id;
        let run = claim();
        assert!(run.fail_with_meta(&HandlerError::new("e", ""), &[1]).unwrap_err().to_string().contains("not a JSON object"));
        run.fail_with_meta(&HandlerError::no_retry("e", ""), &json!({"n": 2})).unwrap();
        assert_eq!(queue.task(second).unwrap().meta_as::<Value>().unwrap(), json!({"n": 2}));
    }

    fn a_handler_in_rust_adds_to_the_metadata(db) {
        let queue = TaskQueue::connect(db.url_text()).unwrap().spool(db.home().join("spool"));
        let [good, bad] = [true, false].map(|data| {
            queue.queue(NewTask::new("rust").data(&data).unwrap().max_retries(1).meta("a", "old").unwrap()).unwrap().id
        });
        let handler = typed(|is_good: bool, run| {
            run.set_percents_completed(10);
            run.set_meta("a", &())?;
            run.set_meta("n", &1.5)?;
            run.set_percents_completed(20);
            if is_good { Ok(7) } else { Err(HandlerError::no_retry("bad", "")) }
        });
        Worker::new(&queue).unwrap().class("rust", handler).idle_exit(Duration::ZERO).run().unwrap();
        for (id, status) in [(good, "success"), (bad, "failed")] {
            let task = queue.task(id).unwrap();
            assert_eq!((task.status.to_string().as_str(), task.meta.as_deref()), (status, Some("{\"n\":1.5}")));
        }
    }

    fn metadata_that_becomes_too_large_stays_and_the_run_ends(db) {
        let script = "printf '{\"meta\":{\"big\":\"%40000d\"}}\\n' 7 >&3";
        db.configure(&shell_class(db, "work", script));
        let large = format!("a={}", "x".repeat(40_000));
        queue_with(db, "work", &[&large]);
        db.cli().run(&["tick"]).ok();
        let detail = detail(db, "1");
        assert_eq!((&detail["task"]["status"], meta(db, "1")["big"].is_null()), (&json!("success"), true));
        let event = &detail["events"][0];
        assert_eq!((&event["kind"], &event["details"]["names"]), (&json!("meta-refused"), &json!(["big"])));
        let too_large = [format!("a={}", "x".repeat(40_000)), format!("b={}", "x".repeat(40_000))];
        let refused = db.cli().run(&["queue", "work", "--meta", &too_large[0], "--meta", &too_large[1]]);
        assert!(refused.fails(2).contains("the metadata has 80015 bytes; at most 65536 are allowed"));
    }

    fn what_is_no_metadata_is_refused_with_a_hint(db) {
        db.configure(ECHO);
        for (word, why) in [("order", "--meta: \"order\" is not KEY=VALUE"), ("=17", "--meta: the metadata has an empty name")] {
            let (error, hint) = error_and_hint(&db.cli().run(&["queue", "echo", "--meta", word]).stderr);
            assert_eq!((error, hint.as_str()), (format!("error: {why}"), "hint: write --meta NAME=VALUE, for example --meta order=17"));
        }
        assert!(db.cli().run(&["queue", "echo", "--meta", "order="]).fails(2).contains("the metadata \"order\" has no value"));
        assert!(db.cli().run(&["status", "meta.=1"]).fails(2).contains("names no metadata; write meta.order=17"));
    }

    fn replacing_a_task_replaces_its_metadata(db) {
        db.configure(ECHO);
        for value in ["a=1", "b=2"] {
            db.cli().run(&["queue", "echo", "--in", "1h", "--unique", "k", "--on-conflict", "replace", "--meta", value, "--keep", "1d"]).ok();
        }
        assert_eq!((meta(db, "1"), task(db, "1")["keep_secs"].clone()), (json!({"b": "2"}), json!(86_400)));
    }
}
