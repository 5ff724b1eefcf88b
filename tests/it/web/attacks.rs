//! What a page of another site, a handler, a row or a client could try.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{WebServer, send};
use crate::cli::{ECHO, shell_class};
use crate::support::wait_until;
use crate::{each_engine, test_on};

/// Every page that shows rows.
const PAGES: [&str; 14] = [
    "/",
    "/tasks",
    "/tasks/1",
    "/tasks?columns=task,name,tag,key,limit-key,host,by",
    "/tasks/2",
    "/tasks/2/log",
    "/tasks/3",
    "/failures",
    "/schedules",
    "/schedules/3",
    "/runners",
    "/classes",
    "/classes?name=evil",
    "/events",
];

each_engine! {
    fn text_from_outside_is_harmless_on_every_page(db) {
        let evil = "<script>alert(1)</script>\\\" onload=alert(1) \\u001b]8;;javascript:alert(1)\\u0007x\\u001b[2J\\u202e\\u2066";
        let handler = "printf '<script>alert(1)</script>\\033]0;t\\007\\033[2J\\342\\200\\256\\377\\n'; cat >&2; exit 65";
        db.configure(&format!("{ECHO}{}", shell_class(db, "evil", handler)));
        let task = format!("{{\"class\":\"echo\",\"in\":\"1h\",\"name\":\"<script>alert(1)</script>\",\"data\":\"{evil}\"}}\n");
        let failing = format!("{{\"class\":\"evil\",\"tag\":\"\\\"onload=alert(1)\",\"data\":\"{evil}\"}}\n");
        let recurring = format!(
            "{{\"class\":\"evil\",\"every\":\"0 0 29 2 *\",\"name\":\"<script>alert(1)</script>\",\"data\":{{\"{evil}\":[\"{evil}\"]}}}}\n"
        );
        db.cli().stdin(task + &failing + &recurring).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        db.execute("UPDATE \"TaskQueueRuns\" SET \"ErrorMessage\" = '<script>alert(1)</script>', \"Host\" = '<img src=x onerror=alert(1)>'");
        let server = WebServer::start(db, &[]);
        for page in PAGES {
            let reply = server.get(page);
            assert_eq!(reply.status, 200, "{page}: {}", reply.body);
            for harm in ["<script>alert", "<img", "\u{1b}", "\u{7}", "\u{202e}", "\u{2066}", "\" onload", "\"onload"] {
                assert!(!reply.body.contains(harm), "{page} contains {harm:?}: {}", reply.body);
            }
        }
        assert!(server.get("/tasks/2/log").body.contains("&lt;script&gt;alert(1)"), "it is shown");
        let name = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%20onload%3D";
        for page in [format!("/pause?scope=class&name={name}"), format!("/tasks?columns={name}")] {
            let reply = server.ask("operate", "GET", &page, "");
            assert!(reply.status == 200 && reply.body.contains("&lt;script&gt;alert(1)"), "{page}: {reply:?}");
            assert!(!reply.body.contains("<script>alert") && !reply.body.contains("\" onload"), "{page}: {}", reply.body);
        }
        for name in ["a%E2%80%AEb", "a%1Bb"] {
            assert_eq!(server.ask("operate", "GET", &format!("/pause?scope=runner&name={name}"), "").status, 400, "{name}");
        }
        let said = server.get("/tasks?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E").body;
        assert!(!said.contains("<script>alert"), "{said}");
    }

    fn every_answer_forbids_scripts_frames_and_guesses_of_its_kind(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        for reply in [server.get("/"), server.get("/nothing"), server.get("/api/v1/status"), server.send("GET", "/login", &[], "")] {
            let policy = reply.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'") && policy.contains("script-src 'self'"), "{policy}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.header("referrer-policy"), Some("same-origin"));
            assert!(!reply.body.contains("style=") && !reply.body.contains("onclick"), "{}", reply.body);
        }
    }

    fn a_page_of_another_site_changes_nothing(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "1"]).ok();
        let server = WebServer::start(db, &[]);
        let cookie = format!("Cookie: taskqueue-login={}", server.token("admin"));
        let own = format!("Origin: http://{}", server.address);
        for foreign in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"] {
            for path in ["/tasks/1/cancel", "/pause", "/api/v1/tasks/1/cancel"] {
                assert_eq!(server.send("POST", path, &[&cookie, foreign], "").status, 403, "{foreign} {path}");
            }
        }
        assert_eq!(db.text("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 1").as_deref(), Some("scheduled"));
        // A link and an image are requests that only read.
        assert_eq!(server.send("GET", "/tasks/1/cancel", &[&cookie], "").status, 405);
        assert_eq!(server.send("POST", "/tasks/1/cancel", &[&cookie, &own, "Sec-Fetch-Site: same-origin"], "").status, 303);
    }

    fn a_name_that_points_here_is_not_answered(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &["--host", "queue.example.org"]);
        let port = server.address.rsplit(':').next().unwrap().to_owned();
        let ask = |host: &str| server.send("GET", "/login", &[&format!("Host: {host}")], "").status;
        for foreign in ["evil.example".to_owned(), format!("evil.example:{port}"), "localhost:1".to_owned(), String::new(), "localhost.evil.example".to_owned()] {
            assert_eq!(ask(&foreign), 421, "{foreign:?}");
        }
        for own in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}"), "queue.example.org".to_owned(), format!("queue.example.org:{port}")] {
            assert_eq!(ask(&own), 200, "{own}");
        }
        let own = format!("Host: localhost:{port}");
        for lines in [[own.as_str(), "Host: evil.example"], ["Host: evil.example", &own]] {
            assert_eq!(server.send("GET", "/login", &lines, "").status, 421, "{lines:?}");
        }
    }

    fn a_request_that_is_too_large_or_too_odd_ends_alone(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let long = format!("X: {}", "x".repeat(64 << 10));
        assert_eq!(server.send("GET", "/login", &[&long], "").status, 431);
        let huge = format!("{{\"class\":\"echo\",\"data\":\"{}\"}}", "x".repeat(17 << 20));
        let answer = server.ask("queue", "POST", "/api/v1/tasks", &huge);
        let detail = answer.json()["detail"].clone();
        assert_eq!((answer.status, detail), (413, format!("the body has {} bytes; at most 16777216 are allowed here", huge.len()).into()));
        for path in ["/assets/../../../etc/passwd", "/assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/tasks/x", "/tasks/99999999999999999999"] {
            let answer = server.get(path);
            assert!((400..500).contains(&answer.status) && !answer.body.contains("root:"), "{path}: {answer:?}");
        }
        let mut raw = TcpStream::connect(&server.address).unwrap();
        raw.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = raw.read_to_end(&mut answer);
        assert_eq!(server.get("/").status, 200);
    }

    fn an_address_beyond_this_host_needs_https(db) {
        db.configure(ECHO);
        let said = db.cli().run(&["web", "--listen", "0.0.0.0:0"]).fails(2);
        assert!(said.contains("HTTPS is required") && said.contains("--behind-proxy") && said.contains("--tls-cert"), "{said}");
        let server = WebServer::start(db, &["--behind-proxy", "--host", "queue.example.org"]);
        let head = ["Host: queue.example.org", "Content-Type: application/x-www-form-urlencoded"];
        let port = server.address.rsplit(':').next().unwrap();
        assert_eq!(server.send("GET", "/login", &[&format!("Host: queue.example.org:{port}")], "").status, 421, "the proxy was passed by");
        let plain = [head[0], head[1], "Origin: http://queue.example.org"];
        assert_eq!(send(&server.address, "POST", "/login", &plain, &format!("token={}", server.token("read"))).status, 403);
        let reply = send(&server.address, "POST", "/login", &head, &format!("token={}", server.token("read")));
        let cookie = reply.header("set-cookie").unwrap();
        assert!(cookie.starts_with("__Host-taskqueue-login=") && cookie.ends_with("; Secure"), "{cookie}");
    }

    fn a_file_that_is_no_socket_is_not_replaced_by_one(db) {
        db.configure(ECHO);
        db.cli().run(&["web", "token", "add", "ann", "--may", "read"]).ok();
        let path = crate::cli::write(db, "precious", "kept");
        db.cli().run(&["web", "--listen", &format!("unix:{}", path.display())]).fails(1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    }

    fn many_silent_clients_do_not_keep_another_waiting(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let silent: Vec<TcpStream> = (0..200).map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
            stream
        }).collect();
        assert_eq!(server.get("/").status, 200);
        drop(silent);
        wait_until("it still answers", || server.get("/").status == 200);
    }
}

// The time limit is the same on every engine, and the test waits for it.
test_on! { [sqlite Sqlite] a_head_that_does_not_end_loses_its_connection db {
    db.configure(ECHO);
    let server = WebServer::start(db, &[]);
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
    assert_eq!(server.get("/").status, 200);
} }
