//! Input that is larger or odder than any person writes: the answer is bounded, and a request that cannot be read is refused.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{READ_LIMIT, Reply, WebServer, send};
use crate::cli::{ECHO, shell_class};
use crate::test_on;

/// More than any page needs.
const PAGE_BYTES: usize = 1 << 20;
/// A name that no table accepts.
const EVIL: &str = "<script>alert(1)</script>\" onload=\"alert(1)";

test_on! { [sqlite Sqlite] lines_of_ten_megabytes_make_no_long_page_and_delay_nobody db {
    db.configure(&shell_class(db, "long", "cat >/dev/null; head -c 10000000 /dev/zero | tr '\\0' x | tee /dev/stderr; exit 65"));
    db.cli().run(&["queue", "long"]).ok();
    db.cli().run(&["tick"]).ok();
    let mut raw = db.raw();
    raw.execute("PRAGMA ignore_check_constraints = ON");
    raw.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('long', '\"' || hex(zeroblob(5000000)) || '\"')");
    assert!(db.number("SELECT MAX(LENGTH(\"TaskData\")) AS value FROM \"TaskQueue\"") > 10_000_000);
    let server = WebServer::start(db, &[]);
    std::thread::scope(|scope| {
        for path in ["/", "/tasks", "/tasks/1", "/tasks/1/log", "/tasks/2", "/tasks/2/edit", "/failures", "/events", "/classes?name=long", "/api/v1/failures", "/api/v1/events"] {
            let server = &server;
            scope.spawn(move || {
                let reply = server.ask("operate", "GET", path, "");
                assert_eq!(reply.status, 200, "{path}");
                assert!(reply.body.len() < PAGE_BYTES, "{path} has {} bytes", reply.body.len());
            });
        }
        assert_eq!(server.get("/schedules").status, 200);
    });
    // Programs get the whole data.
    assert!(server.get("/api/v1/tasks/2").body.len() > 10_000_000);
    let peak = server.peak_memory_bytes();
    assert!(peak < 250 << 20, "{} MiB", peak >> 20);
} }

test_on! { [sqlite Sqlite] text_that_is_not_utf8_is_refused_with_a_reason_and_changes_nothing db {
    db.configure(ECHO);
    db.cli().run(&["queue", "echo", "1", "--in", "1h"]).ok();
    let server = WebServer::start(db, &[]);
    let token = format!("Authorization: Bearer {}", server.token("admin"));
    let ask = |method: &str, path: &str, kind: &str, body: &[u8]| {
        send(&server.address, method, path, &[&token, &format!("Content-Type: {kind}")], body)
    };
    let form = "application/x-www-form-urlencoded";
    let refused = |reply: Reply, what: &str| {
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        if what.starts_with("/api/") {
            assert_eq!(reply.json()["code"], "input", "{what}");
        } else {
            assert!(reply.header("content-type").unwrap().starts_with("text/html"), "{what}: {reply:?}");
        }
    };
    for path in ["/?q=%FF", "/tasks?q=a%C3", "/tasks?columns=%ff", "/login?to=%FF", "/live?x=%FF", "/pause?scope=class&name=%FF", "/api/v1/tasks?q=%FF", "/api/v1/events?by=%FF", "/api/v1/events/stream?by=%FF", "/tasks/%FF", "/api/v1/tasks/%FF"] {
        refused(ask("GET", path, form, b""), path);
    }
    for path in ["/login", "/retry", "/cancel", "/pause", "/resume", "/tasks/1/edit", "/tasks/1/retry", "/tasks/1/cancel", "/schedules/1/run"] {
        for body in [b"q=%FF&scope=all&mode=pause&reason=%ff&token=a".as_slice(), b"q=\xff&scope=all&mode=pause&reason=\xff&token=\xff"] {
            refused(ask("POST", path, form, body), path);
        }
    }
    for (path, object) in [
        ("/api/v1/tasks", b"{\"class\":\"\xff\"}"),
        ("/api/v1/claims", b"{\"class\":\"\xff\"}"),
        ("/api/v1/runs/1/heartbeat", b"{\"token\":\"\xff\"}"),
        ("/api/v1/runs/1/resolve", b"{\"token\":\"\xff\"}"),
        ("/api/v1/runs/1/release", b"{\"token\":\"\xff\"}"),
    ] {
        for body in [object.as_slice(), b"\xff\xfe{\0}\0", b"\xed\xa0\x80"] {
            refused(ask("POST", path, "application/json", body), path);
        }
    }
    refused(ask("POST", "/api/v1/tasks", "application/x-ndjson", b"{\"class\":\"echo\"}\n{\"class\":\"echo\",\"data\":\"\xff\"}\n"), "/api/v1/tasks");
    // Bytes that no client writes into an address or a header.
    for head in [b"GET /tasks?q=\xff HTTP/1.1\r\n".as_slice(), b"GET /\xff HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nCookie: taskqueue-login=\xff\r\n"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
        let rest = format!("Host: {}\r\nConnection: close\r\n\r\n", server.address);
        stream.write_all(&[head, rest.as_bytes()].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 400") || answer.starts_with(b"HTTP/1.1 303"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\""), 0);
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 1);
    // Correct text beyond ASCII is stored as it is.
    assert_eq!(ask("POST", "/pause", form, "scope=all&mode=pause&reason=%C3%A4\u{e4}".as_bytes()).status, 303);
    assert!(server.get("/").body.contains("\u{e4}\u{e4}"));
} }

test_on! { [sqlite Sqlite] a_class_name_that_got_past_the_table_is_harmless_on_every_page db {
    db.configure(ECHO);
    let mut raw = db.raw();
    raw.execute("PRAGMA ignore_check_constraints = ON");
    let hold = "(\"TaskClass\", \"Host\", \"HeldUntil\", \"Reason\") VALUES";
    for statement in [
        format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('{EVIL}')"),
        format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES ('{EVIL}', 'failed')"),
        format!("INSERT INTO \"TaskQueueClassHolds\" {hold} ('{EVIL}', '{EVIL}', '2099-01-01 00:00:00.000000', '{EVIL}')"),
    ] {
        raw.execute(&statement);
    }
    let server = WebServer::start(db, &[]);
    let check = |paths: &[(&str, bool)]| {
        for (path, is_shown) in paths {
            let reply = server.ask("admin", "GET", path, "");
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            assert!(!reply.body.contains("<script>alert") && !reply.body.contains("\" onload"), "{path}: {}", reply.body);
            let shown = reply.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&quot;alert(1)");
            assert!(shown || !is_shown, "{path}: {}", reply.body);
        }
    };
    let pages = [("/", true), ("/tasks", true), ("/tasks/1", true), ("/tasks/2", true), ("/tasks/1/edit", true), ("/tasks/1/log", false), ("/failures", true), ("/classes", true), ("/events", false)];
    check(&pages);
    // It is set aside, and no other task is.
    db.cli().run(&["queue", "echo"]).ok();
    db.cli().run(&["tick"]).ok();
    assert_eq!(server.get("/api/v1/tasks/3").json()["task"]["status"], "success");
    check(&pages);
} }
