//! Rows that cannot be read, over HTTP. Only SQLite stores data that is not UTF-8.

use serde_json::{Value, json};

use super::WebServer;
use super::edit::{open, save};
use super::event_streams::{self, next_events};
use crate::cli::ECHO;
use crate::cli::unreadable::insert_unreadable;
use crate::support::TestDb;
use crate::{each_engine, test_on};

/// The data of such a task as it is shown.
const FOUND: &str = "\\\"M\\xfcller\\\"";
/// Its bytes.
const STORED: &str = "224DFC6C6C657222";
/// A part of what is shown that no encoding of an answer changes.
const PART: &str = "xfcller";

const READING: [&str; 12] = [
    "/",
    "/tasks",
    "/tasks/1",
    "/tasks/1/edit",
    "/tasks/1/log",
    "/failures",
    "/events",
    "/api/v1/status",
    "/api/v1/explanation",
    "/api/v1/tasks",
    "/api/v1/tasks/1",
    "/api/v1/tasks/1/explanation",
];

/// Returns a server with task 1, whose data cannot be read, and task 2, which can run.
fn ready(db: &TestDb, hidden: &str) -> WebServer {
    db.configure(&format!("{ECHO}{hidden}"));
    assert_eq!(insert_unreadable(db), "TaskData");
    db.cli().run(&["queue", "echo", "2"]).ok();
    WebServer::start(db, &[])
}

fn claim(server: &WebServer) -> Vec<Value> {
    let claimed = server.ask("work", "POST", "/api/v1/claims", "{\"count\":5}");
    assert_eq!(claimed.status, 200, "{claimed:?}");
    claimed.json()["runs"].as_array().unwrap().clone()
}

/// Returns the data of task 1 in hexadecimal digits.
fn stored(db: &TestDb) -> Option<String> {
    db.text("SELECT HEX(\"TaskData\") AS value FROM \"TaskQueue\" WHERE \"Id\" = 1")
}

/// Checks what pages and the interface show of task 1.
#[track_caller]
fn expect_shown(server: &WebServer, status: &str) {
    let on_page = FOUND.replace('"', "&quot;");
    for path in ["/tasks", "/tasks/1", "/tasks/1/edit"] {
        let page = server.ask("operate", "GET", path, "");
        assert!(page.status == 200 && page.body.contains(&on_page), "{path}: {page:?}");
    }
    let shown = server.get("/api/v1/tasks/1").json();
    let in_list = server.get("/api/v1/tasks").json()["tasks"].as_array().unwrap().clone();
    let in_list = in_list.into_iter().find(|line| line["task"]["id"] == 1).unwrap();
    let explained = server.get("/api/v1/tasks/1/explanation").json();
    for task in [&shown["task"], &in_list["task"], &explained["task"]] {
        let unreadable = json!([{ "column": "TaskData", "found": FOUND }]);
        assert_eq!((&task["status"], &task["data"], &task["unreadable"]), (&json!(status), &json!(FOUND), &unreadable));
    }
    for why in [&shown["why"], &in_list["why"], &explained["cause"]["why"]] {
        assert_eq!(why, &json!({ "reason": "unreadable", "column": "TaskData", "found": FOUND }));
    }
}

each_engine! {
    fn a_row_that_cannot_be_read_stops_no_page_and_no_other_task(db) {
        db.configure(ECHO);
        let column = insert_unreadable(db);
        db.cli().run(&["queue", "echo", "2"]).ok();
        let server = WebServer::start(db, &[]);
        let expect_named = |status: &str| {
            for path in READING {
                let reply = server.ask("admin", "GET", path, "");
                assert_eq!(reply.status, 200, "{path}: {reply:?}");
            }
            let shown = server.get("/api/v1/tasks/1").json();
            assert_eq!([&shown["task"]["status"], &shown["task"]["unreadable"][0]["column"]], [status, column]);
        };
        expect_named("scheduled");
        assert_eq!(claim(&server).iter().map(|run| run["task_id"].clone()).collect::<Vec<_>>(), [2]);
        expect_named("failed");
        let cancelled = server.ask("operate", "POST", "/api/v1/tasks/1/cancel", "");
        assert_eq!((cancelled.status, cancelled.json()["result"].clone()), (200, json!("cancelled")), "{cancelled:?}");
        expect_named("cancelled");
    }
}

