//! `/api/v1`: the shapes of `--json`.

use serde_json::{Value, json};

use super::WebServer;
use super::pages::fill;
use crate::cli::{ECHO, shell_class};
use crate::each_engine;

/// Removes the time at which something was read.
fn without_now(mut value: Value) -> Value {
    value["now"] = Value::Null;
    value["counts"]["oldest_due_secs"] = Value::Null;
    value
}

each_engine! {
    fn programs_get_the_shapes_that_verbs_print_as_json(db) {
        fill(db);
        let server = WebServer::start(db, &[]);
        let printed = |arguments: &[&str]| without_now(db.cli().run(&[arguments, &["--json"]].concat()).json());
        let served = |path: &str| without_now(server.get(path).json());
        assert_eq!(served("/api/v1/status"), printed(&["status"]));
        let (served_queue, printed_queue) = (served("/api/v1/explanation"), printed(&["explain"]));
        assert_eq!((&served_queue["counts"], &served_queue["remedy"]), (&printed_queue["counts"], &printed_queue["remedy"]));
        let [served_task, printed_task] = [served("/api/v1/tasks/2"), printed(&["status", "2"])];
        assert_eq!((&served_task["task"], &served_task["runs"]), (&printed_task["task"], &printed_task["runs"]));
        assert_eq!(served("/api/v1/tasks/2/explanation")["answer"], printed(&["explain", "2"])["answer"]);
        assert_eq!(served("/api/v1/failures"), printed(&["failures"]));
        assert_eq!(served("/api/v1/schedules")["schedules"][0], db.cli().run(&["schedule", "--json"]).json());
        assert!(served("/api/v1/runners")["runners"].is_array());
        assert!(served("/api/v1/events")["events"].as_array().is_some_and(|events| !events.is_empty()));
        let page = server.get("/api/v1/tasks?q=class%3Decho&limit=1").json();
        assert_eq!((page["tasks"].as_array().map(Vec::len), page["next_before"].is_i64()), (Some(1), true));
        assert!(page["next_after"].is_null());
    }

    fn pages_of_tasks_go_both_ways(db) {
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\",\"data\":{\"a\":1}}\n".repeat(5)).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        for selection in ["", "status%3Dscheduled", "data.a%3D1", "1-5"] {
            let (mut start, mut seen) = ("after=0".to_owned(), Vec::new());
            loop {
                let page = server.get(&format!("/api/v1/tasks?q={selection}&{start}&limit=2")).json();
                seen.extend(page["tasks"].as_array().unwrap().iter().map(|line| line["task"]["id"].as_i64().unwrap()));
                assert!(page["next_before"].is_null(), "{page}");
                let Some(next) = page["next_after"].as_i64() else { break };
                start = format!("after={next}");
            }
            assert_eq!(seen, [1, 2, 3, 4, 5], "{selection}");
        }
        let newest = server.get("/api/v1/tasks?before=4&limit=2").json();
        assert_eq!((&newest["tasks"][0]["task"]["id"], &newest["next_before"]), (&json!(3), &json!(2)));
        assert_eq!(server.get("/api/v1/tasks?before=4&after=1").json()["code"], "input");
    }

    fn a_task_is_queued_retried_and_cancelled_over_http(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let queued = server.ask("queue", "POST", "/api/v1/tasks", "{\n \"class\": \"echo\",\n \"data\": {\"a\": \"x\\ny\"}\n}");
        assert_eq!((queued.status, &queued.json()["tasks"][0]["id"]), (201, &json!(1)), "{queued:?}");
        assert_eq!(db.cli().run(&["status", "--json", "1"]).json()["task"]["data"], json!({ "a": "x\ny" }));
        assert_eq!(db.text("SELECT \"QueuedById\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1").as_deref(), Some("web:queue"));
        let token = format!("Authorization: bearer {}", server.token("queue"));
        let batch = "{\"class\":\"echo\",\"in\":\"1h\"}\n{\"class\":\"echo\",\"unique\":\"k\"}\n";
        let several = server.send("POST", "/api/v1/tasks", &[&token, "Content-Type: application/x-ndjson"], batch);
        assert_eq!(several.json()["tasks"].as_array().map(Vec::len), Some(2), "{several:?}");
        let cancelled = server.ask("operate", "POST", "/api/v1/tasks/2/cancel", "");
        assert_eq!((cancelled.status, &cancelled.json()["result"]), (200, &json!("cancelled")));
        assert_eq!(server.ask("operate", "POST", "/api/v1/tasks/2/cancel", "").status, 409);
        assert_eq!(server.ask("operate", "POST", "/api/v1/tasks/77/retry", "").status, 404);
    }

    fn a_retry_that_is_sent_twice_does_not_repeat_a_success(db) {
        let done = db.home().join("done");
        db.configure(&shell_class(db, "flaky", &format!("test -e {0} || {{ touch {0}; exit 65; }}", done.display())));
        db.cli().run(&["queue", "flaky"]).ok();
        db.cli().run(&["tick"]).ok();
        let server = WebServer::start(db, &[]);
        let send = || server.ask("operate", "POST", "/api/v1/tasks/1/retry?status=failed", "");
        assert_eq!(send().json()["result"], "retried");
        db.cli().run(&["tick"]).ok();
        let again = send();
        assert_eq!((again.status, &again.json()["code"]), (409, &json!("refused")), "{again:?}");
        let task = db.cli().run(&["status", "--json", "1"]).json()["task"].clone();
        assert_eq!((&task["status"], &task["attempts"]), (&json!("success"), &json!(2)), "{task}");
        assert_eq!(server.ask("operate", "POST", "/api/v1/tasks/1/retry?status=done", "").status, 400);
    }

    fn a_page_of_tasks_with_much_data_ends_early(db) {
        db.configure(ECHO);
        let line = format!("{{\"class\":\"echo\",\"data\":{{\"text\":\"{}\"}}}}\n", "x".repeat(400_000));
        db.cli().stdin(line.repeat(120)).run(&["queue", "--batch", "-"]).ok();
        let server = WebServer::start(db, &[]);
        let (mut start, mut seen) = ("after=0".to_owned(), Vec::new());
        loop {
            let page = server.get(&format!("/api/v1/tasks?{start}&limit=1000")).json();
            let tasks = page["tasks"].as_array().unwrap();
            assert!((1..120).contains(&tasks.len()), "{}", tasks.len());
            seen.extend(tasks.iter().map(|line| line["task"]["id"].as_i64().unwrap()));
            let Some(next) = page["next_after"].as_i64() else { break };
            start = format!("after={next}");
        }
        assert_eq!(seen, (1..=120).collect::<Vec<_>>());
    }

    fn a_wrong_request_is_a_problem_with_a_reason_and_changes_nothing(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let token = format!("Authorization: Bearer {}", server.token("queue"));
        let json = "Content-Type: application/json";
        for (kind, body, status, part) in [
            (json, "{\"class\":\"nothing\"}", 400, "\"nothing\" is not known here"),
            (json, "{\"class\":\"echo\",\"dat\":1}", 400, "dat"),
            (json, "[1]", 400, "line 1"),
            (json, "{\"class\":", 400, "not JSON"),
            ("Content-Type: application/x-ndjson", "{\"class\":\"echo\"}\n{\"class\":\"\"}\n", 400, "line 2"),
            (json, "{\"class\":\"echo\",\"by\":\"root\"}", 400, "\"by\" may only be"),
            (json, "{\"class\":\"echo\",\"unique\":\"k\",\"on_conflict\":\"replace\"}", 403, "scope operate"),
            ("Content-Type: text/plain", "{\"class\":\"echo\"}", 415, "application/json"),
        ] {
            let refused = server.send("POST", "/api/v1/tasks", &[&token, kind], body);
            assert_eq!((refused.status, refused.header("content-type")), (status, Some("application/problem+json")), "{body}");
            let detail = refused.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(part), "{body}: {detail}");
        }
        assert_eq!(server.get("/api/v1/tasks?q=clas%3Dx").status, 400);
        assert_eq!(server.get("/api/v1/tasks?limit=x").json()["code"], "input");
        assert_eq!(server.get("/api/v1/nothing").json()["code"], "not-found");
        let refused = server.get("/api/v1/tasks/x").json();
        assert_eq!([&refused["code"], &refused["detail"]], ["input", "`x` is no id; an id is a whole number"]);
        let detail = server.get("/api/v1/tasks?x=1").json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("x: unknown field `x`, expected one of `q`"), "{detail}");
        assert_eq!(server.ask("queue", "PUT", "/api/v1/tasks", "{}").json()["status"], 405);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
    }

    fn only_an_admin_queues_exec_over_http(db) {
        db.configure(&format!("{ECHO}[exec]\nenabled = true\n"));
        let server = WebServer::start(db, &[]);
        let task = "{\"class\":\"exec\",\"data\":{\"argv\":[\"/bin/true\"]}}";
        assert_eq!(server.ask("operate", "POST", "/api/v1/tasks", task).status, 403);
        // However the name of the class is written, and wherever it stands.
        assert_eq!(server.ask("operate", "POST", "/api/v1/tasks", &task.replace("exec", "\\u0065xec")).status, 403);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
        assert_eq!(server.ask("admin", "POST", "/api/v1/tasks", task).status, 201);
    }
}
