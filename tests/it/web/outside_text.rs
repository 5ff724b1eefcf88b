//! Text that was written into the tables by SQL, in every answer of the server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::event_streams::open;
use super::{Reply, WebServer, send};
use crate::cli::outside_text::{NASTY, NASTY_JSON, fill, forge, harmful};
use crate::support::db::Raw;
use crate::{each_engine, test_on};

/// An element, the end of an attribute, and [`NASTY`].
fn hostile(number: usize) -> String {
    format!("<script>alert({number})</script>\" onload=\"alert(1) {NASTY}")
}

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

/// Fails if the answer is an internal error, or could control a terminal or a browser. Returns whether it shows [`hostile`].
#[track_caller]
fn shows_clean(server: &WebServer, path: &str, what: &str) -> bool {
    let reply = ask(server, path);
    assert!(reply.status < 500, "{path} of {what}: {reply:?}");
    assert_eq!(harmful(&reply.body), None, "{path} of {what}: {}", reply.body);
    if path.starts_with("/api/") {
        return reply.body.contains("<script>alert(");
    }
    for harm in ["<script>alert", "\" onload"] {
        assert!(!reply.body.contains(harm), "{path} of {what}: {}", reply.body);
    }
    reply.body.contains("&lt;script&gt;alert(")
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
        let is_forged = taken.iter().any(|column| column == "TaskQueue.TaskData");
        let stored: Value = serde_json::from_str(if is_forged { NASTY_JSON } else { "{}" }).unwrap();
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

/// Returns the columns with text that programs write.
fn text_columns(raw: &mut Raw, table: &str) -> Vec<String> {
    let written = format!("FROM pragma_table_xinfo('{table}') WHERE hidden = 0");
    raw.texts(&format!("SELECT name AS value {written} AND type = 'TEXT'")).into_iter().flatten().collect()
}

/// Copies a row with these changes: columns, and their values as SQL. Returns its id.
fn copy(raw: &mut Raw, table: &str, id: i64, changes: &[(&str, &str)]) -> i64 {
    let columns = format!("SELECT name AS value FROM pragma_table_xinfo('{table}') WHERE hidden = 0 AND name <> 'Id'");
    let columns: Vec<String> = raw.texts(&columns).into_iter().flatten().collect();
    let value = |column: &String| match changes.iter().find(|(changed, _)| changed == column) {
        Some((_, value)) => (*value).to_owned(),
        None => format!("\"{column}\""),
    };
    let values: Vec<String> = columns.iter().map(value).collect();
    let (names, values) = (columns.join("\", \""), values.join(", "));
    raw.execute(&format!("INSERT INTO \"{table}\" (\"{names}\") SELECT {values} FROM \"{table}\" WHERE \"Id\" = {id}"));
    raw.numbers("SELECT last_insert_rowid() AS value")[0].unwrap()
}

/// Creates tasks with one forged column each: failed, waiting, and recurring ones. Returns their columns and ids.
fn forge_tasks(raw: &mut Raw) -> Vec<(String, i64)> {
    let mut forged = Vec::new();
    for column in text_columns(raw, "TaskQueue") {
        for source in [1, 3, 4] {
            let text = format!("'{}'", hostile(forged.len()));
            let id = copy(raw, "TaskQueue", source, &[(&column, &text), ("ScheduleId", "NULL"), ("Receipt", "NULL")]);
            if source == 4 {
                raw.execute(&format!("UPDATE \"TaskQueue\" SET \"ScheduleId\" = \"Id\" WHERE \"Id\" = {id}"));
            }
            forged.push((column.clone(), id));
        }
    }
    forged
}

/// Creates runs with one forged column each: ended ones of task 1, and open ones of other tasks, which are returned.
fn forge_runs(raw: &mut Raw) -> Vec<(String, i64)> {
    let run = raw.numbers("SELECT MIN(\"Id\") AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 1")[0].unwrap();
    let mut forged = Vec::new();
    for column in text_columns(raw, "TaskQueueRuns") {
        let text = format!("'{}'", hostile(forged.len()));
        copy(raw, "TaskQueueRuns", run, &[(&column, &text)]);
        let task = copy(raw, "TaskQueue", 1, &[("LastStatus", "'processing'"), ("Receipt", "NULL")]);
        let (id, token) = (task.to_string(), format!("'{task}-token'"));
        let of_open = [
            ("TaskQueueId", id.as_str()),
            ("Status", "'processing'"),
            ("FinishedOn", "NULL"),
            ("Token", &token),
            ("Claimant", "'bot'"),
        ];
        let open = copy(raw, "TaskQueueRuns", run, &[&[(column.as_str(), text.as_str())], &of_open[..]].concat());
        raw.execute(&format!("UPDATE \"TaskQueue\" SET \"CurrentRunId\" = {open} WHERE \"Id\" = {task}"));
        forged.push((format!("run.{column}"), task));
    }
    forged
}

// Only in a file can a connection turn the checks off.
test_on! { [sqlite Sqlite] every_column_that_got_past_the_tables_is_clean_on_every_page db {
    fill(db);
    let mut raw = db.raw();
    raw.execute("PRAGMA ignore_check_constraints = ON");
    let forged = [forge_tasks(&mut raw), forge_runs(&mut raw), vec![("many runs".to_owned(), 1)]].concat();
    let server = WebServer::start(db, &[]);
    let (of_one, of_all): (Vec<String>, Vec<String>) = read_paths(&server).into_iter().partition(|path| path.contains("{id}"));
    for path in of_all.iter().map(String::as_str).chain(["/tasks?columns=task,name,tag,key,limit-key,host,by"]) {
        let shows = shows_clean(&server, path, "all");
        assert!(shows || !["/", "/tasks", "/schedules", "/api/v1/tasks", "/api/v1/schedules"].contains(&path), "{path}");
    }
    let mut shown = BTreeSet::new();
    for (column, id) in &forged {
        for path in &of_one {
            if shows_clean(&server, &path.replace("{id}", &id.to_string()), column) {
                shown.insert((path.starts_with("/api/"), column.as_str()));
            }
        }
    }
    let on_pages = ["Backoff", "LastStatus", "LimitKey", "Meta", "Name", "Overlap", "QueuedById", "Recurrence", "ScheduleStatus", "Tag", "TaskClass", "TaskData", "TimeZone", "UniqueKey", "run.Claimant", "run.ErrorCode", "run.ErrorMessage", "run.Host", "run.Results", "run.Status"];
    for column in on_pages {
        assert!(shown.contains(&(false, column)) && shown.contains(&(true, column)), "{column}: {shown:?}");
    }
    for run in raw.numbers("SELECT \"Id\" AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 1").into_iter().flatten() {
        shows_clean(&server, &format!("/tasks/1/log?run={run}"), "a run");
    }
} }
