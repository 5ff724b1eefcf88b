//! The first page: the work of each class, and what `doctor` finds in the tables.

use serde_json::Value;

use super::WebServer;
use crate::cli::{ECHO, shell_class};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::support::wait_until;

/// Returns the numbers of a class: running, waiting runs, due, scheduled, failed; none if the page has no row of it.
fn numbers(page: &str, class: &str) -> Vec<String> {
    let Some((_, row)) =
        page.split_once(&format!("<td><a href=\"/classes?name={class}\">{class}</a></td><td data-label=\"running\">"))
    else {
        return Vec::new();
    };
    let cells = row.split("</tr>").next().unwrap().split("</td>").filter(|cell| !cell.is_empty());
    let text = |cell: &str| cell.split('<').map(|part| part.rsplit('>').next().unwrap()).collect::<String>();
    cells.map(text).collect()
}

/// Returns the first page once the server has counted the classes.
fn now_with_classes(server: &WebServer) -> String {
    let page = || server.get("/").body;
    wait_until("the classes are counted", || page().contains("data-label=\"running\""));
    page()
}

each_engine! {
    fn now_and_classes_count_the_tasks_of_each_class_by_status(db) {
        let bad = shell_class(db, "bad", "exit 65");
        db.configure(&format!("{ECHO}{bad}[class.\"c.*\"]\nargv = [\"/bin/cat\"]\n"));
        let queue = |class: &str, more: &[&str]| db.cli().run(&[&["queue", class], more].concat()).ok();
        queue("bad", &[]);
        queue("c.done", &[]);
        db.cli().run(&["tick"]).ok();
        queue("echo", &[]);
        queue("echo", &[]);
        db.cli().run(&["create-runs"]).ok();
        let server = WebServer::start(db, &[]);
        assert_eq!(server.ask("work", "POST", "/api/v1/claims", "{\"class\":[\"echo\"]}").status, 200);
        queue("echo", &[]);
        queue("c.later", &["--in", "1h"]);
        let now = now_with_classes(&server);
        for (class, expected) in [("echo", "1 1 1 2 0"), ("bad", "0 0 0 0 1"), ("c.later", "0 0 0 1 0"), ("c.done", "")] {
            for page in [&now, &server.get("/classes").body] {
                assert_eq!(numbers(page, class).join(" "), expected, "{class}: {page}");
            }
        }
        assert!(now.find("name=echo") < now.find("name=bad") && now.find("name=bad") < now.find("name=c.later"), "{now}");
        // Each number leads to its tasks.
        let row = now.split("name=echo").nth(1).unwrap().split("</tr>").next().unwrap();
        let links: Vec<&str> = row.split("href=\"").skip(1).map(|link| link.split('"').next().unwrap()).collect();
        for (link, tasks) in links.into_iter().zip([1, 2, 1, 2]) {
            let found = server.get(&link.replace("&amp;", "&")).body;
            assert_eq!(found.matches("href=\"/tasks/").count(), tasks, "{link}: {found}");
        }
    }

    fn now_lists_the_busiest_classes_and_stops_counting_at_a_limit(db) {
        db.configure("[class.\"c.*\"]\nargv = [\"/bin/cat\"]\n");
        let line = |class: i32| format!("{{\"class\":\"c.{class}\",\"in\":\"1h\"}}\n");
        let lines: String = (10..61).map(line).chain((0..1_000).map(|_| line(42))).collect();
        db.cli().stdin(lines).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        let (now, all) = (now_with_classes(&server), server.get("/classes").body);
        let rows = |page: &str| page.matches("<td data-label=\"running\">").count();
        assert_eq!((rows(&now), rows(&all)), (10, 50), "{now}");
        assert!(now.contains("All classes") && all.contains("Not all classes are counted"), "{now}");
        for page in [&now, &all] {
            assert_eq!(numbers(page, "c.42").join(" "), "0 0 0 1000+ 0", "{page}");
        }
        let first = now.split("<a href=\"/classes?name=").nth(1).unwrap();
        assert!(first.starts_with("c.42\""), "{now}");
    }

    fn now_shows_the_worst_problem_that_doctor_finds_in_the_tables(db) {
        db.configure(&format!("{ECHO}{}crash_limit = 1\n", shell_class(db, "crash", "kill -SEGV $$")));
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let server = WebServer::start(db, &[]);
        let clean = server.get("/");
        assert!(clean.status == 200 && !clean.body.contains("taskqueue doctor"), "{clean:?}");
        // An open page loads itself again.
        let mut changes = server.stream("/live");
        assert!(changes.any(|line| line == "event: changed"), "the figures are new");
        let waiting = db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let stranded = db.cli().run(&["queue", "echo", "--after", &waiting]).ok();
        db.cli().run(&["cancel", &waiting]).ok();
        let words = format!("tasks wait for others that were cancelled or have expired: {stranded}.");
        let is_shown = |words: &str| {
            let page = server.get("/").body;
            page.contains(words) && page.contains("<code>taskqueue doctor</code>")
        };
        while !is_shown(&words) {
            assert!(changes.any(|line| line == "event: changed"), "an event without a further change of the queue");
        }
        assert!(!server.get("/").body.contains(&format!("{words} And")), "{words}");
        db.cli().run(&["queue", "crash"]).ok();
        db.cli().run(&["tick"]).ok();
        let quarantined = "1 task is quarantined: crashed too often, or cannot be read.";
        while !is_shown(&format!("{quarantined} And 1 more problem.")) {
            assert!(changes.any(|line| line == "event: changed"), "an event for the next problem");
        }
        // A pause is not repeated: the page shows it anyway.
        db.cli().run(&["pause", "--all", "--reason", "we deploy"]).ok();
        let old = sql_now(db.engine, -200_000);
        db.execute(&format!("UPDATE \"TaskQueuePauses\" SET \"CreatedOn\" = {old}"));
        db.cli().run(&["cancel", &stranded]).ok();
        while !is_shown(quarantined) || is_shown("more problem") {
            assert!(changes.any(|line| line == "event: changed"), "an event when one problem is left");
        }
        let found: Value = serde_json::from_str(&db.cli().run(&["doctor", "--json"]).stdout).unwrap();
        assert_eq!(found["findings"][0]["trouble"], "old_pause", "{found}");
    }
}
