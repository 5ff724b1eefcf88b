//! Names of tasks and schedules, and what lists show about each task.

use serde_json::json;

use super::{ECHO, count_tasks, error_and_hint, task};
use crate::each_engine;

const ZOE: &str = "Zo\u{eb}'s report";

each_engine! {
    fn a_name_is_listed_selected_and_passed_on(db) {
        db.configure(&format!("[exec]\nenabled = true\n{ECHO}"));
        db.cli().run(&["queue", "echo", "{\"n\":1}", "--name", ZOE]).ok();
        db.cli().run(&["exec", "--", "/bin/echo", "a b"]).ok();
        db.cli().run(&["exec", "--shell", "sort names | uniq"]).ok();
        let lines = "{\"class\":\"echo\",\"name\":\"same\",\"data\":[1,2]}\n{\"class\":\"echo\",\"name\":\"same\"}\n";
        db.cli().stdin(lines).run(&["queue", "--batch", "-"]).ok();
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"Name\") VALUES ('echo', '{}', NULL)", "7".repeat(100)));
        let listed = db.cli().run(&["status"]).ok();
        for words in [ZOE, " /bin/echo 'a b' ", " sort names | uniq ", " same ", &format!(" {}… ", "7".repeat(31))] {
            assert!(listed.contains(words), "{words}: {listed}");
        }
        assert_eq!((&task(db, "1")["name"], &task(db, "2")["name"]), (&json!(ZOE), &json!(null)));
        assert!(db.cli().run(&["status", "1"]).ok().contains(&format!("\n  name         {ZOE}\n")));
        let ids = db.cli().run(&["status", "name=same", "--json"]).json();
        assert_eq!(ids["tasks"].as_array().unwrap().len(), 2, "{ids}");
        // It survives an export, and a schedule passes it on.
        let exported = db.cli().run(&["export", "1"]).ok();
        assert!(exported.contains(&format!("\"name\":\"{ZOE}\"")), "{exported}");
        db.cli().run(&["queue", "echo", "--every", "* * * * * *", "--name", "often"]).ok();
        let followed = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Name\" = 'often' AND \"LastStatus\" = 'scheduled' AND \"Id\" > 7";
        crate::support::wait_until("the next task is queued", || {
            db.cli().run(&["tick"]).ok();
            db.number(followed) == 1
        });
        for bad in ["", " a", "a\tb", &"x".repeat(191)] {
            let line = json!({ "class": "echo", "name": bad }).to_string();
            let (error, _) = error_and_hint(&db.cli().stdin(line).run(&["queue", "--batch", "-"]).fails(2));
            assert!(error.contains("line 1") && error.contains("name"), "{error}");
            assert_eq!(db.cli().run(&["queue", "echo", "--name", bad]).code, Some(2), "{bad:?}");
        }
    }

    fn a_schedule_is_named_and_its_task_runs_now_without_moving_its_times(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "{\"n\":1}", "--every", "0 0 29 2 *", "--name", "leap", "--unique", "leap", "--priority", "5"]).ok();
        let before = task(db, "1");
        let ended = db.cli().run(&["schedule", "run", "leap"]);
        let events = db.cli().run(&["events", "--kind", "schedule-run", "--json"]).json();
        assert_eq!(events["task_id"].to_string(), ended.stdout.trim());
        assert!(events["details"]["schedule"].is_i64() && events["actor"] != "", "{events}");
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "2\n", "queued task 2; the next planned time of schedule 1 does not change\n"));
        let copy = task(db, "2");
        assert_eq!((&copy["data"], &copy["priority"], &copy["name"], &copy["schedule"]), (&json!({"n": 1}), &json!(5), &json!("leap"), &json!(null)));
        db.cli().run(&["tick"]).ok();
        let now = task(db, "1");
        assert_eq!((&task(db, "2")["status"], &now["schedule"], &now["scheduled_on"]), (&"success".into(), &before["schedule"], &before["scheduled_on"]));
        let listed = db.cli().run(&["schedule"]).ok();
        assert!(listed.contains("WHAT") && listed.contains(" leap "), "{listed}");
        for action in [&["pause", "leap"][..], &["resume", "leap"], &["edit", "leap", "--every", "@yearly"], &["show", "leap"]] {
            db.cli().run(&[&["schedule"][..], action].concat()).ok();
        }
        let (error, _) = error_and_hint(&db.cli().run(&["schedule", "pause", "laep"]).fails(3));
        assert_eq!(error, "error: there is no schedule with the name \"laep\"; did you mean \"leap\"?");
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--name", "leap"]).ok();
        let (error, _) = error_and_hint(&db.cli().run(&["schedule", "remove", "leap"]).fails(2));
        assert_eq!(error, "error: the schedules 1, 3 have the name \"leap\"; give an id");
        assert_eq!(count_tasks(db), 3);
    }
}
