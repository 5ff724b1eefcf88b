//! The webhook of contrib posts notices, and counts only a successful answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::cli::{count_notices, shell_class, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::wait_until;

/// A posted request.
struct Posted {
    request: String,
    headers: Vec<String>,
    body: Value,
}

fn next_connection(listener: &TcpListener) -> TcpStream {
    let mut stream = None;
    wait_until("the webhook is called", || {
        stream = listener.accept().ok().map(|(stream, _)| stream);
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Reads one request and answers it with this status.
fn answer(listener: &TcpListener, status: &str) -> Posted {
    let mut stream = next_connection(listener);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head =
        reader.by_ref().lines().map(|line| line.unwrap().trim_end().to_owned()).take_while(|line| !line.is_empty());
    let request = head.next().unwrap();
    let headers: Vec<String> = head.collect();
    let length = headers.iter().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n")
        .unwrap();
    Posted { request, headers, body: serde_json::from_slice(&body).unwrap() }
}

each_engine! {
    fn a_webhook_is_told_until_it_answers_that_it_has_taken_it(db) {
        if Command::new("curl").arg("--version").output().is_err() {
            assert!(std::env::var_os("TASKQUEUE_TEST_REQUIRE_ALL").is_none(), "no curl on this machine to test with");
            eprintln!("skipped: no curl on this machine");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        // Neither a shell nor curl's patterns may interpret a part of the address.
        let place = "/it's/[1-3]{a,b}?x=$(touch+pwned)&y=`id`;z";
        let url = format!("http://{}{place}", listener.local_addr().unwrap());
        let headers = write(db, "headers", "Authorization: Bearer s3cret\n");
        let script = Path::new(env!("REPOSITORY_DIR")).join("contrib/notify/webhook.sh");
        let argv = serde_json::json!(["/bin/sh", script, url, headers]);
        db.configure(&format!("[notify]\nargv = {argv}\nevery_secs = 0\n{}", shell_class(db, "work", "exit 65")));
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run"]).ok();
        for (status, words, left) in [
            ("500 Broken", "the webhook answered 500", 1),
            ("302 Found", "the webhook answered 302", 1),
            ("204 No Content", "", 0),
        ] {
            let telling = db.cli().spawn(&["create-runs"]);
            let posted = answer(&listener, status);
            let ended = finish(telling);
            assert_eq!((ended.code, count_notices(db)), (Some(0), left), "{ended:?}");
            assert!(ended.stderr.contains(words) && (left == 1 || ended.stderr.is_empty()), "{ended:?}");
            assert_eq!(posted.request, format!("POST {place} HTTP/1.1"));
            for header in ["Content-Type: application/json", "Authorization: Bearer s3cret"] {
                assert!(posted.headers.iter().any(|line| line == header), "{:?}", posted.headers);
            }
            assert_eq!((&posted.body["count"], &posted.body["notices"][0]["kind"]), (&1.into(), &"exhausted".into()));
        }
        drop(listener);
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run"]).ok();
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("1 notices were not delivered"), "{ended:?}");
        assert_eq!(count_notices(db), 1);
    }
}
