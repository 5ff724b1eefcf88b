//! Many clients, and clients that do not read: each gets its answer or a refusal, and none delays the others. The time limits of
//! connections are tested where they are: in `serve.rs` and `routes.rs` of the server.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::mpsc::channel;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::event_streams::{STREAM, next_events, open};
use super::{READ_LIMIT, Reply, WebServer};
use crate::cli::ECHO;
use crate::support::{TestDb, wait_until};
use crate::test_on;
use taskqueue_host::machine::descriptors::raise_limit;

/// How many connections a server serves at the same time.
const CONNECTIONS: usize = 1_000;
/// How many of them one client may have.
const CONNECTIONS_OF_CLIENT: usize = 900;
/// How many open streams one login may have.
const STREAMS_OF_LOGIN: usize = 800;
/// The logs of how many runs in progress a server follows.
const LOGS: usize = 200;
/// How many requests are more than may wait for the database.
const REQUESTS: usize = 400;

/// Opens a connection and sends a request that reads this path.
fn ask(server: &WebServer, path: &str) -> TcpStream {
    ask_as("read", server, path)
}

fn ask_as(login: &str, server: &WebServer, path: &str) -> TcpStream {
    ask_through(TcpStream::connect(&server.address).unwrap(), login, server, path)
}

fn ask_through(mut stream: TcpStream, login: &str, server: &WebServer, path: &str) -> TcpStream {
    send_through(&mut stream, login, server, path).unwrap();
    stream
}

fn send_through(stream: &mut TcpStream, login: &str, server: &WebServer, path: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(READ_LIMIT))?;
    let (host, token) = (&server.address, server.token(login));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n")
}

/// Connects as a client that has the loopback address with this last number.
fn connect_as(client: u8, server: &WebServer) -> TcpStream {
    let from = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&from, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, client), 0)).unwrap();
    connect(&from, &server.address.parse::<SocketAddr>().unwrap()).unwrap();
    from.into()
}

fn expect_ok(stream: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
}

/// Inserts messages of 4,000 bytes each.
fn insert_messages(db: &TestDb, count: usize) {
    db.execute(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) INSERT INTO \"TaskQueueEvents\" \
         (\"Kind\", \"Details\") SELECT 'message', '{{\"text\":\"{}\"}}' FROM n",
        "x".repeat(4_000)
    ));
}

test_on! { [sqlite Sqlite] a_connection_beyond_the_limit_is_served_when_another_one_ends db {
    db.configure(ECHO);
    let server = WebServer::start(db, &["--rate", "10000/1s"]);
    raise_limit(2 * CONNECTIONS as u64);
    let mut streams: Vec<BufReader<TcpStream>> = (0..CONNECTIONS)
        .map(|number| {
            let (client, login) = [(1, "read"), (2, "operate")][number % 2];
            BufReader::new(ask_through(connect_as(client, &server), login, &server, "/live"))
        })
        .collect();
    let hears = |stream: &mut BufReader<TcpStream>| stream.lines().map_while(Result::ok).any(|line| line == "event: changed");
    for stream in &mut streams {
        expect_ok(stream);
        assert!(hears(stream), "each stream begins with an event");
    }
    let mut further = ask(&server, "/api/v1/schedules");
    // All others get their events, and it gets no answer.
    db.cli().run(&["queue", "echo", "1"]).ok();
    assert!(streams.iter_mut().all(hears));
    further.set_nonblocking(true).unwrap();
    assert_eq!(further.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    further.set_nonblocking(false).unwrap();
    drop(streams.pop());
    let mut answer = String::new();
    further.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
} }

test_on! { [sqlite Sqlite] a_client_with_too_many_connections_leaves_some_to_others db {
    db.configure(ECHO);
    let server = WebServer::start(db, &[]);
    raise_limit(2 * CONNECTIONS as u64);
    // They never send the rest of a request.
    let silent: Vec<TcpStream> = (0..CONNECTIONS_OF_CLIENT).map(|_| connect_as(2, &server)).collect();
    let mut further = connect_as(2, &server);
    further.set_read_timeout(Some(READ_LIMIT)).unwrap();
    let closed = further.read(&mut [0]);
    assert!(closed.is_ok() || closed.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "it is closed");
    let last = silent.last().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "the time for a request is not over");
    assert_eq!(server.get("/api/v1/schedules").status, 200, "another client is served");
    drop(silent);
    wait_until("those that ended have made room", || {
        let (mut stream, mut answer) = (connect_as(2, &server), String::new());
        // A connection too many is closed, perhaps before it is written to.
        let sent = send_through(&mut stream, "read", &server, "/api/v1/schedules");
        sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200 OK")
    });
} }

