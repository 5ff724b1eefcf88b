//! nginx and Caddy before the server, with the configurations that this project ships: pages and streams go through, and no request
//! that is written in two ways at once carries a second one past nginx.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{READ_LIMIT, WebServer};
use crate::cli::ECHO;
use crate::support::{TestDb, wait_until};
use crate::test_on;

/// The name of the server in contrib/web.
const NAME: &str = "queue.example.org";

/// People who log in at the proxy, if it makes them.
const PEOPLE: &str = "[web]
user_header = \"X-Forwarded-User\"
trusted_proxies = [\"127.0.0.1\"]
[web.user.ann]
may = \"operate\"
[web.user.boss]
may = \"admin\"
";

/// A proxy and the server behind it, which end with the value.
struct Proxy {
    program: Child,
    server: WebServer,
    /// Where the proxy listens: a free port could be taken before it does.
    socket: String,
}

impl Proxy {
    /// Starts the server and, with its address and the home and the socket of the proxy, the proxy.
    fn start(db: &TestDb, proxy: fn(&str, &str, &str) -> Command) -> Self {
        db.configure(&format!("{ECHO}{PEOPLE}"));
        let server = WebServer::start(db, &["--behind-proxy", "--host", NAME]);
        let home = db.home().display().to_string();
        let socket = format!("{home}/proxy.sock");
        certify(&home);
        let mut command = proxy(&server.address, &home, &socket);
        let program = command.spawn().unwrap_or_else(|error| panic!("{error}: tests/install installs {command:?}"));
        let proxy = Self { program, server, socket };
        wait_until("the proxy listens", || UnixStream::connect(&proxy.socket).is_ok());
        proxy
    }

    /// Opens a connection with TLS, writes these bytes, and returns what comes back.
    fn write(&self, bytes: &str) -> Connection {
        let mut tls = Command::new("openssl")
            .args(["s_client", "-quiet", "-servername", NAME, "-unix", &self.socket])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tls.stdin.as_mut().unwrap().write_all(bytes.as_bytes()).unwrap();
        let answers = BufReader::new(tls.stdout.take().unwrap());
        Connection { tls, answers }
    }

    /// Writes these bytes, and returns all answers until the proxy closes the connection.
    fn answers(&self, bytes: &str) -> String {
        let mut connection = self.write(bytes);
        let mut text = Vec::new();
        connection.answers.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Writes these bytes to the server itself, and returns all answers.
    fn direct(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
        stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
        // A server that refuses the beginning closes the connection before the end.
        let _ = stream.write_all(bytes.as_bytes());
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the first lines of a request with a token: its method and address, its host, and who sends it.
    fn head(&self, request: &str, scope: &str) -> String {
        let token = self.server.token(scope);
        format!("{request} HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {token}\r\n")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its workers end with it.
        crate::cli::signal(&self.program, rustix::process::Signal::TERM);
        let _ = self.program.wait();
    }
}

/// A connection to the proxy.
struct Connection {
    tls: Child,
    answers: BufReader<ChildStdout>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.tls.kill();
        let _ = self.tls.wait();
    }
}

/// What surrounds a server block on every host; root keeps the user, who can read the certificate.
const MAIN: &str = "daemon off; pid HOME/nginx.pid; worker_processes 1; error_log HOME/error.log;
events {}
http {
    access_log HOME/access.log; client_body_temp_path HOME/body; proxy_temp_path HOME/proxy;
    fastcgi_temp_path HOME/fastcgi; uwsgi_temp_path HOME/uwsgi; scgi_temp_path HOME/scgi;
    include HOME/site.conf;
}
";

/// Returns how nginx is started with the server block as it is shipped.
fn nginx(server: &str, home: &str, socket: &str) -> Command {
    let site = shipped(
        "nginx.conf",
        &[
            ("listen 443 ssl", &format!("listen unix:{socket} ssl")),
            ("/etc/letsencrypt/live/queue.example.org", home),
            ("127.0.0.1:8321", server),
        ],
    );
    std::fs::write(format!("{home}/site.conf"), site).unwrap();
    std::fs::write(format!("{home}/nginx.conf"), MAIN.replace("HOME", home)).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", home, "-e", &format!("{home}/error.log"), "-c", &format!("{home}/nginx.conf")]);
    command
}

/// Returns how Caddy is started with the site as it is shipped. It gets no certificate from elsewhere.
fn caddy(server: &str, home: &str, socket: &str) -> Command {
    let own = format!("{NAME} {{\n\tbind unix/{socket}\n\ttls {home}/fullchain.pem {home}/privkey.pem");
    let site = shipped("Caddyfile", &[("queue.example.org {", &own), ("127.0.0.1:8321", server)]);
    std::fs::write(format!("{home}/Caddyfile"), format!("{{\n\tadmin off\n\tauto_https off\n}}\n\n{site}")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config", &format!("{home}/Caddyfile")]);
    command.env("HOME", home).stderr(std::fs::File::create(format!("{home}/caddy.log")).unwrap());
    command
}

/// Returns a file of contrib/web with the certificate, the addresses and the logs of this test.
fn shipped(file: &str, replaced: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(format!("{}/contrib/web/{file}", env!("REPOSITORY_DIR"))).unwrap();
    for (shipped, own) in replaced {
        assert!(text.contains(shipped), "{shipped}");
        text = text.replace(shipped, own);
    }
    text
}

/// Writes a certificate for the name, signed by its own key.
fn certify(home: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &format!("/CN={NAME}")])
        .args(["-keyout", &format!("{home}/privkey.pem"), "-out", &format!("{home}/fullchain.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
}

fn pauses(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'paused'")
}

test_on! { [sqlite Sqlite] pages_forms_and_streams_go_through_nginx db {
    pages_forms_and_streams_go_through(db, nginx);
} }

test_on! { [sqlite Sqlite] pages_forms_and_streams_go_through_caddy db {
    pages_forms_and_streams_go_through(db, caddy);
} }

fn pages_forms_and_streams_go_through(db: &TestDb, proxy: fn(&str, &str, &str) -> Command) {
    let proxy = Proxy::start(db, proxy);
    let page = proxy.answers(&(proxy.head("GET /", "read") + "Connection: close\r\n\r\n"));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("read (read)"), "{page}");
    // A login, and a form with the cookie and the origin that a browser sends.
    let form = |path: &str, lines: &str, body: &str| {
        let length = body.len();
        proxy.answers(&format!(
            "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nOrigin: https://{NAME}\r\nSec-Fetch-Site: same-origin\r\n{lines}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
    };
    let login = form("/login", "", &format!("token={}", proxy.server.token("operate")));
    let mut headers = login.lines().filter_map(|line| line.split_once(": "));
    let (_, cookie) =
        headers.find(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).unwrap_or_else(|| panic!("{login}"));
    let cookie = cookie.split(';').next().unwrap();
    let paused = form("/pause", &format!("Cookie: {cookie}\r\n"), "scope=all&mode=pause&reason=we+deploy");
    assert!(paused.starts_with("HTTP/1.1 303"), "{paused}");
    assert_eq!(pauses(db), 1);
    // Larger than what nginx accepts without a setting.
    let task = format!("{{\"class\":\"echo\",\"data\":\"{}\"}}\n", "x".repeat(700 << 10)).repeat(2);
    let queued = proxy.answers(&format!(
        "{}Content-Type: application/x-ndjson\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{task}",
        proxy.head("POST /api/v1/tasks", "queue"),
        task.len()
    ));
    assert!(queued.starts_with("HTTP/1.1 201"), "{queued}");
    let mut stream = proxy.write(&(proxy.head("GET /live", "read") + "\r\n"));
    let mut lines = stream.answers.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "event: changed"));
    db.cli().run(&["queue", "echo", "1"]).ok();
    assert!(lines.any(|line| line == "event: changed"), "it is not held back");
}

// Not through Caddy: it reads a request with a length and chunks as chunks alone, so the rest is a request of its own for both.
test_on! { [sqlite Sqlite] no_request_smuggles_another_one_through_nginx db {
    let proxy = Proxy::start(db, nginx);
    // What an attacker would like to have executed. The test can fail: on its own, it is executed.
    let inner = proxy.head("POST /pause", "operate") + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 29\r\n\r\nscope=all&mode=pause&reason=x";
    let end = proxy.head("GET /login", "read") + "Connection: close\r\n\r\n";
    let alone = proxy.answers(&format!("{inner}{end}"));
    assert_eq!((statuses(&alone), pauses(db)), (vec!["303", "200"], 1), "{alone}");
    let outer = proxy.head("POST /logout", "read");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let (length, size) = (inner.len(), format!("{:x}", inner.len()));
    let get = proxy.head("GET /login", "read");
    for (name, attack) in [
        ("CL.TE", format!("{outer}Content-Length: {}\r\n{chunked}\r\n0\r\n\r\n{inner}", length + 5)),
        ("TE.CL", format!("{outer}{chunked}Content-Length: 4\r\n\r\n{size}\r\n{inner}\r\n0\r\n\r\n")),
        ("TE.CL, hidden by a space", format!("{outer}Transfer-Encoding : chunked\r\nContent-Length: {length}\r\n\r\n{inner}")),
        ("two encodings", format!("{outer}Transfer-Encoding: identity\r\n{chunked}Content-Length: 5\r\n\r\n0\r\n\r\n{inner}")),
        ("an encoding that only ends in chunked", format!("{outer}Transfer-Encoding: xchunked\r\nContent-Length: {length}\r\n\r\n{inner}")),
        ("two lengths", format!("{outer}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{inner}")),
        ("a length in a list", format!("{outer}Content-Length: 0, {length}\r\n\r\n{inner}")),
        ("a signed length", format!("{outer}Content-Length: +{length}\r\n\r\n{inner}")),
        ("a space before the colon", format!("{outer}Content-Length : {length}\r\n\r\n{inner}")),
        ("a folded line", format!("{outer}X: a\r\n Content-Length: {length}\r\n\r\n{inner}")),
        ("a folded length", format!("{outer}Content-Length:\r\n {length}\r\n\r\n{inner}")),
        ("a chunk extension", format!("{outer}{chunked}\r\n{size};a=\"\r\n\"\r\n{inner}\r\n0\r\n\r\n")),
        ("a chunk size that is too long", format!("{outer}{chunked}\r\n1000000000000000{size}\r\n{inner}\r\n0\r\n\r\n")),
        ("a bare LF in a chunk", format!("{outer}{chunked}\r\n{size}\n{inner}\n0\n\n")),
        ("a bare LF in a head", format!("{outer}X: a\nContent-Length: {length}\r\n\r\n{inner}")),
        ("a bare CR in a head", format!("{outer}X: a\rContent-Length: {length}\r\n\r\n{inner}")),
        ("a body of a GET", format!("{get}Content-Length: {length}\r\n\r\n{inner}")),
        ("a trailer", format!("{outer}{chunked}\r\n0\r\nContent-Length: {length}\r\nX: {inner}")),
    ] {
        for (door, answers) in [("nginx", proxy.answers(&format!("{attack}{end}"))), ("server", proxy.direct(&format!("{attack}{end}")))] {
            // Refused, or seen as the request that it begins with and the last one.
            assert!(statuses(&answers).len() <= 2 && !answers.contains("location: /\r\n"), "{name} at the {door}: {answers}");
            assert_eq!(pauses(db), 1, "{name} was executed by the {door}: {answers}");
        }
    }
    for (name, host) in [
        ("two hosts", format!("Host: {NAME}\r\nHost: evil.example\r\n")),
        ("a host in a folded line", format!("Host: {NAME}\r\n Host: evil.example\r\n")),
        ("a host of another site", "Host: evil.example\r\n".to_owned()),
        ("no host", String::new()),
    ] {
        let answers = proxy.answers(&format!("GET /login HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
        assert!(matches!(statuses(&answers)[..], ["400"] | ["421"]), "{name}: {answers}");
    }
    // The address decides for nginx, and the head for the server: neither of them may be of another site.
    let absolute = proxy.answers(&format!("GET https://evil.example/login HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"));
    assert_eq!(statuses(&absolute).len(), 1, "{absolute}");
    let foreign = proxy.answers(&format!("GET https://{NAME}/login HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"));
    assert_eq!(statuses(&foreign), ["421"], "{foreign}");
    let page = proxy.answers(&(proxy.head("GET /", "read") + "Connection: close\r\n\r\n"));
    assert!(page.starts_with("HTTP/1.1 200"), "it still serves: {page}");
} }

/// As [`nginx`], and people log in there.
fn nginx_with_logins(server: &str, home: &str, socket: &str) -> Command {
    let command = nginx(server, home, socket);
    let users = format!("{home}/users");
    std::fs::write(&users, "ann:{PLAIN}secret\n").unwrap();
    let logins = [
        ("# auth_basic", "auth_basic"),
        ("# proxy_set_header", "proxy_set_header"),
        ("/etc/nginx/taskqueue.users", &users),
    ];
    rewrite(&format!("{home}/site.conf"), &logins);
    rewrite(&format!("{home}/nginx.conf"), &[("daemon off", "user root; daemon off")]);
    command
}

/// As [`caddy`], and people log in there.
fn caddy_with_logins(server: &str, home: &str, socket: &str) -> Command {
    let command = caddy(server, home, socket);
    let hashed = Command::new("caddy").args(["hash-password", "--plaintext", "secret"]).output().unwrap();
    let hash = String::from_utf8(hashed.stdout).unwrap();
    let logins = [
        ("# basicauth", "basicauth"),
        ("# \tann HASH", &format!("ann {}", hash.trim())),
        ("# }", "}"),
        ("# header_up", "header_up"),
    ];
    rewrite(&format!("{home}/Caddyfile"), &logins);
    command
}

fn rewrite(path: &str, replaced: &[(&str, &str)]) {
    let mut text = std::fs::read_to_string(path).unwrap();
    for (before, after) in replaced {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, after);
    }
    std::fs::write(path, text).unwrap();
}

test_on! { [sqlite Sqlite] people_who_log_in_at_nginx_need_no_token_and_forge_no_name db {
    people_who_log_in_need_no_token(db, nginx_with_logins);
} }

test_on! { [sqlite Sqlite] people_who_log_in_at_caddy_need_no_token_and_forge_no_name db {
    people_who_log_in_need_no_token(db, caddy_with_logins);
} }

fn people_who_log_in_need_no_token(db: &TestDb, proxy: fn(&str, &str, &str) -> Command) {
    let proxy = Proxy::start(db, proxy);
    let ask = |request: &str, lines: &str| {
        proxy.answers(&format!("{request} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n{lines}\r\n"))
    };
    // The name and the password: ann:secret.
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    assert_eq!(statuses(&ask("GET /tasks", "")), ["401"], "no password");
    assert_eq!(statuses(&ask("GET /tasks", "X-Forwarded-User: boss\r\n")), ["401"], "no password");
    for forged in [
        "",
        "X-Forwarded-User: boss\r\n",
        "x-forwarded-user: boss\r\nX-Forwarded-User: boss\r\n",
        "X_Forwarded_User: boss\r\n",
        "Connection: X-Forwarded-User\r\n",
    ] {
        let page = ask("GET /tasks", &format!("{ann}{forged}"));
        assert!(!page.contains("boss"), "{forged}: {page}");
        assert!(page.contains("ann (operate)") || forged.starts_with("Connection"), "{forged}: {page}");
    }
    let mut stream = proxy.write(&format!("GET /live HTTP/1.1\r\nHost: {NAME}\r\n{ann}\r\n"));
    let head = stream.answers.by_ref().lines().map_while(Result::ok).next();
    assert_eq!(head.as_deref(), Some("HTTP/1.1 200 OK"), "the stream too");
    let form = format!("{ann}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n");
    assert_eq!(statuses(&ask("POST /tasks/1/cancel", &format!("{form}Origin: https://evil.example\r\n"))), ["403"]);
    assert_eq!(statuses(&ask("POST /tasks/1/cancel", &form)), ["403"]);
    assert_eq!(
        statuses(&ask(
            "POST /tasks/1/cancel",
            &format!("{form}Origin: https://{NAME}\r\nSec-Fetch-Site: same-origin\r\n")
        )),
        ["409"],
        "allowed, but there is no task"
    );
}
