//! Which tasks a verb applies to: what each filter selects, when a confirmation is needed, and what `--dry-run` prints.

use super::{error_and_hint, shell_class};
use crate::each_engine;
use crate::support::EngineUnderTest;
use crate::support::TestDb;
use crate::support::db::on;
use chrono::{DateTime, Utc};
use taskqueue_domain::task::choosing::selection::{PagePlace, PageStart, Selection};
use taskqueue_domain::task::ids::TaskId;

/// 1 and 2 failed without a retry, 3 failed and will be retried, 4 and 5 are due, 6 has a waiting run, 7 is for later.
fn fill(db: &TestDb) {
    db.configure(&format!("{}{}", shell_class(db, "mail.send", "exit 65"), shell_class(db, "mail.sort", "exit 1")));
    for class in ["mail.send", "mail.send", "mail.sort"] {
        // Its retry must not become due while a slow machine still looks.
        db.cli().run(&["queue", class, "--backoff", "fixed:1h"]).ok();
    }
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["queue", "--any-class", "print", "--by", "ann"]).ok();
    db.cli().run(&["queue", "--any-class", "print", "--by", "bob"]).ok();
    let run = db.cli().run(&["queue", "--any-class", "sort"]).ok();
    db.store().open_run_of(run.parse().unwrap()).unwrap().unwrap();
    db.cli().run(&["queue", "--any-class", "print", "--in", "1h"]).ok();
}

fn parsed(words: &str) -> Selection {
    Selection::parse(&words.split_whitespace().collect::<Vec<_>>()).unwrap()
}

fn page(db: &TestDb, words: &str, start: PageStart, limit: i64) -> Vec<i64> {
    db.store().select_page(&parsed(words), start, limit).unwrap().into_iter().map(|place| place.id.0).collect()
}

fn before(id: i64) -> PageStart {
    PageStart::Before(PagePlace::of(TaskId(id)))
}

fn after(id: i64) -> PageStart {
    PageStart::After(PagePlace::of(TaskId(id)))
}

/// Reads page after page. `between` is called after each one.
fn all_pages(db: &TestDb, words: &str, mut start: PageStart, limit: i64, between: &mut dyn FnMut(TaskId)) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let found = db.store().select_page(&parsed(words), start, limit).unwrap();
        let Some(last) = found.last() else { return all };
        all.extend(found.iter().map(|place| place.id.0));
        assert!(all.len() < 20, "the pages repeat tasks: {all:?}");
        start = start.continued(*last);
        between(last.id);
    }
}

#[track_caller]
pub(super) fn selects(db: &TestDb, words: &str, expected: &[i64]) {
    let selection = parsed(words);
    let found: Vec<i64> = db.store().select_tasks(&selection).unwrap().into_iter().map(|id| id.0).collect();
    assert_eq!(found, expected, "{words}");
}

