//! A server of a test with a token for each scope, and a client that says what it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;

use super::contract;
use crate::cli::signal;
use crate::support::TestDb;
use crate::support::cli::finish;

/// The scopes, the least first.
pub const SCOPES: [&str; 5] = ["read", "queue", "work", "operate", "admin"];
/// Longer than any request takes, and shorter than the time limit of a test.
pub const READ_LIMIT: Duration = Duration::from_secs(60);

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// A server, which ends with the value.
pub struct WebServer {
    child: Option<Child>,
    pub address: String,
    tokens: BTreeMap<String, String>,
    messages: Arc<Mutex<String>>,
    /// The operations of the interface that have succeeded.
    used: Mutex<BTreeSet<&'static str>>,
}

impl WebServer {
    /// Starts it; the configuration must be written before.
    #[track_caller]
    pub fn start(db: &TestDb, arguments: &[&str]) -> Self {
        let token = |scope: &&str| {
            let token = db.cli().run(&["web", "token", "add", scope, "--may", scope, "--force"]).ok();
            ((*scope).to_owned(), token.trim().to_owned())
        };
        let tokens = SCOPES.iter().map(token).collect();
        let listen: &[&str] = if arguments.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        Self::of(db.cli().spawn(&[&["web"], listen, arguments].concat()), tokens)
    }

    /// Starts it again, at a socket that it inherits as from a service manager.
    #[track_caller]
    pub fn start_with_socket(db: &TestDb, socket: &TcpListener, tokens: BTreeMap<String, String>) -> Self {
        let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" web --listen 127.0.0.1:1";
        Self::start_by(db, script, OwnedFd::from(socket.try_clone().unwrap()), tokens)
    }

    /// Starts it by a script whose `$0` is the program.
    #[track_caller]
    pub fn start_by(db: &TestDb, script: &str, input: impl Into<Stdio>, tokens: BTreeMap<String, String>) -> Self {
        let shell = db.cli().program(Path::new("/bin/sh"));
        Self::of(shell.spawn_with_input(input, &["-c", script, env!("CARGO_BIN_EXE_taskqueue")]), tokens)
    }

    /// Starts it again at its address.
    #[track_caller]
    pub fn start_again(db: &TestDb, address: &str, tokens: BTreeMap<String, String>) -> Self {
        Self::of(db.cli().spawn(&["web", "--listen", address]), tokens)
    }

    #[track_caller]
    fn of(mut child: Child, tokens: BTreeMap<String, String>) -> Self {
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let (mut warnings, mut line) = (String::new(), String::new());
        let address = loop {
            assert!(said.read_line(&mut line).unwrap() > 0, "{warnings}");
            if let Some((place, _)) = line.strip_prefix("the page is at ").and_then(|rest| rest.split_once("; ")) {
                break place.trim_start_matches("http").trim_start_matches("s://").trim_matches(['/', ':']).to_owned();
            }
            warnings.push_str(&std::mem::take(&mut line));
        };
        let messages = Arc::new(Mutex::new(warnings));
        let kept = Arc::clone(&messages);
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child: Some(child), address, tokens, messages, used: Mutex::default() }
    }

    /// Returns what it has printed, except its address.
    pub fn messages(&self) -> String {
        self.messages.lock().unwrap().clone()
    }

    /// Returns the most memory that it has had so far.
    pub fn peak_memory_bytes(&self) -> u64 {
        let id = self.child.as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Returns the operations of the interface that have not succeeded yet.
    pub fn unused_operations(&self) -> Vec<&'static str> {
        let used = self.used.lock().unwrap();
        contract::operation_names().filter(|name| !used.contains(*name)).collect()
    }

    pub fn tokens(&self) -> BTreeMap<String, String> {
        self.tokens.clone()
    }

    pub fn token(&self, scope: &str) -> &str {
        &self.tokens[scope]
    }

    /// Sends a request with these lines of its head.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, head: &[&str], body: &str) -> Reply {
        let reply = send(&self.address, method, path, head, body);
        self.used.lock().unwrap().extend(contract::check(method, path, body, &reply));
        reply
    }

    /// Sends a request with the token of a scope.
    #[track_caller]
    pub fn ask(&self, scope: &str, method: &str, path: &str, body: &str) -> Reply {
        self.ask_by(self.token(scope), method, path, body)
    }

    /// Sends a request with this token.
    #[track_caller]
    pub fn ask_by(&self, token: &str, method: &str, path: &str, body: &str) -> Reply {
        let kind = if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
        let (kind, token) = (format!("Content-Type: {kind}"), format!("Authorization: Bearer {token}"));
        self.send(method, path, &[&token, &kind], body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.ask("read", "GET", path, "")
    }

    /// Opens a stream of events, and returns its lines.
    pub fn stream(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        self.stream_with(path, "")
    }

    /// Opens a stream of events with further lines in the head of its request.
    pub fn stream_with(&self, path: &str, head: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = connect(&self.address);
        let (host, token) = (host_of(&self.address), self.token("read"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{head}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream).lines().map_while(Result::ok)
    }

    /// Ends it as a service manager does, and returns whether it ended well.
    pub fn end(mut self) -> Option<i32> {
        let child = self.child.take()?;
        signal(&child, Signal::TERM);
        finish(child).code
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection to a server.
trait Connection: Read + Write {}
impl<Stream: Read + Write> Connection for Stream {}

/// Connects to an address as a server prints it: `127.0.0.1:8321`, or `unix:` with the path of a socket.
fn connect(address: &str) -> Box<dyn Connection> {
    if let Some(path) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
        return Box::new(stream);
    }
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
    Box::new(stream)
}

fn host_of(address: &str) -> &str {
    if address.starts_with("unix:") { "localhost" } else { address }
}

/// Sends a request to a server, and reads the reply until the server closes the connection; of a stream only its head.
#[track_caller]
pub fn send<Body: AsRef<[u8]> + ?Sized>(address: &str, method: &str, path: &str, head: &[&str], body: &Body) -> Reply {
    let (mut stream, body) = (connect(address), body.as_ref());
    let has_host = head.iter().any(|line| line.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { String::new() } else { format!("Host: {}\r\n", host_of(address)) };
    let lines: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\nContent-Length: {length}\r\n\r\n");
    // A server that refuses a large body closes the connection before it is sent.
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(body));
    let mut reader = BufReader::new(stream);
    let mut reply_head = String::new();
    while !reply_head.ends_with("\r\n\r\n") && reader.read_line(&mut reply_head).unwrap_or(0) > 0 {}
    let mut reply = Reply { status: 0, head: reply_head, body: String::new() };
    let is_stream = reply.header("content-type") == Some("text/event-stream");
    let length = reply.header("content-length").and_then(|length| length.parse().ok()).or(is_stream.then_some(0));
    let mut body = Vec::new();
    // Some keep the connection although they are asked to close it.
    let _ = reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut body);
    reply.body = String::from_utf8(body).unwrap();
    let status = reply.head.split(' ').nth(1).and_then(|code| code.parse().ok());
    reply.status = status.unwrap_or_else(|| panic!("{method} {path}: {reply:?}"));
    reply
}
