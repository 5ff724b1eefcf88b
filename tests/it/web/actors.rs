//! Who is behind a change over HTTP: its event names the login, and commands of the class `exec` stay those that an admin stored.

use serde_json::{Value, json};

use super::logins::routes;
use super::{Reply, WebServer};
use crate::cli::ECHO;
use crate::each_engine;
use crate::support::TestDb;

/// Returns the value of a hidden field.
fn hidden(page: &Reply, name: &str) -> String {
    let found = page.body.split_once(&format!("name=\"{name}\" value=\"")).and_then(|(_, rest)| rest.split_once('"'));
    found.unwrap_or_else(|| panic!("{name}: {page:?}")).0.replace('+', "%2B")
}

/// Queues a task that is due in an hour, and returns its id.
fn queue(db: &TestDb) -> i64 {
    db.cli().run(&["queue", "echo", "--in", "1h"]).ok().trim().parse().unwrap()
}

fn queue_finished(db: &TestDb) -> i64 {
    let id = queue(db);
    db.cli().run(&["cancel", &id.to_string()]).ok();
    id
}

/// Claims a new task, and returns its run with a body that has its token.
fn claim(db: &TestDb, server: &WebServer) -> (Value, String) {
    let id: i64 = db.cli().run(&["queue", "echo"]).ok().trim().parse().unwrap();
    let claimed = server.ask("work", "POST", "/api/v1/claims", &json!({ "task": id }).to_string()).json();
    (claimed["runs"][0]["run_id"].clone(), json!({ "token": claimed["runs"][0]["token"] }).to_string())
}

/// Makes what the route changes, and returns its address, the body of the request, and the events that it must write.
fn changes_of(db: &TestDb, server: &WebServer, path: &str) -> Vec<(String, String, Option<&'static str>)> {
    let with = |id: &dyn ToString| path.replace("{id}", &id.to_string());
    // What a person agrees to after the first answer.
    let agreed = |selection: String| {
        let asked = server.ask("operate", "POST", path, &format!("q={selection}"));
        format!("q={selection}&agreed={}", hidden(&asked, "agreed"))
    };
    let one = |path: String, body: String, kind: &'static str| vec![(path, body, Some(kind))];
    match path {
        "/tasks/{id}/edit" => {
            let path = with(&queue(db));
            let page = server.ask("operate", "GET", &path, "");
            let body = format!("updated_on={}&run=0&event=0&priority=7&due=now", hidden(&page, "updated_on"));
            one(path, body, "edited")
        }
        "/tasks/{id}/cancel" | "/api/v1/tasks/{id}/cancel" => one(with(&queue(db)), String::new(), "cancelled"),
        "/tasks/{id}/retry" | "/api/v1/tasks/{id}/retry" => one(with(&queue_finished(db)), String::new(), "retried"),
        "/cancel" => one(with(&0), agreed(queue(db).to_string()), "cancelled"),
        "/retry" => one(with(&0), agreed(format!("status%3Dcancelled+{}", queue_finished(db))), "retried"),
        "/schedules/{id}/run" => one(with(&1), String::new(), "schedule-run"),
        "/schedules/{id}/pause" => one(with(&1), String::new(), "schedule-paused"),
        "/schedules/{id}/resume" => one(with(&1), String::new(), "schedule-resumed"),
        "/pause" => [("pause", "paused"), ("drain", "drained"), ("stop", "stopped")]
            .map(|(mode, kind)| (path.to_owned(), format!("scope=class&name=echo&mode={mode}&reason=x"), Some(kind)))
            .into(),
        "/resume" => one(with(&0), "scope=class&name=echo".to_owned(), "resumed"),
        "/api/v1/tasks" => one(with(&0), "{\"class\":\"echo\"}".to_owned(), "task-queued"),
        "/api/v1/claims" => one(with(&0), "{}".to_owned(), "claimed"),
        "/api/v1/runs/{id}/heartbeat" => {
            let (run, body) = claim(db, server);
            vec![(with(&run), body, None)]
        }
        "/api/v1/runs/{id}/resolve" | "/api/v1/runs/{id}/release" => {
            let (run, body) = claim(db, server);
            one(with(&run), body, if path.ends_with("resolve") { "resolved" } else { "rejected" })
        }
        _ => panic!("{path} is new: name the event that it writes"),
    }
}