test_on! { [sqlite Sqlite] unreadable_data_is_shown_over_http_and_given_to_no_worker db {
    let server = ready(db, "");
    expect_shown(&server, "scheduled");
    let claimed = claim(&server);
    assert_eq!(claimed.iter().map(|run| run["task_id"].clone()).collect::<Vec<_>>(), [2], "{claimed:?}");
    expect_shown(&server, "failed");
    let set_aside = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'quarantined'";
    for (path, status, count) in [("/api/v1/tasks/1/retry", 200, 2), ("/tasks/1/retry", 303, 3)] {
        assert_eq!(server.ask("operate", "POST", path, "").status, status, "{path}");
        expect_shown(&server, "failed");
        assert_eq!((claim(&server), db.number(set_aside)), (Vec::new(), count), "{path}");
    }
    assert_eq!(stored(db).as_deref(), Some(STORED));
    let cancelled = server.ask("operate", "POST", "/api/v1/tasks/1/cancel", "");
    assert_eq!((cancelled.status, cancelled.json()["result"].clone()), (200, json!("cancelled")), "{cancelled:?}");
    assert_eq!(server.get("/tasks/1").status, 200);
} }

test_on! { [sqlite Sqlite] unreadable_data_is_kept_or_replaced_by_the_form db {
    let server = ready(db, "");
    for is_finished in [false, true] {
        let priority = if is_finished { "4" } else { "7" };
        let page = open(&server, "operate");
        assert_eq!(save(&server, "operate", &page, &[("priority", priority)]).status, 303);
        assert_eq!((stored(db).as_deref(), server.get("/api/v1/tasks/1").json()["task"]["priority"].to_string()), (Some(STORED), priority.to_owned()));
        if !is_finished {
            assert_eq!(claim(&server).len(), 1);
        }
    }
    assert_eq!(save(&server, "operate", &open(&server, "operate"), &[("data", "\"mended\"")]).status, 303);
    assert_eq!(server.get("/api/v1/tasks/1").json()["task"]["unreadable"], Value::Null);
    assert_eq!(server.ask("operate", "POST", "/api/v1/tasks/1/retry", "").status, 200);
    assert_eq!(claim(&server)[0]["data"], "mended");
} }

test_on! { [sqlite Sqlite] unreadable_data_that_is_hidden_is_in_no_answer_over_http db {
    let server = ready(db, "[web]\nhide_data = [\"echo\"]\n");
    let expect_hidden = |event_count: usize| {
        for path in READING {
            let reply = server.ask("admin", "GET", path, "");
            assert!(reply.status == 200 && !reply.body.contains(PART), "{path}: {reply:?}");
        }
        let task = server.get("/api/v1/tasks/1").json();
        assert_eq!(task["task"]["unreadable"], json!([{ "column": "TaskData", "found": "(hidden)" }]));
        assert_eq!((&task["task"]["data"], &task["why"]["found"]), (&json!("(hidden)"), &json!("(hidden)")));
        let events = server.get("/api/v1/events?task=1").json()["events"].to_string();
        assert_eq!((events.contains(PART), events.matches("(hidden)").count()), (false, event_count), "{events}");
    };
    expect_hidden(0);
    let mut stream = event_streams::open(&server, "?task=1&kind=quarantined", "");
    let claimed = claim(&server);
    assert_eq!((claimed.len(), &claimed[0]["task_id"]), (1, &json!(2)), "{claimed:?}");
    expect_hidden(1);
    let events = next_events(&mut stream, 1);
    assert_eq!(events[0].1["details"]["unreadable"], json!({ "column": "TaskData", "found": "(hidden)" }), "{events:?}");
    let retried = server.ask("operate", "POST", "/api/v1/tasks/1/retry", "");
    assert!(retried.status == 200 && !retried.body.contains(PART), "{retried:?}");
    expect_hidden(1);
} }
