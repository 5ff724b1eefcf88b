//! Workers over HTTP: claims, heartbeats, ends, and waiting.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::WebServer;
use crate::cli::ECHO;
use crate::each_engine;
use crate::races::tools::begin_write;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};

fn ready(db: &TestDb, tasks: &[&str]) -> WebServer {
    db.configure(ECHO);
    for data in tasks {
        db.cli().run(&["queue", "echo", data]).ok();
    }
    WebServer::start(db, &[])
}

/// Returns the status and the answer of a worker's request.
fn ask(server: &WebServer, path: &str, body: &Value) -> (u16, Value) {
    let reply = server.ask("work", "POST", &format!("/api/v1/{path}"), &body.to_string());
    (reply.status, reply.json())
}

#[test]
fn a_run_that_a_worker_claimed_that_has_gone_is_released() {
    on(EngineUnderTest::Sqlite, |db| {
        let server = ready(db, &[]);
        let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", server.address, server.token("work"));
        let request = format!(
            "POST /api/v1/claims HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let undelivered = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"ErrorCode\" = 'not-delivered'";
        // The server may notice too early or too late that the worker has gone: then nothing is claimed, or it stays claimed.
        wait_until("a run is released", || {
            db.cli().run(&["queue", "echo"]).ok();
            let mut lock = db.raw();
            begin_write(&mut lock);
            let mut client = TcpStream::connect(&server.address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let _ = server.get("/api/v1/openapi.json");
            drop(client);
            let _ = server.get("/api/v1/openapi.json");
            lock.execute("COMMIT");
            db.number(undelivered) > 0
        });
    });
}

each_engine! {
    fn a_worker_over_http_claims_renews_and_ends_a_run(db) {
        let server = ready(db, &["{\"order\": 1.50}"]);
        let (status, claimed) = ask(&server, "claims", &json!({ "class": ["ec*"] }));
        let run = &claimed["runs"][0];
        assert_eq!((status, &run["task_id"], &run["class"]), (200, &json!(1), &json!("echo")), "{claimed}");
        assert_eq!(db.text("SELECT \"Claimant\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some("work"));
        let path = |verb: &str| format!("runs/{}/{verb}", run["run_id"]);
        let token = &run["token"];
        let (status, renewed) = ask(&server, &path("heartbeat"), &json!({ "token": token, "percents": 40, "message": "half" }));
        assert_eq!((status, &renewed["cancel_requested"]), (200, &json!(false)), "{renewed}");
        assert!(server.get("/tasks/1").body.contains("40%"));
        let (status, refused) = ask(&server, &path("heartbeat"), &json!({ "token": token, "percents": 400 }));
        assert_eq!((status, &refused["code"]), (400, &json!("input")), "{refused}");
        let (status, stranger) = ask(&server, &path("resolve"), &json!({ "token": "nobody's", "results": 1 }));
        assert_eq!((status, &stranger["code"]), (409, &json!("refused")), "{stranger}");
        let end = json!({ "token": token, "results": { "sent": 3 } });
        let (status, ended) = ask(&server, &path("resolve"), &end);
        assert_eq!((status, &ended["status"]), (200, &json!("success")), "{ended}");
        // The answer may have been lost.
        assert_eq!(ask(&server, &path("resolve"), &end).1["was_recorded_before"], json!(true));
        let task = server.get("/api/v1/tasks/1?wait_secs=50").json();
        assert_eq!((&task["task"]["status"], &task["runs"][0]["results"]), (&json!("success"), &json!({ "sent": 3 })));
    }

    fn a_worker_over_http_fails_releases_and_rejects(db) {
        let server = ready(db, &["1", "2"]);
        let claim = || ask(&server, "claims", &json!({})).1["runs"][0].clone();
        let first = claim();
        let path = |run: &Value, verb: &str| format!("runs/{}/{verb}", run["run_id"]);
        let failed = json!({ "token": first["token"], "error": { "code": "smtp:451", "message": "busy", "retry": false } });
        assert_eq!(ask(&server, &path(&first, "resolve"), &failed).1["status"], "error");
        assert_eq!(db.cli().run(&["status", "--json", "1"]).json()["why"]["reason"], "exhausted");
        let second = claim();
        let back = json!({ "token": second["token"], "reject": false, "reason": "shutdown" });
        assert_eq!(ask(&server, &path(&second, "release"), &back).0, 200);
        let again = claim();
        assert_eq!(again["task_id"], second["task_id"]);
        assert_eq!(ask(&server, &path(&again, "release"), &json!({ "token": again["token"], "reason": "no disk" })).0, 200);
        // It is never offered again to the login that rejected it.
        assert_eq!(ask(&server, "claims", &json!({ "wait_secs": 1 })).1["runs"], json!([]));
        for (path, body) in [
            ("claims", json!({ "clas": [] })),
            ("claims", json!({ "count": 0 })),
            ("claims", json!({ "class": ["; rm"] })),
            ("claims", json!({ "unique": "\0" })),
            ("claims", json!({ "limit_key": "" })),
            ("claims", json!({ "tag": "\u{e4}" })),
            ("runs/1/resolve", json!({})),
            ("runs/1/resolve", json!({ "token": "x", "results": 1, "error": { "code": "a" } })),
        ] {
            let (status, said) = ask(&server, path, &body);
            assert!((400..423).contains(&status) && said["code"] == "input", "{path} {body}: {status} {said}");
        }
    }

    fn data_over_http_is_the_json_that_was_queued(db) {
        let data = "{\"id\":18446744073709551617, \"n\":1,\"n\":0.10000000000000000001}";
        let server = ready(db, &[data]);
        let found = server.get("/api/v1/tasks?q=data.id%3D18446744073709551617").body;
        assert!(found.contains(data), "{found}");
        let claimed = server.ask("work", "POST", "/api/v1/claims", "{}").body;
        assert!(claimed.contains(data), "{claimed}");
        let task = server.get("/api/v1/tasks/1").body;
        assert!(task.contains(data), "{task}");
        for filter in ["by%3D", "error%3D", "class%3D", "data~", "meta.a%3D"] {
            let refused = server.get(&format!("/api/v1/tasks?q={filter}%00"));
            assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some("input")), "{filter}");
        }
    }

    fn a_claim_that_waits_takes_what_is_queued_meanwhile(db) {
        let server = ready(db, &[]);
        let claimed = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ask(&server, "claims", &json!({ "wait_secs": 50 })).1);
            db.cli().run(&["queue", "echo", "1"]).ok();
            waiting.join().unwrap()
        });
        assert_eq!(claimed["runs"][0]["task_id"], json!(1), "{claimed}");
    }
}
