//! `--reason` is stored with the event, for every verb.

use serde_json::Value;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};

use super::{error_and_hint, shell_class};
use crate::conformance::fixture::willing;
use crate::each_engine;
use crate::support::TestDb;

/// Every verb that stores an event about an operator's action, with the kind of the event. In this order, each has something to
/// do.
const VERBS: [(&[&str], &str); 23] = [
    (&["retry", "1"], "retried"),
    (&["cancel", "1"], "cancelled"),
    (&["edit", "1", "--priority", "5"], "edited"),
    (&["schedule", "pause", "2"], "schedule-paused"),
    (&["schedule", "resume", "2"], "schedule-resumed"),
    (&["schedule", "edit", "2", "--every", "0 4 * * *"], "schedule-edited"),
    (&["schedule", "remove", "2"], "schedule-removed"),
    (&["limit", "set", "fail", "--running", "2"], "limit-set"),
    (&["limit", "remove", "fail"], "limit-removed"),
    (&["limit", "set", "--key", "disk", "--running", "2"], "limit-set"),
    (&["limit", "remove", "--key", "disk"], "limit-removed"),
    (&["setting", "set", "TaskQueueRunnerLimit", "4"], "setting-changed"),
    (&["pause", "--class", "fail"], "paused"),
    (&["resume", "--class", "fail"], "resumed"),
    (&["drain", "--runner", "r"], "drained"),
    (&["resume", "--runner", "r"], "resumed"),
    (&["stop", "--runner", "r"], "stopped"),
    (&["resume", "--runner", "r"], "resumed"),
    (&["class", "release", "broken"], "class-released"),
    (&["prune", "3"], "pruned"),
    (&["prune", "--status", "success", "--older-than", "1s", "--yes"], "pruned"),
    (&["import", "tasks.ndjson"], "imported"),
    (&["cancel", "last"], "cancelled"),
];

/// Creates a failed task, a schedule, a task that has just succeeded and one that did years ago, and a held class.
fn fill(db: &TestDb) {
    let classes =
        [shell_class(db, "fail", "exit 65"), shell_class(db, "work", ":"), shell_class(db, "broken", "exit 78")];
    db.configure(&classes.concat());
    db.cli().run(&["queue", "fail"]).ok();
    db.cli().run(&["queue", "work", "--every", "0 3 * * *"]).ok();
    for class in ["work", "work", "broken"] {
        db.cli().run(&["queue", class]).ok();
    }
    db.cli().run(&["tick"]).ok();
    std::fs::write(db.home().join("tasks.ndjson"), db.cli().run(&["export", "1"]).ok()).unwrap();
    db.execute("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 4");
}

fn newest_event(db: &TestDb) -> Value {
    db.cli().run(&["events", "-n", "1", "--json"]).json()
}

each_engine! {
    fn every_verb_of_operators_keeps_who_did_it_when_where_and_why(db) {
        fill(db);
        for (number, (verb, kind)) in VERBS.iter().enumerate() {
            let reason = format!("ticket {number}");
            let ended = db.cli().run(&[*verb, &["--reason", &reason]].concat());
            assert_eq!(ended.code, Some(0), "{verb:?}: {ended:?}");
            let event = newest_event(db);
            assert_eq!((&event["kind"], &event["details"]["reason"]), (&(*kind).into(), &reason.as_str().into()), "{event}");
            assert!(event["actor"] != "" && event["host"] != "" && event["occurred_on"] != "", "{event}");
        }
        assert!(db.cli().run(&["events", "-n", "1"]).ok().contains("ticket 22"));
    }

    fn a_reason_is_optional_and_one_too_long_is_refused_before_any_change(db) {
        fill(db);
        let long = "x".repeat(1_001);
        let events = || db.cli().run(&["events", "--json"]).ok();
        let before = events();
        for (verb, _) in VERBS {
            let ended = db.cli().run(&[verb, &["--reason", &long]].concat());
            assert_eq!(error_and_hint(&ended.stderr).0, "error: the reason may have at most 1000 characters and no NUL", "{verb:?}");
            assert_eq!(ended.code, Some(2), "{verb:?}");
        }
        assert_eq!(events(), before);
        db.cli().run(&["retry", "1"]).ok();
        assert_eq!(newest_event(db)["details"], serde_json::json!({}));
    }

    fn a_program_on_the_library_gives_a_reason_for_one_call_and_not_the_next(db) {
        fill(db);
        let mut ctx = willing(db);
        let mut retry = |reason| ctx.because(reason, |ctx| retry_tasks(ctx, &[TaskId(1)], &RetryOptions::default(), &mut |_| {}));
        retry(Some("asked by ann")).unwrap();
        assert_eq!(newest_event(db)["details"]["reason"], "asked by ann");
        assert!(retry(Some("a\0b")).is_err());
        retry(None).unwrap();
        assert_eq!(newest_event(db)["details"], serde_json::json!({}));
    }
}
