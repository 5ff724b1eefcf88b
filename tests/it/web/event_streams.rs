//! Events over HTTP: lists with filters, and streams that lose nothing and repeat nothing.

use serde_json::Value;

use super::WebServer;
use crate::cli::ECHO;
use crate::support::TestDb;
use crate::{each_engine, test_on};

pub(super) const STREAM: &str = "/api/v1/events/stream";

/// Returns the next events of a stream: the id of the stream, and the event.
pub(super) fn next_events(lines: &mut impl Iterator<Item = String>, count: usize) -> Vec<(Option<i64>, Value)> {
    let (mut events, mut id, mut data) = (Vec::new(), None, None);
    while events.len() < count {
        let line = lines.next().unwrap_or_else(|| panic!("the stream ended after {events:?}"));
        match line.split_once(": ") {
            Some(("id", text)) => id = Some(text.parse().unwrap()),
            Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
            _ if line.is_empty() => events.extend(data.take().map(|event| (id.take(), event))),
            _ => {}
        }
    }
    events
}

fn ids(events: &[(Option<i64>, Value)]) -> Vec<i64> {
    events.iter().map(|(_, event)| event["id"].as_i64().unwrap()).collect()
}

/// Opens a stream, and returns its lines after its head.
pub(super) fn open(server: &WebServer, query: &str, head: &str) -> impl Iterator<Item = String> + use<> {
    let mut lines = server.stream_with(&format!("{STREAM}{query}"), head);
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    assert!(lines.by_ref().any(|line| line.is_empty()), "no head");
    lines
}

fn insert(db: &TestDb, id: i64, kind: &str) {
    db.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Id\", \"Kind\") VALUES ({id}, '{kind}')"));
}

fn queue(db: &TestDb, count: usize) {
    db.cli().stdin("{\"class\":\"echo\",\"in\":\"1h\"}\n".repeat(count)).run(&["queue", "--batch", "-"]).ok();
}

each_engine! {
    fn a_thousand_events_at_once_reach_every_stream_once_and_in_order(db) {
        db.configure(ECHO);
        queue(db, 1_000);
        let server = WebServer::start(db, &[]);
        let mut streams = [open(&server, "", ""), open(&server, "?kind=cancelled,retried", "")];
        let mut of_task = open(&server, "?task=7&kind=cancelled", "");
        db.cli().run(&["cancel", "status=scheduled", "--yes"]).ok();
        let expected: Vec<i64> = server.get("/api/v1/events?kind=cancelled").json()["events"]
            .as_array().unwrap().iter().map(|event| event["id"].as_i64().unwrap()).collect();
        assert_eq!(expected.len(), 1_000);
        for stream in &mut streams {
            let events = next_events(stream, 1_000);
            assert_eq!(ids(&events), expected);
            assert!(events.iter().all(|(id, event)| *id == event["id"].as_i64()));
        }
        assert_eq!(next_events(&mut of_task, 1)[0].1["task_id"], 7);
        // Whatever was repeated would come before the next event.
        db.cli().run(&["retry", "7"]).ok();
        for stream in &mut streams {
            assert_eq!(next_events(stream, 1)[0].1["kind"], "retried");
        }
    }

    fn a_stream_resumes_after_its_last_event_when_the_server_restarts(db) {
        db.configure(ECHO);
        queue(db, 3);
        let server = WebServer::start(db, &[]);
        let mut stream = open(&server, "", "");
        db.cli().run(&["cancel", "1"]).ok();
        let last = next_events(&mut stream, 1)[0].0.unwrap();
        assert_eq!(server.end(), Some(0));
        drop(stream);
        db.cli().run(&["cancel", "2"]).ok();
        let server = WebServer::start(db, &[]);
        let mut stream = open(&server, "", &format!("Last-Event-ID: {last}\r\n"));
        db.cli().run(&["cancel", "3"]).ok();
        let tasks: Vec<Value> = next_events(&mut stream, 2).iter().map(|(_, event)| event["task_id"].clone()).collect();
        assert_eq!(tasks, [2, 3]);
        // More than a page of the database, and another stream that has read them already.
        let all = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\"");
        let mut whole = open(&server, "", "Last-Event-ID: 0\r\n");
        assert_eq!(next_events(&mut whole, usize::try_from(all).unwrap()).len(), 3);
    }

    fn an_event_that_is_committed_late_reaches_a_stream_once(db) {
        db.configure(ECHO);
        insert(db, 10, "first");
        let server = WebServer::start(db, &[]);
        let mut stream = open(&server, "", "Last-Event-ID: 9\r\n");
        assert_eq!(ids(&next_events(&mut stream, 1)), [10]);
        insert(db, 20, "second");
        assert_eq!(ids(&next_events(&mut stream, 1)), [20]);
        insert(db, 15, "late");
        let late = next_events(&mut stream, 1);
        assert_eq!((ids(&late), late[0].0), (vec![15], None), "it does not move the place from which the stream resumes");
        insert(db, 21, "third");
        assert_eq!(ids(&next_events(&mut stream, 1)), [21]);
        let mut resumed = open(&server, "", "Last-Event-ID: 10\r\n");
        assert_eq!(ids(&next_events(&mut resumed, 3)), [15, 20, 21]);
    }

    fn lists_and_streams_of_events_refuse_what_does_not_exist(db) {
        db.configure(ECHO);
        queue(db, 1);
        db.cli().run(&["cancel", "1", "--reason", "no need"]).ok();
        let server = WebServer::start(db, &[]);
        let found = server.get("/api/v1/events?task=1&kind=cancelled").json();
        assert_eq!(found["events"][0]["details"]["reason"], "no need");
        assert_eq!(server.get("/api/v1/events?task=1&kind=retried").json()["events"], serde_json::json!([]));
        for (query, status) in [("kind=cancled", 400), ("task=x", 400), ("tsk=1", 400), ("task=77", 404), ("run=77", 404)] {
            for path in ["/api/v1/events", STREAM] {
                let refused = server.get(&format!("{path}?{query}"));
                assert_eq!(refused.status, status, "{path}?{query}: {refused:?}");
            }
        }
        let token = format!("Authorization: Bearer {}", server.token("read"));
        assert_eq!(server.send("GET", STREAM, &[&token, "Last-Event-ID: new"], "").status, 400);
        assert_eq!(server.send("GET", STREAM, &[], "").status, 401);
    }
}

// More streams than requests may wait for the database.
test_on! { [sqlite Sqlite] all_streams_are_served_when_they_resume_at_once db {
    db.configure(ECHO);
    queue(db, 3);
    db.cli().run(&["cancel", "status=scheduled", "--yes"]).ok();
    let server = WebServer::start(db, &[]);
    std::thread::scope(|scope| {
        for _ in 0..400 {
            scope.spawn(|| {
                let mut stream = open(&server, "", "Last-Event-ID: 0\r\n");
                assert_eq!(next_events(&mut stream, 3).len(), 3);
            });
        }
    });
} }
