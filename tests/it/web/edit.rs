//! The form that changes a task: its version, its errors, and both versions after a change by another one.

use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::{Reply, WebServer};
use crate::cli::ECHO;
use crate::conformance::fixture::claim_by_nobody;
use crate::each_engine;
use crate::support::TestDb;

/// Returns a server with a task that is due in 2099, whose data has two lines.
fn ready(db: &TestDb) -> WebServer {
    db.configure(ECHO);
    let arguments = ["queue", "echo", "-", "--at", "2099-01-01T00:00:00.5Z", "--priority", "3"];
    db.cli().stdin("{\"a\": 1.50,\n \"b\": \"x\u{202e}\"}").run(&arguments).ok();
    WebServer::start(db, &[])
}

pub(super) fn open(server: &WebServer, scope: &str) -> Reply {
    server.ask(scope, "GET", "/tasks/1/edit", "")
}

/// Sends the form of this page with these values for its fields, as a browser does.
pub(super) fn save(server: &WebServer, scope: &str, page: &Reply, changes: &[(&str, &str)]) -> Reply {
    let mut sent: Vec<(&str, String)> = ["updated_on", "run", "event"].map(|name| (name, hidden(page, name))).into();
    let data = between(&page.body, "spellcheck=\"false\">\n", "</textarea>").replace("&quot;", "\"");
    let due = if page.body.contains("id=\"due\"") { value(page, "due") } else { String::new() };
    for (name, shown) in [("priority", value(page, "priority")), ("due", due), ("data", data)] {
        let changed = changes.iter().find(|(changed, _)| *changed == name).map(|(_, value)| (*value).to_owned());
        sent.push((name, changed.unwrap_or(shown).replace('\n', "\r\n")));
    }
    let body = Serializer::new(String::new()).extend_pairs(sent).finish();
    server.ask(scope, "POST", "/tasks/1/edit", &body)
}

fn hidden(page: &Reply, name: &str) -> String {
    between(&page.body, &format!("name=\"{name}\" value=\""), "\"")
}

fn value(page: &Reply, id: &str) -> String {
    between(&between(&page.body, &format!("<input id=\"{id}\""), ">"), "value=\"", "\"")
}

fn between(text: &str, before: &str, after: &str) -> String {
    let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    found.unwrap_or_else(|| panic!("{before}: {text}")).0.to_owned()
}

fn task(db: &TestDb) -> Value {
    db.cli().run(&["status", "--json", "1"]).json()["task"].clone()
}

fn data(db: &TestDb) -> String {
    db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1").unwrap()
}

