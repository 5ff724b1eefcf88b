//! What a running server learns without a restart, and its socket from a service manager.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{READ_LIMIT, WebServer};
use crate::cli::ECHO;
use crate::support::{EngineUnderTest, db, wait_until};
use crate::{each_engine, test_on};

/// How often a server reads its configuration while requests come.
const READ_EVERY: Duration = Duration::from_secs(1);

each_engine! {
    fn a_new_token_is_valid_and_a_removed_one_refused_without_a_restart(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let server = WebServer::start(db, &[]);
        let token = db.cli().run(&["web", "token", "add", "ann", "--may", "read"]).ok();
        let status = || server.ask_by(token.trim(), "GET", "/api/v1/status", "").status;
        wait_until("the new token is valid", || status() == 200);
        // Also one that waits, and one that was replaced.
        let waiting = std::thread::scope(|scope| {
            let asked = scope.spawn(|| server.ask_by(token.trim(), "GET", "/api/v1/tasks/1?wait_secs=50", "").status);
            db.cli().run(&["web", "token", "add", "ann", "--may", "read", "--force"]).ok();
            asked.join().unwrap()
        });
        assert_eq!(waiting, 401);
        wait_until("the replaced token is refused", || status() == 401);
        db.cli().run(&["web", "token", "remove", "ann"]).ok();
        assert_eq!(server.get("/api/v1/status").status, 200);
    }

    fn the_streams_of_a_removed_token_end(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "--in", "1h"]).ok();
        let server = WebServer::start(db, &[]);
        let streams = ["/live", "/api/v1/events/stream"].map(|path| {
            let mut lines = server.stream(path);
            assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"), "{path}");
            (path, lines)
        });
        db.cli().run(&["web", "token", "remove", "read"]).ok();
        wait_until("the token is refused", || server.get("/api/v1/status").status == 401);
        db.cli().run(&["cancel", "1"]).ok();
        let limit = Instant::now() + READ_LIMIT;
        for (path, lines) in streams {
            // A stream that does not end has a line every 20 seconds.
            let mut lines = lines.take_while(|_| Instant::now() < limit);
            assert!(lines.any(|line| line == "0"), "{path} has no last chunk");
        }
    }

    fn a_new_class_can_be_queued_without_a_restart(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let queue = || server.ask("queue", "POST", "/api/v1/tasks", "{\"class\":\"later\"}").status;
        assert_eq!(queue(), 400);
        db.cli().run(&["class", "add", "later", "--", "/bin/cat"]).ok();
        wait_until("the class is known", || queue() == 201);
    }

    fn a_configuration_that_became_wrong_leaves_the_last_one_in_effect(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let path = db.home().join(".config/taskqueue/config.toml");
        let right = fs::read_to_string(&path).unwrap();
        let replace = |text: &str| {
            let new = path.with_extension("new");
            fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).unwrap();
        };
        let is_served = || server.get("/api/v1/status").status == 200;
        let says = |why: &str| is_served() && server.messages().contains(why);
        replace(&format!("{right}\nno_such_key = 1\n[web.token\n"));
        wait_until("the server says why", || says("the new configuration was not applied, the old one remains"));
        let said_at = Instant::now();
        wait_until("the file is read again", || said_at.elapsed() > 2 * READ_EVERY && is_served());
        replace("");
        wait_until("an empty file changes nothing", || says("is empty"));
        fs::remove_file(&path).unwrap();
        wait_until("a missing file changes nothing", || says("is missing"));
        assert_eq!(server.messages().matches("not applied").count(), 3, "each once: {}", server.messages());
        replace(&right);
        let token = db.cli().run(&["web", "token", "add", "ann", "--may", "read"]).ok();
        wait_until("it is read again", || server.ask_by(token.trim(), "GET", "/tasks", "").status == 200);
    }

    fn a_request_at_the_socket_of_a_service_manager_outlasts_a_restart(db) {
        db.configure(ECHO);
        let first = WebServer::start(db, &[]);
        let tokens = first.tokens();
        drop(first);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let server = WebServer::start_with_socket(db, &socket, tokens.clone());
        assert_eq!(server.address, address.to_string());
        assert_eq!(server.get("/api/v1/status").status, 200);
        assert_eq!(server.end(), Some(0));
        let mut waiting = TcpStream::connect(address).unwrap();
        write!(waiting, "GET /login HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let _server = WebServer::start_with_socket(db, &socket, tokens);
        let mut reply = String::new();
        waiting.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
    }
}

test_on! { [sqlite Sqlite] pages_and_changes_go_through_a_unix_socket_that_its_group_may_use db {
    db.configure(ECHO);
    let path = db.home().join("web.sock");
    // Whatever the umask: the server sets the mode.
    let server = WebServer::start(db, &["--listen", &format!("unix:{}", path.display())]);
    assert_eq!(server.address, format!("unix:{}", path.display()));
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o660);
    assert!(server.get("/").body.contains("read (read)"));
    assert_eq!(server.send("GET", "/api/v1/status", &[], "").status, 401);
    assert_eq!(server.send("GET", "/login", &["Host: evil.example"], "").status, 421);
    assert_eq!(server.ask("queue", "POST", "/api/v1/tasks", "{\"class\":\"echo\"}").status, 201);
    let paused = server.ask("operate", "POST", "/pause", "scope=all&mode=pause&reason=we+deploy");
    assert_eq!(paused.status, 303, "{paused:?}");
    wait_until("the page shows it", || server.get("/").body.contains("we deploy"));
    let mut lines = server.stream("/live");
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(server.end(), Some(0));
    assert!(!path.exists(), "it removes its socket");
} }

test_on! { [sqlite Sqlite] a_server_raises_its_limit_of_open_files_for_its_connections db {
    db.configure(ECHO);
    let tokens = WebServer::start(db, &[]).tokens();
    let script = "ulimit -Sn 100; exec \"$0\" web --listen 127.0.0.1:0";
    let server = WebServer::start_by(db, script, Stdio::null(), tokens);
    let streams: Vec<_> = (0..150).map(|_| server.stream("/live")).collect();
    for mut lines in streams {
        assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    }
} }

#[test]
fn the_server_creates_a_sqlite_store_that_does_not_exist() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        fs::write(db.home().join("empty.db"), "").unwrap();
        for name in ["missing.db", "empty.db"] {
            let server = WebServer::start(db, &["--database", name]);
            assert_eq!(server.ask("queue", "POST", "/api/v1/tasks", "{\"class\":\"echo\"}").status, 201, "{name}");
            assert!(db.cli().run(&["status", "1", "--database", name]).ok().contains("echo"), "{name}");
        }
        // A server that may change nothing makes nothing.
        db.cli().run(&["web", "--read-only", "--database", "other.db"]).fails(69);
        assert!(!db.home().join("other.db").exists());
    });
}
