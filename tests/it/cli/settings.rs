//! `taskqueue setting`

use serde_json::json;

use super::error_and_hint;
use crate::each_engine;

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

    fn a_bad_value_in_the_table_is_named_and_can_be_mended(db) {
        db.execute("UPDATE \"TaskQueueSettings\" SET \"Value\" = 'many' WHERE \"Name\" = 'TaskQueueRunnerLimit'");
        let (error, hint) = error_and_hint(&db.cli().run(&["tick"]).fails(78));
        assert!(error.contains("\"many\" is not a value for TaskQueueRunnerLimit"), "{error}");
        assert!(hint.contains("taskqueue setting set"), "{hint}");
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "2"]).ok();
        db.cli().run(&["tick"]).ok();
    }
}