each_engine! {
    fn a_page_has_the_tasks_that_are_near_and_those_that_are_far(db) {
        let (print, other) = ("{\"class\":\"print\"}\n", "{\"class\":\"other\"}\n");
        let lines = format!("{}{}{}", print.repeat(2_500), other.repeat(2_500), print.repeat(3));
        db.cli().stdin(lines).run(&["queue", "--any-class", "--batch", "-"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"TaskClass\" = 'other'");
        for words in ["status=waiting", "status=due", "status=waiting class=print", "status=due class=print", "class=print"] {
            assert_eq!(page(db, words, PageStart::NEWEST, 3), [5_003, 5_002, 5_001], "{words}");
            assert_eq!(page(db, words, PageStart::NEWEST, 5), [5_003, 5_002, 5_001, 2_500, 2_499], "{words}");
            assert_eq!(page(db, words, before(5_001), 2), [2_500, 2_499], "{words}");
            assert_eq!(page(db, words, PageStart::OLDEST, 3), [1, 2, 3], "{words}");
            assert_eq!(page(db, words, after(2_498), 4), [2_499, 2_500, 5_001, 5_002], "{words}");
        }
        // Few are read whole, and those of other classes left out.
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" BETWEEN 5 AND 2495");
        db.execute("UPDATE \"TaskQueue\" SET \"TaskClass\" = 'few' WHERE \"Id\" IN (2, 4, 2498)");
        for words in ["status=due class=few", "status=waiting class=few", "status=scheduled class=few", "class=few"] {
            assert_eq!(page(db, words, PageStart::NEWEST, 5), [2_498, 4, 2], "{words}");
            assert_eq!(page(db, words, PageStart::OLDEST, 2), [2, 4], "{words}");
            assert_eq!(page(db, words, before(4), 5), [2], "{words}");
        }
        assert_eq!(page(db, "status=due", before(2_498), 3), [2_497, 2_496, 4]);
    }

    fn a_page_of_tasks_that_are_over_is_in_the_order_of_that_time(db) {
        let newest = PageStart::Before(PagePlace::over(TaskId(i64::MAX), DateTime::<Utc>::MAX_UTC));
        let oldest = PageStart::After(PagePlace::over(TaskId(0), DateTime::<Utc>::MIN_UTC));
        let pages = |words: &str, start, limit| all_pages(db, words, start, limit, &mut |_| {});
        db.configure(&shell_class(db, "print", "exit 0"));
        db.cli().run(&["queue", "print"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().stdin("{\"class\":\"print\",\"in\":\"1h\"}\n".repeat(6)).run(&["queue", "--batch", "-"]).ok();
        for id in ["4", "2", "5"] {
            db.cli().run(&["cancel", id]).ok();
        }
        assert_eq!(pages("status=cancelled", newest, 2), [5, 2, 4]);
        assert_eq!(pages("status=cancelled", oldest, 1), [4, 2, 5]);
        assert_eq!(pages("status=cancelled status=success", newest, 1), [5, 2, 4, 1]);
        assert_eq!(pages("status=expired", newest, 1), [0; 0]);
        // Other selections, and programs, have the order of the ids.
        assert_eq!(pages("status=cancelled class=print", newest, 2), [5, 4, 2]);
        assert_eq!(pages("status=cancelled", PageStart::NEWEST, 2), [5, 4, 2]);
        // SQL may write fewer digits, and many at the same time.
        db.execute("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2020-01-02 03:04:05' WHERE \"Id\" IN (2, 4)");
        assert_eq!(pages("status=cancelled", newest, 1), [5, 4, 2]);
        assert_eq!(pages("status=cancelled", oldest, 1), [2, 4, 5]);
        // The last task of a page may change, or go, before the next page is read.
        let mut retry_or_delete = |last: TaskId| {
            db.cli().run(&["retry", &last.to_string()]).ok();
            if last == TaskId(4) {
                db.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" = 4");
            }
        };
        assert_eq!(all_pages(db, "status=cancelled", oldest, 1, &mut retry_or_delete), [2, 4, 5]);
    }

    fn each_filter_selects_what_it_says(db) {
        fill(db);
        for (words, expected) in [
            ("6 2 99", [6, 2, 99].as_slice()),
            ("2 2", &[2]),
            ("2-4", &[2, 3, 4]),
            ("6-99 1", &[1, 6, 7]),
            ("last", &[7]),
            ("class=print", &[4, 5, 7]),
            ("class=mail.*", &[1, 2, 3]),
            ("class=*", &[1, 2, 3, 4, 5, 6, 7]),
            ("class=mail.sort class=sort", &[3, 6]),
            ("class=none.*", &[]),
            ("status=failed", &[1, 2, 3]),
            ("status=exhausted", &[1, 2]),
            ("status=waiting", &[3, 4, 5, 6, 7]),
            ("status=due", &[4, 5]),
            ("exhausted due", &[1, 2, 4, 5]),
            ("status=running", &[]),
            ("since=1h class=print", &[4, 5, 7]),
            ("since=yesterday exhausted", &[1, 2]),
            ("status=quarantined", &[]),
            ("status=exhausted status=due", &[1, 2, 4, 5]),
            ("by=ann", &[4]),
            ("by=ann by=bob", &[4, 5]),
            ("error=exit:65", &[1, 2]),
            ("error=exit:65 error=exit:1", &[1, 2, 3]),
            ("error=exit:1 status=exhausted", &[]),
            ("older=1h", &[]),
            ("newer=1h", &[1, 2, 3, 4, 5, 6, 7]),
            ("class=print newer=1h by=bob", &[5]),
            ("1-5 status=due", &[4, 5]),
            ("4 7 last class=print", &[4, 7]),
        ] {
            selects(db, words, expected);
        }
        let long_ago = "'2020-01-01 00:00:00.000000'";
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"QueuedOn\" = {long_ago} WHERE \"Id\" IN (2, 5)"));
        selects(db, "older=1h", &[2, 5]);
        selects(db, "newer=1h class=print", &[4, 7]);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"QuarantinedOn\" = {long_ago} WHERE \"Id\" = 3"));
        selects(db, "status=quarantined", &[3]);
        selects(db, "status=waiting", &[4, 5, 6, 7]);
    }

    fn data_selects_by_a_value_under_a_path_or_by_text(db) {
        for data in [r#"{"order":17,"to":"ann"}"#, r#"{"order":"17","lines":[{"id":"A-4711"}]}"#, r#"{"to":"M\u00fcller 50%"}"#] {
            db.cli().run(&["queue", "--any-class", "print", data]).ok();
        }
        for (words, expected) in [
            ("data.order=17", [1, 2].as_slice()),
            ("data.order=17 data.to=ann", &[1]),
            ("data.lines.0.id=A-4711", &[2]),
            ("data.order=1", &[]),
            ("data~A-47", &[2]),
            ("data~50%", &[3]),
            ("data~5_%", &[]),
            ("data~a-47", &[]),
            ("3 data~ann", &[]),
        ] {
            selects(db, words, expected);
        }
        let mueller = Selection::parse(&["data.to=M\u{fc}ller 50%"]).unwrap();
        assert_eq!(db.store().select_tasks(&mueller).unwrap().len(), 1);
        db.cli().run(&["queue", "--any-class", "print", r#"[[[{"order":17}]]]"#]).ok();
        selects(db, "data.order=17", &[1, 2]);
        selects(db, "data.0.0.0.order=17", &[4]);
    }

    fn options_select_like_the_filters_of_the_same_name(db) {
        fill(db);
        let said = db.cli().run(&["cancel", "--class", "print", "--status", "due", "--dry-run"]).stderr;
        assert!(said.contains("2 tasks would be cancelled"), "{said}");
        let said = db.cli().run(&["retry", "--since", "yesterday", "exhausted", "--yes"]);
        assert_eq!(said.stderr, "2 tasks retried\n");
        let (error, _) = error_and_hint(&db.cli().run(&["retry", "--since", "someday"]).fails(2));
        assert!(error.contains("someday"), "{error}");
        db.cli().run(&["edit", "4", r#"{"order":"B-1"}"#]).ok();
        selects(db, "data.order=B-1", &[4]);
    }

    fn a_schedule_is_selected_with_all_its_tasks_also_before_it_is_planned(db) {
        fill(db);
        let every = |cron: &str| db.cli().run(&["queue", "--any-class", "report", "--every", cron]).ok();
        let (first, second) = (every("0 0 29 2 *"), every("0 0 1 1 *"));
        assert_eq!((first.as_str(), second.as_str()), ("8", "9"));
        // As an application queues one, without a planned time.
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('report', '0 0 29 2 *')");
        selects(db, "schedule=8", &[8]);
        selects(db, "schedule=10", &[10]);
        db.cli().run(&["create-runs"]).ok();
        db.execute(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\", \"ScheduleId\", \"PlannedOn\", \"LastStatus\", \"ScheduleStatus\")
             VALUES ('report', '0 0 29 2 *', 8, '2020-02-29 00:00:00.000000', 'success', 'followed')",
        );
        for (words, expected) in [
            ("schedule=8", [8, 11].as_slice()),
            ("schedule=10", &[10]),
            ("schedule=8 schedule=9", &[8, 9, 11]),
            ("schedule=8 status=success", &[11]),
            ("1-9 schedule=8", &[8]),
            // Tasks without a schedule, or that are not the first of one.
            ("schedule=1", &[]),
            ("schedule=11", &[]),
        ] {
            selects(db, words, expected);
        }
    }

    fn a_key_selects_what_has_it_live_or_over_and_in_every_class(db) {
        fill(db);
        for class in ["print", "sort"] {
            db.cli().run(&["queue", "--any-class", class, "--unique", "order-17"]).ok();
        }
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" = 8");
        db.cli().run(&["queue", "--any-class", "print", "--unique", "order-17"]).ok();
        db.cli().run(&["queue", "--any-class", "print", "--unique", "order-18"]).ok();
        for (words, expected) in [
            ("key=order-17", [8, 9, 10].as_slice()),
            ("key=order-17 key=order-18", &[8, 9, 10, 11]),
            ("key=order-17 class=print", &[8, 10]),
            ("key=order-17 status=due", &[9, 10]),
            ("8-9 key=order-17", &[8, 9]),
            ("key=ORDER-17", &[]),
            ("key=order-1", &[]),
        ] {
            selects(db, words, expected);
        }
        let said = db.cli().run(&["cancel", "--yes", "key=order-17"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        selects(db, "key=order-17 status=cancelled", &[9, 10]);
    }

    fn the_error_of_a_task_is_that_of_the_last_attempt_that_failed(db) {
        fill(db);
        db.cli().run(&["retry", "1"]).ok();
        db.cli().run(&["create-runs"]).ok();
        selects(db, "error=exit:65", &[1, 2]);
        db.configure(&shell_class(db, "mail.send", "exit 66"));
        db.cli().run(&["process-run", "--drain"]).ok();
        selects(db, "error=exit:65", &[2]);
        selects(db, "error=exit:66", &[1]);
    }

    fn what_may_be_more_than_somebody_thinks_wants_a_yes(db) {
        fill(db);
        let (error, hint) = error_and_hint(&db.cli().run(&["retry", "status=exhausted"]).fails(2));
        assert_eq!(error, "error: the selection matches 2 tasks; pass --yes to confirm");
        assert!(hint.contains("--dry-run"), "{hint}");
        selects(db, "status=exhausted", &[1, 2]);

        let said = db.cli().run(&["retry", "--dry-run", "1-4"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(lines, [
            "task 1 would be retried",
            "task 2 would be retried",
            "task 3 would be retried",
            "task 4 has the status scheduled; it has not finished",
            "3 tasks would be retried",
        ]);
        selects(db, "status=exhausted", &[1, 2]);

        let said = db.cli().run(&["retry", "--yes", "1-4", "9"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(lines, [
            "3 tasks retried",
            "1 task skipped: it has the status scheduled; it has not finished",
        ]);
        selects(db, "status=exhausted", &[]);
    }

    fn a_filter_selects_what_the_verb_can_act_on_and_an_id_is_refused(db) {
        fill(db);
        db.cli().run(&["cancel", "4"]).ok();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"QueuedById\" = 'bob' WHERE \"Id\" = 7");
        for (args, stderr) in [
            (&["cancel", "--yes", "by=bob"][..], "1 task cancelled\n"),
            (&["retry", "--yes", "by=bob", "status=cancelled", "status=success"], "2 tasks retried\n"),
            (&["edit", "--yes", "newer=1h", "class=print", "--priority", "3"], "2 tasks edited\n"),
            (&["retry", "--yes", "newer=1h"], "3 tasks retried\n"),
        ] {
            let said = db.cli().run(args);
            assert_eq!((said.code, said.stderr.as_str()), (Some(0), stderr), "{args:?}");
        }
        // If the selection names a status or tasks, the reason for a refusal is printed.
        let said = db.cli().run(&["cancel", "--yes", "by=ann", "status=cancelled"]);
        assert_eq!((said.code, said.stderr.contains("1 task skipped: it has the status cancelled")), (Some(3), true), "{said:?}");
        let said = db.cli().run(&["cancel", "4"]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(1), "warning: task 4 has the status cancelled; there is nothing to cancel\n"));
        assert_eq!(db.cli().run(&["retry", "5"]).code, Some(1));
    }

    fn what_waits_for_a_cancelled_task_is_cancelled_by_a_filter_too(db) {
        for after in [&[][..], &["--after", "1"]] {
            db.cli().run(&[&["queue", "--any-class", "print"][..], after].concat()).ok();
        }
        db.execute("UPDATE \"TaskQueue\" SET \"QueuedById\" = 'ann' WHERE \"Id\" = 1");
        db.cli().run(&["cancel", "1"]).ok();
        let said = db.cli().run(&["cancel", "--yes", "--dependants", "by=ann"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        selects(db, "status=cancelled", &[1, 2]);
    }

    fn what_selects_nothing_ends_with_3_and_changes_nothing(db) {
        fill(db);
        for selection in [["class=none", "--yes"].as_slice(), &["800-900"], &["status=waiting", "class=print", "--yes"], &["99"]] {
            let ended = db.cli().run(&[&["retry"], selection].concat());
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
        }
        let (error, _) = error_and_hint(&db.cli().run(&["retry", "status=done"]).fails(2));
        assert!(error.contains("\"done\" is not a status"), "{error}");
    }

    fn status_lists_what_is_selected_and_shows_what_is_named(db) {
        fill(db);
        let listed = |words: &[&str]| -> Vec<i64> {
            let overview = db.cli().run(&[&["status", "--json"], words].concat()).json();
            assert_eq!(overview["schema"], "taskqueue.status/1");
            assert_eq!(overview["counts"]["failed"]["count"], 3);
            overview["tasks"].as_array().unwrap().iter().map(|line| line["task"]["id"].as_i64().unwrap()).collect()
        };
        assert_eq!(listed(&["class=print"]), [7, 5, 4]);
        assert_eq!(listed(&["1-3", "last"]), [7, 3, 2, 1]);
        assert_eq!(listed(&["status=exhausted", "-n", "1"]), [2]);
        let part = db.cli().run(&["status", "status=exhausted", "-n", "1"]).ok();
        assert!(part.starts_with("running 0") && part.ends_with("There are more: -n N shows more lines."), "{part}");
        let all = db.cli().run(&["status", "status=exhausted"]).ok();
        assert!(all.contains("not retried: exit:65") && !all.contains("There are more"), "{all}");
        assert!(db.cli().run(&["status", "last"]).ok().starts_with("task 7   print   scheduled\n"));
        let two = db.cli().run(&["status", "1", "2"]).ok();
        assert!(two.starts_with("task 1 ") && two.contains("\n\ntask 2 "), "{two}");
        assert_eq!(db.cli().run(&["status", "1", "last", "--json"]).ok().matches("taskqueue.task/1").count(), 2);
        let none = db.cli().run(&["status", "class=none"]);
        assert_eq!((none.code, none.stdout.lines().last()), (Some(3), Some("No task matches the selection.")));
        assert_eq!(db.cli().run(&["status", "99"]).code, Some(3));
        assert_eq!(db.cli().run(&["status", "whatever"]).code, Some(2));
        assert_eq!(db.cli().run(&["status", "1-2", "--class", "print"]).code, Some(2));
    }

    fn last_means_nothing_in_a_store_without_tasks(db) {
        for verb in [&["status"][..], &["retry"], &["schedule", "show"], &["schedule", "pause"]] {
            let ended = db.cli().run(&[verb, &["last"]].concat());
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), "no task matches the selection\n"), "{verb:?}");
        }
    }

    fn json_has_a_line_for_each_task(db) {
        fill(db);
        let answers = db.cli().run(&["retry", "--json", "--yes", "3-4"]).ok();
        let answers: Vec<serde_json::Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&answers[0]["id"], &answers[0]["result"]), (&3.into(), &"retried".into()));
        assert_eq!((&answers[1]["id"], &answers[1]["result"]), (&4.into(), &serde_json::Value::Null));
        assert_eq!(answers.len(), 2);
    }
}

#[test]
fn on_a_terminal_a_person_is_asked_once() {
    on(EngineUnderTest::Sqlite, |db| {
        fill(db);
        for (answer, code, left) in [("n", 130, [1, 2].as_slice()), ("", 130, &[1, 2]), ("y", 0, &[])] {
            let line = format!("{} retry status=exhausted", env!("CARGO_BIN_EXE_taskqueue"));
            let script = std::path::Path::new("/usr/bin/script");
            let cli = db.cli().program(script).stdin(format!("{answer}\n"));
            let ended = cli.run(&["--quiet", "--return", "--command", &line, "/dev/null"]);
            assert_eq!(ended.code, Some(code), "{ended:?}");
            assert!(ended.stdout.contains("retry 2 tasks? [y/N]"), "{ended:?}");
            selects(db, "status=exhausted", left);
        }
    });
}