each_engine! {
    fn the_events_of_every_change_over_http_name_the_login(db) {
        db.configure(ECHO);
        db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).ok();
        db.cli().run(&["queue", "echo", "--every", "1h", "--name", "hourly"]).ok();
        let server = WebServer::start(db, &[]);
        let routes = routes(&server);
        let mut changes = 0;
        for (method, path, scope) in routes.iter().filter(|(method, _, scope)| method != "GET" && scope.is_some()) {
            let scope = scope.as_deref().unwrap();
            for (address, body, kind) in changes_of(db, &server, path) {
                let before = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueEvents\"");
                let reply = server.ask(scope, method, &address, &body);
                assert!(reply.status < 400, "{method} {path}: {reply:?}");
                let count = |which: &str| {
                    db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Id\" > {before} AND {which}"))
                };
                // A claimant has the name of its login.
                let names = if scope == "work" { "'web:work', 'work'".to_owned() } else { format!("'web:{scope}'") };
                let others = count(&format!("\"Actor\" NOT IN ('', {names})"));
                assert_eq!(others, 0, "{method} {path}: {}", db.cli().run(&["events", "-n", "5"]).ok());
                if let Some(kind) = kind {
                    let own = count(&format!("\"Kind\" = '{kind}' AND \"Actor\" IN ({names})"));
                    assert!(own == 1, "{method} {path}: {own} {kind}: {}", db.cli().run(&["events", "-n", "5"]).ok());
                }
                changes += 1;
            }
        }
        assert!(changes > 18, "{changes}");
    }

    fn who_operates_runs_a_stored_command_and_neither_makes_nor_changes_one(db) {
        db.configure("[exec]\nenabled = true\n");
        let command = "{\"argv\":[\"/bin/true\"]}";
        db.cli().run(&["queue", "exec", command, "--every", "1h", "--name", "hourly"]).ok();
        let server = WebServer::start(db, &[]);
        let post = |scope: &str, path: &str, body: &str| server.ask(scope, "POST", path, body);
        let run = post("operate", "/schedules/1/run", "");
        let task = run.header("location").and_then(|place| place.strip_prefix("/tasks/")).unwrap_or_else(|| panic!("{run:?}"));
        for interface in ["", "/api/v1"] {
            for verb in ["cancel", "retry"] {
                let reply = post("operate", &format!("{interface}/tasks/{task}/{verb}"), "");
                assert!(reply.status < 400, "{interface} {verb}: {reply:?}");
            }
        }
        let data = || db.text(&format!("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"Id\" = {task}")).unwrap();
        assert_eq!(data(), command);
        let edit = format!("/tasks/{task}/edit");
        let page = server.ask("operate", "GET", &edit, "");
        let sent = format!("updated_on={}&run=0&event=0&priority=0&due=now&data=", hidden(&page, "updated_on"));
        let other = sent + "%7B%22argv%22%3A%5B%22%2Fbin%2Ffalse%22%5D%7D";
        let own = format!("{{\"class\":\"exec\",\"data\":{command}}}");
        let batch = format!("{{\"class\":\"exec\",\"in\":\"1h\",\"every\":\"1h\",\"name\":\"own\",\"data\":{command}}}");
        for (path, body) in [(edit.as_str(), &other), ("/api/v1/tasks", &own), ("/api/v1/tasks", &batch)] {
            assert_eq!(post("operate", path, body).status, 403, "{path} {body}");
        }
        assert_eq!(data(), command);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
        assert_eq!(post("admin", "/api/v1/tasks", &own).status, 201);
        assert_eq!(post("admin", &edit, &other).status, 303);
        assert!(data().contains("false"));
    }
}