each_engine! {
    fn the_form_changes_what_was_changed_in_it_and_nothing_else(db) {
        let server = ready(db);
        assert!(server.ask("operate", "GET", "/tasks/1", "").body.contains("href=\"/tasks/1/edit\""));
        let (page, before) = (open(&server, "operate"), (task(db), data(db)));
        assert_eq!((page.status, value(&page, "priority"), value(&page, "due")), (200, "3".into(), "2099-01-01T00:00:00Z".into()));
        assert!(page.body.contains("\\u202e") && !page.body.contains('\u{202e}'), "{}", page.body);
        assert_eq!(save(&server, "operate", &page, &[]).header("location"), Some("/tasks/1"));
        assert_eq!((task(db), data(db)), before, "nothing was changed in it");
        assert_eq!(save(&server, "operate", &page, &[("priority", " -7 ")]).status, 303);
        let after = task(db);
        assert_eq!((&after["priority"], &after["scheduled_on"], data(db)), (&(-7).into(), &before.0["scheduled_on"], before.1));
        let changes = [("data", "{\"a\":\n 2}"), ("due", "+2h")];
        assert_eq!(save(&server, "operate", &open(&server, "operate"), &changes).status, 303);
        let after = task(db);
        assert_eq!((data(db).as_str(), &after["priority"]), ("{\"a\":\n 2}", &(-7).into()));
        assert!(after["scheduled_on"] != before.0["scheduled_on"], "{after}");
        let actor = db.text("SELECT MIN(\"Actor\") AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'edited'");
        assert_eq!(actor.as_deref(), Some("web:operate"));
    }

    fn a_form_of_an_older_version_changes_nothing_and_shows_both(db) {
        let server = ready(db);
        let page = open(&server, "operate");
        db.cli().run(&["edit", "1", "--priority", "5", "--reason", "month end"]).ok();
        let before = (task(db), data(db));
        let stale = save(&server, "operate", &page, &[("priority", "9")]);
        assert_eq!(stale.status, 409, "{}", stale.body);
        for words in ["nothing was saved", "<td class=\"words\">9</td><td class=\"words\">5</td>", "edited", "month end"] {
            assert!(stale.body.contains(words), "{words}: {}", stale.body);
        }
        assert_eq!((task(db), data(db)), before);
        assert_eq!(value(&stale, "priority"), "9", "what was typed is kept");
        // Now for the version that was shown.
        assert_eq!(save(&server, "operate", &stale, &[]).status, 303);
        assert_eq!(task(db)["priority"], 9);
        assert_eq!(save(&server, "operate", &stale, &[("priority", "1")]).status, 409);
    }

    fn a_form_saves_nothing_if_a_run_has_started_since(db) {
        let server = ready(db);
        db.cli().run(&["edit", "1", "--in", "0s", "--priority", "0"]).ok();
        let (page, before) = (open(&server, "operate"), data(db));
        // This start leaves the row of the task unchanged.
        let tokens = ["a-token-of-an-unmarked-run".to_owned()];
        assert_eq!(db.store().claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap().runs.len(), 1);
        let stale = save(&server, "operate", &page, &[("data", "2")]);
        assert!(stale.status == 409 && stale.body.contains("nothing was saved"), "{}", stale.body);
        assert_eq!((hidden(&stale, "updated_on"), data(db)), (hidden(&page, "updated_on"), before));
        // Now for the run that was shown.
        assert_eq!(save(&server, "operate", &stale, &[]).status, 303);
        assert_eq!(data(db), "2");
    }

    fn a_wrong_value_in_the_form_is_named_and_what_was_typed_is_kept(db) {
        let server = ready(db);
        let (page, before) = (open(&server, "operate"), (task(db), data(db)));
        for (field, typed, words) in [
            ("priority", "high", "priority: &quot;high&quot; is not a whole number"),
            ("priority", "1001", "-1000 to 1000"),
            ("due", "someday", "due: &quot;someday&quot; is not a time"),
            ("data", "{\"a\": <b>", "data"),
        ] {
            let refused = save(&server, "operate", &page, &[(field, typed)]);
            assert_eq!(refused.status, 400, "{field} {typed}: {}", refused.body);
            assert!(refused.body.contains(words), "{words}: {}", refused.body);
            let shown = typed.replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
            assert!(refused.body.matches(&shown).count() >= 1 && !refused.body.contains("<b>\""), "{}", refused.body);
        }
        assert_eq!((task(db), data(db)), before);
        assert_eq!(server.ask("operate", "POST", "/tasks/1/edit", "priority=1").status, 422);
        assert_eq!(save(&server, "read", &page, &[("priority", "1")]).status, 403);
    }

    fn only_an_admin_changes_the_program_of_an_exec_task(db) {
        db.configure("[exec]\nenabled = true\n");
        db.cli().run(&["queue", "exec", "{\"argv\":[\"/bin/true\"]}", "--in", "1h"]).ok();
        let server = WebServer::start(db, &[]);
        let page = open(&server, "admin");
        assert!(!open(&server, "operate").body.contains("<textarea"));
        let program = [("data", "{\"argv\":[\"/bin/false\"]}")];
        assert_eq!(save(&server, "operate", &page, &program).status, 403);
        assert!(data(db).contains("true"));
        assert_eq!(save(&server, "operate", &page, &[("priority", "1")]).status, 303);
        assert_eq!(save(&server, "admin", &open(&server, "admin"), &program).status, 303);
        assert!(data(db).contains("false"));
    }

    fn the_form_of_a_finished_task_says_that_it_will_not_run_again(db) {
        let server = ready(db);
        db.cli().run(&["cancel", "1"]).ok();
        assert!(!server.ask("operate", "GET", "/tasks/1", "").body.contains("/edit\""));
        let page = open(&server, "operate");
        assert!(page.body.contains("will not run again") && !page.body.contains("<form class=\"fields\""), "{}", page.body);
    }

    fn the_form_of_a_task_without_retries_promises_no_run(db) {
        let server = ready(db);
        assert!(!open(&server, "operate").body.contains("will not run again"));
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = 5, \"MaxRetries\" = 5 WHERE \"Id\" = 1");
        let page = open(&server, "operate");
        // No time makes it run, so it asks for none.
        assert!(page.body.contains("will not run again unless you retry it") && !page.body.contains("Due"), "{}", page.body);
        assert_eq!(save(&server, "operate", &page, &[("data", "2")]).header("location"), Some("/tasks/1"));
        assert_eq!(data(db), "2");
        let task = server.get("/tasks/1").body;
        assert!(task.contains("will not run again") && task.contains("taskqueue retry 1"), "{task}");
    }
}