test_on! { [sqlite Sqlite] a_login_with_too_many_streams_is_refused_until_one_ends db {
    db.configure(ECHO);
    let server = WebServer::start(db, &["--rate", "10000/1s"]);
    raise_limit(2 * CONNECTIONS as u64);
    let mut streams: Vec<BufReader<TcpStream>> = (0..STREAMS_OF_LOGIN).map(|_| BufReader::new(ask(&server, "/live"))).collect();
    streams.iter_mut().for_each(expect_ok);
    let refused = server.get("/api/v1/schedules");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:?}");
    assert_eq!(server.ask("operate", "GET", "/api/v1/schedules", "").status, 200);
    drop(streams.pop());
    wait_until("the one that ended has made room", || server.get("/api/v1/schedules").status == 200);
} }

test_on! { [sqlite Sqlite] a_log_beyond_those_that_are_read_is_refused_until_one_is_closed db {
    db.configure(ECHO);
    db.cli().stdin("{\"class\":\"echo\"}\n".repeat(LOGS + 1)).run(&["queue", "--batch", "-"]).ok();
    db.cli().run(&["create-runs"]).ok();
    let server = WebServer::start(db, &[]);
    let open = |run: usize| BufReader::new(ask(&server, &format!("/runs/{run}/log")));
    let mut streams: Vec<_> = (1..=LOGS).map(open).collect();
    streams.iter_mut().for_each(expect_ok);
    let status = |run: usize| {
        let mut line = String::new();
        open(run).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((status(LOGS + 1), status(LOGS)), ("503".to_owned(), "200".to_owned()));
    drop(streams.pop());
    wait_until("the closed one has made room", || status(LOGS + 1) == "200");
} }

test_on! { [sqlite Sqlite] a_login_with_too_many_requests_is_refused_and_others_are_served db {
    db.configure(ECHO);
    let server = WebServer::start(db, &[]);
    let mut lock = db.raw();
    lock.execute("BEGIN IMMEDIATE");
    let (sender, replies) = channel();
    let statuses = std::thread::scope(|scope| {
        for _ in 0..REQUESTS {
            let (sender, server) = (sender.clone(), &server);
            scope.spawn(move || sender.send(server.ask("queue", "POST", "/api/v1/tasks", "{\"class\":\"echo\"}")));
        }
        drop(sender);
        let mut statuses = Vec::new();
        let is_full = |reply: Reply| {
            statuses.push(reply.status);
            reply.status == 503 && reply.json()["detail"].as_str().unwrap().starts_with("too many requests wait")
        };
        let is_refused = replies.iter().any(is_full);
        assert_eq!(server.ask("read", "GET", "/api/v1/schedules", "").status, 200);
        lock.execute("ROLLBACK");
        assert!(is_refused, "all of them wait");
        statuses.extend(replies.iter().map(|reply| reply.status));
        statuses
    });
    assert_eq!(statuses.len(), REQUESTS);
    assert!(statuses.iter().all(|status| [201, 503].contains(status)), "{statuses:?}");
    // What was refused was not queued, and what was queued was answered.
    let queued = statuses.iter().filter(|status| **status == 201).count();
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), i64::try_from(queued).unwrap());
    assert_eq!(server.ask("queue", "POST", "/api/v1/tasks", "{\"class\":\"echo\"}").status, 201);
} }

// More than the server keeps for slow readers, and more than the kernel keeps for a connection.
test_on! { [sqlite Sqlite] a_stream_that_is_not_read_ends_and_others_get_every_event db {
    const AT_ONCE: usize = 2_400;
    const TIMES: usize = 3;
    db.configure(ECHO);
    let server = WebServer::start(db, &[]);
    let mut idle: Vec<BufReader<TcpStream>> = (0..3).map(|_| BufReader::new(ask(&server, STREAM))).collect();
    idle.iter_mut().for_each(expect_ok);
    let mut read = open(&server, "", "");
    for _ in 0..TIMES {
        insert_messages(db, AT_ONCE);
        assert_eq!(next_events(&mut read, AT_ONCE).len(), AT_ONCE);
    }
    // It would be 200 MB with the unread events.
    let peak = server.peak_memory_bytes();
    assert!(peak < 150 << 20, "{} MiB", peak >> 20);
    for stream in idle {
        let events = stream.lines().map_while(Result::ok).filter(|line| line.starts_with("data:"));
        assert!(events.take(AT_ONCE * TIMES).count() < AT_ONCE * TIMES);
    }
    insert_messages(db, 1);
    assert_eq!(next_events(&mut read, 1).len(), 1);
} }
