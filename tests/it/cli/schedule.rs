//! `schedule`, and `queue --every`.

use chrono::{DateTime, Utc};

use super::{ECHO, count_tasks, detail, error_and_hint, task};
use crate::each_engine;
use crate::races::full_disk::fill_against_inserts;
use crate::support::TestDb;

fn planned_on(db: &TestDb, id: &str) -> String {
    task(db, id)["schedule"]["planned_on"].as_str().unwrap_or_default().to_owned()
}

each_engine! {
    fn a_schedule_of_a_command_is_added_under_a_name_that_no_other_has(db) {
        db.configure("[exec]\nenabled = true\n");
        let add = |words: &[&str]| db.cli().run(&[&["schedule", "add"][..], words].concat());
        assert_eq!(add(&["morning", "mon-fri 9:00", "--tz", "UTC", "--", "echo", "hello you"]).ok(), "1");
        assert_eq!(add(&["evening", "--cron", "0 18 * * *", "--", "true"]).ok(), "2");
        let row = task(db, "1");
        assert_eq!((&row["name"], &row["schedule"]["every"]), (&"morning".into(), &"0 9 * * MON-FRI".into()), "{row}");
        let (error, hint) = error_and_hint(&add(&["morning", "@daily", "--", "true"]).fails(1));
        assert!(error.contains("schedule 1 already has the name \"morning\""), "{error}");
        assert!(hint.contains("taskqueue schedule show 1"), "{hint}");
        // A name that cannot be a key, and a schedule of another class.
        assert_eq!(add(&["fr\u{fc}h", "@daily", "--", "true"]).ok(), "3");
        assert!(add(&["fr\u{fc}h", "@daily", "--", "true"]).fails(1).contains("schedule 3 already has the name"));
        db.cli().run(&["queue", "exec", "{\"argv\":[\"true\"]}", "--every", "@daily", "--name", "noon"]).ok();
        assert!(add(&["noon", "@daily", "--", "true"]).fails(1).contains("schedule 4 already has the name \"noon\""));
        for wrong in [&["x", "--", "true"][..], &["x", "@daily"], &["x", "someday", "--", "true"], &["x", "@daily", "--every", "1h", "--", "true"]] {
            assert_eq!(add(wrong).code, Some(2), "{wrong:?}");
        }
        assert_eq!(count_tasks(db), 4);
    }

    fn a_schedule_that_is_paused_for_a_time_continues_by_itself(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC", "--name", "nightly"]).ok();
        let before = planned_on(db, "1");
        let said = db.cli().run(&["schedule", "pause", "nightly", "--for", "7d"]).stderr;
        assert!(said.starts_with("schedule 1 skips its times until ") && said.contains(", next "), "{said}");
        let [before, after] = [before, planned_on(db, "1")].map(|time| time.parse::<DateTime<Utc>>().unwrap());
        // The first 03:00 after seven days, which is seven or eight days after the next 03:00.
        assert!([7, 8].contains(&(after - before).num_days()) && (after - before).num_seconds() % 86_400 == 0, "{before} {after}");
        assert_eq!(task(db, "1")["schedule"]["status"], "active");
        // A resume ends the skip early.
        assert_eq!(db.cli().run(&["schedule", "resume", "1"]).code, Some(0));
        assert_eq!(planned_on(db, "1").parse::<DateTime<Utc>>().unwrap(), before);
        for args in [&["--until", "2020-01-01 00:00"][..], &["--for", "soon"], &["--until", "2036-12-31T23:59:60Z"], &["--for", "1d", "--until", "tomorrow"]] {
            let refused = [&["schedule", "pause", "1"][..], args].concat();
            assert_eq!(db.cli().run(&refused).code, Some(2), "{args:?}");
        }
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"Attempts\" = 1 WHERE \"Id\" = 1");
        let refused = db.cli().run(&["schedule", "pause", "1", "--for", "7d"]).fails(1);
        assert!(refused.contains("is being retried"), "{refused}");
    }

    fn a_schedule_is_queued_with_the_first_time_that_is_planned(db) {
        db.configure(ECHO);
        let ended = db.cli().run(&["queue", "echo", "--every", "30 2 29 2 *", "--tz", "Europe/Berlin"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1\n"), "{ended:?}");
        assert!(ended.stderr.contains("to be processed 20") && ended.stderr.contains("-02-29T01:30:00Z"), "{ended:?}");
        let schedule = &task(db, "1")["schedule"];
        assert_eq!((&schedule["id"], &schedule["every"], &schedule["catch_up"]), (&1.into(), &"30 2 29 2 *".into(), &"latest".into()));
        assert_eq!(schedule["planned_on"], task(db, "1")["scheduled_on"]);
        // Starts at a given time.
        db.cli().run(&["queue", "echo", "--every", "@yearly", "--at", "2097-03-01T00:00:00Z", "--catch-up", "all"]).ok();
        assert_eq!(planned_on(db, "2"), "2098-01-01T00:00:00Z");
        let line = "{\"class\":\"echo\",\"every\":\"0 0 29 2 *\",\"tz\":\"Asia/Tokyo\",\"catch_up\":\"none\"}\n{\"class\":\"echo\"}\n";
        let ids = db.cli().stdin(line.repeat(2)).run(&["queue", "--batch", "-"]).ok();
        assert_eq!(ids, "3\n4\n5\n6");
        assert!(planned_on(db, "3").contains("-02-28T15:00:00Z"), "{}", planned_on(db, "3"));
        assert!(planned_on(db, "5").contains("-02-28T15:00:00Z") && task(db, "6")["schedule"].is_null());
    }

    fn a_schedule_in_words_is_stored_as_cron_at_every_door(db) {
        db.configure(ECHO);
        let ended = db.cli().run(&["queue", "echo", "--every", "mon-fri 9:00", "--tz", "UTC"]);
        assert!(ended.stderr.contains("\nrepeats 0 9 * * MON-FRI in UTC: "), "{ended:?}");
        db.cli().stdin("{\"class\":\"echo\",\"every\":\"every 15m\"}").run(&["queue", "--batch", "-"]).ok();
        let stored = |id: &str| task(db, id)["schedule"]["every"].as_str().unwrap().to_owned();
        assert_eq!((stored("1").as_str(), stored("2").as_str()), ("0 9 * * MON-FRI", "*/15 * * * *"));
        db.cli().run(&["schedule", "edit", "1", "--every", "sunday 4:30"]).ok();
        assert_eq!(stored("1"), "30 4 * * SUN");
        let (error, _) = error_and_hint(&db.cli().run(&["queue", "echo", "--every", "7m"]).fails(2));
        assert!(error.contains("\"7m\" cannot be written as one cron expression"), "{error}");
        // A row holds cron only.
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('echo', 'daily 3:00')");
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(task(db, "3")["schedule"]["status"], "broken");
    }

    fn a_schedule_without_a_zone_has_that_of_its_user_and_shows_its_times(db) {
        db.configure(ECHO);
        let berlin = db.cli().env("TZ", "Europe/Berlin").run(&["queue", "echo", "--every", "0 3 1 1 *"]);
        assert!(berlin.stderr.contains("\nrepeats 0 3 1 1 * in Europe/Berlin: "), "{berlin:?}");
        assert_eq!(berlin.stderr.matches("-01-01 03:00, ").count(), 2, "{berlin:?}");
        assert!(planned_on(db, "1").contains("-01-01T02:00:00Z"), "{}", planned_on(db, "1"));
        for (zone, planned) in [("UTC", "T03:00:00Z"), (":Asia/Tokyo", "T18:00:00Z"), ("nonsense", "T03:00:00Z")] {
            let id = db.cli().env("TZ", zone).run(&["queue", "echo", "--every", "0 3 1 1 *"]).ok();
            assert!(planned_on(db, &id).contains(planned), "{zone}: {}", planned_on(db, &id));
        }
    }

    fn what_is_no_schedule_is_refused_and_nothing_is_queued(db) {
        db.configure(ECHO);
        for (options, why) in [
            (&["--every", "nonsense"][..], "not a cron expression"),
            (&["--every", "0 0 31 2 *"], "matches no time"),
            (&["--every", "0 3 * * *", "--tz", "Berlin"], "not a time zone"),
            (&["--every", "0 3 * * *", "--catch-up", "some"], "none, latest or all"),
        ] {
            let args = [&["queue", "echo"][..], options].concat();
            let (error, _) = error_and_hint(&db.cli().run(&args).fails(2));
            assert!(error.contains(why), "{error}");
        }
        for options in [&["--tz", "UTC"][..], &["--catch-up", "all"], &["--every", "@daily", "--run"]] {
            assert_eq!(db.cli().run(&[&["queue", "echo"][..], options].concat()).code, Some(2));
        }
        let line = "{\"class\":\"echo\",\"tz\":\"UTC\"}";
        let (error, _) = error_and_hint(&db.cli().stdin(line).run(&["queue", "--batch", "-"]).fails(2));
        assert!(error.contains("line 1") && error.contains("need a schedule"), "{error}");
        assert_eq!(count_tasks(db), 0);
    }

    fn a_task_of_a_schedule_that_is_moved_up_leaves_the_planned_time(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *"]).ok();
        let planned = planned_on(db, "1");
        let said = db.cli().run(&["edit", "1", "--in", "0s"]).stderr;
        let kept = format!("task 1 is edited; it runs in addition to its schedule, which still runs on {planned}\n");
        assert_eq!(said, kept);
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "1")["status"], planned_on(db, "2")), (&"success".into(), planned.clone()));
        // The same for a time that is changed in the table.
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = 2");
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "2")["status"], planned_on(db, "3")), (&"success".into(), planned));
        // A task that is cancelled skips its time.
        db.cli().run(&["cancel", "3"]).ok();
        db.cli().run(&["create-runs"]).ok();
        assert!(planned_on(db, "4") > planned_on(db, "3"), "{}", planned_on(db, "4"));
    }

    fn whoever_starts_an_earlier_task_of_a_schedule_anew_is_told_so(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"MaxRetries\" = 5, \"FailedRetries\" = 5");
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 2");
        let place = "; it is an earlier task of schedule 1 and may run beside the newest one\n";
        for (args, said) in [
            (&["retry", "--dry-run", "1"][..], "task 1 would be retried"),
            (&["retry", "1"], "task 1 is retried"),
        ] {
            let ended = db.cli().run(args);
            assert_eq!((ended.code, ended.stderr), (Some(0), format!("{said}{place}")));
        }
        assert_eq!(db.cli().run(&["retry", "2"]).stderr, "task 2 is retried\n");
    }

    fn schedules_are_named_by_last_and_by_several_ids(db) {
        db.configure(ECHO);
        for _ in 0..2 {
            db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *"]).ok();
        }
        let schedule = |args: &[&str]| db.cli().run(&[&["schedule"], args].concat());
        assert_eq!(schedule(&["pause", "last"]).stderr, "schedule 2 is paused\n");
        assert!(schedule(&["show", "last"]).ok().starts_with("schedule 2   echo   paused\n"));
        assert_eq!(schedule(&["show", "1", "2", "--json"]).ok().lines().count(), 2);
        // Schedules after a refused one are not changed.
        assert_eq!(schedule(&["pause", "2", "1"]).code, Some(1));
        assert_eq!(task(db, "1")["schedule"]["status"], "active");
        assert_eq!(schedule(&["remove", "1", "2"]).stderr, "schedule 1 is removed\nschedule 2 is removed\n");
        for (words, code) in [("1-2", 2), ("class=echo", 2), ("first", 3)] {
            assert_eq!(schedule(&["pause", words]).code, Some(code), "{words}");
        }
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(error_and_hint(&schedule(&["pause", "last"]).stderr).0, "error: there is no schedule to which task 3 belongs");
    }

    fn a_task_that_schedule_run_has_queued_is_told_even_without_its_event(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "@yearly"]).ok();
        fill_against_inserts(db, "TaskQueueEvents");
        assert_eq!(db.cli().run(&["schedule", "run", "1"]).ok(), "2");
        assert_eq!(count_tasks(db), 2);
    }

    fn schedules_are_listed_shown_paused_edited_and_removed(db) {
        db.configure(ECHO);
        assert!(db.cli().run(&["schedule"]).ok().starts_with("No schedules."));
        db.cli().run(&["queue", "echo", "{\"a\":1}", "--every", "0 0 29 2 *"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        let listed = db.cli().run(&["schedule", "list"]).ok();
        assert!(listed.contains("0 0 29 2 *") && listed.contains("active") && listed.lines().count() == 2, "{listed}");
        assert_eq!(db.cli().run(&["schedule", "list", "--json"]).json()["id"], 1);
        let shown = db.cli().run(&["schedule", "show", "1"]).ok();
        assert!(shown.contains("every        0 0 29 2 * in UTC") && shown.matches("  next ").count() == 5, "{shown}");
        let ended = db.cli().run(&["schedule", "pause", "1"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "schedule 1 is paused\n"));
        assert_eq!(detail(db, "1")["why"]["reason"], "schedule_paused");
        for verb in ["show", "pause", "remove"] {
            let stderr = db.cli().run(&["schedule", verb, "2"]).fails(3);
            assert!(stderr.contains("there is no schedule to which task 2 belongs"), "{verb}: {stderr}");
        }
        let (error, _) = error_and_hint(&db.cli().run(&["schedule", "pause", "1"]).fails(1));
        assert!(error.contains("schedule 1 is paused"), "{error}");
        assert!(db.cli().run(&["schedule", "resume", "1"]).stderr.starts_with("schedule 1 is resumed, next 20"));
        let edited = db.cli().run(&["schedule", "edit", "1", "--every", "0 12 29 2 *", "--tz", "Asia/Tokyo", "--json"]).json();
        assert!(edited["planned_on"].as_str().unwrap().contains("-02-29T03:00:00Z"), "{edited}");
        assert_eq!(db.cli().run(&["schedule", "edit", "1"]).code, Some(2));
        assert_eq!(db.cli().run(&["schedule", "edit", "1", "--every", "never"]).code, Some(2));
        assert_eq!(db.cli().run(&["schedule", "remove", "1"]).stderr, "schedule 1 is removed\n");
        assert_eq!(task(db, "1")["status"], "cancelled");
        assert_eq!(db.cli().run(&["schedule", "remove", "1"]).code, Some(1));
        assert_eq!(db.cli().run(&["schedule", "show", "2"]).code, Some(3));
        assert_eq!(db.cli().run(&["schedule", "pause", "99"]).code, Some(3));
        let kinds: Vec<String> = detail(db, "1")["events"].as_array().unwrap().iter().map(|event| event["kind"].to_string()).collect();
        assert_eq!(kinds, ["\"schedule-removed\"", "\"cancelled\"", "\"schedule-edited\"", "\"schedule-resumed\"", "\"schedule-paused\""]);
    }
}
