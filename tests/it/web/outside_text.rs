//! Text that was written into the tables by SQL, in every answer of the server.

use serde_json::{Value, json};

use super::event_streams::open;
use super::{Reply, WebServer, send};
use crate::cli::outside_text::{NASTY, NASTY_JSON, fill, forge, harmful};
use crate::each_engine;

/// Asks without the check of the schemas: they do not know forged values.
fn ask(server: &WebServer, path: &str) -> Reply {
    send(&server.address, "GET", path, &[&format!("Authorization: Bearer {}", server.token("admin"))], "")
}

/// Returns the paths of all routes that read, except streams and files.
fn read_paths(server: &WebServer) -> Vec<String> {
    let routes = server.get("/api/v1").json()["routes"].as_array().unwrap().clone();
    let read = routes.iter().filter(|route| route["method"] == "GET").map(|route| route["path"].as_str().unwrap());
    let ends = |path: &&str| !path.ends_with("/stream") && !path.starts_with("/live") && !path.starts_with("/runs/");
    read.filter(ends).filter(|path| !path.starts_with("/assets/")).map(str::to_owned).collect()
}

each_engine! {
    fn json_over_http_has_no_characters_that_control_a_terminal(db) {
        fill(db);
        let taken = forge(&mut db.raw());
        assert!(taken.iter().any(|column| column == "TaskQueueEvents.Actor"), "{taken:?}");
        let server = WebServer::start(db, &[]);
        for path in read_paths(&server).iter().filter(|path| path.starts_with("/api/")) {
            for id in 1..=5 {
                let reply = ask(&server, &path.replace("{id}", &id.to_string()));
                assert_eq!((reply.status, harmful(&reply.body)), (200, None), "{path} {id}: {}", reply.body);
            }
        }
        // The values are those of the rows.
        let shown = ask(&server, "/api/v1/tasks/1");
        assert!(shown.body.contains("C\\u009b2J\\u202e\\u2066\\u2028"), "{}", shown.body);
        let stored: Value = serde_json::from_str(NASTY_JSON).unwrap();
        let shown = shown.json();
        assert_eq!((&shown["task"]["data"], &shown["runs"][0]["error_code"]), (&stored, &json!(NASTY)));
        assert_eq!(ask(&server, "/api/v1/events").json()["events"][0]["actor"], NASTY);
    }

    fn events_in_a_stream_have_no_characters_that_control_a_terminal(db) {
        fill(db);
        forge(&mut db.raw());
        let server = WebServer::start(db, &[]);
        // The first event is read from the database, the second one comes from the poller.
        let first = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueEvents\"") - 1;
        let mut lines = open(&server, "", &format!("Last-Event-ID: {first}\r\n")).filter(|line| line.starts_with("data: "));
        for _ in 0..2 {
            let line = lines.next().unwrap();
            assert_eq!(harmful(&line), None, "{line:?}");
            let event: Value = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
            assert_eq!(event["actor"], NASTY);
            db.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"Actor\") VALUES ('x', '{NASTY}')"));
        }
    }

    fn answers_to_requests_with_odd_text_have_no_odd_characters(db) {
        db.configure(crate::cli::ECHO);
        let server = WebServer::start(db, &[]);
        let task = json!({ "class": "echo", "name": "a\u{202e}b", "data": "\u{9b}\u{2028}\u{7f}" });
        // The client checks every answer.
        let queued = server.ask("queue", "POST", "/api/v1/tasks", &task.to_string());
        assert_eq!((queued.status, &queued.json()["tasks"][0]["name"]), (201, &task["name"]), "{queued:?}");
        let claimed = server.ask("work", "POST", "/api/v1/claims", "{}");
        assert_eq!(claimed.json()["runs"][0]["data"], task["data"], "{claimed:?}");
        let refused = server.ask("queue", "POST", "/api/v1/tasks", &json!({ "class": "echo", "x\u{9b}\u{202e}": 1 }).to_string());
        assert_eq!((refused.status, harmful(&refused.body)), (400, None), "{refused:?}");
    }
}
