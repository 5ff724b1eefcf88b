//! What the pages show, and what their buttons do, without a browser.

use super::{Reply, WebServer};
use crate::cli::{ECHO, shell_class};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Two tasks of which one succeeds and one fails for good, one that waits, and a schedule.
pub(super) fn fill(db: &TestDb) {
    let colours = "for c in 30 31 32 33 34 35 36 37 90 91 92 93 94 95 96 97; do printf '\\033['$c'mcolour \\033[2mfaint\\033[0m\\n'; done";
    let words = "printf '\\033[1;31mno such box\\033[0m\\n'; echo no such box >&2";
    let bad = shell_class(db, "bad", &format!("{words}; {colours}; exit 65"));
    db.configure(&format!("{ECHO}{bad}"));
    db.cli().run(&["queue", "echo", "{\"order\":17}"]).ok();
    db.cli().run(&["queue", "bad", "{\"to\":\"ann\"}"]).ok();
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
    db.cli().run(&["queue", "echo", "--every", "1h", "--name", "nightly"]).ok();
}

#[track_caller]
pub(super) fn shows(reply: &Reply, words: &[&str]) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    for word in words {
        assert!(reply.body.contains(word), "{word}: {}", reply.body);
    }
}

each_engine! {
    fn the_pages_show_what_runs_what_failed_and_why(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        shows(&server.get("/"), &["<b>1</b>failed", "<b>1</b>success", "No runner is alive.", "/tasks/2"]);
        shows(&server.get("/tasks"), &["/tasks/1", "/tasks/2", "/tasks/3", "These are all."]);
        let found = server.get("/tasks?q=class%3Decho+data.order%3D17");
        shows(&found, &["/tasks/1"]);
        assert!(!found.body.contains("/tasks/3"), "{}", found.body);
        shows(&server.get("/tasks?q=clas%3Decho"), &["clas"]);
        shows(&server.get("/tasks/2"), &["will not run again", "taskqueue retry 2", "no such box", "/log?run=", "ann"]);
        shows(&server.get("/tasks/2/log"), &["<span class=\"b1 c1\">no such box</span>", "stderr"]);
        shows(&server.get("/failures"), &["exit:65", "bad", "/tasks/2"]);
        shows(&server.get("/schedules"), &["nightly", "0 * * * *"]);
        shows(&server.get("/runners"), &["Runners"]);
        shows(&server.get("/classes"), &["echo", "/bin/cat", ">ok<"]);
        shows(&server.get("/classes?name=bad"), &["The newest 1 run of bad that ended", "95% within", "<svg"]);
        shows(&server.get("/classes?name=none"), &["No run of class none has ended."]);
        shows(&server.get("/settings"), &["TaskQueueRunnerLimit"]);
        shows(&server.get("/events"), &["failed"]);
        assert_eq!(server.get("/tasks/99").status, 404);
        assert_eq!(server.get("/nothing").status, 404);
        assert_eq!(server.end(), Some(0));
    }

    fn the_attempts_of_a_task_are_drawn_as_a_time_line(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let page = server.get("/tasks/2");
        let line = page.body.split("<h2>Attempts</h2>").nth(1).unwrap().split("</table>").next().unwrap();
        let row = line.split("<tr>").find(|row| row.contains("class=\"attempt\"")).unwrap_or_else(|| panic!("{line}"));
        assert!(row.contains("<svg class=\"time\"") && row.contains("attempt 1: error, exit:65"), "{row}");
        shows(&server.get("/tasks/3"), &["<rect class=\"none\"", "not due yet"]);
    }

    fn a_counter_leads_to_the_tasks_that_it_counts(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--limit-key", "k"]).ok();
        db.cli().run(&["worker", "claim", "--claimant", "bot"]).ok();
        db.cli().run(&["queue", "echo", "--limit-key", "k"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        let server = WebServer::start(db, &[]);
        let now = server.get("/").body;
        for (counter, task) in [("waiting for a limit key", 2), ("waiting runs", 3), ("due", 4)] {
            let (before, _) = now.split_once(&format!("<b>1</b>{counter}")).unwrap();
            let link = before.rsplit("href=\"").next().unwrap().split('"').next().unwrap();
            shows(&server.get(link), &[&format!("/tasks/{task}\"")]);
        }
    }

    fn a_task_offers_only_what_its_status_allows(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        for (task, words, buttons) in [
            (1, "0 of at most 5 attempts", &["Run again"][..]),
            (2, "1 of at most 5 attempts", &["Retry"]),
            (3, "0 of at most 5 attempts", &["Cancel"]),
        ] {
            let page = server.ask("operate", "GET", &format!("/tasks/{task}"), "");
            shows(&page, &[words]);
            let offered: Vec<&str> =
                ["Retry", "Run again", "Cancel"].into_iter().filter(|label| page.body.contains(&format!("{label}</button>"))).collect();
            assert_eq!(offered, buttons, "{task}: {}", page.body);
        }
    }

    fn the_charts_count_starts_and_how_tasks_ended(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        // The older hours are read one after the other.
        wait_until("the charts are read", || {
            let body = server.get("/").body;
            body.contains("started <b>") && !body.contains("intervals were read so far")
        });
        let page = server.get("/");
        shows(&page, &["started <b>2</b>", "<polyline class=\"starts\"", "success <b>1</b>", "failed, not retried <b>1</b>", "cancelled or expired <b>0</b>"]);
        assert_eq!((page.body.matches("<svg class=\"chart\"").count(), page.body.matches("url(#hour-stripes)").count()), (2, 2));
        db.cli().run(&["cancel", "3"]).ok();
        wait_until("the newest minute is read again", || server.get("/").body.contains("cancelled or expired <b>1</b>"));
    }

    fn a_list_of_tasks_has_pages_by_id(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\"}\n".repeat(7)).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        let first = server.get("/tasks?q=status%3Dscheduled&limit=3");
        shows(&first, &["/tasks/7", "/tasks/5", "before=5"]);
        let last = server.get("/tasks?q=status%3Dscheduled&limit=4&before=5");
        shows(&last, &["/tasks/4", "/tasks/1", "There are no more."]);
        assert!(!last.body.contains("/tasks/5"), "{}", last.body);
    }

    fn a_list_of_tasks_has_the_chosen_columns_in_both_orders(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\",\"tag\":\"account-17\"}\n".repeat(5)).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        let oldest = server.get("/tasks?q=tag%3Daccount-17&columns=task+tag&after=0&limit=2");
        shows(&oldest, &["<th>Task</th><th>Tag</th></tr>", "/tasks/1\"", "/tasks/2\"", ">account-17<", "after=2", "Newest first"]);
        assert!(!oldest.body.contains("/tasks/3\""), "{}", oldest.body);
        let next_of = |page: &Reply| page.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
        let second = server.get(&next_of(&oldest));
        shows(&second, &["<th>Task</th><th>Tag</th></tr>", "/tasks/3\"", "/tasks/4\"", "data-label=\"Tag\""]);
        assert!(!second.body.contains("/tasks/2\"") && !second.body.contains("/tasks/5\""), "{}", second.body);
        let last = server.get(&next_of(&second));
        shows(&last, &["/tasks/5\"", "There are no more.", "Newest first"]);
        assert!(!last.body.contains("rel=\"next\""), "{}", last.body);
        shows(&server.get("/tasks?after=5"), &["There are no more.", "Newest first"]);
        shows(&server.get("/tasks?columns=tags"), &["is not a column; the columns are task, class,"]);
        shows(&server.get("/tasks?before=3&after=1"), &["before and after cannot be combined"]);
    }

    fn a_list_of_cancelled_tasks_has_the_last_one_first(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\",\"in\":\"1h\"}\n".repeat(4)).run(&["queue", "--batch", "-"]).ok();
        for id in ["3", "1", "4", "2"] {
            db.cli().run(&["cancel", id]).ok();
        }
        let server = WebServer::start(db, &[]);
        for (start, ids) in [("", ["2", "4", "1", "3"]), ("&after=0", ["3", "1", "4", "2"])] {
            let mut address = format!("/tasks?q=status%3Dcancelled&columns=task+when&limit=1{start}");
            for (place, id) in ids.iter().enumerate() {
                let page = server.get(&address);
                shows(&page, &[&format!("href=\"/tasks/{id}\""), "ended <time", "the time at which they finished"]);
                let next = page.body.split("rel=\"next\" href=\"").nth(1).map(|rest| rest.split('"').next().unwrap());
                assert_eq!(next.is_some(), place < 3, "{}", page.body);
                address = next.unwrap_or_default().replace("&amp;", "&");
            }
        }
    }

    fn a_schedule_shows_its_next_times_and_its_newest_tasks(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC", "--name", "nightly"]).ok();
        let server = WebServer::start(db, &[]);
        shows(&server.get("/schedules"), &["href=\"/schedules/1\">nightly<"]);
        let page = server.ask("operate", "GET", "/schedules/1", "");
        shows(&page, &["Schedule nightly", "0 3 * * *", "/tasks/1\"", "All its tasks", "Run now"]);
        assert_eq!(page.body.matches(" 03:00:00 UTC").count(), 5, "{}", page.body);
        let made = server.ask("operate", "POST", "/schedules/1/pause", "");
        assert_eq!(made.header("location"), Some("/schedules/1"));
        shows(&server.get("/tasks/1"), &["href=\"/schedules/1\""]);
        shows(&server.ask("operate", "GET", "/schedules/1", ""), &["paused", "Resume", "<p>None.</p>"]);
        assert_eq!(server.get("/schedules/99").status, 404);
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(server.get("/schedules/2").status, 404);
    }

    fn a_schedule_that_is_run_by_a_double_click_queues_one_task(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *", "--tz", "UTC", "--name", "nightly"]).ok();
        let server = WebServer::start(db, &[]);
        let press = |page: &Reply| {
            let form = page.body.split("action=\"/schedules/1/run\"").nth(1).unwrap();
            let value = form.split("name=\"page\" value=\"").nth(1).unwrap().split('"').next().unwrap();
            let pressed = server.ask("operate", "POST", "/schedules/1/run", &format!("page={value}"));
            assert_eq!(pressed.status, 303, "{pressed:?}");
            pressed.header("location").unwrap().to_owned()
        };
        let list = server.ask("operate", "GET", "/schedules", "");
        let first = press(&list);
        assert_eq!(press(&list), first);
        let later = press(&server.ask("operate", "GET", "/schedules/1", ""));
        assert_ne!(later, first);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'schedule-run'"), 2);
    }

    fn a_task_shows_where_its_last_attempt_ran_and_what_it_wrote_last(db) {
        db.configure(&shell_class(db, "bad", "seq 1 30; seq 101 130 >&2; printf '<b>\\033[31mred' >&2; exit 65"));
        db.cli().run(&["queue", "bad"]).ok();
        let server = WebServer::start(db, &[]);
        let waits = server.get("/tasks/1").body;
        assert!(!waits.contains("Last attempt") && !waits.contains("End of"), "{waits}");
        db.cli().run(&["tick"]).ok();
        let page = server.get("/tasks/1");
        shows(&page, &["<dt>Last attempt</dt>", "<h2>End of stdout of attempt 1</h2>", "<h2>End of stderr of attempt 1</h2>", "122\n", "130\n&lt;b&gt;<span class=\"c1\">red</span>"]);
        assert!(!page.body.contains("121\n") && !page.body.contains("30\n101"), "{}", page.body);
    }

    fn the_list_of_schedules_has_the_last_task_of_each(db) {
        db.configure(ECHO);
        for name in ["nightly", "weekly"] {
            db.cli().run(&["queue", "echo", "--every", "0 3 1 1 *", "--tz", "UTC", "--name", name]).ok();
        }
        let server = WebServer::start(db, &[]);
        assert!(!server.get("/schedules").body.contains("success"), "none has run");
        for on in ["2020-01-01 03:00:00", "2021-01-01 03:00:00"] {
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '{on}', \"PlannedOn\" = '{on}' WHERE \"ScheduleHead\" IS NOT NULL AND \"Name\" = 'nightly'"));
            db.cli().run(&["tick"]).ok();
        }
        let newest = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'");
        let page = server.get("/schedules").body;
        let rows: Vec<&str> = page.split("<tr>").collect();
        let last_of = |name: &str| {
            let row = rows.iter().find(|row| row.contains(&format!(">{name}<"))).unwrap();
            row.split("data-label=\"last\">").nth(1).unwrap().split("</td>").next().unwrap().to_owned()
        };
        let last = last_of("nightly");
        assert!(last.contains(&format!("href=\"/tasks/{newest}\"")) && last.contains("success") && last.contains("<time"), "{last}");
        assert_eq!(last_of("weekly"), "");
    }

    fn events_are_filtered_and_have_pages_by_id(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let rows: Vec<String> = (0..205).map(|number| format!("('edited', 1, 'web:ann', 'host{number}')")).collect();
        db.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"Actor\", \"Host\") VALUES {}", rows.join(", ")));
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"Actor\", \"Host\") VALUES ('paused', 'web:bob', 'h')");
        let server = WebServer::start(db, &[]);
        let rows_of = |page: &Reply| page.body.matches("<tr>").count() - 1;
        for (filter, before) in [("", 6), ("kind=edited", 5), ("task=1&by=web%3Aann", 5), ("by=web%3Aann&kind=edited,paused", 5)] {
            let first = server.get(&format!("/events?{filter}"));
            shows(&first, &["Older events"]);
            let older = first.body.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
            let second = server.get(&older);
            assert_eq!((rows_of(&first), rows_of(&second)), (200, before), "{filter}");
            assert!(!second.body.contains("Older events"), "{filter}");
        }
        let newest = server.get("/events?kind=edited").body;
        assert!(newest.find("host204").unwrap() < newest.find("host203").unwrap(), "the newest comes first");
        shows(&server.get("/events?by=web%3Abob"), &["paused", "value=\"web:bob\""]);
        assert_eq!(rows_of(&server.get("/events?by=web%3Abob&kind=&task=")), 1);
        shows(&server.get("/events?by=web%3Anone"), &["<p>None.</p>"]);
        shows(&server.get("/events?task=x"), &["&quot;x&quot; is not a number", "value=\"x\""]);
        shows(&server.get("/events?kind=editd"), &["there is no kind &quot;editd&quot;"]);
    }

    fn a_class_and_a_runner_are_paused_drained_and_resumed(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let server = WebServer::start(db, &[]);
        let press = |path: &str, body: &str| server.ask("operate", "POST", path, body).status;
        shows(&server.ask("operate", "GET", "/classes", ""), &["/pause?scope=class&amp;name=echo"]);
        let form = server.ask("operate", "GET", "/pause?scope=class&name=echo", "");
        shows(&form, &["Pause class echo", "value=\"stop\"", "value=\"echo\""]);
        assert!(!form.body.contains("value=\"drain\""), "a drain of a class is a pause: {}", form.body);
        shows(&server.ask("operate", "GET", "/pause?scope=runner&name=night", ""), &["Pause runner night", "value=\"drain\""]);
        assert_eq!(press("/pause", "scope=class&name=echo&mode=pause&reason=we+mend+it&duration=2h"), 303);
        assert_eq!(press("/pause", "scope=runner&name=night&mode=drain&reason=upgrade"), 303);
        let listed = db.cli().run(&["pause", "--json"]).ok();
        assert!(listed.contains("we mend it") && listed.contains("\"drain\""), "{listed}");
        shows(&server.ask("operate", "GET", "/", ""), &["class echo paused", "ends in", "Resume class echo", "runner night drained", "Pause all"]);
        assert!(!server.get("/").body.contains("Resume class echo"), "a login that only reads has no button");
        assert_eq!(press("/resume", "scope=class&name=echo"), 303);
        assert_eq!(press("/resume", "scope=runner&name=night"), 303);
        assert!(db.cli().run(&["pause", "--json"]).ok().trim().is_empty());
        for (body, part) in [
            ("scope=host&name=x&mode=pause&reason=r", "is not all, class or runner"),
            ("scope=all&mode=halt&reason=r", "is not pause, drain or stop"),
            ("scope=class&name=echo&mode=pause&reason=r&duration=90", "has no unit"),
            ("scope=class&name=echo&mode=pause&reason=+", "the reason is missing"),
            ("scope=class&name=&mode=pause&reason=r", "neither a task class nor a pattern"),
            ("scope=all&name=echo&mode=pause&reason=r", "takes no name"),
        ] {
            let refused = server.ask("operate", "POST", "/pause", body);
            assert!(refused.status == 400 && refused.body.contains(part), "{body}: {}", refused.body);
        }
        for misspelt in ["", "name=echo&mode=pause&reason=r", "scpoe=class&name=echo&mode=pause&reason=r", "scope=all&mode=pause"] {
            assert_eq!(server.ask("operate", "POST", "/pause", misspelt).status, 422, "{misspelt}");
        }
        assert!(db.cli().run(&["pause", "--json"]).ok().is_empty(), "a mistake pauses nothing");
        let kept = server.ask("operate", "POST", "/pause", "scope=class&name=echo&mode=pause&reason=we+mend+it&duration=90").body;
        assert!(kept.contains("value=\"we mend it\"") && kept.contains("value=\"90\""), "{kept}");
        // Only the use case knows that this is too short.
        let short = server.ask("operate", "POST", "/pause", "scope=class&name=echo&mode=pause&reason=we+mend+it&duration=500ms");
        let kept = ["one second or longer", "value=\"we mend it\"", "value=\"500ms\"", "value=\"echo\""];
        assert!(short.status == 400 && kept.iter().all(|words| short.body.contains(words)), "{}", short.body);
        let warned = server.ask("operate", "POST", "/pause", "scope=class&name=ehco&mode=pause&reason=r");
        shows(&warned, &["No class ehco is known here, and no task has it; did you mean echo?"]);
    }

    fn a_task_shows_its_data_as_a_tree_and_its_links_as_a_drawing(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "{\"to\":[\"ann\",{\"n\":1}]}"]).ok();
        db.cli().run(&["queue", "echo", "--after", "1"]).ok();
        db.cli().run(&["queue", "echo", "--after-any", "2"]).ok();
        let server = WebServer::start(db, &[]);
        shows(&server.get("/tasks/1"), &["<b>to</b>: <ol class=\"tree\" start=\"0\"><li><code>&quot;ann&quot;</code></li>", "As text"]);
        let page = server.get("/tasks/2");
        shows(&page, &["<svg class=\"graph\"", "Dependencies", "Waits for", "Dependants", "(any outcome)", "A dashed arrow"]);
        let drawn = page.body.split("<svg class=\"graph\"").nth(1).unwrap().split("</svg>").next().unwrap();
        assert_eq!((drawn.matches("class=\"edge\"").count(), drawn.matches("class=\"edge any\"").count()), (1, 1), "{drawn}");
        assert!(drawn.contains("href=\"/tasks/1\"") && drawn.contains("href=\"/tasks/3\"") && !drawn.contains("/tasks/2\""), "{drawn}");
    }

    fn a_button_does_what_the_verb_does_and_events_name_the_login(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let press = |path: &str, body: &str| server.ask("operate", "POST", path, body);
        assert_eq!(press("/tasks/2/retry", "").header("location"), Some("/tasks/2"));
        assert_eq!(db.cli().run(&["status", "--json", "2"]).json()["why"]["reason"], "waits_for_create_runs");
        assert_eq!(press("/tasks/3/cancel", "").status, 303);
        assert_eq!(press("/tasks/1/cancel", "").status, 409);
        let schedule = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\"").to_string();
        let run = press(&format!("/schedules/{schedule}/run"), "");
        assert!(run.header("location").unwrap().starts_with("/tasks/"), "{run:?}");
        assert_eq!(press(&format!("/schedules/{schedule}/pause"), "").status, 303);
        assert_eq!(db.cli().run(&["schedule", "--json"]).json()["status"], "paused");
        assert_eq!(press("/pause", "scope=all&mode=pause&reason=we+deploy").status, 303);
        shows(&server.get("/"), &["we deploy", "web:operate"]);
        assert_eq!(press("/resume", "scope=all").status, 303);
        let actors = db.text("SELECT MIN(\"Actor\") AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried'");
        assert_eq!(actors.as_deref(), Some("web:operate"));
    }

    fn an_open_page_gets_an_event_for_each_change(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        // The figures are read before, which is a change too.
        assert_eq!(server.get("/").status, 200);
        let mut lines = server.stream("/live");
        assert!(lines.by_ref().any(|line| line == "event: changed"), "one at once");
        db.cli().run(&["queue", "echo", "1"]).ok();
        while !server.get("/").body.contains("href=\"/tasks/1\"") {
            assert!(lines.any(|line| line == "event: changed"), "one for the task");
        }
    }

    fn each_run_of_an_attempt_has_its_own_log(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "\"hello\""]).ok();
        let server = WebServer::start(db, &[]);
        // A released run continues under the same attempt number.
        let run = server.ask("work", "POST", "/api/v1/claims", "{}").json()["runs"][0].clone();
        let back = format!("{{\"token\":{},\"reject\":false}}", run["token"]);
        assert_eq!(server.ask("work", "POST", &format!("/api/v1/runs/{}/release", run["run_id"]), &back).status, 200);
        db.cli().run(&["tick"]).ok();
        let page = server.get("/tasks/1");
        let newest = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRuns\"");
        let [first, second] = [&run["run_id"].to_string(), &newest.to_string()].map(|run| format!("/tasks/1/log?run={run}"));
        shows(&page, &[&format!("\"{first}\""), &format!("\"{second}\"")]);
        let released = server.get(&first);
        shows(&released, &[&format!("Attempt 1 (run {})", run["run_id"]), "released", "No output so far."]);
        let heading = format!("Attempt 1 (run {newest})");
        for path in [&second, "/tasks/1/log?attempt=1", "/tasks/1/log"] {
            shows(&server.get(path), &[&heading, "hello"]);
        }
        db.cli().run(&["queue", "echo"]).ok();
        for path in [&first.replace("tasks/1", "tasks/2"), "/tasks/1/log?run=99", "/tasks/1/log?attempt=2"] {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
    }

    fn a_log_in_progress_loads_itself_again(db) {
        let end = db.home().join("end");
        db.configure(&shell_class(db, "slow", &format!("echo begun; until [ -e {} ]; do sleep 0.1; done", end.display())));
        db.cli().run(&["queue", "slow"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        let server = WebServer::start(db, &[]);
        wait_until("its output is seen", || server.get("/tasks/1/log").body.contains("begun"));
        shows(&server.get("/tasks/1/log"), &["data-stream=\"/runs/1/log\""]);
        std::fs::write(&end, "").unwrap();
        finish(runner).ok();
        assert!(!server.get("/tasks/1/log").body.contains("data-stream"));
    }
}
