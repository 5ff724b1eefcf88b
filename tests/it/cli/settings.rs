//! `taskqueue setting`

use serde_json::json;

use super::doctor::findings;
use super::{ECHO, error_and_hint, task};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

each_engine! {
    fn settings_are_listed_with_their_ranges(db) {
        let text = db.cli().run(&["setting"]).ok();
        assert_eq!(text, db.cli().run(&["setting", "list"]).ok());
        for words in ["TaskQueueRunnerLimit", "1 to 10000", "TaskQueueRunTimeout", "86400", "1 to 31536000", "TaskQueueMaxRetries", "1 to 1000000"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let lines = db.cli().run(&["setting", "--json"]).ok();
        let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&first["name"], &first["default"], &first["high"]), (&json!("TaskQueueRunnerLimit"), &json!(8), &json!(10_000)));
    }

    fn a_value_that_was_set_is_read_back_and_takes_effect(db) {
        let ended = db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "3"]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", "TaskQueueRunnerLimit is 3\n"));
        assert_eq!(db.cli().run(&["setting", "get", "TaskQueueRunnerLimit"]).ok(), "3");
        assert_eq!(db.cli().run(&["setting", "get", "TaskQueueRunnerLimit", "--json"]).json()["value"], "3");
        assert!(db.cli().run(&["status"]).ok().contains("slots 0/3"));
    }

    fn values_that_fit_each_other_are_set_together_or_not_at_all(db) {
        let value = |name: &str| db.cli().run(&["setting", "get", name]).ok();
        let alone = db.cli().run(&["setting", "set", "TaskQueueLeaseTime", "6"]);
        assert_eq!((alone.code, value("TaskQueueLeaseTime").as_str()), (Some(2), "90"), "{alone:?}");
        let together = ["setting", "set", "TaskQueueLeaseTime=6", "TaskQueueLeaseRenewal=1", "TaskQueueLeaseMargin=2"];
        let said = db.cli().run(&together);
        assert_eq!(said.stderr, "TaskQueueLeaseTime is 6\nTaskQueueLeaseRenewal is 1\nTaskQueueLeaseMargin is 2\n", "{said:?}");
        assert_eq!(said.code, Some(0));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'setting-changed'"), 3);
        for bad in [
            &["TaskQueueRunnerLimit=4", "TaskQueueLeaseMargin=50"][..],
            &["TaskQueueRunnerLimit=4", "TaskQueueLeaseMargin=0"],
            &["TaskQueueRunnerLimit=4", "TaskQueueRunnerLimit=5"],
            &["TaskQueueRunnerLimit=4", "TaskQueueNoSuch=5"],
            &["TaskQueueRunnerLimit=4", "5"],
            &["TaskQueueRunnerLimit"],
        ] {
            assert_eq!(db.cli().run(&[&["setting", "set"][..], bad].concat()).code, Some(2), "{bad:?}");
        }
        assert_eq!((value("TaskQueueRunnerLimit").as_str(), value("TaskQueueLeaseMargin").as_str()), ("8", "2"));
    }

    fn a_value_outside_its_range_is_refused_and_nothing_changes(db) {
        for bad in ["0", "-1", "10001", "99999999999999999999", "", "eight", "8.5"] {
            let (error, _) = error_and_hint(&db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", bad]).fails(2));
            assert!(error.contains("TaskQueueRunnerLimit: write a whole number from 1 to 10000"), "{error}");
        }
        let (error, _) = error_and_hint(&db.cli().run(&["setting", "set", "TaskQueueRunTimeout", ""]).fails(2));
        assert!(error.contains("1 to 31536000"), "{error}");
        assert_eq!(db.cli().run(&["setting", "get", "TaskQueueRunnerLimit"]).ok(), "8");
    }

    fn an_unknown_setting_is_refused_with_the_one_that_may_be_meant(db) {
        for args in [&["setting", "get", "RunnerLimit"][..], &["setting", "set", "RunnerLimit", "3"]] {
            let (error, hint) = error_and_hint(&db.cli().run(args).fails(2));
            assert_eq!(error, "error: \"RunnerLimit\" is not a setting; did you mean TaskQueueRunnerLimit?");
            assert_eq!(hint, "hint: `taskqueue setting` lists all settings");
        }
        for (near, meant) in [("taskqueuekeepsucess", "TaskQueueKeepSuccess"), ("TaskQueueLeasTime", "TaskQueueLeaseTime")] {
            let (error, _) = error_and_hint(&db.cli().run(&["setting", "get", near]).fails(2));
            assert!(error.ends_with(&format!("did you mean {meant}?")), "{error}");
        }
        let (error, _) = error_and_hint(&db.cli().run(&["setting", "get", "xyz"]).fails(2));
        assert_eq!(error, "error: \"xyz\" is not a setting");
    }

    fn an_invalid_setting_is_named_and_stops_nothing_until_it_is_mended(db) {
        db.configure(ECHO);
        forge_setting(db, "TaskQueueRunnerLimit", "many");
        let problem = "TaskQueueRunnerLimit is \"many\", not a whole number from 1 to 10000; 8 is used in its place";
        mends_as_doctor_says(db, problem, "taskqueue setting set TaskQueueRunnerLimit=8");
    }

    fn lease_times_that_contradict_each_other_by_sql_stop_nothing(db) {
        db.configure(ECHO);
        db.execute("UPDATE \"TaskQueueSettings\" SET \"Value\" = '5' WHERE \"Name\" = 'TaskQueueLeaseTime'");
        let problem = "a lease of 5 seconds is too short for three renewals every 20 seconds, each a fifth late, and the margin of 15 \
                       seconds; it needs 87; renewals every 1 s and a margin of 1 s are used";
        let remedy = "taskqueue setting set TaskQueueLeaseTime=90 TaskQueueLeaseRenewal=20 TaskQueueLeaseMargin=15";
        mends_as_doctor_says(db, problem, remedy);
    }
}

/// Writes an invalid value, as in a restored or damaged store.
pub(super) fn forge_setting(db: &TestDb, name: &str, value: &str) {
    let update = format!("UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = '{name}'");
    let mut raw = db.raw();
    if db.engine == EngineUnderTest::Sqlite {
        raw.execute("PRAGMA ignore_check_constraints = ON");
    } else {
        let check = "\"Value is a whole number in the range of its setting\"";
        // The second time, it is gone.
        let _ = raw.try_execute(&format!("ALTER TABLE \"TaskQueueSettings\" DROP CONSTRAINT {check}"));
    }
    raw.execute(&update);
}

/// Checks that the queue works with this problem of its settings, and that `doctor` prints how to mend it.
fn mends_as_doctor_says(db: &TestDb, problem: &str, remedy: &str) {
    let id = db.cli().run(&["queue", "echo"]).ok();
    let ticked = db.cli().run(&["tick"]);
    assert_eq!(ticked.stderr.lines().next(), Some(format!("warning: {problem}").as_str()));
    ticked.ok();
    assert_eq!(task(db, &id)["status"], "success");
    let found = findings(db).into_iter().find(|found| found["trouble"] == "invalid_settings").unwrap();
    assert_eq!(
        (&found["problem"], &found["remedy"], &found["level"]),
        (&json!(problem), &json!(remedy), &json!("warning"))
    );
    db.cli().run(&remedy.split(' ').skip(1).collect::<Vec<_>>()).ok();
    assert_eq!(db.cli().run(&["tick"]).stderr, "");
}
