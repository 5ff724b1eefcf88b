//! Logins that are limited: to classes, and in their number of requests.

use serde_json::{Value, json};

use super::WebServer;
use crate::cli::ECHO;
use crate::each_engine;
use crate::support::TestDb;

/// Starts a server with two classes, a task of each, and a token of the scope that is limited to the first class.
fn ready(db: &TestDb, scope: &str) -> (WebServer, String) {
    db.configure(&format!(
        "{ECHO}[class.\"echo.more\"]\nargv = [\"/bin/cat\"]\n[class.other]\nargv = [\"/bin/cat\"]\n"
    ));
    let token = db.cli().run(&["web", "token", "add", "shop", "--may", scope, "--class", "echo*"]).ok();
    db.cli().run(&["queue", "other", "1"]).ok();
    db.cli().run(&["queue", "echo", "2"]).ok();
    (WebServer::start(db, &[]), token.trim().to_owned())
}

fn task(class: &str) -> String {
    json!({ "class": class, "data": 1 }).to_string()
}

each_engine! {
    fn a_login_limited_to_classes_queues_and_reads_only_these(db) {
        let (server, token) = ready(db, "queue");
        let ask = |method: &str, path: &str, body: &str| server.ask_by(&token, method, path, body);
        assert_eq!(ask("POST", "/api/v1/tasks", &task("echo.more")).status, 201);
        let refused = ask("POST", "/api/v1/tasks", &task("other"));
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("may queue only echo*"), "{refused:?}");
        let mixed = format!("{}\n{}\n", task("echo"), task("other"));
        let lines = [format!("Authorization: Bearer {token}"), "Content-Type: application/x-ndjson".to_owned()];
        assert_eq!(server.send("POST", "/api/v1/tasks", &[&lines[0], &lines[1]], &mixed).status, 403);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 3, "all or none");
        assert_eq!(ask("GET", "/api/v1/tasks/2", "").json()["task"]["class"], "echo");
        let hidden = ask("GET", "/api/v1/tasks/1", "");
        assert!(hidden.status == 404 && !hidden.body.contains("other"), "{hidden:?}");
        assert_eq!(hidden.body.replace("task 1", "task 99"), ask("GET", "/api/v1/tasks/99", "").body);
        let id = db.cli().run(&["queue", "echo", "--after", "1", "--after", "2"]).ok();
        let id = id.trim();
        let waiting = ask("GET", &format!("/api/v1/tasks/{id}"), "");
        for awaited in [&waiting.json()["prerequisites"], &waiting.json()["why"]["on"]] {
            assert_eq!((&awaited[0]["class"], &awaited[0]["status"], &awaited[1]["class"]), (&json!(null), &json!(null), &json!("echo")));
        }
        assert!(!waiting.body.contains("other"), "{waiting:?}");
        assert_eq!(ask("POST", "/api/v1/claims", "{}").status, 403);
    }

    fn a_limited_login_gets_no_prerequisite_of_another_class(db) {
        let (server, token) = ready(db, "queue");
        let queue = |key: &str, ids: &[i64]| {
            server.ask_by(&token, "POST", "/api/v1/tasks", &json!({ "class": "echo", key: ids }).to_string())
        };
        for key in ["after", "after_any"] {
            let [there, missing] = [1, 99].map(|id| queue(key, &[2, id]));
            assert_eq!((there.status, &there.body), (400, &missing.body.replace("task 99", "task 1")));
            assert!(there.body.contains("there is no task 1 to wait for"), "{there:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
        // The connection of a limited login is not limited for others.
        let after = json!({ "class": "echo", "after": [1] }).to_string();
        assert_eq!(server.ask("queue", "POST", "/api/v1/tasks", &after).status, 201);
        assert_eq!(queue("after", &[2]).status, 201);
    }

    fn a_limited_login_cannot_claim_a_task_of_another_class_by_id(db) {
        let (server, token) = ready(db, "work");
        let claim = |body: Value| server.ask_by(&token, "POST", "/api/v1/claims", &body.to_string());
        let claims: [&dyn Fn(i64) -> Value; 3] = [
            &|id| json!({ "task": id }),
            &|id| json!({ "task": id, "class": ["echo"] }),
            &|id| json!({ "task": id, "wait_secs": 1 }),
        ];
        for body in claims {
            let [there, missing] = [1, 99].map(|id| claim(body(id)));
            assert_eq!((there.status, &there.body), (404, &missing.body.replace("task 99", "task 1")));
        }
        assert_eq!(claim(json!({ "task": 2 })).json()["runs"][0]["task_id"], 2);
    }

    fn a_login_limited_to_classes_claims_only_runs_of_these(db) {
        let (server, token) = ready(db, "work");
        let claim = |classes: Value| server.ask_by(&token, "POST", "/api/v1/claims", &json!({ "class": classes }).to_string());
        for outside in ["other", "*", "e*", "echo?"] {
            let refused = claim(json!([outside]));
            assert!(refused.status == 403 && refused.body.contains("limited to echo*"), "{outside}: {refused:?}");
        }
        // Without a class it gets one of its own, although another task is first.
        let run = claim(json!([])).json()["runs"][0].clone();
        assert_eq!(run["class"], "echo", "{run}");
        assert_eq!(claim(json!(["echo*", "echo.more"])).json()["runs"], json!([]));
        let end = json!({ "token": run["token"] }).to_string();
        let about = |run: &Value, verb: &str, body: &str| server.ask_by(&token, "POST", &format!("/api/v1/runs/{run}/{verb}"), body);
        assert_eq!(about(&run["run_id"], "heartbeat", "{\"token\":\"x\"}").status, 409);
        assert_eq!(about(&run["run_id"], "resolve", &end).status, 200);
        // A run of another class is like none.
        let hidden = server.ask("work", "POST", "/api/v1/claims", "{\"class\":[\"other\"]}").json()["runs"][0].clone();
        assert_eq!(hidden["class"], "other", "{hidden}");
        for verb in ["heartbeat", "resolve", "release"] {
            let refused = about(&hidden["run_id"], verb, "{\"token\":\"x\"}");
            let missing = about(&json!(99), verb, "{\"token\":\"x\"}");
            assert_eq!((refused.status, refused.body), (404, missing.body.replace("run 99", &format!("run {}", hidden["run_id"]))), "{verb}");
        }
    }

    fn a_login_limited_to_classes_is_refused_where_classes_are_not_checked(db) {
        let (server, token) = ready(db, "work");
        let routes = server.get("/api/v1").json()["routes"].as_array().unwrap().clone();
        let open = |route: &&Value| route["checks_class"] == json!(true);
        assert_eq!(routes.iter().filter(open).count(), 6, "{routes:?}");
        for route in routes.iter().filter(|route| !open(route) && route["scope"].is_string()) {
            let path = route["path"].as_str().unwrap().replace("{id}", "2");
            let reply = server.ask_by(&token, route["method"].as_str().unwrap(), &path, "");
            assert_eq!(reply.status, 403, "{route}: {reply:?}");
        }
    }

    fn only_tokens_that_queue_or_work_can_be_limited_to_classes(db) {
        db.configure(ECHO);
        let refused = db.cli().run(&["web", "token", "add", "ann", "--may", "read", "--class", "echo"]).fails(2);
        assert!(refused.contains("only logins of the scopes queue and work"), "{refused}");
        let wrong = db.cli().run(&["web", "token", "add", "ann", "--may", "queue", "--class", "a b"]).fails(2);
        assert!(wrong.contains("\"a b\""), "{wrong}");
        let digest = "0".repeat(64);
        db.configure(&format!("{ECHO}[web.token.ann]\nsha256 = \"{digest}\"\nmay = \"operate\"\nclass = [\"echo\"]\n"));
        assert!(db.cli().run(&["status"]).fails(78).contains("only logins of the scopes queue and work"));
    }

    fn a_login_that_sends_too_many_requests_waits_and_others_do_not(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &["--rate", "3/1h"]);
        for _ in 0..3 {
            assert_eq!(server.get("/api/v1/schedules").status, 200);
        }
        let refused = server.get("/api/v1/schedules");
        assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("too-many")));
        let rest: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3_600).contains(&rest), "{rest}");
        assert_eq!(server.get("/tasks").status, 429);
        assert_eq!(server.ask("operate", "GET", "/tasks", "").status, 200);
    }
}
